// Writes small GGUF files for tests, sound ones and damaged ones. Tests and fuzzers only; any room's.
//
//   TestWriter w;
//   w.string("general.architecture", "llama").u32("llama.block_count", 1);
//   w.tensor("output.weight", 0 /* F32 */, {4, 2}, f32_bytes({1, 2, 3, 4, 5, 6, 7, 8}));
//   w.write(path);
//
// Damage: set the public overrides before bytes(), or edit the returned string; at() tells where things lie in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lode::gguf {

class TestWriter {
 public:
  // Overrides: what the header claims, whatever was added.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> claimed_tensors, claimed_metadata;
  std::uint64_t alignment = 32;  // For placing tensors. Writes no key: add general.alignment yourself.

  // ---- Metadata. The numbers of the types are GGUF's.
  TestWriter& u8(std::string_view key, std::uint8_t v) { return scalar(key, 0, v); }
  TestWriter& i8(std::string_view key, std::int8_t v) { return scalar(key, 1, v); }
  TestWriter& u16(std::string_view key, std::uint16_t v) { return scalar(key, 2, v); }
  TestWriter& i16(std::string_view key, std::int16_t v) { return scalar(key, 3, v); }
  TestWriter& u32(std::string_view key, std::uint32_t v) { return scalar(key, 4, v); }
  TestWriter& i32(std::string_view key, std::int32_t v) { return scalar(key, 5, v); }
  TestWriter& f32(std::string_view key, float v) { return scalar(key, 6, v); }
  TestWriter& boolean(std::string_view key, std::uint8_t v) { return scalar(key, 7, v); }
  TestWriter& u64(std::string_view key, std::uint64_t v) { return scalar(key, 10, v); }
  TestWriter& i64(std::string_view key, std::int64_t v) { return scalar(key, 11, v); }
  TestWriter& f64(std::string_view key, double v) { return scalar(key, 12, v); }
  TestWriter& string(std::string_view key, std::string_view v) { return raw(key, 8, text(v)); }
  TestWriter& strings(std::string_view key, const std::vector<std::string>& items) {
    std::string body = number(std::uint32_t{8}) + number(std::uint64_t{items.size()});
    for (const std::string& item : items) body += text(item);
    return raw(key, 9, body);
  }
  // `type` is the element type's number and T its C++ type.
  template <typename T>
  TestWriter& array(std::string_view key, std::uint32_t type, const std::vector<T>& items) {
    std::string body = number(type) + number(std::uint64_t{items.size()});
    for (const T& item : items) body += number(item);
    return raw(key, 9, body);
  }
  // Any value bytes under any type number.
  TestWriter& raw(std::string_view key, std::uint32_t type, std::string_view value_bytes) {
    metadata_.push_back({std::string(key), type, std::string(value_bytes)});
    return *this;
  }

  // ---- Tensors. `type` is GGUF's number; `data` is laid down as given, whatever shape and type claim. Offsets follow
  // from the data unless one is given (in the data section).
  TestWriter& tensor(std::string_view name, std::uint32_t type, std::vector<std::uint64_t> shape, std::string data,
                     std::optional<std::uint64_t> offset = std::nullopt) {
    tensors_.push_back({std::string(name), type, std::move(shape), std::move(data), offset});
    return *this;
  }

  // The whole file. Positions for at() are those of the last call.
  std::string bytes() {
    at_.clear();
    std::string out = magic + number(version);
    at_["tensor count"] = out.size();
    out += number(claimed_tensors.value_or(tensors_.size()));
    at_["metadata count"] = out.size();
    out += number(claimed_metadata.value_or(metadata_.size()));
    for (const Entry& entry : metadata_) {
      at_["key " + entry.key] = out.size();
      out += text(entry.key) + number(entry.type);
      at_["value " + entry.key] = out.size();
      out += entry.value;
    }
    std::uint64_t end = 0;  // Of the data section so far.
    for (const Tensor& tensor : tensors_) {
      at_["tensor " + tensor.name] = out.size();
      out += text(tensor.name) + number(static_cast<std::uint32_t>(tensor.shape.size()));
      for (const std::uint64_t dim : tensor.shape) out += number(dim);
      at_["type " + tensor.name] = out.size();
      out += number(tensor.type);
      at_["offset " + tensor.name] = out.size();
      out += number(tensor.offset.value_or(end));
      end = round_up(end + tensor.data.size());
    }
    at_["header end"] = out.size();
    if (tensors_.empty()) return out;
    out.resize(round_up(out.size()));
    at_["data"] = out.size();
    for (const Tensor& tensor : tensors_) {
      at_["data " + tensor.name] = out.size();
      out += tensor.data;
      if (&tensor != &tensors_.back()) out.resize(round_up(out.size()));
    }
    return out;
  }
  // "tensor count", "metadata count", "key K", "value K", "tensor T", "type T", "offset T", "header end", "data",
  // "data T": byte positions in what bytes() returned.
  std::uint64_t at(const std::string& what) const { return at_.at(what); }

  void write(const std::filesystem::path& path) { write_file(path, bytes()); }
  static void write_file(const std::filesystem::path& path, std::string_view content) {
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }

  // Little-endian bytes; the machines Lode runs on store numbers so.
  template <typename T>
  static std::string number(T v) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &v, sizeof(T));
    return out;
  }
  static std::string text(std::string_view s) { return number(std::uint64_t{s.size()}) + std::string(s); }

 private:
  struct Entry {
    std::string key;
    std::uint32_t type;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::uint32_t type;
    std::vector<std::uint64_t> shape;
    std::string data;
    std::optional<std::uint64_t> offset;
  };
  template <typename T>
  TestWriter& scalar(std::string_view key, std::uint32_t type, T v) {
    return raw(key, type, number(v));
  }
  std::uint64_t round_up(std::uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }

  std::vector<Entry> metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::uint64_t> at_;
};

inline std::string f32_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values) out += TestWriter::number(v);
  return out;
}

}  // namespace lode::gguf
