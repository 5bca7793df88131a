#include "kv/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "kv/store_impl.h"
#include "platform/process.h"

namespace lode::kv {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

Status check_group(const model::CacheGroup& group, std::size_t g, std::vector<bool>& seen) {
  using Kind = model::CacheGroup::Kind;
  const bool recurrent = group.kind == Kind::checkpoint;
  if ((group.kind == Kind::window || group.kind == Kind::chunk) && group.window <= 0)
    return Status::invalid(
        fmt::format("cache group {} has a window of {} tokens; expected at least 1", g, group.window));
  if (group.layers.empty()) return Status::invalid(fmt::format("cache group {} has no layers", g));
  for (const model::CacheLayer& l : group.layers) {
    if (recurrent) {
      if (!l.layer.valid() || l.state_bytes <= 0)
        return Status::invalid(fmt::format("cache group {}, layer {}: a state of {} bytes; expected at least 1", g,
                                           l.layer.v, l.state_bytes));
    } else if (!l.layer.valid() || l.kv_heads <= 0 || l.k_dim <= 0 || l.v_dim <= 0)
      return Status::invalid(
          fmt::format("cache group {}, layer {}: {} KV heads of {} and {} values; expected at least 1 each", g,
                      l.layer.v, l.kv_heads, l.k_dim, l.v_dim));
    if (seen.size() <= l.layer.v) seen.resize(l.layer.v + 1, false);
    if (seen[l.layer.v]) return Status::invalid(fmt::format("layer {} is in two cache groups", l.layer.v));
    seen[l.layer.v] = true;
  }
  return Status::success();
}

Status check(const StoreConfig& config) {
  if (config.groups.empty() || config.groups.size() > kGroupsMax)
    return Status::invalid(fmt::format("{} cache groups; expected 1 to {}", config.groups.size(), kGroupsMax));
  if ((config.device == nullptr) != (config.device_budget == nullptr))
    return {Code::internal, "a KV store on a device needs the budget of its memory"};
  if (config.checkpoint_tokens < 0)
    return Status::invalid(fmt::format("a checkpoint every {} tokens; expected at least 1, or 0 for the default",
                                       config.checkpoint_tokens));
  if (config.chunk_tokens <= 0 || config.context_max <= 0 || config.sequences_max <= 0)
    return Status::invalid(
        fmt::format("KV store of {} sequences, {} tokens of context and chunks of {}; expected at least 1 each",
                    config.sequences_max, config.context_max, config.chunk_tokens));
  std::vector<bool> seen;
  for (std::size_t g = 0; g < config.groups.size(); ++g) LODE_RETURN_IF_ERROR(check_group(config.groups[g], g, seen));
  return Status::success();
}

std::vector<model::BlockLayout> layouts_of(const StoreConfig& config) {
  std::vector<model::BlockLayout> layouts;
  layouts.reserve(config.groups.size());
  for (const auto& g : config.groups) layouts.push_back(model::block_layout(g, config.k_type, config.v_type));
  return layouts;
}

// The write queue pins RAM blocks: at most a quarter of the arena, but never less than two extents, or none could pass.
std::uint64_t queue_bytes(const StoreConfig& config, const std::vector<model::BlockLayout>& layouts,
                          std::uint64_t asked) {
  std::int64_t largest = 0;  // Extent, in bytes.
  for (std::size_t g = 0; g < layouts.size(); ++g)
    largest = std::max(largest, layouts[g].block_bytes * ExtentPacker::extent_blocks(config.groups[g]));
  if (config.device) {
    // A card computes a prompt far faster than a disk takes it; the queue holds blocks of the card's memory.
    asked = std::max<std::uint64_t>(asked, kGiB);
    return std::max(std::min(asked, config.device_budget->bytes_max() / 8), static_cast<std::uint64_t>(2 * largest));
  }
  return std::max(std::min(asked, config.arena_bytes_max / 4), static_cast<std::uint64_t>(2 * largest));
}

// Blocks between two regular checkpoints; 0: no group has any.
std::int64_t every_blocks(const StoreConfig& config, const std::vector<model::BlockLayout>& layouts) {
  const auto recurrent = [](const model::CacheGroup& g) { return g.kind == model::CacheGroup::Kind::checkpoint; };
  if (std::none_of(config.groups.begin(), config.groups.end(), recurrent)) return 0;
  const std::int64_t tokens =
      config.checkpoint_tokens > 0 ? config.checkpoint_tokens : checkpoint_interval(config.groups, layouts);
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

std::int64_t checkpoint_interval(std::span<const model::CacheGroup> groups,
                                 std::span<const model::BlockLayout> layouts) {
  constexpr std::int64_t kLeast = 1024, kMost = 4096;
  std::int64_t state_bytes = 0, block_bytes = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == model::CacheGroup::Kind::checkpoint) state_bytes += layouts[g].block_bytes;
    if (groups[g].kind == model::CacheGroup::Kind::full) block_bytes += layouts[g].block_bytes;
  }
  std::int64_t tokens = kLeast;
  while (tokens < kMost && state_bytes > tokens / kBlockTokens * block_bytes) tokens *= 2;
  return tokens;
}

Result<std::unique_ptr<Store>> Store::open(const StoreConfig& config, platform::FileSystem& fs,
                                           platform::Clock& clock) {
  LODE_RETURN_IF_ERROR(check(config));
  StoreParts parts;
  if (config.disk) {
    DiskConfig disk = *config.disk;
    disk.groups = layouts_of(config);
    for (const auto& g : config.groups) disk.whole_history.push_back(g.kind == model::CacheGroup::Kind::full);
    disk.model_fingerprint = config.root.model_fingerprint;
    disk.queue_bytes_max = queue_bytes(config, disk.groups, disk.queue_bytes_max);
    disk.device = config.device;
    platform::raise_open_files();  // A restore opens all its extents: 512 for 128k tokens of two groups.
    auto opened = DiskTier::open(disk, fs, clock);
    if (opened.ok()) parts.disk = std::move(opened).value();
    else parts.disk_note = opened.status().message();
  }
  auto store = StoreImpl::create(config, clock, std::move(parts));
  if (!store.ok()) return store.status();
  return std::unique_ptr<Store>(std::move(store).value());
}

Result<std::unique_ptr<StoreImpl>> StoreImpl::create(const StoreConfig& config, platform::Clock& clock,
                                                     StoreParts parts) {
  LODE_RETURN_IF_ERROR(check(config));
  std::vector<model::BlockLayout> layouts = layouts_of(config);
  parts.removals = std::make_unique<RemovalLog>(clock);
  RamTierOptions options{.block_bytes = {},
                         .bytes_max = config.arena_bytes_max,
                         .piece_bytes = config.device ? parts.pinned_piece_bytes : parts.piece_bytes,
                         .freed = parts.freed,
                         .device = config.device,
                         .near = config.device_budget,
                         .removals = parts.removals.get()};
  for (const auto& l : layouts) options.block_bytes.push_back(l.block_bytes);
  auto ram = RamTier::create(options);
  if (!ram.ok()) return ram.status();
  return std::unique_ptr<StoreImpl>(
      new StoreImpl(config, std::move(layouts), clock, std::move(parts), std::move(ram).value()));
}

StoreImpl::StoreImpl(const StoreConfig& config, std::vector<model::BlockLayout> layouts, platform::Clock& clock,
                     StoreParts parts, std::unique_ptr<RamTier> ram)
    : config_(config),
      layouts_(std::move(layouts)),
      blocks_max_((config.context_max + kBlockTokens - 1) / kBlockTokens),
      every_blocks_(every_blocks(config, layouts_)),
      clock_(clock),
      removals_(std::move(parts.removals)),
      root_key_(parts.root_key),
      child_key_(parts.child_key),
      disk_note_(std::move(parts.disk_note)),
      disk_(std::move(parts.disk)),
      ram_(std::move(ram)),
      index_(config.groups.size()),
      evictor_(config_.groups, index_, *ram_, disk_.get(), kSlackBlocks, config.unpinned_bytes_max),
      view_(config_.groups, layouts_, config.sequences_max, clock) {
  if (!disk_) return;
  packer_ = std::make_unique<ExtentPacker>(config_.groups, *disk_, *ram_, index_);
  restorer_ = std::make_unique<Restorer>(layouts_, *disk_, *ram_, index_);
}

// I/O threads use slots until the loads and then the tier are gone; the tier's last completions use packer and index.
StoreImpl::~StoreImpl() {
  restorer_.reset();
  disk_.reset();
}

Sequence* StoreImpl::take_sequence() {
  if (spare_.empty()) {
    sequences_.push_back(std::make_unique<Sequence>(config_.groups.size(), blocks_max_));
    spare_.push_back(sequences_.back().get());
  }
  Sequence* seq = spare_.back();
  spare_.pop_back();
  seq->live = true;
  seq->plan.set_every(every_blocks_);
  return seq;
}

// Lets go of a sequence that pins nothing any more; it is spare after.
void StoreImpl::release(Sequence& seq) {
  release_path(seq, 0);
  index_.unref(*seq.root);
  seq.reset();
  spare_.push_back(&seq);
}

// Takes a sequence's blocks from the end of its path until `blocks` are left. They are unpinned already.
void StoreImpl::release_path(Sequence& seq, std::size_t blocks) {
  const std::int64_t now = clock_.wall_seconds();
  while (seq.path.size() > blocks) {
    Block& b = *seq.path.back();
    if (b.owner == &seq) b.owner = nullptr;
    if (seq.live) b.used_seconds = now;
    seq.path.pop_back();
    index_.unref(b);
  }
}

void StoreImpl::close(Sequence* closing) {
  Sequence& seq = *closing;
  LODE_CHECK(seq.live);
  for (auto& g : seq.groups)
    if (packer_) packer_->seal(g.run);
  if (!seq.waiting && !seq.broken) keep_last_state(seq);
  free_own_slots(seq);
  // What it leaves is a resume point: the window groups' rings and the last boundary's state at its end, and those at
  // its marks. Deepest first, so that leaves are ranked before their ancestors.
  for (std::size_t g = 0; g < seq.groups.size(); ++g)
    if (!lasting(g) && !seq.waiting && seq.groups[g].first < seq.held)
      evictor_.make_point(seq.path[static_cast<std::size_t>(seq.held - 1)]->copies[g], seq.groups[g].first);
  for (std::int64_t i = seq.held - 1; i >= 0; --i)
    for (std::size_t g = seq.groups.size(); g-- > 0;) {
      Copy& c = seq.path[static_cast<std::size_t>(i)]->copies[g];
      if (i < seq.groups[g].first) continue;
      if (!seq.waiting && !recurrent(g)) c.keep = true;
      ram_->unpin(c);
    }
  release_marks(seq);
  live_.erase(std::find(live_.begin(), live_.end(), closing));
  release(seq);
  settle_waiters();
  evictor_.trim(config_.unpinned_bytes_max);
  index_.trim(ram_->resident_blocks() + kStubsMax);
}

// A slot, whatever may be given up for it: unpinned blocks, then the resume points that live sequences keep beyond
// their rings, then, for a while, time: queued writes pin what they write.
std::optional<SlotId> StoreImpl::allocate(GroupId group) {
  if (auto slot = evictor_.allocate(group)) return slot;
  for (Sequence* seq : live_) {
    release_marks(*seq);
    release_last_states(*seq);
  }
  if (auto slot = evictor_.allocate(group)) return slot;
  if (!packer_ || packer_->pinned() == 0) return std::nullopt;
  disk_->poll();
  if (auto slot = evictor_.allocate(group)) return slot;
  for (Sequence* seq : live_)
    for (auto& g : seq->groups) packer_->seal(g.run);
  disk_->flush(kWriteWaitMs);
  disk_->poll();
  return evictor_.allocate(group);
}

Status StoreImpl::exhausted(std::string_view what) const {
  const memory::Budget& b = ram_->budget();
  return Status::exhausted(
      fmt::format("no KV memory for {}: {} of {} in use, {} of it by live sequences; use fewer slots, a shorter "
                  "context, or more memory",
                  what, format_size(b.committed_bytes()), format_size(b.bytes_max()),
                  format_size(ram_->used_bytes() - ram_->unpinned_bytes())));
}

void StoreImpl::yield_device(std::uint64_t bytes) {
  if (config_.device_budget) evictor_.yield_near(bytes);
}

void StoreImpl::poll() {
  if (disk_) {
    disk_->poll();
    while (Load* load = restorer_->ended()) end_load(load);
    const std::int64_t now = clock_.now_ns();
    for (Sequence* seq : live_)
      for (auto& g : seq->groups) packer_->seal_if_idle(g.run, now);
    retry_dropped_writes();
  }
  evictor_.trim(config_.unpinned_bytes_max);
}

std::int64_t StoreImpl::ms_until(std::int64_t deadline_ns) const {
  return std::max<std::int64_t>(0, (deadline_ns - clock_.now_ns()) / kNsPerMs);
}

bool StoreImpl::flush(std::int64_t timeout_ms) {
  if (!disk_) return true;
  const std::int64_t deadline_ns = clock_.now_ns() + timeout_ms * kNsPerMs;
  for (Sequence* seq : live_)
    for (auto& g : seq->groups) packer_->seal(g.run);
  write_unwritten(WhenFull::wait, deadline_ns);
  const bool in_time = disk_->flush(ms_until(deadline_ns));
  poll();
  return in_time;
}

// What a full queue dropped is queued again once the queue has drained.
void StoreImpl::retry_dropped_writes() {
  retry_ |= packer_->take_dropped();
  if (!retry_ || clock_.now_ns() < retry_ns_ || disk_->stats().queue_bytes > 0) return;
  retry_ns_ = clock_.now_ns() + kRetryNs;
  write_unwritten(WhenFull::stop, 0);
  retry_ = packer_->take_dropped();
}

// Queues what earlier writes dropped (a full queue, a full disk that has room again): longest chains first.
void StoreImpl::write_unwritten(WhenFull when_full, std::int64_t deadline_ns) {
  std::vector<Copy*> left;
  index_.for_each([&](Block& b) {
    for (Copy& c : b.copies) {
      // A live sequence's last state is worth writing when the process ends, not each second.
      const bool passing = recurrent(c.group.v) && !c.keep;
      if (packer_->wants(c) && !(passing && when_full == WhenFull::stop) && worth_writing(c)) left.push_back(&c);
    }
  });
  std::sort(left.begin(), left.end(), [](const Copy* a, const Copy* b) { return a->block->index > b->block->index; });
  std::vector<Copy*> chain;
  for (Copy* last : left) {
    chain.clear();
    for (Copy* c = last; packer_->wants(*c); c = &c->block->parent->copies[c->group.v]) {
      chain.push_back(c);
      if (c->block->index % packer_->extent_blocks(c->group) == 0) break;
    }
    if (chain.empty()) continue;  // Went with a longer chain.
    std::reverse(chain.begin(), chain.end());
    if (packer_->write_now(chain) != WriteResult::dropped_queue_full) continue;
    if (when_full == WhenFull::stop) return;
    disk_->flush(ms_until(deadline_ns));
    disk_->poll();
    (void)packer_->write_now(chain);
    if (clock_.now_ns() >= deadline_ns) return;
  }
}

void StoreImpl::drop_ram() {
  evictor_.drop();
  index_.trim(ram_->resident_blocks() + kStubsMax);
}

StoreStats StoreImpl::stats() const {
  StoreStats s;
  s.committed_bytes = ram_->budget().committed_bytes();
  s.unpinned_bytes = ram_->unpinned_bytes();
  s.pinned_bytes = ram_->used_bytes() - ram_->unpinned_bytes();
  s.arena_bytes_max = ram_->budget().bytes_max();
  s.peak_committed_bytes = ram_->budget().peak_bytes();
  if (const memory::Budget* near = ram_->near_budget()) {
    s.vram_kv_bytes = ram_->near_committed_bytes();
    s.vram_committed_bytes = near->committed_bytes();
    s.vram_bytes_max = near->bytes_max();
    s.vram_peak_bytes = near->peak_bytes();
  }
  s.blocks = ram_->resident_blocks();
  s.hits_ram_tokens = hits_ram_;
  s.hits_disk_tokens = hits_disk_;
  s.hits_in_flight_tokens = hits_in_flight_;
  s.computed_tokens = computed_;
  s.evicted_blocks = evictor_.evicted_blocks();
  s.disk_note = disk_note_;
  if (disk_) {
    s.corrupt_blocks = restorer_->corrupt_blocks();
    s.disk = disk_->stats();
  }
  return s;
}

}  // namespace lode::kv
