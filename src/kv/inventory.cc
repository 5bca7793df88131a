#include "kv/inventory.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "kv/disk_folder.h"
#include "kv/disk_scan.h"
#include "kv/index_log.h"

namespace lode::kv {
namespace {

using platform::DirEntry;
constexpr std::size_t kBeginTokens = 64;

std::optional<std::array<std::uint8_t, 32>> fingerprint_of(std::string_view name) {
  if (name.size() != 64 || name.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::array<std::uint8_t, 32> bytes{};
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < 32; ++i)
    bytes[i] = static_cast<std::uint8_t>(digit(name[2 * i]) * 16 + digit(name[2 * i + 1]));
  return bytes;
}

void read_model(platform::FileSystem& fs, const std::filesystem::path& folder, const std::string& model,
                const std::array<std::uint8_t, 32>& fingerprint, Inventory& inventory) {
  const auto files = fs.list(folder / model);
  if (!files.ok()) return;  // It went a moment ago.
  std::unordered_map<ExtentName, LoggedExtent, ExtentNameHash> logged;
  for (auto& extent : IndexLog(fs, folder / model, fingerprint).load().extents)
    logged.emplace(extent.meta.name, std::move(extent));
  for (const auto& file : *files) {
    if (file.kind != DirEntry::Kind::file) continue;
    const std::string path = model + "/" + file.name;
    if (file.name.ends_with(".tmp")) inventory.temporaries.push_back({path, file.allocated_bytes, "half written"});
    const auto name = ExtentName::parse(file.name);
    if (!name) continue;
    StoredExtent extent{.model = model, .allocated_bytes = file.allocated_bytes, .used_seconds = file.modified_seconds};
    if (const auto found = logged.find(*name); found != logged.end()) {
      extent.meta = std::move(found->second.meta);
      extent.used_seconds = found->second.used_seconds;
    } else {
      auto header = read_extent_header(fs, folder / path, file.size);
      if (header.status().code() == Code::not_found) continue;
      if (!header.ok() || header->meta.name != *name || header->model_fingerprint != fingerprint) {
        inventory.damaged.push_back({path, file.allocated_bytes,
                                     header.ok() ? "its header belongs to another extent" : header.status().message()});
        continue;
      }
      extent.meta = std::move(header->meta);
    }
    inventory.extents.push_back(std::move(extent));
  }
}

struct Node {
  BlockKey parent;
  const ExtentMeta* meta = nullptr;
  std::size_t at = 0;
  std::vector<std::size_t> extents;
  bool followed = false;
};

}  // namespace

Result<Inventory> read_inventory(platform::FileSystem& fs, const std::filesystem::path& folder) {
  const auto top = fs.list(folder);
  if (!top.ok()) return top.status();
  Inventory inventory;
  for (const auto& entry : *top) {
    if (entry.kind != DirEntry::Kind::folder) continue;
    if (entry.name == DiskPaths::kDamagedName) {
      const auto files = fs.list(folder / entry.name);
      for (const auto& file : files.ok() ? *files : std::vector<DirEntry>())
        if (file.kind == DirEntry::Kind::file)
          inventory.damaged.push_back({entry.name + "/" + file.name, file.allocated_bytes, "was set aside"});
    } else if (const auto fingerprint = fingerprint_of(entry.name)) {
      read_model(fs, folder, entry.name, *fingerprint, inventory);
    }
  }
  return inventory;
}

std::vector<StoredChain> chains_of(const Inventory& inventory) {
  std::unordered_map<std::string, std::unordered_map<BlockKey, Node, BlockKeyHash>> models;
  for (std::size_t i = 0; i < inventory.extents.size(); ++i) {
    const StoredExtent& extent = inventory.extents[i];
    auto& nodes = models[extent.model];
    for (std::size_t at = 0; at < extent.meta.keys.size(); ++at) {
      Node& node = nodes[extent.meta.keys[at]];
      node.parent = at == 0 ? extent.meta.parent : extent.meta.keys[at - 1];
      node.meta = &extent.meta;
      node.at = at;
      node.extents.push_back(i);
    }
  }
  std::vector<StoredChain> chains;
  for (auto& [model, nodes] : models) {
    for (auto& [key, node] : nodes)
      if (const auto parent = nodes.find(node.parent); parent != nodes.end()) parent->second.followed = true;
    for (const auto& [key, leaf] : nodes) {
      if (leaf.followed) continue;
      StoredChain chain{.model = model, .last = key};
      chain.tokens = (leaf.meta->first_index + static_cast<std::int64_t>(leaf.at) + 1) * kBlockTokens;
      std::unordered_set<std::size_t> extents, seen;
      std::vector<const Node*> way;
      // A forged folder may hold a circle: no chain is longer than there are blocks.
      for (auto at = nodes.find(key); at != nodes.end() && way.size() <= nodes.size();
           at = nodes.find(at->second.parent)) {
        way.push_back(&at->second);
        extents.insert(at->second.extents.begin(), at->second.extents.end());
      }
      const bool whole = way.back()->meta->first_index + static_cast<std::int64_t>(way.back()->at) == 0;
      for (auto n = way.rbegin(); whole && n != way.rend() && chain.begin.size() < kBeginTokens; ++n)
        chain.begin.insert(chain.begin.end(), (*n)->meta->ids[(*n)->at].begin(), (*n)->meta->ids[(*n)->at].end());
      for (const std::size_t i : extents) {
        chain.bytes += inventory.extents[i].allocated_bytes;
        chain.used_seconds = std::max(chain.used_seconds, inventory.extents[i].used_seconds);
      }
      chains.push_back(std::move(chain));
    }
  }
  return chains;
}

std::vector<std::size_t> without_parent(const Inventory& inventory, const std::vector<std::size_t>& without) {
  std::vector<bool> gone(inventory.extents.size());
  for (const std::size_t i : without) gone[i] = true;
  // Where no history of a model starts at its first token, states need none.
  std::unordered_set<std::string> chained;
  for (const auto& extent : inventory.extents)
    if (extent.meta.first_index == 0) chained.insert(extent.model);
  std::unordered_map<std::string, std::unordered_map<BlockKey, int, BlockKeyHash>> keys;
  for (std::size_t i = 0; i < inventory.extents.size(); ++i)
    if (!gone[i])
      for (const auto& key : inventory.extents[i].meta.keys) ++keys[inventory.extents[i].model][key];
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < inventory.extents.size(); ++i) {
      const StoredExtent& extent = inventory.extents[i];
      if (gone[i] || extent.meta.first_index == 0 || !chained.contains(extent.model)) continue;
      auto& known = keys[extent.model];
      const auto parent = known.find(extent.meta.parent);
      if (parent != known.end() && parent->second > 0) continue;
      gone[i] = more = true;
      for (const auto& key : extent.meta.keys) --known[key];
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < gone.size(); ++i)
    if (gone[i]) found.push_back(i);
  return found;
}

std::vector<std::size_t> with_key(const Inventory& inventory, std::string_view hex_prefix) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < inventory.extents.size(); ++i) {
    const auto& keys = inventory.extents[i].meta.keys;
    if (std::any_of(keys.begin(), keys.end(), [&](const BlockKey& key) { return hex(key).starts_with(hex_prefix); }))
      found.push_back(i);
  }
  return found;
}

std::vector<std::size_t> beyond(const Inventory& inventory, std::uint64_t bytes) {
  std::vector<std::size_t> order(inventory.extents.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    total += inventory.extents[i].allocated_bytes;
  }
  // Who uses a chain uses its beginning: an end is never younger than what it follows.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const StoredExtent &x = inventory.extents[a], &y = inventory.extents[b];
    return x.used_seconds != y.used_seconds ? x.used_seconds < y.used_seconds : x.meta.first_index > y.meta.first_index;
  });
  std::vector<std::size_t> victims;
  for (const std::size_t i : order) {
    if (total <= bytes) break;
    total -= inventory.extents[i].allocated_bytes;
    victims.push_back(i);
  }
  return victims;
}

Result<std::unique_ptr<platform::FileLock>> lock_folder(platform::FileSystem& fs, const std::filesystem::path& folder) {
  auto lock = fs.lock(folder / "lock");
  if (lock.status().code() == Code::unavailable)
    return Status(Code::unavailable,
                  fmt::format("{} is held by another process, a server perhaps: this command changes files; stop that "
                              "process first (ls and verify work beside it)",
                              (folder / "lock").string()));
  return lock;
}

}  // namespace lode::kv
