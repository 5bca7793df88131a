// Rows of a token table, dequantized. Serves every CPU table: a few rows a step are no one's bottleneck.
#include "kernels/cpu/ops.h"
#include "quant/packed.h"
#include "quant/types.h"

namespace lode::kernels::generic {

namespace {

// Row `id` of packed rows, block by block.
void dequantize_packed(const Matrix& table, std::int64_t id, float* out) {
  const quant::TypeInfo& type = quant::info(table.type);
  const std::int64_t bytes = quant::row_bytes(table.type, table.cols);
  const std::byte* rows = table.data + id / quant::kPackedRows * quant::kPackedRows * bytes;
  std::byte block[256];
  LODE_CHECK(type.block_bytes <= static_cast<std::int64_t>(sizeof(block)));
  for (std::int64_t i = 0; i < table.cols / type.block; ++i) {
    quant::unpack_row(table.type, rows + i * quant::kPackedRows * type.block_bytes, type.block,
                      static_cast<int>(id % quant::kPackedRows), block);
    quant::dequantize_row(table.type, block, out + i * type.block, type.block);
  }
}

}  // namespace

void embed(Stream& stream, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out) {
  const std::int64_t bytes = quant::row_bytes(table.type, table.cols);
  stream.pool->run(n, [&](std::int64_t i, int) {
    LODE_CHECK(ids[i] >= 0 && ids[i] < table.rows);
    float* row = out + i * table.cols;
    if (table.layout == Layout::packed) dequantize_packed(table, ids[i], row);
    else quant::dequantize_row(table.type, table.data + ids[i] * bytes, row, table.cols);
    for (std::int64_t k = 0; k < table.cols; ++k) row[k] *= scale;
  });
}

}  // namespace lode::kernels::generic
