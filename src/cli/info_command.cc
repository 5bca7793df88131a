// `lode info`: what a GGUF file holds. Works on vocabulary-only files; hostile ones give one line.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/types.h"
#include "serve/json.h"
#include "text/tokenizer.h"

namespace lode::cli {
namespace {

using serve::Json;

constexpr std::size_t kTextMax = 72;  // Bytes of a string value in the table.
constexpr std::size_t kArrayMax = 6;  // Items of an array in the table.

struct Flags {
  std::filesystem::path model;
  bool json = false;
};

struct TypeTotal {
  std::int64_t tensors = 0, values = 0;
  std::uint64_t bytes = 0;
};

struct GroupCost {
  std::string kind;
  std::int64_t layers = 0, window = 0;
  std::int64_t bytes_per_token = 0;  // f16 K and V.
};

// A value of metadata as JSON; arrays are cut to `items` entries.
Json value_json(const gguf::Value& value, std::size_t items) {
  return std::visit(
      [&](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, gguf::Array>) {
          Json out = Json::array();
          std::visit(
              [&](const auto& list) {
                for (std::size_t i = 0; i < std::min(list.size(), items); ++i) out.push_back(list[i]);
              },
              v.items);
          return out;
        } else {
          return Json(v);
        }
      },
      value.v);
}

std::string value_text(const gguf::Value& value) {
  if (const auto* array = std::get_if<gguf::Array>(&value.v)) {
    std::string out = serve::dump_json(value_json(value, kArrayMax));
    if (out.size() > kTextMax) out = out.substr(0, kTextMax) + "...";
    return fmt::format("{} x {} {}", array->size(), gguf::type_name(array->element), serve::valid_utf8(out));
  }
  if (const auto* text = std::get_if<std::string_view>(&value.v)) {
    const bool cut = text->size() > kTextMax;
    const std::string quoted = serve::dump_json(serve::valid_utf8(text->substr(0, kTextMax)));
    return cut ? fmt::format("{}... ({} bytes)", quoted, text->size()) : quoted;
  }
  return serve::dump_json(value_json(value, 0));
}

std::map<std::string, TypeTotal> totals_by_type(const gguf::File& file) {
  std::map<std::string, TypeTotal> totals;
  for (const auto& tensor : file.tensors()) {
    TypeTotal& total = totals[std::string(quant::info(tensor.type).name)];
    std::int64_t values = 1;
    for (const std::int64_t n : tensor.shape) values *= n;
    ++total.tensors;
    total.values += values;
    total.bytes += tensor.bytes;
  }
  return totals;
}

// What a family declares about its cache; empty for a file that is no model this version runs.
std::vector<GroupCost> cache_costs(gguf::File& file, std::string& why_not) {
  if (file.tensors().empty()) {
    why_not = "the file holds a vocabulary only";
    return {};
  }
  Status status = file.load_tensors(gguf::LoadMode::mmap);
  auto model = status.ok() ? model::Model::load(file) : Result<std::unique_ptr<model::Model>>(status);
  if (!model.ok()) {
    why_not = model.status().message();
    return {};
  }
  std::vector<GroupCost> out;
  for (const auto& group : (*model)->groups()) {
    using Kind = model::CacheGroup::Kind;
    GroupCost cost{.layers = static_cast<std::int64_t>(group.layers.size()), .window = group.window};
    cost.kind = group.kind == Kind::full     ? "full attention"
                : group.kind == Kind::window ? "sliding window"
                : group.kind == Kind::chunk  ? "chunk"
                                             : "checkpoint";
    for (const auto& layer : group.layers)
      cost.bytes_per_token += std::int64_t{2} * layer.kv_heads * (layer.k_dim + layer.v_dim);
    out.push_back(std::move(cost));
  }
  return out;
}

std::optional<std::uint64_t> architecture_uint(const gguf::File& file, std::string_view key) {
  const auto architecture = file.get_string("general.architecture");
  if (!architecture.ok() || !*architecture) return std::nullopt;
  const auto value = file.get_uint(fmt::format("{}.{}", **architecture, key));
  return value.ok() ? *value : std::nullopt;
}

std::string text_or(const gguf::File& file, std::string_view key, std::string_view otherwise) {
  const auto value = file.get_string(key);
  return value.ok() && *value ? serve::valid_utf8(**value) : std::string(otherwise);
}

Json vocabulary_json(const gguf::File& file) {
  Json out;
  auto tokenizer = text::Tokenizer::load(file);
  if (!tokenizer.ok()) {
    out["error"] = tokenizer.status().message();
    return out;
  }
  out["model"] = text_or(file, "tokenizer.ggml.model", "");
  out["pre"] = text_or(file, "tokenizer.ggml.pre", "");
  out["size"] = (*tokenizer)->vocab_size();
  out["bos"] = (*tokenizer)->bos();
  out["eos"] = (*tokenizer)->eos();
  if (!(*tokenizer)->warnings().empty()) out["warnings"] = (*tokenizer)->warnings();
  return out;
}

Json everything(gguf::File& file) {
  Json out;
  out["path"] = file.path().string();
  out["parts"] = file.parts().size();
  out["version"] = file.version();
  out["bytes"] = file.bytes_on_disk();
  out["architecture"] = text_or(file, "general.architecture", "");
  out["name"] = text_or(file, "general.name", "");
  for (const char* key : {"context_length", "block_count", "embedding_length", "feed_forward_length"}) {
    if (const auto value = architecture_uint(file, key)) out[key] = *value;
  }
  out["metadata"] = Json::object();
  // Appended without the search for an equal key, which a File does not have: 100,000 keys would take minutes.
  auto& members = out["metadata"].get_ref<Json::object_t&>();
  for (const auto& [key, value] : file.metadata())
    members.Json::object_t::Container::emplace_back(serve::valid_utf8(key), value_json(value, 32));
  out["tensors"] = file.tensors().size();
  std::int64_t parameters = 0;
  out["types"] = Json::object();
  for (const auto& [name, total] : totals_by_type(file)) {
    out["types"][name] = {{"tensors", total.tensors}, {"values", total.values}, {"bytes", total.bytes}};
    parameters += total.values;
  }
  out["parameters"] = parameters;
  out["vocabulary"] = vocabulary_json(file);
  std::string why_not;
  Json groups = Json::array();
  for (const auto& cost : cache_costs(file, why_not)) {
    groups.push_back({{"kind", cost.kind},
                      {"layers", cost.layers},
                      {"window", cost.window},
                      {"f16_bytes_per_token", cost.bytes_per_token}});
  }
  out["cache"] = std::move(groups);
  if (!why_not.empty()) out["cannot_run"] = why_not;
  return out;
}

void print_table(const gguf::File& file, const Json& all) {
  const auto text = [](const Json& json) {
    return json.is_string() ? json.get<std::string>() : serve::dump_json(json);
  };
  const auto row = [](std::string_view name, const std::string& value) { fmt::print("{:<24}{}\n", name, value); };
  row("file", fmt::format("{}, GGUF v{}, {}{}", all["path"].get<std::string>(), file.version(),
                          format_size(file.bytes_on_disk()),
                          file.parts().size() > 1 ? fmt::format(" in {} parts", file.parts().size()) : ""));
  row("architecture", text(all["architecture"]));
  row("name", text(all["name"]));
  for (const char* key : {"context_length", "block_count", "embedding_length", "feed_forward_length"}) {
    if (all.contains(key)) row(key, text(all[key]));
  }
  row("parameters",
      fmt::format("{:.1f} M in {} tensors", all["parameters"].get<double>() / 1e6, file.tensors().size()));
  for (const auto& [name, total] : all["types"].items()) {
    row("  " + name,
        fmt::format("{} tensors, {:.1f} M values, {}", total["tensors"].get<std::int64_t>(),
                    total["values"].get<double>() / 1e6, format_size(total["bytes"].get<std::uint64_t>())));
  }
  const Json& vocabulary = all["vocabulary"];
  if (vocabulary.contains("error")) row("vocabulary", text(vocabulary["error"]));
  else
    row("vocabulary",
        fmt::format("{} tokens, {} {}, bos {}, eos {}", text(vocabulary["size"]), text(vocabulary["model"]),
                    text(vocabulary["pre"]), text(vocabulary["bos"]), text(vocabulary["eos"])));
  if (vocabulary.contains("warnings")) {
    for (const Json& warning : vocabulary["warnings"]) row("  warning", text(warning));
  }
  std::int64_t per_token = 0;
  for (const Json& group : all["cache"]) {
    const auto bytes = group["f16_bytes_per_token"].get<std::int64_t>();
    if (group["window"] == 0) per_token += bytes;
    row("KV cache, f16", fmt::format("{}, {} layers{}: {} a token", text(group["kind"]), text(group["layers"]),
                                     group["window"] != 0 ? fmt::format(" of {} tokens", text(group["window"])) : "",
                                     format_size(static_cast<std::uint64_t>(bytes))));
  }
  if (per_token > 0)
    row("", fmt::format("grows by {} per 1,000 tokens of context",
                        format_size(static_cast<std::uint64_t>(per_token) * 1000)));
  if (all.contains("cannot_run")) row("cannot run", text(all["cannot_run"]));
  fmt::print("\nmetadata\n");
  for (const auto& [key, value] : file.metadata())
    fmt::print("  {:<46}{:<7} {}\n", serve::valid_utf8(key), gguf::type_name(value.type), value_text(value));
}

void run_info(Flags& flags) {
  auto file = gguf::File::open(flags.model, {.metadata_only = true});
  if (!file.ok()) fail(file.status());
  const Json all = everything(**file);
  if (flags.json) fmt::print("{}\n", serve::dump_json(all));
  else print_table(**file, all);
}

}  // namespace

void add_info_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("info", "What a GGUF file holds");
  add_model_argument(command, flags->model);
  command.add_flag("--json", flags->json, "As JSON; long arrays are cut to 32 items");
  on_run(command, flags, run_info);
}

}  // namespace lode::cli
