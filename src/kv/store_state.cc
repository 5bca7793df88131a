// Recurrent states: where a step reads and writes them, and which of them become checkpoints.
//
// A step reads the state after `length` tokens and writes another slot; commit swaps the two. Where a step ends at a
// block's end, the state is published as that block's copy without being moved: the next step reads it there. Such a
// copy is let go at the next boundary, unless it is a planned checkpoint or the sequence ends first: so a turn can be
// continued, and a preempted sequence resume, less than a block from where it stopped.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kv/store_impl.h"

namespace lode::kv {

std::int64_t StoreImpl::step_limit(const Sequence& seq, std::int64_t wanted) const {
  if (every_blocks_ == 0) return wanted;
  const std::int64_t point = seq.plan.next_after(seq.length, kBlockTokens);
  return std::min(wanted, point * kBlockTokens - seq.length);
}

Status StoreImpl::grow_state(Sequence& seq, std::size_t group) {
  RunningState& s = seq.groups[group].state;
  if (s.next.valid()) return Status::success();
  const GroupId id{static_cast<std::uint32_t>(group)};
  if (!s.spare.valid()) {
    const auto slot = allocate(id);
    if (!slot) return exhausted(fmt::format("the recurrent state after {} tokens", seq.length));
    s.spare = *slot;
  }
  s.next = std::exchange(s.spare, SlotId::none());
  s.out = ram_->address(id, s.next);
  return Status::success();
}

// Nothing of its own yet: the first step reads a checkpoint's copy, or (nullptr) begins with zeros.
void StoreImpl::start_state(Sequence::Group& group, const std::byte* in) {
  LODE_CHECK(!group.state.now.valid());
  group.state.in = in;
}

// What the step has written is the state now; the place that it has read is free for the next one.
void StoreImpl::take_states(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (!recurrent(i)) continue;
    RunningState& s = seq.groups[i].state;
    const GroupId id{static_cast<std::uint32_t>(i)};
    LODE_CHECK(s.next.valid());
    std::swap(s.now, s.next);
    s.in = s.out;
    s.out = s.next.valid() ? ram_->address(id, s.next) : nullptr;
  }
}

// Before `held` grows by a block: the last boundary's copy goes, unless it is kept or somebody else pins it.
void StoreImpl::drop_last_state(Sequence& seq, std::size_t group) {
  Sequence::Group& g = seq.groups[group];
  if (g.first < seq.held) {
    Copy& c = seq.path[static_cast<std::size_t>(g.first)]->copies[group];
    const SlotId slot = ram_->unpin_and_take(c);
    if (slot.valid() && g.state.spare.valid()) ram_->free(c.group, slot);
    else if (slot.valid()) g.state.spare = slot;
  }
  g.first = seq.held + 1;
}

// The sequence stands at a block's end: its states become that block's copies.
void StoreImpl::publish_states(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (!recurrent(i)) continue;
    Sequence::Group& g = seq.groups[i];
    Copy& c = seq.path[static_cast<std::size_t>(seq.held - 1)]->copies[i];
    ram_->pin(c);
    g.first = seq.held - 1;
    if (c.state == CopyState::reading) continue;  // Still unverified: ours serves this sequence.
    if (c.state == CopyState::in_place) {         // Somebody was first, with the same bits.
      ram_->free(c.group, g.state.now);
    } else {
      ram_->install(c, g.state.now, CopyState::in_place);
      evictor_.begin(c);
      c.bad_on_disk = false;
    }
    g.state.now = SlotId::none();
    g.state.in = ram_->address(c);
  }
  if (!seq.plan.contains(seq.held)) return;
  keep_checkpoint(seq);
  if (seq.plan.listed(seq.held)) add_mark(seq);
}

// At the end of a prompt or a turn: the last boundary's states stay, if they are there and worth it.
void StoreImpl::keep_last_state(Sequence& seq) {
  if (every_blocks_ == 0 || seq.held - seq.kept_end < ResumePlan::kGapBlocks) return;
  for (std::size_t i = 0; i < seq.groups.size(); ++i)
    if (recurrent(i) && seq.groups[i].first != seq.held - 1) return;
  keep_checkpoint(seq);
}

// The last boundary becomes a resume point that outlives the sequence: its states, the windows before it, and on disk
// the history that it needs, whole and at once.
void StoreImpl::keep_checkpoint(Sequence& seq) {
  seq.kept_end = seq.held;
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (full(i) || recurrent(i)) continue;
    for (std::int64_t b = std::max(first_block(i, seq.held), seq.groups[i].first); b < seq.held; ++b)
      seq.path[static_cast<std::size_t>(b)]->copies[i].keep = true;
  }
  if (packer_)
    for (auto& g : seq.groups) packer_->seal(g.run);
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (!recurrent(i)) continue;
    Copy& c = seq.path[static_cast<std::size_t>(seq.held - 1)]->copies[i];
    if (c.state != CopyState::in_place) continue;
    c.keep = true;
    offer(seq.groups[i].run, c);
  }
}

// When memory is short: what a sequence keeps of its last boundary, and does not read in its next step.
void StoreImpl::release_last_states(Sequence& seq) {
  for (std::size_t i = 0; i < seq.groups.size(); ++i) {
    if (!recurrent(i)) continue;
    Sequence::Group& g = seq.groups[i];
    const SlotId spare = std::exchange(g.state.spare, SlotId::none());
    if (spare.valid()) ram_->free(GroupId{static_cast<std::uint32_t>(i)}, spare);
    if (!g.state.now.valid()) continue;
    if (g.first < seq.held) ram_->unpin(seq.path[static_cast<std::size_t>(g.first)]->copies[i]);
    g.first = seq.held;
  }
}

void StoreImpl::free_states(Sequence& seq, std::size_t group) {
  const GroupId id{static_cast<std::uint32_t>(group)};
  RunningState& s = seq.groups[group].state;
  for (const SlotId slot : {s.now, s.next, s.spare})
    if (slot.valid()) ram_->free(id, slot);
  s = {};
}

}  // namespace lode::kv
