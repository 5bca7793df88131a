#include "kv/staging.h"

#include <algorithm>

#include "base/bytes.h"
#include "kv/key.h"

namespace lode::kv {

StagingSizes staging_sizes(std::span<const model::BlockLayout> layouts) {
  // 64 MiB on their way keep an SSD of 10 GB/s busy for 6 ms, far longer than a buffer takes to be checked and copied.
  constexpr std::uint64_t kReads = 64 * kMiB;
  StagingSizes sizes;
  for (const auto& layout : layouts) {
    for (const auto& slice : layout.slices)
      sizes.read_bytes = std::max(sizes.read_bytes, static_cast<std::uint64_t>(slice.bytes * kExtentBlocks));
    sizes.write_bytes = std::max(sizes.write_bytes, static_cast<std::uint64_t>(layout.block_bytes * kExtentBlocks));
  }
  sizes.reads =
      static_cast<std::size_t>(std::clamp<std::uint64_t>(kReads / std::max<std::uint64_t>(sizes.read_bytes, 1), 2, 64));
  return sizes;
}

Result<std::unique_ptr<Staging>> Staging::create(kernels::Device& device, std::uint64_t bytes, std::size_t count) {
  LODE_CHECK(bytes > 0 && bytes % 4096 == 0 && count > 0);
  auto range = platform::VirtualRange::reserve(bytes * count);
  if (!range.ok()) return range.status();
  LODE_RETURN_IF_ERROR(range->commit(0, range->capacity()));
  std::unique_ptr<Staging> staging(new Staging(device, std::move(range).value()));
  LODE_RETURN_IF_ERROR(device.pin(staging->range_.data(), staging->range_.capacity()));
  staging->pinned_ = true;
  for (std::size_t i = count; i-- > 0;) staging->free_.push_back(staging->range_.data() + i * bytes);
  return staging;
}

Staging::~Staging() {
  if (pinned_) device_.unpin(range_.data());
}

std::byte* Staging::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  std::byte* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void Staging::give(std::byte* buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

}  // namespace lode::kv
