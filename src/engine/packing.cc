#include "engine/packing.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "quant/packed.h"

namespace lode::engine {
namespace {

constexpr std::uint64_t kAlign = 64;
// Groups of 8 rows that a thread packs at a time.
constexpr std::int64_t kGroupsPerPart = 16;
// Of the file's bytes, what is in memory beside its copy at a time.
constexpr std::uint64_t kSliceBytes = 8 * kMiB;

// Stacks of experts are cut at any expert, and fused ones at their middle: both then begin at a group of 8 rows.
bool wanted(const gguf::Tensor& t, const gguf::File& file, const kernels::Table& table) {
  if (table.packs == nullptr || !table.packs(t.type) || only_looked_up(t, file)) return false;
  if (t.shape.size() == 2) return t.shape[1] % quant::kPackedRows == 0;
  return t.shape.size() == 3 && t.shape[1] % (2 * quant::kPackedRows) == 0;
}

void pack(const gguf::File& file, const gguf::Tensor& t, std::byte* to, ThreadPool& pool) {
  const std::int64_t cols = t.shape[0];
  const std::int64_t group_bytes = quant::kPackedRows * quant::row_bytes(t.type, cols);
  const std::int64_t groups = static_cast<std::int64_t>(t.bytes) / group_bytes;
  const std::int64_t slice = std::max<std::int64_t>(1, static_cast<std::int64_t>(kSliceBytes) / group_bytes);
  for (std::int64_t first = 0; first < groups; first += slice) {
    const std::int64_t end = std::min(groups, first + slice);
    pool.run((end - first + kGroupsPerPart - 1) / kGroupsPerPart, [&](std::int64_t part, int) {
      const std::int64_t from = first + part * kGroupsPerPart;
      for (std::int64_t g = from; g < std::min(end, from + kGroupsPerPart); ++g)
        quant::pack_rows(t.type, t.data + g * group_bytes, cols, to + g * group_bytes);
    });
    file.release_pages(t, static_cast<std::uint64_t>(first * group_bytes),
                       static_cast<std::uint64_t>((end - first) * group_bytes));
  }
}

}  // namespace

bool only_looked_up(const gguf::Tensor& tensor, const gguf::File& file) {
  return tensor.name == "token_embd.weight" && file.tensor("output.weight");
}

bool holds_experts(const gguf::Tensor& tensor) {
  if (tensor.name.find("_exps.") != std::string_view::npos) return true;
  for (const std::string_view part : {".ffn_gate.", ".ffn_up.", ".ffn_down."}) {
    const std::size_t at = tensor.name.find(part);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = tensor.name.substr(at + part.size());
    return !rest.empty() && rest[0] >= '0' && rest[0] <= '9';
  }
  return false;
}

std::uint64_t PackedWeights::bytes(const gguf::File& file, const kernels::Table& table, Scope scope) {
  std::uint64_t sum = 0;
  for (const gguf::Tensor& t : file.tensors())
    if (wanted(t, file, table) && (scope == Scope::packable || !holds_experts(t))) sum += align_up(t.bytes, kAlign);
  return sum;
}

Result<std::unique_ptr<PackedWeights>> PackedWeights::make(const gguf::File& file, const kernels::Table& table,
                                                           ThreadPool& pool, Scope scope) {
  LODE_CHECK(file.loaded_as() == gguf::LoadMode::mmap);
  std::unique_ptr<PackedWeights> out(new PackedWeights);
  const auto layout = [&](const gguf::Tensor& t) -> std::optional<kernels::Layout> {
    if (scope == Scope::all_but_experts && holds_experts(t)) return std::nullopt;
    if (wanted(t, file, table)) return kernels::Layout::packed;
    if (scope == Scope::all_but_experts) return kernels::Layout::row_major;
    return std::nullopt;
  };
  std::uint64_t all = 0;
  for (const gguf::Tensor& t : file.tensors())
    if (layout(t)) all += align_up(t.bytes, kAlign);
  if (all == 0) return out;
  auto memory = platform::VirtualRange::reserve(all);
  if (!memory.ok()) return memory.status();
  out->memory_ = std::move(memory).value();
  LODE_RETURN_IF_ERROR(out->memory_.commit(0, out->memory_.capacity()));
  std::uint64_t used = 0;
  for (const gguf::Tensor& t : file.tensors()) {
    const auto as = layout(t);
    if (!as) continue;
    if (*as == kernels::Layout::packed) {
      pack(file, t, out->memory_.data() + used, pool);
    } else {
      std::memcpy(out->memory_.data() + used, t.data, t.bytes);
      file.release_pages(t, 0, t.bytes);
    }
    out->copies_.emplace(t.name, Copy{used, *as});
    used += align_up(t.bytes, kAlign);
  }
  return out;
}

model::Placer PackedWeights::placer() const {
  return [this](const gguf::Tensor& t) -> Result<model::Placed> {
    const auto found = copies_.find(t.name);
    if (found == copies_.end()) return model::Placed{t.data};
    return model::Placed{memory_.data() + found->second.offset, found->second.layout};
  };
}

void PackedWeights::release_file(const gguf::File& file) const {
  for (const gguf::Tensor& t : file.tensors())
    if (copies_.contains(t.name)) file.release_pages(t, 0, t.bytes);
}

}  // namespace lode::engine
