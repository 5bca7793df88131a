#include "platform/virtual_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace lode::platform {
namespace {

constexpr std::uint64_t kHugePage = 2 * kMiB;

}  // namespace

std::uint64_t VirtualRange::page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

VirtualRange::VirtualRange(VirtualRange&& other) noexcept {
  *this = std::move(other);
}

VirtualRange& VirtualRange::operator=(VirtualRange&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(base_, other.base_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

VirtualRange::~VirtualRange() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

Result<VirtualRange> VirtualRange::reserve(std::uint64_t bytes) {
  LODE_CHECK(bytes > 0);
  VirtualRange range;
  range.capacity_ = align_up(bytes, kHugePage);
  const auto wanted = checked_add(range.capacity_, kHugePage);
  void* p = MAP_FAILED;
  if (wanted) p = mmap(nullptr, *wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return Status::exhausted("cannot reserve " + format_size(bytes) + " of address space: " + std::strerror(errno) +
                             "; raise the address space limit (ulimit -v) or ask for a smaller KV memory");
  range.mapping_ = static_cast<std::byte*>(p);
  range.mapping_bytes_ = *wanted;
  range.base_ = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(p), kHugePage));
  // Huge pages spare faults while a prompt fills fresh memory, and page pins while the disk reads into it. Refusal is
  // fine.
  madvise(range.base_, range.capacity_, MADV_HUGEPAGE);
  return range;
}

Status VirtualRange::commit(std::uint64_t offset, std::uint64_t bytes) {
  LODE_CHECK(offset % page_bytes() == 0 && bytes % page_bytes() == 0 && offset + bytes <= capacity_);
  if (mprotect(base_ + offset, bytes, PROT_READ | PROT_WRITE) == 0) return Status::success();
  return Status::exhausted("the system refused " + format_size(bytes) + " of memory: " + std::strerror(errno));
}

void VirtualRange::decommit(std::uint64_t offset, std::uint64_t bytes) {
  LODE_CHECK(offset % page_bytes() == 0 && bytes % page_bytes() == 0 && offset + bytes <= capacity_);
  LODE_CHECK(madvise(base_ + offset, bytes, MADV_DONTNEED) == 0);
  // Fails only where the kernel is out of mappings (it must split one). The part then stays accessible and empty.
  (void)mprotect(base_ + offset, bytes, PROT_NONE);
}

}  // namespace lode::platform
