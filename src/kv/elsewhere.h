// Whether a prompt is stored in the KV folder for somebody else: another model, or this one with other KV types. For
// explaining a miss; nothing of it can be used here. Owns nothing. Any thread but the step thread: it lists folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/key.h"
#include "platform/file_system.h"

namespace lode::kv {

struct StoredElsewhere {
  bool same_model = false;     // Then the types differ.
  std::string fingerprint;     // Of the model, hexadecimal.
  std::string k_type, v_type;  // As root keys name them.
  std::int64_t tokens = 0;     // At least so many, of full extents.
};

// `here`: what this server's keys hash, with the asker's salt; only that namespace is looked at. Tries every model's
// folder (64 at most) with the KV types that there are, and this server's numerics, placement and rope: what was stored
// with others of those is not found. Some milliseconds.
std::vector<StoredElsewhere> find_elsewhere(platform::FileSystem& fs, const std::filesystem::path& dir,
                                            const RootInputs& here, std::span<const TokenId> tokens);

}  // namespace lode::kv
