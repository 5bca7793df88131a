#include "experts/cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "quant/packed.h"

namespace lode::experts {
namespace {

constexpr std::uint32_t kNone = ~0u;
// Reads ahead of a large step: enough to keep a disk busy, and little beside the cache.
constexpr std::uint32_t kTransientsMax = 16;
// Below this share of useful reads prefetch takes more from the disk than it brings; it is tried again later.
constexpr float kUsefulLeast = 0.4f;
constexpr std::uint32_t kRestLayers = 4096;

std::vector<model::ExpertWeights> shapes_of(std::span<const model::ExpertLayer> layers, const kernels::Table* table) {
  std::vector<model::ExpertWeights> out;
  for (const model::ExpertLayer& layer : layers)
    for (model::ExpertWeights w : layer.weights) {
      for (kernels::Matrix* m : {&w.gate, &w.up, &w.down}) {
        m->data = nullptr;
        const bool packs = table != nullptr && table->packs != nullptr && table->packs(m->type);
        if (packs && m->rows % quant::kPackedRows == 0) m->layout = kernels::Layout::packed;
      }
      out.push_back(w);
    }
  return out;
}

}  // namespace

Cache::Cache(Layout layout, std::vector<model::ExpertWeights> shapes, const CacheOptions& options,
             platform::Clock& clock, std::uint32_t slots)
    : layout_(std::move(layout)),
      shapes_(std::move(shapes)),
      used_(options.used),
      transients_max_(std::clamp(slots / 8, std::min(options.used, slots), std::max(options.used, kTransientsMax))),
      prefetch_(options.prefetch),
      clock_(clock),
      policy_({.layers = static_cast<std::uint32_t>(layout_.layers.size()),
               .experts = layout_.experts,
               .used = options.used,
               .slots = slots}),
      slots_(slots) {
  const std::size_t keys = layout_.places.size();
  slot_of_.assign(keys, kNone);
  wanted_.assign(keys, 0);
  for (auto* keys_of_layer : {&list_, &missing_}) keys_of_layer->reserve(layout_.experts);
  for (auto* each : {&free_, &arrived_, &handed_, &transients_, &completed_, &settling_}) each->reserve(slots);
  for (std::uint32_t s = slots; s-- > 0;) free_.push_back(s);
  for (Slot& slot : slots_)
    for (platform::ReadOp& op : slot.ops) op.parts.reserve(1);
  room_.reserve(layout_.experts);
  ops_.reserve(3 * std::size_t{slots});
}

Result<std::unique_ptr<Cache>> Cache::open(const gguf::File& file, std::span<const model::ExpertLayer> layers,
                                           const CacheOptions& options, platform::FileSystem& fs,
                                           platform::Clock& clock) {
  auto layout = layout_of(file, layers);
  if (!layout.ok()) return layout.status();
  const std::uint64_t least = layout->layers.size() * std::uint64_t{options.used};
  const std::uint64_t slots = std::min<std::uint64_t>(options.bytes_max / layout->slot_bytes, layout->places.size());
  if (slots < least)
    return Status::exhausted(fmt::format("{} hold {} experts of {}, fewer than the {} that one token uses",
                                         format_size(options.bytes_max), slots, format_size(layout->slot_bytes),
                                         least));
  std::unique_ptr<Cache> cache(new Cache(std::move(layout).value(), shapes_of(layers, options.table), options, clock,
                                         static_cast<std::uint32_t>(slots)));
  LODE_RETURN_IF_ERROR(cache->open_files(file, fs));
  LODE_RETURN_IF_ERROR(cache->commit());
  cache->reader_ = platform::AsyncReader::create(options.reader);
  const bool direct =
      std::all_of(cache->direct_.begin(), cache->direct_.end(), [](const auto& f) { return f != nullptr; });
  cache->stats_.mode = fmt::format("{}, {}", cache->reader_->name(), direct ? "O_DIRECT" : "buffered");
  return cache;
}

Status Cache::open_files(const gguf::File& file, platform::FileSystem& fs) {
  using Open = platform::OpenOptions;
  for (const auto& path : file.parts()) {
    auto buffered = fs.open(path, {});
    if (!buffered.ok()) return buffered.status();
    const auto size = buffered.value()->size();
    if (!size.ok()) return size.status();
    auto direct = fs.open(path, {.cache = Open::Cache::bypass});
    if (!direct.ok() && direct.status().code() != Code::unsupported) return direct.status();
    sizes_.push_back(size.value());
    buffered_.push_back(std::move(buffered).value());
    direct_.push_back(direct.ok() ? std::move(direct).value() : nullptr);
  }
  return Status::success();
}

Status Cache::commit() {
  const std::uint64_t bytes = align_up(slots_.size() * layout_.slot_bytes, memory::kPieceBytes);
  budget_ = std::make_unique<memory::Budget>(bytes);
  auto arena = memory::Arena::create(*budget_, "experts", bytes);
  if (!arena.ok()) return arena.status();
  arena_ = std::move(arena).value();
  for (std::uint64_t piece = 0; piece < arena_->pieces(); ++piece)
    if (!arena_->commit(piece))
      return Status::exhausted(fmt::format("no memory for {} of experts", format_size(bytes)));
  return Status::success();
}

Cache::~Cache() {
  std::unique_lock lock(mutex_);
  done_.wait(
      lock, [this] { return std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.pending == 0; }); });
}

std::uint32_t Cache::ordinal(LayerIndex layer) const {
  const auto at = std::lower_bound(layout_.layers.begin(), layout_.layers.end(), layer);
  LODE_CHECK(at != layout_.layers.end() && *at == layer);
  return static_cast<std::uint32_t>(at - layout_.layers.begin());
}

// ---- A layer's step

void Cache::begin(LayerIndex layer, std::span<const model::ExpertUse> uses) {
  forget_step();
  layer_ = ordinal(layer);
  std::int64_t choices = 0;
  for (const model::ExpertUse& use : uses) choices += use.tokens;
  tokens_ = std::max<std::int64_t>(1, choices / used_);
  fills_ = tokens_ <= kFillTokensMax;
  policy_.use(layer_, uses, tokens_);
  if (rest_ > 0) --rest_;
  collect(false);
  for (const model::ExpertUse& use : uses) {
    const ExpertKey key = policy_.key(layer_, use.expert);
    list_.push_back(key);
    wanted_[key.v] = 1;
  }
  for (const ExpertKey key : list_) {
    const std::uint32_t s = slot_of_[key.v];
    ++(s == kNone ? stats_.misses : stats_.hits);
    if (s == kNone) {
      missing_.push_back(key);
      continue;
    }
    Slot& slot = slots_[s];
    if (std::exchange(slot.prefetched, false)) judge_prefetch(true);
    if (slot.state != State::loaded) continue;
    if (!slot.transient) policy_.hold(key, true);
    arrived_.push_back(s);
  }
  // Read ahead for a large step that did not come.
  for (std::size_t i = 0; i < transients_.size();) {
    const Slot& slot = slots_[transients_[i]];
    if (slot.state == State::loaded && !wanted_[slot.key.v]) release(transients_[i]);
    else ++i;
  }
  start_reads();
}

Result<std::span<const model::ExpertWeights>> Cache::ready(LayerIndex) {
  release_handed();
  collect(false);
  start_reads();
  if (arrived_.empty() && failure_.ok()) {
    ++stats_.stalls;
    const std::int64_t since = clock_.now_ns();
    while (arrived_.empty() && failure_.ok()) {
      collect(true);
      start_reads();
    }
    stats_.stall_ns += clock_.now_ns() - since;
  }
  if (!failure_.ok()) {
    failed_ = true;
    return failure_;
  }
  room_.clear();
  for (const std::uint32_t s : arrived_) hand(s);
  arrived_.clear();
  return std::span<const model::ExpertWeights>(room_);
}

void Cache::hand(std::uint32_t s) {
  const Slot& slot = slots_[s];
  wanted_[slot.key.v] = 0;
  handed_.push_back(s);
  const ExpertPlace& place = layout_.places[slot.key.v];
  const auto data = [&](std::size_t i) {
    const Extent& e = place.extents[i];
    return address(s) + e.at + (e.offset - e.first);
  };
  model::ExpertWeights w = shapes_[slot.key.v];
  w.gate.data = data(0);
  w.up.data = data(1);
  w.down.data = data(2);
  room_.push_back(w);
}

void Cache::end(LayerIndex) {
  forget_step();
}

// What a step leaves behind, whether it came to its end or not.
void Cache::forget_step() {
  release_handed();
  for (const std::uint32_t s : arrived_) {
    if (slots_[s].transient) release(s);
    else policy_.hold(slots_[s].key, false);
  }
  arrived_.clear();
  for (const ExpertKey key : list_) wanted_[key.v] = 0;
  list_.clear();
  missing_.clear();
  missing_next_ = 0;
  failure_ = Status::success();
}

void Cache::release_handed() {
  for (const std::uint32_t s : handed_) {
    if (slots_[s].transient) release(s);
    else policy_.hold(slots_[s].key, false);
  }
  handed_.clear();
}

// Empties a slot that is loaded, or whose reads failed.
void Cache::release(std::uint32_t s) {
  Slot& slot = slots_[s];
  if (std::exchange(slot.prefetched, false)) judge_prefetch(false);
  if (slot.transient) transients_.erase(std::find(transients_.begin(), transients_.end(), s));
  slot_of_[slot.key.v] = kNone;
  slot.transient = false;
  slot.state = State::free;
  free_.push_back(s);
}

// ---- Reading

// A slot that is free, or the least valuable resident's; kNone: there is none now.
std::uint32_t Cache::take_slot() {
  if (!fills_ && transients_.size() >= transients_max_) return kNone;
  if (free_.empty()) {
    const ExpertKey victim = policy_.victim(layer_);
    if (!victim.valid()) return kNone;
    policy_.drop(victim);
    release(slot_of_[victim.v]);
  }
  const std::uint32_t s = free_.back();
  free_.pop_back();
  return s;
}

void Cache::read(std::uint32_t s, ExpertKey key) {
  Slot& slot = slots_[s];
  slot.key = key;
  slot.state = State::loading;
  slot.transient = !fills_;
  slot.status = Status::success();
  slot.pending = 3;
  if (slot.transient) transients_.push_back(s);
  slot_of_[key.v] = s;
  ++in_flight_;
  const ExpertPlace& place = layout_.places[key.v];
  for (std::size_t i = 0; i < slot.ops.size(); ++i) {
    const Extent& e = place.extents[i];
    // O_DIRECT reads whole pages; the last one of a file may be cut short.
    const bool whole = direct_[e.part] && e.first + e.read <= sizes_[e.part];
    platform::ReadOp& op = slot.ops[i];
    op.file = whole ? direct_[e.part].get() : buffered_[e.part].get();
    op.offset = whole ? e.first : e.offset;
    op.parts.clear();
    op.parts.push_back(whole ? std::span(address(s) + e.at, e.read)
                             : std::span(address(s) + e.at + (e.offset - e.first), e.bytes));
    op.sink = this;
    op.tag = s;
    stats_.bytes_read += op.parts[0].size();
    ops_.push_back(&op);
  }
}

void Cache::flush() {
  if (!ops_.empty()) reader_->submit(ops_);
  ops_.clear();
}

void Cache::start_reads() {
  while (missing_next_ < missing_.size()) {
    const std::uint32_t s = take_slot();
    if (s == kNone) break;
    slots_[s].prefetched = false;
    read(s, missing_[missing_next_++]);
  }
  if (missing_next_ == missing_.size() && !fills_) read_ahead();
  flush();
}

// A large step needs nearly all experts of the next layer too: they are read while this one and attention compute.
void Cache::read_ahead() {
  if (layer_ + 1 >= layout_.layers.size() || tokens_ * used_ < 4 * std::int64_t{layout_.experts}) return;
  for (std::uint32_t e = 0; e < layout_.experts; ++e) {
    const ExpertKey key = policy_.key(layer_ + 1, ExpertId{e});
    if (slot_of_[key.v] != kNone) continue;
    const std::uint32_t s = take_slot();
    if (s == kNone) return;
    slots_[s].prefetched = true;
    ++stats_.prefetched;
    read(s, key);
  }
}

// Packs a matrix where it lies, 8 rows at a time: 2 GB/s, beside the reads that follow.
void Cache::pack(platform::ReadOp& op) {
  thread_local std::vector<std::byte> rows;
  const Slot& slot = slots_[op.tag];
  const auto i = static_cast<std::size_t>(&op - slot.ops.data());
  const model::ExpertWeights& w = shapes_[slot.key.v];
  const kernels::Matrix& m = i == 0 ? w.gate : i == 1 ? w.up : w.down;
  if (m.layout != kernels::Layout::packed) return;
  const Extent& e = layout_.places[slot.key.v].extents[i];
  std::byte* at = address(static_cast<std::uint32_t>(op.tag)) + e.at + (e.offset - e.first);
  const auto bytes = static_cast<std::size_t>(quant::kPackedRows * quant::row_bytes(m.type, m.cols));
  rows.resize(std::max(rows.size(), bytes));
  for (std::int64_t r = 0; r < m.rows; r += quant::kPackedRows, at += bytes) {
    std::memcpy(rows.data(), at, bytes);
    quant::pack_rows(m.type, rows.data(), m.cols, at);
  }
}

void Cache::read_done(platform::ReadOp& op, Status status) {
  if (status.ok()) pack(op);
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[op.tag];
  if (!status.ok() && slot.status.ok()) slot.status = std::move(status);
  if (--slot.pending > 0) return;
  completed_.push_back(static_cast<std::uint32_t>(op.tag));
  done_.notify_all();  // Under the lock: the destructor may be waiting to end the condition variable.
}

// Takes over what the reader has finished; `wait`: until there is something.
bool Cache::collect(bool wait) {
  {
    std::unique_lock lock(mutex_);
    if (wait) {
      LODE_CHECK(in_flight_ > 0);  // Else nothing would ever come.
      done_.wait(lock, [this] { return !completed_.empty(); });
    }
    settling_.swap(completed_);
  }
  for (const std::uint32_t s : settling_) settle(s);
  const bool any = !settling_.empty();
  settling_.clear();
  return any;
}

void Cache::settle(std::uint32_t s) {
  Slot& slot = slots_[s];
  --in_flight_;
  const bool wanted = wanted_[slot.key.v] != 0;
  if (!slot.status.ok()) {
    ++stats_.read_errors;
    if (wanted && failure_.ok())
      failure_ = Status::io(fmt::format("expert {} of layer {} could not be read: {}", policy_.expert_of(slot.key).v,
                                        layout_.layers[policy_.layer_of(slot.key)].v, slot.status.message()));
    release(s);
    return;
  }
  slot.state = State::loaded;
  if (!slot.transient) {
    policy_.keep(slot.key);
    policy_.hold(slot.key, wanted);
  }
  if (wanted) arrived_.push_back(s);
}

// ---- Prefetch

bool Cache::wants_guess(LayerIndex next, std::int64_t tokens) const {
  if (prefetch_ == CacheOptions::Prefetch::off || tokens > kFillTokensMax) return false;
  return slots_.size() < layout_.places.size() && rest_ == 0;
}

void Cache::guess(LayerIndex next, std::span<const std::int32_t> experts) {
  const std::uint32_t layer = ordinal(next);
  for (const std::int32_t e : experts) {
    const ExpertKey key = policy_.key(layer, ExpertId{static_cast<std::uint32_t>(e)});
    if (const std::uint32_t s = slot_of_[key.v]; s != kNone) continue;
    if (missing_next_ < missing_.size()) break;  // What is needed now comes first.
    const std::uint32_t s = take_slot();
    if (s == kNone) break;
    slots_[s].prefetched = true;
    ++stats_.prefetched;
    read(s, key);
  }
  flush();
}

void Cache::judge_prefetch(bool useful) {
  ++(useful ? stats_.prefetch_used : stats_.prefetch_wasted);
  useful_ += ((useful ? 1.0f : 0.0f) - useful_) / 64;
  if (useful_ >= kUsefulLeast) return;
  rest_ = kRestLayers;
  useful_ = (1 + kUsefulLeast) / 2;
}

CacheStats Cache::stats() const {
  CacheStats out = stats_;
  out.slots = slots_.size();
  out.slot_bytes = layout_.slot_bytes;
  out.resident = slots_.size() - free_.size();
  out.experts = layout_.places.size();
  return out;
}

}  // namespace lode::experts
