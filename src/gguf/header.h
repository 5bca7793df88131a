// Parses and validates one GGUF part's header: magic, version, metadata, tensor table. gguf/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "platform/mapping.h"

namespace lode::gguf {

// A header may span at most this much. The largest known ones (262k tokens with merges) are about 20 MiB; the bound
// keeps a damaged length field from pulling a whole model, or a sparse terabyte, into memory.
inline constexpr std::uint64_t kHeaderBytesMax = 256ull << 20;

// The first bytes of a file at an address that never changes, read as the parser asks for them. A copy, not a mapping:
// metadata stays valid whatever happens to the file, and costs one pread a few MiB.
class HeaderBytes {
 public:
  // `file` outlives the object.
  static Result<HeaderBytes> of_file(const platform::SourceFile& file);
  static HeaderBytes of_memory(std::span<const std::byte> bytes);

  const std::byte* data() const { return data_; }
  std::uint64_t available() const { return available_; }  // Bytes that may be read now.
  std::uint64_t file_size() const { return file_size_; }
  std::uint64_t limit() const { return file_size_ < kHeaderBytesMax ? file_size_ : kHeaderBytesMax; }

  // Makes at least [0, end) available. end <= limit().
  Status fill(std::uint64_t end);
  // The header ends at `end`: gives back what lies after it, memory included.
  void finish(std::uint64_t end);

 private:
  platform::AlignedBuffer copy_;
  const platform::SourceFile* file_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t available_ = 0;
  std::uint64_t file_size_ = 0;
};

struct Header {
  std::uint32_t version = 0;
  std::vector<std::pair<std::string_view, Value>> metadata;  // In file order; views point into the HeaderBytes.
  std::vector<std::uint32_t> by_key;                         // Indices into metadata, sorted by key.
  std::vector<Tensor> tensors;                               // In file order; offsets count from the file's start.
  std::uint64_t header_end = 0;                              // One past the tensor table.
  std::uint64_t data_start = 0;                              // First byte that tensor data may have, if any.
  std::uint64_t data_end = 0;                                // One past the last tensor byte; data_start if none.
};

// Everything about one part is checked here, tensor extents against the file's size included. `file` names the part in
// messages. The views and tensors live as long as `bytes`.
Result<Header> parse_header(HeaderBytes& bytes, std::string_view file, std::uint32_t part);

// Finds a name that occurs twice. `name_of(i)` gives the i-th of `count`; `order` receives the sorted indices. Sorting,
// not hashing: a hostile file cannot make it quadratic.
struct Duplicate {
  std::uint32_t first = 0, second = 0;
};
std::optional<Duplicate> sort_names(std::vector<std::uint32_t>& order, std::span<const std::string_view> names);

}  // namespace lode::gguf
