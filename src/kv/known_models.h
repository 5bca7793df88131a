// DIR/known-models: the hash of all bytes of model files that were read whole before, by what the file system says of
// them (inode, size, times). Owns nothing. One thread; several processes may use one folder.
//
// An accelerator only: what it lacks or gets wrong costs one reading of the model, and a record is believed for exactly
// the files it was made for.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "platform/file_system.h"
#include "platform/mapping.h"

namespace lode::kv {

using Hash = std::array<std::uint8_t, 32>;

class KnownModels {
 public:
  static constexpr std::string_view kFileName = "known-models";
  static constexpr std::size_t kRecordsMax = 256;  // The oldest goes first; 18 KiB.

  // `folder` need not exist.
  KnownModels(platform::FileSystem& fs, const std::filesystem::path& folder);

  std::optional<Hash> find(std::span<const platform::FileStamp> stamps) const;
  // Replaces the file by one with this record too; makes the folder where it is absent.
  Status remember(std::span<const platform::FileStamp> stamps, const Hash& content);

 private:
  struct Record {
    Hash stamps, content;
  };
  std::vector<Record> load() const;
  static Hash key_of(std::span<const platform::FileStamp> stamps);

  platform::FileSystem& fs_;
  const std::filesystem::path path_;
};

// What names a model in the store: SHA-256 over its fingerprint and the hash of all its bytes.
Hash model_name(const Hash& fingerprint, const Hash& content);

}  // namespace lode::kv
