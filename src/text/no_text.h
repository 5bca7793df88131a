// A vocabulary of ids that have no text, for models whose files carry none. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "text/tokenizer.h"

namespace lode::text {

// `vocab` ordinary tokens without text: encode() gives nothing, decode() gives nothing, and none of them ends an
// answer.
std::unique_ptr<Tokenizer> tokenizer_without_text(std::int32_t vocab);

}  // namespace lode::text
