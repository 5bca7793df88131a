// Python's methods of str. Positions count characters, not bytes.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {
namespace {

// The whole of `self`, charged as work once.
std::string_view subject(Runtime& rt, const Value& self) {
  rt.budget.read(self.text().size());
  return self.text();
}

Value mapped(Runtime& rt, const Value& self, const Args& args, std::string_view name,
             std::string (*map)(std::string_view)) {
  const Params p(name, args, {}, 0);
  rt.budget.require(self.text().size());
  return rt.like(self, map(subject(rt, self)));
}

Value upper(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "upper", to_upper);
}
Value lower(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "lower", to_lower);
}
Value title(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "title", to_title);
}
Value capitalize(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "capitalize", to_capital);
}
Value swapcase(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "swapcase", swap_case);
}
Value casefold(Runtime& rt, const Value& self, const Args& a) {
  return mapped(rt, self, a, "casefold", fold_case);
}

Value stripped(Runtime& rt, const Value& self, const Args& args, std::string_view name, Side side) {
  const Params p(name, args, {"chars"}, 0);
  const std::string_view text = subject(rt, self);
  const bool space = !p[0] || p[0]->is(Kind::none);
  if (!space) rt.budget.require(p.text(0).size() * sizeof(char32_t));
  return rt.part(self, space ? strip_space(text, side) : strip_chars(text, p.text(0), side));
}
Value strip(Runtime& rt, const Value& self, const Args& a) {
  return stripped(rt, self, a, "strip", Side::both);
}
Value lstrip(Runtime& rt, const Value& self, const Args& a) {
  return stripped(rt, self, a, "lstrip", Side::left);
}
Value rstrip(Runtime& rt, const Value& self, const Args& a) {
  return stripped(rt, self, a, "rstrip", Side::right);
}

// A part of a text that methods with start and end look at.
struct Window {
  std::string_view text;
  std::size_t first_char = 0;
  bool valid = true;  // Python finds nothing where start lies behind the end, not even "".
};

Window window(Runtime& rt, const Value& self, const Params& p, std::size_t start_at) {
  const std::string_view text = subject(rt, self);
  const auto given = [&](std::size_t i) { return p[i] && !p[i]->is(Kind::none); };
  if (!given(start_at) && !given(start_at + 1)) return {text};
  const std::int64_t count = *length(self);
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    if (!given(i)) return otherwise;
    const std::int64_t at = p.integer(i);
    return at < 0 ? std::max<std::int64_t>(at + count, 0) : at;
  };
  const std::int64_t start = place(start_at, 0), end = std::min(place(start_at + 1, count), count);
  if (start > end) return {text.substr(0, 0), 0, false};
  const std::size_t begin = byte_of_char(text, static_cast<std::size_t>(start));
  const std::string_view rest = text.substr(begin);
  return {rest.substr(0, byte_of_char(rest, static_cast<std::size_t>(end - start))), static_cast<std::size_t>(start)};
}

enum class From { start, end };

std::int64_t found_at(Runtime& rt, const Value& self, const Args& args, std::string_view name, From from) {
  const Params p(name, args, {"sub", "start", "end"}, 1);
  const std::string_view needle = p.text(0);
  const Window w = window(rt, self, p, 1);
  if (!w.valid) return -1;
  const std::size_t at = from == From::start ? find_bytes(w.text, needle) : find_last_bytes(w.text, needle);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(w.first_char + count_chars(w.text.substr(0, at)));
}

Value find_method(Runtime& rt, const Value& self, const Args& a) {
  return Value::integer(found_at(rt, self, a, "find", From::start));
}
Value rfind(Runtime& rt, const Value& self, const Args& a) {
  return Value::integer(found_at(rt, self, a, "rfind", From::end));
}
Value index(Runtime& rt, const Value& self, const Args& a) {
  const std::int64_t at = found_at(rt, self, a, "index", From::start);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}
Value rindex(Runtime& rt, const Value& self, const Args& a) {
  const std::int64_t at = found_at(rt, self, a, "rindex", From::end);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const Params p("count", args, {"sub", "start", "end"}, 1);
  const std::string_view needle = p.text(0);
  const Window w = window(rt, self, p, 1);
  if (!w.valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(count_chars(w.text)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_bytes(w.text, needle, at)) != std::string_view::npos; at += needle.size()) {
    rt.budget.step();
    ++n;
  }
  return Value::integer(n);
}

bool has_affix(std::string_view text, std::string_view affix, From from) {
  return from == From::start ? text.starts_with(affix) : text.ends_with(affix);
}

Value affixed(Runtime& rt, const Value& self, const Args& args, std::string_view name, From from) {
  const Params p(name, args, {"prefix", "start", "end"}, 1);
  const Window w = window(rt, self, p, 1);
  const Value& affix = p.at(0);
  const bool tuple = affix.is(Kind::sequence) && affix.as<SequenceObject>().flavor == Flavor::tuple;
  if (!tuple) return Value::boolean(has_affix(w.text, p.text(0), from) && w.valid);
  for (const Value& one : affix.as<SequenceObject>().items) {
    rt.budget.step();
    if (!one.is_str()) fail(fmt::format("{}(): a tuple must hold str, not {}", name, type_name(one)));
    if (w.valid && has_affix(w.text, one.text(), from)) return Value::boolean(true);
  }
  return Value::boolean(false);
}
Value startswith(Runtime& rt, const Value& self, const Args& a) {
  return affixed(rt, self, a, "startswith", From::start);
}
Value endswith(Runtime& rt, const Value& self, const Args& a) {
  return affixed(rt, self, a, "endswith", From::end);
}

Value removeprefix(Runtime& rt, const Value& self, const Args& args) {
  const Params p("removeprefix", args, {"prefix"}, 1);
  const std::string_view text = subject(rt, self), prefix = p.text(0);
  return rt.part(self, text.starts_with(prefix) ? text.substr(prefix.size()) : text);
}
Value removesuffix(Runtime& rt, const Value& self, const Args& args) {
  const Params p("removesuffix", args, {"suffix"}, 1);
  const std::string_view text = subject(rt, self), suffix = p.text(0);
  return rt.part(self, text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text);
}

Value replace(Runtime& rt, const Value& self, const Args& args) {
  const Params p("replace", args, {"old", "new", "count"}, 2);
  subject(rt, self);
  p.text(1);  // Fails where it is no str.
  const Value out = replaced(rt, self, p.text(0), p.at(1), p.integer_or(2, -1));
  return self.is_markup() ? rt.markup(std::string(out.text())) : out;
}

// ---- splitting

Values split_at(Runtime& rt, const Value& self, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) fail("empty separator");
  const std::string_view text = self.text();
  Values parts;
  std::size_t begin = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = find_bytes(text, separator, begin);
    if (at == std::string_view::npos) break;
    rt.budget.step();
    parts.push_back(rt.part(self, text.substr(begin, at - begin)));
    begin = at + separator.size();
  }
  parts.push_back(rt.part(self, text.substr(begin)));
  return parts;
}

Values rsplit_at(Runtime& rt, const Value& self, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) fail("empty separator");
  std::string back(self.text().rbegin(), self.text().rend()), back_separator(separator.rbegin(), separator.rend());
  Values parts;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    rt.budget.step();
    parts.push_back(rt.part(self, self.text().substr(back.size() - end, end - begin)));
  };
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = find_bytes(back, back_separator, begin);
    if (at == std::string_view::npos) break;
    add(at);
    begin = at + separator.size();
  }
  add(back.size());
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Values split_space(Runtime& rt, const Value& self, std::int64_t limit) {
  std::string_view rest = strip_space(self.text(), Side::left);
  Values parts;
  while (!rest.empty() && (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit)) {
    std::size_t end = 0;
    while (end < rest.size() && !is_space(utf8_at(rest, end).code)) end += utf8_at(rest, end).bytes;
    rt.budget.step();
    parts.push_back(rt.part(self, rest.substr(0, end)));
    rest = strip_space(rest.substr(end), Side::left);
  }
  if (!rest.empty()) parts.push_back(rt.part(self, rest));  // White space at its end stays.
  return parts;
}

Values rsplit_space(Runtime& rt, const Value& self, std::int64_t limit) {
  std::string_view rest = strip_space(self.text(), Side::right);
  std::vector<std::string_view> words;
  for (std::size_t pos = 0, begin = 0; pos <= rest.size();) {  // Forwards: a character's start is found only so.
    const bool end = pos == rest.size() || is_space(utf8_at(rest, pos).code);
    if (end && pos > begin) {
      words.push_back(rest.substr(begin, pos - begin));
      if (words.size() % 1024 == 0) rt.budget.require(words.size() * 2 * sizeof(words[0]));
    }
    if (pos == rest.size()) break;
    pos += utf8_at(rest, pos).bytes;
    if (end) begin = pos;
  }
  rt.budget.step(static_cast<std::int64_t>(words.size()));
  Values parts;
  std::size_t first = 0;
  if (limit >= 0 && words.size() > static_cast<std::size_t>(limit)) {
    first = words.size() - static_cast<std::size_t>(limit);
    const std::size_t end = static_cast<std::size_t>(words[first - 1].data() + words[first - 1].size() - rest.data());
    // What is not split keeps the white space at its front.
    parts.push_back(rt.part(self, self.text().substr(0, end)));
  }
  for (std::size_t i = first; i < words.size(); ++i) parts.push_back(rt.part(self, words[i]));
  return parts;
}

Value split_from(Runtime& rt, const Value& self, const Args& args, From from) {
  const Params p(from == From::start ? "split" : "rsplit", args, {"sep", "maxsplit"}, 0);
  const std::int64_t limit = p.integer_or(1, -1);
  subject(rt, self);
  const bool space = !p[0] || p[0]->is(Kind::none);
  if (space) return rt.list(from == From::start ? split_space(rt, self, limit) : rsplit_space(rt, self, limit));
  return rt.list(from == From::start ? split_at(rt, self, p.text(0), limit) : rsplit_at(rt, self, p.text(0), limit));
}
Value split(Runtime& rt, const Value& self, const Args& a) {
  return split_from(rt, self, a, From::start);
}
Value rsplit(Runtime& rt, const Value& self, const Args& a) {
  return split_from(rt, self, a, From::end);
}

Value splitlines(Runtime& rt, const Value& self, const Args& args) {
  const Params p("splitlines", args, {"keepends"}, 0);
  subject(rt, self);
  Values lines;
  for (const std::string_view line : lines_of(rt, self.text(), p.flag(0) ? LineEnds::keep : LineEnds::drop)) {
    lines.push_back(rt.part(self, line));
  }
  return rt.list(std::move(lines));
}

Value partitioned(Runtime& rt, const Value& self, const Args& args, std::string_view name, From from) {
  const Params p(name, args, {"sep"}, 1);
  const std::string_view text = subject(rt, self), separator = p.text(0);
  if (separator.empty()) fail("empty separator");
  const std::size_t at = from == From::start ? find_bytes(text, separator) : find_last_bytes(text, separator);
  const auto part = [&](std::string_view t) { return rt.part(self, t); };
  if (at == std::string_view::npos) {
    const Value none = part(text.substr(0, 0));
    return from == From::start ? rt.tuple({part(text), none, none}) : rt.tuple({none, none, part(text)});
  }
  return rt.tuple(
      {part(text.substr(0, at)), part(text.substr(at, separator.size())), part(text.substr(at + separator.size()))});
}
Value partition(Runtime& rt, const Value& self, const Args& a) {
  return partitioned(rt, self, a, "partition", From::start);
}
Value rpartition(Runtime& rt, const Value& self, const Args& a) {
  return partitioned(rt, self, a, "rpartition", From::end);
}

Value join(Runtime& rt, const Value& self, const Args& args) {
  const Params p("join", args, {"iterable"}, 1);
  Sink out(rt.budget);
  std::size_t i = 0;
  for (const Value& part : iterate(rt, p.at(0))) {
    if (!part.is_str()) fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(part)));
    if (i++ > 0) out.put_part(self, self.text());
    if (self.is_markup()) out.put(escaped(rt, part));
    else out.put_part(part, part.text());
  }
  return self.is_markup() ? rt.markup(out.take()) : rt.str(out);
}

// ---- padding

std::string fill_character(const Params& p) {
  if (!p[1]) return " ";
  if (count_chars(p.text(1)) != 1) fail("the fill character must be exactly one character long");
  return std::string(p.text(1));
}

Value padded(Runtime& rt, const Value& self, const Args& args, std::string_view name, Pad pad) {
  const Params p(name, args, {"width", "fillchar"}, 1);
  return rt.like(self, padded_text(rt, self.text(), p.integer(0), fill_character(p), pad));
}
Value center(Runtime& rt, const Value& self, const Args& a) {
  return padded(rt, self, a, "center", Pad::center);
}
Value ljust(Runtime& rt, const Value& self, const Args& a) {
  return padded(rt, self, a, "ljust", Pad::right);
}
Value rjust(Runtime& rt, const Value& self, const Args& a) {
  return padded(rt, self, a, "rjust", Pad::left);
}

Value zfill(Runtime& rt, const Value& self, const Args& args) {
  const Params p("zfill", args, {"width"}, 1);
  std::string_view text = subject(rt, self);
  const std::int64_t missing = p.integer(0) - *length(self);
  Sink out(rt.budget);
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    out.put(text[0]);
    text.remove_prefix(1);
  }
  if (missing > 0) out.fill(static_cast<std::size_t>(missing), "0");
  out.put(text);
  return rt.like(self, out.take());
}

Value expandtabs(Runtime& rt, const Value& self, const Args& args) {
  const Params p("expandtabs", args, {"tabsize"}, 0);
  const std::int64_t size = p.integer_or(0, 8);
  Sink out(rt.budget);
  std::int64_t column = 0;
  const std::string_view text = subject(rt, self);
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (c.code == '\t') {
      const std::int64_t gap = size > 0 ? size - column % size : 0;
      out.fill(static_cast<std::size_t>(gap), " ");
      column += gap;
    } else {
      out.put(text.substr(pos, c.bytes));
      column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    }
    pos += c.bytes;
  }
  return rt.like(self, out.take());
}

// ---- questions

template <typename Each>
bool all_of(Runtime& rt, const Value& self, const Each& each) {
  const std::string_view text = subject(rt, self);
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!each(c.code)) return false;
    pos += c.bytes;
  }
  return true;
}

template <bool (*kEach)(char32_t)>
Value every(Runtime& rt, const Value& self, const Args& args) {
  const Params p("is...", args, {}, 0);
  return Value::boolean(!self.text().empty() && all_of(rt, self, kEach));
}
Value isprintable(Runtime& rt, const Value& self, const Args&) {
  return Value::boolean(all_of(rt, self, is_printable));
}
Value isascii(Runtime&, const Value& self, const Args&) {
  return Value::boolean(self.as<StringObject>().ascii);
}
Value islower(Runtime& rt, const Value& self, const Args&) {
  subject(rt, self);
  return Value::boolean(all_cased(self.text(), Case::lower));
}
Value isupper(Runtime& rt, const Value& self, const Args&) {
  subject(rt, self);
  return Value::boolean(all_cased(self.text(), Case::upper));
}
Value istitle(Runtime& rt, const Value& self, const Args&) {
  bool any = false, inside = false;
  const bool fine = all_of(rt, self, [&](char32_t c) {
    const Case k = case_of(c);
    if (k != Case::none && inside != (k == Case::lower)) return false;
    any |= k != Case::none;
    inside = k != Case::none;
    return true;
  });
  return Value::boolean(fine && any);
}
Value isidentifier(Runtime& rt, const Value& self, const Args&) {
  const std::string_view text = self.text();
  const bool starts = !text.empty() && is_word(utf8_at(text, 0).code) && !is_numeric(utf8_at(text, 0).code);
  return Value::boolean(starts && all_of(rt, self, is_word));
}

Value format(Runtime& rt, const Value& self, const Args& args) {
  return rt.like(self, brace_format(rt, self, args));
}
Value format_map(Runtime& rt, const Value& self, const Args& args) {
  const Params p("format_map", args, {"mapping"}, 1);
  if (!p.at(0).is(Kind::dict)) fail("format_map() needs a mapping");
  Args named;
  for (const auto& [key, value] : p.at(0).as<DictObject>().items) {
    if (key.is_str()) named.named.emplace_back(key.text(), value);
  }
  return rt.like(self, brace_format(rt, self, named));
}

struct Entry {
  std::string_view name;
  Native native;
};
constexpr Entry kMethods[] = {
    {"capitalize", capitalize},
    {"casefold", casefold},
    {"center", center},
    {"count", count},
    {"endswith", endswith},
    {"expandtabs", expandtabs},
    {"find", find_method},
    {"format", format},
    {"format_map", format_map},
    {"index", index},
    {"isalnum", every<is_alnum>},
    {"isalpha", every<is_alpha>},
    {"isascii", isascii},
    {"isdecimal", every<is_decimal>},
    {"isdigit", every<is_digit>},
    {"isidentifier", isidentifier},
    {"islower", islower},
    {"isnumeric", every<is_numeric>},
    {"isprintable", isprintable},
    {"isspace", every<is_space>},
    {"istitle", istitle},
    {"isupper", isupper},
    {"join", join},
    {"ljust", ljust},
    {"lower", lower},
    {"lstrip", lstrip},
    {"partition", partition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"rfind", rfind},
    {"rindex", rindex},
    {"rjust", rjust},
    {"rpartition", rpartition},
    {"rsplit", rsplit},
    {"rstrip", rstrip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"strip", strip},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill},
};

}  // namespace

Native string_method(std::string_view name) {
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.native;
  }
  return nullptr;
}

}  // namespace lode::text::jinja
