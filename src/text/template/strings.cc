// Work on texts that methods and filters share.
#include <algorithm>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {

Value replaced(Runtime& rt, const Value& whole, std::string_view old, const Value& with, std::int64_t count) {
  const std::string_view text = whole.text();
  Sink out(rt.budget);
  std::size_t pos = 0;
  const auto more = [&count] { return count < 0 || count-- > 0; };
  if (old.empty()) {  // Before each character and at the end.
    while (pos < text.size() && more()) {
      out.put_part(with, with.text());
      const std::size_t bytes = utf8_at(text, pos).bytes;
      out.put_part(whole, text.substr(pos, bytes));
      pos += bytes;
    }
    if (pos == text.size() && more()) out.put_part(with, with.text());
  } else {
    std::size_t at = 0;
    while ((at = find_bytes(text, old, pos)) != std::string_view::npos && more()) {
      rt.budget.step();
      out.put_part(whole, text.substr(pos, at - pos));
      out.put_part(with, with.text());
      pos = at + old.size();
    }
  }
  out.put_part(whole, text.substr(pos));
  return rt.str(out);
}

std::vector<std::string_view> lines_of(Runtime& rt, std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t bytes = line_break_at(text, pos);
    if (bytes == 0) {
      ++pos;
      continue;
    }
    lines.push_back(text.substr(begin, pos - begin + (ends == LineEnds::keep ? bytes : 0)));
    rt.budget.step();
    if (lines.size() % 1024 == 0) rt.budget.require(lines.size() * 2 * sizeof(lines[0]));
    pos += bytes;
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string padded_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill, Pad pad) {
  rt.budget.read(text.size());
  const auto size = static_cast<std::int64_t>(count_chars(text));
  const std::int64_t missing = std::max<std::int64_t>(width - size, 0);
  // Python puts the odd space of a centred text left where the width is odd.
  const std::int64_t left = pad == Pad::left ? missing : pad == Pad::right ? 0 : missing / 2 + (missing & width & 1);
  Sink out(rt.budget);
  out.fill(static_cast<std::size_t>(left), fill);
  out.put(text);
  out.fill(static_cast<std::size_t>(missing - left), fill);
  return out.take();
}

bool all_cased(std::string_view text, Case wanted) {
  bool any = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    const Case k = case_of(c.code);
    if (k != Case::none && k != wanted) return false;
    any |= k == wanted;
    pos += c.bytes;
  }
  return any;
}

}  // namespace lode::text::jinja
