// See vocab.h. Everything a file can say wrongly is caught here, so that encoding and decoding need no checks.
#include "text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>

#include "text/pretokenizer_rules.h"
#include "text/utf8.h"

namespace lode::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";   // U+2581.
constexpr std::size_t kTokenBytesMax = 65535;             // Token::size is 16 bits; real vocabularies stay under 1,000.
constexpr std::size_t kTokensMax = std::size_t{1} << 28;  // Far over any vocabulary; keeps ids and offsets in 32 bits.

// Byte-level BPE writes each byte as one printable character: printable Latin-1 stands for itself, the other 68 bytes
// follow from U+0100 on in byte order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      byte_of_[printable ? b : next++] = static_cast<std::int16_t>(b);
    }
  }
  // Appends the bytes that `text` spells; false, with nothing appended, where some character is not in the alphabet.
  template <typename Out>  // A string or a vector of char.
  bool append_bytes(std::string_view text, Out& out) const {
    const std::size_t before = out.size();
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Char c = utf8_at(text, pos);
      if (c.code >= byte_of_.size() || byte_of_[c.code] < 0) {
        out.resize(before);
        return false;
      }
      out.push_back(static_cast<char>(byte_of_[c.code]));
      pos += c.bytes;
    }
    return true;
  }

 private:
  std::array<std::int16_t, 256 + 68> byte_of_{};
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// U+2581 becomes a space.
template <typename Out>
void append_unescaped(std::string_view text, Out& out) {
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t mark = std::min(text.find(kSpaceMark, pos), text.size());
    out.insert(out.end(), text.begin() + pos, text.begin() + mark);
    if (mark == text.size()) return;
    out.push_back(' ');
    pos = mark + kSpaceMark.size();
  }
}

// "<0x0A>" -> 10, else -1.
int parse_byte_name(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return -1;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

// Maps scores to numbers that ascend where scores descend, so that both families merge the smallest number first.
std::uint32_t priority_of_score(float score) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // -0 and 0 are equal scores.
  const std::uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// Names that end a turn whatever the metadata says: the model emits them, but many files name one eos id alone.
constexpr std::string_view kEndNames = R"(
<|eot_id|> <|eom_id|> <|im_end|> <|end|> <|return|> <|call|> <|calls|> <|flush|> <end_of_turn> <turn|> <|tool_response>
<|endoftext|> <|end_of_text|> <|end_of_turn|> <EOT> _<EOT> [EOT] [EOS] <end_of_utterance> <｜end▁of▁sentence｜>
<|ifm|im_end|> [e~[ <|plamo:eos|>
<|fim_pad|> <fim-pad> <fim_pad> <|fim_repo|> <fim-repo> <|repo_name|> <|file_sep|> <|plamo:file_separator|>
)";
// The other marks of filling in between two texts. They end nothing, but are control tokens whatever the file says.
constexpr std::string_view kFillNames = R"(
<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <|code_prefix|> <|plamo:fim_prefix|>
<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <|code_suffix|> <|plamo:fim_suffix|>
<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <|code_middle|> <|plamo:fim_middle|>
)";
// Names that are also HTML or plain words: these count only where the file calls them control tokens. Gemma has </s>,
// the end of struck-out text, as a token that it may well write.
constexpr std::string_view kCarefulEndNames = " </s> <eos> <PAD> [PAD] <REPO> <reponame> ";

// Whether `text` stands in `names` between spaces or newlines.
bool listed(std::string_view names, std::string_view text) {
  if (text.size() < 4 || text.size() > 32) return false;
  if (text[0] != '<' && text[0] != '[' && text[0] != '_') return false;  // Nearly every token ends here.
  if (text.find_first_of(" \n") != std::string_view::npos) return false;
  for (std::size_t at = names.find(text); at != std::string_view::npos; at = names.find(text, at + 1)) {
    if (names[at - 1] <= ' ' && names[at + text.size()] <= ' ') return true;
  }
  return false;
}

bool is_end_name(std::string_view text) {
  return listed(kEndNames, text) || listed(kCarefulEndNames, text);
}

// A token's text, cut and escaped for an error message.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
  return text.size() > 40 ? out + "..." : out;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// tiktoken's vocabularies need no merges: a token's id is the rank of the merge that makes it. llama.cpp's converter
// may leave the merges out of this one's files.
constexpr std::string_view kRankedByIdPre = "kimi-k2";

// Pre-tokenizers of files whose model is "gpt2" but whose tokens are characters with U+2581 for space.
bool spells_characters(std::string_view pre) {
  return pre == "gemma4" || pre == "granite-embed-multi-311m" || pre == "mmbert" || pre == "sarvam-moe";
}

Result<std::optional<std::int64_t>> read_id(const gguf::File& file, std::string_view key) {
  auto values = file.get_ints(key);
  if (!values.ok()) return values.status();
  if (!values->has_value()) return std::optional<std::int64_t>();
  if ((*values)->size() != 1) {
    return Status::corrupt(
        fmt::format("{}: metadata key {} must hold one token id, found {} values; the file is damaged "
                    "or was converted wrongly",
                    file.path().string(), key, (*values)->size()));
  }
  return std::optional<std::int64_t>((**values)[0]);
}

}  // namespace

#define LODE_READ(target, expr)                 \
  do {                                          \
    auto result_ = (expr);                      \
    if (!result_.ok()) return result_.status(); \
    target = std::move(result_.value());        \
  } while (0)

Result<VocabData> read_vocab(const gguf::File& file) {
  VocabData data;
  const std::string path = file.path().string();
  std::optional<std::string_view> model, name;
  LODE_READ(model, file.get_string("tokenizer.ggml.model"));
  if (!model || *model == "none" || *model == "no_vocab") {
    return Status::not_found(
        fmt::format("{}: the file carries no vocabulary (tokenizer.ggml.model is {}); only token ids "
                    "can be used with it",
                    path, model ? *model : "missing"));
  }
  if (*model == "llama") {
    data.model = VocabModel::spm;
  } else if (*model == "gpt2") {
    data.model = VocabModel::byte_bpe;
  } else if (*model == "gemma4") {
    data.model = VocabModel::char_bpe;
  } else {
    return Status::unsupported(fmt::format(
        "{}: tokenizer.ggml.model is \"{}\"; this build knows llama, gpt2 and gemma4", path, shown(*model)));
  }
  LODE_READ(data.pre, file.get_string("tokenizer.ggml.pre"));
  // Gemma 4's alphabet is named by the model in its own files, and by the pre-tokenizer in those of its relatives.
  if (data.model == VocabModel::char_bpe) data.pre = "gemma4";
  if (data.model == VocabModel::byte_bpe && data.pre && spells_characters(*data.pre)) {
    data.model = VocabModel::char_bpe;
  }
  LODE_READ(name, file.get_string("general.name"));
  data.model_name = name.value_or("");

  std::optional<std::span<const std::string_view>> tokens, merges;
  LODE_READ(tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (!tokens) {
    return Status::corrupt(
        fmt::format("{}: metadata key tokenizer.ggml.tokens is missing; convert the model again with "
                    "its vocabulary",
                    path));
  }
  data.tokens = *tokens;
  LODE_READ(merges, file.get_strings("tokenizer.ggml.merges"));
  if (!merges && data.model != VocabModel::spm && data.pre != kRankedByIdPre) {
    return Status::corrupt(
        fmt::format("{}: metadata key tokenizer.ggml.merges is missing, which a \"{}\" tokenizer needs; "
                    "convert the model again",
                    path, *model));
  }
  data.merges = merges.value_or(std::span<const std::string_view>());
  std::optional<std::vector<double>> scores;
  LODE_READ(scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores) data.scores = std::move(*scores);
  std::optional<std::vector<std::int64_t>> kinds;
  LODE_READ(kinds, file.get_ints("tokenizer.ggml.token_type"));
  if (kinds) data.kinds = std::move(*kinds);

  LODE_READ(data.bos, read_id(file, "tokenizer.ggml.bos_token_id"));
  LODE_READ(data.eos, read_id(file, "tokenizer.ggml.eos_token_id"));
  LODE_READ(data.unknown, read_id(file, "tokenizer.ggml.unknown_token_id"));
  LODE_READ(data.eot, read_id(file, "tokenizer.ggml.eot_token_id"));
  LODE_READ(data.eom, read_id(file, "tokenizer.ggml.eom_token_id"));
  LODE_READ(data.fim_pad, read_id(file, "tokenizer.ggml.fim_pad_token_id"));
  LODE_READ(data.fim_repo, read_id(file, "tokenizer.ggml.fim_rep_token_id"));
  LODE_READ(data.fim_file, read_id(file, "tokenizer.ggml.fim_sep_token_id"));
  LODE_READ(data.add_bos, file.get_bool("tokenizer.ggml.add_bos_token"));
  LODE_READ(data.add_eos, file.get_bool("tokenizer.ggml.add_eos_token"));
  LODE_READ(data.add_space_prefix, file.get_bool("tokenizer.ggml.add_space_prefix"));
  return data;
}

Result<Vocab> Vocab::make(const VocabData& data) {
  Vocab vocab;
  vocab.model_ = data.model;
  vocab.merges_by_text_ = data.model == VocabModel::spm || (data.merges.empty() && data.pre == kRankedByIdPre);
  LODE_RETURN_IF_ERROR(vocab.add_tokens(data));
  LODE_RETURN_IF_ERROR(vocab.add_merges(data));
  LODE_RETURN_IF_ERROR(vocab.set_roles(data));
  vocab.find_end_tokens(data);
  vocab.collect_specials(data);
  vocab.check_coverage();
  return vocab;
}

Status Vocab::add_tokens(const VocabData& data) {
  const std::size_t count = data.tokens.size();
  if (count == 0 || count > kTokensMax) {
    return Status::corrupt(fmt::format("tokenizer.ggml.tokens: expected 1 to {} tokens, found {}", kTokensMax, count));
  }
  if (!data.scores.empty() && data.scores.size() != count) {
    return Status::corrupt(
        fmt::format("tokenizer.ggml.scores: expected {} values, one a token, found {}; the file is "
                    "damaged or was converted wrongly",
                    count, data.scores.size()));
  }
  if (!data.kinds.empty() && data.kinds.size() != count) {
    return Status::corrupt(
        fmt::format("tokenizer.ggml.token_type: expected {} values, one a token, found {}; the file "
                    "is damaged or was converted wrongly",
                    count, data.kinds.size()));
  }
  std::size_t bytes = 0;
  for (const std::string_view text : data.tokens) bytes += text.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    return Status::corrupt(fmt::format("tokenizer.ggml.tokens: expected under 4 GiB of text, found {} bytes", bytes));
  }
  arena_.reserve(bytes);  // Decoding never makes a token longer, so the arena does not move and the table may bind it.
  tokens_.reserve(count);
  texts_.reserve(count);
  texts_.bind(arena_.data());
  byte_tokens_.fill(-1);
  // Some converters leave <0xXX> typed as normal.
  bytes_by_name_ =
      model_ != VocabModel::byte_bpe && std::find(data.kinds.begin(), data.kinds.end(), 6) == data.kinds.end();
  for (std::size_t i = 0; i < count; ++i) LODE_RETURN_IF_ERROR(add_token(data, static_cast<TokenId>(i)));
  LODE_CHECK(arena_.size() <= bytes);
  // A vocabulary without byte tokens may still have a byte as itself.
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    if (byte_tokens_[b] < 0) byte_tokens_[b] = texts_.find({&c, 1}).id;
  }
  return Status::success();
}

TokenKind Vocab::kind_of(std::string_view text, std::int64_t kind) const {
  const TokenKind said = kind == 0 ? TokenKind::normal : static_cast<TokenKind>(kind);  // 0: "undefined", in old files.
  // Some files call turn ends normal or user-defined, and the reader would see the marker. In byte-level vocabularies a
  // normal </s> cannot come from text anyway, whose words are cut at the letter.
  const bool careful = model_ == VocabModel::byte_bpe && said == TokenKind::normal;
  if (listed(kEndNames, text) || listed(kFillNames, text)) return TokenKind::control;
  if (careful && (text == "</s>" || text == "<eos>")) return TokenKind::control;
  if (bytes_by_name_ && said == TokenKind::normal && parse_byte_name(text) >= 0) return TokenKind::byte;
  return said;
}

bool Vocab::append_bytes(std::string_view text, TokenKind kind) {
  const auto append = [this](std::string_view raw) { arena_.insert(arena_.end(), raw.begin(), raw.end()); };
  if (kind == TokenKind::control || kind == TokenKind::unknown) {
    append(text);
    return false;
  }
  if (model_ == VocabModel::byte_bpe) {
    // User-defined tokens are plain text here, cut out before merging.
    if (kind != TokenKind::user_defined && byte_alphabet().append_bytes(text, arena_)) return true;
    append(text);
    return false;
  }
  if (kind == TokenKind::byte) {
    arena_.push_back(static_cast<char>(parse_byte_name(text)));
    return false;
  }
  append_unescaped(text, arena_);
  // A raw space never meets the merges, since spaces reach them as U+2581: such a token is only cut out whole.
  return text.find(' ') == std::string_view::npos;
}

Status Vocab::add_token(const VocabData& data, TokenId id) {
  const std::string_view text = data.tokens[id];
  const std::int64_t kind = data.kinds.empty() ? 1 : data.kinds[id];
  if (kind < 0 || kind > 6) {
    return Status::corrupt(
        fmt::format("tokenizer.ggml.token_type[{}]: expected a kind from 1 to 6, found {}", id, kind));
  }
  if (text.size() > kTokenBytesMax) {
    return Status::corrupt(
        fmt::format("tokenizer.ggml.tokens[{}]: expected at most {} bytes, found {}", id, kTokenBytesMax, text.size()));
  }
  Token token{.kind = kind_of(text, kind)};
  if (token.kind == TokenKind::byte && model_ != VocabModel::byte_bpe) {
    const int byte = parse_byte_name(text);
    if (byte < 0) {
      return Status::corrupt(fmt::format(
          "tokenizer.ggml.tokens[{}]: a byte token must read <0x00> to <0xFF>, found \"{}\"", id, shown(text)));
    }
    if (byte_tokens_[byte] < 0) byte_tokens_[byte] = id;
  }
  TextMap::Place place{.offset = static_cast<std::uint32_t>(arena_.size())};
  token.spellable = append_bytes(text, token.kind) && !text.empty();
  place.size = static_cast<std::uint16_t>(arena_.size() - place.offset);
  tokens_.push_back(token);
  std::uint32_t priority = 0;
  if (model_ == VocabModel::spm && !data.scores.empty()) {
    const auto score = static_cast<float>(data.scores[id]);
    if (std::isnan(score)) {
      return Status::corrupt(fmt::format("tokenizer.ggml.scores[{}]: expected a number, found NaN", id));
    }
    priority = priority_of_score(score);
  } else if (merges_by_text_) {
    priority = static_cast<std::uint32_t>(id);
  }
  if (!texts_.add(place, token.spellable, priority) && warnings_.empty()) {
    warnings_.push_back(fmt::format("token {} (\"{}\") spells the same text as token {}; text becomes the lower id", id,
                                    shown(text), texts_.find(bytes(id)).id));
  }
  return Status::success();
}

Status Vocab::add_merges(const VocabData& data) {
  if (merges_by_text_) return Status::success();
  if (data.merges.size() > kTokensMax) {
    return Status::corrupt(
        fmt::format("tokenizer.ggml.merges: expected at most {}, found {}", kTokensMax, data.merges.size()));
  }
  merges_.reserve(data.merges.size());
  std::size_t ignored = 0, example = 0;
  std::string joined;
  for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view line = data.merges[rank];
    const std::size_t cut = line.find(' ', 1);  // From 1 on: the left half is never empty.
    if (cut == std::string_view::npos || cut + 1 == line.size()) {
      return Status::corrupt(
          fmt::format("tokenizer.ggml.merges[{}]: expected two texts with a space between, found "
                      "\"{}\"",
                      rank, shown(line)));
    }
    joined.clear();
    std::size_t left_bytes = 0;
    bool spelled = true;
    if (model_ == VocabModel::byte_bpe) {
      spelled = byte_alphabet().append_bytes(line.substr(0, cut), joined);
      left_bytes = joined.size();
      spelled = spelled && byte_alphabet().append_bytes(line.substr(cut + 1), joined);
    } else {
      append_unescaped(line.substr(0, cut), joined);
      left_bytes = joined.size();
      append_unescaped(line.substr(cut + 1), joined);
    }
    const std::string_view both = joined;
    const TokenId left = spelled ? texts_.find(both.substr(0, left_bytes)).id : -1;
    const TokenId right = spelled ? texts_.find(both.substr(left_bytes)).id : -1;
    const TokenId result = spelled ? texts_.find(both).id : -1;
    if (left < 0 || right < 0 || result < 0) {
      // A turn end that became a control token is no longer text that merges could make.
      if (!is_end_name(both) && !listed(kFillNames, both) && ignored++ == 0) example = rank;
      continue;
    }
    merges_.insert(left, right, {static_cast<std::uint32_t>(rank), result});
  }
  if (ignored > 0) {
    warnings_.push_back(
        fmt::format("{} of {} merges name tokens that are not in the vocabulary and are ignored; the "
                    "first is tokenizer.ggml.merges[{}] (\"{}\")",
                    ignored, data.merges.size(), example, shown(data.merges[example])));
  }
  return Status::success();
}

Status Vocab::set_roles(const VocabData& data) {
  const auto role = [this](std::string_view key, std::optional<std::int64_t> id, std::int64_t absent,
                           TokenId& out) -> Status {
    const std::int64_t value = id.value_or(absent < size() ? absent : -1);
    out = -1;
    if (value < 0 || value == 0xFFFFFFFF) return Status::success();
    if (value >= size()) {
      return Status::corrupt(
          fmt::format("tokenizer.ggml.{}: expected a token id under {}, found {}; the file is damaged "
                      "or was converted wrongly",
                      key, size(), value));
    }
    out = static_cast<TokenId>(value);
    return Status::success();
  };
  // A SentencePiece file that names no ids has them at 0, 1 and 2.
  const bool spm = model_ == VocabModel::spm;
  LODE_RETURN_IF_ERROR(role("bos_token_id", data.bos, spm ? 1 : -1, bos_));
  LODE_RETURN_IF_ERROR(role("eos_token_id", data.eos, spm ? 2 : -1, eos_));
  LODE_RETURN_IF_ERROR(role("unknown_token_id", data.unknown, spm ? 0 : -1, unknown_));
  TokenId eot = -1, eom = -1, pad = -1, repo = -1, file = -1;
  LODE_RETURN_IF_ERROR(role("eot_token_id", data.eot, -1, eot));
  LODE_RETURN_IF_ERROR(role("eom_token_id", data.eom, -1, eom));
  LODE_RETURN_IF_ERROR(role("fim_pad_token_id", data.fim_pad, -1, pad));
  LODE_RETURN_IF_ERROR(role("fim_rep_token_id", data.fim_repo, -1, repo));
  LODE_RETURN_IF_ERROR(role("fim_sep_token_id", data.fim_file, -1, file));
  for (const TokenId id : {eos_, eot, eom, pad, repo, file}) {
    if (id >= 0) end_tokens_.push_back(id);
  }
  // Byte-level vocabularies often name <|endoftext|> as "unknown"; to put that into a prompt for a stray byte would
  // end the text there. Their own tokenizers drop such bytes, and so does this one. What is called unknown by its text
  // too is no control token, though some files say so.
  if (unknown_ >= 0) {
    const std::string_view text = data.tokens[unknown_];
    if (text == "<unk>" || text == "[UNK]") tokens_[unknown_].kind = TokenKind::unknown;
    if (kind(unknown_) != TokenKind::control) replacement_ = unknown_;
  }
  const PreTokenizerRule* rule = !spm && data.pre ? pretokenizer_rule(*data.pre) : nullptr;
  add_bos_ = data.add_bos.value_or(spm || (rule != nullptr && rule->adds_bos));
  if (model_ == VocabModel::char_bpe && data.pre == "gemma4" && !add_bos_) {
    // Gemma 4 answers nonsense without it, and files exist that say so.
    add_bos_ = true;
    warnings_.push_back("tokenizer.ggml.add_bos_token is false, but Gemma 4 needs BOS: it is added all the same");
  }
  add_eos_ = data.add_eos.value_or(false);
  add_space_prefix_ = data.add_space_prefix.value_or(spm) && model_ != VocabModel::byte_bpe;
  return Status::success();
}

void Vocab::find_end_tokens(const VocabData& data) {
  TokenId end = -1;
  bool returns = false, calls = false, flushes = false;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view text = data.tokens[id];
    if (tokens_[id].kind != TokenKind::control || !is_end_name(text)) continue;
    if (text == "<|end|>") end = id;
    returns |= text == "<|return|>";
    calls |= text == "<|call|>" || text == "<|calls|>";
    flushes |= text == "<|flush|>";
    end_tokens_.push_back(id);
  }
  // In the harmony format <|end|> closes one message of a turn, and <|return|> or <|call|> the turn; in Solar's,
  // <|flush|> or <|calls|>.
  if (calls && (returns || flushes)) std::erase(end_tokens_, end);
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

bool Vocab::is_end_of_generation(TokenId id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

void Vocab::collect_specials(const VocabData& data) {
  // Phi-3's special tokens swallow the whitespace after them; its file has no key that says so.
  const std::string name = lowered(data.model_name);
  const bool phi3 = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  // As the masks of these swallow the whitespace before them.
  const std::string_view pre = data.pre.value_or("");
  const bool jina = pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code";
  const std::string_view mask = jina ? "<mask>" : name.find("modern-bert") != std::string::npos ? "[MASK]" : "";
  for (TokenId id = 0; id < size(); ++id) {
    const TokenKind k = tokens_[id].kind;
    if (bytes(id).empty()) continue;
    if (k != TokenKind::control && k != TokenKind::user_defined && k != TokenKind::unknown) continue;
    const std::string_view text = data.tokens[id];
    Special special{id, std::string(text)};
    special.strips_right = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    special.strips_left = !mask.empty() && text == mask;
    specials_.push_back(special);
  }
}

void Vocab::check_coverage() {
  // Bytes of everyday text: what is printable in ASCII, tab, newlines, and all that UTF-8 uses in assigned planes.
  std::string missing;
  int count = 0;
  for (int b = 0; b < 256; ++b) {
    const bool used = b == '\t' || b == '\n' || b == '\r' || (b >= 0x20 && b < 0x7F) || (b >= 0x80 && b <= 0xBF) ||
                      (b >= 0xC2 && b <= 0xF0) || b == 0xF3 || b == 0xF4;
    if (!used || byte_tokens_[b] >= 0) continue;
    if (++count <= 8) missing += fmt::format(" {:02X}", b);
  }
  if (count == 0) return;
  warnings_.push_back(
      fmt::format("the vocabulary has no token for {} bytes of ordinary text ({}{}); text it cannot spell "
                  "{}",
                  count, missing.substr(1), count > 8 ? " ..." : "",
                  replacement_ >= 0 ? "becomes the unknown token" : "is dropped"));
}

}  // namespace lode::text
