// A file system in memory for tests: it fails, crashes and forgets on command. Owns all its files. Any thread, except
// the functions under "commands", which no operation may run beside. Tests only.
//
// What survives a power loss is modelled as POSIX promises it: bytes only after fdatasync, names only after sync_dir.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "platform/file_system.h"

namespace lode::platform {

class FakeFileSystem final : public FileSystem {
 public:
  FakeFileSystem();
  ~FakeFileSystem() override;

  Result<std::unique_ptr<File>> open(const std::filesystem::path& path, const OpenOptions& options) override;
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status unlink(const std::filesystem::path& path) override;
  Status remove_dir(const std::filesystem::path& path) override;
  Result<std::vector<DirEntry>> list(const std::filesystem::path& folder) override;
  Status make_dirs(const std::filesystem::path& folder) override;
  Status sync_dir(const std::filesystem::path& folder) override;
  Result<std::unique_ptr<FileLock>> lock(const std::filesystem::path& path) override;
  Result<DiskSpace> space(const std::filesystem::path& folder) override;

  // Commands. Operations are counted from 0 since the last reset_ops(): every call of FileSystem and of File that a
  // disk can fail (not path, native_fd, drop_cached).
  std::uint64_t ops() const;
  void reset_ops();
  // Operation `n` fails with `error`, and so do the `more` after it that can.
  void fail_at(std::uint64_t n, int error, std::uint64_t more = 0);
  // The machine stops at operation `n`: a write does a random part of its work, and everything from there on fails
  // until restart().
  void crash_at(std::uint64_t n, std::uint64_t seed);
  bool crashed() const;
  std::uint64_t failures() const { return failures_; }  // Operations that fail_at has made fail.
  enum class Lose : std::uint8_t {
    nothing,   // The process was killed: the kernel has everything.
    unsynced,  // Power loss: everything that was not synced.
    some,      // Power loss: a random part of what was not synced, by 4 KiB page and by name.
  };
  // What is there after the machine comes back; open files and locks of before are dead.
  void restart(Lose lose, std::uint64_t seed);
  // As `rm -rf folder` by somebody else. Open files live on without a name.
  void vanish(const std::filesystem::path& folder);

  void set_total_bytes(std::uint64_t bytes);  // Default 1 TiB; a write beyond it fails with ENOSPC.
  void refuse_direct();                       // Opening with Cache::bypass fails with EINVAL.
  void refuse_locks(int error);
  void set_now_seconds(std::int64_t seconds);  // Modification times from now on.

  // The bytes of a file, to look at and to damage; nullopt: absent.
  std::optional<std::vector<std::byte>> contents(const std::filesystem::path& path) const;
  void set_contents(const std::filesystem::path& path, std::vector<std::byte> bytes);
  // Tells a file from another one that had its name before; 0: absent.
  std::uint64_t identity(const std::filesystem::path& path) const;
  // Paths of all files under `folder`, sorted.
  std::vector<std::filesystem::path> files(const std::filesystem::path& folder) const;
  std::uint64_t allocated_bytes(const std::filesystem::path& folder) const;
  std::uint64_t allocated_now() const { return total_allocated(); }  // Of all files.
  std::uint64_t peak_allocated_bytes() const { return peak_allocated_; }
  void reset_peak() { peak_allocated_ = total_allocated(); }

 private:
  friend class FakeFile;
  friend class FakeLock;
  struct Inode;
  using Node = std::shared_ptr<Inode>;

  // Counts an operation; the error it must fail with, or 0. mutex_ held.
  int begin_op();
  std::uint64_t total_allocated() const;
  bool has_folder(const std::filesystem::path& folder) const;
  Result<std::size_t> write(Inode& node, const std::filesystem::path& path,
                            std::span<const std::span<const std::byte>> parts, std::uint64_t offset);

  mutable std::mutex mutex_;  // Guards everything below.
  std::map<std::filesystem::path, Node> names_, durable_names_;
  std::set<std::filesystem::path> folders_;                // Made folders; always durable.
  std::map<std::filesystem::path, std::uint64_t> locked_;  // And the lock's number.
  std::uint64_t locks_ = 0;                                // Given out.
  mutable std::uint64_t identities_ = 0;
  std::uint64_t generation_ = 0;  // Restarts; handles of earlier ones are dead.
  std::uint64_t ops_ = 0;
  std::uint64_t fail_from_ = ~0ull, fail_to_ = 0;  // [from, to)
  int fail_error_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t crash_op_ = ~0ull;
  bool crashed_ = false;
  std::mt19937_64 random_;
  std::uint64_t total_bytes_ = 1ull << 40;
  std::uint64_t peak_allocated_ = 0, allocated_ = 0;
  bool refuse_direct_ = false;
  int lock_error_ = 0;
  std::int64_t now_seconds_ = 1'800'000'000;
};

}  // namespace lode::platform
