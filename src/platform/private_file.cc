#include "platform/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "platform/file_system.h"

namespace lode::platform {
namespace {

// The open file is asked, not its name: that may be another one by now.
Status check(int fd, const std::filesystem::path& path, std::size_t bytes_max) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return errno_status(errno, "look at", path);
  const std::string name = path.string();
  if (!S_ISREG(info.st_mode)) return Status::invalid(fmt::format("{} is no regular file", name));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status::invalid(fmt::format("{} has mode {:04o}: others may use it; expected 0600 (chmod 600 {})", name,
                                       info.st_mode & 07777, name));
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return Status::invalid(fmt::format("{} belongs to user {}, expected {} or root", name, info.st_uid, ::geteuid()));
  if (static_cast<std::uint64_t>(info.st_size) > bytes_max)
    return Status::invalid(fmt::format("{} has {} bytes, expected at most {}", name, info.st_size, bytes_max));
  return {};
}

}  // namespace

Result<std::vector<std::byte>> read_private_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // A pipe does not stop it here.
  if (fd < 0) return errno_status(errno, "open", path);
  Status status = check(fd, path, bytes_max);
  std::vector<std::byte> bytes(bytes_max + 1);
  std::size_t got = 0;
  while (status.ok() && got < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = errno_status(errno, "read", path);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (!status.ok()) return status;
  if (got > bytes_max) return Status::invalid(fmt::format("{} is longer than {} bytes", path.string(), bytes_max));
  bytes.resize(got);
  return bytes;
}

}  // namespace lode::platform
