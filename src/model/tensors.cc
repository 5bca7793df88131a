#include "model/tensors.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lode::model {

std::string layer_tensor(std::int64_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}.weight", layer, name);
}

std::string layer_bias(std::int64_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}.bias", layer, name);
}

void TensorReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const gguf::Tensor* TensorReader::find(const std::string& name) {
  const gguf::Tensor* t = file_.tensor(name);
  if (t) read_[static_cast<std::size_t>(t - file_.tensors().data())] = true;
  return t;
}

// The tensor as one matrix of shape[0] columns, once shape and type are as they should be.
kernels::Matrix TensorReader::checked(const gguf::Tensor& t, std::span<const std::int64_t> shape) {
  if (!std::equal(shape.begin(), shape.end(), t.shape.begin(), t.shape.end())) {
    fail(Status::corrupt(fmt::format("{}: tensor '{}': expected shape [{}] from the metadata, found [{}]",
                                     file_.path().string(), t.name, fmt::join(shape, ", "), fmt::join(t.shape, ", "))));
    return {};
  }
  if (const Status computable = file_.require_computable(t); !computable.ok()) {
    fail(computable);
    return {};
  }
  std::int64_t rows = 1;
  for (const std::int64_t dim : shape.subspan(1)) rows *= dim;
  const Placed at = placed(t);
  return {t.type, at.layout, at.data, rows, shape[0]};
}

kernels::Matrix TensorReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  if (!has(name)) {
    fail(
        Status::corrupt(fmt::format("{}: tensor '{}' is missing: expected [{}, {}]; the file is incomplete or its "
                                    "block_count is wrong",
                                    file_.path().string(), name, cols, rows)));
    return {};
  }
  return optional_matrix(name, rows, cols);
}

kernels::Matrix TensorReader::optional_matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const gguf::Tensor* t = find(name);
  if (!t) return {};
  const std::int64_t shape[] = {cols, rows};
  return checked(*t, shape);
}

std::vector<kernels::Matrix> TensorReader::stack(const std::string& name, std::int64_t rows, std::int64_t cols,
                                                 std::int64_t count) {
  const gguf::Tensor* t = find(name);
  if (!t) {
    fail(
        Status::corrupt(fmt::format("{}: tensor '{}' is missing: expected [{}, {}, {}]; the file is incomplete or its "
                                    "block_count is wrong",
                                    file_.path().string(), name, cols, rows, count)));
    return {};
  }
  const std::int64_t shape[] = {cols, rows, count};
  const kernels::Matrix all = checked(*t, shape);
  if (all.rows == 0) return {};
  std::vector<kernels::Matrix> slices(static_cast<std::size_t>(count), all);
  const std::int64_t bytes = rows * quant::row_bytes(all.type, cols);
  for (std::int64_t i = 0; i < count; ++i) {
    slices[static_cast<std::size_t>(i)].data = all.data + i * bytes;
    slices[static_cast<std::size_t>(i)].rows = rows;
  }
  return slices;
}

const float* TensorReader::vector(const std::string& name, std::int64_t count) {
  if (!has(name)) {
    fail(
        Status::corrupt(fmt::format("{}: tensor '{}' is missing: expected [{}]; the file is incomplete or its "
                                    "block_count is wrong",
                                    file_.path().string(), name, count)));
    return nullptr;
  }
  return optional_vector(name, count);
}

Placed TensorReader::placed(const gguf::Tensor& t) {
  if (!place_) return {t.data};
  auto where = place_(t);
  if (where.ok()) return where.value();
  fail(where.status());
  return {};
}

const float* TensorReader::optional_vector(const std::string& name, std::int64_t count) {
  const gguf::Tensor* t = nullptr;
  if (!in_file(name, count, &t)) return nullptr;
  return reinterpret_cast<const float*>(placed(*t).data);
}

const float* TensorReader::in_file(const std::string& name, std::int64_t count, const gguf::Tensor** tensor) {
  const gguf::Tensor* t = find(name);
  if (!t) return nullptr;
  if (t->shape.size() != 1 || t->shape[0] != count || t->type != quant::DType::f32) {
    fail(Status::corrupt(fmt::format("{}: tensor '{}': expected F32 [{}], found {} [{}]", file_.path().string(), name,
                                     count, quant::info(t->type).name, fmt::join(t->shape, ", "))));
    return nullptr;
  }
  *tensor = t;
  return reinterpret_cast<const float*>(t->data);
}

kernels::Matrix TensorReader::row(const std::string& name, std::int64_t cols) {
  const float* values = vector(name, cols);
  return {quant::DType::f32, kernels::Layout::row_major, reinterpret_cast<const std::byte*>(values), 1, cols};
}

const float* TensorReader::positive_vector(const std::string& name, std::int64_t count) {
  const gguf::Tensor* tensor = nullptr;
  const float* values = in_file(name, count, &tensor);
  for (std::int64_t i = 0; values && i < count; ++i) {
    if (values[i] > 0 && std::isfinite(values[i])) continue;
    fail(Status::corrupt(fmt::format("{}: tensor '{}'[{}]: expected a positive number, found {}", file_.path().string(),
                                     name, i, values[i])));
    return nullptr;
  }
  return values;
}

Status TensorReader::finish(std::int64_t ignored_layer) {
  LODE_RETURN_IF_ERROR(status_);
  // Other prefixes belong to parts that a text model does without, such as "v." and "mm." (vision).
  constexpr std::string_view kText[] = {"blk.", "output", "token_embd", "rope_"};
  for (std::size_t i = 0; i < read_.size(); ++i) {
    const std::string_view name = file_.tensors()[i].name;
    if (read_[i] || std::none_of(std::begin(kText), std::end(kText), [&](auto p) { return name.starts_with(p); }))
      continue;
    std::int64_t layer = -1;
    if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
    if (layer >= ignored_layer) continue;
    fail(Status::unsupported(
        fmt::format("{}: tensor {} is in the file, but this architecture has no use for it here; the file is of a "
                    "variant that is not supported, or its metadata is wrong",
                    file_.path().string(), gguf::quoted(name))));
    break;
  }
  return status_;
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
