#include "engine/stepper.h"

#include <algorithm>

#include <fmt/format.h>

namespace lode::engine {

Stepper::Stepper(Runtime& rt, platform::Clock& clock)
    : rt_(rt),
      clock_(clock),
      board_(rt.limits.runs),
      sampler_(rt.model->facts().vocab, rt.info.context_max),
      mask_(Constraint::mask_words(rt.model->facts().vocab)) {
  for (TokenId id = 0; id < rt.model->facts().vocab; ++id)
    if (rt.tokenizer && rt.tokenizer->is_end_of_generation(id)) end_tokens_.push_back(id);
  forced_.reserve(64);
  parts_.reserve(static_cast<std::size_t>(rt.limits.runs));
  specs_.reserve(static_cast<std::size_t>(rt.limits.runs));
  ids_.reserve(static_cast<std::size_t>(rt.limits.rows));
  positions_.reserve(static_cast<std::size_t>(rt.limits.rows));
  output_rows_.reserve(static_cast<std::size_t>(rt.limits.outputs));
  running_.reserve(static_cast<std::size_t>(rt.limits.runs));
  order_.reserve(static_cast<std::size_t>(rt.limits.runs));
}

bool Stepper::step() {
  rt_.store->poll();
  admit();
  plan_batch();
  if (parts_.empty()) {
    remove_ended();
    return false;
  }
  const std::int64_t started_ns = clock_.now_ns();
  const Status done = forward();
  if (done.ok()) note_computed(clock_.now_ns() - started_ns);
  if (done.ok()) finish_parts();
  else if (rt_.gpu && done.code() != Code::corrupt) fail_parts(done);
  else if (rt_.experts && rt_.experts->take_failure()) fail_parts(done);
  else repair();
  if (rt_.gpu) recount_card();
  remove_ended();
  ++counters_.steps;
  return true;
}

void Stepper::enqueue(std::unique_ptr<Live> request) {
  ++counters_.requests;
  queue_.push_back(std::move(request));
  count();
}

void Stepper::count() {
  queued_ = static_cast<std::int64_t>(queue_.size());
  slots_ = static_cast<std::int64_t>(running_.size());
}

void Stepper::cancel(RequestId id) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if ((*it)->id != id) continue;
    const std::unique_ptr<Live> live = std::move(*it);
    queue_.erase(it);
    count();
    finish(*live, FinishReason::cancelled);
    return;
  }
  for (auto& live : running_)
    if (live->id == id && live->sink) finish(*live, FinishReason::cancelled);
  remove_ended();
}

void Stepper::cancel_all() {
  while (!queue_.empty()) cancel(queue_.front()->id);
  while (!running_.empty()) cancel(running_.front()->id);
}

// Moves requests from the queue into slots while memory allows.
void Stepper::admit() {
  while (!queue_.empty() && static_cast<std::int64_t>(running_.size()) < rt_.limits.runs) {
    Live& live = *queue_.front();
    auto opened = rt_.store->open_sequence(live.tokens, live.request.salt, live.request.marks);
    if (!opened.ok()) {
      if (opened.status().code() == Code::resource_exhausted && !running_.empty()) return;  // Somebody will finish.
      const std::unique_ptr<Live> ended = std::move(queue_.front());
      queue_.pop_front();
      count();
      fail(*ended, opened.status());
      continue;
    }
    live.kv = opened.value();
    live.slot = board_.take(live.request.slot, live.tokens, live.request.salt);
    if (live.first_admission) live.admitted_ns = clock_.now_ns();
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    count();
  }
}

// Every decoding sequence gets its row; prompts share one chunk, oldest first.
void Stepper::plan_batch() {
  parts_.clear();
  specs_.clear();
  ids_.clear();
  positions_.clear();
  output_rows_.clear();
  std::int64_t chunk_left = rt_.info.chunk;
  // A copy of the order: preempting removes sequences that have no part yet.
  order_.clear();
  for (const auto& live : running_) order_.push_back(live.get());
  for (Live* entry : order_) {
    Live& live = *entry;
    if (!live.kv) continue;  // Preempted a moment ago.
    if (!live.sink || rt_.store->state(*live.kv) != kv::SeqState::ready) continue;
    if (live.first_admission) {
      live.reuse = rt_.store->reuse(*live.kv);
      say_difference(live.reuse);
      live.first_admission = false;
    }
    const std::int64_t left = static_cast<std::int64_t>(live.tokens.size()) - rt_.store->length(*live.kv);
    LODE_CHECK(left >= 1);
    const bool decoding = live.prompt_done && left == 1;
    std::int64_t count = decoding ? 1 : std::min(left, chunk_left);
    if (count <= 0) continue;
    count = rt_.store->step_limit(*live.kv, count);
    if (!grow(live, count)) continue;
    if (!decoding) chunk_left -= count;
    add_part(live, count);
  }
}

// "token 207 differs": the two tokens as text, so that whoever reads it need not ask.
void Stepper::say_difference(kv::Reuse& reuse) const {
  if (reuse.asked_token < 0 || !rt_.tokenizer) return;
  const auto text = [&](TokenId id) {
    std::string out = "'";
    for (const char c : rt_.tokenizer->decode({&id, 1}, text::Tokenizer::Control::show))
      out += c == '\n' ? std::string("\\n") : c == '\t' ? std::string("\\t") : std::string(1, c);
    return out + "'";
  };
  reuse.reason += fmt::format(" (asked {}, stored {})", text(reuse.asked_token), text(reuse.stored_token));
}

// Memory for `count` more positions; takes it from the youngest others if need be. False: not in this step.
bool Stepper::grow(Live& live, std::int64_t count) {
  for (;;) {
    const Status grown = rt_.store->grow(*live.kv, count);
    if (grown.ok()) return true;
    if (grown.code() != Code::resource_exhausted) {
      fail(live, grown);
      return false;
    }
    Live* victim = youngest_other(live);
    if (victim) {
      preempt(*victim);
      continue;
    }
    const bool alone =
        std::count_if(running_.begin(), running_.end(), [](const auto& l) { return l->sink && l->kv; }) == 1;
    if (alone) fail(live, grown);
    return false;  // An older sequence goes on; this one waits for it, or is preempted by it.
  }
}

// The last admitted sequence behind `live`, which has no part in this step yet. Failing that, one that waits for a
// peer: it may be waiting for `live` itself, and holds memory meanwhile.
Live* Stepper::youngest_other(const Live& live) {
  for (auto it = running_.rbegin(); it != running_.rend() && it->get() != &live; ++it)
    if ((*it)->sink && (*it)->kv) return it->get();
  for (auto it = running_.rbegin(); it != running_.rend(); ++it)
    if (it->get() != &live && (*it)->sink && (*it)->kv && rt_.store->state(*(*it)->kv) == kv::SeqState::waiting_peer)
      return it->get();
  return nullptr;
}

// Its blocks fall to the tiers; it resumes from them, bit for bit, when there is room.
void Stepper::preempt(Live& live) {
  ++counters_.preemptions;
  rt_.store->close(live.kv);
  live.kv = nullptr;
  board_.give(live.slot, live.tokens, live.request.salt, clock_.now_ns());
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const auto& l) { return l.get() == &live; });
  queue_.push_front(std::move(*it));
  running_.erase(it);
  count();
}

void Stepper::add_part(Live& live, std::int64_t count) {
  const std::int64_t start = rt_.store->length(*live.kv);
  Part part{&live, count, -1};
  specs_.push_back({live.kv, static_cast<std::int64_t>(ids_.size()), count});
  for (std::int64_t p = start; p < start + count; ++p) {
    ids_.push_back(live.tokens[static_cast<std::size_t>(p)]);
    positions_.push_back(p);
  }
  if (start + count == static_cast<std::int64_t>(live.tokens.size())) {
    part.output = static_cast<std::int32_t>(output_rows_.size());
    output_rows_.push_back(static_cast<std::int32_t>(ids_.size()) - 1);
  }
  parts_.push_back(part);
}

Status Stepper::forward() {
  const model::Batch batch{ids_, positions_, output_rows_, rt_.experts.get()};
  if (rt_.gpu) {
    const auto outputs = output_rows_.size() * static_cast<std::size_t>(rt_.model->facts().vocab);
    return rt_.gpu->step(*rt_.model, batch, rt_.store->view(specs_), rt_.limits,
                         {reinterpret_cast<float*>(rt_.logits->data()), outputs});
  }
  return rt_.model->forward(rt_.stream, batch, rt_.store->view(specs_), rt_.limits, rt_.scratch->data(),
                            reinterpret_cast<float*>(rt_.logits->data()));
}

// What computing takes here tells the store what its blocks are worth.
void Stepper::note_computed(std::int64_t ns) {
  kv::Store::ComputedStep step{.tokens = static_cast<std::int64_t>(ids_.size()),
                               .seconds = static_cast<double>(ns) * 1e-9};
  for (const std::int64_t p : positions_) step.positions += static_cast<double>(p);
  rt_.store->note_computed(step);
}

// A restored block could not be read: the sequences concerned fall back to what is sound and compute the rest.
void Stepper::repair() {
  for (const Part& part : parts_) rt_.store->repair(*part.live->kv);
}

// The driver takes memory with shapes that it has not seen. Steps of prompts bring them, and take 25 ms or more;
// between decode steps of 2 ms, 20 ms are often enough.
void Stepper::recount_card() {
  constexpr std::int64_t kEveryNs = 20'000'000;
  if (clock_.now_ns() - recounted_ns_ < kEveryNs) return;
  recounted_ns_ = clock_.now_ns();
  if (const std::uint64_t lacking = rt_.gpu->recount(); lacking > 0) {
    rt_.store->yield_device(lacking);
    (void)rt_.gpu->recount();  // What still lacks lies in the margin.
  }
}

// A card that failed: the requests of this step end, and say so.
void Stepper::fail_parts(const Status& error) {
  for (const Part& part : parts_) fail(*part.live, error);
}

void Stepper::finish_parts() {
  std::int64_t row = 0;
  const std::int64_t vocab = rt_.model->facts().vocab;
  for (const Part& part : parts_) {
    Live& live = *part.live;
    rt_.store->commit(*live.kv, std::span<const TokenId>(ids_).subspan(static_cast<std::size_t>(row),
                                                                       static_cast<std::size_t>(part.count)));
    row += part.count;
    (live.prompt_done ? counters_.tokens_generated : counters_.tokens_prefilled) += part.count;
    if (!live.prompt_done && live.request.progress == Request::Progress::yes) {
      Event event;
      event.kind = Event::Kind::progress;
      event.processed = rt_.store->length(*live.kv);
      event.total = live.prompt_n;
      event.reuse = live.reuse;
      live.sink(std::move(event));
    }
    if (part.output < 0) continue;
    if (!live.prompt_done) {
      live.prompt_done = true;
      live.first_token_ns = clock_.now_ns();
      live.reuse.load_ms = rt_.store->reuse(*live.kv).load_ms;
      rt_.store->mark_resume_point(*live.kv);
    }
    const float* logits = reinterpret_cast<const float*>(rt_.logits->data()) + part.output * vocab;
    take_token(live, {logits, static_cast<std::size_t>(vocab)});
  }
}

// Tokens the answer may still have, by max_tokens and by the context.
std::int64_t Stepper::tokens_left(const Live& live) const {
  const std::int64_t room = rt_.info.context_max - static_cast<std::int64_t>(live.tokens.size());
  return live.request.max_tokens < 0 ? room : std::min(room, live.request.max_tokens - live.generated());
}

// -1, once the constraint allows nothing.
TokenId Stepper::draw(Live& live, std::span<const float> logits) {
  const Request& r = live.request;
  Sampler::Barred barred;
  if (live.generated() < r.min_tokens) barred.tokens = end_tokens_;
  if (live.constraint) {
    live.constraint->set_tokens_left(tokens_left(live));
    live.constraint->fill_mask(mask_);
    barred.mask = mask_;
  }
  const TokenId token = sampler_.sample(logits, r.sampling, r.choice, live.tokens, barred);
  // A document that is complete may end sooner than min_tokens says, where nothing else is allowed.
  if (token < 0 && !barred.tokens.empty())
    return sampler_.sample(logits, r.sampling, r.choice, live.tokens, {.mask = barred.mask});
  return token;
}

// Samples the next token of one sequence and sends what became certain.
void Stepper::take_token(Live& live, std::span<const float> logits) {
  const Request& r = live.request;
  if (r.max_tokens == 0) return finish(live, FinishReason::length);
  const TokenId token = draw(live, logits);
  if (token < 0) return fail(live, Status(Code::internal, "the answer's grammar allows no token here"));
  // Under a constraint an end token comes only where the answer may end.
  const bool ends =
      rt_.tokenizer->is_end_of_generation(token) && (live.constraint || r.end_tokens == Request::EndTokens::stop);
  if (ends || std::binary_search(r.stop_tokens.begin(), r.stop_tokens.end(), token))
    return finish(live, FinishReason::stop);
  if (live.constraint && !live.constraint->accept(token))
    return fail(live, Status(Code::internal, "the answer's grammar refuses a token that it allowed"));
  send(live, append(live, token, logits));
  if (at_end(live)) return;
  if (live.constraint && r.top_logprobs < 0) take_forced(live);
}

// The token's text, as far as it is certain. `logits` may be empty where no log-probabilities are asked for.
std::string Stepper::append(Live& live, TokenId token, std::span<const float> logits) {
  using Control = text::Tokenizer::Control;
  const Request& r = live.request;
  const bool shown = std::binary_search(r.shown.begin(), r.shown.end(), token);
  live.tokens.push_back(token);
  if (r.top_logprobs >= 0) {
    TokenInfo info;
    info.id = token;
    info.bytes = rt_.tokenizer->token_bytes(token, shown ? Control::show : Control::hide);
    Sampler::log_probabilities(logits, r.top_logprobs, info);
    live.unsent.push_back(std::move(info));
  }
  return live.stops.push(live.text.push(token, shown ? Control::show : Control::hide));
}

// Whether the answer ends with its last token; it is finished then.
bool Stepper::at_end(Live& live) {
  if (!live.stops.matched().empty() || (live.constraint && live.constraint->done())) {
    finish(live, FinishReason::stop);
    return true;
  }
  if (tokens_left(live) > 0) return false;
  finish(live, FinishReason::length);
  return true;
}

// What must come next is not drawn: it goes through the model with the next step, as a chunk of a prompt does.
void Stepper::take_forced(Live& live) {
  forced_.clear();
  live.constraint->forced(forced_, static_cast<std::size_t>(tokens_left(live)));
  for (const TokenId token : forced_) {
    send(live, append(live, token, {}));
    if (!live.stops.matched().empty() || tokens_left(live) <= 0) break;
  }
  if (!forced_.empty()) at_end(live);
}

void Stepper::send(Live& live, std::string text) {
  if (text.empty() && live.unsent.empty()) return;
  Event event;
  event.kind = Event::Kind::delta;
  event.text = std::move(text);
  event.tokens = std::exchange(live.unsent, {});
  event.reuse = live.reuse;
  live.sink(std::move(event));
}

Timings Stepper::timings(const Live& live) const {
  const std::int64_t now = clock_.now_ns();
  const auto ms = [](std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) / 1e6; };
  Timings t;
  t.cache_n = live.reuse.tokens_reused;
  t.prompt_n = live.prompt_n - t.cache_n;
  t.predicted_n = live.generated();
  t.queue_ms = ms(live.submitted_ns, live.admitted_ns ? live.admitted_ns : now);
  if (live.admitted_ns) t.prompt_ms = ms(live.admitted_ns, live.first_token_ns ? live.first_token_ns : now);
  if (live.first_token_ns) t.predicted_ms = ms(live.first_token_ns, now);
  return t;
}

void Stepper::finish(Live& live, FinishReason reason) {
  Event event;
  event.kind = Event::Kind::finished;
  event.finish = reason;
  event.stop_string = live.stops.matched();
  // Text that was held for a stop string or a character that never came.
  event.text = live.stops.push(live.text.flush());
  event.text += live.stops.flush();
  event.tokens = std::exchange(live.unsent, {});
  if (reason == FinishReason::cancelled) ++counters_.cancelled;
  end(live, std::move(event));
}

void Stepper::fail(Live& live, Status error) {
  ++counters_.failed;
  Event event;
  event.kind = Event::Kind::failed;
  event.error = std::move(error);
  end(live, std::move(event));
}

void Stepper::end(Live& live, Event&& event) {
  event.timings = timings(live);
  event.reuse = live.reuse;
  if (live.kv) {
    // The last token was drawn, but not computed.
    const auto computed = std::min(live.tokens.size(), static_cast<std::size_t>(rt_.store->length(*live.kv)));
    board_.give(live.slot, std::span(live.tokens).first(computed), live.request.salt, clock_.now_ns());
    rt_.store->close(live.kv);
  }
  live.kv = nullptr;
  const EventSink sink = std::exchange(live.sink, nullptr);
  sink(std::move(event));
}

void Stepper::remove_ended() {
  std::erase_if(running_, [](const auto& live) { return !live->sink; });
  count();
}

}  // namespace lode::engine
