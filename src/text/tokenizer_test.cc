// Encoding rules on small vocabularies: B04, B09, B11, B13 of the field reports, round trips, merging, and vocabularies
// that a damaged or malicious file could hold.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "text/merge.h"
#include "text/test_vocab.h"

namespace lode::text {
namespace {

using test::bpe_vocab;
using test::OwnedVocab;
using test::spm_vocab;
using Ids = std::vector<TokenId>;

constexpr EncodeOptions kPlain{};
constexpr EncodeOptions kParse{EncodeOptions::Special::parse, EncodeOptions::Bos::none};
constexpr EncodeOptions kFull{EncodeOptions::Special::parse, EncodeOptions::Bos::model};
constexpr auto kHide = Tokenizer::Control::hide;
constexpr auto kShow = Tokenizer::Control::show;

// The text of every token, one by one: what the ids mean, readable in a failure.
std::vector<std::string> pieces(const Tokenizer& t, const Ids& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(t.token_bytes(id, kShow));
  return out;
}

TEST(Tokenizer, B04UnknownPreTokenizerIsAWarning) {
  auto known = bpe_vocab("smollm");
  EXPECT_TRUE(known.tokenizer()->warnings().empty());
  auto unknown = bpe_vocab("never-heard-of");
  auto t = unknown.tokenizer();
  ASSERT_EQ(t->warnings().size(), 1u);
  EXPECT_NE(t->warnings()[0].find("never-heard-of"), std::string::npos);
  auto gpt2 = bpe_vocab("gpt-2");
  EXPECT_EQ(t->encode("12 in  the é", kPlain), gpt2.tokenizer()->encode("12 in  the é", kPlain));
  auto missing = bpe_vocab("");
  missing.data.pre.reset();
  ASSERT_EQ(missing.tokenizer()->warnings().size(), 1u);
}

TEST(Tokenizer, B04DigitsAndAccentsAreCutAsTheRuleSays) {
  auto smollm = bpe_vocab("smollm"), gpt2 = bpe_vocab("gpt-2");
  EXPECT_EQ(pieces(*smollm.tokenizer(), smollm.tokenizer()->encode("12é", kPlain)),
            (std::vector<std::string>{"1", "2", "é"}));
  EXPECT_EQ(pieces(*gpt2.tokenizer(), gpt2.tokenizer()->encode("12é", kPlain)), (std::vector<std::string>{"12", "é"}));
}

TEST(Tokenizer, B09ExactlyOneBos) {
  auto v = spm_vocab();
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("hello", kFull).front(), 1);
  EXPECT_EQ(std::ranges::count(t->encode("hello", kFull), 1), 1);
  EXPECT_EQ(t->encode("<s>hello", kFull), t->encode("hello", kFull));
  EXPECT_EQ(t->encode("", kFull), Ids{1});
  EXPECT_EQ(t->encode("<s>", kFull), Ids{1});
  EXPECT_EQ(t->encode("", kPlain), Ids{});
  // A second BOS that the text itself holds further on is the text's own affair.
  EXPECT_EQ(std::ranges::count(t->encode("<s>a<s>", kFull), 1), 2);
  // Not parsed: "<s>" is text, and BOS goes before it.
  const Ids text = t->encode("<s>", {EncodeOptions::Special::text, EncodeOptions::Bos::model});
  EXPECT_EQ(text.front(), 1);
  EXPECT_EQ(std::ranges::count(text, 1), 1);
  v.data.add_bos = false;
  v.data.add_eos = true;
  t = v.tokenizer();
  EXPECT_EQ(std::ranges::count(t->encode("hello", kFull), 1), 0);
  EXPECT_EQ(t->encode("hello</s>", kFull), t->encode("hello", kFull));
  auto bpe = bpe_vocab("smollm");
  EXPECT_EQ(bpe.tokenizer()->encode("ab", kFull),
            bpe.tokenizer()->encode("ab", kPlain));  // BPE adds none by default...
  auto llama3 = bpe_vocab("llama-bpe");
  EXPECT_EQ(llama3.tokenizer()->encode("ab", kFull).front(), 0);  // ...but Llama 3's does.
}

TEST(Tokenizer, B11RoundTripNeitherAddsNorEatsASpace) {
  for (const bool prefix : {true, false}) {
    auto v = spm_vocab();
    v.data.add_space_prefix = prefix;
    auto t = v.tokenizer();
    for (const char* text : {"abc", " abc", "  abc", "   abc ", "", " ", "  ", "the and", "_ leading _x", "\n abc"}) {
      const Ids ids = t->encode(text, kPlain);
      EXPECT_EQ(t->decode(ids, kHide), text);
      Detokenizer stream(*t);
      std::string streamed;
      for (const TokenId id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.flush(), text);
    }
    EXPECT_EQ(t->decode(t->encode("<s> abc</s>x</s>  y", kParse), kShow), "<s> abc</s>x</s>  y");
  }
}

TEST(Tokenizer, B11StreamOfAReplyKeepsItsLeadingSpace) {
  auto v = spm_vocab();
  auto t = v.tokenizer();
  TokenId leading = 0;
  while (leading < t->vocab_size() && t->token_bytes(leading, kHide) != " leading") ++leading;
  ASSERT_LT(leading, t->vocab_size());
  Detokenizer reply(*t, {.start = Detokenizer::Start::continuation});
  EXPECT_EQ(reply.push(leading), " leading");
  EXPECT_EQ(reply.push(leading), " leading");
  Detokenizer whole(*t);
  EXPECT_EQ(whole.push(leading), "leading");
  EXPECT_EQ(whole.push(leading), " leading");
}

TEST(Tokenizer, B13EveryTurnEndStops) {
  auto v = bpe_vocab("llama-bpe");
  const TokenId eot = v.add("<|eot_id|>", TokenKind::control), eom = v.add("<|eom_id|>", TokenKind::user_defined);
  const TokenId im_end = v.add("<|im_end|>"), odd = v.add("<odd>", TokenKind::control);
  const TokenId named = v.add("<named>", TokenKind::control);
  v.data.eot = named;
  auto t = v.tokenizer();
  for (const TokenId id : {0, eot, eom, im_end, named}) {
    EXPECT_TRUE(t->is_end_of_generation(id)) << id;
    EXPECT_EQ(t->token_bytes(id, kHide), "") << id;
    EXPECT_NE(t->token_bytes(id, kShow), "") << id;
  }
  EXPECT_FALSE(t->is_end_of_generation(odd));
  EXPECT_FALSE(t->is_end_of_generation(-1));
  EXPECT_FALSE(t->is_end_of_generation(1 << 30));
  EXPECT_EQ(t->encode("<|im_end|>", kParse), Ids{im_end});
}

TEST(Tokenizer, HarmonyMessageEndIsNotATurnEnd) {
  auto v = bpe_vocab("gpt-2");
  const TokenId end = v.add("<|end|>", TokenKind::control);
  EXPECT_TRUE(v.tokenizer()->is_end_of_generation(end));
  const TokenId done = v.add("<|return|>", TokenKind::control), call = v.add("<|call|>", TokenKind::control);
  auto t = v.tokenizer();
  EXPECT_FALSE(t->is_end_of_generation(end));
  EXPECT_TRUE(t->is_end_of_generation(done));
  EXPECT_TRUE(t->is_end_of_generation(call));
}

TEST(Tokenizer, TextNeverBecomesAControlToken) {
  auto v = spm_vocab();
  v.data.add_space_prefix = false;
  v.add("<");
  v.add(">");
  v.add("s");
  v.add("<s");
  v.add("s>");
  v.add("0x0A");
  v.add("<0x0A");
  const TokenId user = v.add("<b>", TokenKind::user_defined);
  // A turn end that the file calls normal is a control token all the same, even where pieces would merge to it.
  v.add("<EO");
  v.add("E");
  v.add("O");
  v.add("T");
  v.add("<E");
  v.add("<EOT");
  const TokenId eot = v.add("<EOT>");
  auto t = v.tokenizer();
  EXPECT_EQ(pieces(*t, t->encode("<EOT>", kPlain)), (std::vector<std::string>{"<EOT", ">"}));
  EXPECT_EQ(t->encode("<EOT>", kParse), Ids{eot});
  EXPECT_EQ(pieces(*t, t->encode("<s>", kPlain)), (std::vector<std::string>{"<s", ">"}));
  for (const TokenId id : t->encode("<0x0A><s></s><unk>", kPlain)) EXPECT_NE(t->kind(id), TokenKind::control);
  EXPECT_EQ(t->decode(t->encode("<0x0A>", kPlain), kHide), "<0x0A>");
  EXPECT_EQ(t->encode("<s>", kParse), Ids{1});
  EXPECT_EQ(t->encode("<b>", kPlain), Ids{user});
  EXPECT_EQ(t->encode("<b>", kParse), Ids{user});
}

TEST(Tokenizer, MergesBestScoreFirstThenLeftmost) {
  auto v = spm_vocab();
  v.data.add_space_prefix = false;
  auto t = v.tokenizer();
  EXPECT_EQ(pieces(*t, t->encode("abc", kPlain)), std::vector<std::string>{"abc"});
  EXPECT_EQ(pieces(*t, t->encode("bcab", kPlain)), (std::vector<std::string>{"bc", "ab"}));
  // "he" outranks "lo" and "hel": he+l = hel; hel+lo = hello.
  EXPECT_EQ(pieces(*t, t->encode("hello", kPlain)), std::vector<std::string>{"hello"});
  EXPECT_EQ(pieces(*t, t->encode("     a", kPlain)), (std::vector<std::string>{"    ", " a"}));
}

TEST(Tokenizer, TokensOfRawSpacesAreOnlyCutOutWhole) {
  auto v = spm_vocab();
  v.data.add_space_prefix = false;
  const TokenId user = v.add("  b", TokenKind::user_defined, 100);
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("  b", kPlain), Ids{user});
  // Written with U+2581 the text is not that token's; it merges as two spaces and a letter do.
  EXPECT_EQ(pieces(*t, t->encode("\u2581\u2581b", kPlain)), (std::vector<std::string>{"  ", "b"}));
}

TEST(Merge, ScanAndHeapAgree) {
  auto v = spm_vocab();
  auto vocab = Vocab::make(v.done());
  ASSERT_TRUE(vocab.ok());
  std::mt19937 rng(2);
  MergeScratch a, b;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = rng() % 60; i >= 0; --i) text += "abchelo  "[rng() % 9];
    a.symbols.clear();
    for (std::uint32_t i = 0; i < text.size(); ++i) a.symbols.push_back({i, i + 1, -1});
    b.symbols = a.symbols;
    const auto look = [&](const Symbol& l, const Symbol& r) {
      return vocab->find(std::string_view(text).substr(l.begin, r.end - l.begin));
    };
    merge_by_scan(a, look);
    merge_by_heap(b, look);
    ASSERT_EQ(a.symbols.size(), b.symbols.size()) << text;
    for (std::size_t i = 0; i < a.symbols.size(); ++i) {
      ASSERT_EQ(a.symbols[i].begin, b.symbols[i].begin) << text;
      ASSERT_EQ(a.symbols[i].id, b.symbols[i].id) << text;
    }
  }
}

TEST(Tokenizer, RoundTripsRandomText) {
  auto spm = spm_vocab(), bare = spm_vocab(), bpe = bpe_vocab("smollm"), llama3 = bpe_vocab("llama-bpe");
  bare.data.add_space_prefix = false;
  std::mt19937 rng(11);
  for (auto* v : {&spm, &bare, &bpe, &llama3}) {
    auto t = v->tokenizer();
    for (int round = 0; round < 1500; ++round) {
      std::string text = test::random_text(rng, rng() % 40);
      for (int i = rng() % 5; i > 0; --i) {
        const char32_t c = rng() % 0x110000;
        if (c != 0x2581 && (c < 0xD800 || c >= 0xE000)) test::append_utf8(text, c);
      }
      ASSERT_EQ(t->decode(t->encode(text, kPlain), kHide), text);
    }
  }
}

TEST(Tokenizer, InvalidUtf8BecomesByteTokens) {
  auto spm = spm_vocab(), bpe = bpe_vocab("gpt-2");
  for (auto* v : {&spm, &bpe}) {
    auto t = v->tokenizer();
    const std::string text = "a\xFF\xE2\x96 b\xC0\x80\xF0\x9F\x98";
    std::string bytes;
    for (const TokenId id : t->encode(text, kPlain)) bytes += t->token_bytes(id, kHide);
    EXPECT_EQ(bytes.substr(bytes.size() - text.size()), text);  // SPM puts a space before it.
  }
}

TEST(Tokenizer, LongPiecesAreNotQuadratic) {
  auto v = spm_vocab();
  auto t = v.tokenizer();
  for (const char* unit : {"abc", "a", " ", "\xFF"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_FALSE(t->encode(text, kPlain).empty());
  }
}

TEST(Tokenizer, SeveralTokenizersAndThreadsShareTheWordCache) {
  auto a = spm_vocab(), b = bpe_vocab("gpt-2");
  auto ta = a.tokenizer(), tb = b.tokenizer();
  const Ids wa = ta->encode("the abc the abc", kPlain), wb = tb->encode("the abc the abc", kPlain);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      for (int i = 0; i < 200; ++i) {
        wrong[n] += ta->encode("the abc the abc", kPlain) != wa;
        wrong[n] += tb->encode("the abc the abc", kPlain) != wb;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreNothing) {
  auto v = spm_vocab();
  auto t = v.tokenizer();
  for (const TokenId id :
       {-1, t->vocab_size(), std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
    EXPECT_EQ(t->token_bytes(id, kShow), "");
    EXPECT_EQ(t->kind(id), TokenKind::unknown);
    EXPECT_EQ(t->decode(std::vector<TokenId>{id}, kShow), "");
  }
}

// What the error must name.
void expect_refused(OwnedVocab& v, std::string_view named) {
  auto out = make_tokenizer(v.done());
  ASSERT_FALSE(out.ok()) << named;
  EXPECT_EQ(out.status().code(), Code::corrupt);
  EXPECT_NE(out.status().message().find(named), std::string::npos) << out.status().message();
}

TEST(HostileVocab, IdsOutOfRange) {
  for (const std::int64_t id : {std::int64_t{1} << 40, std::int64_t{100000}}) {
    auto v = spm_vocab();
    v.data.bos = id;
    expect_refused(v, "bos_token_id");
    v = spm_vocab();
    v.data.eot = id;
    expect_refused(v, "eot_token_id");
  }
  auto v = spm_vocab();
  v.data.bos = 0xFFFFFFFF;  // Some converters write "none" so.
  v.data.eos = -1;
  auto t = v.tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->bos(), -1);
  EXPECT_EQ(t->encode("", kFull), Ids{});
}

TEST(HostileVocab, ArraysOfOtherLengths) {
  auto v = spm_vocab();
  v.scores.pop_back();
  expect_refused(v, "scores");
  v = spm_vocab();
  v.kinds.push_back(1);
  expect_refused(v, "token_type");
  OwnedVocab none;
  expect_refused(none, "tokens");
}

TEST(HostileVocab, ValuesThatCannotBe) {
  auto v = spm_vocab();
  v.kinds[5] = 77;
  expect_refused(v, "token_type[5]");
  v = spm_vocab();
  v.scores[270] = std::nan("");
  expect_refused(v, "scores[270]");
  v = spm_vocab();
  v.texts[9] = "<0xZZ>";
  expect_refused(v, "tokens[9]");
  v = spm_vocab();
  v.add(std::string(70000, 'a'));
  expect_refused(v, "70000");
  v = spm_vocab();
  v.scores[270] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(v.tokenizer());
}

TEST(HostileVocab, MalformedMerges) {
  for (const char* line : {"", "a", " ", "a ", " a", "ab"}) {
    auto v = bpe_vocab("gpt-2");
    v.merge(line);
    expect_refused(v, "merges[9]");
  }
  auto v = bpe_vocab("gpt-2");
  v.merge("q q");
  v.merge("\xFF\xFE b");
  v.merge("a b c");
  auto t = v.tokenizer();
  ASSERT_TRUE(t);
  ASSERT_EQ(t->warnings().size(), 1u);
  EXPECT_NE(t->warnings()[0].find("3 of 12 merges"), std::string::npos) << t->warnings()[0];
}

TEST(HostileVocab, EmptyAndDuplicatedTokens) {
  auto v = spm_vocab();
  v.add("");
  v.add("", TokenKind::user_defined);
  v.add("", TokenKind::control);
  const TokenId twin = v.add("abc");
  auto t = v.tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->warnings().size(), 1u);
  const Ids ids = t->encode("abc abc", kParse);
  EXPECT_EQ(std::ranges::count(ids, twin), 0);
  EXPECT_EQ(t->decode(ids, kHide), "abc abc");
}

TEST(HostileVocab, NoByteTokensGivesTheUnknownTokenOrNothing) {
  OwnedVocab v;
  v.add("<unk>", TokenKind::unknown);
  v.add("▁");
  v.add("a");
  v.data.bos = v.data.eos = -1;
  auto t = v.tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->warnings().size(), 1u);
  EXPECT_EQ(t->encode("ab", kPlain), (Ids{1, 2, 0}));
  v.data.unknown = -1;
  EXPECT_EQ(v.tokenizer()->encode("ab", kPlain), (Ids{1, 2}));
  OwnedVocab one;
  one.add("x");
  ASSERT_TRUE(one.tokenizer());
  EXPECT_EQ(one.tokenizer()->encode("x", kFull).back(), 0);
}

TEST(HostileVocab, TokensOfBrokenUtf8) {
  auto v = spm_vocab();
  for (const char* text : {"\xFF", "\xE2", "\x96\x81", "a\xE2\x96", "\xF0\x9F", "\x98\x8A"}) v.add(text);
  auto t = v.tokenizer();
  ASSERT_TRUE(t);
  std::mt19937 rng(3);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = rng() % 20; i >= 0; --i) text += "a\xFF\xE2\x96\xF0\x9F\x98\x8A"[rng() % 8];
    std::string bytes;
    for (const TokenId id : t->encode(text, kPlain)) bytes += t->token_bytes(id, kHide);
    ASSERT_EQ(bytes, " " + text);
  }
}

}  // namespace
}  // namespace lode::text
