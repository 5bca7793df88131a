// Looks up a family's tensors by name and shape. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"

namespace lode::model {

// Like ConfigReader: the first error sticks. Missing tensors are named, wrong shapes printed as expected and found.
class TensorReader {
 public:
  explicit TensorReader(const gguf::File& file) : file_(file) {}

  // W [rows, cols] of any computable type.
  kernels::Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  // The same, but absent is fine: data is nullptr then.
  kernels::Matrix optional_matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  // An F32 vector of `count` values.
  const float* vector(const std::string& name, std::int64_t count);
  const float* optional_vector(const std::string& name, std::int64_t count);
  const Status& status() const { return status_; }
  void fail(Status status);

 private:
  const gguf::File& file_;
  Status status_;
};

// "blk.3.attn_q.weight"
std::string layer_tensor(std::int64_t layer, std::string_view name);

// Refuses files with expert tensors or expert keys that contradict each other: never a silent dense load.
Status refuse_experts(const gguf::File& file, std::string_view architecture);

}  // namespace lode::model
