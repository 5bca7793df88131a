// Bytes -> a validated, immutable model file. Knows nothing of inference. A loaded File may be read by any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.h"
#include "platform/mapping.h"
#include "quant/types.h"

namespace lode::gguf {

// GGUF's metadata value types, with its own numbers.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// An array value, decoded once: numbers widen to 64 bits, strings point into the file's header copy.
struct Array {
  ValueType element = ValueType::u8;
  std::variant<std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
               std::vector<std::string_view>>
      items;
  std::size_t size() const;
};
struct Value {
  ValueType type = ValueType::u8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, Array> v;
};

struct Tensor {
  std::string_view name;
  quant::DType type = quant::DType::f32;
  std::vector<std::int64_t> shape;  // GGUF's order: shape[0] is the row length (columns). 1 to 4 entries, all > 0.
  std::uint64_t bytes = 0;
  std::uint32_t part = 0;           // Index of the split file that holds it.
  std::uint64_t offset = 0;         // From that file's start.
  const std::byte* data = nullptr;  // [bytes] Set by load_tensors; at least 8-byte aligned in a file from disk.
};

enum class LoadMode { mmap, read, direct };

struct OpenOptions {
  LoadMode mode = LoadMode::mmap;
  bool metadata_only = false;  // Vocabulary-only files, `info`, `tokenize`: no tensor data is mapped or read.
};

class File {
 public:
  // Opens a GGUF (or the first part of a split one), validates header, metadata and tensor table against the sizes on
  // disk, and makes tensor data addressable as the mode says. Never crashes, hangs or allocates more than a small
  // multiple of the file's size on hostile input. Errors: one line with file, where (byte offset or tensor or key),
  // expected, found, and what to do.
  static Result<std::unique_ptr<File>> open(const std::filesystem::path& path, const OpenOptions& options);
  // The same validation over bytes in memory, which the caller keeps alive: tensor data points into them, at whatever
  // alignment they have. One part only. `name` stands for the file in messages.
  static Result<std::unique_ptr<File>> open_bytes(std::span<const std::byte> bytes, std::string_view name);
  ~File();

  // Makes tensor data addressable: for a file opened with metadata_only, once its size has been planned. `open` calls
  // it otherwise. `direct` falls back to `read` where the file system refuses O_DIRECT; loaded_as() tells. After an
  // error nothing is loaded. In mmap mode a file that is cut later, while in use, raises SIGBUS on the missing pages.
  Status load_tensors(LoadMode mode);
  // Takes the pages of a mapped tensor's bytes [offset, offset + bytes) out of memory; who touches them again gets them
  // from the page cache or the disk. For bytes that have been copied. Pages that lie only partly inside stay. A file
  // that is not mapped: nothing happens.
  void release_pages(const Tensor& tensor, std::uint64_t offset, std::uint64_t bytes) const;
  std::optional<LoadMode> loaded_as() const;  // nullopt: no tensor data is addressable.

  std::uint32_t version() const;
  const std::filesystem::path& path() const;  // Of the first part.
  std::span<const std::filesystem::path> parts() const;
  std::uint64_t bytes_on_disk() const;  // All parts.
  std::uint64_t tensor_bytes() const;   // Sum over tensors(), without padding.

  std::span<const std::pair<std::string_view, Value>> metadata() const;  // In file order.
  const Value* find(std::string_view key) const;
  std::span<const Tensor> tensors() const;  // In file order, parts one after another.
  const Tensor* tensor(std::string_view name) const;
  // ok, or the error for a tensor whose format has a known size but no kernels: names tensor, type number and name,
  // and the formats that can be computed. Opening a file does not refuse such tensors, `info` can list them.
  Status require_computable(const Tensor& tensor) const;

  // Typed access. A missing key is nullopt; a key of a wrong type or out of range is an error naming key, expected
  // and found. Integers of any width convert when the value fits.
  Result<std::optional<std::uint64_t>> get_uint(std::string_view key) const;
  Result<std::optional<double>> get_float(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  // Strings, or numbers, of an array key; empty optional where missing.
  Result<std::optional<std::span<const std::string_view>>> get_strings(std::string_view key) const;
  Result<std::optional<std::vector<std::int64_t>>> get_ints(std::string_view key) const;  // A scalar gives one item.
  Result<std::optional<std::vector<double>>> get_floats(std::string_view key) const;

  // SHA-256 over all header bytes (every part) and 64 KiB samples of every tensor (first, middle, last). Reads at most
  // 192 KiB a tensor, and tells models apart, but not every change of one.
  Result<std::array<std::uint8_t, 32>> fingerprint() const;
  // SHA-256 over all bytes of every part, in order, with each part's length before it. Reads everything: about 1.5 GB/s
  // from the page cache, else as fast as the disk.
  Result<std::array<std::uint8_t, 32>> content_hash() const;
  // Of every part, as the file system has them now. A file opened from bytes has none.
  Result<std::vector<platform::FileStamp>> stamps() const;

 private:
  File();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "u32", "string", "array", ... for messages and `info`.
std::string_view type_name(ValueType type);
// Text from a file for a message: quoted, at most 80 bytes, control and non-ASCII bytes as \xNN.
std::string quoted(std::string_view text);

}  // namespace lode::gguf
