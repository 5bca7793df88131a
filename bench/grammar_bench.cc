// What constrained output costs a token: masks from a warm cache along a document, the first mask of a state, compiling
// a schema, joining it with a vocabulary. Vocabularies of models/ and ../shared/data/vocab; run from the repository's
// root.
#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>

#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

namespace {

using namespace lode;
using namespace lode::text;
using namespace lode::text::grammar;

constexpr const char* kVocabularies[] = {"models/SmolLM2-135M-Instruct.Q4_1.gguf", "../shared/data/vocab/phi-3.gguf",
                                         "../shared/data/vocab/llama-bpe.gguf",    "../shared/data/vocab/qwen2.gguf",
                                         "models/gemma-3-270m-q4_k_m.gguf",        "../shared/data/vocab/gemma-4.gguf"};
constexpr const char* kSchema = R"({"type":"object","properties":{
  "id":{"type":"integer","minimum":1,"maximum":99999},"name":{"type":"string","maxLength":80},
  "email":{"type":"string","format":"email"},"role":{"enum":["admin","editor","viewer"]},
  "created":{"type":"string","format":"date-time"},"score":{"type":"number","minimum":0,"maximum":1},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":10},
  "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string",
    "pattern":"^[0-9]{5}$"}},"required":["street","city"],"additionalProperties":false},
  "notes":{"type":"string"}},"required":["id","name","email","role"],"additionalProperties":false})";
constexpr const char* kDocument =
    R"({"id": 4711, "name": "Grace Brewster Hopper", "email": "grace.hopper@navy.example.com", "role": "admin", )"
    R"("created": "1952-05-01T09:30:00Z", "score": 0.875, "tags": ["compilers", "COBOL", "Harvard Mark I", "rear admiral"], )"
    R"("address": {"street": "1 Navy Yard, Building \"B\"", "city": "Arlington", "zip": "22202"}, "notes": "She wrote the )"
    R"(first compiler, and said that it is easier to ask forgiveness than it is to get permission."})";

struct Vocabulary {
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
};
const Vocabulary* vocabulary(benchmark::State& state) {
  static std::map<std::int64_t, Vocabulary> open;
  auto& v = open[state.range(0)];
  if (!v.tokenizer) {
    auto file = gguf::File::open(kVocabularies[state.range(0)], {.metadata_only = true});
    if (!file.ok()) return nullptr;
    auto made = Tokenizer::load(**file);
    if (!made.ok()) return nullptr;
    v.tokenizer = std::move(*made);
    v.trie = TokenTrie::make(*v.tokenizer);
  }
  state.SetLabel(std::to_string(v.trie->vocab_size()) + " tokens");
  return &v;
}
Compiled compiled(bool any_object) {
  auto out = any_object ? compile_json_object() : compile_json_schema(nlohmann::ordered_json::parse(kSchema));
  return out.ok() ? *out : nullptr;
}
std::vector<TokenId> document(const Vocabulary& v) {
  auto ids = v.tokenizer->encode(kDocument, {});
  // Some tokenizers put a blank first, which no document has.
  if (!ids.empty() && v.trie->text(ids[0]).starts_with(" "))
    ids = v.tokenizer->encode(kDocument + 1, {}), ids[0] = v.tokenizer->encode("{", {})[0];
  return ids;
}

// One document's masks and accepts. 0: a JSON object; 1: the schema.
void walk(benchmark::State& state, bool warm) {
  const Vocabulary* v = vocabulary(state);
  if (v == nullptr) return state.SkipWithError("the vocabulary is absent");
  const Compiled grammar = compiled(state.range(1) == 0);
  std::string text;
  for (const TokenId id : document(*v)) text += v->trie->text(id);
  const auto ids = document(*v);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(v->trie->vocab_size() + 31) / 32);
  auto masks = std::make_shared<MaskCache>(grammar, v->trie);
  std::int64_t tokens = 0, misses = 0;
  const auto run = [&] {
    Matcher m(masks);
    for (const TokenId id : ids) {
      m.fill_mask(mask, 1000);
      benchmark::DoNotOptimize(mask.data());
      if (!m.accept(id)) return false;
      ++tokens;
    }
    return true;
  };
  if (!run()) return state.SkipWithError("the document is refused");
  tokens = 0;
  for (auto _ : state) {
    if (!warm) {
      state.PauseTiming();
      masks = std::make_shared<MaskCache>(grammar, v->trie);
      state.ResumeTiming();
    }
    run();
    misses += masks->misses();
  }
  state.counters["us_per_token"] =
      benchmark::Counter(static_cast<double>(tokens) / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["tokens"] = static_cast<double>(ids.size());
  if (!warm) state.counters["misses"] = static_cast<double>(misses) / static_cast<double>(state.iterations());
}
void warm_masks(benchmark::State& state) {
  walk(state, true);
}
void cold_masks(benchmark::State& state) {
  walk(state, false);
}
BENCHMARK(warm_masks)
    ->ArgNames({"vocab", "schema"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cold_masks)
    ->ArgNames({"vocab", "schema"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// The dearest state: inside a string, where nearly every token may come.
void string_miss(benchmark::State& state) {
  const Vocabulary* v = vocabulary(state);
  if (v == nullptr) return state.SkipWithError("the vocabulary is absent");
  const Compiled grammar = compiled(true);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(v->trie->vocab_size() + 31) / 32);
  for (auto _ : state) {
    state.PauseTiming();
    Matcher m(std::make_shared<MaskCache>(grammar, v->trie));
    m.accept_bytes("{\"a");
    state.ResumeTiming();
    m.fill_mask(mask);
    benchmark::DoNotOptimize(mask.data());
  }
}
BENCHMARK(string_miss)->ArgName("vocab")->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

// Near the end of a budget masks are walked, not looked up.
void budget_walk(benchmark::State& state) {
  const Vocabulary* v = vocabulary(state);
  if (v == nullptr) return state.SkipWithError("the vocabulary is absent");
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(v->trie->vocab_size() + 31) / 32);
  Matcher m(std::make_shared<MaskCache>(compiled(true), v->trie));
  m.accept_bytes("{\"a\":[[{\"b");
  for (auto _ : state) {
    m.fill_mask(mask, m.close_tokens() + 1);
    benchmark::DoNotOptimize(mask.data());
  }
}
BENCHMARK(budget_walk)->ArgName("vocab")->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

void compile(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(compiled(state.range(0) == 0));
}
BENCHMARK(compile)->ArgName("schema")->DenseRange(0, 1)->Unit(benchmark::kMillisecond);

void join(benchmark::State& state) {
  const Vocabulary* v = vocabulary(state);
  if (v == nullptr) return state.SkipWithError("the vocabulary is absent");
  const Compiled grammar = compiled(false);
  for (auto _ : state) benchmark::DoNotOptimize(std::make_shared<MaskCache>(grammar, v->trie));
}
BENCHMARK(join)->ArgName("vocab")->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

void make_trie(benchmark::State& state) {
  const Vocabulary* v = vocabulary(state);
  if (v == nullptr) return state.SkipWithError("the vocabulary is absent");
  for (auto _ : state) benchmark::DoNotOptimize(TokenTrie::make(*v->tokenizer));
  state.counters["nodes"] = static_cast<double>(v->trie->nodes().size());
}
BENCHMARK(make_trie)->ArgName("vocab")->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
