// Fuzz target: any bytes encode without a crash, and valid UTF-8 comes back. The first byte picks the vocabulary and
// the options; the last vocabulary is itself made of the input.
#include <cstdint>
#include <cstdlib>

#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace lode::text;

bool comes_back(std::string_view text, bool spaces_escaped) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid() || (spaces_escaped && c.code == 0x2581)) return false;
    pos += c.bytes;
  }
  return true;
}

void round_trip(const Tokenizer& t, std::string_view text, EncodeOptions::Special special, bool spaces_escaped) {
  const auto ids = t.encode(text, {special, EncodeOptions::Bos::none});
  const std::string back = t.decode(ids, Tokenizer::Control::show);
  if (comes_back(text, spaces_escaped) && back != text) std::abort();
  if (!comes_back(back, false)) std::abort();
}

// Tokens, kinds, scores and merges as the input says: loading may refuse, and must not crash.
void hostile(std::string_view data) {
  test::OwnedVocab v;
  v.data.model = static_cast<VocabModel>(data.empty() ? 0 : data[0] % 3);
  for (std::size_t pos = 1; pos + 2 < data.size();) {
    const std::size_t size = data[pos] & 7;
    const int kind = data[pos] >> 3 & 7;
    const std::string_view text = data.substr(std::min(pos + 2, data.size()), size);
    kind == 7 ? v.merge(std::string(text))
              : void(v.add(std::string(text), static_cast<TokenKind>(kind), data[pos + 1]));
    pos += 2 + size;
  }
  if (!data.empty()) v.data.bos = data.back();
  if (auto t = make_tokenizer(v.done()); t.ok()) {
    const auto ids = (*t)->encode(data, {EncodeOptions::Special::parse, EncodeOptions::Bos::model});
    (void)(*t)->decode(ids, Tokenizer::Control::show);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const auto spm = test::spm_vocab().tokenizer();
  static const auto smollm = test::bpe_vocab("smollm").tokenizer();
  static const auto llama3 = test::bpe_vocab("llama-bpe").tokenizer();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const auto special = bytes[0] & 8 ? EncodeOptions::Special::parse : EncodeOptions::Special::text;
  switch (bytes[0] & 3) {
    case 0: round_trip(*spm, text, special, true); break;
    case 1: round_trip(*smollm, text, special, false); break;
    case 2: round_trip(*llama3, text, special, false); break;
    default: hostile(text);
  }
  return 0;
}
