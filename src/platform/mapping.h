// Read-only sources of model bytes: an open regular file with positional reads, a mapping of it, and anonymous memory.
// Owns descriptors, mappings and memory. Objects may move between threads; const members may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/status.h"

namespace lode::platform {

// What O_DIRECT asks of offsets, lengths and addresses. 4096 covers every disk in use (512 and 4096 byte sectors).
inline constexpr std::uint64_t kDirectAlign = 4096;

// Anonymous zeroed memory whose address never changes: reserved whole, made usable from its start as it is needed.
// Reserved but uncommitted bytes cost address space only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  // Nothing is usable yet. Page-aligned; `bytes` may be 0.
  static Result<AlignedBuffer> reserve(std::uint64_t bytes);
  // Reserved and committed, with huge pages where the kernel has them to give.
  static Result<AlignedBuffer> allocate(std::uint64_t bytes);

  // Makes [0, bytes) readable and writable. Never shrinks. bytes <= capacity().
  Status commit(std::uint64_t bytes);
  // Gives address space past `bytes` (rounded up to a page) back.
  void trim(std::uint64_t bytes);

  std::byte* data() { return base_; }
  const std::byte* data() const { return base_; }
  std::uint64_t committed() const { return committed_; }
  std::uint64_t capacity() const { return capacity_; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t committed_ = 0;  // Bytes, a multiple of the page size.
  std::uint64_t capacity_ = 0;   // Bytes, a multiple of the page size.
};

// Which bytes a file has, as far as the file system says without reading them: a change of any byte changes one of
// these, but for a clock set back and a disk written to behind the file system.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  // Since the Unix epoch; changed_ns can't be set by a program.
  bool operator==(const FileStamp&) const = default;
};

// A regular file open for reading. Anything else (a folder, a pipe, a device) is refused, so that no read can hang.
class SourceFile {
 public:
  // not_found where the path names nothing; otherwise io_error with the system's words.
  static Result<SourceFile> open(const std::filesystem::path& path);
  SourceFile(SourceFile&& other) noexcept;
  SourceFile& operator=(SourceFile&& other) noexcept;
  ~SourceFile();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // At open.
  Result<std::uint64_t> size_now() const;       // Asks again: a file may be cut while it is in use.
  Result<FileStamp> stamp() const;              // Asks again.

  // Fills `to` from byte `offset`. Fewer bytes than asked for is an error.
  Status read_at(std::uint64_t offset, std::span<std::byte> to) const;

  // Fills `to` from byte `offset` around the page cache. The offset, the address and the length are multiples of
  // kDirectAlign; the file may end inside the last piece, whose rest then keeps its old bytes. `unavailable` where the
  // file system refuses O_DIRECT: use read_at then.
  Status read_direct(std::uint64_t offset, std::span<std::byte> to) const;

  int descriptor() const { return fd_; }

 private:
  SourceFile() = default;
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// A whole file, mapped read-only. Touching a page past the end of a file that was cut after mapping raises SIGBUS: no
// check at load can rule that out, `read` and `direct` loading can.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> map(const SourceFile& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {base_, size_}; }
  // Takes the pages that lie whole inside [offset, offset + bytes) out of this process; the file still has them.
  void release_pages(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  const std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace lode::platform
