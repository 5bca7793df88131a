// The real file system: thin calls to Linux. Owns descriptors through File and FileLock. Any thread.
#include "platform/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace lode::platform {

Status errno_status(int error, std::string_view what, const std::filesystem::path& path) {
  Code code = Code::io_error;
  switch (error) {
    case ENOENT:
    case ENOTDIR: code = Code::not_found; break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: code = Code::resource_exhausted; break;
    case EINVAL:
    case EOPNOTSUPP: code = Code::unsupported; break;
    case EAGAIN: code = Code::unavailable; break;
    default: break;
  }
  return {code, fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error))};
}

namespace {

// One system call takes at most IOV_MAX (1024) pieces; 64 keeps the array on the stack and loses nothing, since pieces
// are whole slices (KiBs).
constexpr std::size_t kPartsMax = 64;

class RealFile final : public File {
 public:
  RealFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  ~RealFile() override { ::close(fd_); }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  Result<std::size_t> preadv(std::span<const std::span<std::byte>> parts, std::uint64_t offset) override {
    std::array<iovec, kPartsMax> io;
    const std::size_t n = std::min(parts.size(), kPartsMax);
    for (std::size_t i = 0; i < n; ++i) io[i] = {parts[i].data(), parts[i].size()};
    const ssize_t got = ::preadv(fd_, io.data(), static_cast<int>(n), static_cast<off_t>(offset));
    if (got < 0) return errno == EINTR ? Result<std::size_t>(std::size_t{0}) : errno_status(errno, "read", path_);
    return static_cast<std::size_t>(got);
  }
  Result<std::size_t> pwritev(std::span<const std::span<const std::byte>> parts, std::uint64_t offset) override {
    std::array<iovec, kPartsMax> io;
    const std::size_t n = std::min(parts.size(), kPartsMax);
    for (std::size_t i = 0; i < n; ++i) io[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    const ssize_t put = ::pwritev(fd_, io.data(), static_cast<int>(n), static_cast<off_t>(offset));
    if (put < 0) return errno_status(errno, "write", path_);
    return static_cast<std::size_t>(put);
  }
  Status fdatasync() override { return ::fdatasync(fd_) == 0 ? Status() : errno_status(errno, "sync", path_); }
  Status truncate(std::uint64_t size) override {
    return ::ftruncate(fd_, static_cast<off_t>(size)) == 0 ? Status() : errno_status(errno, "truncate", path_);
  }
  Result<std::uint64_t> size() override {
    struct stat s{};
    if (::fstat(fd_, &s) != 0) return errno_status(errno, "examine", path_);
    return static_cast<std::uint64_t>(s.st_size);
  }
  Result<std::uint64_t> allocated_bytes() override {
    struct stat s{};
    if (::fstat(fd_, &s) != 0) return errno_status(errno, "examine", path_);
    return static_cast<std::uint64_t>(s.st_blocks) * 512;
  }
  void drop_cached() override { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }
  int native_fd() const override { return fd_; }
  const std::filesystem::path& path() const override { return path_; }

 private:
  int fd_;
  std::filesystem::path path_;
};

class RealLock final : public FileLock {
 public:
  RealLock(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  ~RealLock() override { ::close(fd_); }  // Closing the last descriptor of the open file drops its flock.
  RealLock(const RealLock&) = delete;
  RealLock& operator=(const RealLock&) = delete;
  bool named() const override {
    struct stat locked, found;
    return ::fstat(fd_, &locked) == 0 && ::stat(path_.c_str(), &found) == 0 && locked.st_ino == found.st_ino &&
           locked.st_dev == found.st_dev;
  }

 private:
  int fd_;
  std::filesystem::path path_;
};

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::filesystem::path& path, const OpenOptions& options) override {
    // A link in the folder was not put there by us. O_NONBLOCK: a pipe that nobody writes must fail below, not wait.
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    switch (options.access) {
      case OpenOptions::Access::read: flags |= O_RDONLY; break;
      case OpenOptions::Access::create: flags |= O_RDWR | O_CREAT | O_EXCL; break;
      case OpenOptions::Access::update: flags |= O_RDWR | O_CREAT; break;
    }
    if (options.cache == OpenOptions::Cache::bypass) flags |= O_DIRECT;
    int fd;
    do {
      fd = ::open(path.c_str(), flags, 0600);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
      const int error = errno;
      // Some file systems create the file before they refuse O_DIRECT.
      if (error == EINVAL && options.access == OpenOptions::Access::create) ::unlink(path.c_str());
      return errno_status(error, "open", path);
    }
    struct stat s{};
    if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
      ::close(fd);
      return Status::io(fmt::format("cannot open {}: not a regular file", path.string()));
    }
    return std::unique_ptr<File>(std::make_unique<RealFile>(fd, path));
  }

  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status() : errno_status(errno, "rename", from);
  }
  Status unlink(const std::filesystem::path& path) override {
    return ::unlink(path.c_str()) == 0 ? Status() : errno_status(errno, "remove", path);
  }
  Status remove_dir(const std::filesystem::path& path) override {
    return ::rmdir(path.c_str()) == 0 ? Status() : errno_status(errno, "remove", path);
  }

  Result<std::vector<DirEntry>> list(const std::filesystem::path& folder) override {
    DIR* dir = ::opendir(folder.c_str());
    if (!dir) return errno_status(errno, "list", folder);
    std::vector<DirEntry> entries;
    errno = 0;
    while (const dirent* e = ::readdir(dir)) {
      const std::string_view name = e->d_name;
      struct stat s{};
      if (name != "." && name != ".." && ::fstatat(::dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0) {
        const auto kind = S_ISREG(s.st_mode)   ? DirEntry::Kind::file
                          : S_ISDIR(s.st_mode) ? DirEntry::Kind::folder
                                               : DirEntry::Kind::other;
        entries.push_back({.name = std::string(name),
                           .kind = kind,
                           .size = static_cast<std::uint64_t>(s.st_size),
                           .allocated_bytes = static_cast<std::uint64_t>(s.st_blocks) * 512,
                           .modified_seconds = s.st_mtim.tv_sec});
      }
      errno = 0;
    }
    const int error = errno;
    ::closedir(dir);
    if (error != 0) return errno_status(error, "list", folder);
    return entries;
  }

  Status make_dirs(const std::filesystem::path& folder) override {
    std::filesystem::path built;
    for (const auto& piece : folder) {
      built /= piece;
      if (::mkdir(built.c_str(), 0700) == 0 || errno == EEXIST) continue;
      // A parent that exists but may not be written says EACCES or EROFS rather than EEXIST on some systems.
      const int error = errno;
      struct stat s{};
      if (::stat(built.c_str(), &s) != 0 || !S_ISDIR(s.st_mode)) return errno_status(error, "create the folder", built);
    }
    struct stat s{};
    if (::stat(folder.c_str(), &s) != 0) return errno_status(errno, "create the folder", folder);
    return S_ISDIR(s.st_mode) ? Status() : errno_status(ENOTDIR, "create the folder", folder);
  }

  Status sync_dir(const std::filesystem::path& folder) override {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno_status(errno, "open the folder", folder);
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    // EINVAL: this file system has nothing to sync for a folder.
    return error == 0 || error == EINVAL ? Status() : errno_status(error, "sync the folder", folder);
  }

  Result<std::unique_ptr<FileLock>> lock(const std::filesystem::path& path) override {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno_status(errno, "open", path);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(fd);
      return errno_status(error, "lock", path);
    }
    return std::unique_ptr<FileLock>(std::make_unique<RealLock>(fd, path));
  }

  Result<DiskSpace> space(const std::filesystem::path& folder) override {
    struct statvfs s{};
    if (::statvfs(folder.c_str(), &s) != 0) return errno_status(errno, "examine", folder);
    return DiskSpace{.free_bytes = std::uint64_t{s.f_bavail} * s.f_frsize,
                     .total_bytes = std::uint64_t{s.f_blocks} * s.f_frsize};
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem fs;
  return fs;
}

Status read_fully(File& file, std::span<std::byte> to, std::uint64_t offset) {
  int nothing = 0;  // Reads of 0 bytes in a row: interrupted, or the end of the file.
  while (!to.empty()) {
    auto got = file.pread(to, offset);
    if (!got.ok()) return got.status();
    if (*got == 0 && ++nothing == 3) {
      return Status::io(fmt::format("cannot read {}: it ends at byte {}, {} more were expected", file.path().string(),
                                    offset, to.size()));
    }
    if (*got != 0) nothing = 0;
    offset += *got;
    to = to.subspan(*got);
  }
  return {};
}

Status write_fully(File& file, std::span<const std::span<const std::byte>> parts, std::uint64_t offset) {
  std::size_t i = 0, done_in_part = 0;
  int nothing = 0;
  while (i < parts.size()) {
    if (done_in_part == parts[i].size()) {
      ++i, done_in_part = 0;
      continue;
    }
    // After a short write the rest of a part goes alone, then whole parts again.
    const std::span<const std::byte> rest = parts[i].subspan(done_in_part);
    auto put = done_in_part != 0 ? file.pwrite(rest, offset) : file.pwritev(parts.subspan(i), offset);
    if (!put.ok()) return put.status();
    if (*put == 0 && ++nothing == 3) {
      return errno_status(ENOSPC, "write", file.path());
    }
    if (*put != 0) nothing = 0;
    offset += *put;
    for (std::size_t n = *put; n > 0;) {
      const std::size_t step = std::min(n, parts[i].size() - done_in_part);
      done_in_part += step, n -= step;
      if (done_in_part == parts[i].size()) ++i, done_in_part = 0;
    }
  }
  return {};
}

Status replace_file(FileSystem& fs, const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  (void)fs.unlink(temporary);  // Usually not there.
  Status status;
  {
    auto file = fs.open(temporary, {.access = OpenOptions::Access::create});
    if (!file.ok()) return file.status();
    status = write_fully(**file, {&bytes, 1}, 0);
    if (status.ok()) status = (*file)->fdatasync();
  }
  if (status.ok()) status = fs.rename(temporary, path);
  if (!status.ok()) (void)fs.unlink(temporary);
  return status;
}

void lower_thread_priority() {
  const auto tid = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, tid, 10);
  // Best-effort class (2), lowest level (7); the idle class would starve for ever beside a busy neighbour.
  constexpr int kWhoProcess = 1, kBestEffortLowest = (2 << 13) | 7;
  ::syscall(SYS_ioprio_set, kWhoProcess, static_cast<int>(tid), kBestEffortLowest);
}

}  // namespace lode::platform
