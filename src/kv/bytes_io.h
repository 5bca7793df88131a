// Little-endian values into and out of byte strings. A reader that runs out says so and returns zeros. Any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

namespace lode::kv {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

class ByteWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (bytes_.size() < sizeof value) {
      failed_ = true;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

// Zeroed bytes at an address that O_DIRECT accepts.
struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
// `bytes` is a multiple of 4096, not 0.
inline AlignedBytes aligned_bytes(std::size_t bytes) {
  auto* p = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  if (!p) throw std::bad_alloc();
  std::memset(p, 0, bytes);
  return AlignedBytes(p);
}

}  // namespace lode::kv
