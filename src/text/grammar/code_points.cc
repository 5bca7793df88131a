#include "text/grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace lode::text::grammar {

CodePointSet CodePointSet::of(std::initializer_list<CodePointRange> ranges) {
  CodePointSet out;
  out.ranges_.assign(ranges.begin(), ranges.end());
  out.normalize();
  return out;
}

void CodePointSet::normalize() {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& r : ranges_) {
    if (r.first > r.last) continue;
    if (r.first < 0xD800) parts.push_back({r.first, std::min(r.last, 0xD7FFu)});
    if (r.last > 0xDFFF) parts.push_back({std::max(r.first, 0xE000u), std::min(r.last, kCodePointMax)});
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  ranges_.clear();
  for (const CodePointRange& r : parts) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    } else {
      ranges_.push_back(r);
    }
  }
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  std::uint32_t next = 0;
  for (const CodePointRange& r : ranges_) {
    if (r.first > next) out.add(next, r.first - 1);
    next = r.last + 1;
  }
  if (next <= kCodePointMax) out.add(next, kCodePointMax);
  out.normalize();
  return out;
}

CodePointSet CodePointSet::intersect(const CodePointSet& other) const {
  CodePointSet out;
  for (std::size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const CodePointRange &a = ranges_[i], &b = other.ranges_[j];
    if (std::max(a.first, b.first) <= std::min(a.last, b.last)) {
      out.add(std::max(a.first, b.first), std::min(a.last, b.last));
    }
    (a.last < b.last ? i : j) += 1;
  }
  out.normalize();
  return out;
}

bool CodePointSet::contains(std::uint32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](std::uint32_t v, const CodePointRange& r) { return v < r.first; });
  return after != ranges_.begin() && std::prev(after)->last >= c;
}

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
            static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
            static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

namespace {

// Splits a range of characters of one length so that each part is a product of byte ranges: wherever the leading bytes
// of both ends differ, the trailing ones must run from 0x80 to 0xBF.
void split_run(std::uint32_t first, std::uint32_t last, std::vector<ByteRun>& out) {
  for (int trailing = 1; trailing <= 3; ++trailing) {
    const std::uint32_t low = (1u << (6 * trailing)) - 1;
    if (last < 0x80 || (first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      split_run(first, first | low, out);
      return split_run((first | low) + 1, last, out);
    }
    if ((last & low) != low) {
      split_run(first, (last & ~low) - 1, out);
      return split_run(last & ~low, last, out);
    }
  }
  std::string a, b;
  append_utf8(a, first);
  append_utf8(b, last);
  ByteRun run;
  run.size = static_cast<int>(a.size());
  for (int i = 0; i < run.size; ++i) {
    run.bytes[i] = {static_cast<std::uint8_t>(a[i]), static_cast<std::uint8_t>(b[i])};
  }
  out.push_back(run);
}

}  // namespace

std::vector<ByteRun> utf8_runs(const CodePointSet& set) {
  static constexpr CodePointRange kLengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kCodePointMax}};
  std::vector<ByteRun> out;
  for (const CodePointRange& r : set.ranges()) {
    for (const CodePointRange& length : kLengths) {
      const std::uint32_t first = std::max(r.first, length.first), last = std::min(r.last, length.last);
      if (first <= last) split_run(first, last, out);
    }
  }
  return out;
}

CodePointSet category_set(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"Letter", "L"},
                                                                            {"Lowercase_Letter", "Ll"},
                                                                            {"Uppercase_Letter", "Lu"},
                                                                            {"Mark", "M"},
                                                                            {"Number", "N"},
                                                                            {"Decimal_Number", "Nd"},
                                                                            {"Punctuation", "P"},
                                                                            {"Symbol", "S"},
                                                                            {"Separator", "Z"},
                                                                            {"Other", "C"},
                                                                            {"Titlecase_Letter", "Lt"},
                                                                            {"Modifier_Letter", "Lm"},
                                                                            {"Other_Letter", "Lo"},
                                                                            {"Letter_Number", "Nl"},
                                                                            {"Other_Number", "No"},
                                                                            {"Math_Symbol", "Sm"},
                                                                            {"Currency_Symbol", "Sc"}};
  for (const auto& [full, brief] : kLong) {
    if (name == full) name = brief;
  }
  if (name.empty() || name.size() > 2) return {};
  // A look at every code point takes milliseconds: once a name. Names without a set are not kept.
  static std::mutex mutex;
  static std::map<std::string, CodePointSet, std::less<>> made;
  const std::lock_guard lock(mutex);
  if (const auto it = made.find(name); it != made.end()) return it->second;
  CodePointSet out;
  for (std::uint32_t c = 0; c <= kCodePointMax; ++c) {
    const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    if (category.starts_with(name)) out.add(c, c);
  }
  out.normalize();
  if (!out.empty()) made.emplace(name, out);
  return out;
}

}  // namespace lode::text::grammar
