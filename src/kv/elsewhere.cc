#include "kv/elsewhere.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "kernels/kernels.h"
#include "kv/disk_folder.h"
#include "kv/extent.h"

namespace lode::kv {
namespace {

constexpr std::size_t kFoldersMax = 64;
constexpr std::int64_t kBlocksMax = 4096;  // 128k tokens.

// How far a chain with this root is stored, by the last keys of the folder's extents. Every chain has an extent that
// ends in its first 16 blocks: most roots are done with after those.
std::int64_t stored_blocks(const std::unordered_set<BlockKey, BlockKeyHash>& ends, const RootInputs& root,
                           std::span<const TokenId> tokens) {
  const std::int64_t blocks = std::min(static_cast<std::int64_t>(tokens.size()) / kBlockTokens, kBlocksMax);
  BlockKey key = root_key(root);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < blocks && i < found + kExtentBlocks; ++i) {
    key = child_key(key, std::span<const TokenId, kBlockTokens>(tokens.data() + i * kBlockTokens, kBlockTokens));
    if (ends.contains(key)) found = i + 1;
  }
  return found;
}

}  // namespace

std::vector<StoredElsewhere> find_elsewhere(platform::FileSystem& fs, const std::filesystem::path& dir,
                                            const RootInputs& here, std::span<const TokenId> tokens) {
  using kernels::KvType;
  std::vector<StoredElsewhere> out;
  const auto top = fs.list(dir);
  if (!top.ok()) return out;
  std::vector<std::pair<std::string, std::string>> types = {{here.k_type, here.v_type}};
  for (const KvType k : {KvType::f16, KvType::q8_0, KvType::f32})
    for (const KvType v : {KvType::f16, KvType::q8_0, KvType::f32})
      types.emplace_back(kernels::kv_format_name(k), kernels::kv_format_name(v));
  std::size_t folders = 0;
  for (const auto& entry : *top) {
    const auto fingerprint = parse_fingerprint(entry.name);
    if (!fingerprint || ++folders > kFoldersMax) continue;
    const auto files = fs.list(dir / entry.name);
    if (!files.ok()) continue;
    std::unordered_set<BlockKey, BlockKeyHash> ends;
    for (const auto& file : *files)
      if (const auto name = ExtentName::parse(file.name)) ends.insert(name->last);
    StoredElsewhere best{.same_model = *fingerprint == here.model_fingerprint, .fingerprint = entry.name};
    for (const auto& [k, v] : types) {
      if (best.same_model && k == here.k_type && v == here.v_type) continue;  // That is here.
      RootInputs root = here;
      root.model_fingerprint = *fingerprint;
      root.k_type = k;
      root.v_type = v;
      const std::int64_t stored = stored_blocks(ends, root, tokens) * kBlockTokens;
      if (stored > best.tokens) best.tokens = stored, best.k_type = k, best.v_type = v;
    }
    if (best.tokens > 0) out.push_back(std::move(best));
  }
  return out;
}

}  // namespace lode::kv
