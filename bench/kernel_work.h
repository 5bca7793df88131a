// Work of a fixed shape for one kernel: weights, activations, K and V, scratch, and run(). What matmul_bench and
// attention_bench time and work_bench counts. Each piece owns its memory and its thread pool. Benchmarks only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "quant/types.h"

namespace lode::bench {

class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
};

// "q4_k": the type's name in small letters.
std::string short_name(quant::DType type);
// Every type that the kernels compute with, in the order of their numbers.
std::vector<quant::DType> computable_types();

// Products W x of one matrix: W [rows, cols], x [tokens, cols], activations quantized in each run.
struct ProductShape {
  quant::DType type = quant::DType::q8_0;
  std::int64_t rows = 0, cols = 0, tokens = 1;
  kernels::Layout layout = kernels::Layout::row_major;  // packed: for tables that pack the type.
};
std::unique_ptr<Work> make_product(const kernels::Table& table, const ProductShape& shape, int threads);
// The activations' part of a product alone: a matrix without rows.
std::unique_ptr<Work> make_quantize(const kernels::Table& table, quant::DType type, std::int64_t cols,
                                    std::int64_t tokens);

// Attention of `tokens` new tokens behind `depth` others, in one layer at a time.
struct AttentionShape {
  std::int32_t heads = 0, kv_heads = 0, dim = 0;
  std::int64_t window = 0;  // 0: all history.
  kernels::KvType type = kernels::KvType::f16;
  std::int64_t depth = 4096, tokens = 1;
  std::int64_t layers = 1;  // Taken in turns, so that what one reads is not in a cache when its turn comes again.

  double pairs() const;  // (query, key) pairs of one head that are visible.
  double macs() const { return pairs() * heads * dim * 2; }
  std::int64_t side_bytes() const;  // K or V of a block.
  double read_bytes() const;        // Of a run with one token: the K and V that it sees.
};
std::unique_ptr<Work> make_attention(const kernels::Table& table, const AttentionShape& shape, int threads);
std::unique_ptr<Work> make_kv_write(const kernels::Table& table, const AttentionShape& shape);

// The small operations of a step over rows of `width` floats.
enum class RowOp : std::uint8_t { rms_norm, add, glu_silu, glu_gelu, rope };
std::unique_ptr<Work> make_row_op(const kernels::Table& table, RowOp op, std::int64_t rows, std::int64_t width);

}  // namespace lode::bench
