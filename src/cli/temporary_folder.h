// A folder of a command's own, removed with all it holds when the command is done. Owns the folder. One thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace lode::cli {

class TemporaryFolder {
 public:
  // Makes PARENT/<prefix>-<8 hex>, readable by this user alone. The default parent is kept on disk, where /tmp may be
  // memory.
  static Result<TemporaryFolder> make(std::string_view prefix, const std::filesystem::path& parent = "/var/tmp");
  TemporaryFolder() = default;
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }  // Empty: there is none.

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace lode::cli
