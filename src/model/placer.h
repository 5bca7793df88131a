// Where a loader puts a tensor's bytes. Owns nothing. Loading thread only.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"

namespace lode::model {

struct Placed {
  const std::byte* data = nullptr;
  kernels::Layout layout = kernels::Layout::row_major;
};

// Returns where the kernels will read the tensor: the same bytes in a device's memory, or its rows packed. Called once
// for every tensor that kernels read, never for those that only the loader looks at (rope factors). An empty function
// leaves every tensor where the file has it.
using Placer = std::function<Result<Placed>(const gguf::Tensor&)>;

}  // namespace lode::model
