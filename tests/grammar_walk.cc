// Random walks through grammars over a real vocabulary, for tests/test_grammar.py and for looking at a grammar by hand.
//
//   grammar_walk VOCAB.gguf < CASES.jsonl      one line of JSON out for each line in
//
// A case: {"schema" | "regex" | "gbnf" | "choice" | "json_object": ..., "walks": N, "seed": S, "accept": [text, ...]}.
// The answer: {"error": line} or {"documents": [text, ...], "accepted": [bool, ...], "tokens": N, "mask_us_max": x,
// "mask_us_mean": x, "compile_ms": x}. A walk draws tokens from masks under a budget of tokens that holds the shortest
// document; one that does not end in time, or whose mask is empty, gives null.
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "gguf/gguf.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"
#include "text/tokenizer.h"

namespace {

using namespace lode;
using namespace lode::text::grammar;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double micros(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

Result<Compiled> compile(const Json& c) {
  if (c.contains("schema")) return compile_json_schema(c["schema"]);
  if (c.contains("regex")) return compile_regex(c["regex"].get<std::string>());
  if (c.contains("gbnf")) return compile_gbnf(c["gbnf"].get<std::string>());
  if (c.contains("choice")) return compile_choice(c["choice"].get<std::vector<std::string>>());
  return compile_json_object();
}

struct Timing {
  double most = 0, sum = 0;
  std::int64_t masks = 0;
};

// Draws a token: often any that is allowed, often a short one, so that a walk leaves strings before its budget ends.
TokenId draw(const std::vector<std::uint32_t>& mask, const TokenTrie& trie, std::mt19937& rng) {
  std::vector<TokenId> all, brief;
  for (TokenId id = 0; id < trie.vocab_size(); ++id) {
    if (!(mask[id / 32] >> (id % 32) & 1)) continue;
    all.push_back(id);
    if (trie.text(id).size() <= 1) brief.push_back(id);
  }
  if (all.empty()) return -1;
  const auto& from = rng() % 2 == 0 && !brief.empty() ? brief : all;
  return from[rng() % from.size()];
}

// The document as JSON, or null.
Json walk(const std::shared_ptr<MaskCache>& masks, std::mt19937& rng, std::int64_t& tokens, Timing& timing) {
  Matcher m(masks);
  std::int64_t budget = m.close_tokens() + static_cast<std::int64_t>(rng() % 80);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(masks->trie()->vocab_size() + 31) / 32);
  std::string text;
  while (!m.done()) {
    const auto from = Clock::now();
    m.fill_mask(mask, budget);
    const double us = micros(from);
    timing.most = std::max(timing.most, us);
    timing.sum += us;
    ++timing.masks;
    const TokenId id = draw(mask, *masks->trie(), rng);
    if (id < 0) return nullptr;
    const auto ends = masks->trie()->ends();
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) break;
    if (!m.accept(id)) return nullptr;
    text += masks->trie()->text(id);
    --budget;
    ++tokens;
    // Where the document may end, the mask shows end tokens alone once the budget is spent.
    if (budget < 0) return nullptr;
  }
  return text;
}

Json answer(const Json& c, const std::shared_ptr<const TokenTrie>& trie) {
  const auto from = Clock::now();
  const auto compiled = compile(c);
  if (!compiled.ok()) return {{"error", compiled.status().message()}, {"code", code_name(compiled.status().code())}};
  const auto masks = std::make_shared<MaskCache>(*compiled, trie);
  Json out;
  out["compile_ms"] = micros(from) / 1000;
  out["states"] = (*compiled)->states.size();
  std::mt19937 rng(c.value("seed", 1u));
  Json documents = Json::array(), accepted = Json::array();
  std::int64_t tokens = 0;
  Timing timing;
  for (int i = 0; i < c.value("walks", 0); ++i) documents.push_back(walk(masks, rng, tokens, timing));
  for (const Json& text : c.value("accept", Json::array())) {
    Matcher m(masks);
    accepted.push_back(m.accept_bytes(text.get_ref<const std::string&>()) && m.may_end());
  }
  out["documents"] = std::move(documents);
  out["accepted"] = std::move(accepted);
  out["tokens"] = tokens;
  out["mask_us_max"] = timing.most;
  out["mask_us_mean"] = timing.masks ? timing.sum / static_cast<double>(timing.masks) : 0.0;
  out["mask_misses"] = masks->misses();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: grammar_walk VOCAB.gguf < CASES.jsonl\n");
    return 2;
  }
  const auto file = gguf::File::open(argv[1], {.metadata_only = true});
  if (!file.ok()) return fmt::print(stderr, "{}\n", file.status().message()), 1;
  const auto tokenizer = text::Tokenizer::load(**file);
  if (!tokenizer.ok()) return fmt::print(stderr, "{}\n", tokenizer.status().message()), 1;
  const auto trie = TokenTrie::make(**tokenizer);
  for (std::string line; std::getline(std::cin, line);) {
    const Json c = Json::parse(line, nullptr, false);
    if (!c.is_object()) return fmt::print(stderr, "not a JSON object: {}\n", line), 1;
    std::cout << answer(c, trie).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
