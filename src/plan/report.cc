// The plan as a table and as JSON, and the wording of refusals.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "plan/plan.h"
#include "plan/refusal.h"

namespace lode::plan {
namespace {

std::string_view load_mode_name(gguf::LoadMode mode) {
  switch (mode) {
    case gguf::LoadMode::mmap: return "mmap";
    case gguf::LoadMode::read: return "read";
    case gguf::LoadMode::direct: return "direct";
  }
  return "?";
}

}  // namespace

std::string_view kv_type_name(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::f32: return "f32";
    case kernels::KvType::f16: return "f16";
    case kernels::KvType::q8_0: return "q8_0";
    case kernels::KvType::i16: return "i16";
  }
  return "?";
}

Status Refusal::status() const {
  std::string text = what;
  for (std::size_t i = 0; i < advice.size(); ++i) text += (i == 0 ? ". Instead: " : "; ") + advice[i];
  return Status::exhausted(text);
}

std::string fitting(std::uint64_t bytes) {
  if (bytes >= kMiB) return fmt::format("{}MiB", bytes / kMiB);
  return fmt::format("{}", bytes);
}

std::uint64_t memory_for(std::uint64_t need) {
  // The margin is 5% of the whole, between 16 MiB and 1 GiB: whole = need + clamp(whole / 20). KV is given in whole
  // pieces, hence one more.
  need += kPieceBytes;
  std::uint64_t margin = need / 19 + 1;
  margin = std::clamp(margin, 16 * kMiB, kGiB);
  return align_up(need + margin, kMiB);
}

std::string Plan::text() const {
  std::string out = fmt::format("Plan for {}\n", model);
  for (const Line& s : settings) out += fmt::format("  {:<22} {:>12}  {}\n", s.name, s.bytes, s.reason);
  out += fmt::format("  {:<22} {:>12}  K {}, V {}; weights by {}\n", "types", "", kv_type_name(k_type),
                     kv_type_name(v_type), load_mode_name(load_mode));
  out += "Memory\n";
  for (const Line& line : lines)
    out += fmt::format("  {:<22} {:>12}  {}\n", line.name, format_size(line.bytes), line.reason);
  out += fmt::format("  {:<22} {:>12}  what may be used\n", "sum", format_size(memory_bytes));
  out += fmt::format("  {:<22} {:>12}  after load; {} with the KV arena full\n", "resident",
                     format_size(resident_bytes_min), format_size(resident_bytes_max));
  if (!card.empty()) {
    out += fmt::format("On {}\n", card);
    for (const Line& line : card_lines)
      out += fmt::format("  {:<22} {:>12}  {}\n", line.name, format_size(line.bytes), line.reason);
    out += fmt::format("  {:<22} {:>12}  what may be used\n", "sum", format_size(vram_bytes));
  }
  out += "KV by group\n";
  for (const GroupLine& g : groups) {
    const bool grows = g.bytes_per_1000_tokens > 0;
    out += fmt::format("  {:<22} {:>12}  {}\n", g.name, format_size(grows ? g.bytes_per_1000_tokens : g.bytes_fixed),
                       grows ? "per 1,000 tokens" : "per sequence, whatever its length");
  }
  if (disk_folder) {
    out += fmt::format("Disk tier\n  {:<22} {:>12}  quota in {}\n", "KV on disk", format_size(disk_quota_bytes),
                       disk_folder->string());
  } else {
    out += "Disk tier: off\n";
  }
  for (const std::string& note : notes) out += "Note: " + note + "\n";
  for (const std::string& warning : warnings) out += "Warning: " + warning + "\n";
  return out;
}

nlohmann::ordered_json Plan::json() const {
  using nlohmann::ordered_json;
  ordered_json j;
  j["model"] = model;
  j["context"] = context;
  j["context_trained"] = context_trained;
  j["slots"] = slots;
  j["chunk"] = chunk;
  j["threads"] = threads;
  j["k_type"] = kv_type_name(k_type);
  j["v_type"] = kv_type_name(v_type);
  j["load_mode"] = load_mode_name(load_mode);
  j["memory_bytes"] = memory_bytes;
  j["weights_bytes"] = weights_bytes;
  j["workspace_bytes"] = workspace_bytes;
  j["sequence_bytes"] = sequence_bytes;
  j["arena_bytes_max"] = arena_bytes_max;
  j["kv_ram_bytes_max"] = kv_ram_bytes_max;
  j["resident_bytes_min"] = resident_bytes_min;
  j["resident_bytes_max"] = resident_bytes_max;
  j["card"] = card.empty() ? ordered_json(nullptr) : ordered_json(card);
  j["vram_bytes"] = vram_bytes;
  j["vram_driver_bytes"] = vram_driver_bytes;
  j["vram_weights_bytes"] = vram_weights_bytes;
  j["vram_workspace_bytes"] = vram_workspace_bytes;
  j["vram_kv_bytes"] = vram_kv_bytes;
  j["vram_margin_bytes"] = vram_margin_bytes;
  j["vram"] = ordered_json::array();
  for (const Line& l : card_lines) j["vram"].push_back({{"name", l.name}, {"bytes", l.bytes}, {"reason", l.reason}});
  j["disk_folder"] = disk_folder ? ordered_json(disk_folder->string()) : ordered_json(nullptr);
  j["disk_quota_bytes"] = disk_quota_bytes;
  j["memory"] = ordered_json::array();
  for (const Line& l : lines) j["memory"].push_back({{"name", l.name}, {"bytes", l.bytes}, {"reason", l.reason}});
  j["settings"] = ordered_json::array();
  for (const Line& s : settings) j["settings"].push_back({{"name", s.name}, {"value", s.bytes}, {"reason", s.reason}});
  j["kv_groups"] = ordered_json::array();
  for (const GroupLine& g : groups) {
    j["kv_groups"].push_back(
        {{"name", g.name}, {"bytes_per_1000_tokens", g.bytes_per_1000_tokens}, {"bytes_per_sequence", g.bytes_fixed}});
  }
  j["notes"] = notes;
  j["warnings"] = warnings;
  return j;
}

}  // namespace lode::plan
