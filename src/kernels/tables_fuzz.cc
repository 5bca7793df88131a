// Fuzz target: products of arbitrary weight bytes by arbitrary activations, in every table this processor can run.
// All give the scalar table's bits (NaN for NaN). The first bytes pick format, shape and how the activations are made.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace {

using namespace lode;
using namespace lode::kernels;

constexpr quant::DType kTypes[] = {
    quant::DType::f32,    quant::DType::f16,   quant::DType::bf16,    quant::DType::q4_0,    quant::DType::q4_1,
    quant::DType::q5_0,   quant::DType::q5_1,  quant::DType::q8_0,    quant::DType::iq4_nl,  quant::DType::mxfp4,
    quant::DType::nvfp4,  quant::DType::q1_0,  quant::DType::q2_0,    quant::DType::q2_k,    quant::DType::q3_k,
    quant::DType::q4_k,   quant::DType::q5_k,  quant::DType::q6_k,    quant::DType::tq1_0,   quant::DType::tq2_0,
    quant::DType::iq4_xs, quant::DType::iq3_s, quant::DType::iq3_xxs, quant::DType::iq2_xxs, quant::DType::iq2_xs,
    quant::DType::iq2_s,  quant::DType::iq1_s, quant::DType::iq1_m};

struct Bytes {  // Cut from the input; past its end they repeat, so that short inputs fill big matrices.
  const std::uint8_t* data;
  std::size_t size, at = 0;
  std::uint8_t next() { return data[at++ % size]; }
};

std::vector<float> product(const Table& table, const Matrix& w, const std::vector<float>& x, std::int64_t n) {
  static ThreadPool pool(1);
  const std::size_t scratch = scratch_bytes_per_thread(w.cols, 256);
  const auto room = std::make_unique<std::byte[]>(scratch + acts_bytes(n, w.cols) + 256);
  auto* const begin = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(room.get()), 64));
  Stream s;
  s.ops = &table;
  s.pool = &pool;
  s.scratch = begin;
  s.scratch_bytes_per_thread = scratch;
  Acts acts;
  acts_bind(acts, x.data(), n, w.cols, begin + align_up(scratch, 64));
  std::vector<float> y(static_cast<std::size_t>(n * w.rows), -7.0f);
  kernels::matmul(s, {{&w, y.data(), w.rows}}, acts);
  return y;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 8) return 0;
  Bytes in{data, size};
  Matrix w;
  w.type = kTypes[in.next() % std::size(kTypes)];
  w.rows = 1 + in.next() % 40;
  w.cols = quant::info(w.type).block * (1 + in.next() % 5);
  const std::int64_t n = 1 + in.next() % 9;
  const std::uint8_t kind = in.next();
  std::vector<std::byte> bytes(static_cast<std::size_t>(w.rows * quant::row_bytes(w.type, w.cols)));
  for (auto& b : bytes) b = static_cast<std::byte>(in.next());
  w.data = bytes.data();
  std::vector<float> x(static_cast<std::size_t>(n * w.cols));
  for (auto& v : x) {
    if (kind & 1) {  // Any float, NaN and infinity among them.
      std::uint32_t u = 0;
      for (int i = 0; i < 4; ++i) u = u << 8 | in.next();
      std::memcpy(&v, &u, 4);
    } else {
      v = static_cast<float>(static_cast<std::int8_t>(in.next())) / 16;
    }
  }
  const auto tables = available_tables();
  const std::vector<float> truth = product(*tables.back(), w, x, n);
  for (std::size_t t = 0; t + 1 < tables.size(); ++t) {
    const std::vector<float> found = product(*tables[t], w, x, n);
    for (std::size_t i = 0; i < truth.size(); ++i)
      LODE_CHECK(std::memcmp(&found[i], &truth[i], 4) == 0 || (std::isnan(found[i]) && std::isnan(truth[i])));
  }
  return 0;
}
