// Stands in for the fmt library where scripts/gpu_test.sh finds none: std::format has what the rooms below the tests
// use. Only that script puts this folder on the include path. Needs g++ 13 or clang 17.
#pragma once

#include <format>
#include <string>

namespace fmt {

using std::format;

// "1, 2, 3"
template <typename Range>
std::string join(const Range& range, const char* between) {
  std::string text;
  for (const auto& item : range) {
    if (!text.empty()) text += between;
    text += std::format("{}", item);
  }
  return text;
}

}  // namespace fmt
