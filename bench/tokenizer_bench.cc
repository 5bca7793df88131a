// Tokenizer speed: MB/s of encode on English text, source code and text without spaces, of each pre-tokenizer rule
// alone, and the load time. Needs models/; run from the repository's root.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace {

using namespace lode;
using namespace lode::text;

constexpr const char* kModels[] = {"models/gemma-3-270m-q4_k_m.gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"};

std::unique_ptr<Tokenizer> open_tokenizer(const char* path) {
  auto file = gguf::File::open(path, {.metadata_only = true});
  if (!file.ok()) return nullptr;
  auto out = Tokenizer::load(**file);
  return out.ok() ? std::move(*out) : nullptr;
}

std::string file_text(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string sample(int kind) {
  std::string out;
  switch (kind) {
    case 0: out = file_text("/usr/share/common-licenses/GPL-3"); break;
    case 1: out = file_text("src/text/vocab.cc") + file_text("src/text/special_matcher.cc"); break;
    default:
      // CJK text: characters drawn by a small generator, no spaces.
      for (std::uint32_t i = 1, x = 1; i < 12000; ++i) {
        x = x * 1664525u + 1013904223u;
        const std::uint32_t c = 0x4E00 + (x >> 16) % (i % 7 == 0 ? 6000 : 400);
        out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                static_cast<char>(0x80 | (c & 0x3F))};
      }
  }
  return out;
}

void encode(benchmark::State& state) {
  const auto tokenizer = open_tokenizer(kModels[state.range(0)]);
  const std::string text = sample(static_cast<int>(state.range(1)));
  if (!tokenizer || text.empty()) return state.SkipWithError("model or text is absent");
  std::size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->encode(text, {});
    benchmark::DoNotOptimize(ids.data());
    tokens = ids.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(encode)->ArgNames({"model", "text"})->ArgsProduct({{0, 1}, {0, 1, 2}})->Unit(benchmark::kMillisecond);

// Every word is new: a fresh tokenizer finds none of its entries in the thread's word cache.
void encode_cold(benchmark::State& state) {
  const std::string text = sample(0);
  std::unique_ptr<Tokenizer> tokenizer;  // Out here, so that its end is not timed.
  for (auto _ : state) {
    state.PauseTiming();
    tokenizer = open_tokenizer(kModels[state.range(0)]);
    if (!tokenizer || text.empty()) return state.SkipWithError("model or text is absent");
    state.ResumeTiming();
    benchmark::DoNotOptimize(tokenizer->encode(text, {}).size());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(encode_cold)->ArgName("model")->DenseRange(0, 1)->Iterations(10)->Unit(benchmark::kMillisecond);

void cut_words(benchmark::State& state) {
  const std::string_view rule = pretokenizer_rules()[state.range(0)].names[0];
  state.SetLabel(std::string(rule));
  std::string warning;
  const auto pre = PreTokenizer::make(rule, PreTokenizer::Engine::fastest, &warning);
  const std::string text = sample(static_cast<int>(state.range(1)));
  if (!pre.ok() || text.empty()) return state.SkipWithError("rule or text is absent");
  std::vector<std::size_t> ends;
  for (auto _ : state) {
    ends.clear();
    pre->split(text, ends);
    benchmark::DoNotOptimize(ends.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(cut_words)
    ->ArgNames({"rule", "text"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, static_cast<std::int64_t>(pretokenizer_rules().size()) - 1, 1),
                   {0, 2}})
    ->Unit(benchmark::kMillisecond);

void load(benchmark::State& state) {
  auto file = gguf::File::open(kModels[state.range(0)], {.metadata_only = true});
  if (!file.ok()) return state.SkipWithError("model is absent");
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(**file).ok());
}
BENCHMARK(load)->ArgName("model")->DenseRange(0, 1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
