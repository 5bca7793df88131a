// Small vocabularies and random texts for the tests of src/text. Tests only.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace lode::text::test {

// Owns the texts that a VocabData only points to.
struct OwnedVocab {
  std::vector<std::string> texts, merge_lines;
  std::vector<std::string_view> views, merge_views;
  std::vector<double> scores;
  std::vector<std::int64_t> kinds;
  VocabData data;

  TokenId add(std::string text, TokenKind kind = TokenKind::normal, double score = 0) {
    texts.push_back(std::move(text));
    kinds.push_back(static_cast<std::int64_t>(kind));
    scores.push_back(score);
    return static_cast<TokenId>(texts.size() - 1);
  }
  void merge(std::string line) { merge_lines.push_back(std::move(line)); }

  const VocabData& done() {
    views.assign(texts.begin(), texts.end());
    merge_views.assign(merge_lines.begin(), merge_lines.end());
    data.tokens = views;
    data.merges = merge_views;
    data.kinds = kinds;
    if (data.model == VocabModel::spm) data.scores = scores;
    return data;
  }
  std::unique_ptr<Tokenizer> tokenizer() {
    auto out = make_tokenizer(done());
    if (!out.ok()) fmt::print(stderr, "{}\n", out.status().message());
    return out.ok() ? std::move(*out) : nullptr;
  }
};

// A SentencePiece-style vocabulary: <unk> <s> </s>, 256 bytes, then pieces with falling scores.
inline OwnedVocab spm_vocab() {
  OwnedVocab v;
  v.data.model = VocabModel::spm;
  v.add("<unk>", TokenKind::unknown);
  v.add("<s>", TokenKind::control);
  v.add("</s>", TokenKind::control);
  for (int b = 0; b < 256; ++b) v.add(fmt::format("<0x{:02X}>", b), TokenKind::byte);
  double score = 0;
  for (const char* text : {"▁t",       "he", "▁the", "in",   "▁a", "nd",  "▁and",  "ab",     "bc", "abc",
                           "▁leading", "_x", "▁▁",   "▁▁▁▁", "lo", "hel", "hello", "▁hello", "é",  "漢字"}) {
    v.add(text, TokenKind::normal, score -= 1);
  }
  for (const char* text : {"▁", "a", "b", "c", "d", "e", "h", "i", "l", "n", "o", "t", "x", "漢", "字", "_", "\n"}) {
    v.add(text, TokenKind::normal, score -= 1);
  }
  return v;
}

// Gemma 4's kind: merges over characters, U+2581 for space, byte tokens, tokens of several line ends.
inline OwnedVocab char_vocab() {
  OwnedVocab v;
  v.data.model = VocabModel::char_bpe;
  v.data.pre = "gemma4";
  v.add("<pad>", TokenKind::control);
  v.add("<eos>", TokenKind::control);
  v.data.bos = v.add("<bos>", TokenKind::control);
  v.data.eos = 1;
  for (int b = 0; b < 256; ++b) v.add(fmt::format("<0x{:02X}>", b), TokenKind::byte);
  for (const char* text : {"▁", "a", "b", "c", "h", "e", "t", "n", "é", "漢", "字", "\n", "\n\n", "\n\n\n"})
    v.add(text);
  for (const char* line : {"▁ t", "h e", "▁t he", "▁ ▁", "▁▁ ▁▁", "a b", "ab c", "漢 字", "b c"}) {
    std::string joined(line);
    joined.erase(joined.find(' ', 1), 1);
    v.add(joined);
    v.merge(line);
  }
  return v;
}

// The character that byte-level BPE writes for a byte.
inline std::string byte_letter(int byte) {
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int code = printable ? b : next++;
    if (b != byte) continue;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  }
  return {};
}

// A byte-level vocabulary: <|endoftext|>, 256 bytes (id = byte + 1), a few merges.
inline OwnedVocab bpe_vocab(std::string_view pre) {
  OwnedVocab v;
  v.data.model = VocabModel::byte_bpe;
  v.data.pre = pre;
  v.data.bos = v.data.eos = 0;
  v.add("<|endoftext|>", TokenKind::control);
  for (int b = 0; b < 256; ++b) v.add(byte_letter(b));
  for (const char* line : {"Ġ t", "h e", "Ġt he", "i n", "Ġ Ġ", "a b", "ab c", "1 2", "Ã ©"}) {
    std::string joined(line);
    joined.erase(joined.find(' ', 1), 1);
    v.add(joined);
    v.merge(line);
  }
  return v;
}

// Text of every flavour that has ever cut a tokenizer: letters, marks, digits, spaces, newlines, emoji, odd planes.
inline std::string random_text(std::mt19937& rng, int parts) {
  static const char* const kPool[] = {"a",
                                      "b",
                                      "c",
                                      "the",
                                      " the",
                                      "hello",
                                      " ",
                                      "  ",
                                      "   ",
                                      "\n",
                                      "\n\n",
                                      "\r\n",
                                      "\t",
                                      "1",
                                      "23",
                                      "456",
                                      "'s",
                                      "'LL",
                                      "'",
                                      "é",
                                      "e\u0301",
                                      "漢",
                                      "字",
                                      "漢字",
                                      "한국",
                                      "😊",
                                      "👨‍👩‍👧",
                                      "\u00a0",
                                      "\u2003",
                                      "\u3000",
                                      "\u180e",
                                      "\u0085",
                                      "½",
                                      "Ⅷ",
                                      "٣",
                                      "ſ",
                                      "<s>",
                                      "</s>",
                                      "<b>",
                                      "<|endoftext|>",
                                      "_",
                                      "->",
                                      "...",
                                      "!?",
                                      "\x01",
                                      "\x7f",
                                      "𝔘",
                                      "\U000E0067",
                                      "\uFFFD",
                                      "\uFFFF"};
  std::string out;
  for (int i = 0; i < parts; ++i) out += kPool[rng() % std::size(kPool)];
  return out;
}

inline void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
            static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
            static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

}  // namespace lode::text::test
