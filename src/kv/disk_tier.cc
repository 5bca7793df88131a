#include "kv/disk_tier.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/bytes.h"
#include "kv/disk_folder.h"
#include "kv/disk_index.h"
#include "kv/disk_reader.h"
#include "kv/disk_scan.h"
#include "kv/disk_writer.h"
#include "kv/extent.h"
#include "kv/pins.h"

namespace lode::kv {
namespace {

// Reserved with each extent for its log record, the daily count and the file system's own blocks.
constexpr std::uint64_t kSlackBytes = 64u << 10;
// How old the figure of the disk's free space may be.
constexpr std::int64_t kSpaceAgeNs = 1'000'000'000;
constexpr std::int64_t kDaySeconds = 86'400;

class DiskTierImpl final : public DiskTier {
 public:
  DiskTierImpl(const DiskConfig& config, platform::FileSystem& fs, platform::Clock& clock)
      : config_(config),
        paths_(config),
        fs_(fs),
        clock_(clock),
        day_(clock.wall_seconds() / kDaySeconds),
        removals_(clock) {
    for (std::uint32_t g = 0; g < config.groups.size(); ++g)
      layouts_.push_back(layout_id(GroupId{g}, config.groups[g], config.cipher.get()));
    index_.set_whole_history(config.whole_history);
  }
  ~DiskTierImpl() override {
    for (auto& ticket : tickets_) ticket->wait_done();
  }

  Status start();

  bool contains(const BlockKey& key, GroupId group) const override { return index_.contains(key, group); }
  const DiskBlock* find(const BlockKey& key) const override { return index_.block(key); }
  std::int64_t closest_child(const BlockKey& parent, std::span<const TokenId> ids) const override {
    return index_.closest_child(parent, ids);
  }
  std::vector<BlockKey> children(const BlockKey& parent, std::size_t most) const override {
    return index_.children(parent, most);
  }
  std::int64_t used_seconds(const BlockKey& key) const override { return index_.used_seconds(key); }
  const Removal* removed(const BlockKey& key, GroupId group) const override { return removals_.last(key, group); }
  std::uint64_t purge(std::span<const BlockKey> keys) override;
  Status pin(const Pin& pin) override;
  Status unpin(const BlockKey& key) override;
  const std::vector<Pin>& pins() const override { return pins_; }
  bool pinned(const BlockKey& key, GroupId group) const override { return index_.pinned(key, group); }
  std::uint64_t pinned_bytes() const override;
  std::uint64_t pin_bytes_max() const override { return config_.quota_bytes / 4 * 3; }
  WriteResult write(GroupId group, std::span<const DiskBlock> blocks, std::span<const std::byte* const> data,
                    std::function<void(bool ok)> done) override;
  ReadTicket* start_read(std::span<const ReadItem> items) override;
  void release(ReadTicket* ticket) override;
  void touch(const BlockKey& key) override { index_.touch(key, clock_.wall_seconds()); }
  void touch_group(const BlockKey& key, GroupId group) override { index_.touch(key, clock_.wall_seconds(), group); }
  void set_compute_cost(const ComputeCost& cost) override { index_.set_compute_cost(cost); }
  bool near_daily_cap() override {
    return writer_ && written_today() + queue_file_bytes_ > config_.write_bytes_per_day_max / 10 * 9;
  }
  void drop(const BlockKey& key) override;
  void poll() override;
  bool flush(std::int64_t timeout_ms) override;
  DiskStats stats() const override;

 private:
  Status become_writer();
  void clean_up(FolderContents& contents);
  void say_locked(const FolderContents& contents) const;
  std::string_view why_read_only() const;  // Empty: it writes.
  Status writable() const;
  Doomed doom(DiskIndex::Handle extent) const;
  void remove(DiskIndex::Handle extent, RemoveOrder::When when);
  std::optional<Doomed> take_victim(const BlockKey& parent);
  std::optional<WriteResult> reason_to_drop(std::uint64_t file_bytes, std::uint64_t data_bytes);
  bool make_room(const WriteOrder& order, std::vector<Doomed>& victims);
  bool free_space_allows(std::uint64_t bytes);
  void say_dropped(WriteResult reason);
  std::uint64_t written_today();
  void take_problems(DiskReader::Ticket& ticket);
  void handle(WrittenEvent& event);
  void handle(AsideEvent& event);
  void handle(VanishedEvent& event);
  void submit(DiskWriter::Order order) {
    ++orders_;
    writer_->submit(std::move(order));
  }
  void sort_others();
  void note_removed(const DiskIndex::Extent& extent, RemovedWhy why);
  void mark_pin(const Pin& pin);
  void mark_pins();
  Status store_pins();

  struct Pending {
    std::vector<std::function<void(bool)>> done;
    std::uint64_t file_bytes = 0;
  };

  const DiskConfig config_;
  const DiskPaths paths_;
  platform::FileSystem& fs_;
  platform::Clock& clock_;
  std::vector<std::uint64_t> layouts_;  // layout_id per group.
  DiskCounters counters_;
  DiskIndex index_;
  std::vector<OtherFile> others_;  // Last in the vector goes first.
  std::unordered_map<ExtentName, Pending, ExtentNameHash> pending_;
  std::vector<std::pair<std::function<void(bool)>, bool>> calls_;  // For the next poll.
  std::uint64_t queue_bytes_ = 0, queue_file_bytes_ = 0;
  std::uint64_t orders_ = 0;                    // Submitted so far.
  std::uint64_t scanned_bytes_ = 0;             // Read-only: allocated bytes at open.
  WriteResult dropping_ = WriteResult::queued;  // Why the last write was dropped; `queued`: it was not.
  std::uint64_t free_bytes_ = 0;
  std::int64_t free_bytes_at_ns_ = -kSpaceAgeNs;
  std::int64_t day_;
  RemovalLog removals_;
  std::vector<Pin> pins_;                 // Of this model; those of other KV types too, which are nowhere in the index.
  std::uint64_t other_pinned_bytes_ = 0;  // Allocated, of files that are in no index here.
  std::string read_only_;                 // Why, where this is no writer.
  bool damage_reported_ = false, trouble_reported_ = false;
  std::unique_ptr<DiskWriter> writer_;  // nullptr: read-only.
  std::unique_ptr<DiskReader> reader_;
  std::list<std::unique_ptr<DiskReader::Ticket>> tickets_;
};

// ---- start-up

Status DiskTierImpl::become_writer() {
  LODE_RETURN_IF_ERROR(fs_.make_dirs(paths_.own));
  writer_ = std::make_unique<DiskWriter>(config_, fs_, clock_, counters_);
  const Status status = writer_->take_lock();
  if (!status.ok()) writer_.reset();
  return status;
}

Status DiskTierImpl::start() {
  const Status writer = become_writer();
  if (!writer.ok()) {
    read_only_ = writer.code() == Code::unavailable ? "another process writes to this folder" : writer.message();
  }
  auto scan = scan_folder(fs_, paths_);
  if (!scan.ok()) {
    return {Code::unavailable,
            fmt::format("The KV folder {} cannot be used: {}. Name another with --kv-disk DIR, or --kv-disk off.",
                        paths_.dir.string(), (writer.ok() ? scan.status() : writer).message())};
  }
  LogReplay replay;
  if (writer_) {
    replay = writer_->log().load();
    writer_->ledger().reset(scan->sizes);
  } else {
    replay = IndexLog(fs_, paths_.own, config_.model_fingerprint).load();
    for (const auto& [path, bytes] : scan->sizes) scanned_bytes_ += bytes;
  }
  auto contents = read_folder(fs_, config_, std::move(*scan), replay, index_);
  others_ = std::move(contents.others);
  other_pinned_bytes_ = spare_pinned(fs_, paths_.dir, others_);
  pins_ = PinFile(fs_, paths_.own).load();
  mark_pins();
  if (writer_) clean_up(contents);
  sort_others();
  if (!contents.damaged.empty()) {
    damage_reported_ = true;
    spdlog::warn("{} damaged files of {} hold no usable KV blocks{}; the first: {}", contents.damaged.size(),
                 paths_.own.string(),
                 writer_ ? " and were moved to " + (paths_.dir / DiskPaths::kDamagedName).string() : std::string(),
                 contents.damage);
  }
  if (!contents.foreign.empty()) {
    spdlog::warn("{} files in {} are not Lode's and are left alone; the first: {}", contents.foreign.size(),
                 paths_.own.string(), contents.foreign.front());
  }
  say_locked(contents);
  reader_ = std::make_unique<DiskReader>(config_, fs_, counters_);
  if (config_.device) {
    LODE_RETURN_IF_ERROR(reader_->open_staging());
    if (writer_) LODE_RETURN_IF_ERROR(writer_->open_staging());
  }
  if (writer_ && config_.cipher) writer_->open_sealing();
  if (writer_) writer_->run();
  return {};
}

// What this key cannot open is a miss, and stays for the one that can as long as nobody else needs its room.
void DiskTierImpl::say_locked(const FolderContents& contents) const {
  const std::string folder = paths_.own.string();
  if (contents.locked > 0)
    spdlog::warn(
        "{} files in {} are encrypted {}: what they hold is computed again. Start with the --kv-key-file they "
        "were written with, or remove them with `lode cache gc`.",
        contents.locked, folder, config_.cipher ? "with another key" : "and there is no --kv-key-file");
  if (contents.unsealed > 0)
    spdlog::warn(
        "{} files in {} were written without --kv-key-file: they are not encrypted, and not used. `lode cache "
        "gc` removes them.",
        contents.unsealed, folder);
}

// The writer's part of start-up: nothing torn stays, the log knows everything, the quota holds.
void DiskTierImpl::clean_up(FolderContents& contents) {
  for (const auto& path : contents.temporaries) writer_->remove_now({.path = path, .bytes = 0, .name = std::nullopt});
  for (const auto& path : contents.damaged) {
    const auto name = ExtentName::parse(std::filesystem::path(path).filename().string());
    if (auto aside = writer_->set_aside_now({.path = path, .bytes = 0, .name = name}))
      others_.push_back(std::move(*aside));
  }
  sort_others();
  while (writer_->ledger().used() > config_.quota_bytes) {
    const std::uint64_t before = writer_->ledger().used();
    const auto victim = take_victim(BlockKey{});
    if (!victim) break;
    writer_->remove_now(*victim);
    if (writer_->ledger().used() == before) break;  // It cannot be removed: writes find the quota full.
  }
  std::vector<std::byte> records;
  for (const auto& extent : contents.unlogged) {
    if (!index_.find(extent.meta.name)) continue;
    const auto record = add_record(extent);
    records.insert(records.end(), record.begin(), record.end());
  }
  if (!records.empty()) writer_->append_log(records, contents.unlogged.size());
  (void)fs_.sync_dir(paths_.dir);  // The name of this model's folder, which may be new.
  if (paths_.dir.has_parent_path()) (void)fs_.sync_dir(paths_.dir.parent_path());
  writer_->probe_direct();
}

void DiskTierImpl::sort_others() {
  std::stable_sort(others_.begin(), others_.end(),
                   [](const OtherFile& a, const OtherFile& b) { return a.used_seconds > b.used_seconds; });
}

// ---- writing

Doomed DiskTierImpl::doom(DiskIndex::Handle extent) const {
  return {
      .path = paths_.own_name + "/" + extent->name.file_name(), .bytes = extent->allocated_bytes, .name = extent->name};
}

void DiskTierImpl::remove(DiskIndex::Handle extent, RemoveOrder::When when) {
  Doomed doomed = doom(extent);
  index_.remove(extent);
  if (!writer_) return;
  writer_->ledger().promise(doomed.bytes);
  submit(RemoveOrder{.files = {std::move(doomed)}, .when = when});
}

// What is worth least of this model, but no ancestor of `parent`; or a file of another one that was used before it.
std::optional<Doomed> DiskTierImpl::take_victim(const BlockKey& parent) {
  const auto own = index_.victim(parent);
  if (!others_.empty() && (!own || others_.back().used_seconds <= (*own)->used_seconds)) {
    const OtherFile file = others_.back();
    others_.pop_back();
    return Doomed{.path = file.path, .bytes = file.allocated_bytes, .name = std::nullopt};
  }
  if (!own) return std::nullopt;
  Doomed doomed = doom(*own);
  note_removed(**own, RemovedWhy::quota);
  index_.evict(*own);
  ++counters_.evicted_extents;
  return doomed;
}

bool DiskTierImpl::make_room(const WriteOrder& order, std::vector<Doomed>& victims) {
  auto& ledger = writer_->ledger();
  if (order.reserved_bytes > config_.quota_bytes) return false;
  // An extent whose parent is not stored is of no use until that is: it takes room, but nobody's place. (Where every
  // layer is recurrent, a state needs nothing before it.)
  const auto& whole = config_.whole_history;
  const bool chained = whole.empty() || std::find(whole.begin(), whole.end(), true) != whole.end();
  const bool orphan = chained && order.meta.first_index > 0 && !index_.block(order.meta.parent) &&
                      std::none_of(pending_.begin(), pending_.end(),
                                   [&](const auto& entry) { return entry.first.last == order.meta.parent; });
  if (orphan && ledger.projected() + order.reserved_bytes > config_.quota_bytes) return false;
  while (ledger.projected() + order.reserved_bytes > config_.quota_bytes) {
    auto victim = take_victim(order.meta.parent);
    if (!victim) return false;
    ledger.promise(victim->bytes);
    victims.push_back(std::move(*victim));
  }
  return true;
}

bool DiskTierImpl::free_space_allows(std::uint64_t bytes) {
  if (clock_.now_ns() - free_bytes_at_ns_ >= kSpaceAgeNs) {
    const auto space = fs_.space(paths_.own);
    if (!space.ok()) return true;  // The writer will meet the same trouble and report it.
    free_bytes_ = space->free_bytes;
    free_bytes_at_ns_ = clock_.now_ns();
  }
  return free_bytes_ >= config_.free_floor_bytes + queue_file_bytes_ + bytes;
}

std::uint64_t DiskTierImpl::written_today() {
  const std::int64_t day = clock_.wall_seconds() / kDaySeconds;
  if (day != day_) counters_.bytes_written_today = 0;
  day_ = day;
  return counters_.bytes_written_today;
}

std::optional<WriteResult> DiskTierImpl::reason_to_drop(std::uint64_t file_bytes, std::uint64_t data_bytes) {
  if (clock_.now_ns() < writer_->down_until_ns()) return WriteResult::dropped_disk_error;
  // An empty queue takes an extent of any size: those of big models exceed the bound alone.
  if (queue_bytes_ > 0 && queue_bytes_ + data_bytes > config_.queue_bytes_max) return WriteResult::dropped_queue_full;
  if (written_today() + queue_file_bytes_ + file_bytes > config_.write_bytes_per_day_max)
    return WriteResult::dropped_daily_cap;
  if (!free_space_allows(file_bytes)) return WriteResult::dropped_free_floor;
  return std::nullopt;
}

WriteResult DiskTierImpl::write(GroupId group, std::span<const DiskBlock> blocks,
                                std::span<const std::byte* const> data, std::function<void(bool ok)> done) {
  LODE_CHECK(group.v < config_.groups.size() && !config_.groups[group.v].slices.empty());
  LODE_CHECK(!blocks.empty() && blocks.size() <= kExtentBlocks && data.size() == blocks.size());
  if (!why_read_only().empty()) return WriteResult::dropped_read_only;
  WriteOrder order{.meta = {.name = {.last = blocks.back().key,
                                     .layout = layouts_[group.v],
                                     .group = group.v,
                                     .blocks = static_cast<std::uint32_t>(blocks.size())},
                            .first_index = blocks.front().index,
                            .parent = blocks.front().parent,
                            .keys = {},
                            .ids = {},
                            .sealed = {}},
                   .group = group,
                   .data = {data.begin(), data.end()},
                   .victims = {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    LODE_CHECK(i == 0 || (blocks[i].parent == blocks[i - 1].key && blocks[i].index == blocks[i - 1].index + 1));
    order.meta.keys.push_back(blocks[i].key);
    order.meta.ids.push_back(blocks[i].ids);
  }
  if (index_.holds_run(group, order.meta.keys)) {
    calls_.emplace_back(std::move(done), true);
    return WriteResult::queued;
  }
  if (const auto twin = pending_.find(order.meta.name); twin != pending_.end()) {
    twin->second.done.push_back(std::move(done));
    return WriteResult::queued;
  }
  order.file_bytes =
      ExtentShape::of(config_.groups[group.v], order.meta.name.blocks, sealing(config_.cipher.get())).file_bytes();
  order.reserved_bytes = order.file_bytes + kSlackBytes;
  order.data_bytes = static_cast<std::uint64_t>(config_.groups[group.v].block_bytes) * blocks.size();
  auto reason = reason_to_drop(order.file_bytes, order.data_bytes);
  if (!reason && !make_room(order, order.victims)) {
    if (!order.victims.empty()) submit(RemoveOrder{.files = std::move(order.victims)});
    reason = WriteResult::dropped_quota;
  }
  if (reason) {
    ++counters_.writes_dropped;
    say_dropped(*reason);
    return *reason;
  }
  dropping_ = WriteResult::queued;
  writer_->ledger().reserve(order.reserved_bytes);
  queue_bytes_ += order.data_bytes;
  queue_file_bytes_ += order.file_bytes;
  Pending& pending = pending_[order.meta.name];
  pending.done.push_back(std::move(done));
  pending.file_bytes = order.file_bytes;
  submit(std::move(order));
  return WriteResult::queued;
}

// A limit is no error, but nobody should have to wonder why nothing is stored: said when it begins to bind, once until
// a write passes again.
void DiskTierImpl::say_dropped(WriteResult reason) {
  if (reason == dropping_) return;
  dropping_ = reason;
  constexpr auto& kSay = "New KV blocks are not written to {}: {}. Reuse from memory goes on.";
  const std::string folder = paths_.own.string();
  if (reason == WriteResult::dropped_free_floor)
    spdlog::warn(kSay, folder,
                 fmt::format("{} are free there and {} must stay so; free some space or choose another --kv-disk",
                             format_size(free_bytes_), format_size(config_.free_floor_bytes)));
  else if (reason == WriteResult::dropped_daily_cap)
    spdlog::warn(kSay, folder,
                 fmt::format("{} were written today, the most a day may take; raise --kv-disk-writes",
                             format_size(written_today())));
  else if (reason == WriteResult::dropped_quota)
    spdlog::warn(
        kSay, folder,
        fmt::format("an extent does not fit the quota of {}; raise --kv-disk-max", format_size(config_.quota_bytes)));
}

void DiskTierImpl::drop(const BlockKey& key) {
  for (const auto extent : index_.extents_of(key)) {
    note_removed(*extent, RemovedWhy::damaged);
    remove(extent, RemoveOrder::When::at_once);
  }
}

void DiskTierImpl::note_removed(const DiskIndex::Extent& extent, RemovedWhy why) {
  for (const BlockKey& key : extent.keys) removals_.note(key, GroupId{extent.name.group}, why);
}

std::uint64_t DiskTierImpl::purge(std::span<const BlockKey> keys) {
  const std::unordered_set<BlockKey, BlockKeyHash> wanted(keys.begin(), keys.end());
  std::uint64_t bytes = 0;
  for (auto extent = index_.extents().begin(); extent != index_.extents().end();) {
    const auto next = std::next(extent);
    const bool all = std::all_of(extent->keys.begin(), extent->keys.end(),
                                 [&](const BlockKey& key) { return wanted.contains(key); });
    if (all && extent->pins == 0 && writer_) {
      bytes += extent->allocated_bytes;
      note_removed(*extent, RemovedWhy::purged);
      remove(extent, RemoveOrder::When::at_once);
    }
    extent = next;
  }
  return bytes;
}

// ---- pins

// A chain that is not stored whole marks what there is of it.
void DiskTierImpl::mark_pin(const Pin& pin) {
  BlockKey key = pin.key;
  for (std::int64_t at = pin.blocks - 1; at >= 0; --at) {
    const DiskBlock* block = index_.block(key);
    if (!block && at == pin.blocks - 1) return;  // Another layout's.
    for (std::uint32_t g = 0; g < pin.first.size() && g < layouts_.size(); ++g)
      if (at >= pin.first[g]) index_.pin(key, GroupId{g});
    if (!block) return;
    key = block->parent;
  }
}

// Anew: what was lost since a pin was made would not be counted out again.
void DiskTierImpl::mark_pins() {
  index_.unpin_all();
  for (const Pin& pin : pins_) mark_pin(pin);
}

std::uint64_t DiskTierImpl::pinned_bytes() const {
  std::uint64_t bytes = other_pinned_bytes_;
  for (const auto& extent : index_.extents())
    if (extent.pins > 0) bytes += extent.allocated_bytes;
  return bytes;
}

std::string_view DiskTierImpl::why_read_only() const {
  if (!writer_) return read_only_;
  return writer_->lost() ? "another process took the folder over" : "";
}

Status DiskTierImpl::writable() const {
  const std::string_view why = why_read_only();
  return why.empty() ? Status() : Status::unsupported(fmt::format("the SSD tier is read-only here: {}", why));
}

Status DiskTierImpl::store_pins() {
  const PinFile file(fs_, paths_.own);
  const Status stored = file.store(pins_);
  // The real figure may be a page more: the next scan sets it right.
  if (stored.ok())
    writer_->ledger().set(paths_.own_name + "/" + std::string(PinFile::kFileName),
                          align_up(16 + pins_.size() * 280, model::kSliceAlign));
  return stored;
}

Status DiskTierImpl::pin(const Pin& pin) {
  LODE_RETURN_IF_ERROR(writable());
  const auto same = std::find_if(pins_.begin(), pins_.end(), [&](const Pin& p) { return p.key == pin.key; });
  if (same != pins_.end()) {
    same->name = pin.name;
    return store_pins();
  }
  if (pins_.size() >= PinFile::kPinsMax)
    return Status::exhausted(fmt::format("{} prefixes are pinned, the most there may be; unpin one", pins_.size()));
  const std::uint64_t before = pinned_bytes();
  mark_pin(pin);
  const std::uint64_t after = pinned_bytes();
  if (after > pin_bytes_max()) {
    mark_pins();
    return Status::exhausted(
        fmt::format("pinning these {} tokens would keep {} more on the SSD, {} with what is pinned already; pins may "
                    "take {}, three "
                    "quarters of the quota of {}: unpin something or raise --kv-disk-max",
                    pin.blocks * kBlockTokens, format_size(after - before), format_size(after),
                    format_size(pin_bytes_max()), format_size(config_.quota_bytes)));
  }
  pins_.push_back(pin);
  const Status stored = store_pins();
  if (stored.ok()) return stored;
  pins_.pop_back();
  mark_pins();
  return stored;
}

Status DiskTierImpl::unpin(const BlockKey& key) {
  LODE_RETURN_IF_ERROR(writable());
  const auto at = std::find_if(pins_.begin(), pins_.end(), [&](const Pin& p) { return p.key == key; });
  if (at == pins_.end()) return Status::not_found("this prefix is not pinned");
  Pin pin = std::move(*at);
  pins_.erase(at);
  if (const Status stored = store_pins(); !stored.ok()) {
    pins_.push_back(std::move(pin));
    return stored;
  }
  mark_pins();
  return Status::success();
}

// ---- reading

ReadTicket* DiskTierImpl::start_read(std::span<const ReadItem> items) {
  struct Wanted {
    std::uint32_t at;
    std::size_t item;
  };
  // Extents in the order of their first item; inside each, blocks ascending.
  std::unordered_map<const DiskIndex::Extent*, std::size_t> numbers;
  std::vector<std::pair<DiskIndex::Handle, std::vector<Wanted>>> extents;
  ReadPlan plan;
  for (std::size_t i = 0; i < items.size(); ++i) {
    LODE_CHECK(items[i].group.v < config_.groups.size());
    plan.item_groups.push_back(items[i].group);
    const auto place = index_.place(items[i].key, items[i].group);
    if (!place) {
      plan.missing.push_back(i);
      continue;
    }
    const auto [number, fresh] = numbers.emplace(&*place->extent, extents.size());
    if (fresh) extents.push_back({place->extent, {}});
    extents[number->second].second.push_back({place->at, i});
  }
  for (auto& [extent, wanted] : extents) {
    std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) { return a.at < b.at; });
    ReadExtent& read = plan.extents.emplace_back(ReadExtent{.name = extent->name, .keys = extent->keys, .runs = {}});
    for (const Wanted& w : wanted) {
      const bool next = !read.runs.empty() && read.runs.back().first + read.runs.back().items.size() == w.at;
      if (!next) read.runs.push_back({.first = w.at, .items = {}, .dst = {}});
      read.runs.back().items.push_back(w.item);
      read.runs.back().dst.push_back(items[w.item].dst);
    }
  }
  tickets_.push_back(reader_->start(std::move(plan)));
  return tickets_.back().get();
}

void DiskTierImpl::release(ReadTicket* ticket) {
  const auto found = std::find_if(tickets_.begin(), tickets_.end(), [&](const auto& t) { return t.get() == ticket; });
  LODE_CHECK(found != tickets_.end());
  (*found)->wait_done();
  take_problems(**found);
  tickets_.erase(found);
}

void DiskTierImpl::take_problems(DiskReader::Ticket& ticket) {
  for (const auto& problem : ticket.take_problems()) {
    if (problem.kind == ReadProblem::Kind::later) {
      if (!std::exchange(trouble_reported_, true))
        spdlog::warn("Stored KV blocks could not be read just now: {}", problem.what);
      continue;
    }
    const auto extent = index_.find(problem.name);
    if (!extent) continue;
    if (problem.kind == ReadProblem::Kind::gone) {
      note_removed(**extent, RemovedWhy::vanished);
      remove(*extent, RemoveOrder::When::at_once);  // Nothing to unlink: it sets the ledger and the log right.
      continue;
    }
    if (!std::exchange(damage_reported_, true)) {
      spdlog::warn("A damaged extent is set aside in {} and its blocks are computed again: {}. More are only counted.",
                   (paths_.dir / DiskPaths::kDamagedName).string(), problem.what);
    }
    note_removed(**extent, RemovedWhy::damaged);
    Doomed doomed = doom(*extent);
    index_.remove(*extent);
    if (!writer_) continue;
    writer_->ledger().promise(doomed.bytes);
    submit(AsideOrder{std::move(doomed)});
  }
}

// ---- completions

void DiskTierImpl::poll() {
  for (auto& ticket : tickets_) take_problems(*ticket);
  if (writer_) {
    for (auto& event : writer_->take_events()) {
      std::visit([this](auto& e) { handle(e); }, event);
    }
  }
  // A callback may write again, which adds to calls_.
  for (auto& [call, ok] : std::exchange(calls_, {})) {
    if (call) call(ok);
  }
}

void DiskTierImpl::handle(WrittenEvent& event) {
  const auto pending = pending_.find(event.meta.name);
  LODE_CHECK(pending != pending_.end());
  queue_bytes_ -= event.data_bytes;
  queue_file_bytes_ -= pending->second.file_bytes;
  if (event.ok && !index_.find(event.meta.name)) {
    const auto replaced = index_.inside(GroupId{event.meta.name.group}, event.meta.keys, event.meta.name);
    index_.add(event.meta, event.allocated_bytes, clock_.wall_seconds());
    for (const auto extent : replaced) remove(extent, RemoveOrder::When::after_sync);
  }
  for (auto& done : pending->second.done) calls_.emplace_back(std::move(done), event.ok);
  pending_.erase(pending);
}

void DiskTierImpl::handle(AsideEvent& event) {
  others_.push_back(std::move(event.file));
}

void DiskTierImpl::handle(VanishedEvent& event) {
  std::set<ExtentName> present;
  for (const auto& entry : event.scan.own) {
    if (const auto name = ExtentName::parse(entry.name)) present.insert(*name);
  }
  for (auto extent = index_.extents().begin(); extent != index_.extents().end();) {
    const auto next = std::next(extent);
    if (!present.contains(extent->name)) {
      note_removed(*extent, RemovedWhy::vanished);
      index_.remove(extent);
    }
    extent = next;
  }
  others_ = std::move(event.scan.others);
  other_pinned_bytes_ = spare_pinned(fs_, paths_.dir, others_);
  if (!pins_.empty() && !writer_->lost())
    (void)store_pins();  // The file went with the folder; the blocks will not come back by it.
  sort_others();
}

bool DiskTierImpl::flush(std::int64_t timeout_ms) {
  poll();
  if (!writer_) return true;
  // Real time: what is waited for are real threads and a real disk.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  submit(TouchOrder{index_.take_touched()});
  for (;;) {
    if (!writer_->wait_idle(deadline)) return false;
    const std::uint64_t before = orders_;
    poll();
    if (orders_ == before && pending_.empty()) return true;
  }
}

DiskStats DiskTierImpl::stats() const {
  DiskStats s;
  s.extents = index_.extents().size();
  s.blocks = index_.blocks();
  s.bytes_allocated = writer_ ? writer_->ledger().used() : scanned_bytes_;
  s.quota_bytes = config_.quota_bytes;
  s.bytes_written = counters_.bytes_written;
  s.bytes_read = counters_.bytes_read;
  s.bytes_written_today = counters_.bytes_written_today;
  s.queue_bytes = queue_bytes_;
  s.writes_dropped = counters_.writes_dropped;
  s.write_errors = counters_.write_errors;
  s.corrupt_slices = counters_.corrupt_slices;
  s.files_set_aside = counters_.files_set_aside;
  s.evicted_extents = counters_.evicted_extents;
  s.mode = fmt::format("{}{}", reader_->mode(), counters_.direct ? " O_DIRECT" : ", buffered");
  if (const auto why = why_read_only(); !why.empty()) s.mode = fmt::format("read-only ({}), {}", why, s.mode);
  return s;
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskConfig& config, platform::FileSystem& fs,
                                                 platform::Clock& clock) {
  if (config.dir.empty())
    return Status::invalid("The KV folder has no name. Give one with --kv-disk DIR, or --kv-disk off.");
  auto tier = std::make_unique<DiskTierImpl>(config, fs, clock);
  LODE_RETURN_IF_ERROR(tier->start());
  return std::unique_ptr<DiskTier>(std::move(tier));
}

}  // namespace lode::kv
