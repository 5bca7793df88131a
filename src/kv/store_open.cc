// Opening a sequence: prefix lookup, sharing with peers, and the moment it becomes ready.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kv/store_impl.h"

namespace lode::kv {

// The block that follows `parent` with these tokens, made where it is not known.
Block* StoreImpl::child_block(Block& parent, Ids ids) {
  const BlockKey key = child_key_(parent.key, ids);
  if (Block* b = index_.find_child(parent, key, ids)) return b;
  // Another chain may have this key: a collision, or a disk entry that an attacker prepared. Only the first chain that
  // is seen with a key uses the disk for it, and only where the disk's tokens are its own, all the way from the root.
  bool off_disk = parent.off_disk || index_.has_key(key);
  bool stored = false;
  if (disk_ && !off_disk)
    if (const DiskBlock* d = disk_->find(key)) {
      stored = d->parent == parent.key && std::equal(ids.begin(), ids.end(), d->ids.begin());
      off_disk = !stored;
    }
  Block* b = index_.add_child(parent, key, ids);
  b->off_disk = off_disk;
  b->published = stored;
  return b;
}

// Links every full block of the prompt, and notes how far it was known.
void StoreImpl::build_path(Sequence& seq, std::span<const TokenId> prompt) {
  const auto blocks = static_cast<std::int64_t>(prompt.size()) / kBlockTokens;
  bool known = true;
  Block* parent = seq.root;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const Ids ids(prompt.data() + i * kBlockTokens, kBlockTokens);
    Block* b = child_block(*parent, ids);
    if (known && !b->published && !b->owner) {
      known = false;
      const Closest other = closest(*parent, ids, b);
      // Nothing in common is another prompt altogether, unless it goes on where both agree so far.
      if (other.common < kBlockTokens && (other.common > 0 || (other.common == 0 && i > 0))) {
        const auto at = static_cast<std::size_t>(other.common);
        seq.reuse.differs_at = i * kBlockTokens + other.common;
        seq.reuse.asked_token = ids[at];
        seq.reuse.stored_token = other.ids[at];
      }
    }
    seq.matched += known;
    index_.ref(*b);
    seq.path.push_back(b);
    parent = b;
  }
}

Result<Sequence*> StoreImpl::open_sequence(std::span<const TokenId> prompt, std::string_view salt,
                                           std::span<const std::int64_t> marks) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  if (n == 0) return Status::invalid("the prompt is empty; expected at least one token");
  if (n > config_.context_max)
    return Status::invalid(fmt::format("the prompt has {} tokens, the context holds {}; shorten it or raise --ctx", n,
                                       config_.context_max));
  if (live_.size() >= static_cast<std::size_t>(config_.sequences_max))
    return Status::exhausted(fmt::format("all {} sequences of the KV store are in use", config_.sequences_max));
  Sequence& seq = *take_sequence();
  seq.opened_ns = clock_.now_ns();
  seq.reuse.prompt_tokens = n;
  RootInputs inputs = config_.root;
  inputs.salt = salt;
  seq.root = index_.root(salt, root_key_(inputs));
  index_.ref(*seq.root);
  build_path(seq, prompt);
  plan_points(seq, marks);
  if (attach_best(seq, resume_limit(seq), Peers::wait) == Attached::no_memory) {
    const Status why =
        exhausted(fmt::format("the {} stored tokens that the prompt starts with", seq.held * kBlockTokens));
    attach(seq, 0);
    release(seq);
    return why;
  }
  live_.push_back(&seq);
  if (seq.waiting) claim(seq);
  else become_ready(seq);
  return &seq;
}

// The best resume point among the first `blocks_max` blocks, and in seq.slow_read whether a better one is not read.
ResumePoints StoreImpl::find_start(Sequence& seq, std::int64_t blocks_max) const {
  const ResumePoints found = find_resume(seq, blocks_max, config_.groups, disk_.get(), Tiers::ram_and_disk);
  seq.slow_read = false;
  if (!disk_ || found.stored == 0) return found;
  const ResumePoints ram = find_resume(seq, blocks_max, config_.groups, nullptr, Tiers::ram);
  seq.slow_read = ram.stored < found.stored && !reading_pays(seq, found.stored, ram.stored);
  return seq.slow_read ? ram : found;
}

// Attaches to the best resume point among the first `blocks_max` blocks, and says in seq.waiting whether peers compute
// a part of it.
StoreImpl::Attached StoreImpl::attach_best(Sequence& seq, std::int64_t blocks_max, Peers peers) {
  for (int tries = 0; tries < 3; ++tries) {
    const ResumePoints found = find_start(seq, blocks_max);
    seq.waiting = peers == Peers::wait && found.in_flight > found.stored;
    const Attached attached = attach(seq, seq.waiting ? found.in_flight : found.stored);
    if (attached == Attached::no_memory) seq.waiting = false;
    if (attached != Attached::gone) return attached;
  }
  attach_from_ram(seq, blocks_max);  // The disk tier evicts faster than we look.
  return Attached::ok;
}

// Whether reading what only the disk has takes less time than computing it, as far as both were measured here.
bool StoreImpl::reading_pays(const Sequence& seq, std::int64_t blocks, std::int64_t from_ram) const {
  const Costs& costs = evictor_.costs();
  if (!costs.compute.measured() || !costs.read.measured(clock_.now_ns())) return true;
  std::uint64_t bytes = 0;
  for (std::uint32_t g = 0; g < seq.groups.size(); ++g)
    for (std::int64_t i = first_block(g, blocks); i < blocks; ++i)
      if (seq.path[static_cast<std::size_t>(i)]->copies[g].state == CopyState::none)
        bytes += ram_->block_bytes(GroupId{g});
  return ReadCost::kLatencySeconds + costs.read.seconds(bytes) <=
         costs.compute.seconds(from_ram * kBlockTokens, (blocks - from_ram) * kBlockTokens);
}

// What the prompt uses, or would if it were still there: blocks of history that it shares, and the resume point where
// it starts, or might have started.
void StoreImpl::count_uses(Sequence& seq) {
  if (std::exchange(seq.counted, true)) return;
  const std::int64_t known = std::min(seq.matched, resume_limit(seq));
  retry_ |= disk_ && known > 0 && disk_->near_daily_cap();  // What was not written before it was used again.
  const auto block = [&](std::int64_t i) -> Block& { return *seq.path[static_cast<std::size_t>(i)]; };
  for (std::size_t g = 0; g < seq.groups.size(); ++g) {
    if (full(g)) {
      for (std::int64_t i = known - 1; i >= 0; --i) evictor_.use(block(i).copies[g]);
      continue;
    }
    if (seq.held > 0) {
      std::int64_t at = seq.held - 1;
      const std::int64_t end = std::min(known, seq.held + kSlackBlocks);
      for (std::int64_t i = at; i < end && !recurrent(g); ++i)
        if (block(i).copies[g].point_first >= 0) {
          at = i;
          break;
        }
      evictor_.use(block(at).copies[g]);
    }
    if (known - seq.held > kSlackBlocks) evictor_.use(block(known - 1).copies[g]);
  }
}

// Pins what resuming after `blocks` blocks needs, lets go of what was pinned before, and starts reading what is only on
// disk. Anything but `ok`: the pins are there, but not all bytes will be; attach to something else.
StoreImpl::Attached StoreImpl::attach(Sequence& seq, std::int64_t blocks) {
  // New pins before old ones go: what is in both never loses its last pin.
  for (std::size_t g = 0; g < seq.groups.size(); ++g)
    for (std::int64_t i = first_block(g, blocks); i < blocks; ++i)
      ram_->pin(seq.path[static_cast<std::size_t>(i)]->copies[g]);
  for (std::size_t g = 0; g < seq.groups.size(); ++g) {
    for (std::int64_t i = seq.held - 1; i >= seq.groups[g].first; --i)
      ram_->unpin(seq.path[static_cast<std::size_t>(i)]->copies[g]);
    seq.groups[g].first = std::min(first_block(g, blocks), blocks);
  }
  seq.held = blocks;
  seq.attached = 0;
  note_sources(seq);
  return start_reads(seq);
}

// Where each block comes from, before any of it has moved. What once was slow stays slow: a block that a peer computed
// meanwhile was still waited for.
void StoreImpl::note_sources(Sequence& seq) const {
  for (std::int64_t i = 0; i < seq.held; ++i) {
    Source& worst = seq.source[static_cast<std::size_t>(i)];
    for (std::size_t g = 0; g < seq.groups.size(); ++g) {
      if (i < seq.groups[g].first) continue;
      const Copy& c = seq.path[static_cast<std::size_t>(i)]->copies[g];
      if (c.state == CopyState::in_place) continue;
      const bool disk = c.state == CopyState::reading || on_disk(disk_.get(), c);
      worst = std::max(worst, disk ? Source::disk : Source::in_flight);
    }
  }
}

StoreImpl::Attached StoreImpl::start_reads(const Sequence& seq) {
  reads_.clear();
  read_slots_.clear();
  for (std::int64_t i = 0; i < seq.held; ++i)
    for (std::size_t g = 0; g < seq.groups.size(); ++g) {
      Block& b = *seq.path[static_cast<std::size_t>(i)];
      Copy& c = b.copies[g];
      if (i < seq.groups[g].first || c.state != CopyState::none) continue;
      if (on_disk(disk_.get(), c)) reads_.push_back(&c);
      else if (!b.owner || b.owner == &seq) return Attached::gone;  // The disk tier evicted it a moment ago.
    }
  if (reads_.empty()) return Attached::ok;
  for (const Copy* c : reads_) {
    const auto slot = allocate(c->group);
    if (!slot) {
      for (std::size_t i = 0; i < read_slots_.size(); ++i) ram_->free(reads_[i]->group, read_slots_[i]);
      return Attached::no_memory;
    }
    read_slots_.push_back(*slot);
  }
  restorer_->start(reads_, read_slots_);
  for (Copy* c : reads_) c->keep = lasting(c->group.v);
  return Attached::ok;
}

// Attaches to the longest prefix that needs no memory; there always is one, if only the empty one.
void StoreImpl::attach_from_ram(Sequence& seq, std::int64_t blocks_max) {
  const ResumePoints found = find_resume(seq, blocks_max, config_.groups, nullptr, Tiers::ram);
  seq.waiting = false;
  LODE_CHECK(attach(seq, found.stored) == Attached::ok);
}

// Moves what the sequence relies on from RAM to the device, as far as that has room; the rest is used where it is. What
// somebody else uses, or the disk tier is writing, stays: its address is known to them.
void StoreImpl::promote(Sequence& seq) {
  for (std::int64_t i = 0; i < seq.held; ++i)
    for (std::size_t g = 0; g < seq.groups.size(); ++g) {
      Copy& c = seq.path[static_cast<std::size_t>(i)]->copies[g];
      if (i < seq.groups[g].first || c.state != CopyState::in_place || c.pins > 1 || c.writing) continue;
      if (RamTier::home(c.slot) == Home::near) continue;
      const auto slot = evictor_.allocate_near(c.group);
      if (!slot) return;
      if (ram_->move(c, *slot).ok()) continue;
      ram_->free(c.group, *slot);
      return;
    }
}

// Everything up to `held` is in place or being read: the sequence can be stepped.
void StoreImpl::become_ready(Sequence& seq) {
  if (ram_->has_far()) promote(seq);
  seq.waiting = false;
  seq.length = seq.held * kBlockTokens;
  seq.tail_count = 0;
  seq.kept_end = seq.held;
  for (std::size_t g = 0; g < seq.groups.size(); ++g) {
    seq.groups[g].slots_end = seq.held;
    if (recurrent(g)) start_state(seq.groups[g], nullptr);
  }
  for (std::int64_t i = 0; i < seq.held; ++i) {
    Block& b = *seq.path[static_cast<std::size_t>(i)];
    for (std::size_t g = 0; g < seq.groups.size(); ++g) {
      if (i < seq.groups[g].first) continue;
      Copy& c = b.copies[g];
      LODE_CHECK(c.state != CopyState::none);
      if (recurrent(g)) {
        start_state(seq.groups[g], ram_->address(c));
        c.keep = true;  // Also where it was to be a peer's for a while only.
      } else {
        seq.groups[g].table[static_cast<std::size_t>(i)] = ram_->address(c);
      }
      if (c.load && std::find(seq.loads.begin(), seq.loads.end(), c.load) == seq.loads.end())
        seq.loads.push_back(c.load);
    }
    for (std::uint32_t g = 0; disk_ && !b.off_disk && g < seq.groups.size(); ++g)
      if (i >= seq.groups[g].first) disk_->touch_group(b.key, GroupId{g});
  }
  count_uses(seq);
  claim(seq);
  note_reuse(seq);
}

void StoreImpl::note_reuse(Sequence& seq) {
  Reuse& r = seq.reuse;
  count_hits(r, -1);  // Of an earlier time, before a repair.
  count_sources(seq);
  count_hits(r, 1);
  const ResumePoints found = find_resume(seq, resume_limit(seq), config_.groups, disk_.get(), Tiers::ram_and_disk);
  r.resume = seq.held == 0 ? "none" : every_blocks_ > 0 ? "checkpoint" : "block";
  r.reason = reuse_reason(seq, seq.held, found);
  plan_more_points(seq, found);
}

// What was reused, by where it came from.
void StoreImpl::count_sources(Sequence& seq) {
  Reuse& r = seq.reuse;
  r.tokens_reused = seq.held * kBlockTokens;
  r.from_ram = r.from_disk = r.from_in_flight = 0;
  // Blocks of which nothing is needed (every layer is recurrent) came with the first that is.
  std::int64_t first = seq.held;
  for (const auto& g : seq.groups) first = std::min(first, g.first);
  for (std::int64_t i = 0; i < seq.held; ++i) switch (seq.source[static_cast<std::size_t>(std::max(i, first))]) {
      case Source::ram: r.from_ram += kBlockTokens; break;
      case Source::disk: r.from_disk += kBlockTokens; break;
      case Source::in_flight: r.from_in_flight += kBlockTokens; break;
    }
}

// What is known before it is known where the prompt can resume; peers may wait for these.
void StoreImpl::plan_points(Sequence& seq, std::span<const std::int64_t> marks) {
  for (const std::int64_t tokens : marks)
    if (tokens > 0 && tokens <= seq.reuse.prompt_tokens) seq.plan.add(tokens / kBlockTokens);
  if (every_blocks_ == 0) return;
  seq.plan.add(resume_limit(seq));
  // Where it leaves the prompt of a sequence that is still computing that part, both can use a checkpoint.
  const std::int64_t branch = std::min(seq.matched, resume_limit(seq));
  if (branch == 0) return;
  Sequence* peer = seq.path[static_cast<std::size_t>(branch - 1)]->owner;
  if (peer) peer->plan.add_if_far(branch, peer->waiting ? 0 : peer->held);
}

// The place where this prompt leaves a chain that could not be used will be left there again. Windows: with RAM alone
// (the disk has the window of every boundary).
void StoreImpl::plan_more_points(Sequence& seq, const ResumePoints& found) {
  if (every_blocks_ == 0) {
    if (!disk_ && found.history > seq.held && seq.matched > seq.held) seq.plan.add(seq.matched);
    return;
  }
  const std::int64_t limit = resume_limit(seq);
  seq.plan.add_if_far(std::min(seq.matched, limit), seq.held);
  seq.plan.add_if_far(limit - kSlackBlocks, seq.held, kSlackGapBlocks);
}

void StoreImpl::count_hits(const Reuse& r, std::int64_t sign) {
  hits_ram_ += static_cast<std::uint64_t>(sign * r.from_ram);
  hits_disk_ += static_cast<std::uint64_t>(sign * r.from_disk);
  hits_in_flight_ += static_cast<std::uint64_t>(sign * r.from_in_flight);
}

// Promises to compute the blocks ahead that nobody has promised yet, and takes back promises that it need not keep.
void StoreImpl::claim(Sequence& seq) {
  for (std::size_t i = 0; i < seq.path.size(); ++i) {
    Block& b = *seq.path[i];
    if (static_cast<std::int64_t>(i) < seq.held) {
      if (b.owner == &seq) b.owner = nullptr;
    } else if (!b.owner) {
      b.owner = &seq;
    }
  }
}

// After promises were broken (a sequence was closed, a block was damaged): blocks without an owner get one, and those
// who waited for them wait for the new owner or compute. In the order of opening, so that a sequence only ever waits
// for earlier ones: no circle can form, and the first one never waits.
void StoreImpl::settle_waiters() {
  for (Sequence* seq : live_) {
    if (seq->waiting) {
      if (attach_best(*seq, resume_limit(*seq), Peers::wait) == Attached::no_memory)
        attach_from_ram(*seq, resume_limit(*seq));
      if (!seq->waiting) become_ready(*seq);
    }
    claim(*seq);
  }
}

SeqState StoreImpl::state(Sequence& seq) {
  if (!seq.waiting) return SeqState::ready;
  for (; seq.attached < seq.held; ++seq.attached) {
    const Block& b = *seq.path[static_cast<std::size_t>(seq.attached)];
    for (std::size_t g = 0; g < seq.groups.size(); ++g)
      if (seq.attached >= seq.groups[g].first && b.copies[g].state == CopyState::none) return SeqState::waiting_peer;
  }
  become_ready(seq);
  return SeqState::ready;
}

}  // namespace lode::kv
