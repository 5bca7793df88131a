#include "text/grammar/forced_tokens.h"

#include <algorithm>
#include <string>

namespace lode::text::grammar {
namespace {

// Looking further costs more than the tokens would: a step's forced text is a key or two.
constexpr std::size_t kForcedBytesMax = 256;

// What may come behind a forced text, one of each kind that tokenizers treat alike.
constexpr std::string_view kProbes[] = {" ", "\"", "a", "A", "0",  "-", "t",  "f", "n", "{", "[",
                                        "}", "]",  ",", ":", "\\", "_", "\n", ".", "é", "漢"};

// How many of `ids` every continuation of the text shares.
std::size_t certain(const Tokenizer& tokenizer, const std::string& text, const std::vector<TokenId>& ids,
                    Matcher behind) {
  if (behind.may_end()) return behind.done() ? ids.size() : 0;
  std::size_t sure = ids.size();
  bool probed = false;
  for (const std::string_view probe : kProbes) {
    Matcher other(behind);
    if (!other.accept_bytes(probe)) continue;
    probed = true;
    const auto longer = tokenizer.encode(text + std::string(probe), {});
    const auto end =
        std::mismatch(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(sure), longer.begin(), longer.end());
    sure = static_cast<std::size_t>(end.first - ids.begin());
  }
  return probed ? sure : 0;
}

}  // namespace

void append_forced(const Tokenizer& tokenizer, std::span<const TokenId> last, std::int64_t budget, std::size_t most,
                   Matcher& matcher, std::vector<TokenId>& out) {
  // At the text's start, what stands before it is not known; and a tokenizer that puts a blank first spells no tail.
  if (last.empty() || tokenizer.adds_space_prefix()) return;
  std::string forced;
  matcher.forced_bytes(forced, kForcedBytesMax);
  if (forced.size() < 2) return;
  std::string text;
  for (const TokenId id : last) text += matcher.masks().trie()->text(id);
  const std::size_t tail = text.size();
  text += forced;
  const auto ids = tokenizer.encode(text, {});
  if (ids.size() <= last.size() || !std::equal(last.begin(), last.end(), ids.begin())) return;
  Matcher behind(matcher);
  if (!behind.accept_bytes(forced)) return;
  std::size_t sure = std::min(certain(tokenizer, text, ids, behind), last.size() + most);
  // The bytes must be those very ones, each token text.
  std::size_t bytes = tail;
  for (std::size_t i = last.size(); i < sure; ++i) {
    const std::string_view token = matcher.masks().trie()->text(ids[i]);
    if (token.empty() || std::string_view(text).substr(bytes, token.size()) != token) sure = i;
    bytes += token.size();
  }
  if (sure <= last.size()) return;
  Matcher after(matcher);
  for (std::size_t i = last.size(); i < sure; ++i) {
    if (!after.accept(ids[i])) return;
  }
  const auto taken = static_cast<std::int64_t>(sure - last.size());
  const bool closable = budget >= 0 && matcher.close_tokens() <= budget;
  if (closable && taken + after.close_tokens() > budget) return;
  for (std::size_t i = last.size(); i < sure; ++i) {
    if (!matcher.accept(ids[i])) return;
    out.push_back(ids[i]);
  }
}

}  // namespace lode::text::grammar
