// The block boundaries at which one sequence will leave a resume point: what its request asked for, the prompt's end,
// where it leaves what others have stored, and (models with recurrent layers) every so many tokens. Plain data, owned
// by its Sequence. Step thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lode::kv {

// Boundaries are block counts: boundary b lies after the first b blocks.
class ResumePlan {
 public:
  // Where less than this would be saved, a checkpoint is not worth its bytes: those of Qwen3.5 0.8B are 19 MiB, as much
  // as the KV of 1,600 tokens, and 128 tokens are computed in about a second on two cores.
  static constexpr std::int64_t kGapBlocks = 4;

  // `every` blocks; 0: nowhere but where added.
  void set_every(std::int64_t every) { every_ = every; }
  void add(std::int64_t boundary) {
    if (boundary <= 0 || listed(boundary)) return;
    boundaries_.insert(std::lower_bound(boundaries_.begin(), boundaries_.end(), boundary), boundary);
  }
  // Only where the last planned point before it, or `resumed`, is at least `gap` blocks away.
  void add_if_far(std::int64_t boundary, std::int64_t resumed, std::int64_t gap = kGapBlocks) {
    if (boundary - std::max(resumed, last_until(boundary)) >= gap) add(boundary);
  }
  // Asked for by name: not one of every so many.
  bool listed(std::int64_t boundary) const {
    return std::binary_search(boundaries_.begin(), boundaries_.end(), boundary);
  }
  bool contains(std::int64_t boundary) const {
    return (every_ > 0 && boundary > 0 && boundary % every_ == 0) || listed(boundary);
  }
  // The first planned boundary after `tokens` tokens; -1: none.
  std::int64_t next_after(std::int64_t tokens, std::int64_t block_tokens) const {
    const std::int64_t passed = tokens / block_tokens;
    const auto at = std::upper_bound(boundaries_.begin(), boundaries_.end(), passed);
    const std::int64_t next = at == boundaries_.end() ? -1 : *at;
    if (every_ == 0) return next;
    const std::int64_t regular = (passed / every_ + 1) * every_;
    return next < 0 ? regular : std::min(next, regular);
  }
  void clear() { boundaries_.clear(); }

 private:
  std::int64_t last_until(std::int64_t boundary) const {
    const auto at = std::upper_bound(boundaries_.begin(), boundaries_.end(), boundary);
    const std::int64_t listed = at == boundaries_.begin() ? 0 : *std::prev(at);
    return every_ == 0 ? listed : std::max(listed, boundary / every_ * every_);
  }

  std::vector<std::int64_t> boundaries_;  // Ascending.
  std::int64_t every_ = 0;
};

}  // namespace lode::kv
