#include "kv/disk_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "base/bytes.h"
#include "kv/bytes_io.h"

namespace lode::kv {
namespace {

using platform::OpenOptions;

// A folder is synced at the latest this long after a rename, so that blocks older than 2 s survive power loss.
constexpr std::int64_t kSyncAfterNs = 1'000'000'000;
constexpr std::int64_t kBackoffFirstNs = 1'000'000'000, kBackoffMaxNs = 60'000'000'000;
// What a write may take beside the extent itself: log records, the daily count, the file system's own blocks.
constexpr std::uint64_t kBesideBytes = 16u << 10;

}  // namespace

void DiskLedger::reset(std::unordered_map<std::string, std::uint64_t> sizes) {
  const std::lock_guard lock(mutex_);
  sizes_ = std::move(sizes);
  used_ = 0;
  for (const auto& [path, bytes] : sizes_) used_ += bytes;
}

void DiskLedger::set(const std::string& path, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& size = sizes_[path];
  used_ = used_ - size + bytes;
  size = bytes;
  if (bytes == 0) sizes_.erase(path);
}

std::uint64_t DiskLedger::size_of(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(path);
  return found == sizes_.end() ? 0 : found->second;
}

std::uint64_t DiskLedger::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t DiskLedger::projected() const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t coming = used_ + reserved_;
  return coming - std::min(coming, releasing_);
}

void DiskLedger::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_ += bytes;
}

void DiskLedger::unreserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  LODE_CHECK(reserved_ >= bytes);
  reserved_ -= bytes;
}

void DiskLedger::promise(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  releasing_ += bytes;
}

void DiskLedger::settle(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  LODE_CHECK(releasing_ >= bytes);
  releasing_ -= bytes;
}

DiskWriter::DiskWriter(const DiskConfig& config, platform::FileSystem& fs, platform::Clock& clock,
                       DiskCounters& counters)
    : config_(config),
      paths_(config),
      fs_(fs),
      clock_(clock),
      counters_(counters),
      log_(fs, paths_.own, config.model_fingerprint),
      daily_(fs, clock, paths_.daily()) {}

DiskWriter::~DiskWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (worker_) config_.turns->remove(*worker_);
}

Status DiskWriter::take_lock() {
  auto lock = fs_.lock(paths_.lock());
  if (!lock.ok()) return lock.status();
  lock_ = std::move(lock).value();
  daily_.load();
  counters_.bytes_written_today = daily_.today();
  return {};
}

void DiskWriter::probe_direct() {
  const std::string path = paths_.own_name + "/probe.tmp";
  const auto file =
      fs_.open(paths_.dir / path, {.access = OpenOptions::Access::create, .cache = OpenOptions::Cache::bypass});
  if (file.status().code() == Code::unsupported) counters_.direct = false;
  if (file.ok()) remove_now({.path = path, .bytes = 0, .name = std::nullopt});
}

void DiskWriter::run() {
  live_ = log_.live();
  if (config_.turns) worker_ = config_.turns->add([this](std::uint64_t) { return take_turn(); });
  else thread_ = std::thread([this] { work(); });
}

void DiskWriter::submit(Order order) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(order));
  }
  wake_.notify_one();
}

std::vector<DiskEvent> DiskWriter::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

bool DiskWriter::wait_idle(std::chrono::steady_clock::time_point deadline) {
  if (config_.turns) {
    while (take_turn()) {
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return queue_.empty() && !busy_; });
}

void DiskWriter::push(DiskEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void DiskWriter::work() {
  platform::lower_thread_priority();
  for (;;) {
    const bool worked = take_turn();
    std::unique_lock lock(mutex_);
    if (!worked && queue_.empty()) {
      idle_.notify_all();
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    }
    if (stop_) return;
  }
}

// One order; after the last one, what makes it durable. False: there is nothing to do.
bool DiskWriter::take_turn() {
  std::optional<Order> order;
  {
    const std::lock_guard lock(mutex_);
    busy_ = !queue_.empty() || !synced_;
    if (!busy_) return false;
    if (!queue_.empty()) {
      order = std::move(queue_.front());
      queue_.pop_front();
    }
  }
  synced_ = !order;
  // Who removes the folder removes the lock: a process that makes it again is then its writer, and this one is not.
  if (lock_ ? !lock_->named() : !lost_ && clock_.now_ns() >= down_until_ns_) recreate();
  if (!order) {
    if (names_dirty_) sync_names();
    maybe_compact();
    return true;
  }
  retry_leftovers();
  std::visit([this](auto& o) { handle(o); }, *order);
  if (names_dirty_ && clock_.now_ns() - names_dirty_since_ns_ >= kSyncAfterNs) sync_names();
  return true;
}

void DiskWriter::handle(WriteOrder& order) {
  for (const auto& victim : order.victims) {
    remove_now(victim);
    ledger_.settle(victim.bytes);
  }
  std::uint64_t allocated = 0;
  // While the disk is down, what was queued before that is known fails at once and frees its memory.
  const Outcome outcome = !lock_ || clock_.now_ns() < down_until_ns_ ? Outcome::failed : write(order, allocated);
  finish(order, outcome, allocated);
}

void DiskWriter::finish(WriteOrder& order, Outcome outcome, std::uint64_t allocated) {
  ledger_.unreserve(order.reserved_bytes);
  if (outcome != Outcome::written) ++counters_.writes_dropped;
  push(WrittenEvent{.meta = std::move(order.meta),
                    .allocated_bytes = allocated,
                    .data_bytes = order.data_bytes,
                    .ok = outcome == Outcome::written});
}

Status DiskWriter::open_staging() {
  auto staging = Staging::create(*config_.device, staging_sizes(config_.groups).write_bytes, 1);
  if (!staging.ok()) return staging.status();
  staging_ = std::move(staging).value();
  staged_ = staging_->take();
  return Status::success();
}

// Blocks of a device come into RAM first; the order points there from then on.
Status DiskWriter::fetch(WriteOrder& order) {
  if (!staging_) return Status::success();
  const auto bytes = static_cast<std::uint64_t>(config_.groups[order.group.v].block_bytes);
  copies_.clear();
  for (std::size_t i = 0; i < order.data.size(); ++i) {
    if (!config_.device->on_device(order.data[i])) continue;
    std::byte* to = staged_ + i * bytes;
    copies_.push_back({to, order.data[i], bytes});
    order.data[i] = to;
  }
  return copies_.empty() ? Status::success() : config_.device->copy(copies_);
}

void DiskWriter::open_sealing() {
  std::uint64_t most = 0;
  for (const auto& layout : config_.groups)
    most = std::max(most, static_cast<std::uint64_t>(layout.block_bytes) * kExtentBlocks);
  sealed_ = aligned_bytes(most);
}

// Under a key of its own: encrypted again after an error, it is the same messages under the same numbers.
void DiskWriter::seal(WriteOrder& order) {
  if (!config_.cipher) return;
  seal_ids(*config_.cipher, config_.model_fingerprint, order.meta);
  const ExtentCipher cipher = config_.cipher->extent(order.meta.sealed->salt);
  const auto& slices = config_.groups[order.group.v].slices;
  const std::uint32_t blocks = order.meta.name.blocks;
  std::byte* to = sealed_.get();
  for (std::size_t s = 0; s < slices.size(); ++s)
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const std::span from(order.data[b] + slices[s].offset, static_cast<std::size_t>(slices[s].bytes));
      order.tags.push_back(cipher.seal(slice_message(s, blocks, b), {}, from, to));
      to += from.size();
    }
}

DiskWriter::Outcome DiskWriter::write(WriteOrder& order, std::uint64_t& allocated) {
  const auto room = [&] { return ledger_.used() + order.file_bytes + kBesideBytes <= config_.quota_bytes; };
  if (!room() || daily_.today() + order.file_bytes > config_.write_bytes_per_day_max) return Outcome::dropped;
  Status status = fetch(order);
  if (status.ok()) seal(order);
  for (int attempt = status.ok() ? 0 : 2; attempt < 2; ++attempt) {
    if (!lock_) return Outcome::failed;  // Another process took the folder over; recreate() has said so.
    const auto space = fs_.space(paths_.own);
    status = space.status();
    if (status.ok()) {
      if (space->free_bytes < order.file_bytes + config_.free_floor_bytes) return Outcome::dropped;
      status = write_file(order, allocated);
    }
    if (status.code() != Code::not_found) break;
    recreate();
    if (!room()) return Outcome::dropped;
  }
  if (!status.ok()) {
    failed(status);
    return Outcome::failed;
  }
  backoff_ns_ = 0;
  error_reported_ = false;
  daily_.add(allocated);
  if (daily_.store().ok()) ledger_.set(std::string(DiskPaths::kDailyName), model::kSliceAlign);
  counters_.bytes_written += allocated;
  counters_.bytes_written_today = daily_.today();
  append_log(add_record({order.meta, clock_.wall_seconds()}), 1);
  ++live_;
  return Outcome::written;
}

Status DiskWriter::write_file(const WriteOrder& order, std::uint64_t& allocated) {
  const bool aligned = sealed_ || std::all_of(order.data.begin(), order.data.end(), [](const std::byte* p) {
                         return reinterpret_cast<std::uintptr_t>(p) % platform::kFileAlign == 0;
                       });
  const std::string temporary = paths_.own_name + "/" + std::to_string(temporaries_++) + ".tmp";
  const std::string final_path = paths_.own_name + "/" + order.meta.name.file_name();
  ledger_.set(temporary, order.file_bytes);
  Status status = fill(order, temporary, aligned, allocated);
  if (status.code() == Code::unsupported && aligned && counters_.direct) {
    // The file opened, but this disk wants more of O_DIRECT than 4 KiB alignment.
    counters_.direct = false;
    (void)fs_.unlink(paths_.dir / temporary);
    status = fill(order, temporary, aligned, allocated);
  }
  if (status.ok()) {
    ledger_.set(temporary, allocated);
    status = fs_.rename(paths_.dir / temporary, paths_.dir / final_path);
  }
  if (!status.ok()) {
    remove_now({.path = temporary, .bytes = 0, .name = std::nullopt});
    return status;
  }
  ledger_.set(temporary, 0);
  ledger_.set(final_path, allocated);
  if (!names_dirty_) names_dirty_since_ns_ = clock_.now_ns();
  names_dirty_ = true;
  return {};
}

Result<std::unique_ptr<platform::File>> DiskWriter::create(const std::filesystem::path& path,
                                                           OpenOptions::Cache cache) {
  auto file = fs_.open(path, {.access = OpenOptions::Access::create, .cache = cache});
  if (!file.ok() && file.status().code() == Code::unsupported && cache == OpenOptions::Cache::bypass) {
    counters_.direct = false;
    return create(path, OpenOptions::Cache::use);
  }
  return file;
}

// Everything is hashed first, then written in file order with large writes, header included.
Status DiskWriter::fill(const WriteOrder& order, const std::string& temporary, bool aligned, std::uint64_t& allocated) {
  const auto& layout = config_.groups[order.group.v];
  const ExtentShape shape = ExtentShape::of(layout, order.meta.name.blocks, sealing(config_.cipher.get()));
  ExtentHeader header{.meta = order.meta,
                      .model_fingerprint = config_.model_fingerprint,
                      .slice_bytes = {},
                      .checksums = {},
                      .tags = order.tags};
  header.slice_bytes.assign(shape.slice_bytes().begin(), shape.slice_bytes().end());
  std::vector<std::span<const std::byte>> parts(1);
  const std::byte* sealed = sealed_.get();
  for (const auto& slice : layout.slices) {
    for (const std::byte* block : order.data) {
      const auto bytes = static_cast<std::size_t>(slice.bytes);
      parts.emplace_back(sealed ? sealed : block + slice.offset, bytes);
      if (sealed) sealed += bytes;
      header.checksums.push_back(checksum(parts.back()));
    }
  }
  const auto encoded = encode_header(header);
  const AlignedBytes first = aligned_bytes(encoded.size());
  std::memcpy(first.get(), encoded.data(), encoded.size());
  parts.front() = {first.get(), encoded.size()};

  const bool direct = aligned && counters_.direct;
  auto file = create(paths_.dir / temporary, direct ? OpenOptions::Cache::bypass : OpenOptions::Cache::use);
  if (!file.ok()) return file.status();
  LODE_RETURN_IF_ERROR(platform::write_fully(**file, parts, 0));
  LODE_RETURN_IF_ERROR((*file)->fdatasync());
  auto size = (*file)->allocated_bytes();
  if (!size.ok()) return size.status();
  allocated = *size;
  // Written through the cache: these pages would push out others and be read back around it.
  if (!direct || !counters_.direct) (*file)->drop_cached();
  return {};
}

void DiskWriter::handle(RemoveOrder& order) {
  if (order.when == RemoveOrder::When::after_sync && names_dirty_) sync_names();
  // What replaces these files may still lose its name: they are kept, though not in use any more, and tried again.
  const bool wait = order.when == RemoveOrder::When::after_sync && names_dirty_;
  for (const auto& file : order.files) {
    if (wait) keep_leftover(file);
    else remove_now(file);
    ledger_.settle(file.bytes);
  }
}

void DiskWriter::handle(AsideOrder& order) {
  if (auto file = set_aside_now(order.file)) push(AsideEvent{std::move(*file)});
  ledger_.settle(order.file.bytes);
}

void DiskWriter::handle(TouchOrder& order) {
  if (!order.names.empty()) append_log(touch_record(order.names, clock_.wall_seconds()), 1);
  (void)log_.sync();
}

void DiskWriter::remove_now(const Doomed& file) {
  if (!lock_) return;  // Whoever has the folder now decides what stays in it.
  const Status status = fs_.unlink(paths_.dir / file.path);
  if (!status.ok() && status.code() != Code::not_found) {
    keep_leftover(file);
    return;
  }
  ledger_.set(file.path, 0);
  if (file.name) {
    append_log(remove_record(*file.name), 1);
    live_ -= std::min<std::uint64_t>(live_, 1);
  }
}

std::optional<OtherFile> DiskWriter::set_aside_now(const Doomed& file) {
  if (!lock_) return std::nullopt;
  const std::string name = std::filesystem::path(file.path).filename().string();
  const std::string to = std::string(DiskPaths::kDamagedName) + "/" + name;
  Status status = fs_.make_dirs(paths_.dir / DiskPaths::kDamagedName);
  if (status.ok()) status = fs_.rename(paths_.dir / file.path, paths_.dir / to);
  if (!status.ok()) {
    remove_now(file);
    return std::nullopt;
  }
  ++counters_.files_set_aside;
  const std::uint64_t bytes = ledger_.size_of(file.path);
  ledger_.set(file.path, 0);
  ledger_.set(to, bytes);
  if (file.name) append_log(remove_record(*file.name), 1);
  return OtherFile{.path = to, .allocated_bytes = bytes, .used_seconds = 0};
}

void DiskWriter::append_log(std::span<const std::byte> records, std::uint64_t count) {
  if (!lock_) return;
  if (ledger_.used() + records.size() + kBesideBytes / 2 > config_.quota_bytes) return;
  // A failure costs time at the next start, nothing else; a disk in trouble shows at the extents.
  (void)log_.append(records, count);
  const auto bytes = log_.allocated_bytes();
  if (bytes) ledger_.set(paths_.own_name + "/" + std::string(IndexLog::kFileName), *bytes);
}

void DiskWriter::sync_names() {
  const Status status = fs_.sync_dir(paths_.own);
  if (status.ok()) {
    names_dirty_ = false;
  } else if (status.code() == Code::not_found) {
    recreate();
  } else {
    failed(status);
  }
}

void DiskWriter::retry_leftovers() {
  if (leftovers_.empty() || clock_.now_ns() < down_until_ns_) return;
  if (names_dirty_) sync_names();
  if (names_dirty_) return;
  for (const auto& file : std::exchange(leftovers_, {})) {
    ledger_.settle(file.bytes);
    remove_now(file);
  }
}

// Its bytes stay promised, or nobody would give the order whose writing tries again.
void DiskWriter::keep_leftover(Doomed file) {
  file.bytes = ledger_.size_of(file.path);
  ledger_.promise(file.bytes);
  leftovers_.push_back(std::move(file));
}

void DiskWriter::maybe_compact() {
  if (!lock_) return;
  log_.count_live(live_);
  if (!log_.wants_compaction()) return;
  const std::string path = paths_.own_name + "/" + std::string(IndexLog::kFileName), temporary = path + ".tmp";
  const std::uint64_t bytes = align_up((live_ + 1) * IndexLog::kRecordBytesMax, model::kSliceAlign);
  const bool both = ledger_.used() + bytes + kBesideBytes <= config_.quota_bytes;
  ledger_.set(temporary, bytes);
  const Status status = log_.compact(both ? IndexLog::Old::keep_until_replaced : IndexLog::Old::remove_first);
  ledger_.set(temporary, 0);
  if (status.ok()) {
    ledger_.set(path, align_up(log_.bytes(), model::kSliceAlign));
  } else {
    if (log_.bytes() == 0) ledger_.set(path, 0);
    failed(status);
  }
  live_ = log_.live();
}

// The folder is gone: make it again, and the lock with it, and look what is there.
void DiskWriter::recreate() {
  lock_.reset();
  Status status = fs_.make_dirs(paths_.own);
  if (status.ok()) {
    auto lock = fs_.lock(paths_.lock());
    status = lock.status();
    if (lock.ok()) lock_ = std::move(lock).value();
    // For good: what the other one writes is not in this process's index, should it end before this one.
    else if (status.code() == Code::unavailable) lost_ = true;
  }
  names_dirty_ = false;
  log_.load();
  live_ = log_.live();
  auto scan = scan_folder(fs_, paths_);
  if (!scan.ok()) {
    if (status.ok()) status = scan.status();
  } else {
    ledger_.reset(scan->sizes);
    for (const auto& file : std::exchange(leftovers_, {})) ledger_.settle(file.bytes);
    push(VanishedEvent{std::move(scan).value()});
    spdlog::warn("The KV folder {} was removed while in use; it was made again.", paths_.own.string());
  }
  if (!status.ok()) failed(status);
}

void DiskWriter::failed(const Status& status) {
  ++counters_.write_errors;
  backoff_ns_ = std::clamp(2 * backoff_ns_, kBackoffFirstNs, kBackoffMaxNs);
  down_until_ns_ = clock_.now_ns() + backoff_ns_;
  if (std::exchange(error_reported_, true)) return;
  spdlog::warn("KV blocks are not written to disk for now: {}. Reuse from memory goes on; the next try is in {} s.",
               status.message(), backoff_ns_ / 1'000'000'000);
}

}  // namespace lode::kv
