// What a KV folder holds, over all models: for `lode cache`. Owns nothing on disk. One thread. Reading needs no lock
// and goes beside a server; who removes or adds files holds the folder's lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/extent.h"
#include "platform/file_system.h"

namespace lode::kv {

struct StoredExtent {
  std::string model;  // The folder's name: 64 hex digits, the model's name in the store.
  ExtentMeta meta;
  std::uint64_t allocated_bytes = 0;
  std::int64_t used_seconds = 0;  // Wall clock of the last known use.

  std::string path() const { return model + "/" + meta.name.file_name(); }  // Below the folder.
};

struct StrayFile {
  std::string path;  // Below the folder.
  std::uint64_t allocated_bytes = 0;
  std::string what;  // Why it is no use to anybody.
};

struct Inventory {
  std::vector<StoredExtent> extents;
  std::vector<StrayFile> temporaries, damaged;  // damaged: set aside before, or with a header that is not sound.
};

// Errors: the folder cannot be listed.
Result<Inventory> read_inventory(platform::FileSystem& fs, const std::filesystem::path& folder);

// A prompt that is stored: from its first block to one that nothing follows.
struct StoredChain {
  std::string model;
  BlockKey last;
  std::int64_t tokens = 0;     // Up to its end.
  std::vector<TokenId> begin;  // Its first tokens, 64 at most. Empty where the first block is missing.
  std::uint64_t bytes = 0;     // Of all extents on its way; chains may share them.
  std::int64_t used_seconds = 0;
};
std::vector<StoredChain> chains_of(const Inventory& inventory);

// Positions in inventory.extents of those whose parent is in no extent of the same model, or in one of `without` (which
// are included); and of what follows them.
std::vector<std::size_t> without_parent(const Inventory& inventory, const std::vector<std::size_t>& without);
// The extents with a block whose key begins with these hex digits.
std::vector<std::size_t> with_key(const Inventory& inventory, std::string_view hex_prefix);
// Which to remove, least recently used first and ends before beginnings, so that at most `bytes` remain.
std::vector<std::size_t> beyond(const Inventory& inventory, std::uint64_t bytes);

// The writer's lock. `unavailable`: names the file that another process holds.
Result<std::unique_ptr<platform::FileLock>> lock_folder(platform::FileSystem& fs, const std::filesystem::path& folder);

// Writes the extents into one file. Errors leave no file.
Status export_extents(platform::FileSystem& fs, const std::filesystem::path& folder,
                      const std::vector<StoredExtent>& extents, const std::filesystem::path& file);
struct Imported {
  std::uint64_t extents = 0, present = 0, bytes = 0;  // present: were there already.
};
// Checks every byte, then gives all of them their names: all or nothing. `model`: the only one accepted; empty: any.
// The folder's lock is held. Errors: corrupt, unsupported (another format), invalid (another model).
Result<Imported> import_extents(platform::FileSystem& fs, const std::filesystem::path& folder,
                                const std::filesystem::path& file, const std::string& model);

}  // namespace lode::kv
