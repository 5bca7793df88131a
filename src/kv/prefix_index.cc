#include "kv/prefix_index.h"

#include <algorithm>

#include "base/status.h"

namespace lode::kv {
namespace {

// Children compared for a miss's reason; a prefix with more is a busy one, and any of them explains it.
constexpr int kChildrenCompared = 256;

void add_copies(Block& block, std::size_t groups) {
  block.copies.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    block.copies[g].block = &block;
    block.copies[g].group = GroupId{static_cast<std::uint32_t>(g)};
  }
}

}  // namespace

PrefixIndex::~PrefixIndex() {
  for (auto& [key, head] : by_key_)
    for (Block* b = head; b;) {
      Block* next = b->same_key;
      delete b;
      b = next;
    }
}

Block* PrefixIndex::root(std::string_view salt, const BlockKey& key) {
  auto& slot = roots_[std::string(salt)];
  if (!slot) {
    slot = std::make_unique<Block>();
    slot->key = key;
  }
  return slot.get();
}

Block* PrefixIndex::find_child(const Block& parent, const BlockKey& key, Ids ids) const {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  for (Block* b = it->second; b; b = b->same_key)
    if (b->parent == &parent && std::equal(ids.begin(), ids.end(), b->ids.begin())) return b;
  return nullptr;
}

Block* PrefixIndex::child_of(const Block& parent, const BlockKey& key) const {
  const auto it = by_key_.find(key);
  for (Block* b = it == by_key_.end() ? nullptr : it->second; b; b = b->same_key)
    if (b->parent == &parent) return b;
  return nullptr;
}

Block* PrefixIndex::find_root(std::string_view salt) const {
  const auto it = roots_.find(std::string(salt));
  return it == roots_.end() ? nullptr : it->second.get();
}

Block* PrefixIndex::add_child(Block& parent, const BlockKey& key, Ids ids) {
  auto* b = new Block;
  b->key = key;
  b->parent = &parent;
  b->index = parent.index + 1;
  std::copy(ids.begin(), ids.end(), b->ids.begin());
  add_copies(*b, groups_);
  if (parent.stub) unlist_stub(parent);
  b->next_sibling = parent.first_child;
  if (parent.first_child) parent.first_child->previous_sibling = b;
  parent.first_child = b;
  Block*& head = by_key_[key];
  b->same_key = head;
  head = b;
  ++size_;
  return b;
}

std::int64_t PrefixIndex::closest_child(const Block& parent, std::span<const TokenId> ids) {
  std::int64_t best = -1;
  int left = kChildrenCompared;
  for (const Block* b = parent.first_child; b && left > 0; b = b->next_sibling, --left) {
    const auto end = std::mismatch(ids.begin(), ids.end(), b->ids.begin(), b->ids.end()).first;
    best = std::max<std::int64_t>(best, end - ids.begin());
  }
  return best;
}

void PrefixIndex::ref(Block& block) {
  if (block.stub) unlist_stub(block);
  ++block.refs;
}

void PrefixIndex::unref(Block& block) {
  LODE_CHECK(block.refs > 0);
  --block.refs;
  settle(block);
}

void PrefixIndex::settle(Block& block) {
  if (!removable(block) || block.stub) return;
  if (block.root()) {
    std::erase_if(roots_, [&](const auto& entry) { return entry.second.get() == &block; });
    return;
  }
  list_stub(block);
}

void PrefixIndex::list_stub(Block& block) {
  block.stub = true;
  block.older_stub = newest_stub_;
  if (newest_stub_) newest_stub_->newer_stub = &block;
  else oldest_stub_ = &block;
  newest_stub_ = &block;
}

void PrefixIndex::unlist_stub(Block& block) {
  (block.older_stub ? block.older_stub->newer_stub : oldest_stub_) = block.newer_stub;
  (block.newer_stub ? block.newer_stub->older_stub : newest_stub_) = block.older_stub;
  block.older_stub = block.newer_stub = nullptr;
  block.stub = false;
}

void PrefixIndex::trim(std::size_t blocks_max) {
  while (size_ > blocks_max && oldest_stub_) {
    // A whole chain of stubs hangs on its last block: follow it up, so that the oldest chain goes first and whole.
    Block* b = oldest_stub_;
    while (b && size_ > blocks_max) {
      Block* parent = b->parent;
      erase(*b);
      if (!removable(*parent)) break;
      if (parent->root()) {
        settle(*parent);
        break;
      }
      b = parent;
      if (size_ <= blocks_max) settle(*b);
    }
  }
}

void PrefixIndex::erase(Block& block) {
  for (const Copy& c : block.copies) LODE_CHECK(c.pins == 0 && c.state == CopyState::none);
  if (block.stub) unlist_stub(block);
  Block* parent = block.parent;
  (block.previous_sibling ? block.previous_sibling->next_sibling : parent->first_child) = block.next_sibling;
  if (block.next_sibling) block.next_sibling->previous_sibling = block.previous_sibling;
  const auto it = by_key_.find(block.key);
  Block** at = &it->second;
  while (*at != &block) at = &(*at)->same_key;
  *at = block.same_key;
  if (!it->second) by_key_.erase(it);
  --size_;
  delete &block;
}

}  // namespace lode::kv
