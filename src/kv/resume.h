// Where a prompt can resume: the longest prefix of full blocks at which every group has what the next token reads.
// Pure. Step thread only (it reads the index).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kv/disk_tier.h"
#include "kv/sequence.h"
#include "model/kv_view.h"

namespace lode::kv {

enum class Tiers : std::uint8_t { ram, ram_and_disk, disk };

struct ResumePoints {
  std::int64_t stored = 0;     // Blocks: everything needed is in RAM, being read, or on disk.
  std::int64_t in_flight = 0;  // Blocks: >= stored; counts blocks that other live sequences are going to compute.
  std::int64_t history = 0;    // Blocks that the full-history groups have stored; >= stored.
  std::int64_t no_state = 0;   // As `stored`, were it not for the checkpoint groups.
};

// Looks at the first `blocks_max` blocks of the sequence's path, once each: linear in the prompt.
ResumePoints find_resume(const Sequence& seq, std::int64_t blocks_max, std::span<const model::CacheGroup> groups,
                         const DiskTier* disk, Tiers tiers);

// What stopped the reuse at block `resumed`, and the same in words, for Reuse::reason.
Stop reuse_stop(const Sequence& seq, std::int64_t resumed, const ResumePoints& found);
std::string reuse_reason(const Sequence& seq, std::int64_t resumed, const ResumePoints& found);

}  // namespace lode::kv
