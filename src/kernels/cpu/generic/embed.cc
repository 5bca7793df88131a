// Rows of a token table, dequantized. Serves every CPU table: a few rows a step are no one's bottleneck.
#include "kernels/cpu/ops.h"
#include "quant/types.h"

namespace lode::kernels::generic {

void embed(Stream& stream, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out) {
  LODE_CHECK(table.layout == Layout::row_major);
  const std::int64_t bytes = quant::row_bytes(table.type, table.cols);
  stream.pool->run(n, [&](std::int64_t i, int) {
    LODE_CHECK(ids[i] >= 0 && ids[i] < table.rows);
    float* row = out + i * table.cols;
    quant::dequantize_row(table.type, table.data + ids[i] * bytes, row, table.cols);
    for (std::int64_t k = 0; k < table.cols; ++k) row[k] *= scale;
  });
}

}  // namespace lode::kernels::generic
