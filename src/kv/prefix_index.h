// The tree of logical blocks: finds a chain's next block by key and compares its tokens. Owns the blocks, not the bytes
// of their copies. Step thread only.
//
// Blocks whose bytes are gone stay as stubs, up to a bound: they tell a request where it differs from what was seen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kv/block.h"

namespace lode::kv {

using Ids = std::span<const TokenId, kBlockTokens>;

class PrefixIndex {
 public:
  explicit PrefixIndex(std::size_t groups) : groups_(groups) {}
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The root of a salt's chains; made where absent.
  Block* root(std::string_view salt, const BlockKey& key);
  // The child with this key, compared by parent and tokens; nullptr: none. A key alone is never believed.
  Block* find_child(const Block& parent, const BlockKey& key, Ids ids) const;
  // The same without the tokens, and the root of a salt's chains: for looking at what is there. nullptr: none.
  Block* child_of(const Block& parent, const BlockKey& key) const;
  Block* find_root(std::string_view salt) const;
  // Some block with this key; nullptr: none.
  Block* any_with_key(const BlockKey& key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  // Whether some block of any chain has this key.
  bool has_key(const BlockKey& key) const { return by_key_.contains(key); }
  Block* add_child(Block& parent, const BlockKey& key, Ids ids);
  // The longest common run of `ids` with any child of `parent`; -1: it has no children.
  static std::int64_t closest_child(const Block& parent, std::span<const TokenId> ids);

  void ref(Block& block);
  void unref(Block& block);
  // Call after a block lost its last copy: it becomes a stub if nobody needs it.
  void settle(Block& block);
  // Removes the oldest stubs, and ancestors that become removable by it, until at most `blocks_max` blocks are left.
  void trim(std::size_t blocks_max);

  std::size_t size() const { return size_; }  // Blocks, roots not counted.
  template <typename Fn>
  void for_each(Fn&& fn) {
    for (auto& [key, head] : by_key_)
      for (Block* b = head; b; b = b->same_key) fn(*b);
  }

 private:
  void list_stub(Block& block);  // As the newest.
  void unlist_stub(Block& block);
  void erase(Block& block);
  static bool removable(const Block& b) { return b.refs == 0 && !b.first_child && b.resident == 0; }

  const std::size_t groups_;
  std::unordered_map<BlockKey, Block*, BlockKeyHash> by_key_;  // Head of the list through same_key.
  std::unordered_map<std::string, std::unique_ptr<Block>> roots_;
  Block *oldest_stub_ = nullptr, *newest_stub_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lode::kv
