// What an answer may look like, as the engine sees it: before each draw a set of allowed tokens, after each draw the
// token that was taken. A grammar, a JSON Schema or a regex implements it (text/grammar); the engine knows none of
// them.
//
// Life: whoever reads the client's request makes one Constraint and hands it over in Request::constraint. The engine
// never changes that one: each choice works on a clone() of its own, made when the request is submitted, and only the
// step thread touches the clone from then on. What clones share (a compiled grammar, cached masks) must therefore be
// immutable, or locked.
//
// A step, for one sequence, in this order:
//   1. set_tokens_left(n)   how many tokens the answer may still have, the one about to be drawn included;
//   2. fill_mask(mask)      which tokens may come now;
//   3. the sampler sets every other logit aside, applies its own filters to what is left, and draws;
//   4. accept(token)        the draw, unless it is an end-of-generation token: that one ends the answer (finish
//   "stop");
//   5. done()               true: the answer is complete and ends here (finish "stop"), without an end token;
//   6. forced(out)          tokens that must come next. They are appended to the answer and run through the model as a
//                           chunk of a prompt is, with no draw between them; the constraint has accepted them itself.
//
// Costs: at 150,000 tokens of vocabulary a step has 50 us for all of it (5% of a fast model's token). Nothing here may
// allocate in the common case, recurse by what a client sent, or throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace lode::engine {

class Constraint {
 public:
  virtual ~Constraint() = default;

  // Words of a mask over `vocab` tokens: token t is bit t % 32 of word t / 32.
  static constexpr std::size_t mask_words(std::int64_t vocab) { return static_cast<std::size_t>((vocab + 31) / 32); }
  static constexpr bool allows(std::span<const std::uint32_t> mask, TokenId t) {
    return (mask[static_cast<std::size_t>(t) / 32] >> (static_cast<std::uint32_t>(t) % 32) & 1u) != 0;
  }
  static constexpr void allow(std::span<std::uint32_t> mask, TokenId t) {
    mask[static_cast<std::size_t>(t) / 32] |= 1u << (static_cast<std::uint32_t>(t) % 32);
  }

  // Writes every word of `mask` (mask_words(vocab) of them; what is in there before is of no meaning; bits past the
  // vocabulary are ignored). A set bit means that the token may come now. End-of-generation tokens are set exactly
  // where the answer may end; control and unused tokens otherwise never (field report E16).
  // At least one bit is set unless done(). Should none be, the request fails with one clear line; it never crashes.
  virtual void fill_mask(std::span<std::uint32_t> mask) = 0;

  // The token that was taken. False: it is not allowed here (only where the caller did not keep to the mask), and the
  // state is as before. Never called with an end-of-generation token.
  virtual bool accept(TokenId token) = 0;

  // Nothing may follow any more but the end.
  virtual bool done() const = 0;

  // Appends the tokens that must come next, whatever the model says, and accepts them: afterwards the state is behind
  // them. `most` bounds their number. What is appended must be how the tokenizer spells that text after what is there,
  // so that no split arises that the model never saw; where that is in doubt, append nothing: the mask does the same
  // work, a token at a time. Nothing by default.
  virtual void forced(std::vector<TokenId>& out, std::size_t most) {
    (void)out;
    (void)most;
  }

  // At least how many more tokens a complete answer takes from here, an end token not counted; 0 where it may end now.
  // An upper bound of the shortest way, so that keeping to it is always possible: one byte token a byte is one.
  virtual std::int64_t closing_cost() const { return 0; }

  // How many tokens may still come (max_tokens or the context's end), before each fill_mask. Once this is near
  // closing_cost(), fill_mask must allow only tokens after which the rest of the way still fits: that is how an answer
  // stays a whole document at max_tokens. Where not even the shortest document ever fitted, the mask goes on as if
  // there were no bound, and the answer ends with "length". -1: no bound.
  virtual void set_tokens_left(std::int64_t tokens) { (void)tokens; }

  // The same state, to go on from independently. Cheap: what is large is shared.
  virtual std::unique_ptr<Constraint> clone() const = 0;
};

}  // namespace lode::engine
