// Attention at the shapes of Gemma 3 270M, SmolLM2 135M and Qwen3 behind 4,096 tokens, beside the machine's ceilings
// (harness.h): a prompt's multiply-adds against the f32 peak, a token's K and V against the stream of memory. One
// layer; a token's layers take turns, so that it reads memory and not a cache.
//
//   attention_bench [--filter 'decode.*q8'] [--isa avx2] [--json]
#include <string>
#include <vector>

#include "harness.h"
#include "kernel_work.h"
#include "kernels/kernels.h"

namespace {

using namespace lode;
using namespace lode::bench;
using kernels::KvType;

struct Shape {
  const char* name;
  std::int32_t heads, kv_heads, dim;
  std::int64_t window;
};
constexpr Shape kShapes[] = {
    {"gemma full", 4, 1, 256, 0}, {"gemma window", 4, 1, 256, 512}, {"smollm2", 9, 3, 64, 0}, {"qwen3", 16, 8, 128, 0}};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Shape& s : kShapes) {
    for (const KvType type : {KvType::f16, KvType::i16, KvType::q8_0}) {
      const std::string suffix =
          std::string("/") + s.name + "/" + std::string(kernels::kv_format_name(type)).substr(0, 4);
      AttentionShape shape{s.heads, s.kv_heads, s.dim, s.window, type};
      for (const auto& [tokens, threads] : {std::pair<std::int64_t, int>{512, 1}, {512, 2}, {32, 2}}) {
        shape.tokens = tokens;
        cases.push_back({.name = "prompt" + suffix + "/n" + std::to_string(tokens),
                         .threads = threads,
                         .macs = shape.macs(),
                         .peak = Case::Peak::f32,
                         .make = [shape, threads = threads](const kernels::Table& table) {
                           return make_attention(table, shape, threads);
                         }});
      }
      shape.tokens = 1;
      // 96 MiB and more of what is seen: three times a 32 MiB cache.
      shape.layers = 1 + static_cast<std::int64_t>(100e6 / shape.read_bytes());
      for (const int threads : {1, 2}) {
        cases.push_back(
            {.name = "decode" + suffix,
             .threads = threads,
             .macs = shape.macs(),
             .read_bytes = shape.read_bytes(),
             .peak = Case::Peak::f32,
             .reads = Case::Reads::memory,
             .make = [shape, threads](const kernels::Table& table) { return make_attention(table, shape, threads); }});
      }
      for (const std::int64_t tokens : {1, 512}) {
        shape.tokens = tokens;
        shape.layers = 1;
        cases.push_back({.name = "kv_write" + suffix + "/n" + std::to_string(tokens),
                         .read_bytes = static_cast<double>(tokens * 2 * shape.side_bytes()) / kernels::kBlockTokens,
                         .make = [shape](const kernels::Table& table) { return make_kv_write(table, shape); }});
      }
    }
  }
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  return run_cases("attention_bench", argc, argv, all_cases());
}
