// Text that a grammar forces, as the tokens a tokenizer spells it with. src/text/grammar; one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "text/grammar/matcher.h"
#include "text/tokenizer.h"

namespace lode::text::grammar {

// Appends to `out` the tokens that must come next, at most `most`, and accepts them in `matcher`. `last`: the latest
// tokens of the text, at most a handful. What is exact: the bytes are the only ones that the grammar allows, and the
// tokens are those that the tokenizer gives the text from `last` on, whichever of the characters that the grammar
// allows comes after them. Where the tokenizer would spell `last` itself otherwise, or where the end hangs on what
// follows, nothing is appended, or less. `budget` as for fill_mask: what is appended leaves the document closable.
void append_forced(const Tokenizer& tokenizer, std::span<const TokenId> last, std::int64_t budget, std::size_t most,
                   Matcher& matcher, std::vector<TokenId>& out);

}  // namespace lode::text::grammar
