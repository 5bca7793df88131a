// The grammars of one vocabulary that requests have asked for, compiled once and kept with their masks. Owns them; any
// thread. One a model.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/mask_cache.h"
#include "text/tokenizer.h"

namespace lode::text::grammar {

struct GrammarStoreOptions {
  std::size_t grammars_max = 32;  // The least recently asked for goes; texts that use it keep it alive.
  CompileLimits limits;
};

class GrammarStore {
 public:
  using Options = GrammarStoreOptions;
  // Keeps a reference to the tokenizer. The vocabulary's tree is built by the first grammar: 60 ms for 150,000 tokens.
  explicit GrammarStore(const Tokenizer& tokenizer, const Options& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  using Made = Result<std::shared_ptr<MaskCache>>;
  Made json_schema(const nlohmann::ordered_json& schema);
  Made json_object();
  Made regex(std::string_view regex);
  Made gbnf(std::string_view text);
  Made choice(std::span<const std::string> choices);

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  template <typename Compile>
  Made find(std::string key, Compile compile);

  const Tokenizer& tokenizer_;
  Options options_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  std::list<std::pair<std::string, std::shared_ptr<MaskCache>>> grammars_;  // The latest first.
};

}  // namespace lode::text::grammar
