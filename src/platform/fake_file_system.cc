#include "platform/fake_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace lode::platform {

namespace stdfs = std::filesystem;

struct FakeFileSystem::Inode {
  std::vector<std::byte> bytes, durable_bytes;
  std::int64_t modified_seconds = 0;
  std::uint64_t identity = 0;  // Given when somebody asks.
  bool named = true;           // Counted in allocated_ while it has a name.
  std::uint64_t allocated() const { return align_up(bytes.size(), kFileAlign); }
};

class FakeFile final : public File {
 public:
  FakeFile(FakeFileSystem& fs, FakeFileSystem::Node node, stdfs::path path, const OpenOptions& options)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), options_(options), generation_(fs.generation_) {}

  Result<std::size_t> preadv(std::span<const std::span<std::byte>> parts, std::uint64_t offset) override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin()) return errno_status(error, "read", path_);
    if (misaligned(parts, offset)) return errno_status(EINVAL, "read", path_);
    std::size_t done = 0;
    for (const auto part : parts) {
      if (offset >= node_->bytes.size()) break;
      const std::size_t n = std::min<std::size_t>(part.size(), node_->bytes.size() - offset);
      std::memcpy(part.data(), node_->bytes.data() + offset, n);
      done += n, offset += n;
    }
    return done;
  }
  Result<std::size_t> pwritev(std::span<const std::span<const std::byte>> parts, std::uint64_t offset) override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin(); error != 0 && !fs_.crashed_) return errno_status(error, "write", path_);
    if (generation_ != fs_.generation_) return errno_status(EIO, "write", path_);
    if (options_.access == OpenOptions::Access::read) return errno_status(EBADF, "write", path_);
    if (misaligned(parts, offset)) return errno_status(EINVAL, "write", path_);
    return fs_.write(*node_, path_, parts, offset);
  }
  Status fdatasync() override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin()) return errno_status(error, "sync", path_);
    node_->durable_bytes = node_->bytes;
    return {};
  }
  Status truncate(std::uint64_t size) override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin()) return errno_status(error, "truncate", path_);
    if (node_->named) fs_.allocated_ -= node_->allocated();
    node_->bytes.resize(size);
    if (node_->named) fs_.allocated_ += node_->allocated();
    return {};
  }
  Result<std::uint64_t> size() override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin()) return errno_status(error, "examine", path_);
    return std::uint64_t{node_->bytes.size()};
  }
  Result<std::uint64_t> allocated_bytes() override {
    const std::lock_guard lock(fs_.mutex_);
    if (const int error = begin()) return errno_status(error, "examine", path_);
    return node_->allocated();
  }
  void drop_cached() override {}
  int native_fd() const override { return -1; }
  const stdfs::path& path() const override { return path_; }

 private:
  int begin() {
    const int error = fs_.begin_op();
    return generation_ != fs_.generation_ ? EIO : error;
  }
  template <typename Parts>
  bool misaligned(const Parts& parts, std::uint64_t offset) const {
    if (options_.cache != OpenOptions::Cache::bypass) return false;
    std::uint64_t bits = offset;
    for (const auto part : parts) bits |= reinterpret_cast<std::uintptr_t>(part.data()) | part.size();
    return bits % kFileAlign != 0;
  }

  FakeFileSystem& fs_;
  const FakeFileSystem::Node node_;
  const stdfs::path path_;
  const OpenOptions options_;
  const std::uint64_t generation_;
};

class FakeLock final : public FileLock {
 public:
  FakeLock(FakeFileSystem& fs, stdfs::path path, std::uint64_t number)
      : fs_(fs), path_(std::move(path)), number_(number) {}
  ~FakeLock() override {
    const std::lock_guard lock(fs_.mutex_);
    if (mine()) fs_.locked_.erase(path_);
  }
  bool named() const override {
    const std::lock_guard lock(fs_.mutex_);
    return mine();
  }

 private:
  bool mine() const {
    const auto found = fs_.locked_.find(path_);
    return found != fs_.locked_.end() && found->second == number_;
  }

  FakeFileSystem& fs_;
  const stdfs::path path_;
  const std::uint64_t number_;  // No other lock has it, of whatever process or time.
};

FakeFileSystem::FakeFileSystem() {
  folders_.insert("/");
}
FakeFileSystem::~FakeFileSystem() = default;

int FakeFileSystem::begin_op() {
  const std::uint64_t n = ops_++;
  if (n == crash_op_) crashed_ = true;
  if (crashed_) return EIO;
  const bool fails = n >= fail_from_ && n < fail_to_;
  failures_ += fails;
  return fails ? fail_error_ : 0;
}

bool FakeFileSystem::has_folder(const stdfs::path& folder) const {
  return folders_.contains(folder);
}

std::uint64_t FakeFileSystem::total_allocated() const {
  return allocated_;
}

// A crash in the middle leaves a random part of the bytes.
Result<std::size_t> FakeFileSystem::write(Inode& node, const stdfs::path& path,
                                          std::span<const std::span<const std::byte>> parts, std::uint64_t offset) {
  std::size_t total = 0;
  for (const auto part : parts) total += part.size();
  std::size_t allowed = total;
  if (crashed_) allowed = ops_ - 1 == crash_op_ ? random_() % (total + 1) : 0;
  const std::uint64_t before = node.allocated();
  const std::uint64_t after = align_up(std::max<std::uint64_t>(node.bytes.size(), offset + allowed), kFileAlign);
  if (allocated_ - (node.named ? before : 0) + after > total_bytes_) return errno_status(ENOSPC, "write", path);
  if (node.bytes.size() < offset + allowed) node.bytes.resize(offset + allowed);
  std::size_t left = allowed;
  for (const auto part : parts) {
    const std::size_t n = std::min(left, part.size());
    if (n > 0) std::memcpy(node.bytes.data() + offset, part.data(), n);
    offset += n, left -= n;
  }
  node.modified_seconds = now_seconds_;
  if (node.named) {
    allocated_ += node.allocated() - before;
    peak_allocated_ = std::max(peak_allocated_, allocated_);
  }
  if (crashed_) return errno_status(EIO, "write", path);
  return total;
}

Result<std::unique_ptr<File>> FakeFileSystem::open(const stdfs::path& path, const OpenOptions& options) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "open", path);
  if (options.cache == OpenOptions::Cache::bypass && refuse_direct_) return errno_status(EINVAL, "open", path);
  if (!has_folder(path.parent_path())) return errno_status(ENOENT, "open", path);
  auto found = names_.find(path);
  if (options.access == OpenOptions::Access::create && found != names_.end()) return errno_status(EEXIST, "open", path);
  if (found == names_.end()) {
    if (options.access == OpenOptions::Access::read) return errno_status(ENOENT, "open", path);
    auto node = std::make_shared<Inode>();
    node->modified_seconds = now_seconds_;
    found = names_.emplace(path, std::move(node)).first;
  }
  return std::unique_ptr<File>(std::make_unique<FakeFile>(*this, found->second, path, options));
}

Status FakeFileSystem::rename(const stdfs::path& from, const stdfs::path& to) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "rename", from);
  const auto found = names_.find(from);
  if (found == names_.end() || !has_folder(to.parent_path())) return errno_status(ENOENT, "rename", from);
  Node node = found->second;
  names_.erase(found);
  if (auto old = names_.find(to); old != names_.end()) {
    allocated_ -= old->second->allocated();
    old->second->named = false;
  }
  names_[to] = std::move(node);
  return {};
}

Status FakeFileSystem::unlink(const stdfs::path& path) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "remove", path);
  const auto found = names_.find(path);
  if (found == names_.end()) return errno_status(ENOENT, "remove", path);
  allocated_ -= found->second->allocated();
  found->second->named = false;
  names_.erase(found);
  locked_.erase(path);
  return {};
}

Status FakeFileSystem::remove_dir(const stdfs::path& path) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "remove", path);
  if (!has_folder(path)) return errno_status(ENOENT, "remove", path);
  for (const auto& [name, node] : names_) {
    if (name.parent_path() == path) return errno_status(ENOTEMPTY, "remove", path);
  }
  folders_.erase(path);
  return {};
}

Result<std::vector<DirEntry>> FakeFileSystem::list(const stdfs::path& folder) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "list", folder);
  if (!has_folder(folder)) return errno_status(ENOENT, "list", folder);
  std::vector<DirEntry> entries;
  for (const auto& [name, node] : names_) {
    if (name.parent_path() != folder) continue;
    entries.push_back({.name = name.filename().string(),
                       .size = node->bytes.size(),
                       .allocated_bytes = node->allocated(),
                       .modified_seconds = node->modified_seconds});
  }
  for (const auto& name : folders_) {
    if (name.parent_path() == folder && name != folder) {
      entries.push_back({.name = name.filename().string(), .kind = DirEntry::Kind::folder});
    }
  }
  return entries;
}

Status FakeFileSystem::make_dirs(const stdfs::path& folder) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "create the folder", folder);
  stdfs::path built;
  for (const auto& piece : folder) folders_.insert(built /= piece);
  return {};
}

Status FakeFileSystem::sync_dir(const stdfs::path& folder) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "sync the folder", folder);
  if (!has_folder(folder)) return errno_status(ENOENT, "sync the folder", folder);
  std::erase_if(durable_names_, [&](const auto& entry) { return entry.first.parent_path() == folder; });
  for (const auto& entry : names_) {
    if (entry.first.parent_path() == folder) durable_names_.insert(entry);
  }
  return {};
}

Result<std::unique_ptr<FileLock>> FakeFileSystem::lock(const stdfs::path& path) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "lock", path);
  if (lock_error_ != 0) return errno_status(lock_error_, "lock", path);
  if (!has_folder(path.parent_path())) return errno_status(ENOENT, "lock", path);
  if (!locked_.emplace(path, locks_ + 1).second) return errno_status(EAGAIN, "lock", path);
  if (!names_.contains(path)) names_.emplace(path, std::make_shared<Inode>());
  return std::unique_ptr<FileLock>(std::make_unique<FakeLock>(*this, path, ++locks_));
}

Result<DiskSpace> FakeFileSystem::space(const stdfs::path& folder) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_op()) return errno_status(error, "examine", folder);
  if (!has_folder(folder)) return errno_status(ENOENT, "examine", folder);
  return DiskSpace{.free_bytes = total_bytes_ - std::min(total_bytes_, allocated_), .total_bytes = total_bytes_};
}

std::uint64_t FakeFileSystem::ops() const {
  const std::lock_guard lock(mutex_);
  return ops_;
}

void FakeFileSystem::reset_ops() {
  const std::lock_guard lock(mutex_);
  ops_ = 0;
  fail_from_ = ~0ull, fail_to_ = 0;
  crash_op_ = ~0ull;
}

void FakeFileSystem::fail_at(std::uint64_t n, int error, std::uint64_t more) {
  const std::lock_guard lock(mutex_);
  fail_from_ = n, fail_to_ = more > ~0ull - n - 1 ? ~0ull : n + 1 + more;
  fail_error_ = error;
}

void FakeFileSystem::crash_at(std::uint64_t n, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  crash_op_ = n;
  random_.seed(seed);
}

bool FakeFileSystem::crashed() const {
  const std::lock_guard lock(mutex_);
  return crashed_;
}

void FakeFileSystem::restart(Lose lose, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  random_.seed(seed);
  if (lose == Lose::unsynced) names_ = durable_names_;
  if (lose == Lose::some) {
    // Each name of either state is there, or not, by its own coin where the states disagree.
    auto both = names_;
    both.insert(durable_names_.begin(), durable_names_.end());
    std::map<stdfs::path, Node> kept;
    for (const auto& [name, unused] : both) {
      const auto& from = random_() % 2 ? names_ : durable_names_;
      if (const auto found = from.find(name); found != from.end()) kept.insert(*found);
    }
    names_ = std::move(kept);
  }
  allocated_ = 0;
  for (auto& [name, node] : names_) {
    if (lose == Lose::unsynced) node->bytes = node->durable_bytes;
    if (lose == Lose::some && node->bytes != node->durable_bytes) {
      auto mixed = random_() % 2 ? node->bytes : node->durable_bytes;  // Whose size it has.
      for (std::size_t at = 0; at < mixed.size(); at += kFileAlign) {
        const auto& from = random_() % 2 ? node->bytes : node->durable_bytes;
        for (std::size_t i = at; i < std::min(at + kFileAlign, mixed.size()); ++i)
          mixed[i] = i < from.size() ? from[i] : std::byte{0};
      }
      node->bytes = std::move(mixed);
    }
    node->durable_bytes = node->bytes;
    node->named = true;
    allocated_ += node->allocated();
  }
  durable_names_ = names_;
  locked_.clear();
  ++generation_;
  crashed_ = false;
  crash_op_ = ~0ull;
  fail_from_ = ~0ull, fail_to_ = 0;
  peak_allocated_ = allocated_;
}

void FakeFileSystem::vanish(const stdfs::path& folder) {
  const std::lock_guard lock(mutex_);
  const auto under = [&](const stdfs::path& path) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  };
  for (auto& [name, node] : names_) {
    if (!under(name)) continue;
    allocated_ -= node->allocated();
    node->named = false;
  }
  std::erase_if(names_, [&](const auto& entry) { return under(entry.first); });
  std::erase_if(durable_names_, [&](const auto& entry) { return under(entry.first); });
  std::erase_if(folders_, under);
  std::erase_if(locked_, [&](const auto& entry) { return under(entry.first); });
}

void FakeFileSystem::set_total_bytes(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  total_bytes_ = bytes;
}

void FakeFileSystem::refuse_direct() {
  const std::lock_guard lock(mutex_);
  refuse_direct_ = true;
}

void FakeFileSystem::refuse_locks(int error) {
  const std::lock_guard lock(mutex_);
  lock_error_ = error;
}

void FakeFileSystem::set_now_seconds(std::int64_t seconds) {
  const std::lock_guard lock(mutex_);
  now_seconds_ = seconds;
}

std::optional<std::vector<std::byte>> FakeFileSystem::contents(const stdfs::path& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return std::nullopt;
  return found->second->bytes;
}

std::uint64_t FakeFileSystem::identity(const stdfs::path& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  if (found == names_.end()) return 0;
  if (found->second->identity == 0) found->second->identity = ++identities_;
  return found->second->identity;
}

void FakeFileSystem::set_contents(const stdfs::path& path, std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  auto& node = names_[path];
  if (!node) node = std::make_shared<Inode>();
  else allocated_ -= node->allocated();
  node->bytes = node->durable_bytes = std::move(bytes);
  node->modified_seconds = now_seconds_;
  allocated_ += node->allocated();
  durable_names_[path] = node;
}

std::vector<stdfs::path> FakeFileSystem::files(const stdfs::path& folder) const {
  const std::lock_guard lock(mutex_);
  std::vector<stdfs::path> paths;
  for (const auto& [name, node] : names_) {
    if (std::mismatch(folder.begin(), folder.end(), name.begin(), name.end()).first == folder.end())
      paths.push_back(name);
  }
  return paths;
}

std::uint64_t FakeFileSystem::allocated_bytes(const stdfs::path& folder) const {
  std::uint64_t sum = 0;
  for (const auto& path : files(folder)) {
    if (const auto bytes = contents(path)) sum += align_up(bytes->size(), kFileAlign);
  }
  return sum;
}

}  // namespace lode::platform
