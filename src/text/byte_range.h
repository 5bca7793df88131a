// A part of a text. Plain data.
#pragma once

#include <cstddef>

namespace lode::text {

struct ByteRange {
  std::size_t begin = 0, end = 0;  // bytes
  bool operator==(const ByteRange&) const = default;
};

}  // namespace lode::text
