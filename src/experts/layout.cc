#include "experts/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.h"
#include "platform/file_system.h"
#include "quant/types.h"

namespace lode::experts {
namespace {

constexpr std::uint64_t kPage = platform::kFileAlign;

// The tensor that holds a matrix; `sorted` by address.
const gguf::Tensor* holder(const std::vector<const gguf::Tensor*>& sorted, const std::byte* data) {
  const auto after = std::upper_bound(sorted.begin(), sorted.end(), data,
                                      [](const std::byte* d, const gguf::Tensor* t) { return d < t->data; });
  if (after == sorted.begin()) return nullptr;
  const gguf::Tensor* t = *(after - 1);
  return data < t->data + t->bytes ? t : nullptr;
}

}  // namespace

Result<Layout> layout_of(const gguf::File& file, std::span<const model::ExpertLayer> layers) {
  Layout out;
  if (layers.empty()) return Status::unsupported("the model has no experts");
  out.experts = static_cast<std::uint32_t>(layers[0].weights.size());
  std::vector<const gguf::Tensor*> sorted;
  for (const gguf::Tensor& t : file.tensors()) sorted.push_back(&t);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
  for (const model::ExpertLayer& layer : layers) {
    if (layer.weights.size() != out.experts)
      return Status::unsupported(
          fmt::format("layer {} has {} experts, others have {}: an expert cache needs as many in "
                      "each",
                      layer.layer.v, layer.weights.size(), out.experts));
    out.layers.push_back(layer.layer);
    for (const model::ExpertWeights& w : layer.weights) {
      ExpertPlace place;
      std::uint64_t slot = 0;
      const std::array<const kernels::Matrix*, 3> parts = {&w.gate, &w.up, &w.down};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const gguf::Tensor* t = holder(sorted, parts[i]->data);
        LODE_CHECK(t != nullptr && parts[i]->layout == kernels::Layout::row_major);
        Extent& e = place.extents[i];
        e.part = t->part;
        e.offset = t->offset + static_cast<std::uint64_t>(parts[i]->data - t->data);
        e.bytes = static_cast<std::uint64_t>(parts[i]->rows * quant::row_bytes(parts[i]->type, parts[i]->cols));
        e.first = e.offset / kPage * kPage;
        e.read = align_up(e.offset + e.bytes - e.first, kPage);
        e.at = slot;
        slot += e.read;
        out.bytes += e.bytes;
      }
      out.slot_bytes = std::max(out.slot_bytes, slot);
      out.places.push_back(place);
    }
  }
  return out;
}

}  // namespace lode::experts
