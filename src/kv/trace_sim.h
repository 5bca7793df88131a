// Simulates the store's RAM and SSD tiers over a trace: which blocks stay, and how many seconds of computing that
// saves. Its policy "lode" is the shipped one: the same ReuseModel, Shelves and costs. The others are the field's,
// under the same rules of chains (a block goes before its parent, and what nothing can resume at goes with it), so that
// only the order of eviction differs. Tests and bench/kv_sim only.
//
// Simpler than the store: one request at a time, the SSD in blocks and not in extents, writes at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kv/shelves.h"
#include "kv/trace.h"
#include "kv/value.h"

namespace lode::kv::sim {

enum class PolicyKind : std::uint8_t { lru, lfu, slru, gdsf, lode };
inline constexpr std::array<std::pair<PolicyKind, const char*>, 5> kPolicies = {{{PolicyKind::lru, "lru"},
                                                                                 {PolicyKind::lfu, "lfu"},
                                                                                 {PolicyKind::slru, "slru"},
                                                                                 {PolicyKind::gdsf, "gdsf"},
                                                                                 {PolicyKind::lode, "lode"}}};

// Blocks are 32 tokens.
struct SimModel {
  std::string name;
  std::uint64_t full_bytes = 0;            // Full history, a block.
  std::int64_t window_blocks = 0;          // Blocks that a resume point needs of the window group; 0: none.
  std::uint64_t window_bytes = 0;          // A block.
  std::uint64_t state_bytes = 0;           // A checkpoint; 0: none.
  std::int64_t state_every = 64;           // Blocks between regular ones.
  double per_token = 1e-3, per_depth = 0;  // Seconds.
};

// Measured on two cores (docs/measurements.md).
inline std::vector<SimModel> sim_models() {
  return {
      {.name = "full", .full_bytes = 720 << 10, .per_token = 0.71e-3, .per_depth = 4.7e-7},  // SmolLM2 135M, f16.
      {.name = "window",                                                                     // Gemma 3 270M, f16.
       .full_bytes = 96 << 10,
       .window_blocks = 16,
       .window_bytes = 480 << 10,
       .per_token = 0.72e-3,
       .per_depth = 0.8e-7},
      {.name = "hybrid",  // Qwen3.5 0.8B, f16.
       .full_bytes = 384 << 10,
       .state_bytes = 19 << 20,
       .state_every = 64,
       .per_token = 6e-3,
       .per_depth = 1e-7},
  };
}

struct SimConfig {
  SimModel model;
  std::uint64_t ram_bytes = 0;   // Of what no live request pins.
  std::uint64_t disk_bytes = 0;  // 0: no SSD tier.
  double read_bytes_per_second = 1e9;
  PolicyKind policy = PolicyKind::lode;
};

struct SimResult {
  double saved_seconds = 0, load_seconds = 0;  // saved: without those of loading.
  double prompt_seconds = 0;                   // Of computing every prompt whole.
  std::int64_t blocks = 0, ram_blocks = 0, disk_blocks = 0;
};

enum Tier : std::uint8_t { kRam, kDisk };

struct Node;
struct Item : Ranked {
  Node* node = nullptr;
  std::uint8_t group = 0;    // 0: full history. 1: window or state.
  bool listed_once = false;  // Since it came.
  std::int32_t holders = 0;  // Group 1: resume points that need it. At an end of one:
  std::int64_t first = -1;   // the first block that it keeps; -1: it is the end of none.
  bool resident = false, pinned = false, listed = false;
  std::uint32_t hits = 0;  // Since it came; what LFU, SLRU and GDSF count.
  double priority = 0;
  std::uint64_t order = 0;
  bool is_protected = false;
};
struct Node {
  Node* parent = nullptr;
  std::int64_t index = 0;
  std::array<std::array<Item, 2>, 2> items;  // [tier][group]
  std::array<std::int32_t, 2> children{};    // Resident ones, by tier.
  std::uint64_t stub = 0;                    // When it was last forgotten by both tiers.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void used(Item&) {}   // It came, or was used while it was here.
  virtual void add(Item&) = 0;  // It may be evicted from now on.
  virtual void remove(Item&) = 0;
  virtual Item* victim(std::uint64_t tick) = 0;
  virtual void gone(Item&) {}  // Evicted.
};

// LRU, LFU, SLRU and GDSF: the least priority goes first.
class OrderedPolicy final : public Policy {
 public:
  OrderedPolicy(PolicyKind kind, std::uint64_t bytes, std::array<std::uint64_t, 2> item_bytes)
      : kind_(kind), protected_max_(bytes / 5 * 4), bytes_(item_bytes) {}

  void used(Item& i) override {
    i.order = ++clock_;
    switch (kind_) {
      case PolicyKind::lfu: i.priority = i.hits; break;
      case PolicyKind::gdsf: i.priority = inflation_ + (i.hits + 1.0) * static_cast<double>(i.seconds_per_byte); break;
      case PolicyKind::slru:
        if (i.hits > 0) protect(i);
        break;
      default: break;
    }
  }
  void add(Item& i) override { set_.insert(&i); }
  void remove(Item& i) override { LODE_CHECK(set_.erase(&i) == 1); }
  Item* victim(std::uint64_t) override { return set_.empty() ? nullptr : *set_.begin(); }
  void gone(Item& i) override {
    if (kind_ == PolicyKind::gdsf) inflation_ = std::max(inflation_, i.priority);
    if (i.is_protected) unprotect(i);
    i.priority = 0;
  }

 private:
  struct Less {
    bool operator()(const Item* a, const Item* b) const {
      return a->priority != b->priority ? a->priority < b->priority : a->order < b->order;
    }
  };
  void protect(Item& i) {
    if (!i.is_protected) {
      i.is_protected = true;
      i.priority = 1;
      protected_bytes_ += bytes_[i.group];
    }
    protected_.push_back({&i, i.order});
    while (protected_bytes_ > protected_max_ && !protected_.empty()) {
      const auto [old, order] = protected_.front();
      protected_.pop_front();
      if (!old->is_protected || old->order != order) continue;  // Used again since, or gone.
      const bool listed = set_.erase(old) > 0;
      unprotect(*old);
      old->order = ++clock_;
      if (listed) set_.insert(old);
    }
  }
  void unprotect(Item& i) {
    i.is_protected = false;
    i.priority = 0;
    protected_bytes_ -= bytes_[i.group];
  }

  const PolicyKind kind_;
  const std::uint64_t protected_max_;
  const std::array<std::uint64_t, 2> bytes_;
  std::set<Item*, Less> set_;
  std::deque<std::pair<Item*, std::uint64_t>> protected_;  // In the order of use.
  std::uint64_t clock_ = 0, protected_bytes_ = 0;
  double inflation_ = 0;
};

class Simulator {
 public:
  explicit Simulator(const SimConfig& config) : config_(config) {
    const SimModel& m = config.model;
    bytes_ = {m.full_bytes, m.state_bytes > 0 ? m.state_bytes : m.window_bytes};
    groups_ = bytes_[1] > 0 ? 2 : 1;
    capacity_ = {config.ram_bytes, config.disk_bytes};
    for (const Tier t : {kRam, kDisk})
      if (config.policy != PolicyKind::lode)
        policies_[t] = std::make_unique<OrderedPolicy>(config.policy, capacity_[t], bytes_);
  }

  SimResult run(const Trace& trace) {
    for (const TraceRequest& r : trace) serve(r);
    return result_;
  }
  // What the whole trace would take, were nothing ever evicted.
  std::uint64_t stored_bytes() const { return used_[kRam] + used_[kDisk]; }

 private:
  using Path = std::vector<Node*>;
  static constexpr std::int64_t kTokens = 32, kSlackBlocks = 4, kRepriceMax = 8;
  static constexpr std::size_t kStubsMax = 16384;

  double compute_seconds(std::int64_t from, std::int64_t end) const {
    return cost_.seconds(from * kTokens, (end - from) * kTokens);
  }
  std::int64_t needed(std::int64_t end) const {  // First block that resuming at `end` needs of group 1.
    return config_.model.state_bytes > 0 ? end - 1 : std::max<std::int64_t>(0, end - config_.model.window_blocks);
  }

  // ---- worth

  // Whether the resume point is one in the middle of a chain: most requests pass it.
  bool passed(const Item& i, Tier tier) const { return i.first < 0 || i.node->children[tier] > 0; }
  ReuseModel::Kind kind_of(const Item& i, Tier t) const {
    if (i.group == 0) return ReuseModel::Kind::history;
    return passed(i, t) ? ReuseModel::Kind::passed : ReuseModel::Kind::end;
  }
  // Seconds that a use of the item saves, by byte.
  double price(const Item& i, Tier tier) const {
    const Node& n = *i.node;
    const SimModel& m = config_.model;
    double density = 0;
    if (groups_ == 2 && i.group == 0 && !resumable(n)) return 0;
    if (groups_ == 1) {
      density = compute_seconds(n.index, n.index + 1) / static_cast<double>(bytes_[0]);
    } else {
      // A resume point is worth the seconds since the one before, and so are the blocks between that have no child.
      const std::int64_t gap = gap_before(n);
      // A window that another resume point shares goes with the last of them.
      std::int64_t own = m.window_blocks;
      if (m.state_bytes > 0) own = 1;
      else if (const Item& point = n.items[tier][1]; point.first >= 0) {
        own = 0;
        const Node* b = &n;
        for (std::int64_t k = n.index; k >= point.first; --k, b = b->parent) own += b->items[tier][1].holders == 1;
        own = std::max<std::int64_t>(own, 1);
      }
      const std::uint64_t point = bytes_[1] * static_cast<std::uint64_t>(own);
      const bool alone = i.group == 1 && passed(i, tier);
      const auto bytes = static_cast<double>(point + (alone ? 0 : static_cast<std::uint64_t>(gap) * bytes_[0]));
      density = compute_seconds(n.index + 1 - gap, n.index + 1) / bytes;
    }
    if (tier == kRam && n.items[kDisk][i.group].resident)
      density = std::min(density, 1 / config_.read_bytes_per_second);
    return density;
  }
  // Blocks from the resume point before the one at the end of `n`.
  std::int64_t gap_before(const Node& n) const {
    // The slack before a window lets the boundaries right before it resume too: they go with it.
    const std::int64_t slack = config_.model.state_bytes > 0 ? 0 : kSlackBlocks;
    std::int64_t gap = 1;
    for (const Node* p = n.parent; p && gap < kGapMax && (gap <= slack || !resumable(*p)); p = p->parent) ++gap;
    return gap;
  }
  bool resumable(const Node& n) const {
    if (groups_ == 1) return true;
    const Node* b = &n;
    for (std::int64_t i = n.index; i >= needed(n.index + 1); --i, b = b->parent)
      if (!b->items[kRam][1].resident && !b->items[kDisk][1].resident) return false;
    return true;
  }

  // ---- residency

  void list(Item& i, Tier t) {
    if (i.group == 1 && i.holders > 0 && i.first < 0) return;  // Goes with a resume point.
    if (!i.resident || i.pinned || i.listed || (i.group == 0 && i.node->children[t] > 0)) return;
    if (!policies_[t] && groups_ == 2 && i.group == 0 && i.node->items[t][1].resident) return;
    i.seconds_per_byte = static_cast<float>(price(i, t));
    i.listed = i.listed_once = true;
    i.kind = kind_of(i, t);
    if (policies_[t]) policies_[t]->add(i);
    else shelves_[t].add(i);
  }
  void unlist(Item& i, Tier t) {
    if (!i.listed) return;
    i.listed = false;
    if (policies_[t]) policies_[t]->remove(i);
    else shelves_[t].remove(i);
  }
  void relist(Item& i, Tier t) {
    if (!i.listed) return;
    unlist(i, t);
    list(i, t);
  }
  void pin(Item& i, Tier t) {
    if (i.pinned) return;
    unlist(i, t);
    i.pinned = true;
    pinned_[t].push_back(&i);
    if (i.resident) used_[t] -= bytes_[i.group];
  }
  void come(Item& i, Tier t) {
    if (i.resident) return;
    i.resident = true;
    i.hits = 0;
    if (i.group == 0 && i.node->parent && i.node->parent->children[t]++ == 0) unlist(i.node->parent->items[t][0], t);
    if (!i.pinned) used_[t] += bytes_[i.group];
    if (policies_[t]) policies_[t]->used(i);
  }
  void go(Item& i, Tier t) {
    unlist(i, t);
    i.resident = false;
    used_[t] -= bytes_[i.group];
    if (policies_[t]) policies_[t]->gone(i);
    else if (i.listed_once) reuse_[t].left(i.kind, i.uses, tick_ - i.used_tick);
    i.listed_once = false;
    Node* parent = i.node->parent;
    if (i.group == 0 && parent && --parent->children[t] == 0) {
      list(parent->items[t][0], t);
      relist(parent->items[t][1], t);  // A chain's end now.
    }
    if (i.group == 1) list(i.node->items[t][0], t);
    if (i.group == 0 && !i.node->items[kRam][0].resident && !i.node->items[kDisk][0].resident) forget(*i.node);
  }
  // A resume point and what it needs, which may be shared.
  void make_point(const Path& path, std::int64_t first, std::int64_t end, Tier t) {
    Item& i = path[static_cast<std::size_t>(end - 1)]->items[t][1];
    if (i.first >= 0) return;
    i.first = first;
    i.used_tick = tick_;
    for (std::int64_t b = first; b < end; ++b) ++path[static_cast<std::size_t>(b)]->items[t][1].holders;
  }
  // A point goes with those of its blocks that no other one holds; anything else goes alone.
  void drop(Item& i, Tier t) {
    if (i.first < 0) return go(i, t);
    unlist(i, t);
    Node* b = i.node;
    for (std::int64_t k = b->index, first = std::exchange(i.first, -1); k >= first; --k, b = b->parent) {
      Item& w = b->items[t][1];
      if (--w.holders == 0 && w.resident && !w.pinned) go(w, t);
    }
    if (!i.resident || !i.listed_once) return;
    if (policies_[t]) policies_[t]->gone(i);
    else reuse_[t].left(i.kind, i.uses, tick_ - i.used_tick);
    i.listed_once = false;
  }
  // Uses of what is gone are remembered for a while: the index keeps so many blocks without bytes.
  void forget(Node& n) {
    n.stub = ++stub_clock_;
    stubs_.push_back({&n, n.stub});
    if (stubs_.size() <= kStubsMax) return;
    const auto [old, stub] = stubs_.front();
    stubs_.pop_front();
    if (old->stub != stub || old->items[kRam][0].resident || old->items[kDisk][0].resident) return;
    for (auto& tier : old->items)
      for (Item& i : tier) i.uses = 0;
  }

  bool evict_one(Tier t) {
    Item* victim = nullptr;
    if (policies_[t]) victim = policies_[t]->victim(tick_);
    else victim = lode_victim(t);
    if (!victim) return false;
    Node* p = victim->node;
    drop(*victim, t);
    if (victim->group == 0 && p->items[t][1].resident && !p->items[t][1].pinned) drop(p->items[t][1], t);
    if (t == kDisk) return true;
    while (p->parent && !in_use(*p) && !resumable(*p)) {
      bool any = false;
      for (std::size_t g = 2; g-- > 0;) {
        Item& i = p->items[t][g];
        if (i.resident && !i.pinned && (g == 1 || p->children[t] == 0)) drop(i, t), any = true;
      }
      if (!any && p != victim->node) break;
      p = p->parent;
    }
    return true;
  }
  Item* lode_victim(Tier t) {
    for (int tries = 0;; ++tries) {
      auto* i = static_cast<Item*>(shelves_[t].least(reuse_[t], tick_));
      if (!i || tries == kRepriceMax) return i;
      i->seconds_per_byte = static_cast<float>(price(*i, t));  // Its neighbours, or the SSD's copy, may have gone.
      if (kind_of(*i, t) == i->kind && Shelves::shelf_of(*i) <= i->shelf) return i;
      unlist(*i, t);
      list(*i, t);
    }
  }
  bool in_use(const Node& n) const {
    return n.children[kRam] > 0 || n.items[kRam][0].pinned || n.items[kRam][1].pinned;
  }
  void use(Node& n) {
    for (const Tier t : {kRam, kDisk}) use_item(n.items[t][0], t);
  }
  void use_item(Item& i, Tier t) {
    unlist(i, t);  // Until its request is over.
    if (i.resident && !policies_[t]) reuse_[t].reused(i.kind, i.uses, tick_ - i.used_tick);
    ++i.uses;
    i.used_tick = tick_;
    if (!i.resident) return;
    ++i.hits;
    if (policies_[t]) policies_[t]->used(i);
  }
  // The resume point at `end`, or that within the slack after it.
  void use_point(const Path& path, std::int64_t end) {
    for (std::int64_t k = end - 1; k < std::min(std::ssize(path), end + kSlackBlocks); ++k) {
      Item& point = path[static_cast<std::size_t>(k)]->items[kRam][1];
      if (point.first >= 0) return use_item(point, kRam);
    }
    use_item(path[static_cast<std::size_t>(end - 1)]->items[kRam][1], kRam);
  }

  // ---- a request

  void follow(const TraceRequest& r, Path& path) {
    if (r.from >= 0) {
      const Path& other = paths_[static_cast<std::size_t>(r.from)];
      path.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(r.shared));
    }
    while (std::ssize(path) < r.prompt + r.generated) {
      Node& n = nodes_.emplace_back();
      n.parent = path.empty() ? nullptr : path.back();
      n.index = std::ssize(path);
      for (auto& tier : n.items)
        for (std::size_t g = 0; g < 2; ++g) {
          tier[g].node = &n;
          tier[g].group = static_cast<std::uint8_t>(g);
          tier[g].used_tick = tick_;
        }
      path.push_back(&n);
    }
  }
  // The last boundary among the first `limit` blocks that all groups can resume at.
  std::int64_t find_resume(const Path& path, std::int64_t limit, bool ram_only) const {
    std::int64_t best = 0, run = 0;
    for (std::int64_t i = 0; i < limit; ++i) {
      const Node& n = *path[static_cast<std::size_t>(i)];
      const auto has = [&](int g) { return n.items[kRam][g].resident || (!ram_only && n.items[kDisk][g].resident); };
      if (!has(0)) break;
      run = has(1) ? run + 1 : 0;
      if (groups_ == 1 || run >= i + 1 - needed(i + 1)) best = i + 1;
    }
    return best;
  }
  std::uint64_t bytes_to_read(const Path& path, std::int64_t resume) const {
    std::uint64_t bytes = 0;
    for (std::int64_t i = 0; i < resume; ++i)
      for (std::size_t g = 0; g < groups_; ++g)
        if ((g == 0 || i >= needed(resume)) && !path[static_cast<std::size_t>(i)]->items[kRam][g].resident)
          bytes += bytes_[g];
    return bytes;
  }
  void serve(const TraceRequest& r) {
    Path& path = paths_.emplace_back();
    follow(r, path);
    const std::int64_t ram = find_resume(path, r.prompt, true);
    std::int64_t resume = find_resume(path, r.prompt, false);
    std::uint64_t bytes = bytes_to_read(path, resume);
    double load =
        bytes == 0 ? 0 : ReadCost::kLatencySeconds + static_cast<double>(bytes) / config_.read_bytes_per_second;
    if (load > compute_seconds(ram, resume)) resume = ram, load = 0;
    result_.load_seconds += load;
    result_.saved_seconds += compute_seconds(0, resume) - load;
    result_.prompt_seconds += compute_seconds(0, r.prompt);
    result_.blocks += r.prompt;
    result_.ram_blocks += ram;
    result_.disk_blocks += resume - ram;

    tick_ += static_cast<std::uint64_t>(std::ssize(path) - resume);
    for (std::int64_t i = std::ssize(path) - 1; i >= 0; --i) {  // Deepest first, as a sequence lists them at its end.
      if (i < r.shared) use(*path[static_cast<std::size_t>(i)]);
      if (groups_ == 2 && i < resume && i >= needed(resume))
        use_item(path[static_cast<std::size_t>(i)]->items[kDisk][1], kDisk);
    }
    if (groups_ == 2 && resume > 0) use_point(path, resume);
    // Where it would have resumed, had there been a window or a state.
    if (groups_ == 2 && r.shared - resume > kSlackBlocks) use_point(path, r.shared);
    keep(path, r, kRam, resume);
    if (config_.disk_bytes > 0) keep(path, r, kDisk, resume);
  }
  bool state_at(std::int64_t end, const TraceRequest& r, std::int64_t all, std::int64_t resume) const {
    if (end == r.prompt || end == all || end == resume) return true;
    const bool parts = end == r.shared && end < r.prompt;  // Where it leaves what was known.
    if (config_.model.state_bytes == 0) return parts;
    return end % config_.model.state_every == 0 || (end == r.prompt - kSlackBlocks && end - resume > 8) ||
           (parts && end - resume > 4);
  }
  // Everything that the request has computed or used is in RAM, as far as it fits once the request is over; and new
  // blocks are written to the SSD.
  void keep(const Path& path, const TraceRequest& r, Tier t, std::int64_t resume) {
    const std::int64_t all = std::ssize(path);
    for (Node* n : path)
      for (Item& i : n->items[t]) pin(i, t);
    const auto bring = [&](Item& i) {
      if (i.resident) return;
      if (t == kDisk) {  // It makes room first, and never among its own ancestors.
        while (used_[t] + pinned_bytes_ + bytes_[i.group] > capacity_[t])
          if (!evict_one(t)) return;
        pinned_bytes_ += bytes_[i.group];
      }
      come(i, t);
    };
    pinned_bytes_ = 0;
    for (const Item* i : pinned_[t]) pinned_bytes_ += i->resident ? bytes_[i->group] : 0;
    for (std::int64_t i = 0; i < all; ++i) {
      Item& full = path[static_cast<std::size_t>(i)]->items[t][0];
      if (t == kDisk && i > 0 && !path[static_cast<std::size_t>(i - 1)]->items[t][0].resident) break;
      bring(full);
      // The SSD has the windows of every boundary.
      const bool windows = groups_ == 2 && config_.model.state_bytes == 0;
      if (t == kDisk && windows && i >= resume && full.resident) bring(path[static_cast<std::size_t>(i)]->items[t][1]);
    }
    for (std::int64_t end = 1; groups_ == 2 && end <= all; ++end) {
      const bool states = config_.model.state_bytes > 0;
      if (!state_at(end, r, all, resume) || (t == kDisk && !states)) continue;
      const std::int64_t first = std::max<std::int64_t>(0, needed(end) - (states ? 0 : kSlackBlocks));
      if (t == kDisk && !path[static_cast<std::size_t>(end - 1)]->items[t][0].resident) break;
      for (std::int64_t i = first; i < end; ++i) bring(path[static_cast<std::size_t>(i)]->items[t][1]);
      if (path[static_cast<std::size_t>(end - 1)]->items[t][1].resident) make_point(path, first, end, t);
    }
    // Unpinned from the deepest on.
    for (std::int64_t k = all - 1; k >= 0; --k)
      for (std::size_t g = 2; g-- > 0;) {
        Item& i = path[static_cast<std::size_t>(k)]->items[t][g];
        i.pinned = false;
        if (i.resident) used_[t] += bytes_[g];
        list(i, t);
      }
    pinned_[t].clear();
    while (used_[t] > capacity_[t] && evict_one(t)) {
    }
  }

  static constexpr std::int64_t kGapMax = 512;
  const SimConfig config_;
  const ComputeCost cost_{config_.model.per_token, config_.model.per_depth};
  std::size_t groups_ = 1;
  std::array<std::uint64_t, 2> bytes_{}, capacity_{}, used_{};  // bytes_: by group; the others by tier.
  std::uint64_t pinned_bytes_ = 0;
  std::array<std::unique_ptr<Policy>, 2> policies_;  // nullptr: lode.
  std::array<Shelves, 2> shelves_{};
  std::array<ReuseModel, 2> reuse_{};
  std::deque<Node> nodes_;
  std::deque<Path> paths_;
  std::array<std::vector<Item*>, 2> pinned_;
  std::deque<std::pair<Node*, std::uint64_t>> stubs_;
  std::uint64_t tick_ = 0, stub_clock_ = 0;
  SimResult result_;
};

// What every policy saves of one trace, at one size.
struct Comparison {
  std::string model;
  bool ssd = false;
  double share = 0;      // RAM, of the bytes that the whole trace stores; an SSD has kSsdShare times as much.
  double unbounded = 0;  // Seconds saved without a limit.
  std::array<double, kPolicies.size()> saved{};
};
inline constexpr double kSsdShare = 4;

inline std::vector<Comparison> compare(const SimModel& model, const Trace& trace, const std::vector<double>& shares) {
  std::vector<Comparison> all;
  Simulator whole({.model = model, .ram_bytes = std::uint64_t{1} << 60, .policy = PolicyKind::lru});
  const double unbounded = whole.run(trace).saved_seconds;
  const auto bytes = static_cast<double>(whole.stored_bytes());
  for (const bool ssd : {false, true})
    for (const double share : shares) {
      Comparison& c = all.emplace_back();
      c.model = model.name;
      c.ssd = ssd;
      c.share = share;
      c.unbounded = unbounded;
      const auto ram = static_cast<std::uint64_t>(share * bytes);
      for (std::size_t p = 0; p < kPolicies.size(); ++p) {
        Simulator sim({.model = model,
                       .ram_bytes = ram,
                       .disk_bytes = ssd ? static_cast<std::uint64_t>(kSsdShare * share * bytes) : 0,
                       .policy = kPolicies[p].first});
        c.saved[p] = sim.run(trace).saved_seconds;
      }
    }
  return all;
}

}  // namespace lode::kv::sim
