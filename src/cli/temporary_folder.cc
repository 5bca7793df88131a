#include "cli/temporary_folder.h"

#include <fmt/format.h>

#include <random>

namespace lode::cli {

namespace fs = std::filesystem;

Result<TemporaryFolder> TemporaryFolder::make(std::string_view prefix, const fs::path& parent) {
  std::random_device random;
  const fs::path path = parent / fmt::format("{}-{:08x}", prefix, random());
  std::error_code error;
  if (!fs::create_directory(path, error))
    return Status::io(fmt::format("cannot create {}: {}", path.string(), error.message()));
  fs::permissions(path, fs::perms::owner_all, error);
  return TemporaryFolder(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace lode::cli
