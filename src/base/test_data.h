// Where tests find shared data: ../shared/data beside the checkout, or LODE_TEST_DATA. Tests only.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace lode::test {

// The shared data folder, or an empty path where it is absent: skip with a message then (CI must find it).
inline std::filesystem::path shared_data() {
  namespace fs = std::filesystem;
  if (const char* named = std::getenv("LODE_TEST_DATA")) return named;
  const fs::path beside = fs::path(LODE_SOURCE_DIR) / ".." / "shared" / "data";
  return fs::exists(beside) ? beside : fs::path();
}

// The folder that scripts/setup.sh fills with the two real models; a file may be absent.
inline std::filesystem::path models() {
  return std::filesystem::path(LODE_SOURCE_DIR) / "models";
}

}  // namespace lode::test
