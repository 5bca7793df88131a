// Fuzz target: any bytes encode without a crash and come back byte for byte; a control token never comes from text; a
// stream never holds half a character. The first byte picks the vocabulary (each kind, each pre-tokenizer rule, or one
// made of the input itself), the second the options.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "text/pretokenizer_rules.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace lode::text;

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "tokenizer_fuzz: %s\n", what);
  std::abort();
}

bool is_utf8(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid()) return false;
    pos += c.bytes;
  }
  return true;
}

// U+2581 means a space to vocabularies that write spaces so.
std::string with_spaces(std::string_view text) {
  static constexpr std::string_view kMark = "\xE2\x96\x81";
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const bool mark = text.substr(pos, kMark.size()) == kMark;
    out += mark ? ' ' : text[pos];
    pos += mark ? kMark.size() : 1;
  }
  return out;
}

struct Subject {
  std::unique_ptr<Tokenizer> tokenizer;
  bool escaped = false;   // U+2581 comes back as a space.
  bool complete = false;  // Every byte can be spelled, and nothing is swallowed.
};

void check_stream(const Tokenizer& t, std::span<const lode::TokenId> ids, Tokenizer::Control control) {
  Detokenizer stream(t, {.control = control});
  std::string streamed;
  for (const lode::TokenId id : ids) {
    const std::string piece = stream.push(id);
    require(is_utf8(piece), "half a character in a stream");
    streamed += piece;
  }
  const std::string rest = stream.flush();
  require(rest.empty() || rest == "\xEF\xBF\xBD", "more than one character was held");
  require(streamed + rest == t.decode(ids, control), "the stream and the whole text differ");
}

void check(const Subject& s, std::string_view text, const EncodeOptions& options) {
  const Tokenizer& t = *s.tokenizer;
  const auto ids = t.encode(text, options);
  for (const lode::TokenId id : ids) {
    require(id >= 0 && id < t.vocab_size(), "an id outside the vocabulary");
    if (options.special == EncodeOptions::Special::text && options.bos == EncodeOptions::Bos::none) {
      require(t.kind(id) != TokenKind::control, "a control token from text");
    }
  }
  check_stream(t, ids, Tokenizer::Control::show);
  check_stream(t, ids, Tokenizer::Control::hide);
  if (!s.complete || options.bos != EncodeOptions::Bos::none) return;
  const std::string want = s.escaped ? with_spaces(text) : std::string(text);
  if (is_utf8(want)) require(t.decode(ids, Tokenizer::Control::show) == want, "the text did not come back");
  if (t.adds_space_prefix()) return;  // Its spaces stand between the bytes, too.
  std::string bytes;
  for (const lode::TokenId id : ids) bytes += t.token_bytes(id, Tokenizer::Control::show);
  require(bytes == want, "the bytes did not come back");
}

// Tokens, kinds, scores and merges as the input says: loading may refuse, and must not crash.
Subject hostile(std::string_view data) {
  test::OwnedVocab v;
  const auto byte = [&data](std::size_t at) { return at < data.size() ? static_cast<std::uint8_t>(data[at]) : 0; };
  v.data.model = static_cast<VocabModel>(byte(0) % 3);
  const auto rules = pretokenizer_rules();
  if (byte(1) % 8 != 0) v.data.pre = rules[byte(1) % rules.size()].names[0];
  if (byte(1) > 250) v.data.model_name = "phi-3";
  for (std::size_t pos = 2; pos + 2 < data.size();) {
    const std::size_t size = data[pos] & 7;
    const int kind = data[pos] >> 3 & 7;
    const std::string text(data.substr(pos + 2, size));
    if (kind == 7) {
      v.merge(text);
    } else {
      v.add(text, static_cast<TokenKind>(kind), data[pos + 1]);
    }
    pos += 2 + size;
  }
  if (!data.empty()) v.data.bos = data.back();
  auto t = make_tokenizer(v.done());
  return {t.ok() ? std::move(*t) : nullptr};
}

// Special tokens that overlap, of each kind.
void add_specials(test::OwnedVocab& v) {
  v.add("<|im_start|>", TokenKind::control);
  v.add("<|im_end|>", TokenKind::control);
  v.add("<|", TokenKind::user_defined);
  v.add("|>", TokenKind::user_defined);
  v.add("><", TokenKind::control);
  v.add("  ", TokenKind::user_defined);
  v.add("\n\n", TokenKind::user_defined);
}

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = [] {
    std::vector<Subject> out;
    const auto add = [&out](test::OwnedVocab v, bool escaped, bool complete) {
      add_specials(v);
      out.push_back({v.tokenizer(), escaped, complete});
    };
    add(test::spm_vocab(), true, true);
    auto bare = test::spm_vocab();
    bare.data.add_space_prefix = false;
    add(bare, true, true);
    auto phi = test::spm_vocab();
    phi.data.model_name = "phi-3";
    add(phi, true, false);
    add(test::char_vocab(), true, true);
    for (const PreTokenizerRule& rule : pretokenizer_rules()) add(test::bpe_vocab(rule.names[0]), false, true);
    return out;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const EncodeOptions options{bytes[1] & 1 ? EncodeOptions::Special::parse : EncodeOptions::Special::text,
                              bytes[1] & 2 ? EncodeOptions::Bos::model : EncodeOptions::Bos::none};
  if (bytes[0] >= 128) {
    const Subject made = hostile(text);
    if (made.tokenizer) check(made, text, options);
  } else {
    check(subjects()[bytes[0] % subjects().size()], text, options);
  }
  return 0;
}
