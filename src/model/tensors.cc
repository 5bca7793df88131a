#include "model/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lode::model {

std::string layer_tensor(std::int64_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}.weight", layer, name);
}

void TensorReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

kernels::Matrix TensorReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  if (!file_.tensor(name)) {
    fail(
        Status::corrupt(fmt::format("{}: tensor '{}' is missing: expected [{}, {}]; the file is incomplete or its "
                                    "block_count is wrong",
                                    file_.path().string(), name, cols, rows)));
    return {};
  }
  return optional_matrix(name, rows, cols);
}

kernels::Matrix TensorReader::optional_matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const gguf::Tensor* t = file_.tensor(name);
  if (!t) return {};
  if (t->shape.size() != 2 || t->shape[0] != cols || t->shape[1] != rows) {
    fail(Status::corrupt(fmt::format("{}: tensor '{}': expected shape [{}, {}] from the metadata, found [{}]",
                                     file_.path().string(), name, cols, rows, fmt::join(t->shape, ", "))));
    return {};
  }
  if (!quant::info(t->type).computable) {
    fail(Status::unsupported(fmt::format("{}: tensor '{}': type {} is not supported; supported: {}",
                                         file_.path().string(), name, quant::info(t->type).name,
                                         quant::computable_names())));
    return {};
  }
  return {t->type, kernels::Layout::row_major, t->data, rows, cols};
}

const float* TensorReader::vector(const std::string& name, std::int64_t count) {
  if (!file_.tensor(name)) {
    fail(
        Status::corrupt(fmt::format("{}: tensor '{}' is missing: expected [{}]; the file is incomplete or its "
                                    "block_count is wrong",
                                    file_.path().string(), name, count)));
    return nullptr;
  }
  return optional_vector(name, count);
}

const float* TensorReader::optional_vector(const std::string& name, std::int64_t count) {
  const gguf::Tensor* t = file_.tensor(name);
  if (!t) return nullptr;
  if (t->shape.size() != 1 || t->shape[0] != count || t->type != quant::DType::f32) {
    fail(Status::corrupt(fmt::format("{}: tensor '{}': expected F32 [{}], found {} [{}]", file_.path().string(), name,
                                     count, quant::info(t->type).name, fmt::join(t->shape, ", "))));
    return nullptr;
  }
  return reinterpret_cast<const float*>(t->data);
}

Status refuse_experts(const gguf::File& file, std::string_view architecture) {
  const std::string key = fmt::format("{}.expert_count", architecture);
  const auto count = file.get_uint(key);
  if (!count.ok()) return count.status();
  const gguf::Tensor* expert = nullptr;
  for (const gguf::Tensor& t : file.tensors())
    if (t.name.find("_exps.") != std::string_view::npos || t.name.find("ffn_gate_inp.") != std::string_view::npos)
      expert = &t;
  const bool keyed = count.value() && *count.value() > 0;
  if (keyed && !expert)
    return Status::corrupt(fmt::format("{}: key '{}' is {} but no expert tensor is in the file", file.path().string(),
                                       key, *count.value()));
  if (!keyed && expert)
    return Status::corrupt(
        fmt::format("{}: tensor '{}' is there but key '{}' is missing or 0", file.path().string(), expert->name, key));
  if (keyed)
    return Status::unsupported(fmt::format("{}: mixture-of-experts models of architecture '{}' are not supported yet",
                                           file.path().string(), architecture));
  return Status::success();
}

}  // namespace lode::model
