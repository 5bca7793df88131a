// Vocabularies and checks for the tests of src/text/grammar. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"
#include "text/test_vocab.h"

namespace lode::text::grammar::test {

// Pieces of JSON that cross every kind of border, and runs longer than what a mask tells apart one by one.
inline constexpr const char* kPieces[] = {"{\"",
                                          "\":",
                                          "\": ",
                                          "\": \"",
                                          "\",",
                                          "\", \"",
                                          "\"}",
                                          "\"]",
                                          "}}",
                                          "]}",
                                          "},",
                                          "}, {",
                                          "],",
                                          "[[",
                                          "[\"",
                                          "[{",
                                          "[[[[[[[[",
                                          "{}",
                                          "[]",
                                          "0,",
                                          "1]",
                                          "12",
                                          "123",
                                          "1.5",
                                          "-1",
                                          "e+",
                                          "true",
                                          "false",
                                          "null",
                                          "tr",
                                          "ue",
                                          "nul",
                                          "ab",
                                          "abc",
                                          "hello",
                                          "a\"",
                                          "a\",",
                                          "\\\"",
                                          "\\u",
                                          "\\u00",
                                          "\\ud83d\\u",
                                          " \"",
                                          ", ",
                                          ": ",
                                          "  ",
                                          "    ",
                                          "\n",
                                          "\n\n",
                                          "name",
                                          "\"name",
                                          "\"name\":",
                                          "id\":",
                                          "aaaa",
                                          "aaaaaaaa",
                                          "aaaaaaaaaaaaaaaaaaaaaaaa",
                                          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                          "aaaaaaaaaaaaaaaaaaaa\"",
                                          "00",
                                          "0000",
                                          "-",
                                          "2024-",
                                          "é",
                                          "漢字",
                                          "\xF0\x9F",
                                          "\xE6\xBC",
                                          "\xA2x"};

// Byte-level: all bytes, an end token, a control token, and pieces of JSON that cross every kind of border.
inline std::shared_ptr<const TokenTrie> json_trie() {
  static const auto trie = [] {
    text::test::OwnedVocab v;
    v.data.model = VocabModel::byte_bpe;
    v.data.bos = v.data.eos = 0;
    v.add("<|endoftext|>", TokenKind::control);
    v.add("<|tool|>", TokenKind::control);
    v.add("<unused7>", TokenKind::unused);
    for (int b = 0; b < 256; ++b) v.add(text::test::byte_letter(b));
    for (const char* piece : kPieces) {
      std::string letters;
      for (const char c : std::string(piece)) letters += text::test::byte_letter(static_cast<std::uint8_t>(c));
      if (std::find(v.texts.begin(), v.texts.end(), letters) == v.texts.end()) v.add(letters);
    }
    v.data.pre = "llama-bpe";
    const auto tokenizer = v.tokenizer();
    return TokenTrie::make(*tokenizer);
  }();
  return trie;
}
constexpr TokenId kEndToken = 0, kControlToken = 1, kUnusedToken = 2;

inline bool allows(const std::vector<std::uint32_t>& mask, TokenId id) {
  return mask[id / 32] >> (id % 32) & 1;
}
inline std::vector<std::uint32_t> mask_of(Matcher& m, std::int64_t budget = Matcher::kNoBudget) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(m.masks().trie()->vocab_size() + 31) / 32, 0xAAAAAAAA);
  m.fill_mask(mask, budget);
  return mask;
}

inline std::shared_ptr<MaskCache> masks_of(const Result<Compiled>& compiled) {
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return compiled.ok() ? std::make_shared<MaskCache>(*compiled, json_trie()) : nullptr;
}
inline Result<Compiled> schema(const char* json) {
  return compile_json_schema(nlohmann::ordered_json::parse(json));
}

// Whether the whole text is a document of the grammar.
inline bool accepts_text(const std::shared_ptr<MaskCache>& masks, std::string_view text) {
  Matcher m(masks);
  return m.accept_bytes(text) && m.may_end();
}
inline std::string error_of(const Result<Compiled>& compiled) {
  return compiled.ok() ? "" : compiled.status().message();
}

}  // namespace lode::text::grammar::test
