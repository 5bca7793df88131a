// Where a loader puts a tensor's bytes. Owns nothing. Loading thread only.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"
#include "gguf/gguf.h"

namespace lode::model {

// Returns where the kernels will read the tensor: the same bytes in a device's memory, say. Called once for every
// tensor that kernels read, never for those that only the loader looks at (rope factors). An empty function leaves
// every tensor where the file has it.
using Placer = std::function<Result<const std::byte*>(const gguf::Tensor&)>;

}  // namespace lode::model
