#include "serve/completion_request.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "serve/structured_output.h"

namespace lode::serve {
namespace {

// False, with an error, where the text cannot fit.
bool add_prompt(const std::string& text, Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max,
                std::vector<std::vector<TokenId>>& prompts) {
  if (auto error = too_long(text.size(), tokenizer, context_max)) {
    fields.fail(std::move(*error));
    return false;
  }
  prompts.push_back(
      tokenizer.encode(text, {.special = text::EncodeOptions::Special::parse, .bos = text::EncodeOptions::Bos::model}));
  return true;
}

// A string, an array of ids, or an array of those.
void read_prompts(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max, CompletionRequest& out) {
  constexpr std::string_view kExpected =
      "a string, an array of strings, an array of token ids or an array of arrays of token ids";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "'prompt' is missing");
  const auto read_ids = [&](const Json& array) {
    std::vector<TokenId> ids;
    ids.reserve(array.size());
    for (const Json& value : array) {
      const auto id = token_id(value, tokenizer);
      if (!id) {
        fields.fail("prompt", "made of " + id_range(tokenizer), describe(value));
        return false;
      }
      ids.push_back(*id);
    }
    if (ids.empty()) {
      fields.fail("prompt", "'prompt' holds an empty array of token ids");
      return false;
    }
    out.prompts.push_back(std::move(ids));
    return true;
  };
  if (prompt->is_string()) {
    add_prompt(prompt->get_ref<const std::string&>(), fields, tokenizer, context_max, out.prompts);
    return;
  }
  if (!prompt->is_array()) return fields.fail("prompt", kExpected, describe(*prompt));
  if (prompt->empty()) return fields.fail("prompt", "'prompt' is an empty array");
  if (prompt->front().is_number()) {
    read_ids(*prompt);
    return;
  }
  if (prompt->size() > kChoicesMax)
    return fields.fail("prompt", fmt::format("at most {} prompts", kChoicesMax), std::to_string(prompt->size()));
  const bool strings = prompt->front().is_string();
  for (const Json& one : *prompt) {
    if (strings && one.is_string()) {
      if (!add_prompt(one.get_ref<const std::string&>(), fields, tokenizer, context_max, out.prompts)) return;
    } else if (!strings && one.is_array()) {
      if (!read_ids(one)) return;
    } else return fields.fail("prompt", kExpected, "an array that holds " + describe(one));
  }
}

void read_logprobs(Fields& fields, CompletionRequest& out) {
  std::int64_t logprobs = -1;
  for (const char* name : {"n_probs", "logprobs"}) fields.integer(name, logprobs, 0, kLogprobsMax);
  if (const Json* n_probs = fields.find("n_probs");
      n_probs != nullptr && logprobs == 0 && fields.find("logprobs") == nullptr) {
    logprobs = -1;  // llama-server's n_probs of 0 means none.
  }
  out.shared.top_logprobs = static_cast<std::int32_t>(logprobs);
}

void read_rest(Fields& fields, CompletionRequest& out) {
  std::int64_t best_of = out.n;
  fields.integer("best_of", best_of, 1, std::numeric_limits<std::int32_t>::max());
  if (best_of != out.n)
    fields.fail("best_of", fmt::format("'best_of' must equal 'n' ({}): choices are not ranked", out.n));
  bool echo = false;
  fields.boolean("echo", echo);
  out.echo = echo ? Echo::yes : Echo::no;
  constexpr Unsupported kAlso[] = {{"suffix"}, {"tools"}};
  refuse_unsupported(fields, kAlso);
  if (out.echo == Echo::yes && out.shared.top_logprobs >= 0 && out.shared.max_tokens == 0) {
    fields.fail("echo",
                "'echo' with 'logprobs' and no new token asks for the prompt's log-probabilities, which are not "
                "supported by this server");
  }
}

}  // namespace

std::variant<CompletionRequest, ApiError> parse_completion_request(const Json& body,
                                                                   text::grammar::GrammarStore& grammars,
                                                                   std::int64_t context_max) {
  const text::Tokenizer& tokenizer = grammars.tokenizer();
  if (!body.is_object()) return invalid_field("", "the body must be a JSON object, not " + describe(body));
  Fields fields(body);
  CompletionRequest out;
  read_generation(fields, tokenizer, context_max, out);
  read_logprobs(fields, out);
  read_rest(fields, out);
  if (!fields.error()) read_structured_output(fields, grammars, out.shared);
  if (!fields.error()) read_prompts(fields, tokenizer, context_max, out);  // Last: the costly one.
  if (fields.error()) return *fields.error();
  if (out.prompts.size() * static_cast<std::size_t>(out.n) > kChoicesMax) {
    return invalid_field(
        "n", fmt::format("{} prompts with n = {} are more than {} choices", out.prompts.size(), out.n, kChoicesMax));
  }
  return out;
}

}  // namespace lode::serve
