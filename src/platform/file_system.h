// Files behind an interface: the real file system, and a fake one that fails and crashes on command. Owns open files
// and locks through the handles it returns. Every function may be called from any thread; one File is used by one
// thread at a time, except pread and preadv, which any number of threads may call at once.
//
// Errors are Status values that name the operation, the path and the system's words. Their codes:
//   not_found           ENOENT, ENOTDIR: the file or its folder is not there.
//   resource_exhausted  ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM.
//   unsupported         EINVAL, EOPNOTSUPP: where a file was opened with Cache::bypass, the file system refuses
//   O_DIRECT. unavailable         EAGAIN, EWOULDBLOCK: a lock that another process holds. io_error Everything else
//   (EIO, EROFS, EACCES, EEXIST, ...).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lode::platform {

// Offsets, lengths and addresses of a file opened with Cache::bypass are multiples of this.
inline constexpr std::size_t kFileAlign = 4096;

struct OpenOptions {
  enum class Access : std::uint8_t {
    read,    // An existing file, for reading.
    create,  // A new file, for reading and writing, mode 0600; an existing one is an error.
    update,  // For reading and writing, mode 0600; created where absent.
  } access = Access::read;
  enum class Cache : std::uint8_t {
    use,     // Through the page cache.
    bypass,  // O_DIRECT.
  } cache = Cache::use;
};

// An open regular file. Destroying it closes it.
class File {
 public:
  virtual ~File() = default;
  // Bytes read or written; fewer than asked for only at the end of the file (reads), after an interruption, or when the
  // disk filled up. Never retries by itself.
  virtual Result<std::size_t> preadv(std::span<const std::span<std::byte>> parts, std::uint64_t offset) = 0;
  virtual Result<std::size_t> pwritev(std::span<const std::span<const std::byte>> parts, std::uint64_t offset) = 0;
  Result<std::size_t> pread(std::span<std::byte> part, std::uint64_t offset) { return preadv({&part, 1}, offset); }
  Result<std::size_t> pwrite(std::span<const std::byte> part, std::uint64_t offset) {
    return pwritev({&part, 1}, offset);
  }
  virtual Status fdatasync() = 0;  // The bytes and the size survive power loss; the name may not.
  virtual Status truncate(std::uint64_t size) = 0;
  virtual Result<std::uint64_t> size() = 0;
  virtual Result<std::uint64_t> allocated_bytes() = 0;  // What it takes from the disk: st_blocks * 512.
  virtual void drop_cached() = 0;                       // Asks for its clean pages to leave the page cache.
  virtual int native_fd() const = 0;                    // For io_uring; -1: there is none, use preadv.
  virtual const std::filesystem::path& path() const = 0;
};

struct DirEntry {
  std::string name;  // Without the folder.
  enum class Kind : std::uint8_t { file, folder, other } kind = Kind::file;
  std::uint64_t size = 0;  // Bytes.
  std::uint64_t allocated_bytes = 0;
  std::int64_t modified_seconds = 0;  // Since the Unix epoch.
};

struct DiskSpace {
  std::uint64_t free_bytes = 0;  // What an unprivileged process may still take.
  std::uint64_t total_bytes = 0;
};

// A lock on a file, held until destroyed; it goes with the process.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // Whether the locked file still has its name. If not (somebody removed the folder), another process can lock the name
  // too.
  virtual bool named() const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> open(const std::filesystem::path& path, const OpenOptions& options) = 0;
  virtual Status rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;  // Replaces `to`.
  virtual Status unlink(const std::filesystem::path& path) = 0;
  virtual Status remove_dir(const std::filesystem::path& path) = 0;  // An empty folder.
  // Entries of a folder in no order, without "." and "..". An entry that vanishes meanwhile is left out.
  virtual Result<std::vector<DirEntry>> list(const std::filesystem::path& folder) = 0;
  virtual Status make_dirs(const std::filesystem::path& folder) = 0;  // New ones 0700; existing ones are fine.
  virtual Status sync_dir(const std::filesystem::path& folder) = 0;   // Names in it survive power loss.
  // Exclusive and without waiting: `unavailable` while another holder (process or handle) has it. Creates the file.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::filesystem::path& path) = 0;
  virtual Result<DiskSpace> space(const std::filesystem::path& folder) = 0;
};

FileSystem& real_file_system();

// The Status for an errno, as described above: "cannot <what> <path>: <the system's words>".
Status errno_status(int error, std::string_view what, const std::filesystem::path& path);

// Reads or writes everything, continuing after short transfers; `io_error` where the file ends early.
Status read_fully(File& file, std::span<std::byte> to, std::uint64_t offset);
Status write_fully(File& file, std::span<const std::span<const std::byte>> parts, std::uint64_t offset);

// A new file of these bytes in place of whatever has the name: written beside it as NAME.tmp, synced, renamed. On an
// error the old one is as it was. The folder is not synced.
Status replace_file(FileSystem& fs, const std::filesystem::path& path, std::span<const std::byte> bytes);

// The calling thread gives way to all others, for the processor and the disk alike. Best effort.
void lower_thread_priority();

}  // namespace lode::platform
