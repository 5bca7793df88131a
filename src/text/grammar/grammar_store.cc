#include "text/grammar/grammar_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lode::text::grammar {

// Compiling happens outside the lock: it may take a second, and two requests that ask for one new grammar at once both
// do it, which costs time and no more.
template <typename Compile>
GrammarStore::Made GrammarStore::find(std::string key, Compile compile) {
  std::shared_ptr<const TokenTrie> trie;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(grammars_.begin(), grammars_.end(), [&](const auto& g) { return g.first == key; });
    if (at != grammars_.end()) {
      grammars_.splice(grammars_.begin(), grammars_, at);
      return at->second;
    }
    if (!trie_) trie_ = TokenTrie::make(tokenizer_);
    trie = trie_;
  }
  Result<Compiled> compiled = compile();
  if (!compiled.ok()) return compiled.status();
  auto made = std::make_shared<MaskCache>(std::move(*compiled), std::move(trie));
  const std::lock_guard lock(mutex_);
  grammars_.emplace_front(std::move(key), made);
  if (grammars_.size() > options_.grammars_max) grammars_.pop_back();
  return made;
}

GrammarStore::Made GrammarStore::json_schema(const nlohmann::ordered_json& schema) {
  return find("schema:" + schema.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
              [&] { return compile_json_schema(schema, options_.limits); });
}
GrammarStore::Made GrammarStore::json_object() {
  return find("object:", [&] { return compile_json_object(options_.limits); });
}
GrammarStore::Made GrammarStore::regex(std::string_view regex) {
  return find("regex:" + std::string(regex), [&] { return compile_regex(regex, options_.limits); });
}
GrammarStore::Made GrammarStore::gbnf(std::string_view text) {
  return find("gbnf:" + std::string(text), [&] { return compile_gbnf(text, options_.limits); });
}
GrammarStore::Made GrammarStore::choice(std::span<const std::string> choices) {
  std::string key = "choice:";
  for (const std::string& choice : choices) key += std::to_string(choice.size()) + ":" + choice;
  return find(std::move(key), [&] { return compile_choice(choices, options_.limits); });
}

}  // namespace lode::text::grammar
