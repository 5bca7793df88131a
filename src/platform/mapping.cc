// System calls behind mapping.h: open, pread, mmap, mprotect, O_DIRECT.
#include "platform/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace lode::platform {
namespace {

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::string errno_text(int error) {
  return fmt::format("{} (errno {})", std::strerror(error), error);
}

Status failed(std::string_view doing, const std::filesystem::path& path, int error) {
  return Status::io(fmt::format("{}: {} failed: {}", path.string(), doing, errno_text(error)));
}

Status no_memory(std::uint64_t bytes, int error) {
  return Status::exhausted(fmt::format("cannot get {} ({} bytes) of memory: {}; use a smaller model or context",
                                       format_size(bytes), bytes, errno_text(error)));
}

// Sizes from a file may be near 2^64: align_up would wrap.
bool mappable(std::uint64_t bytes) {
  return bytes < (std::uint64_t{1} << 62);
}

}  // namespace

// ---- AlignedBuffer

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      committed_(std::exchange(other.committed_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (base_ != nullptr) munmap(base_, capacity_);
  base_ = std::exchange(other.base_, nullptr);
  committed_ = std::exchange(other.committed_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (base_ != nullptr) munmap(base_, capacity_);
}

Result<AlignedBuffer> AlignedBuffer::reserve(std::uint64_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  if (!mappable(bytes)) return no_memory(bytes, ENOMEM);
  const std::uint64_t rounded = align_up(bytes, page_size());
  // PROT_NONE pages are not charged against the commit limit, even where overcommit is off.
  void* p = mmap(nullptr, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return no_memory(bytes, errno);
  buffer.base_ = static_cast<std::byte*>(p);
  buffer.capacity_ = rounded;
  return buffer;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t bytes) {
  Result<AlignedBuffer> buffer = reserve(bytes);
  if (!buffer.ok()) return buffer;
  LODE_RETURN_IF_ERROR(buffer->commit(bytes));
  // 2 MiB pages spare weight reads most of their TLB misses. Advice only: a refusal changes nothing.
  if (buffer->capacity_ >= 2 * kMiB) (void)madvise(buffer->base_, buffer->capacity_, MADV_HUGEPAGE);
  return buffer;
}

Status AlignedBuffer::commit(std::uint64_t bytes) {
  LODE_CHECK(bytes <= capacity_);
  const std::uint64_t rounded = align_up(bytes, page_size());
  if (rounded <= committed_) return {};
  if (mprotect(base_ + committed_, rounded - committed_, PROT_READ | PROT_WRITE) != 0) {
    return no_memory(rounded - committed_, errno);
  }
  committed_ = rounded;
  return {};
}

void AlignedBuffer::trim(std::uint64_t bytes) {
  const std::uint64_t keep = align_up(bytes, page_size());
  if (base_ == nullptr || keep >= capacity_) return;
  munmap(base_ + keep, capacity_ - keep);
  capacity_ = keep;
  committed_ = std::min(committed_, keep);
  if (keep == 0) base_ = nullptr;
}

// ---- SourceFile

SourceFile::SourceFile(SourceFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}

SourceFile& SourceFile::operator=(SourceFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

SourceFile::~SourceFile() {
  if (fd_ >= 0) close(fd_);
}

Result<SourceFile> SourceFile::open(const std::filesystem::path& path) {
  SourceFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a pipe that nobody writes must fail below, not wait.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    const int error = errno;
    Status status = failed("open", path, error);
    if (error == ENOENT || error == ENOTDIR) return Status::not_found(status.message());
    return status;
  }
  struct stat info{};
  if (fstat(file.fd_, &info) != 0) return failed("stat", path, errno);
  if (S_ISDIR(info.st_mode)) return Status::invalid(fmt::format("{}: is a folder, expected a file", path.string()));
  if (!S_ISREG(info.st_mode)) {
    return Status::invalid(fmt::format("{}: is a pipe, socket or device, expected a regular file", path.string()));
  }
  file.size_ = static_cast<std::uint64_t>(info.st_size);
  return file;
}

Result<std::uint64_t> SourceFile::size_now() const {
  struct stat info{};
  if (fstat(fd_, &info) != 0) return failed("stat", path_, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Result<FileStamp> SourceFile::stamp() const {
  struct stat info{};
  if (fstat(fd_, &info) != 0) return failed("stat", path_, errno);
  const auto ns = [](const timespec& t) { return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec; };
  return FileStamp{.device = info.st_dev,
                   .inode = info.st_ino,
                   .size = static_cast<std::uint64_t>(info.st_size),
                   .modified_ns = ns(info.st_mtim),
                   .changed_ns = ns(info.st_ctim)};
}

Status SourceFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  std::uint64_t done = 0;
  while (done < to.size()) {
    // Linux moves at most 2 GiB - 4096 a call; 1 GiB keeps every later piece aligned as well.
    const std::size_t piece = std::min<std::uint64_t>(to.size() - done, kGiB);
    const ssize_t n = pread(fd_, to.data() + done, piece, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(fmt::format("reading {} bytes at byte {}", piece, offset + done), path_, errno);
    if (n == 0) {
      return Status::io(fmt::format("{}: ends at byte {}, expected {} bytes from byte {}; was it cut while in use?",
                                    path_.string(), offset + done, to.size(), offset));
    }
    done += static_cast<std::uint64_t>(n);
  }
  return {};
}

namespace {

// A descriptor of its own: O_DIRECT belongs to the open file, and buffered reads share the other one.
struct DirectDescriptor {
  int fd;
  ~DirectDescriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Status SourceFile::read_direct(std::uint64_t offset, std::span<std::byte> to) const {
  LODE_CHECK(offset % kDirectAlign == 0 && to.size() % kDirectAlign == 0);
  LODE_CHECK(reinterpret_cast<std::uintptr_t>(to.data()) % kDirectAlign == 0);
  // Through /proc the same inode is opened even when the name now leads elsewhere.
  DirectDescriptor direct{::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)};
  if (direct.fd < 0) return {Code::unavailable, failed("open with O_DIRECT", path_, errno).message()};
  // 8 MiB pieces keep a disk busy at queue depth one and let a signal through between them.
  constexpr std::uint64_t kPiece = 8 * kMiB;
  std::uint64_t done = 0;
  while (done < to.size()) {
    const std::size_t piece = std::min<std::uint64_t>(to.size() - done, kPiece);
    const ssize_t n = pread(direct.fd, to.data() + done, piece, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      Status status = failed(fmt::format("direct read of {} bytes at byte {}", piece, offset + done), path_, error);
      if (error == EINVAL || error == ENOTSUP) return {Code::unavailable, status.message()};
      return status;
    }
    done += static_cast<std::uint64_t>(n);
    if (static_cast<std::size_t>(n) == piece) continue;
    if (offset + done >= size_) return {};  // The end of the file, inside the last piece.
    if (n == 0) {
      return Status::io(fmt::format("{}: ends at byte {}, had {} bytes when opened; was it cut while in use?",
                                    path_.string(), offset + done, size_));
    }
    done = done / kDirectAlign * kDirectAlign;  // A short read in the middle: go on from an aligned byte.
    if (static_cast<std::uint64_t>(n) < kDirectAlign) return {Code::unavailable, "direct reads make no progress"};
  }
  return {};
}

// ---- MappedFile

Result<MappedFile> MappedFile::map(const SourceFile& file) {
  MappedFile mapped;
  if (file.size() == 0) return mapped;
  void* p = mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (p == MAP_FAILED) return failed(fmt::format("mapping {} bytes", file.size()), file.path(), errno);
  mapped.base_ = static_cast<const std::byte*>(p);
  mapped.size_ = file.size();
  return mapped;
}

void MappedFile::release_pages(std::uint64_t offset, std::uint64_t bytes) const {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = align_up(offset, page), end = (offset + bytes) / page * page;
  LODE_CHECK(offset + bytes <= size_);
  // Advice: nothing depends on its success.
  if (first < end) (void)madvise(const_cast<std::byte*>(base_) + first, end - first, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), size_);
  base_ = std::exchange(other.base_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

MappedFile::~MappedFile() {
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), size_);
}

}  // namespace lode::platform
