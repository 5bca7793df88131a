// Fuzz target: any bytes as a JSON Schema, a regular expression, a GBNF grammar or a choice give a grammar or one line
// of error, within bounds; walks through its masks take what the masks allow, end within their budget, and their text
// is a document again. The first byte picks the notation, the second seeds the walk.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"
#include "text/test_vocab.h"

namespace {

using namespace lode;
using namespace lode::text;
using namespace lode::text::grammar;
using Json = nlohmann::ordered_json;

// Small enough that a hostile input takes milliseconds.
constexpr CompileLimits kLimits{
    .source_bytes_max = 1 << 14, .nodes_max = 20'000, .states_max = 10'000, .work_max = 1'000'000};

const std::shared_ptr<const TokenTrie>& trie() {
  static const auto made = [] {
    auto v = text::test::bpe_vocab("llama-bpe");
    for (const char* piece : {"{\"", "\":", "\",", "\"}", "]}", "12", "0,", "true", "\\u", "\\\"", "[[", "aaaa"})
      v.add(piece);
    return TokenTrie::make(*v.tokenizer());
  }();
  return made;
}

Result<Compiled> compile(std::uint8_t kind, std::string_view text) {
  switch (kind % 4) {
    case 0: {
      const Json json = Json::parse(text, nullptr, false);
      if (json.is_discarded()) return Status::invalid("no JSON");
      return compile_json_schema(json, kLimits);
    }
    case 1: return compile_regex(text, kLimits);
    case 2: return compile_gbnf(text, kLimits);
    default: {
      std::vector<std::string> choices;
      for (std::size_t pos = 0; pos <= text.size();) {
        const std::size_t end = std::min(text.find('\n', pos), text.size());
        choices.emplace_back(text.substr(pos, end - pos));
        pos = end + 1;
      }
      return compile_choice(choices, kLimits);
    }
  }
}

bool allows(const std::vector<std::uint32_t>& mask, TokenId id) {
  return mask[id / 32] >> (id % 32) & 1;
}

void walk(const std::shared_ptr<MaskCache>& masks, std::mt19937& rng) {
  Matcher m(masks);
  std::int64_t budget = m.close_tokens() + static_cast<std::int64_t>(rng() % 16);
  if (budget > 300) return;  // As long as it says; the mask then walks for every token.
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(trie()->vocab_size() + 31) / 32);
  std::string text;
  while (!m.done() && (budget > 0 || !m.may_end())) {
    m.fill_mask(mask, budget);
    std::vector<TokenId> allowed;
    for (TokenId id = 1; id < trie()->vocab_size(); ++id) {
      if (allows(mask, id)) allowed.push_back(id);
    }
    LODE_CHECK(allows(mask, 0) == m.may_end());
    // Readings that were dropped may have been the ones that closed in time.
    if (allowed.empty() || budget <= 0) {
      LODE_CHECK(m.may_end() || m.dropped());
      break;
    }
    const TokenId id = allowed[rng() % allowed.size()];
    if (!m.accept(id)) {
      LODE_CHECK(m.dropped());
      return;
    }
    text += trie()->text(id);
    --budget;
  }
  if (m.dropped()) return;
  LODE_CHECK(m.may_end());
  Matcher again(masks);
  LODE_CHECK((again.accept_bytes(text) && again.may_end()) || again.dropped());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto compiled = compile(data[0], text);
  if (!compiled.ok()) {
    LODE_CHECK(!compiled.status().message().empty() && compiled.status().code() != Code::internal);
    return 0;
  }
  const auto masks = std::make_shared<MaskCache>(*compiled, trie(), MaskCacheOptions{.bytes = 1 << 16});
  std::mt19937 rng(data[1]);
  for (int i = 0; i < 3; ++i) walk(masks, rng);
  // A JSON Schema's documents are JSON.
  if (data[0] % 4 == 0) {
    Matcher m(masks);
    std::string forced;
    m.forced_bytes(forced, 64);
    LODE_CHECK(forced.find('\n') == std::string::npos);
  }
  return 0;
}
