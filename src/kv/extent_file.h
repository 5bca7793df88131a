// Extent files read whole, apart from a running store: for `lode cache` and `lode audit`. Owns nothing. Any
// thread; the folder may be in use, since extents never change once they have their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/extent.h"
#include "platform/file_system.h"

namespace lode::kv {

// Every byte that anybody could ever use: the header, that it is the one this name and folder ask for, the length, and
// each slice's checksum. `bytes_read` is added to. Errors: corrupt, saying what differs first; those of reading.
Status verify_extent(platform::FileSystem& fs, const std::filesystem::path& path, const ExtentName& name,
                     const std::array<std::uint8_t, 32>& fingerprint, std::uint64_t& bytes_read);

// Inverts the top bit of every byte of one block, in all extents of `folder` (DIR/<fingerprint>) that hold it, and
// makes their checksums right again: nothing below an audit of the answers can notice. For `lode audit --damage` and
// tests; no store may have the folder open. Returns how many extents held the block with these tokens at this place
// (its first position / 32).
Result<std::int64_t> falsify_block(platform::FileSystem& fs, const std::filesystem::path& folder, std::int64_t index,
                                   std::span<const TokenId, kBlockTokens> ids);

}  // namespace lode::kv
