// What an audit asks: one long prefix and some short questions, as text or as token ids. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/engine.h"

namespace lode::cli {

// Text, or ids where a model has no text.
using AuditText = std::variant<std::string, std::vector<TokenId>>;

struct AuditInput {
  std::filesystem::path prefix, questions;  // Files; empty: the built-in ones.
  std::int64_t tokens = 32;                 // Of an answer.
};

struct AuditPrompt {
  AuditText text;
  std::int64_t prefix_tokens = 0;  // Of `text` where it is ids: what all prompts have in common.
};

struct AuditPrompts {
  std::vector<AuditPrompt> questions;  // Prefix and question, ready to be sent.
  AuditPrompt prefix;                  // Alone, with a few tokens of another question: it fills caches.
  std::vector<AuditPrompt> unrelated;  // They share no first token with the others, where that can be had.
  std::string description;             // Of the prefix.
};

// Prompts in ids for an engine. Built-in ones are about 2,000 tokens, or more where a sliding window is to be exceeded,
// or less where the context is small; for a vocabulary that cannot spell them they are made of its own tokens. Errors:
// a file that cannot be read or holds nothing; a prompt that does not fit the context (with the numbers).
Result<AuditPrompts> prompts_for(const engine::EngineInfo& info, const text::Tokenizer& tokenizer,
                                 const AuditInput& input);
// Prompts as text (or as a file's ids) for a server. `context`: its tokens; -1: unknown.
Result<AuditPrompts> prompts_for_server(std::int64_t context, const AuditInput& input);

}  // namespace lode::cli
