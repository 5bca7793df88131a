// Strings of a schema: lengths, patterns and formats.
#include <fmt/format.h>

#include "text/grammar/automaton_builder.h"
#include "text/grammar/formats.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema_writer.h"

namespace lode::text::grammar {

SchemaWriter::Made SchemaWriter::string_part(const SchemaSource* pattern, const std::string* format) {
  if (format != nullptr) return add_regex(ir_, format_regex(*format), {.encoding = Encoding::json_string});
  auto made = add_regex(ir_, pattern->json->get_ref<const std::string&>(),
                        {.encoding = Encoding::json_string, .match = RegexOptions::Match::search});
  if (!made.ok()) return Status(made.status().code(), pattern->pointer + ": " + made.status().message());
  return made;
}

Result<Fsa> SchemaWriter::string_automaton(const SchemaModel& model) {
  std::vector<NodeId> parts;
  for (const SchemaSource& pattern : model.patterns) {
    auto part = string_part(&pattern, nullptr);
    if (!part.ok()) return part.status();
    parts.push_back(*part);
  }
  for (const std::string& format : model.formats) {
    auto part = string_part(nullptr, &format);
    if (!part.ok()) return part.status();
    parts.push_back(*part);
  }
  if (parts.empty() || model.min_length > 0 || model.max_length != kNoBound) {
    parts.push_back(ir_.repeat(json_.canonical_character(), model.min_length, model.max_length));
  }
  Result<Fsa> out = Fsa();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto next = build_fsa(ir_, parts[i], work_);
    if (next.ok()) next = minimize(*next, work_);
    if (next.ok() && i > 0) next = combine(*out, *next, Combine::both, work_);
    if (!next.ok()) {
      return Status(next.status().code(),
                    fmt::format("{}: pattern, format and length together: {}", model.pointer, next.status().message()));
    }
    out = std::move(next);
  }
  return minimize(*out, work_);
}

SchemaWriter::Made SchemaWriter::write_string(const SchemaModel& model) {
  const std::size_t texts = model.patterns.size() + model.formats.size();
  const bool any_length = model.min_length == 0 && model.max_length == kNoBound;
  if (texts == 0) return any_length ? json_.any_string() : json_.string(model.min_length, model.max_length);
  if (texts == 1 && any_length) {
    auto part = string_part(model.patterns.empty() ? nullptr : &model.patterns[0],
                            model.formats.empty() ? nullptr : &model.formats[0]);
    if (!part.ok()) return part;
    return json_.shared("text", json_.quoted(*part));
  }
  auto fsa = string_automaton(model);
  if (!fsa.ok()) return fsa.status();
  if (accepts_nothing(*fsa))
    return impossible(model.pointer + ": no string satisfies pattern, format and length together");
  return json_.shared("text", json_.quoted(ir_.automaton(std::move(*fsa))));
}

}  // namespace lode::text::grammar
