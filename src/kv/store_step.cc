// What happens to a sequence around each step: memory before it, published blocks after it.
#include <fmt/format.h>

#include <algorithm>

#include "kv/store_impl.h"

namespace lode::kv {

Status StoreImpl::grow(Sequence& seq, std::int64_t tokens) {
  LODE_CHECK(seq.live);
  if (seq.waiting) return {Code::unavailable, "the sequence waits for blocks that another one computes"};
  if (tokens <= 0 || tokens > config_.chunk_tokens)
    return Status::invalid(fmt::format("a step of {} tokens; expected 1 to {}", tokens, config_.chunk_tokens));
  if (seq.length + tokens > config_.context_max)
    return Status::invalid(fmt::format("{} tokens and {} more do not fit the context of {}; raise --ctx", seq.length,
                                       tokens, config_.context_max));
  const std::int64_t end = (seq.length + tokens + kBlockTokens - 1) / kBlockTokens;
  for (std::size_t g = 0; g < seq.groups.size(); ++g) {
    Sequence::Group& group = seq.groups[g];
    if (recurrent(g)) {
      LODE_RETURN_IF_ERROR(grow_state(seq, g));
      continue;
    }
    for (; group.slots_end < end; ++group.slots_end) {
      const GroupId id{static_cast<std::uint32_t>(g)};
      const auto slot = allocate(id);
      // What it got meanwhile stays: the next try needs it, and closing frees it.
      if (!slot) return exhausted(fmt::format("{} more tokens after {}", tokens, seq.length));
      group.own[static_cast<std::size_t>(group.slots_end)] = *slot;
      group.table[static_cast<std::size_t>(group.slots_end)] = ram_->address(id, *slot);
    }
  }
  return Status::success();
}

model::KvView& StoreImpl::view(std::span<const RunSpec> runs) {
  reads_in_step_ = std::any_of(runs.begin(), runs.end(), [](const RunSpec& run) { return !run.seq->loads.empty(); });
  view_.bind(runs);
  return view_;
}

void StoreImpl::note_computed(const ComputedStep& step) {
  if (reads_in_step_) return;
  evictor_.costs().compute.observe(step.tokens, step.positions, step.seconds);
  if (disk_) disk_->set_compute_cost(evictor_.costs().compute);
}

// Not, where reading all that resuming here takes would be slower than computing it; nor, where the day's bytes are
// nearly written, before somebody has used it again.
bool StoreImpl::worth_writing(const Copy& copy) const {
  const auto used = [](const Copy& c) { return c.uses > 0; };
  const Block& b = *copy.block;
  if (disk_->near_daily_cap() && std::none_of(b.copies.begin(), b.copies.end(), used)) return false;
  const Costs& costs = evictor_.costs();
  if (!costs.compute.measured() || !costs.read.measured(clock_.now_ns())) return true;
  const std::int64_t end = b.index + 1;
  std::uint64_t bytes = 0;
  for (std::uint32_t g = 0; g < config_.groups.size(); ++g)
    bytes += static_cast<std::uint64_t>(end - first_block(g, end)) * ram_->block_bytes(GroupId{g});
  return costs.read.seconds(bytes) <= costs.compute.seconds(0, end * kBlockTokens);
}

// A copy for the SSD. What was passed over before it, because a chain as short was not worth it, comes with it.
void StoreImpl::offer(ExtentPacker::Run& run, Copy& copy) {
  if (!packer_ || !worth_writing(copy)) return;
  Block* const parent = copy.block->parent;
  if (full(copy.group.v) && !parent->root())
    if (Copy& before = parent->copies[copy.group.v]; packer_->wants(before) && !worth_writing(before))
      write_chain(before);
  packer_->add(run, copy, clock_.now_ns());
}

void StoreImpl::write_chain(Copy& last) {
  std::vector<Copy*> chain;
  for (Copy* c = &last; packer_->wants(*c); c = &c->block->parent->copies[c->group.v]) {
    chain.push_back(c);
    if (c->block->parent->root()) break;
  }
  std::reverse(chain.begin(), chain.end());
  const std::int64_t whole = packer_->extent_blocks(last.group);
  for (std::size_t from = 0; from < chain.size();) {
    std::size_t end = from + 1;
    while (end < chain.size() && chain[end]->block->index % whole != 0) ++end;
    (void)packer_->write_now(std::span(chain).subspan(from, end - from));
    from = end;
  }
}

void StoreImpl::commit(Sequence& seq, std::span<const TokenId> ids) {
  LODE_CHECK(seq.live && !seq.waiting);
  // The step has waited for every layer, so that its reads have ended; this only takes note of it.
  if (!seq.loads.empty()) finish_loads(seq);
  if (seq.broken || ids.empty()) return;  // Computed over damaged bytes: never publish it. The next view says so.
  const std::int64_t point = seq.plan.next_after(seq.length, kBlockTokens);
  for (std::size_t g = 0; g < seq.groups.size(); ++g)
    LODE_CHECK(recurrent(g) ||
               seq.length + static_cast<std::int64_t>(ids.size()) <= seq.groups[g].slots_end * kBlockTokens);
  take_states(seq);
  for (const TokenId id : ids) {
    seq.tail[static_cast<std::size_t>(seq.tail_count++)] = id;
    ++seq.length;
    if (seq.tail_count == kBlockTokens) complete_block(seq);
  }
  computed_ += ids.size();
  evictor_.advance(static_cast<std::int64_t>(ids.size()));
  if (every_blocks_ > 0 && seq.tail_count == 0) publish_states(seq);
  advance_windows(seq);
  // A step that was not cut has passed a checkpoint that peers may wait for.
  if (every_blocks_ > 0 && point >= 0 && point * kBlockTokens < seq.length) settle_waiters();
}

// The tail has become a full block: it joins the tree, and its slots become the block's copies.
void StoreImpl::complete_block(Sequence& seq) {
  const auto at = static_cast<std::size_t>(seq.held);
  if (at < seq.path.size() && seq.path[at]->ids != seq.tail) {
    release_path(seq, at);  // Other tokens than the prompt it was opened with: nobody gets the promised blocks from it.
    settle_waiters();
  }
  if (at == seq.path.size()) {
    Block* b = child_block(at == 0 ? *seq.root : *seq.path[at - 1], seq.tail);
    index_.ref(*b);
    seq.path.push_back(b);
  }
  Block& b = *seq.path[at];
  if (b.owner == &seq) b.owner = nullptr;
  b.published = true;
  for (std::size_t g = 0; g < seq.groups.size(); ++g) {
    if (recurrent(g)) drop_last_state(seq, g);
    else publish(seq, b, g);
  }
  ++seq.held;
  seq.tail_count = 0;
  if (every_blocks_ == 0 && seq.plan.listed(seq.held)) add_mark(seq);  // Else with the state, if there is one.
}

void StoreImpl::publish(Sequence& seq, Block& block, std::size_t group) {
  Sequence::Group& g = seq.groups[group];
  const auto at = static_cast<std::size_t>(block.index);
  Copy& c = block.copies[group];
  ram_->pin(c);
  if (c.state == CopyState::reading) return;  // Still unverified: ours serves this sequence, and is freed with it.
  if (c.state == CopyState::in_place) {       // Somebody was first, with the same bits.
    ram_->free(c.group, g.own[at]);
  } else {
    ram_->install(c, g.own[at], CopyState::in_place);
    evictor_.begin(c);
    c.keep = full(group);
    c.bad_on_disk = false;  // A passing error may be over; damage, the disk tier has taken off its list.
    offer(g.run, c);
  }
  g.own[at] = SlotId::none();
  g.table[at] = ram_->address(c);
}

// Window groups: what neither the next token reads nor the slack covers is let go. It is freed unless a mark, a peer or
// the packer pins it.
void StoreImpl::advance_windows(Sequence& seq) {
  const std::int64_t from = std::max<std::int64_t>(0, seq.length - kSlackBlocks * kBlockTokens);
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (lasting(i)) continue;
    Sequence::Group& g = seq.groups[i];
    const std::int64_t first = std::min(config_.groups[i].first_needed(from) / kBlockTokens, seq.held);
    for (; g.first < first; ++g.first) {
      const auto at = static_cast<std::size_t>(g.first);
      Copy& c = seq.path[at]->copies[i];
      if (g.own[at].valid()) {
        ram_->free(c.group, g.own[at]);
        g.own[at] = SlotId::none();
      }
      g.table[at] = nullptr;
      ram_->unpin(c);
    }
  }
}

void StoreImpl::mark_resume_point(Sequence& seq) {
  LODE_CHECK(seq.live);
  if (seq.waiting || seq.broken || seq.held == 0) return;
  keep_last_state(seq);
  add_mark(seq);
}

// Keeps the window groups' rings as they are now: W - 1 tokens before the last full block's end, and the slack before
// them. So not only the last boundary can be resumed at but each of the last four: another question after the same
// document differs from this prompt some tens of tokens before its end (its own words, the template's closing marks).
// And the states at that end, where there are any.
void StoreImpl::add_mark(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (full(i)) continue;
    Sequence::Group& g = seq.groups[i];
    const BlockRange mark{g.first, seq.held};
    if (mark.first == mark.end || g.marks.front().end == mark.end) continue;
    for (std::int64_t b = mark.first; b < mark.end; ++b) ram_->pin(seq.path[static_cast<std::size_t>(b)]->copies[i]);
    const BlockRange oldest = g.marks.back();
    for (std::int64_t b = oldest.end - 1; b >= oldest.first; --b)
      ram_->unpin(seq.path[static_cast<std::size_t>(b)]->copies[i]);
    std::rotate(g.marks.begin(), g.marks.end() - 1, g.marks.end());
    g.marks.front() = mark;
  }
}

// Marked windows stay in RAM as long as the unpinned budget has room for them.
void StoreImpl::release_marks(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i)
    for (BlockRange& mark : seq.groups[i].marks) {
      if (!lasting(i) && mark.first < mark.end)
        evictor_.make_point(seq.path[static_cast<std::size_t>(mark.end - 1)]->copies[i], mark.first);
      for (std::int64_t b = mark.end - 1; b >= mark.first; --b) {
        Copy& c = seq.path[static_cast<std::size_t>(b)]->copies[i];
        if (c.state == CopyState::in_place) c.keep = true;
        ram_->unpin(c);
      }
      mark = {};
    }
}

// Slots that belong to no copy, and the tables that point at them.
void StoreImpl::free_own_slots(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    Sequence::Group& g = seq.groups[i];
    if (recurrent(i)) {
      free_states(seq, i);
      continue;
    }
    for (std::int64_t b = g.first; b < g.slots_end; ++b) {
      const auto at = static_cast<std::size_t>(b);
      if (g.own[at].valid()) ram_->free(GroupId{static_cast<std::uint32_t>(i)}, g.own[at]);
      g.own[at] = SlotId::none();
      g.table[at] = nullptr;
    }
    g.slots_end = std::min(g.slots_end, seq.held);
  }
}

}  // namespace lode::kv
