#include "model/model.h"

#include <map>

#include <fmt/format.h>

#include "model/families.h"

namespace lode::model {
namespace {

struct Family {
  std::string_view architecture;
  Result<std::unique_ptr<Model>> (*load)(const LoadContext&);
  bool placeable = false;  // Its forward page runs where Placer puts the weights.
};
constexpr Family kFamilies[] = {
    {"llama", load_llama, true}, {"gemma3", load_gemma3, true}, {"qwen2", load_qwen, true}, {"qwen3", load_qwen, true},
    {"qwen3moe", load_qwen},     {"qwen35", load_qwen35},       {"qwen35moe", load_qwen35},
};

}  // namespace

std::string_view architecture_names() {
  static const std::string names = [] {
    std::string out;
    for (const Family& f : kFamilies) out += (out.empty() ? "" : ", ") + std::string(f.architecture);
    return out;
  }();
  return names;
}

bool placeable(std::string_view architecture) {
  for (const Family& f : kFamilies)
    if (f.architecture == architecture) return f.placeable;
  return false;
}

Result<std::unique_ptr<Model>> Model::load(const gguf::File& file, const LoadOptions& options) {
  const auto arch = file.get_string("general.architecture");
  if (!arch.ok()) return arch.status();
  if (!arch.value())
    return Status::corrupt(
        fmt::format("{}: key 'general.architecture' is missing: not a model file", file.path().string()));
  for (const Family& family : kFamilies) {
    if (family.architecture != *arch.value()) continue;
    if (options.place && options.where == LoadOptions::Where::device && !family.placeable)
      return Status::unsupported(
          fmt::format("{}: models of architecture '{}' run on the CPU only as yet; start without a GPU",
                      file.path().string(), family.architecture));
    auto model = family.load({file, family.architecture, options});
    if (!model.ok()) return model.status();
    Facts& facts = model.value()->facts_;
    facts.architecture = *arch.value();
    const auto name = file.get_string("general.name");
    facts.name = name.ok() && name.value() ? std::string(*name.value()) : file.path().stem().string();
    std::map<std::string_view, int> types;
    for (const gguf::Tensor& t : file.tensors()) {
      ++types[quant::info(t.type).name];
      std::int64_t values = 1;
      for (std::int64_t d : t.shape) values *= d;
      facts.parameters += values;
      const auto is = [&](std::string_view part) { return t.name.find(part) != std::string_view::npos; };
      if (t.name == "token_embd.weight") facts.embedding_bytes += t.bytes;
      else if (t.name == "output.weight") facts.output_bytes += t.bytes;
      else if (is(".attn_") || is(".ssm_")) facts.attention_bytes += t.bytes;
      else if (is(".ffn_")) facts.ffn_bytes += t.bytes;
      else facts.other_bytes += t.bytes;
    }
    for (const auto& [type, count] : types)
      facts.type_summary += fmt::format("{}{} {}", facts.type_summary.empty() ? "" : ", ", type, count);
    return model;
  }
  return Status::unsupported(fmt::format("{}: architecture '{}' is not supported; supported: {}", file.path().string(),
                                         *arch.value(), architecture_names()));
}

}  // namespace lode::model
