// Walks a part of the vocabulary's tree beside a grammar: every token whose bytes can come is visited. src/text/grammar
// only.
#pragma once

#include <array>
#include <cstdint>

#include "text/grammar/stacks.h"
#include "text/grammar/token_trie.h"

namespace lode::text::grammar {

// The lists of one walk, one a byte of depth. Reused: as a local it would be 10 KiB to clear a walk.
struct WalkFrames {
  struct Frame {
    Stacks::List list;
    Stacks::Mark mark;
  };
  std::array<Frame, TokenTrie::kTokenBytesMax + 1> at;
};

// Visits the nodes below `top` that can be reached from `from`, in preorder, as visit(node, step), while `stacks` has
// work. The pools of `stacks` are as before at the end. One step a node: the tree is scanned, subtrees that cannot come
// are skipped.
template <typename Visit>
void walk_trie(const TokenTrie& trie, std::uint32_t top, Stacks& stacks, Stacks::List from, WalkFrames& walk,
               Visit visit) {
  auto& frames = walk.at;
  const auto nodes = trie.nodes();
  const std::uint32_t base = nodes[top].depth, end = nodes[top].skip;
  frames[0] = {from, stacks.mark()};
  for (std::uint32_t i = top + 1; i < end && stacks.has_work();) {
    const TokenTrie::Node& node = nodes[i];
    const std::uint32_t depth = node.depth - base;
    const WalkFrames::Frame& above = frames[depth - 1];
    stacks.cut(above.mark);
    const Stacks::Step step = stacks.step(above.list, node.byte);
    if (step.list.empty()) {
      i = node.skip;
      continue;
    }
    visit(i, step);
    frames[depth] = {step.list, stacks.mark()};
    ++i;
  }
  stacks.cut(frames[0].mark);
}

}  // namespace lode::text::grammar
