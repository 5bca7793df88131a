// The byte-level parser behind header.h. Format: little-endian, docs in ggml's gguf.md; versions 2 and 3 read alike.
#include "gguf/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/bytes.h"

namespace lode::gguf {
namespace {

constexpr std::uint64_t kKeyBytesMax = 65535;   // The format's own bound.
constexpr std::uint64_t kTensorNameMax = 1024;  // The format says 64; real names stay below that.
constexpr std::uint32_t kDimsMax = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
// The fewest bytes an entry can take: for refusing a count before anything is reserved for it.
constexpr std::uint64_t kMetadataBytesMin = 8 + 1 + 4 + 1;        // Key length, key, type, one-byte value.
constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // Name length, name, n_dims, dim, type, offset.

constexpr std::string_view kDamaged = "the file is cut short or damaged; fetch it again";

// What is being read, for messages. Formatting is left until something fails.
struct Place {
  const char* kind = "header";
  std::uint64_t index = 0, count = 0;  // "metadata entry 3 of 36"; count 0: no number is printed.
  std::string_view name;               // Once it is known.
  std::string text() const {
    std::string s = kind;
    if (count > 0) s += fmt::format(" {} of {}", index + 1, count);
    if (!name.empty()) s += " " + quoted(name);
    return s;
  }
};

class Parser {
 public:
  Parser(HeaderBytes& in, std::string_view file, std::uint32_t part) : in_(in), file_(file), part_(part) {}
  Result<Header> run();

 private:
  bool failed() const { return !error_.ok(); }
  // Records the first failure: "FILE: PLACE at byte N: TEXT".
  void fail(Code code, std::string_view text, std::uint64_t at);
  std::uint64_t left() const { return in_.limit() - pos_; }

  // The next n bytes, or nullptr with the error recorded.
  const std::byte* take(std::uint64_t n, const char* what) {
    if (failed()) return nullptr;
    if (n > in_.available() - pos_ && !refill(n, what)) return nullptr;
    const std::byte* p = in_.data() + pos_;
    pos_ += n;
    return p;
  }
  bool refill(std::uint64_t n, const char* what);

  template <typename T>
  T number(const char* what) {
    T value{};
    if (const std::byte* p = take(sizeof(T), what)) std::memcpy(&value, p, sizeof(T));
    return value;
  }
  std::string_view string(const char* what, std::uint64_t max);
  template <typename Stored, typename Wide>
  std::vector<Wide> numbers(std::uint64_t count);
  std::vector<std::uint64_t> booleans(std::uint64_t count);
  std::vector<std::string_view> strings(std::uint64_t count);

  void preamble();
  void count_fits(const char* what, std::uint64_t count, std::uint64_t bytes_each);
  void metadata_entry();
  Value value(ValueType type);
  Array array();
  void alignment();
  void tensor_entry();
  void tensor_shape(Tensor& tensor, std::uint64_t at);
  void tensor_extents();
  void overlaps();

  HeaderBytes& in_;
  std::string_view file_;
  std::uint32_t part_;
  std::uint64_t pos_ = 0;
  Place place_;
  Status error_;
  Header out_;
  std::uint64_t tensor_count_ = 0, metadata_count_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

void Parser::fail(Code code, std::string_view text, std::uint64_t at) {
  if (failed()) return;
  error_ = Status(code, fmt::format("{}: {} at byte {}: {}", file_, place_.text(), at, text));
}

bool Parser::refill(std::uint64_t n, const char* what) {
  if (n <= left()) {
    Status status = in_.fill(pos_ + n);
    if (status.ok()) return true;
    error_ = std::move(status);
    return false;
  }
  if (in_.limit() < in_.file_size()) {
    fail(Code::corrupt,
         fmt::format("{} needs {} bytes, which takes the header past {}, the most that is accepted; the length is "
                     "damaged, fetch the file again",
                     what, n, format_size(kHeaderBytesMax)),
         pos_);
  } else {
    fail(Code::corrupt, fmt::format("{} needs {} bytes, {} are left in the file; {}", what, n, left(), kDamaged), pos_);
  }
  return false;
}

std::string_view Parser::string(const char* what, std::uint64_t max) {
  const std::uint64_t at = pos_;
  const auto length = number<std::uint64_t>(what);
  if (!failed() && length > max) {
    fail(Code::corrupt, fmt::format("{} of {} bytes, expected at most {}; {}", what, length, max, kDamaged), at);
  }
  const std::byte* p = take(length, what);
  return p == nullptr ? std::string_view() : std::string_view(reinterpret_cast<const char*>(p), length);
}

// ---- Arrays

// Numbers are read in pieces, so that memory grows only with bytes that are really there.
constexpr std::uint64_t kPieceItems = 64 * 1024;

template <typename Stored, typename Wide>
std::vector<Wide> Parser::numbers(std::uint64_t count) {
  std::vector<Wide> out;
  count_fits("array items", count, sizeof(Stored));
  if (failed()) return out;
  out.reserve(count);
  while (out.size() < count) {
    const std::uint64_t n = std::min(kPieceItems, count - out.size());
    const std::byte* p = take(n * sizeof(Stored), "array items");
    if (p == nullptr) return {};
    for (std::uint64_t i = 0; i < n; ++i) {
      Stored item;
      std::memcpy(&item, p + i * sizeof(Stored), sizeof(Stored));
      out.push_back(static_cast<Wide>(item));
    }
  }
  return out;
}

std::vector<std::uint64_t> Parser::booleans(std::uint64_t count) {
  const std::uint64_t at = pos_;
  std::vector<std::uint64_t> out = numbers<std::uint8_t, std::uint64_t>(count);
  const auto bad = std::find_if(out.begin(), out.end(), [](std::uint64_t b) { return b > 1; });
  if (bad != out.end()) {
    fail(Code::corrupt, fmt::format("boolean of value {}, expected 0 or 1; {}", *bad, kDamaged),
         at + static_cast<std::uint64_t>(bad - out.begin()));
  }
  return out;
}

std::vector<std::string_view> Parser::strings(std::uint64_t count) {
  std::vector<std::string_view> out;
  count_fits("array strings", count, sizeof(std::uint64_t));
  if (failed()) return out;
  out.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    out.push_back(string("array string", kHeaderBytesMax));
    if (failed()) return {};
  }
  return out;
}

Array Parser::array() {
  Array out;
  const std::uint64_t at = pos_;
  const auto type = number<std::uint32_t>("array element type");
  const auto count = number<std::uint64_t>("array length");
  if (failed()) return out;
  out.element = static_cast<ValueType>(type);
  switch (out.element) {
    case ValueType::u8: out.items = numbers<std::uint8_t, std::uint64_t>(count); break;
    case ValueType::u16: out.items = numbers<std::uint16_t, std::uint64_t>(count); break;
    case ValueType::u32: out.items = numbers<std::uint32_t, std::uint64_t>(count); break;
    case ValueType::u64: out.items = numbers<std::uint64_t, std::uint64_t>(count); break;
    case ValueType::i8: out.items = numbers<std::int8_t, std::int64_t>(count); break;
    case ValueType::i16: out.items = numbers<std::int16_t, std::int64_t>(count); break;
    case ValueType::i32: out.items = numbers<std::int32_t, std::int64_t>(count); break;
    case ValueType::i64: out.items = numbers<std::int64_t, std::int64_t>(count); break;
    case ValueType::f32: out.items = numbers<float, double>(count); break;
    case ValueType::f64: out.items = numbers<double, double>(count); break;
    case ValueType::boolean: out.items = booleans(count); break;
    case ValueType::string: out.items = strings(count); break;
    case ValueType::array:
      fail(Code::unsupported, "an array of arrays, which no known model uses; expected numbers, booleans or strings",
           at);
      break;
    default: fail(Code::corrupt, fmt::format("array element type {}, expected 0 to 12; {}", type, kDamaged), at); break;
  }
  return out;
}

// ---- Metadata

void Parser::count_fits(const char* what, std::uint64_t count, std::uint64_t bytes_each) {
  if (failed() || count <= left() / bytes_each) return;
  fail(Code::corrupt,
       fmt::format("{} {} need at least {} bytes each, {} bytes are left{}; {}", count, what, bytes_each, left(),
                   in_.limit() < in_.file_size() ? " of the most a header may have" : " in the file", kDamaged),
       pos_);
}

void Parser::preamble() {
  constexpr std::string_view kHow = "expected a GGUF model";
  char magic[4] = {};
  if (in_.file_size() < sizeof(magic)) {
    return fail(Code::corrupt, fmt::format("the file has {} bytes, {}; fetch it again", in_.file_size(), kHow), 0);
  }
  if (const std::byte* p = take(sizeof(magic), "magic")) std::memcpy(magic, p, sizeof(magic));
  const std::string_view found(magic, sizeof(magic));
  if (failed()) return;
  if (found == "FUGG") return fail(Code::unsupported, "big-endian file, not supported; convert it to little-endian", 0);
  if (found == "vers") {
    return fail(Code::corrupt, "a Git LFS pointer and not the model itself; fetch the model with `git lfs pull`", 0);
  }
  if (found != "GGUF") {
    return fail(Code::corrupt, fmt::format("magic is {}, {} ('GGUF'); is this another format?", quoted(found), kHow),
                0);
  }
  const std::uint64_t at = pos_;
  out_.version = number<std::uint32_t>("version");
  if (failed()) return;
  // Versions are small: one whose low half is empty was written by a machine of the other byte order.
  if (out_.version != 0 && (out_.version & 0xffff) == 0) {
    return fail(Code::unsupported,
                fmt::format("big-endian file, not supported (version {}); convert it to little-endian",
                            __builtin_bswap32(out_.version)),
                at);
  }
  if (out_.version != 2 && out_.version != 3) {
    return fail(Code::unsupported,
                fmt::format("GGUF version {} not supported, expected 2 or 3; {}", out_.version,
                            out_.version < 2 ? "convert the model again" : "a newer Lode may read it"),
                at);
  }
  tensor_count_ = number<std::uint64_t>("tensor count");
  metadata_count_ = number<std::uint64_t>("metadata count");
  count_fits("metadata entries", metadata_count_, kMetadataBytesMin);
  count_fits("tensors", tensor_count_, kTensorBytesMin);
}

Value Parser::value(ValueType type) {
  Value out;
  out.type = type;
  const std::uint64_t at = pos_;
  constexpr const char* kWhat = "value";
  switch (type) {
    case ValueType::u8: out.v = std::uint64_t{number<std::uint8_t>(kWhat)}; break;
    case ValueType::u16: out.v = std::uint64_t{number<std::uint16_t>(kWhat)}; break;
    case ValueType::u32: out.v = std::uint64_t{number<std::uint32_t>(kWhat)}; break;
    case ValueType::u64: out.v = number<std::uint64_t>(kWhat); break;
    case ValueType::i8: out.v = std::int64_t{number<std::int8_t>(kWhat)}; break;
    case ValueType::i16: out.v = std::int64_t{number<std::int16_t>(kWhat)}; break;
    case ValueType::i32: out.v = std::int64_t{number<std::int32_t>(kWhat)}; break;
    case ValueType::i64: out.v = number<std::int64_t>(kWhat); break;
    case ValueType::f32: out.v = double{number<float>(kWhat)}; break;
    case ValueType::f64: out.v = number<double>(kWhat); break;
    case ValueType::string: out.v = string("string value", kHeaderBytesMax); break;
    case ValueType::array: out.v = array(); break;
    case ValueType::boolean: {
      const auto b = number<std::uint8_t>(kWhat);
      if (b > 1) fail(Code::corrupt, fmt::format("boolean of value {}, expected 0 or 1; {}", b, kDamaged), at);
      out.v = b == 1;
      break;
    }
    default:
      fail(Code::corrupt,
           fmt::format("value type {}, expected 0 to 12; {}", static_cast<std::uint32_t>(type), kDamaged), at);
  }
  return out;
}

void Parser::metadata_entry() {
  const std::uint64_t at = pos_;
  const std::string_view key = string("key", kKeyBytesMax);
  if (!failed() && key.empty()) fail(Code::corrupt, fmt::format("key of zero length; {}", kDamaged), at);
  place_.name = key;
  const auto type = number<std::uint32_t>("value type");
  if (failed()) return;
  out_.metadata.emplace_back(key, value(static_cast<ValueType>(type)));
}

void Parser::alignment() {
  const auto it = std::find_if(out_.metadata.begin(), out_.metadata.end(),
                               [](const auto& entry) { return entry.first == "general.alignment"; });
  if (it == out_.metadata.end()) return;
  const auto* unsigned_value = std::get_if<std::uint64_t>(&it->second.v);
  const auto* signed_value = std::get_if<std::int64_t>(&it->second.v);
  std::uint64_t a = 0;
  if (unsigned_value != nullptr) a = *unsigned_value;
  if (signed_value != nullptr && *signed_value > 0) a = static_cast<std::uint64_t>(*signed_value);
  // 8 is the least the format allows. 1 GiB is beyond any page or sector and keeps the sums below far from 2^64.
  if (a < 8 || a > kGiB || (a & (a - 1)) != 0) {
    std::string found = "a value of type " + std::string(type_name(it->second.type));
    if (unsigned_value != nullptr) found = std::to_string(*unsigned_value);
    if (signed_value != nullptr) found = std::to_string(*signed_value);
    error_ = Status::corrupt(fmt::format(
        "{}: key 'general.alignment': expected a power of two from 8 to 2^30, found {}; convert the model again", file_,
        found));
    return;
  }
  alignment_ = a;
}

// ---- Tensors

void Parser::tensor_shape(Tensor& tensor, std::uint64_t at) {
  const quant::TypeInfo& type = quant::info(tensor.type);
  const auto cols = static_cast<std::uint64_t>(tensor.shape[0]);
  const auto block = static_cast<std::uint64_t>(type.block);
  if (cols % block != 0) {
    fail(Code::corrupt,
         fmt::format("rows of {} values in format {}, whose rows must be a multiple of {} values; quantize this tensor "
                     "to a format with smaller blocks (Q8_0: 32)",
                     cols, type.name, block),
         at);
    return;
  }
  std::optional<std::uint64_t> bytes = checked_mul(cols / block, static_cast<std::uint64_t>(type.block_bytes));
  std::optional<std::uint64_t> items = cols;
  for (std::size_t i = 1; i < tensor.shape.size(); ++i) {
    const auto dim = static_cast<std::uint64_t>(tensor.shape[i]);
    if (bytes) bytes = checked_mul(*bytes, dim);
    if (items) items = checked_mul(*items, dim);
  }
  // 2^62 keeps item and byte counts in signed 64 bits, with room for sums.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  if (!bytes || !items || *bytes > kMost || *items > kMost) {
    fail(Code::corrupt, fmt::format("shape [{}] has more than 2^62 items; {}", fmt::join(tensor.shape, ", "), kDamaged),
         at);
    return;
  }
  tensor.bytes = *bytes;
}

void Parser::tensor_entry() {
  const std::uint64_t at = pos_;
  Tensor tensor;
  tensor.part = part_;
  tensor.name = string("name", kTensorNameMax);
  if (!failed() && tensor.name.empty()) fail(Code::corrupt, fmt::format("name of zero length; {}", kDamaged), at);
  place_.name = tensor.name;
  const std::uint64_t shape_at = pos_;
  const auto dims = number<std::uint32_t>("dimension count");
  if (failed()) return;
  if (dims == 0 || dims > kDimsMax) {
    return fail(Code::corrupt, fmt::format("{} dimensions, expected 1 to {}; {}", dims, kDimsMax, kDamaged), shape_at);
  }
  tensor.shape.reserve(dims);
  for (std::uint32_t i = 0; i < dims && !failed(); ++i) {
    const auto dim = number<std::int64_t>("dimension");
    if (!failed() && dim <= 0) {
      fail(Code::corrupt, fmt::format("dimension {} is {}, expected at least 1; {}", i, dim, kDamaged), pos_ - 8);
    }
    tensor.shape.push_back(dim);
  }
  const auto type = number<std::uint32_t>("type");
  tensor.offset = number<std::uint64_t>("offset");
  if (failed()) return;
  const quant::TypeInfo* info = quant::find_type(type);
  if (info == nullptr) {
    return fail(Code::unsupported,
                fmt::format("type number {} is not known (removed, or newer than this build); supported types: {}",
                            type, quant::computable_names()),
                pos_ - 12);
  }
  tensor.type = info->type;
  tensor_shape(tensor, shape_at);
  if (!failed()) out_.tensors.push_back(std::move(tensor));
}

void Parser::tensor_extents() {
  out_.data_start = align_up(out_.header_end, alignment_);
  out_.data_end = out_.data_start;
  const std::uint64_t size = in_.file_size();
  for (Tensor& tensor : out_.tensors) {
    const std::string what = fmt::format("{}: tensor {}", file_, quoted(tensor.name));
    if (tensor.offset % alignment_ != 0) {
      error_ = Status::corrupt(fmt::format("{}: offset {} in the data section, expected a multiple of {}; {}", what,
                                           tensor.offset, alignment_, kDamaged));
      return;
    }
    const std::optional<std::uint64_t> start = checked_add(out_.data_start, tensor.offset);
    const std::optional<std::uint64_t> end = start ? checked_add(*start, tensor.bytes) : std::nullopt;
    if (!end || *end > size) {
      const std::uint64_t present = start && *start < size ? size - *start : 0;
      error_ = Status::corrupt(fmt::format(
          "{}: needs {} bytes at byte {} (data section {} + offset {}), {} are present: the file has {} bytes; {}",
          what, tensor.bytes, start ? std::to_string(*start) : "2^64 or more", out_.data_start, tensor.offset, present,
          size, kDamaged));
      return;
    }
    tensor.offset = *start;
    out_.data_end = std::max(out_.data_end, *end);
  }
}

void Parser::overlaps() {
  std::vector<std::uint32_t> order(out_.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return out_.tensors[a].offset < out_.tensors[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Tensor& before = out_.tensors[order[i - 1]];
    const Tensor& after = out_.tensors[order[i]];
    if (before.offset + before.bytes <= after.offset) continue;
    error_ = Status::corrupt(fmt::format("{}: tensor {} (bytes {} to {}) and tensor {} (from byte {}) overlap; {}",
                                         file_, quoted(before.name), before.offset, before.offset + before.bytes,
                                         quoted(after.name), after.offset, kDamaged));
    return;
  }
}

Result<Header> Parser::run() {
  preamble();
  if (failed()) return error_;
  // A few thousand entries are reserved at once; a larger claim has to prove itself.
  out_.metadata.reserve(std::min<std::uint64_t>(metadata_count_, 4096));
  for (std::uint64_t i = 0; i < metadata_count_ && !failed(); ++i) {
    place_ = {.kind = "metadata entry", .index = i, .count = metadata_count_, .name = {}};
    metadata_entry();
  }
  if (failed()) return error_;
  std::vector<std::string_view> names;
  names.reserve(out_.metadata.size());
  for (const auto& [key, value] : out_.metadata) names.push_back(key);
  if (const auto twice = sort_names(out_.by_key, names)) {
    return Status::corrupt(fmt::format("{}: key {} occurs twice, as metadata entries {} and {}; {}", file_,
                                       quoted(names[twice->first]), twice->first + 1, twice->second + 1, kDamaged));
  }
  alignment();
  if (failed()) return error_;
  out_.tensors.reserve(std::min<std::uint64_t>(tensor_count_, 4096));
  for (std::uint64_t i = 0; i < tensor_count_ && !failed(); ++i) {
    place_ = {.kind = "tensor", .index = i, .count = tensor_count_, .name = {}};
    tensor_entry();
  }
  out_.header_end = pos_;
  if (!failed()) tensor_extents();
  if (!failed()) overlaps();
  if (failed()) return error_;
  in_.finish(out_.header_end);
  return std::move(out_);
}

}  // namespace

// ---- HeaderBytes

Result<HeaderBytes> HeaderBytes::of_file(const platform::SourceFile& file) {
  HeaderBytes bytes;
  bytes.file_ = &file;
  bytes.file_size_ = file.size();
  Result<platform::AlignedBuffer> copy = platform::AlignedBuffer::reserve(bytes.limit());
  if (!copy.ok()) return copy.status();
  bytes.copy_ = std::move(copy).value();
  bytes.data_ = bytes.copy_.data();
  return bytes;
}

HeaderBytes HeaderBytes::of_memory(std::span<const std::byte> memory) {
  HeaderBytes bytes;
  bytes.data_ = memory.data();
  bytes.file_size_ = memory.size();
  bytes.available_ = bytes.limit();
  return bytes;
}

Status HeaderBytes::fill(std::uint64_t end) {
  LODE_CHECK(end <= limit());
  if (end <= available_) return {};
  // Pieces grow with what has been read: a small header costs one 64 KiB read, a 20 MiB one about eight reads.
  const std::uint64_t piece = std::clamp<std::uint64_t>(available_, 64 * kKiB, 8 * kMiB);
  const std::uint64_t to = std::min(limit(), std::max(end, available_ + piece));
  LODE_RETURN_IF_ERROR(copy_.commit(to));
  // A claimed string may span the whole bound: read it in pieces too, so that a file cut meanwhile ends it early.
  while (available_ < to) {
    const std::uint64_t n = std::min<std::uint64_t>(to - available_, 8 * kMiB);
    LODE_RETURN_IF_ERROR(file_->read_at(available_, {copy_.data() + available_, n}));
    available_ += n;
  }
  return {};
}

void HeaderBytes::finish(std::uint64_t end) {
  available_ = std::min(available_, end);
  copy_.trim(available_);
}

Result<Header> parse_header(HeaderBytes& bytes, std::string_view file, std::uint32_t part) {
  return Parser(bytes, file, part).run();
}

std::optional<Duplicate> sort_names(std::vector<std::uint32_t>& order, std::span<const std::string_view> names) {
  order.resize(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int c = names[a].compare(names[b]);
    return c != 0 ? c < 0 : a < b;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (names[order[i - 1]] == names[order[i]]) return Duplicate{order[i - 1], order[i]};
  }
  return std::nullopt;
}

}  // namespace lode::gguf
