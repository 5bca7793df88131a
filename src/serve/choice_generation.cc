#include "serve/choice_generation.h"

#include <fmt/format.h>

namespace lode::serve {

void ChoiceGeneration::on_progress(std::size_t index, const engine::Event& event) {
  if (request_.shared.progress == engine::Request::Progress::no) return;
  Json out = envelope();
  out["choices"] = Json::array({empty_choice(index)});
  out["prompt_progress"] = progress_json(event, waited_ms());
  send(out);
}

void ChoiceGeneration::finish_stream() {
  if (request_.stream_usage == StreamUsage::yes) {
    Json out = envelope();
    out["choices"] = Json::array();
    out["usage"] = usage_json(usage());
    send(out);
  }
  write("data: [DONE]\n\n");
}

Json ChoiceGeneration::envelope() const {
  Json out;
  out["id"] = id();
  out["object"] = streaming() ? objects_.chunk : objects_.whole;
  out["created"] = created();
  out["model"] = engine().info().model_name;
  return out;
}

void ChoiceGeneration::send(const Json& json) {
  write(fmt::format("data: {}\n\n", dump_json(json)));
}

void ChoiceGeneration::send_choice(Json choice) {
  Json out = envelope();
  out["choices"] = Json::array({std::move(choice)});
  send(out);
}

void ChoiceGeneration::add_account(Json& chunk, std::size_t index) const {
  chunk["seed"] = request_.shared.sampling.seed;
  chunk["timings"] = timings_json(outcome(index).timings);
  chunk["cache"] = cache_json(outcome(index).reuse);
}

Json ChoiceGeneration::stop_reason(std::size_t index) const {
  return outcome(index).stop_string.empty() ? Json(nullptr) : Json(outcome(index).stop_string);
}

Json ChoiceGeneration::whole_reply() {
  Json list = Json::array();
  engine::Timings timings;
  kv::Reuse reuse = outcome(0).reuse;
  for (std::size_t i = 0; i < choices(); ++i) {
    merge(timings, outcome(i).timings);
    if (i > 0) merge(reuse, outcome(i).reuse);
    list.push_back(choice_json(i));
    if (!outcome(i).stop_string.empty()) list.back()["stop_reason"] = outcome(i).stop_string;
  }
  Json out = envelope();
  out["choices"] = std::move(list);
  out["usage"] = usage_json(usage());
  out["seed"] = request_.shared.sampling.seed;
  out["timings"] = timings_json(timings);
  out["cache"] = cache_json(reuse);
  return out;
}

}  // namespace lode::serve
