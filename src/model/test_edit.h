// A model file with some keys and tensors changed, as bytes in memory. Tests only.
//
//   Edited e(path);
//   e.without("llama.expert_count").set().u32("llama.block_count", 513);   // set() replaces what it names
//   e.rename("token_embd.weight", "embd.weight").drop("output.weight");
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/test_writer.h"

namespace lode::model::test {

class Edited {
 public:
  explicit Edited(const std::filesystem::path& path) {
    auto opened = gguf::File::open(path, {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    file_ = std::move(opened).value();
  }
  Edited& without(std::string_view key) {
    dropped_.insert(std::string(key));
    return *this;
  }
  Edited& u32(std::string_view key, std::uint32_t v) {
    writer_.u32(key, v);
    return without(key);
  }
  Edited& f32(std::string_view key, float v) {
    writer_.f32(key, v);
    return without(key);
  }
  Edited& string(std::string_view key, std::string_view v) {
    writer_.string(key, v);
    return without(key);
  }
  Edited& u32s(std::string_view key, const std::vector<std::uint32_t>& v) {
    writer_.array(key, 4, v);
    return without(key);
  }
  Edited& drop(std::string_view tensor) {
    renamed_[std::string(tensor)] = "";
    return *this;
  }
  Edited& rename(std::string_view tensor, std::string_view to) {
    renamed_[std::string(tensor)] = std::string(to);
    return *this;
  }
  // Adds a tensor, or replaces the one of that name.
  Edited& tensor(std::string_view name, quant::DType type, std::vector<std::uint64_t> shape, std::string data) {
    writer_.tensor(name, static_cast<std::uint32_t>(type), std::move(shape), std::move(data));
    return drop(name);
  }
  const gguf::File& file() const { return *file_; }
  // The named tensor's bytes.
  std::string data(std::string_view name) const {
    const gguf::Tensor* t = file_->tensor(name);
    EXPECT_NE(t, nullptr) << name;
    return {reinterpret_cast<const char*>(t->data), t->bytes};
  }

  std::string bytes() const {
    gguf::TestWriter w = writer_;
    for (const auto& [key, value] : file_->metadata())
      if (!dropped_.contains(std::string(key)) && !key.starts_with("tokenizer.")) copy(w, key, value);
    for (const gguf::Tensor& t : file_->tensors()) {
      const auto change = renamed_.find(std::string(t.name));
      const std::string name = change == renamed_.end() ? std::string(t.name) : change->second;
      if (name.empty()) continue;
      w.tensor(name, static_cast<std::uint32_t>(t.type), {t.shape.begin(), t.shape.end()}, data(t.name));
    }
    return w.bytes();
  }

 private:
  static void copy(gguf::TestWriter& w, std::string_view key, const gguf::Value& value) {
    using gguf::ValueType;
    if (const auto* text = std::get_if<std::string_view>(&value.v)) w.string(key, *text);
    else if (const auto* flag = std::get_if<bool>(&value.v)) w.boolean(key, *flag ? 1 : 0);
    else if (const auto* real = std::get_if<double>(&value.v)) w.f64(key, *real);
    else if (const auto* natural = std::get_if<std::uint64_t>(&value.v)) w.u64(key, *natural);
    else if (const auto* whole = std::get_if<std::int64_t>(&value.v)) w.i64(key, *whole);
    else copy_array(w, key, std::get<gguf::Array>(value.v));
  }
  static void copy_array(gguf::TestWriter& w, std::string_view key, const gguf::Array& a) {
    if (const auto* whole = std::get_if<std::vector<std::int64_t>>(&a.items)) w.array(key, 11, *whole);
    else if (const auto* natural = std::get_if<std::vector<std::uint64_t>>(&a.items)) w.array(key, 10, *natural);
    else if (const auto* real = std::get_if<std::vector<double>>(&a.items)) w.array(key, 12, *real);
    else w.strings(key, {std::get<3>(a.items).begin(), std::get<3>(a.items).end()});
  }

  std::unique_ptr<gguf::File> file_;
  gguf::TestWriter writer_;
  std::set<std::string> dropped_;
  std::map<std::string, std::string> renamed_;  // To "": dropped.
};

}  // namespace lode::model::test
