#include "cli/audit_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "cli/bench_text.h"
#include "cli/read_input.h"
#include "serve/fields.h"
#include "serve/json.h"

namespace lode::cli {
namespace {

constexpr std::int64_t kPrefixTokens = 2000;
constexpr std::int64_t kPrefixTokensMin = 64;  // Two blocks: with less, nothing could be reused.
constexpr std::int64_t kBeyondWindow = 512;    // How far the built-in prefix exceeds a sliding window.
constexpr std::int64_t kQuestionTokens = 64;   // Room for a built-in question.
constexpr std::int64_t kUnrelatedTokens = 160;
constexpr std::size_t kUnrelated = 10;
constexpr double kBytesPerToken = 3.5;  // Fewer than any vocabulary's on filler (4 to 5): a server's prompt must fit.
constexpr std::uint64_t kSeed = 20251;

constexpr std::array kQuestions = {
    "Who is named first in this text?",
    "What happened at the stone bridge?",
    "Which objects does the text mention most often?",
    "Write one more sentence in the same style.",
    "What did the harbour master remember?",
    "How many crates are there?",
    "Is the printer young or old?",
    "Summarise the text in one sentence.",
    "Name three places that appear in the text.",
    "What was the weather like?",
};

std::string as_question(std::string_view question) {
  return fmt::format("\n\nQuestion: {}\nAnswer:", question);
}

// A JSON array of ids; nullopt: it is none.
std::optional<std::vector<TokenId>> ids_of(const serve::Json& json) {
  if (!json.is_array() || json.empty()) return std::nullopt;
  std::vector<TokenId> ids;
  for (const auto& value : json) {
    const auto id = serve::as_integer(value);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return std::nullopt;
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

Result<AuditText> read_prefix(const std::filesystem::path& path) {
  auto text = read_input(path);
  if (!text.ok()) return text.status();
  if (text->empty()) return Status::invalid(fmt::format("{}: expected a prefix, found an empty file", path.string()));
  if (text->starts_with('['))
    if (const auto json = serve::parse_json(*text, {.values_max = 1 << 26}); json.ok())
      if (auto ids = ids_of(*json)) return AuditText(std::move(*ids));
  return AuditText(std::move(*text));
}

// One question a line, or a JSON array of texts and of arrays of ids.
Result<std::vector<AuditText>> read_questions(const std::filesystem::path& path) {
  auto text = read_input(path);
  if (!text.ok()) return text.status();
  std::vector<AuditText> questions;
  if (text->starts_with('[')) {
    const auto json = serve::parse_json(*text, {.values_max = 1 << 26});
    if (!json.ok()) return Status::invalid(fmt::format("{}: {}", path.string(), json.status().message()));
    for (const auto& entry : *json) {
      auto ids = ids_of(entry);
      if (ids) questions.emplace_back(std::move(*ids));
      else if (entry.is_string() && !entry.get_ref<const std::string&>().empty())
        questions.emplace_back(as_question(entry.get<std::string>()));
      else
        return Status::invalid(fmt::format("{}: question {}: expected a text or an array of token ids, found {}",
                                           path.string(), questions.size() + 1, serve::describe(entry)));
    }
  } else {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t end = std::min(text->find('\n', at), text->size());
      std::string line = text->substr(at, end - at);
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") != std::string::npos) questions.emplace_back(as_question(line));
      at = end + 1;
    }
  }
  if (questions.empty())
    return Status::invalid(fmt::format("{}: expected questions, one a line, found none", path.string()));
  return questions;
}

std::vector<AuditText> built_in_questions() {
  std::vector<AuditText> questions;
  for (const char* question : kQuestions) questions.emplace_back(as_question(question));
  return questions;
}

// Tokens that a prompt may be made of.
std::vector<TokenId> ordinary_tokens(const text::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.kind(id) == text::TokenKind::normal && !tokenizer.is_end_of_generation(id)) ids.push_back(id);
  if (ids.empty()) ids.push_back(0);
  return ids;
}

// A run of tokens that never repeats for long, the same for the same seed.
std::vector<TokenId> token_filler(const std::vector<TokenId>& from, std::uint64_t seed, std::int64_t count) {
  std::vector<TokenId> ids;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  while (static_cast<std::int64_t>(ids.size()) < count) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(from[(state >> 33) % from.size()]);
  }
  return ids;
}

class EnginePrompts {
 public:
  EnginePrompts(const engine::EngineInfo& info, const text::Tokenizer& tokenizer, const AuditInput& input)
      : info_(info), tokenizer_(tokenizer), input_(input) {}

  Result<AuditPrompts> make() {
    AuditPrompts out;
    auto questions = question_ids();
    if (!questions.ok()) return questions.status();
    auto prefix = prefix_ids();
    if (!prefix.ok()) return prefix.status();
    const auto n = static_cast<std::int64_t>(prefix->size());
    if (n < kPrefixTokensMin)
      return Status::invalid(fmt::format("the prefix has {} tokens; expected at least {}, or nothing can be reused{}",
                                         n, kPrefixTokensMin,
                                         input_.prefix.empty() ? "; raise the context with -c" : ""));
    const auto joined = [&](const std::vector<TokenId>& tail) {
      std::vector<TokenId> ids = *prefix;
      ids.insert(ids.end(), tail.begin(), tail.end());
      return AuditPrompt{std::move(ids), n};
    };
    for (std::size_t i = 0; i < questions->size(); ++i) {
      const auto all = n + static_cast<std::int64_t>((*questions)[i].size()) + input_.tokens;
      if (all > info_.context_max)
        return Status::invalid(
            fmt::format("question {}: prefix, question and {} tokens of answer are {} tokens, the context holds {}; "
                        "shorten the prefix or raise -c",
                        i + 1, input_.tokens, all, info_.context_max));
      out.questions.push_back(joined((*questions)[i]));
    }
    out.prefix = joined(text_or_tokens("\n\nThe end.", 500, 4));
    const std::int64_t room = std::min(kUnrelatedTokens, info_.context_max - input_.tokens);
    for (std::size_t i = 0; i < kUnrelated; ++i) {
      auto ids = text_or_tokens(filler(kSeed + 100 + i, 2000), 100 + i, room);
      if (static_cast<std::int64_t>(ids.size()) > room) ids.resize(static_cast<std::size_t>(room));
      std::reverse(ids.begin(), ids.end());  // A sensible text would start as the others do.
      out.unrelated.push_back({std::move(ids), 0});
    }
    out.description = fmt::format("{} tokens", n);
    return out;
  }

 private:
  // Whether the vocabulary has words for ordinary text: those of random test models have letters, or nothing.
  bool spells() const {
    const std::string sample = filler(kSeed, 400);
    const auto ids = tokenizer_.encode(sample, {});
    return ids.size() * 2 < sample.size() && tokenizer_.decode(ids, text::Tokenizer::Control::show) == sample;
  }
  std::vector<TokenId> text_or_tokens(const std::string& text, std::uint64_t seed, std::int64_t count) const {
    if (spells_) return tokenizer_.encode(text, {});
    return token_filler(tokens_, seed, count);
  }
  Result<std::vector<TokenId>> ids_for(AuditText text, text::EncodeOptions::Bos bos, std::uint64_t seed) const {
    if (auto* ids = std::get_if<std::vector<TokenId>>(&text)) return std::move(*ids);
    const auto& words = std::get<std::string>(text);
    auto ids = tokenizer_.encode(words, {.bos = bos});
    if (!ids.empty()) return ids;
    if (!spells_) return token_filler(tokens_, seed, 12);
    return Status::invalid(fmt::format("the model's vocabulary has no token for '{}'", words));
  }

  Result<std::vector<TokenId>> prefix_ids() const {
    using Bos = text::EncodeOptions::Bos;
    if (!input_.prefix.empty()) {
      auto text = read_prefix(input_.prefix);
      if (!text.ok()) return text.status();
      if (!spells_ && std::holds_alternative<std::string>(*text) &&
          tokenizer_.encode(std::get<std::string>(*text), {}).empty())
        return Status::invalid(
            fmt::format("{}: the model has no vocabulary; give a JSON array of token ids", input_.prefix.string()));
      return ids_for(std::move(*text), Bos::start, 0);
    }
    const std::int64_t wanted = std::max(kPrefixTokens, info_.window_max + kBeyondWindow);
    const std::int64_t count = std::min(wanted, info_.context_max - longest_question_ - input_.tokens);
    if (count < 1) return std::vector<TokenId>();
    if (!spells_) {
      auto ids = token_filler(tokens_, kSeed, count);
      if (tokenizer_.bos() >= 0) ids.front() = tokenizer_.bos();
      return ids;
    }
    auto ids = tokenizer_.encode(filler(kSeed, static_cast<std::size_t>(count) * 8), {.bos = Bos::start});
    if (static_cast<std::int64_t>(ids.size()) > count) ids.resize(static_cast<std::size_t>(count));
    return ids;
  }

  Result<std::vector<std::vector<TokenId>>> question_ids() {
    std::vector<AuditText> texts = built_in_questions();
    if (!input_.questions.empty()) {
      auto read = read_questions(input_.questions);
      if (!read.ok()) return read.status();
      texts = std::move(*read);
    }
    const bool made = input_.questions.empty() && !spells_;
    std::vector<std::vector<TokenId>> all;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      auto ids = made ? token_filler(tokens_, 1000 + i, 9 + static_cast<std::int64_t>(i))
                      : ids_for(std::move(texts[i]), text::EncodeOptions::Bos::none, 1000 + i);
      if (!ids.ok()) return ids.status();
      longest_question_ = std::max(longest_question_, static_cast<std::int64_t>(ids->size()));
      all.push_back(std::move(*ids));
    }
    return all;
  }

  const engine::EngineInfo& info_;
  const text::Tokenizer& tokenizer_;
  const AuditInput& input_;
  const bool spells_ = spells();
  const std::vector<TokenId> tokens_ = ordinary_tokens(tokenizer_);
  std::int64_t longest_question_ = 0;
};

}  // namespace

Result<AuditPrompts> prompts_for(const engine::EngineInfo& info, const text::Tokenizer& tokenizer,
                                 const AuditInput& input) {
  return EnginePrompts(info, tokenizer, input).make();
}

Result<AuditPrompts> prompts_for_server(std::int64_t context, const AuditInput& input) {
  std::vector<AuditText> questions = built_in_questions();
  if (!input.questions.empty()) {
    auto read = read_questions(input.questions);
    if (!read.ok()) return read.status();
    questions = std::move(*read);
  }
  AuditText prefix;
  if (!input.prefix.empty()) {
    auto read = read_prefix(input.prefix);
    if (!read.ok()) return read.status();
    prefix = std::move(*read);
  } else {
    const std::int64_t room = context < 0 ? kPrefixTokens : context - kQuestionTokens - input.tokens;
    const std::int64_t tokens = std::min(kPrefixTokens, room);
    if (tokens < kPrefixTokensMin)
      return Status::invalid(fmt::format("the server's context holds {} tokens; expected at least {}", context,
                                         kPrefixTokensMin + kQuestionTokens + input.tokens));
    const double bytes_per_token = tokens == kPrefixTokens ? 4.5 : kBytesPerToken;
    prefix = filler(kSeed, static_cast<std::size_t>(static_cast<double>(tokens) * bytes_per_token));
  }
  const bool as_ids = std::holds_alternative<std::vector<TokenId>>(prefix);
  AuditPrompts out;
  const auto joined = [&](const AuditText& tail) {
    AuditPrompt prompt{prefix, 0};
    std::visit(
        [&](auto& head) {
          const auto& more = std::get<std::decay_t<decltype(head)>>(tail);
          head.insert(head.end(), more.begin(), more.end());
        },
        prompt.text);
    return prompt;
  };
  for (const AuditText& question : questions) {
    if (std::holds_alternative<std::vector<TokenId>>(question) != as_ids)
      return Status::invalid("prefix and questions for a server must both be texts, or both be arrays of token ids");
    out.questions.push_back(joined(question));
  }
  out.prefix = as_ids ? AuditPrompt{prefix, 0} : joined(AuditText(std::string("\n\nThe end.")));
  for (std::size_t i = 0; i < kUnrelated; ++i)
    out.unrelated.push_back({fmt::format("{} other words. {}", i, filler(kSeed + 100 + i, 500)), 0});
  out.description = as_ids ? fmt::format("{} tokens", std::get<std::vector<TokenId>>(prefix).size())
                           : fmt::format("{} bytes of text", std::get<std::string>(prefix).size());
  return out;
}

}  // namespace lode::cli
