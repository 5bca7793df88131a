// Hostile texts of a megabyte, for every kind of vocabulary: the work may grow with the text, and no faster.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/test_data.h"
#include "text/merge.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"

namespace lode::text {
namespace {

constexpr std::size_t kBytes = 1 << 20;

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string out;
  out.reserve(bytes + unit.size());
  while (out.size() < bytes) out += unit;
  return out;
}

constexpr std::string_view kUnits[] = {"a", " ",  "\n",           "\u0301", "<|",   "'",
                                       "1", "ab", "<|im_start|>", "<s> ",   "\xFF", "漢"};

// Of the processor, so that other programs do not count.
double seconds_of(const auto& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Each takes 5 to 150 ms where nothing else runs; a quadratic step would take an hour.
void expect_fast(const Tokenizer& t, std::string_view what) {
  std::vector<TokenId> ids;
  for (const std::string_view unit : kUnits) {
    const std::string text = repeated(unit, kBytes);
    const EncodeOptions parse{EncodeOptions::Special::parse, EncodeOptions::Bos::none};
    EXPECT_LT(seconds_of([&] { ids = t.encode(text, parse); }), 1.0) << what << ": " << unit;
    EXPECT_FALSE(ids.empty()) << what << ": " << unit;
    if (unit[0] != '<') continue;
    EXPECT_LT(seconds_of([&] { ids = t.encode(text, {}); }), 1.0) << what << ": " << unit;
  }
  // The last ids are the most: one for each byte that begins or continues a character.
  std::string back;
  EXPECT_LT(seconds_of([&] { back = t.decode(ids, Tokenizer::Control::show); }), 1.0) << what;
  EXPECT_GE(back.size(), kBytes) << what;
}

TEST(LinearTime, SentencePieceInUnderASecond) {
  auto v = test::spm_vocab();
  v.add("<|im_start|>", TokenKind::control);
  for (int i = 2; i < 32; ++i) v.add(std::string(i, '\n'), TokenKind::user_defined);
  expect_fast(*v.tokenizer(), "spm");
}

TEST(LinearTime, SentencePieceThatSwallowsWhitespaceInUnderASecond) {
  auto v = test::spm_vocab();
  v.data.model_name = "phi-3";
  v.add("<|im_start|>", TokenKind::control);
  v.add("<|", TokenKind::control);
  expect_fast(*v.tokenizer(), "phi-3");
}

TEST(LinearTime, ByteBpeInUnderASecond) {
  for (const char* pre : {"smollm", "deepseek-v3"}) {
    auto v = test::bpe_vocab(pre);
    v.add("<|im_start|>", TokenKind::control);
    expect_fast(*v.tokenizer(), pre);
  }
}

TEST(LinearTime, CharacterBpeInUnderASecond) {
  auto v = test::char_vocab();
  v.add("<|im_start|>", TokenKind::control);
  expect_fast(*v.tokenizer(), "gemma4");
}

TEST(RealModels, LinearTimeOfGemma3InUnderASecond) {
  const auto path = lode::test::models() / "gemma-3-270m-q4_k_m.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; scripts/setup.sh fetches it";
  auto file = gguf::File::open(path, {.metadata_only = true});
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto t = Tokenizer::load(**file);
  ASSERT_TRUE(t.ok()) << t.status().message();
  expect_fast(**t, "gemma3");
}

// What the heap asks of the vocabulary: once for each pair at first, twice for each merge.
TEST(LinearTime, MergingAsksAtMostThreeTimesASymbol) {
  auto v = test::spm_vocab();
  auto vocab = Vocab::make(v.done());
  ASSERT_TRUE(vocab.ok());
  for (const char* unit : {" ", "abc", "hello", "a", "the and "}) {
    const std::string text = repeated(unit, 100'000);
    MergeScratch s;
    for (std::uint32_t i = 0; i < text.size(); ++i) s.symbols.push_back({i, i + 1, -1});
    std::size_t asked = 0, asked_bytes = 0;
    merge_symbols(s, [&](const Symbol& left, const Symbol& right) {
      ++asked;
      asked_bytes += right.end - left.begin;
      return vocab->find(std::string_view(text).substr(left.begin, right.end - left.begin));
    });
    EXPECT_LE(asked, 3 * text.size()) << unit;
    EXPECT_LE(asked_bytes, 30 * text.size()) << unit;
  }
}

// The three ways to merge differ in speed alone. Priorities here are few (many equals), and a merge's result may merge
// again before, with or after what is being merged.
TEST(LinearTime, BucketsMergeInTheOrderOfTheHeap) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const std::uint32_t letters = 1 + random() % 4, priorities = 1 + random() % 40, salt = random();
    const auto look = [&](const Symbol& left, const Symbol& right) {
      const std::uint32_t mix =
          (static_cast<std::uint32_t>(left.id) * 31 + static_cast<std::uint32_t>(right.id)) ^ salt;
      const std::uint32_t hash = (mix * 0x9E3779B1u) >> 12;
      if (hash % 4 == 0) return Merge{};
      return Merge{hash % priorities, static_cast<TokenId>(hash % 23)};
    };
    MergeScratch heap, buckets;
    const std::uint32_t size = 1 + random() % 300;
    for (std::uint32_t i = 0; i < size; ++i)
      heap.symbols.push_back({i, i + 1, static_cast<TokenId>(random() % letters)});
    buckets.symbols = heap.symbols;
    auto scan = heap;
    merge_by_scan(scan, look);
    merge_by_heap(heap, look);
    merge_by_bucket(buckets, look);
    const auto same = [](const Symbol& a, const Symbol& b) {
      return a.begin == b.begin && a.end == b.end && a.id == b.id;
    };
    ASSERT_TRUE(std::ranges::equal(heap.symbols, scan.symbols, same)) << round;
    ASSERT_TRUE(std::ranges::equal(heap.symbols, buckets.symbols, same)) << round;
  }
}

// A word of 12 MB: with a heap alone 12 s of blanks, most of it waiting for memory.
TEST(LinearTime, AWordOfTwelveMegabytesTakesSecondsOnly) {
  auto v = test::bpe_vocab("smollm");
  const auto tokenizer = v.tokenizer();
  for (const char* unit : {" ", "a", "ab"}) {
    const std::string text = repeated(unit, 12'000'000);
    EXPECT_LT(seconds_of([&] { EXPECT_FALSE(tokenizer->encode(text, {}).empty()); }), 2.4) << unit;
  }
}

}  // namespace
}  // namespace lode::text
