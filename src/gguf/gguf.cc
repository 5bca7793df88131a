// File: opens the parts, joins their tables, loads tensor data, answers typed look-ups.
#include "gguf/gguf.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "gguf/header.h"
#include "platform/mapping.h"

namespace lode::gguf {

// One file on disk, or the caller's bytes.
struct Part {
  std::optional<platform::SourceFile> source;  // Kept open: every later read sees the inode that was validated.
  std::span<const std::byte> memory;           // Where source is empty.
  HeaderBytes header_bytes;
  Header header;
  // Tensor data as load_tensors made it: `data` is the address of byte `data_from` of the file.
  platform::MappedFile mapped;
  platform::AlignedBuffer buffer;
};

struct File::Impl {
  std::vector<std::filesystem::path> paths;
  std::vector<std::unique_ptr<Part>> parts;  // unique_ptr: header_bytes points at its neighbour `source`.
  std::vector<Tensor> tensors;               // All parts, in order; takes over the headers' lists.
  std::vector<std::uint32_t> by_name;        // Indices into tensors, sorted by name.
  std::uint64_t tensor_bytes = 0;
  std::optional<LoadMode> loaded;

  const Header& first() const { return parts.front()->header; }
  std::string name() const { return paths.front().string(); }
  Status join();
  Status load_part(Part& part, LoadMode mode, LoadMode& used);
};

namespace {

// ---- Split files: NAME-00001-of-00003.gguf

struct SplitName {
  std::string stem;  // Path up to and without "-00001-of-00003.gguf".
  std::uint64_t number = 0, count = 0;
  std::filesystem::path part(std::uint64_t n) const { return fmt::format("{}-{:05}-of-{:05}.gguf", stem, n, count); }
};

std::optional<std::uint64_t> five_digits(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<SplitName> parse_split_name(const std::filesystem::path& path) {
  constexpr std::size_t kTail = std::string_view("-00001-of-00003.gguf").size();
  const std::string text = path.string();
  if (text.size() <= kTail) return std::nullopt;
  const std::string_view tail = std::string_view(text).substr(text.size() - kTail);
  if (tail.substr(0, 1) != "-" || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (!number || !count) return std::nullopt;
  return SplitName{text.substr(0, text.size() - kTail), *number, *count};
}

const Value* find_in(const Header& header, std::string_view key) {
  const auto it = std::lower_bound(header.by_key.begin(), header.by_key.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return header.metadata[i].first < k; });
  if (it == header.by_key.end() || header.metadata[*it].first != key) return nullptr;
  return &header.metadata[*it].second;
}

std::string describe(const Value& value) {
  if (const auto* array = std::get_if<Array>(&value.v)) {
    return fmt::format("an array of {} {}", array->size(), type_name(array->element));
  }
  std::string text = fmt::format("{}", type_name(value.type));
  if (const auto* u = std::get_if<std::uint64_t>(&value.v)) text += fmt::format(" {}", *u);
  if (const auto* i = std::get_if<std::int64_t>(&value.v)) text += fmt::format(" {}", *i);
  if (const auto* d = std::get_if<double>(&value.v)) text += fmt::format(" {}", *d);
  if (const auto* b = std::get_if<bool>(&value.v)) text += *b ? " true" : " false";
  if (const auto* s = std::get_if<std::string_view>(&value.v)) text += " " + quoted(*s);
  return text;
}

Status wrong_type(const std::string& file, std::string_view key, std::string_view expected, const Value& found) {
  return Status::corrupt(fmt::format("{}: key {}: expected {}, found {}; convert the model again", file, quoted(key),
                                     expected, describe(found)));
}

Result<std::optional<std::uint64_t>> uint_in(const Header& header, const std::string& file, std::string_view key) {
  const Value* value = find_in(header, key);
  if (value == nullptr) return std::optional<std::uint64_t>();
  if (const auto* u = std::get_if<std::uint64_t>(&value->v)) return std::optional(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value->v); i != nullptr && *i >= 0) {
    return std::optional(static_cast<std::uint64_t>(*i));
  }
  return wrong_type(file, key, "a whole number, 0 or more", *value);
}

Result<std::unique_ptr<Part>> open_part(const std::filesystem::path& path, std::uint32_t index) {
  auto part = std::make_unique<Part>();
  Result<platform::SourceFile> source = platform::SourceFile::open(path);
  if (!source.ok()) return source.status();
  part->source.emplace(std::move(source).value());
  Result<HeaderBytes> bytes = HeaderBytes::of_file(*part->source);
  if (!bytes.ok()) return bytes.status();
  part->header_bytes = std::move(bytes).value();
  Result<Header> header = parse_header(part->header_bytes, path.string(), index);
  if (!header.ok()) return header.status();
  part->header = std::move(header).value();
  return part;
}

struct SplitKeys {
  std::uint64_t number = 0, count = 0;   // Number from 0; count 0: not a split file.
  std::optional<std::uint64_t> tensors;  // Of all parts.
};

Result<SplitKeys> split_keys(const Header& header, const std::string& file) {
  SplitKeys keys;
  const auto count = uint_in(header, file, "split.count");
  if (!count.ok()) return count.status();
  const auto number = uint_in(header, file, "split.no");
  if (!number.ok()) return number.status();
  const auto tensors = uint_in(header, file, "split.tensors.count");
  if (!tensors.ok()) return tensors.status();
  keys.count = count->value_or(0);
  keys.number = number->value_or(0);
  keys.tensors = *tensors;
  return keys;
}

// Opens parts 2 to N beside a first part that says it has them.
Status open_other_parts(const SplitKeys& first, std::vector<std::filesystem::path>& paths,
                        std::vector<std::unique_ptr<Part>>& parts) {
  const std::string file = paths.front().string();
  const std::optional<SplitName> name = parse_split_name(paths.front());
  if (!name || name->number != first.number + 1 || name->count != first.count) {
    return Status::invalid(
        fmt::format("{}: is part {} of {} of a split model, expected a name that ends in -{:05}-of-{:05}.gguf so that "
                    "the other parts can be found; give the files their original names",
                    file, first.number + 1, first.count, first.number + 1, first.count));
  }
  if (first.number != 0) {
    return Status::invalid(fmt::format("{}: is part {} of {} of a split model; open the first part, {}", file,
                                       first.number + 1, first.count, name->part(1).string()));
  }
  for (std::uint64_t i = 1; i < first.count; ++i) {
    const std::filesystem::path path = name->part(i + 1);
    Result<std::unique_ptr<Part>> part = open_part(path, static_cast<std::uint32_t>(i));
    if (!part.ok() && part.status().code() == Code::not_found) {
      return Status::not_found(
          fmt::format("{}: part {} of {} of the split model is missing ({}); put all parts into "
                      "one folder",
                      path.string(), i + 1, first.count, part.status().message()));
    }
    if (!part.ok()) return part.status();
    const Result<SplitKeys> keys = split_keys((*part)->header, path.string());
    if (!keys.ok()) return keys.status();
    if (keys->number != i || keys->count != first.count) {
      return Status::corrupt(
          fmt::format("{}: expected split.no {} and split.count {}, found {} and {}; is it a part "
                      "of another model?",
                      path.string(), i, first.count, keys->number, keys->count));
    }
    paths.push_back(path);
    parts.push_back(std::move(part).value());
  }
  return {};
}

}  // namespace

// ---- Opening

File::File() : impl_(std::make_unique<Impl>()) {}
File::~File() = default;

Status File::Impl::join() {
  std::vector<std::string_view> names;
  for (auto& part : parts) {
    for (Tensor& tensor : part->header.tensors) {
      names.push_back(tensor.name);
      tensor_bytes += tensor.bytes;  // Every extent lies in its file, and they don't overlap: no overflow.
      tensors.push_back(std::move(tensor));
    }
    part->header.tensors = {};
  }
  if (const auto twice = sort_names(by_name, names)) {
    const Tensor& again = tensors[twice->second];
    return Status::corrupt(
        fmt::format("{}: tensor {} occurs twice, as tensors {} and {}; the file is damaged, fetch "
                    "it again",
                    paths[again.part].string(), quoted(again.name), twice->first + 1, twice->second + 1));
  }
  return {};
}

Result<std::unique_ptr<File>> File::open(const std::filesystem::path& path, const OpenOptions& options) {
  std::unique_ptr<File> file(new File());
  Impl& impl = *file->impl_;
  try {
    Result<std::unique_ptr<Part>> first = open_part(path, 0);
    if (!first.ok()) return first.status();
    impl.paths.push_back(path);
    impl.parts.push_back(std::move(first).value());
    const Result<SplitKeys> split = split_keys(impl.first(), impl.name());
    if (!split.ok()) return split.status();
    if (split->count > 1) LODE_RETURN_IF_ERROR(open_other_parts(*split, impl.paths, impl.parts));
    LODE_RETURN_IF_ERROR(impl.join());
    if (split->count > 1 && split->tensors && *split->tensors != impl.tensors.size()) {
      return Status::corrupt(fmt::format("{}: split.tensors.count is {}, the {} parts hold {}; fetch all parts again",
                                         impl.name(), *split->tensors, split->count, impl.tensors.size()));
    }
    if (!options.metadata_only) LODE_RETURN_IF_ERROR(file->load_tensors(options.mode));
  } catch (const std::bad_alloc&) {
    return Status::exhausted(fmt::format("{}: not enough memory to read the file's header", path.string()));
  }
  return file;
}

Result<std::unique_ptr<File>> File::open_bytes(std::span<const std::byte> bytes, std::string_view name) {
  std::unique_ptr<File> file(new File());
  Impl& impl = *file->impl_;
  try {
    auto part = std::make_unique<Part>();
    part->memory = bytes;
    part->header_bytes = HeaderBytes::of_memory(bytes);
    Result<Header> header = parse_header(part->header_bytes, name, 0);
    if (!header.ok()) return header.status();
    part->header = std::move(header).value();
    impl.paths.emplace_back(name);
    impl.parts.push_back(std::move(part));
    LODE_RETURN_IF_ERROR(impl.join());
  } catch (const std::bad_alloc&) {
    return Status::exhausted(fmt::format("{}: not enough memory to read the header", name));
  }
  for (Tensor& tensor : impl.tensors) tensor.data = bytes.data() + tensor.offset;
  impl.loaded = LoadMode::mmap;
  return file;
}

// ---- Loading

Status File::Impl::load_part(Part& part, LoadMode mode, LoadMode& used) {
  const Header& header = part.header;
  if (header.data_end <= header.data_start) return {};  // No tensors in this part.
  platform::SourceFile& source = *part.source;
  const Result<std::uint64_t> now = source.size_now();
  if (!now.ok()) return now.status();
  if (*now < header.data_end) {
    return Status::io(fmt::format("{}: has {} bytes, had {} when it was opened; was it cut or replaced meanwhile?",
                                  source.path().string(), *now, source.size()));
  }
  if (mode == LoadMode::mmap) {
    Result<platform::MappedFile> mapped = platform::MappedFile::map(source);
    if (!mapped.ok()) return mapped.status();
    part.mapped = std::move(mapped).value();
    return {};
  }
  // Both read modes keep the file's offsets modulo 4096, so that tensors are as aligned in memory as they are on disk.
  const std::uint64_t from = header.data_start / platform::kDirectAlign * platform::kDirectAlign;
  const std::uint64_t bytes = align_up(header.data_end - from, platform::kDirectAlign);
  Result<platform::AlignedBuffer> buffer = platform::AlignedBuffer::allocate(bytes);
  if (!buffer.ok()) {
    return Status::exhausted(fmt::format("{}: {}; --load-mode mmap needs no memory of its own", source.path().string(),
                                         buffer.status().message()));
  }
  part.buffer = std::move(buffer).value();
  if (mode == LoadMode::direct) {
    Status status = source.read_direct(from, {part.buffer.data(), bytes});
    if (status.ok() || status.code() != Code::unavailable) return status;
    used = LoadMode::read;
  }
  return source.read_at(from, {part.buffer.data(), header.data_end - from});
}

Status File::load_tensors(LoadMode mode) {
  Impl& impl = *impl_;
  LODE_CHECK(!impl.loaded);
  LoadMode used = mode;
  for (auto& part : impl.parts) {
    Status status = impl.load_part(*part, mode, used);
    if (status.ok()) continue;
    for (auto& undo : impl.parts) {
      undo->mapped = {};
      undo->buffer = {};
    }
    return status;
  }
  for (Tensor& tensor : impl.tensors) {
    const Part& part = *impl.parts[tensor.part];
    const std::uint64_t from = part.header.data_start / platform::kDirectAlign * platform::kDirectAlign;
    tensor.data = mode == LoadMode::mmap ? part.mapped.bytes().data() + tensor.offset
                                         : part.buffer.data() + (tensor.offset - from);
  }
  impl.loaded = used;
  return {};
}

void File::release_pages(const Tensor& tensor, std::uint64_t offset, std::uint64_t bytes) const {
  LODE_CHECK(offset + bytes <= tensor.bytes);
  const Part& part = *impl_->parts[tensor.part];
  if (impl_->loaded == LoadMode::mmap && !part.mapped.bytes().empty())
    part.mapped.release_pages(tensor.offset + offset, bytes);
}

std::optional<LoadMode> File::loaded_as() const {
  return impl_->loaded;
}

// ---- Look-ups

std::uint32_t File::version() const {
  return impl_->first().version;
}
const std::filesystem::path& File::path() const {
  return impl_->paths.front();
}
std::span<const std::filesystem::path> File::parts() const {
  return impl_->paths;
}
std::span<const std::pair<std::string_view, Value>> File::metadata() const {
  return impl_->first().metadata;
}
const Value* File::find(std::string_view key) const {
  return find_in(impl_->first(), key);
}
std::span<const Tensor> File::tensors() const {
  return impl_->tensors;
}
std::uint64_t File::tensor_bytes() const {
  return impl_->tensor_bytes;
}

std::uint64_t File::bytes_on_disk() const {
  std::uint64_t sum = 0;
  for (const auto& part : impl_->parts) sum += part->header_bytes.file_size();
  return sum;
}

const Tensor* File::tensor(std::string_view name) const {
  const auto& order = impl_->by_name;
  const auto it = std::lower_bound(order.begin(), order.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return impl_->tensors[i].name < n; });
  if (it == order.end() || impl_->tensors[*it].name != name) return nullptr;
  return &impl_->tensors[*it];
}

Status File::require_computable(const Tensor& tensor) const {
  const quant::TypeInfo& type = quant::info(tensor.type);
  if (type.computable) return {};
  return Status::unsupported(
      fmt::format("{}: tensor {} has type number {} ({}), which this build cannot compute with; "
                  "supported types: {}; use another quantization of the model",
                  impl_->paths[tensor.part].string(), quoted(tensor.name), static_cast<std::uint32_t>(type.type),
                  type.name, quant::computable_names()));
}

Result<std::optional<std::uint64_t>> File::get_uint(std::string_view key) const {
  return uint_in(impl_->first(), impl_->name(), key);
}

Result<std::optional<double>> File::get_float(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* d = std::get_if<double>(&value->v)) return std::optional(*d);
  if (const auto* u = std::get_if<std::uint64_t>(&value->v)) return std::optional(static_cast<double>(*u));
  if (const auto* i = std::get_if<std::int64_t>(&value->v)) return std::optional(static_cast<double>(*i));
  return wrong_type(impl_->name(), key, "a number", *value);
}

Result<std::optional<bool>> File::get_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(&value->v)) return std::optional(*b);
  return wrong_type(impl_->name(), key, "a boolean", *value);
}

Result<std::optional<std::string_view>> File::get_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* s = std::get_if<std::string_view>(&value->v)) return std::optional(*s);
  return wrong_type(impl_->name(), key, "a string", *value);
}

Result<std::optional<std::span<const std::string_view>>> File::get_strings(std::string_view key) const {
  using Strings = std::span<const std::string_view>;
  const Value* value = find(key);
  if (value == nullptr) return std::optional<Strings>();
  if (const auto* array = std::get_if<Array>(&value->v)) {
    if (const auto* items = std::get_if<std::vector<std::string_view>>(&array->items))
      return std::optional<Strings>(*items);
    if (array->size() == 0) return std::optional<Strings>(Strings());  // Writers give empty arrays any type.
  }
  return wrong_type(impl_->name(), key, "an array of strings", *value);
}

Result<std::optional<std::vector<std::int64_t>>> File::get_ints(std::string_view key) const {
  using Ints = std::vector<std::int64_t>;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  const Value* value = find(key);
  if (value == nullptr) return std::optional<Ints>();
  if (const auto* u = std::get_if<std::uint64_t>(&value->v); u != nullptr && *u < kMost) {
    return std::optional(Ints{static_cast<std::int64_t>(*u)});
  }
  if (const auto* i = std::get_if<std::int64_t>(&value->v)) return std::optional(Ints{*i});
  if (const auto* b = std::get_if<bool>(&value->v)) return std::optional(Ints{*b ? 1 : 0});
  if (const auto* array = std::get_if<Array>(&value->v)) {
    if (array->size() == 0) return std::optional(Ints{});
    if (const auto* ints = std::get_if<Ints>(&array->items)) return std::optional(*ints);
    if (const auto* us = std::get_if<std::vector<std::uint64_t>>(&array->items)) {
      if (std::all_of(us->begin(), us->end(), [](std::uint64_t u) { return u < kMost; })) {
        return std::optional(Ints(us->begin(), us->end()));
      }
    }
  }
  return wrong_type(impl_->name(), key, "whole numbers below 2^63", *value);
}

Result<std::optional<std::vector<double>>> File::get_floats(std::string_view key) const {
  using Floats = std::vector<double>;
  const Value* value = find(key);
  if (value == nullptr) return std::optional<Floats>();
  if (const auto* array = std::get_if<Array>(&value->v)) {
    if (array->size() == 0) return std::optional(Floats{});
    if (const auto* ds = std::get_if<Floats>(&array->items)) return std::optional(*ds);
    if (array->element != ValueType::boolean) {
      if (const auto* us = std::get_if<std::vector<std::uint64_t>>(&array->items)) {
        return std::optional(Floats(us->begin(), us->end()));
      }
      if (const auto* is = std::get_if<std::vector<std::int64_t>>(&array->items)) {
        return std::optional(Floats(is->begin(), is->end()));
      }
    }
    return wrong_type(impl_->name(), key, "numbers", *value);
  }
  const Result<std::optional<double>> one = get_float(key);
  if (!one.ok()) return one.status();
  return std::optional(Floats{**one});
}

// ---- Identity

namespace {

constexpr std::uint64_t kSampleBytes = 64 * kKiB;

// SHA-256, running. OpenSSL's calls fail only when it is broken or out of memory.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    LODE_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
  }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(const void* bytes, std::size_t n) { LODE_CHECK(EVP_DigestUpdate(context_, bytes, n) == 1); }
  std::array<std::uint8_t, 32> finish() {
    std::array<std::uint8_t, 32> out{};
    unsigned int n = 0;
    LODE_CHECK(EVP_DigestFinal_ex(context_, out.data(), &n) == 1 && n == out.size());
    return out;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace

Result<std::array<std::uint8_t, 32>> File::fingerprint() const {
  Sha256 sha;
  for (const auto& part : impl_->parts) sha.add(part->header_bytes.data(), part->header.header_end);
  std::vector<std::byte> sample(kSampleBytes);
  for (const Tensor& tensor : impl_->tensors) {
    const Part& part = *impl_->parts[tensor.part];
    // Whole where the samples would touch. The header, hashed before, fixes every size, so no lengths are needed here.
    const std::uint64_t last = tensor.bytes > kSampleBytes ? tensor.bytes - kSampleBytes : 0;
    std::vector<std::uint64_t> starts;
    if (tensor.bytes > 3 * kSampleBytes) {
      starts = {0, last / 2, last};
    } else {
      for (std::uint64_t at = 0; at < tensor.bytes; at += kSampleBytes) starts.push_back(at);
    }
    for (const std::uint64_t at : starts) {
      const std::uint64_t n = std::min(kSampleBytes, tensor.bytes - at);
      if (!part.source) {
        sha.add(part.memory.data() + tensor.offset + at, n);
        continue;
      }
      // Always from the file: a pread cannot raise SIGBUS, and loaded or not, the answer is the same.
      LODE_RETURN_IF_ERROR(part.source->read_at(tensor.offset + at, {sample.data(), n}));
      sha.add(sample.data(), n);
    }
  }
  return sha.finish();
}

Result<std::array<std::uint8_t, 32>> File::content_hash() const {
  Sha256 sha;
  std::vector<std::byte> piece(kMiB);
  for (const auto& part : impl_->parts) {
    const std::uint64_t size = part->source ? part->source->size() : part->memory.size();
    sha.add(&size, sizeof size);
    if (!part->source) sha.add(part->memory.data(), size);
    for (std::uint64_t at = 0; part->source && at < size; at += piece.size()) {
      const std::uint64_t n = std::min<std::uint64_t>(piece.size(), size - at);
      LODE_RETURN_IF_ERROR(part->source->read_at(at, {piece.data(), n}));
      sha.add(piece.data(), n);
    }
  }
  return sha.finish();
}

Result<std::vector<platform::FileStamp>> File::stamps() const {
  std::vector<platform::FileStamp> all;
  for (const auto& part : impl_->parts) {
    if (!part->source) continue;
    auto stamp = part->source->stamp();
    if (!stamp.ok()) return stamp.status();
    all.push_back(stamp.value());
  }
  return all;
}

// ---- Small things

std::size_t Array::size() const {
  return std::visit([](const auto& v) { return v.size(); }, items);
}

std::string_view type_name(ValueType type) {
  constexpr std::string_view kNames[] = {"u8",      "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "boolean", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += "'";
  if (text.size() > kMost) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

}  // namespace lode::gguf
