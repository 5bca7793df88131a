// The fields of a body that say which texts an answer may be: response_format, json_schema, grammar, guided_*,
// structured_outputs. Owns nothing. Any thread.
#pragma once

#include "engine/request.h"
#include "serve/fields.h"
#include "text/grammar/grammar_store.h"

namespace lode::serve {

// Whether a body has one of these fields: compiling a grammar may take seconds.
bool names_structured_output(const Json& body);

// Sets `out.constraint` where a field asks for one. At most one may; a grammar that does not compile is an error of its
// field, with the compiler's line. `grammars` outlives the request.
void read_structured_output(Fields& fields, text::grammar::GrammarStore& grammars, engine::Request& out);

}  // namespace lode::serve
