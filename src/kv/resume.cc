#include "kv/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kv/eviction.h"

namespace lode::kv {
namespace {

using Kind = model::CacheGroup::Kind;

// Consecutive available blocks of one group that end at the block just looked at.
struct RunLengths {
  std::int64_t stored = 0, in_flight = 0;
};

}  // namespace

ResumePoints find_resume(const Sequence& seq, std::int64_t blocks_max, std::span<const model::CacheGroup> groups,
                         const DiskTier* disk, Tiers tiers) {
  LODE_CHECK(groups.size() <= kGroupsMax);
  ResumePoints found;
  std::array<RunLengths, kGroupsMax> runs{};
  const std::int64_t n = std::min<std::int64_t>(blocks_max, static_cast<std::int64_t>(seq.path.size()));
  for (std::int64_t i = 0; i < n; ++i) {
    const Block& b = *seq.path[static_cast<std::size_t>(i)];
    const bool peer = b.owner && b.owner != &seq;
    const std::int64_t end = i + 1;
    bool stored = true, in_flight = true, history = true, history_in_flight = true, no_state = true;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const Copy& c = b.copies[g];
      const bool have =
          (tiers != Tiers::disk && c.state != CopyState::none) || (tiers != Tiers::ram && on_disk(disk, c));
      runs[g].stored = have ? runs[g].stored + 1 : 0;
      // A peer publishes every block that it computes, but states only where it has planned to.
      const bool promised = peer && (groups[g].kind != Kind::checkpoint || b.owner->plan.contains(end));
      runs[g].in_flight = have || promised ? runs[g].in_flight + 1 : 0;
      const std::int64_t needed = end - groups[g].first_needed(end * kBlockTokens) / kBlockTokens;
      stored &= runs[g].stored >= needed;
      in_flight &= runs[g].in_flight >= needed;
      if (groups[g].kind != Kind::checkpoint) no_state &= runs[g].stored >= needed;
      if (groups[g].kind == Kind::full) {
        history &= runs[g].stored >= needed;
        history_in_flight &= runs[g].in_flight >= needed;
      }
    }
    if (stored) found.stored = end;
    if (no_state) found.no_state = end;
    if (in_flight) found.in_flight = end;
    if (history && found.history == i) found.history = end;
    if (!history_in_flight) break;  // A gap in full history: nothing beyond it can resume.
  }
  return found;
}

Stop reuse_stop(const Sequence& seq, std::int64_t resumed, const ResumePoints& found) {
  const std::int64_t limit = (seq.reuse.prompt_tokens - 1) / kBlockTokens;
  if (limit == 0) return Stop::short_prompt;
  if (resumed == limit) return Stop::whole;
  if (seq.slow_read) return Stop::slow_read;
  const std::int64_t known = std::min(limit, seq.matched);
  if (resumed < std::min(found.no_state, known)) return Stop::no_checkpoint;
  if (resumed < std::min(found.history, known)) return Stop::no_window;
  if (resumed < seq.matched)
    return seq.path[static_cast<std::size_t>(resumed)]->published ? Stop::evicted : Stop::computing;
  if (seq.reuse.differs_at >= 0) return Stop::differs;
  return resumed == 0 ? Stop::nothing : Stop::ends;
}

std::string reuse_reason(const Sequence& seq, std::int64_t resumed, const ResumePoints& found) {
  std::string differs = seq.reuse.differs_at >= 0 ? fmt::format("token {} differs", seq.reuse.differs_at) : "";
  switch (reuse_stop(seq, resumed, found)) {
    case Stop::short_prompt: return fmt::format("prompt shorter than a block of {} tokens", kBlockTokens);
    case Stop::whole: return "whole prompt but its last tokens";
    case Stop::no_checkpoint: {
      const std::int64_t known = std::min((seq.reuse.prompt_tokens - 1) / kBlockTokens, seq.matched);
      const std::string nearest = resumed > 0
                                      ? fmt::format("no checkpoint nearer than token {}", resumed * kBlockTokens)
                                      : fmt::format("no checkpoint up to token {}", known * kBlockTokens);
      return differs.empty() ? nearest : differs + ", " + nearest;
    }
    case Stop::no_window: return "window state not stored";
    case Stop::evicted: return "evicted";
    case Stop::slow_read: return "reading is slower than computing here";
    case Stop::computing: return "still being computed for another request";
    case Stop::differs: return differs;
    case Stop::ends: return fmt::format("stored only up to token {}", resumed * kBlockTokens);
    case Stop::nothing: break;
  }
  return "nothing stored for this prefix";
}

}  // namespace lode::kv
