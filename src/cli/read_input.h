// A whole file, or stdin, as bytes. Any thread.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace lode::cli {

// "-" and an empty path are stdin.
Result<std::string> read_input(const std::filesystem::path& path);

}  // namespace lode::cli
