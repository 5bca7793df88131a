// Where the experts lie in the model's files, and how one lies in a slot of memory. Owns nothing. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/expert_source.h"

namespace lode::experts {

// One matrix of an expert: bytes [offset, offset + bytes) of a part of the file. A read of whole pages
// [first, first + read) brings them; they begin `offset - first` bytes into it.
struct Extent {
  std::uint32_t part = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t first = 0, read = 0;
  std::uint64_t at = 0;  // Of the read, in the slot; a multiple of platform::kFileAlign.
};

struct ExpertPlace {
  std::array<Extent, 3> extents;  // gate, up, down
};

struct Layout {
  std::uint32_t experts = 0;        // Of each layer.
  std::vector<LayerIndex> layers;   // Those with experts, ascending.
  std::vector<ExpertPlace> places;  // [layers, experts]
  std::uint64_t slot_bytes = 0;     // Of the largest, in whole pages.
  std::uint64_t bytes = 0;          // Of all experts, as the file has them.
};

// `layers` are a model's, with their data where `file` has it in memory (not packed, not on a card). unsupported: the
// layers have different numbers of experts.
Result<Layout> layout_of(const gguf::File& file, std::span<const model::ExpertLayer> layers);

}  // namespace lode::experts
