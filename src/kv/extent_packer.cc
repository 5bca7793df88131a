#include "kv/extent_packer.h"

#include <algorithm>
#include <array>

#include "kv/eviction.h"

namespace lode::kv {

bool ExtentPacker::wants(const Copy& copy) const {
  return copy.state == CopyState::in_place && !copy.writing && !copy.block->off_disk &&
         !disk_.contains(copy.block->key, copy.group);
}

void ExtentPacker::hold(Copy& copy) {
  ram_.pin(copy);
  copy.writing = true;
  ++pinned_;
}

void ExtentPacker::let_go(Copy& copy) {
  Block& block = *copy.block;
  copy.writing = false;
  --pinned_;
  ram_.unpin(copy);
  index_.settle(block);
}

void ExtentPacker::add(Run& run, Copy& copy, std::int64_t now_ns) {
  if (!wants(copy)) return;
  if (!run.copies.empty() && copy.block->parent != run.copies.back()->block) seal(run);
  hold(copy);
  run.copies.push_back(&copy);
  run.last_ns = now_ns;
  if ((copy.block->index + 1) % extent_blocks(copy.group) == 0) seal(run);
}

void ExtentPacker::seal(Run& run) {
  if (run.copies.empty()) return;
  extend_back(run);
  queue(run.copies);
  run.copies.clear();
}

// A turn that ended inside an extent left a short one. When its 16 blocks are complete it is written once more, whole,
// and the disk tier unlinks the short one. Only where every earlier block was written here in short extents that end
// before this run begins: a full extent, or a short one of a chain that branches off, stays as it is.
void ExtentPacker::extend_back(Run& run) {
  const std::int64_t first = run.copies.front()->block->index, end = run.copies.back()->block->index + 1;
  const std::int64_t whole = extent_blocks(run.copies.front()->group), missing = first % whole;
  if (end % whole != 0 || missing == 0) return;
  std::array<Copy*, kExtentBlocks> earlier{};
  Block* b = run.copies.front()->block;
  for (std::int64_t i = missing - 1; i >= 0; --i) {
    b = b->parent;
    Copy& c = b->copies[run.copies.front()->group.v];
    if (c.state != CopyState::in_place || c.writing || c.short_extent_end < 0 || c.short_extent_end >= first) return;
    earlier[static_cast<std::size_t>(i)] = &c;
  }
  for (std::int64_t i = 0; i < missing; ++i) hold(*earlier[static_cast<std::size_t>(i)]);
  run.copies.insert(run.copies.begin(), earlier.begin(), earlier.begin() + missing);
}

WriteResult ExtentPacker::write_now(std::span<Copy* const> copies) {
  for (Copy* c : copies) hold(*c);
  return queue(copies);
}

WriteResult ExtentPacker::queue(std::span<Copy* const> copies) {
  LODE_CHECK(!copies.empty() && copies.size() <= kExtentBlocks);
  std::array<DiskBlock, kExtentBlocks> blocks;
  std::array<const std::byte*, kExtentBlocks> data{};
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Block& b = *copies[i]->block;
    blocks[i] = {.key = b.key, .parent = b.parent->key, .index = b.index, .ids = b.ids};
    data[i] = ram_.address(*copies[i]);
  }
  std::vector<Copy*> held(copies.begin(), copies.end());
  const WriteResult result = disk_.write(copies.front()->group, std::span(blocks.data(), copies.size()),
                                         std::span(data.data(), copies.size()), [this, held](bool) {
                                           for (Copy* c : held) let_go(*c);  // Not written: only in RAM then.
                                         });
  const std::int64_t end = copies.back()->block->index;
  if (result == WriteResult::queued) {
    for (Copy* c : held) c->short_extent_end = held.size() < kExtentBlocks ? end : -1;
  } else {
    dropped_ |= result == WriteResult::dropped_queue_full;
    for (Copy* c : held) let_go(*c);  // Only in RAM then; a later flush, or poll if the queue was full, tries again.
  }
  return result;
}

}  // namespace lode::kv
