#include "cli/read_input.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>

namespace lode::cli {

Result<std::string> read_input(const std::filesystem::path& path) {
  if (path.empty() || path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return Status::io(fmt::format("cannot read {}: it is a folder", path.string()));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::not_found(fmt::format("cannot read {}: no such file, or not permitted", path.string()));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return Status::io(fmt::format("cannot read {} to its end", path.string()));
  return text;
}

}  // namespace lode::cli
