// What the keys and names of a GGUF's tokenizer say: tokenizer.ggml.pre and its aliases, BOS and EOS, spaces, special
// tokens of each kind, files that name an id wrongly. B04, B09 and B13 of the field reports, at the level of a file.
#include <gtest/gtest.h>

#include <algorithm>

#include "gguf/test_writer.h"
#include "text/pretokenizer_rules.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"

namespace lode::text {
namespace {

using test::bpe_vocab;
using test::char_vocab;
using test::OwnedVocab;
using test::spm_vocab;
using Ids = std::vector<TokenId>;

constexpr EncodeOptions kPlain{};
constexpr EncodeOptions kParse{EncodeOptions::Special::parse, EncodeOptions::Bos::none};
constexpr EncodeOptions kFull{EncodeOptions::Special::parse, EncodeOptions::Bos::model};
constexpr auto kHide = Tokenizer::Control::hide;

gguf::TestWriter writer(const OwnedVocab& v, std::string_view model) {
  gguf::TestWriter w;
  w.string("general.architecture", "llama").string("tokenizer.ggml.model", model);
  w.strings("tokenizer.ggml.tokens", v.texts);
  std::vector<std::int32_t> kinds(v.kinds.begin(), v.kinds.end());
  w.array("tokenizer.ggml.token_type", 5, kinds);
  if (!v.merge_lines.empty()) w.strings("tokenizer.ggml.merges", v.merge_lines);
  return w;
}

Result<std::unique_ptr<Tokenizer>> load(gguf::TestWriter& w) {
  const std::string bytes = w.bytes();
  auto file = gguf::File::open_bytes(std::as_bytes(std::span(bytes)), "test.gguf");
  if (!file.ok()) return file.status();
  return Tokenizer::load(**file);  // Neither file nor bytes outlive this.
}

TEST(VocabKeys, B04EveryNameLoadsWithoutAWarning) {
  for (const PreTokenizerRule& rule : pretokenizer_rules()) {
    for (const std::string_view name : rule.names) {
      auto v = bpe_vocab(name);
      auto t = v.tokenizer();
      ASSERT_TRUE(t) << name;
      EXPECT_TRUE(t->warnings().empty()) << name;
      EXPECT_EQ(t->decode(t->encode("the é 12\n\n ab", kPlain), kHide), "the é 12\n\n ab") << name;
      EXPECT_EQ(t->encode("a", kFull).size(), rule.adds_bos ? 2u : 1u) << name;
    }
  }
}

TEST(VocabKeys, B04UnknownNameIsOneLoudLineThatNamesIt) {
  auto v = bpe_vocab("x");
  auto w = writer(v, "gpt2");
  w.string("tokenizer.ggml.pre", "brand-new");
  auto t = load(w);
  ASSERT_TRUE(t.ok()) << t.status().message();
  ASSERT_EQ((*t)->warnings().size(), 1u);
  EXPECT_NE((*t)->warnings()[0].find("tokenizer.ggml.pre is \"brand-new\""), std::string::npos);
  EXPECT_NE((*t)->warnings()[0].find("\"default\""), std::string::npos);
}

TEST(VocabKeys, UnknownModelIsRefusedByName) {
  auto v = bpe_vocab("x");
  auto w = writer(v, "bert");
  auto t = load(w);
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::unsupported);
  EXPECT_NE(t.status().message().find("\"bert\""), std::string::npos);
}

TEST(VocabKeys, WholeWordsSkipTheMergesWhereTheNameSaysSo) {
  // "cab" is a token that no merge makes.
  for (const auto& [name, whole] :
       {std::pair("llama-bpe", true), {"tekken", true}, {"dbrx", false}, {"gpt-4o", false}}) {
    auto v = bpe_vocab(name);
    const TokenId cab = v.add("cab");
    const Ids ids = v.tokenizer()->encode("cab", kPlain);
    EXPECT_EQ(ids == Ids{cab}, whole) << name;
  }
}

TEST(VocabKeys, Gemma4TakesRunsOfLineEndsWhole) {
  auto v = char_vocab();
  auto t = v.tokenizer();
  ASSERT_TRUE(t->warnings().empty()) << t->warnings()[0];
  EXPECT_EQ(t->encode("a\n\n\nb", kPlain).size(), 3u);
  EXPECT_EQ(t->token_bytes(t->encode("a\n\n\nb", kPlain)[1], kHide), "\n\n\n");
  EXPECT_EQ(t->encode("\n\n\n\n", kPlain).size(), 4u);  // No such token, and no merges either.
}

TEST(VocabKeys, Gemma4AlwaysBeginsWithBos) {
  auto v = char_vocab();
  EXPECT_EQ(v.tokenizer()->encode("a", kFull).front(), 2);
  v.data.add_bos = false;
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("a", kFull).front(), 2);
  ASSERT_EQ(t->warnings().size(), 1u);
  EXPECT_NE(t->warnings()[0].find("add_bos_token"), std::string::npos);
}

TEST(VocabKeys, RelativesOfGemma4AreNamedByThePreTokenizer) {
  for (const char* pre : {"gemma4", "mmbert", "sarvam-moe"}) {
    auto v = char_vocab();
    auto w = writer(v, "gpt2");
    w.string("tokenizer.ggml.pre", pre).u32("tokenizer.ggml.bos_token_id", 2);
    auto t = load(w);
    ASSERT_TRUE(t.ok()) << t.status().message();
    EXPECT_EQ((*t)->encode("the the", kPlain), v.tokenizer()->encode("the the", kPlain)) << pre;
  }
}

TEST(VocabKeys, TiktokenFilesWithoutMergesRankByNumber) {
  OwnedVocab v = bpe_vocab("kimi-k2");
  v.merge_lines.clear();
  v.add("bc");  // Ranks below "ab" and "abc".
  auto w = writer(v, "gpt2");
  w.string("tokenizer.ggml.pre", "kimi-k2");
  auto t = load(w);
  ASSERT_TRUE(t.ok()) << t.status().message();
  std::vector<std::string> pieces;
  for (const TokenId id : (*t)->encode(" the abcbc", kPlain)) pieces.push_back((*t)->token_bytes(id, kHide));
  EXPECT_EQ(pieces, (std::vector<std::string>{" the", " ", "abc", "bc"}));
  auto merged = writer(v, "gpt2");
  merged.string("tokenizer.ggml.pre", "smollm");
  EXPECT_EQ(load(merged).status().code(), Code::corrupt);  // Any other file needs its merges.
}

TEST(VocabKeys, BosAndEosAsTheFileSays) {
  for (const int bos : {0, 1}) {
    for (const int eos : {0, 1}) {
      auto v = bpe_vocab("smollm");
      const TokenId end = v.add("<end>", TokenKind::control);
      auto w = writer(v, "gpt2");
      w.string("tokenizer.ggml.pre", "smollm").boolean("tokenizer.ggml.add_bos_token", bos);
      w.boolean("tokenizer.ggml.add_eos_token", eos);
      w.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", end);
      auto t = load(w);
      ASSERT_TRUE(t.ok()) << t.status().message();
      Ids want = (*t)->encode("ab", kPlain);
      if (bos) want.insert(want.begin(), 0);
      if (eos) want.push_back(end);
      EXPECT_EQ((*t)->encode("ab", kFull), want);
      EXPECT_EQ((*t)->encode("<|endoftext|>ab<end>", kFull).size(), 3u);  // B09: neither of them twice.
    }
  }
}

TEST(VocabKeys, BosThatIsNoTokenIsNotAdded) {
  auto v = bpe_vocab("llama-bpe");
  v.data.bos = -1;
  v.data.add_bos = true;
  EXPECT_EQ(v.tokenizer()->encode("ab", kFull), v.tokenizer()->encode("ab", kPlain));
}

TEST(VocabKeys, B13MarksOfFillingInEndGeneration) {
  auto v = bpe_vocab("qwen2");
  const TokenId pad = v.add("<|fim_pad|>"), repo = v.add("<|repo_name|>", TokenKind::user_defined);
  const TokenId file = v.add("<|file_sep|>"), begin = v.add("<|fim_prefix|>"),
                named = v.add("<odd>", TokenKind::control);
  v.data.fim_pad = named;
  auto t = v.tokenizer();
  for (const TokenId id : {pad, repo, file, named}) EXPECT_TRUE(t->is_end_of_generation(id)) << id;
  EXPECT_FALSE(t->is_end_of_generation(begin));
  for (const TokenId id : {pad, repo, file, begin}) EXPECT_EQ(t->kind(id), TokenKind::control) << id;
  for (const TokenId id : t->encode("<|fim_prefix|><|repo_name|>", kPlain)) EXPECT_NE(t->kind(id), TokenKind::control);
  EXPECT_EQ(t->encode("<|fim_prefix|>", kParse), Ids{begin});
}

// Adds the tokens, and for BPE the merges, that would make `name` from its letters, one letter after another.
void add_the_way_to(OwnedVocab& v, const std::string& name) {
  for (std::size_t size = 2; size <= name.size(); ++size) {
    if (size < name.size()) v.add(name.substr(0, size), TokenKind::normal, 100 + static_cast<double>(size));
    if (v.data.model == VocabModel::spm) continue;
    v.add(name.substr(size - 1, 1));
    v.merge(name.substr(0, size - 1) + " " + name.substr(size - 1, 1));
  }
  v.add(name, TokenKind::control, 1000);
}

// Every control token of a vocabulary, written out in a user's text, is that text and nothing else.
TEST(Special, ControlTokensCannotBeForged) {
  for (const char* model : {"spm", "bpe", "whole words", "char"}) {
    OwnedVocab v = model[0] == 's' ? spm_vocab() : model[0] == 'c' ? char_vocab() : bpe_vocab("smollm");
    if (model[0] == 'w') v.data.pre = "llama-bpe";
    const std::vector<std::string> names = {"<|im_start|>", "<|im_end|>", "<|eot_id|>", "[INST]", "<end_of_turn>",
                                            "<|tool|>",     "\u2581<X>",  "<0x0A>",     " ",      "ab"};
    for (const std::string& name : names) v.add(name, TokenKind::control);
    for (const char* name : {"zqx", "<zz>"}) add_the_way_to(v, name);
    auto t = v.tokenizer();
    ASSERT_TRUE(t);
    ASSERT_EQ(t->encode("zq", kPlain).size(), v.data.model == VocabModel::spm ? 2u : 1u);  // The way is there.
    for (TokenId id = 0; id < t->vocab_size(); ++id) {
      if (t->kind(id) != TokenKind::control) continue;
      const std::string text = v.texts[id] + " " + v.texts[id] + "y" + v.texts[id];
      for (const auto bos : {EncodeOptions::Bos::none, EncodeOptions::Bos::model}) {
        const Ids ids = t->encode(text, {EncodeOptions::Special::text, bos});
        const std::size_t around = bos == EncodeOptions::Bos::none ? 0 : t->encode("", kFull).size();
        EXPECT_EQ(std::ranges::count_if(ids, [&](TokenId i) { return t->kind(i) == TokenKind::control; }), around)
            << model << ": " << text;
      }
      EXPECT_NE(std::ranges::count(t->encode(text, kParse), id), 0) << model << ": " << text;
    }
  }
}

// Found by the fuzzer: the token for what cannot be spelled was control in the file.
TEST(Special, TextThatCannotBeSpelledGivesNoControlToken) {
  for (const char* name : {"<unk>", "<|end|>"}) {
    OwnedVocab v;
    v.add(name, TokenKind::control);
    v.add("a");
    auto t = v.tokenizer();
    ASSERT_TRUE(t);
    const Ids ids = t->encode("aq", {});
    EXPECT_EQ(std::ranges::count_if(ids, [&](TokenId i) { return t->kind(i) == TokenKind::control; }), 0) << name;
    EXPECT_EQ(std::ranges::count(ids, 0) > 0, std::string_view(name) == "<unk>");
  }
}

TEST(Special, ModesAreOfTheCall) {
  auto v = bpe_vocab("gpt-2");
  const TokenId control = v.add("<ctl>", TokenKind::control), user = v.add("<usr>", TokenKind::user_defined);
  const TokenId normal = v.add("<nrm>"), unused = v.add("<unu>", TokenKind::unused);
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("<ctl>", kParse), Ids{control});
  EXPECT_NE(t->encode("<ctl>", kPlain), Ids{control});
  EXPECT_EQ(t->encode("<usr>", kParse), Ids{user});
  EXPECT_EQ(t->encode("<usr>", kPlain), Ids{user});
  // What the file calls normal or unused is text: only merges could make it.
  for (const TokenId id : {normal, unused}) EXPECT_NE(t->encode(v.texts[id], kParse), Ids{id});
  EXPECT_EQ(t->decode(Ids{control, user}, kHide), "<usr>");
  EXPECT_EQ(t->decode(Ids{control, user}, Tokenizer::Control::show), "<ctl><usr>");
}

TEST(Special, LongestFirstThenLeftmost) {
  auto v = bpe_vocab("gpt-2");
  const TokenId a = v.add("<a>", TokenKind::control), ab = v.add("<a><b>", TokenKind::control);
  const TokenId b = v.add("<b>", TokenKind::user_defined), bc = v.add("b><c", TokenKind::control);
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("<a><b>", kParse), Ids{ab});
  EXPECT_EQ(t->encode("<a><a><b>", kParse), (Ids{a, ab}));
  EXPECT_EQ(t->encode("<b><b>", kParse), (Ids{b, b}));
  // "<a><b>" is longer than "b><c", which overlaps it, and is taken first; the rest is text.
  EXPECT_EQ(t->encode("<a><b><c", kParse).front(), ab);
  EXPECT_EQ(std::ranges::count(t->encode("<a><b><c", kParse), bc), 0);
  EXPECT_EQ(std::ranges::count(t->encode("<b><c", kParse), bc), 1);
  // As text the control tokens do not hide the user-defined one inside.
  EXPECT_EQ(std::ranges::count(t->encode("<a><b>", kPlain), b), 1);
}

TEST(Special, PhiSwallowsWhitespaceAfterItsTokens) {
  auto v = spm_vocab();
  v.data.add_space_prefix = false;
  v.data.model_name = "Phi-3-mini";
  const TokenId user = v.add("<|user|>", TokenKind::control);
  auto t = v.tokenizer();
  EXPECT_EQ(t->encode("<|user|>\n \tab", kParse), t->encode("<|user|>ab", kParse));
  EXPECT_EQ(t->encode("<|user|>  ", kParse), Ids{user});
  EXPECT_NE(t->encode("<s> ab", kParse), t->encode("<s>ab", kParse));
  EXPECT_NE(t->encode("<|user|> ab", kPlain), t->encode("<|user|>ab", kPlain));
}

TEST(Special, MasksSwallowWhitespaceBeforeThem) {
  auto v = bpe_vocab("jina-v2-code");
  const TokenId mask = v.add("<mask>", TokenKind::control);
  auto t = v.tokenizer();
  Ids want = t->encode("ab", kPlain);
  want.push_back(mask);
  EXPECT_EQ(t->encode("ab \n <mask>", kParse), want);
  auto other = bpe_vocab("gpt-2");
  other.add("<mask>", TokenKind::control);
  EXPECT_NE(other.tokenizer()->encode("ab  <mask>", kParse), other.tokenizer()->encode("ab<mask>", kParse));
}

TEST(VocabKeys, SpacePrefixFollowsTheKeyAndTheSpecials) {
  auto v = spm_vocab();
  for (const int prefix : {0, 1}) {
    auto w = writer(v, "llama");
    w.boolean("tokenizer.ggml.add_space_prefix", prefix);
    auto t = load(w);
    ASSERT_TRUE(t.ok()) << t.status().message();
    EXPECT_EQ((*t)->adds_space_prefix(), prefix == 1);
    const auto spaces = [&](std::string_view text) {
      std::string bytes;
      for (const TokenId id : (*t)->encode(text, kParse)) bytes += (*t)->token_bytes(id, kHide);
      return std::ranges::count(bytes, ' ');
    };
    EXPECT_EQ(spaces("ab"), prefix);
    EXPECT_EQ(spaces("<s>ab</s>ab"), 2 * prefix);
    EXPECT_EQ(spaces("<s></s>"), 0);
    EXPECT_EQ(spaces(""), 0);
  }
}

}  // namespace
}  // namespace lode::text
