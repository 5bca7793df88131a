// Checks `messages` and `tools` of a chat body, so that what reaches a template has the shape it expects. Owns nothing.
// Any thread.
#pragma once

#include "serve/fields.h"
#include "serve/json.h"
#include "serve/place.h"

namespace lode::serve {

// The messages, checked: every one an object with a known role; content a string, or parts of text alone; calls with a
// name. What is not known is left as it is. An error names the place: messages[2].content[0].type.
Json read_messages(Fields& fields);
// The array `messages` of a body, which must be there and hold some; nullptr, and an error, where it is not.
const Json* needed_messages(Fields& fields);
// A message's content: a string, or an array of text parts, each {"type": "text", "text"} from then on; null stays
// null.
Json read_content(const Json* content, const Place& place);
// An array of {"type": "function", "function": {"name", ...}}; null where there is none.
Json read_tools(Fields& fields);

}  // namespace lode::serve
