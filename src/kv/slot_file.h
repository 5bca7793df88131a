// A slot file: the tokens that a slot had computed, as the keys of their blocks, with all that proves what they belong
// to. It holds no KV: that lies in the tiers under those keys. Owns nothing. Any thread. docs/kv-format.md has the
// bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/key.h"
#include "platform/file_system.h"

namespace lode::kv {

struct SlotFile {
  static constexpr std::size_t kTokensMax = 1u << 24;  // 64 MiB of ids: no context is longer.

  RootInputs root;  // Without its salt: `keys` prove that.
  std::vector<TokenId> tokens;
  std::vector<BlockKey> keys;  // Of its full blocks.
};

// Replaces the file. Mode 0600; whole or not at all. The bytes that it has.
Result<std::size_t> write_slot_file(platform::FileSystem& fs, const std::filesystem::path& path, const SlotFile& slot);
// Errors: not_found; corrupt, which names what is wrong; unsupported: another format version.
struct SlotFileRead {
  SlotFile slot;
  std::size_t bytes = 0;
};
Result<SlotFileRead> read_slot_file(platform::FileSystem& fs, const std::filesystem::path& path);
Result<SlotFile> parse_slot_file(std::span<const std::byte> bytes);

// Why the blocks of a file with this root are of no use under that one: ok, or `invalid`, which names what differs.
Status same_root(const RootInputs& file, const RootInputs& here);

}  // namespace lode::kv
