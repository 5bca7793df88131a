// A device made of host memory and the CPU's kernels, for tests of what stands above a device: its bounds hold, copies
// are counted, and what a real card would refuse is refused. Tests only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/device.h"
#include "platform/virtual_range.h"

namespace lode::kernels::test {

struct FakeDeviceOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint64_t context_bytes = std::uint64_t{8} << 20;  // Taken from the start, as a driver does.
  std::uint64_t first_step_bytes = 0;                    // What the driver takes beside, with the first step.
  std::size_t scratch_bytes = std::size_t{1} << 20;      // Of the one thread's kernels.
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeDeviceOptions options = {})
      : options_(options), table_(*available_tables().front()), pool_(1), scratch_(options.scratch_bytes + 64) {
    table_.name = "fake";
    table_.numerics_id = "fake-device";
    used_ = options_.context_bytes;
  }
  ~FakeDevice() override {
    for (auto& [at, block] : blocks_) std::free(at);
  }

  const Table& table() const override { return table_; }
  std::string_view description() const override { return "a fake card"; }
  DeviceMemory memory() const override {
    return {options_.memory_bytes - used_, options_.memory_bytes, options_.context_bytes};
  }
  Stream stream() override {
    auto* scratch = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(scratch_.data()) + 63) / 64 * 64);
    return {.ops = &table_,
            .pool = &pool_,
            .scratch = scratch,
            .scratch_bytes_per_thread = options_.scratch_bytes,
            .device = this};
  }

  Result<std::byte*> allocate(std::uint64_t bytes, std::string_view what) override {
    if (!take(bytes)) return Status::exhausted("a fake card has no memory for " + std::string(what));
    return block(bytes, bytes);
  }
  Result<std::byte*> allocate_pinned(std::uint64_t bytes, std::string_view) override { return block(bytes, 0); }
  void release(std::byte* memory) override {
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return;
    used_ -= found->second;
    blocks_.erase(found);
    std::free(memory);
  }

  Result<std::byte*> reserve(std::uint64_t bytes) override {
    auto range = platform::VirtualRange::reserve(bytes);
    if (!range.ok()) return range.status();
    const std::lock_guard lock(mutex_);
    std::byte* at = range->data();
    ranges_.emplace(at, std::move(range).value());
    return at;
  }
  void unreserve(std::byte* range) override {
    const std::lock_guard lock(mutex_);
    ranges_.erase(range);
  }
  Status commit(std::byte* piece) override {
    if (!take(kDevicePieceBytes)) return Status::exhausted("a fake card has no piece left");
    auto& [base, range] = range_of(piece);
    LODE_RETURN_IF_ERROR(range.commit(static_cast<std::uint64_t>(piece - base), kDevicePieceBytes));
    std::memset(piece, 0xD5, kDevicePieceBytes);  // Arbitrary bytes.
    return Status::success();
  }
  void decommit(std::byte* piece) override {
    auto& [base, range] = range_of(piece);
    range.decommit(static_cast<std::uint64_t>(piece - base), kDevicePieceBytes);
    used_ -= kDevicePieceBytes;
  }
  Status pin(std::byte*, std::uint64_t bytes) override {
    pinned_bytes += bytes;
    return Status::success();
  }
  void unpin(std::byte*) override {}
  bool on_device(const std::byte* at) const override {
    const std::lock_guard lock(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& r) { return at >= r.first && at < r.first + r.second.capacity(); });
  }
  Status copy(std::span<const DeviceCopy> parts) override {
    for (const DeviceCopy& part : parts) {
      std::memcpy(part.to, part.from, part.bytes);
      (on_device(part.to) ? copied_in : copied_out) += part.bytes;
    }
    return Status::success();
  }

  Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return Status::success();
  }
  Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return finish();
  }
  Status fill(std::byte* to, std::uint8_t value, std::uint64_t bytes) override {
    std::memset(to, value, bytes);
    return Status::success();
  }

  Status plan_steps(const StepBounds& bounds) override {
    bounds_ = bounds;
    return Status::success();
  }
  Status begin_step(const StepInputs& inputs) override {
    if (steps++ == 0) used_ += options_.first_step_bytes;
    if (inputs.ids.size() != inputs.positions.size() || inputs.runs.empty()) return {Code::internal, "a bad step"};
    if (bounds_.rows > 0 && static_cast<std::int64_t>(inputs.ids.size()) > bounds_.rows)
      return {Code::internal, "a step of more rows than planned"};
    return Status::success();
  }
  Status replay(std::span<const std::int64_t>, const std::function<Status()>& enqueue) override {
    ++replays;
    return enqueue();
  }
  Status finish() override { return Status::success(); }

  // The driver takes more for itself.
  void grow_driver(std::uint64_t bytes) { used_ += bytes; }

  std::int64_t steps = 0, replays = 0;
  std::uint64_t pinned_bytes = 0;
  std::atomic<std::uint64_t> copied_in{0}, copied_out{0};  // Bytes to the device, and all others.
  std::uint64_t used_bytes() const { return used_; }
  std::uint64_t peak_bytes() const { return peak_; }

 private:
  bool take(std::uint64_t bytes) {
    if (bytes > options_.memory_bytes - used_) return false;
    used_ += bytes;
    peak_ = std::max<std::uint64_t>(peak_, used_);
    return true;
  }
  std::byte* block(std::uint64_t bytes, std::uint64_t counted) {
    auto* at = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4096) / 4096 * 4096));
    blocks_[at] = counted;
    return at;
  }
  std::pair<std::byte* const, platform::VirtualRange>& range_of(std::byte* at) {
    auto found = ranges_.upper_bound(at);
    return *--found;
  }

  const FakeDeviceOptions options_;
  Table table_;
  ThreadPool pool_;
  std::vector<std::byte> scratch_;
  std::atomic<std::uint64_t> used_{0};
  std::uint64_t peak_ = 0;
  StepBounds bounds_;
  std::map<std::byte*, std::uint64_t> blocks_;  // Bytes that count.
  mutable std::mutex mutex_;
  std::map<std::byte*, platform::VirtualRange> ranges_;
};

}  // namespace lode::kernels::test
