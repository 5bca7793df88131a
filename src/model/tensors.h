// Looks up a family's tensors by name and shape. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/placer.h"

namespace lode::model {

// Like ConfigReader: the first error sticks. Missing tensors are named, wrong shapes printed as expected and found.
class TensorReader {
 public:
  // `place` may be empty: pointers then lead into the file.
  explicit TensorReader(const gguf::File& file, Placer place = {})
      : file_(file), place_(std::move(place)), read_(file.tensors().size()) {}

  // W [rows, cols] of any computable type.
  kernels::Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  // The same, but absent is fine: data is nullptr then.
  kernels::Matrix optional_matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  // An F32 vector of `count` values.
  const float* vector(const std::string& name, std::int64_t count);
  const float* optional_vector(const std::string& name, std::int64_t count);
  // The same as a matrix W [1, cols].
  kernels::Matrix row(const std::string& name, std::int64_t cols);
  // The same, of factors that divide: finite and above 0. For the loader itself: never placed.
  const float* positive_vector(const std::string& name, std::int64_t count);
  // `count` matrices W [rows, cols]: the slices of one tensor of shape [cols, rows, count].
  std::vector<kernels::Matrix> stack(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t count);
  bool has(const std::string& name) const { return file_.tensor(name) != nullptr; }

  // Call last. Fails on a tensor of the text model that nobody asked for: a bias, say, that the family does not know
  // would silently change every result. Tensors of `ignored_layer` and beyond are expected to be left.
  Status finish(std::int64_t ignored_layer);
  const Status& status() const { return status_; }
  void fail(Status status);

 private:
  const gguf::Tensor* find(const std::string& name);
  kernels::Matrix checked(const gguf::Tensor& tensor, std::span<const std::int64_t> shape);
  // The F32 vector's bytes in the file.
  const float* in_file(const std::string& name, std::int64_t count, const gguf::Tensor** tensor);
  // Where kernels find the tensor; nullptr after an error.
  Placed placed(const gguf::Tensor& tensor);

  const gguf::File& file_;
  Placer place_;
  std::vector<bool> read_;  // [file.tensors().size()]
  Status status_;
};

// "blk.3.attn_q.weight"
std::string layer_tensor(std::int64_t layer, std::string_view name);
// "blk.3.attn_q.bias"
std::string layer_bias(std::int64_t layer, std::string_view name);

// For dense families: refuses files with expert tensors or an expert count: never a silent dense load.
Status refuse_experts(const gguf::File& file, std::string_view architecture);

}  // namespace lode::model
