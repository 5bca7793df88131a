// Products of weights and quantized activations: every format, and the matrices of Gemma 3 270M, SmolLM2 135M and
// Qwen3 0.6B, beside the machine's ceilings (harness.h). A prompt's products are measured against the int8 peak, a
// token's against the stream of memory.
//
//   matmul_bench [--filter 'gemma|decode/q4_k'] [--isa avx2] [--json]
#include <string>
#include <vector>

#include "base/bytes.h"
#include "harness.h"
#include "kernel_work.h"
#include "quant/packed.h"

namespace {

using namespace lode;
using namespace lode::bench;
using quant::DType;

struct Shape {
  const char* name;
  DType type;
  std::int64_t rows, cols;
};
// As the files have them: Gemma's Q4_K_M falls back to Q5_0 and Q8_0 where a row is no multiple of 256.
constexpr Shape kModels[] = {{"gemma/q", DType::q5_0, 1024, 640},      {"gemma/k", DType::q5_0, 256, 640},
                             {"gemma/v", DType::q8_0, 256, 640},       {"gemma/attn_out", DType::q4_k, 640, 1024},
                             {"gemma/up", DType::q5_0, 2048, 640},     {"gemma/down", DType::q4_k, 640, 2048},
                             {"gemma/down", DType::q6_k, 640, 2048},   {"smollm2/q", DType::q4_1, 576, 576},
                             {"smollm2/kv", DType::q4_1, 192, 576},    {"smollm2/up", DType::q4_1, 1536, 576},
                             {"smollm2/down", DType::q4_1, 576, 1536}, {"qwen3/q", DType::q4_k, 2048, 1024},
                             {"qwen3/kv", DType::q4_k, 1024, 1024},    {"qwen3/attn_out", DType::q4_k, 1024, 2048},
                             {"qwen3/up", DType::q4_k, 3072, 1024},    {"qwen3/down", DType::q4_k, 1024, 3072}};
constexpr Shape kOutputs[] = {{"gemma/output", DType::q8_0, 262144, 640}, {"smollm2/output", DType::q8_0, 49152, 576}};

Case product(const std::string& name, const ProductShape& shape, int threads, Case::Reads reads) {
  const bool floats = quant::info(shape.type).act == quant::ActFormat::f32;
  const char* layout = shape.layout == kernels::Layout::packed ? "/packed" : "";
  return {.name = name + "/" + short_name(shape.type) + layout + "/n" + std::to_string(shape.tokens),
          .threads = threads,
          .macs = static_cast<double>(shape.rows * shape.cols * shape.tokens),
          .read_bytes = static_cast<double>(shape.rows * quant::row_bytes(shape.type, shape.cols)),
          .peak = floats ? Case::Peak::f32 : Case::Peak::int8,
          .reads = reads,
          .make = [shape, threads](const kernels::Table& table) { return make_product(table, shape, threads); }};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType type : {DType::q5_0, DType::q4_k}) {
    for (const std::int64_t tokens : {1, 512}) {
      cases.push_back(
          {.name = "quantize/" + std::string(type == DType::q5_0 ? "g32" : "g256") + "/n" + std::to_string(tokens),
           .read_bytes = static_cast<double>(tokens * 2048 * 4),
           .make = [type, tokens](const kernels::Table& table) { return make_quantize(table, type, 2048, tokens); }});
    }
  }
  for (const Shape& s : kModels) {
    cases.push_back(product(s.name, {s.type, s.rows, s.cols, 512}, 2, Case::Reads::cache));
    cases.push_back(product(s.name, {s.type, s.rows, s.cols, 1}, 2, Case::Reads::cache));
  }
  // How a chunk's speed grows with its rows, on one thread and two.
  for (const std::int64_t tokens : {4, 5, 8, 32, 512})
    cases.push_back(product("gemma/up one thread", {DType::q5_0, 2048, 640, tokens}, 1, Case::Reads::cache));
  for (const std::int64_t tokens : {2, 4, 8, 16, 32, 128})
    cases.push_back(product("gemma/up", {DType::q5_0, 2048, 640, tokens}, 2, Case::Reads::cache));
  for (const Shape& s : kOutputs) {
    cases.push_back(product(s.name, {s.type, s.rows, s.cols, 1}, 2, Case::Reads::memory));
    cases.push_back(product(s.name, {s.type, s.rows, s.cols, 8}, 2, Case::Reads::memory));
  }
  for (const DType type : computable_types()) {
    cases.push_back(product("prompt", {type, 3072, 1024, 512}, 2, Case::Reads::cache));
    // 96 MiB of weights, three times a 32 MiB cache: each run reads them from memory.
    const std::int64_t rows = static_cast<std::int64_t>(96 * kMiB) / quant::row_bytes(type, 2048);
    cases.push_back(product("decode one thread", {type, rows, 2048, 1}, 1, Case::Reads::memory));
    cases.push_back(product("decode", {type, rows, 2048, 1}, 2, Case::Reads::memory));
    cases.push_back(product("decode", {type, rows, 2048, 8}, 2, Case::Reads::memory));
    if (!quant::has_packed(type)) continue;
    constexpr auto kPacked = kernels::Layout::packed;
    const std::int64_t whole = rows / quant::kPackedRows * quant::kPackedRows;
    cases.push_back(product("prompt", {type, 3072, 1024, 512, kPacked}, 2, Case::Reads::cache));
    cases.push_back(product("in cache", {type, 3072, 1024, 1, kPacked}, 2, Case::Reads::cache));
    cases.push_back(product("in cache", {type, 3072, 1024, 1}, 2, Case::Reads::cache));
    cases.push_back(product("decode one thread", {type, whole, 2048, 1, kPacked}, 1, Case::Reads::memory));
    cases.push_back(product("decode", {type, whole, 2048, 1, kPacked}, 2, Case::Reads::memory));
    cases.push_back(product("decode", {type, whole, 2048, 8, kPacked}, 2, Case::Reads::memory));
  }
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  return run_cases("matmul_bench", argc, argv, all_cases());
}
