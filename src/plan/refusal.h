// The form of a refusal: what does not fit, by how much, and the nearest settings that do. plan/ only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace lode::plan {

struct Refusal {
  std::string what;
  std::vector<std::string> advice;
  void advise(std::string text) { advice.push_back(std::move(text)); }
  Status status() const;
};

// A SIZE that can be typed as a flag's value and is not above `bytes`: "920MiB".
std::string fitting(std::uint64_t bytes);
// The --memory under which `need` bytes fit beside the margin, in whole MiB.
std::uint64_t memory_for(std::uint64_t need);

}  // namespace lode::plan
