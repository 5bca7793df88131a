// (hardware, model, options) -> Plan, or a refusal with numbers. Pure: reads no file, no clock, no environment. Owns
// nothing. Any thread.
//
// Each option that is set is a constraint; the rest is planned around it. What cannot be met is a Status that names the
// shortage in bytes and the nearest settings that fit; what is legal but unwise is a warning with figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/kv_view.h"
#include "platform/machine.h"

namespace lode::plan {

using Hardware = platform::Hardware;

// What sizes the scratch of a step.
struct WorkspaceShape {
  std::int64_t chunk = 0;    // Prompt tokens in a step, beside one decoded token for each other slot.
  std::int64_t context = 0;  // Longest sequence.
  int slots = 0, threads = 0;
};

// Routed experts; zeros where a model has none, or where no cache can hold them.
struct ExpertFacts {
  std::uint64_t bytes = 0;            // Part of ffn_bytes.
  std::uint64_t slot_bytes = 0;       // One expert of one layer in a cache.
  std::int64_t count = 0;             // Of all layers.
  std::int64_t per_token = 0;         // Those that one token uses.
  std::uint64_t policy_bytes = 0;     // What the cache knows of them.
  std::uint64_t packable_others = 0;  // packable_bytes without experts.
};

struct ModelFacts {
  std::string name;
  std::uint64_t file_bytes = 0;  // All parts.
  // Weights by class, as they lie in memory; each tensor in one class (a tied embedding is an output).
  std::uint64_t embedding_bytes = 0, output_bytes = 0, attention_bytes = 0, ffn_bytes = 0, other_bytes = 0;
  std::uint64_t packable_bytes = 0;  // Of all these, what the kernels read faster in packed rows.
  ExpertFacts experts;
  std::int64_t vocab = 0, width = 0, ffn = 0, heads = 0, layers = 0;
  std::int64_t context_trained = 0;
  std::vector<model::CacheGroup> groups;
  // Bytes of scratch and logits for a step; must not shrink when any part of the shape grows.
  std::function<std::uint64_t(const WorkspaceShape&)> workspace_bytes;
  std::optional<std::uint64_t> engine_bytes;  // Code, tokenizer, threads. Unset: estimated from the vocabulary.

  // With a card: what of the weights kernels read in its memory, and what (a table that is only looked up) stays in
  // page-locked RAM. workspace_bytes is then of the host alone.
  std::uint64_t card_weights_bytes = 0, pinned_weights_bytes = 0;
  std::function<std::uint64_t(const WorkspaceShape&)> card_workspace_bytes;  // As workspace_bytes.
};

// A card that is to compute.
struct Card {
  std::string name;
  std::uint64_t total_bytes = 0;   // By the driver's count, as the next two.
  std::uint64_t free_bytes = 0;    // What this process may still take.
  std::uint64_t driver_bytes = 0;  // What it has taken: the context, cuBLAS.
  std::uint64_t growth_bytes = 0;  // What the driver takes beside with the first steps: code, room of big products.
};

struct DiskOption {
  enum class Kind : std::uint8_t { off, folder } kind = Kind::off;
  std::filesystem::path folder;
  std::optional<std::uint64_t> bytes_max;  // --kv-disk-max. Unset: 10% of the free space.
  std::uint64_t bytes_stored = 0;          // What the folder holds already: counted as free, so that restarts agree.
};

struct Options {
  std::optional<std::int64_t> context;  // Tokens per slot.
  std::optional<int> slots;
  std::optional<std::int64_t> chunk;
  std::optional<int> threads;
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  std::vector<kernels::KvType> smaller_types;  // Types that a refusal may advise beside those chosen.
  std::optional<std::uint64_t> memory;         // --memory: for the whole process. Shares are resolved by the caller.
  std::optional<std::uint64_t> kv_ram;         // --kv-ram
  std::optional<std::uint64_t> expert_ram;     // --expert-ram. Unset: all experts, or what fits.
  std::optional<Card> card;                    // Unset: the CPU computes.
  std::optional<std::uint64_t> vram;           // --vram, with a card: all of it that the process takes.
  DiskOption disk;
  gguf::LoadMode load_mode = gguf::LoadMode::mmap;
  enum class Repack : std::uint8_t { automatic, off } repack = Repack::automatic;
};

struct Line {
  std::string name;
  std::uint64_t bytes = 0;
  std::string reason;
};

// One cache group's price.
struct GroupLine {
  std::string name;                         // "full attention, 3 layers"
  std::uint64_t bytes_per_1000_tokens = 0;  // 0 once a window is full: see bytes_fixed.
  std::uint64_t bytes_fixed = 0;            // What one sequence of the planned context needs where it does not grow.
};

struct Plan {
  std::string model;
  std::int64_t context = 0;  // Tokens per slot: every slot may grow to it.
  std::int64_t context_trained = 0;
  std::int64_t chunk = 0;
  int slots = 0, threads = 0;
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  gguf::LoadMode load_mode = gguf::LoadMode::mmap;

  std::uint64_t memory_bytes = 0;        // Planned with: the sum of `lines`.
  std::uint64_t weights_bytes = 0;       // All of them, resident or not.
  std::uint64_t packed_bytes = 0;        // Of them, copied into packed rows; the file's pages of these are let go.
  std::uint64_t expert_slots_bytes = 0;  // Of a cache of experts; 0: there is none, weights hold all of them.
  std::uint64_t workspace_bytes = 0;
  std::uint64_t sequence_bytes = 0;      // KV of one sequence of `context` tokens, in whole pieces.
  std::uint64_t arena_bytes_max = 0;     // Hard bound on committed KV, pinned and not; a multiple of kPieceBytes.
  std::uint64_t kv_ram_bytes_max = 0;    // Bound on KV that no live sequence pins; <= arena_bytes_max.
  std::uint64_t resident_bytes_min = 0;  // Predicted after load, no KV yet.
  std::uint64_t resident_bytes_max = 0;  // Predicted with the arena full.
  // With a card; else zeros. vram_bytes is a hard bound on what the driver counts for this process.
  std::string card;
  std::uint64_t vram_bytes = 0, vram_driver_bytes = 0, vram_weights_bytes = 0, vram_workspace_bytes = 0,
                vram_margin_bytes = 0;
  std::uint64_t vram_kv_bytes = 0;                   // KV arena; a sequence's other blocks lie in RAM.
  std::optional<std::filesystem::path> disk_folder;  // nullopt: no disk tier.
  std::uint64_t disk_quota_bytes = 0;

  std::vector<Line> lines;       // Where memory_bytes goes; adds up exactly.
  std::vector<Line> card_lines;  // The same of vram_bytes.
  std::vector<GroupLine> groups;
  std::vector<Line> settings;         // Context, slots, chunk, threads, disk: bytes is the value, reason says why.
  std::vector<std::string> warnings;  // Legal but unwise, with figures.
  std::vector<std::string> notes;     // What a user should know at start: a clamped context, context per slot.

  std::string text() const;  // The table that `lode plan` prints.
  nlohmann::ordered_json json() const;
};

// Of --vram: what the driver takes without being asked, such as graphs of decode steps, code of shapes not seen before
// and page tables, until it has been counted again and KV has made room (engine/gpu.h).
inline constexpr std::uint64_t kVramMargin = 128ull << 20;

// KV memory is committed in pieces of this size (memory::kPieceBytes, which this room may not see).
inline constexpr std::uint64_t kPieceBytes = 2ull << 20;

Result<Plan> make(const Hardware& hardware, const ModelFacts& facts, const Options& options);

// KV bytes that one sequence of `tokens` pins: whole blocks, and whole pieces for each group.
std::uint64_t sequence_bytes(const ModelFacts& facts, kernels::KvType k_type, kernels::KvType v_type,
                             std::int64_t tokens, std::int64_t chunk);

std::string_view kv_type_name(kernels::KvType type);

}  // namespace lode::plan
