// Sets of Unicode code points, and how their UTF-8 forms split into runs of byte ranges. Owns nothing beyond the set.
// Any thread; src/text/grammar only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text::grammar {

inline constexpr std::uint32_t kCodePointMax = 0x10FFFF;

struct CodePointRange {
  std::uint32_t first = 0, last = 0;  // Both inclusive.
  bool operator==(const CodePointRange&) const = default;
};

// Code points as sorted, disjoint, non-adjacent ranges. Surrogates are no code points of a text: normalize() drops
// them.
class CodePointSet {
 public:
  CodePointSet() = default;
  static CodePointSet of(std::initializer_list<CodePointRange> ranges);
  static CodePointSet all() { return of({{0, kCodePointMax}}); }
  static CodePointSet single(std::uint32_t c) { return of({{c, c}}); }

  void add(std::uint32_t first, std::uint32_t last) { ranges_.push_back({first, last}); }
  void add(const CodePointSet& other) { ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end()); }
  void normalize();

  // The operands and the results are normalized.
  CodePointSet complement() const;
  CodePointSet intersect(const CodePointSet& other) const;
  bool contains(std::uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const CodePointRange> ranges() const { return ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

// One to four byte ranges whose product is a set of characters.
struct ByteRun {
  struct Range {
    std::uint8_t lo = 0, hi = 0;
  };
  std::array<Range, 4> bytes{};
  int size = 0;
};
std::vector<ByteRun> utf8_runs(const CodePointSet& set);

void append_utf8(std::string& out, std::uint32_t code_point);

// The code points with a general category of Unicode ("L", "Lu", "Nd", "Letter", ...); empty for an unknown name.
CodePointSet category_set(std::string_view name);

}  // namespace lode::text::grammar
