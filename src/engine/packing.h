// Weights in packed rows (quant/packed.h), for tables that are faster with them: copies that stand in for the file's
// pages, which are let go, so that memory holds the weights once. Owns the copies. Loading thread only; the copies are
// constant afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/placer.h"
#include "platform/virtual_range.h"

namespace lode::engine {

// A token table beside an output matrix: rows are looked up, and no product reads it.
bool only_looked_up(const gguf::Tensor& tensor, const gguf::File& file);

// A tensor that holds routed experts, of a whole layer or one.
bool holds_experts(const gguf::Tensor& tensor);

class PackedWeights {
 public:
  enum class Scope : std::uint8_t {
    packable,         // What the table wants packed; the rest stays where the file has it.
    all_but_experts,  // Everything else too, as copies: nothing but experts is read from the file after loading.
  };
  // Bytes of the file's tensors that `table` wants packed; 0: none.
  static std::uint64_t bytes(const gguf::File& file, const kernels::Table& table, Scope scope = Scope::packable);

  // Packs them: reads each tensor once, about 2 GB/s a thread from the page cache. The file is mapped and outlives the
  // object. exhausted: no memory for the copies.
  static Result<std::unique_ptr<PackedWeights>> make(const gguf::File& file, const kernels::Table& table,
                                                     ThreadPool& pool, Scope scope = Scope::packable);

  // Where the loader finds every tensor: packed, or where the file has it. The object outlives the placer.
  model::Placer placer() const;
  // Lets the file's pages of all packed tensors go, whoever has touched them since. The system may still cache them.
  void release_file(const gguf::File& file) const;

 private:
  PackedWeights() = default;
  platform::VirtualRange memory_;
  struct Copy {
    std::uint64_t offset = 0;  // Into memory_.
    kernels::Layout layout = kernels::Layout::packed;
  };
  std::map<std::string_view, Copy> copies_;  // By tensor's name.
};

}  // namespace lode::engine
