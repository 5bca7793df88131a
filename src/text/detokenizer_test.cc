// Streams of tokens that cut characters anywhere: B06 and B07 of the field reports.
#include <gtest/gtest.h>

#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lode::text {
namespace {

using test::bpe_vocab;
using test::spm_vocab;

bool is_utf8(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid()) return false;
    pos += c.bytes;
  }
  return true;
}

// In bpe_vocab the token of a byte is the byte + 1.
std::vector<TokenId> byte_tokens(std::string_view bytes) {
  std::vector<TokenId> out;
  for (const char c : bytes) out.push_back(static_cast<std::uint8_t>(c) + 1);
  return out;
}

std::string stream(const Tokenizer& t, std::span<const TokenId> ids) {
  Detokenizer d(t);
  std::string out;
  for (const TokenId id : ids) {
    const std::string piece = d.push(id);
    EXPECT_TRUE(is_utf8(piece));
    out += piece;
  }
  return out + d.flush();
}

TEST(Detokenizer, B06NeverHalfACharacter) {
  auto v = bpe_vocab("gpt-2");
  auto t = v.tokenizer();
  Detokenizer d(*t);
  const auto emoji = byte_tokens("😊");
  EXPECT_EQ(d.push(emoji[0]), "");
  EXPECT_EQ(d.push(emoji[1]), "");
  EXPECT_EQ(d.push(emoji[2]), "");
  EXPECT_EQ(d.push(emoji[3]), "😊");
  EXPECT_EQ(d.flush(), "");
  for (const char* text : {"漢字かな", "é😊a", "👨‍👩‍👧", "\u0800\uFFFD\U0010FFFF"}) {
    EXPECT_EQ(stream(*t, byte_tokens(text)), text);
    EXPECT_EQ(t->decode(byte_tokens(text), Tokenizer::Control::hide), text);
  }
}

TEST(Detokenizer, B07InvalidBytesBecomeReplacementCharacters) {
  auto v = bpe_vocab("gpt-2");
  auto t = v.tokenizer();
  // Expected as Unicode recommends: one U+FFFD for each longest start of a character, one for every other byte.
  const std::pair<const char*, const char*> cases[] = {
      {"\xF0", "\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xFF\xFE", "\uFFFD\uFFFD"},
      {"\xE2\x82"
       "a",
       "\uFFFDa"},
      {"\xF0\x9F\x98"
       "😊",
       "\uFFFD😊"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xE2\xE2\x82\xAC", "\uFFFD€"},
      {"a\x80", "a\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(stream(*t, byte_tokens(bytes)), text);
    EXPECT_EQ(t->decode(byte_tokens(bytes), Tokenizer::Control::hide), text);
  }
}

TEST(Detokenizer, B07HoldsAtMostThreeBytes) {
  auto v = bpe_vocab("gpt-2");
  auto t = v.tokenizer();
  std::mt19937 rng(4);
  for (int round = 0; round < 500; ++round) {
    Detokenizer d(*t);
    std::string bytes, out;
    int silent = 0;
    for (int i = 0; i < 60; ++i) {
      const char b =
          "\x80\xBF\xC2\xE0\xA0\xED\xF0\x90\xF4\xFF"
          "a"[rng() % 11];
      bytes += b;
      const std::string piece = d.push(static_cast<std::uint8_t>(b) + 1);
      ASSERT_TRUE(is_utf8(piece));
      silent = piece.empty() ? silent + 1 : 0;
      ASSERT_LE(silent, 3);
      out += piece;
    }
    const std::string rest = d.flush();
    ASSERT_TRUE(rest.empty() || rest == "\uFFFD");
    ASSERT_EQ(out + rest, t->decode(byte_tokens(bytes), Tokenizer::Control::hide));
  }
}

TEST(Detokenizer, StreamEqualsWholeForRandomIds) {
  auto spm = spm_vocab(), bpe = bpe_vocab("smollm");
  spm.add("<b>", TokenKind::user_defined);
  std::mt19937 rng(9);
  for (auto* v : {&spm, &bpe}) {
    auto t = v->tokenizer();
    for (int round = 0; round < 500; ++round) {
      std::vector<TokenId> ids;
      for (int i = rng() % 30; i > 0; --i) ids.push_back(static_cast<TokenId>(rng() % (t->vocab_size() + 2)) - 1);
      ASSERT_EQ(stream(*t, ids), t->decode(ids, Tokenizer::Control::hide));
    }
  }
}

TEST(Detokenizer, ControlTokensAreHiddenOrShown) {
  auto v = spm_vocab();
  auto t = v.tokenizer();
  const std::vector<TokenId> ids = t->encode("<s>hello</s>", {EncodeOptions::Special::parse, EncodeOptions::Bos::none});
  EXPECT_EQ(t->decode(ids, Tokenizer::Control::hide), "hello");
  EXPECT_EQ(t->decode(ids, Tokenizer::Control::show), "<s>hello</s>");
  Detokenizer shown(*t, {.control = Tokenizer::Control::show});
  EXPECT_EQ(shown.push(2), "</s>");
}

}  // namespace
}  // namespace lode::text
