// Cuts a stream of text before the first stop string, however it is split. Owns the held text. Step thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode::engine {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that may be sent now. What could still be the start of a stop string is held.
  std::string push(std::string_view text);
  // What is still held, once no more text comes and nothing matched.
  std::string flush();
  // The stop string that was found; empty: none yet. Nothing is sent after it.
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_, matched_;
};

}  // namespace lode::engine
