#include "kernels/cpu/acts.h"

#include <algorithm>

#include "base/bytes.h"

namespace lode::kernels {
namespace {

constexpr std::int64_t kPieceAlign = 64;
// Values a part quantizes at least: about 5 us of work.
constexpr std::int64_t kPartValues = 8192;

// Hands out 64-byte aligned pieces of a room, or only measures when the room is nullptr.
struct Carver {
  std::byte* base;
  std::size_t used = 0;
  template <typename T>
  T* take(std::int64_t count) {
    std::byte* piece = base == nullptr ? nullptr : base + used;
    used += align_up(static_cast<std::uint64_t>(count) * sizeof(T), kPieceAlign);
    return reinterpret_cast<T*>(piece);
  }
};

std::size_t carve(Acts& a, std::byte* room) {
  Carver c{room};
  const std::int64_t g16 = (a.cols + 15) / 16, g32 = (a.cols + 31) / 32, g256 = (a.cols + 255) / 256;
  a.q32 = c.take<std::int8_t>(a.n * a.cols);
  a.d32 = c.take<float>(a.n * g32);
  a.s32 = c.take<std::int32_t>(a.n * g32);
  a.p32 = c.take<std::int16_t>(a.n * g32 * 2);
  a.t32 = c.take<float>(a.n * g32);
  a.q256 = c.take<std::int8_t>(a.n * a.cols);
  a.d256 = c.take<float>(a.n * g256);
  a.s256 = c.take<std::int16_t>(a.n * g16);
  a.u256 = c.take<std::int16_t>(a.n * g32);
  a.p256 = c.take<std::int16_t>(a.n * g16 * 2);
  return c.used;
}

}  // namespace

std::size_t acts_bytes(std::int64_t n_max, std::int64_t cols_max) {
  Acts sizes;
  sizes.n = n_max;
  sizes.cols = cols_max;
  return carve(sizes, nullptr);
}

void acts_bind(Acts& acts, const float* x, std::int64_t n, std::int64_t cols, std::byte* room) {
  LODE_CHECK(reinterpret_cast<std::uintptr_t>(room) % kPieceAlign == 0);
  acts = Acts{};
  acts.x = x;
  acts.n = n;
  acts.cols = cols;
  carve(acts, room);
}

void ensure_acts(Stream& stream, Acts& x, std::span<const MatmulJob> jobs, const ActQuantizers& quantizers) {
  bool g32 = false, g256 = false;
  for (const MatmulJob& job : jobs) {
    const quant::TypeInfo& type = quant::info(job.w->type);
    LODE_CHECK(job.w->cols == x.cols && x.cols % type.block == 0);
    LODE_CHECK(type.computable);
    if (job.w->layout == Layout::packed)
      LODE_CHECK(stream.ops->packs != nullptr && stream.ops->packs(job.w->type) && job.w->rows % 8 == 0);
    g32 |= type.act == quant::ActFormat::g32 && !x.has_g32;
    g256 |= type.act == quant::ActFormat::g256 && !x.has_g256;
  }
  if (!g32 && !g256) return;
  LODE_CHECK(x.q32 != nullptr);
  const std::int64_t parts = std::max<std::int64_t>(1, std::min(x.n, x.n * x.cols / kPartValues));
  stream.pool->run(parts, [&](std::int64_t part, int) {
    for (std::int64_t r = part * x.n / parts; r < (part + 1) * x.n / parts; ++r) {
      if (g32) quantizers.g32(x.x + r * x.cols, x.cols, row_g32(x, r));
      if (g256) quantizers.g256(x.x + r * x.cols, x.cols, row_g256(x, r));
    }
  });
  x.has_g32 |= g32;
  x.has_g256 |= g256;
}

}  // namespace lode::kernels
