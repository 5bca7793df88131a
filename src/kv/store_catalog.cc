// What the store holds under one salt, why a prompt misses, and purges. Nothing here is on a step's way.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kv/store_impl.h"

namespace lode::kv {
namespace {

// Children looked at for the closest one; a prefix with more is a busy one, and any of them explains a miss.
constexpr std::size_t kCompared = 256;

std::int64_t common_run(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

std::string_view stop_name(Stop stop) {
  switch (stop) {
    case Stop::whole: return "whole_prompt";
    case Stop::short_prompt: return "short_prompt";
    case Stop::no_checkpoint: return "no_checkpoint";
    case Stop::no_window: return "no_window";
    case Stop::evicted: return "evicted";
    case Stop::slow_read: return "slow_read";
    case Stop::computing: return "computing";
    case Stop::differs: return "differs";
    case Stop::ends: return "stored_part_ends";
    case Stop::nothing: break;
  }
  return "nothing_stored";
}

std::string_view removed_why(RemovedWhy why) {
  switch (why) {
    case RemovedWhy::memory: return "to keep RAM inside its budget (--kv-ram)";
    case RemovedWhy::quota: return "to keep the SSD tier inside its quota (--kv-disk-max)";
    case RemovedWhy::purged: return "because somebody asked for it";
    case RemovedWhy::damaged: return "because its bytes were damaged";
    case RemovedWhy::vanished: break;
  }
  return "because its file vanished";
}

RootInputs StoreImpl::root_inputs(std::string_view salt) const {
  RootInputs inputs = config_.root;
  inputs.salt = salt;
  return inputs;
}

// ---- the tree, over RAM and disk

StoreImpl::Node StoreImpl::root_node(std::string_view salt) const {
  return {.key = root_key_(root_inputs(salt)), .block = index_.find_root(salt), .index = -1};
}

bool StoreImpl::stored(const Node& node) const {
  if (node.block && node.block->resident > 0) return true;
  if (!disk_ || (node.block && node.block->off_disk)) return false;
  return disk_->find(node.key) != nullptr;
}

bool StoreImpl::pinned(const Node& node) const {
  for (std::uint32_t g = 0; disk_ && g < layouts_.size(); ++g)
    if (disk_->pinned(node.key, GroupId{g})) return true;
  return std::any_of(ram_pins_.begin(), ram_pins_.end(), [&](const RamPin& pin) {
    return std::any_of(pin.copies.begin(), pin.copies.end(), [&](const Copy* c) { return c->block == node.block; });
  });
}

const std::array<TokenId, kBlockTokens>* StoreImpl::ids_of(const Node& node) const {
  if (node.block) return &node.block->ids;
  const DiskBlock* block = disk_ ? disk_->find(node.key) : nullptr;
  return block ? &block->ids : nullptr;
}

std::vector<StoreImpl::Node> StoreImpl::children(const Node& node, std::size_t most) const {
  std::vector<Node> out;
  const std::int64_t index = node.index + 1;
  if (node.block)
    for (Block* b = node.block->first_child; b && out.size() < most; b = b->next_sibling)
      out.push_back({.key = b->key, .block = b, .index = index});
  if (!disk_ || (node.block && node.block->off_disk)) return out;
  for (const BlockKey& key : disk_->children(node.key, most)) {
    if (out.size() >= most) break;
    if (node.block && index_.child_of(*node.block, key)) continue;  // Listed above.
    out.push_back({.key = key, .block = nullptr, .index = index});
  }
  return out;
}

StoreImpl::Closest StoreImpl::closest(Block& parent, std::span<const TokenId> ids, const Block* but) const {
  Closest best;
  const Node node{.key = parent.key, .block = &parent, .index = parent.index};
  for (const Node& child : children(node, kCompared)) {
    const auto* theirs = child.block == but ? nullptr : ids_of(child);
    const std::int64_t common = theirs ? common_run(ids, *theirs) : -1;
    if (common > best.common) best = {.common = common, .node = child, .ids = *theirs};
  }
  return best;
}

bool StoreImpl::walk(const Node& node, std::vector<Node>& found) const {
  std::vector<Node> open{node};
  while (!open.empty()) {
    const Node at = open.back();
    open.pop_back();
    for (const Node& child : children(at, kWalkMax)) {
      if (found.size() >= kWalkMax) return false;
      if (stored(child)) found.push_back(child);
      open.push_back(child);  // What lies below a block that was evicted may still be there.
      if (open.size() > kWalkMax) return false;
    }
  }
  return true;
}

// The stored block with this key under this salt, and the way to it: path[i] is block i. The parents are followed up to
// the salt's root, so that no other namespace can answer.
std::optional<StoreImpl::Node> StoreImpl::find_node(const BlockKey& key, std::string_view salt,
                                                    std::vector<Node>& path) const {
  path.clear();
  const Node root = root_node(salt);
  BlockKey at = key;
  for (std::int64_t steps = 0; steps <= blocks_max_; ++steps) {
    if (at == root.key) break;
    Block* block = index_.any_with_key(at);
    const DiskBlock* on_disk = disk_ ? disk_->find(at) : nullptr;
    if (!block && !on_disk) return std::nullopt;
    path.push_back({.key = at, .block = block, .index = block ? block->index : on_disk->index});
    at = block ? block->parent->key : on_disk->parent;
  }
  if (at != root.key || path.empty()) return std::nullopt;
  std::reverse(path.begin(), path.end());
  if (!stored(path.back())) return std::nullopt;
  return path.back();
}

// ---- why

// A sequence that is not live, over the part of the prompt that is known: what a request would find, without its
// traces.
Sequence& StoreImpl::probe(std::span<const TokenId> tokens, std::string_view salt) {
  if (!probe_) probe_ = std::make_unique<Sequence>(config_.groups.size(), blocks_max_);
  Sequence& seq = *probe_;
  seq.reuse.prompt_tokens = static_cast<std::int64_t>(tokens.size());
  seq.root = index_.root(salt, root_key_(root_inputs(salt)));
  index_.ref(*seq.root);
  Block* parent = seq.root;
  for (std::int64_t i = 0; i < seq.reuse.prompt_tokens / kBlockTokens; ++i) {
    const Ids ids(tokens.data() + i * kBlockTokens, kBlockTokens);
    const BlockKey key = child_key_(parent->key, ids);
    Block* b = index_.find_child(*parent, key, ids);
    if (!b && disk_ && !parent->off_disk && !index_.has_key(key)) {
      const DiskBlock* d = disk_->find(key);
      if (d && d->parent == parent->key && std::equal(ids.begin(), ids.end(), d->ids.begin()))
        b = child_block(*parent, ids);
    }
    if (!b || (!b->published && !b->owner)) break;
    index_.ref(*b);
    seq.path.push_back(b);
    parent = b;
  }
  seq.matched = static_cast<std::int64_t>(seq.path.size());
  return seq;
}

void StoreImpl::end_probe(Sequence& seq) {
  release_path(seq, 0);
  index_.unref(*seq.root);
  seq.reset();
  index_.trim(ram_->resident_blocks() + kStubsMax);
}

// Where a request would resume; its sources are counted.
ResumePoints StoreImpl::attach_probe(Sequence& seq) {
  const ResumePoints found = find_start(seq, resume_limit(seq));
  seq.held = std::max(found.stored, found.in_flight);
  for (std::size_t g = 0; g < seq.groups.size(); ++g)
    seq.groups[g].first = std::min(first_block(g, seq.held), seq.held);
  note_sources(seq);
  count_sources(seq);
  return found;
}

Result<Explanation> StoreImpl::explain(std::span<const TokenId> prompt, std::string_view salt) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  if (n == 0 || n > config_.context_max)
    return Status::invalid(
        fmt::format("a prompt of {} tokens; expected 1 to {}, what the context holds", n, config_.context_max));
  Sequence& seq = probe(prompt, salt);
  Explanation out;
  out.disk = disk_ != nullptr;
  out.tokens_known = seq.matched * kBlockTokens;
  note_difference(seq, prompt, out);
  if (out.difference) {
    seq.reuse.differs_at = out.difference->at;
    seq.reuse.asked_token = out.difference->asked.front();
    seq.reuse.stored_token = out.difference->stored.front();
  }
  const ResumePoints found = attach_probe(seq);
  seq.reuse.resume = seq.held == 0 ? "none" : every_blocks_ > 0 ? "checkpoint" : "block";
  out.stop = reuse_stop(seq, seq.held, found);
  seq.reuse.reason = reuse_reason(seq, seq.held, found);
  find_removals(seq, out);
  out.reuse = seq.reuse;
  end_probe(seq);
  return out;
}

// Where the prompt goes on otherwise than the closest stored one, if anything stored goes on there.
void StoreImpl::note_difference(const Sequence& seq, std::span<const TokenId> prompt, Explanation& out) const {
  constexpr auto kMost = static_cast<std::size_t>(Difference::kNeighbours);
  if (seq.matched >= resume_limit(seq)) return;
  Block& parent = seq.path.empty() ? *seq.root : *seq.path.back();
  const std::span<const TokenId> rest = prompt.subspan(static_cast<std::size_t>(seq.matched * kBlockTokens));
  const Closest other = closest(parent, rest.first(kBlockTokens), nullptr);
  // Nothing in common is another prompt altogether, unless it goes on where both agree so far.
  if (other.common >= kBlockTokens || other.common < 0 || (other.common == 0 && seq.matched == 0)) return;
  Difference d;
  d.at = seq.matched * kBlockTokens + other.common;
  const auto at = static_cast<std::size_t>(d.at), from = at - std::min(at, kMost);
  d.before.assign(prompt.begin() + static_cast<std::ptrdiff_t>(from), prompt.begin() + d.at);
  const std::span<const TokenId> asked = prompt.subspan(at, std::min(kMost, prompt.size() - at));
  d.asked.assign(asked.begin(), asked.end());
  d.stored.assign(other.ids.begin() + other.common, other.ids.end());
  // A difference near its block's end: the next block has the rest.
  if (d.stored.size() < kMost)
    for (const Node& next : children(other.node, 1))
      if (const auto* ids = ids_of(next)) d.stored.insert(d.stored.end(), ids->begin(), ids->end());
  d.stored.resize(std::min(d.stored.size(), kMost));
  out.difference = std::move(d);
}

// How the first copy went that resuming one block later would need.
void StoreImpl::find_removals(const Sequence& seq, Explanation& out) const {
  if (out.stop != Stop::evicted && out.stop != Stop::no_window && out.stop != Stop::no_checkpoint) return;
  const std::int64_t end = out.stop == Stop::evicted ? seq.held + 1 : std::min(seq.matched, resume_limit(seq));
  for (std::size_t g = 0; g < config_.groups.size(); ++g)
    for (std::int64_t i = std::max<std::int64_t>(0, first_block(g, end)); i < end; ++i) {
      const Copy& c = seq.path[static_cast<std::size_t>(i)]->copies[g];
      if (c.state != CopyState::none || on_disk(disk_.get(), c)) continue;
      if (const Removal* r = removals_->last(c.block->key, c.group)) out.from_ram = *r;
      if (const Removal* r = disk_ ? disk_->removed(c.block->key, c.group) : nullptr) out.from_disk = *r;
      if (out.from_ram || out.from_disk) return;
    }
}

// ---- what is there

StoredPrefix StoreImpl::describe(const std::vector<Node>& path) const {
  StoredPrefix out;
  out.key = path.back().key;
  out.tokens = static_cast<std::int64_t>(path.size()) * kBlockTokens;
  out.pinned = pinned(path.back());
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Node& node = path[i];
    if (node.block) out.used_seconds = std::max(out.used_seconds, i + 1 == path.size() ? node.block->used_seconds : 0);
    for (std::uint32_t g = 0; g < layouts_.size(); ++g) {
      const auto bytes = static_cast<std::uint64_t>(layouts_[g].block_bytes);
      if (node.block && node.block->copies[g].state != CopyState::none) {
        const bool near = ram_->has_far() && RamTier::home(node.block->copies[g].slot) == Home::near;
        (near ? out.vram_bytes : out.ram_bytes) += bytes;
      }
      const bool on_disk = disk_ && !(node.block && node.block->off_disk) && disk_->contains(node.key, GroupId{g});
      if (on_disk) out.disk_bytes += bytes;
    }
    const auto* ids = ids_of(node);
    if (ids && i < 2) out.first.insert(out.first.end(), ids->begin(), ids->end());
    if (ids && i >= 2 && i + 1 == path.size()) out.last.assign(ids->begin(), ids->end());
  }
  if (disk_) out.used_seconds = std::max(out.used_seconds, disk_->used_seconds(out.key));
  return out;
}

PrefixPage StoreImpl::list(std::string_view salt, std::int64_t offset, std::int64_t limit) {
  PrefixPage page;
  std::vector<Node> all;
  page.truncated = !walk(root_node(salt), all);
  struct Leaf {
    std::int64_t used_seconds = 0;
    BlockKey key;
  };
  std::vector<Leaf> leaves;
  for (const Node& node : all) {
    const std::vector<Node> next = children(node, kCompared);
    if (std::any_of(next.begin(), next.end(), [&](const Node& child) { return stored(child); })) continue;
    std::int64_t used = node.block ? node.block->used_seconds : 0;
    if (disk_) used = std::max(used, disk_->used_seconds(node.key));
    leaves.push_back({used, node.key});
  }
  std::sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    return a.used_seconds != b.used_seconds ? a.used_seconds > b.used_seconds : a.key < b.key;
  });
  page.total = static_cast<std::int64_t>(leaves.size());
  std::vector<Node> path;
  for (std::int64_t i = offset; i < page.total && i - offset < limit; ++i)
    if (find_node(leaves[static_cast<std::size_t>(i)].key, salt, path)) page.prefixes.push_back(describe(path));
  return page;
}

Result<std::vector<TokenId>> StoreImpl::tokens_of(const BlockKey& key, std::string_view salt) {
  std::vector<Node> path;
  std::vector<TokenId> tokens;
  bool whole = find_node(key, salt, path).has_value();
  for (const Node& node : path) {
    const auto* ids = ids_of(node);
    whole &= ids != nullptr;
    if (ids) tokens.insert(tokens.end(), ids->begin(), ids->end());
  }
  if (!whole) return Status::not_found("no prefix with this key is stored here");
  return tokens;
}

// ---- purges

void StoreImpl::drop_ram_copies(const Node& node, Purged& out) {
  if (!node.block) return;
  Block& block = *node.block;
  bool any = false, used = false;
  for (Copy& c : block.copies) {
    if (c.state == CopyState::none) continue;
    if (!c.listed) {
      used = true;
      continue;
    }
    out.ram_bytes += ram_->block_bytes(c.group);
    ram_->remove(c);
    removals_->note(block.key, c.group, RemovedWhy::purged);
    any = true;
  }
  out.blocks += any;
  out.kept_in_use += used;
}

Purged StoreImpl::purge(std::string_view salt, const std::optional<BlockKey>& key) {
  Purged out;
  std::vector<Node> doomed;
  if (!key) {
    walk(root_node(salt), doomed);
  } else if (find_node(*key, salt, doomed)) {
    // From the end to where another stored prefix goes on.
    std::size_t from = doomed.size();
    while (from > 0) {
      const Node& node = doomed[from - 1];
      const std::vector<Node> next = children(node, kCompared);
      if (std::any_of(next.begin(), next.end(), [&](const Node& child) {
            return stored(child) && (from == doomed.size() || child.key != doomed[from].key);
          }))
        break;
      --from;
    }
    doomed.erase(doomed.begin(), doomed.begin() + static_cast<std::ptrdiff_t>(from));
  } else {
    doomed.clear();
  }
  std::vector<BlockKey> keys;
  for (const Node& node : doomed) {
    if (pinned(node)) {
      ++out.kept_pinned;
      continue;
    }
    const std::int64_t before = out.blocks;
    drop_ram_copies(node, out);
    if (out.blocks == before && disk_ && disk_->find(node.key)) ++out.blocks;
    keys.push_back(node.key);
  }
  if (disk_) out.disk_bytes = disk_->purge(keys);
  for (const Node& node : doomed)
    if (node.block) index_.settle(*node.block);
  index_.trim(ram_->resident_blocks() + kStubsMax);
  return out;
}

}  // namespace lode::kv
