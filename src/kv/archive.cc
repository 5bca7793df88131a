// Extents as one file, for moving them between machines: see inventory.h. Magic and version, then an entry each: the
// model's 32 bytes, length and text of the name, length of the extent, checksum of these (XXH3-64), the extent's own
// bytes; an entry with an empty name and the count of entries as its length is the end.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kv/bytes_io.h"
#include "kv/inventory.h"
#include "kv/extent_file.h"

namespace lode::kv {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'K', 'V', 'A', '1'};
constexpr std::size_t kNameMax = 128;
constexpr std::size_t kHeadBytes = 32 + 4 + kNameMax + 8 + 8;
constexpr std::size_t kPiece = 1u << 20;

struct Entry {
  std::array<std::uint8_t, 32> model{};
  std::string name;  // Empty: the end.
  std::uint64_t bytes = 0;
};

std::vector<std::byte> encode(const Entry& entry) {
  ByteWriter w;
  std::array<char, kNameMax> name{};
  std::memcpy(name.data(), entry.name.data(), entry.name.size());
  w.put(entry.model);
  w.put(static_cast<std::uint32_t>(entry.name.size()));
  w.put(name);
  w.put(entry.bytes);
  w.put(checksum(w.bytes()));
  return w.take();
}

Result<Entry> decode(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  Entry entry;
  entry.model = r.get<std::array<std::uint8_t, 32>>();
  const auto length = r.get<std::uint32_t>();
  const auto name = r.get<std::array<char, kNameMax>>();
  entry.bytes = r.get<std::uint64_t>();
  if (r.get<std::uint64_t>() != checksum(bytes.first(kHeadBytes - 8)) || r.failed() || length > kNameMax)
    return Status::corrupt("an entry's head is damaged");
  entry.name.assign(name.data(), length);
  return entry;
}

Status copy(platform::File& from, std::uint64_t from_at, platform::File& to, std::uint64_t to_at, std::uint64_t bytes) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(bytes, kPiece));
  for (std::uint64_t done = 0; done < bytes;) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(kPiece, bytes - done));
    LODE_RETURN_IF_ERROR(platform::read_fully(from, part, from_at + done));
    const std::span<const std::byte> out = part;
    LODE_RETURN_IF_ERROR(platform::write_fully(to, {&out, 1}, to_at + done));
    done += part.size();
  }
  return {};
}

Status append(platform::File& file, std::uint64_t& at, std::span<const std::byte> bytes) {
  LODE_RETURN_IF_ERROR(platform::write_fully(file, {&bytes, 1}, at));
  at += bytes.size();
  return {};
}

std::array<std::uint8_t, 32> bytes_of(const std::string& model) {
  std::array<std::uint8_t, 32> bytes{};
  for (std::size_t i = 0; i < 32; ++i)
    bytes[i] = static_cast<std::uint8_t>(std::stoi(model.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

Status write_archive(platform::FileSystem& fs, const std::filesystem::path& folder,
                     const std::vector<StoredExtent>& extents, platform::File& out) {
  std::uint64_t at = 0;
  LODE_RETURN_IF_ERROR(append(out, at, std::as_bytes(std::span(kMagic))));
  for (const auto& extent : extents) {
    const auto model = bytes_of(extent.model);
    const auto path = folder / extent.path();
    std::uint64_t read = 0;
    if (const Status sound = verify_extent(fs, path, extent.meta.name, model, read); !sound.ok())
      return Status(sound.code(),
                    fmt::format("{}: {}; `lode cache verify` finds all such files", path.string(), sound.message()));
    auto file = fs.open(path, {});
    if (!file.ok()) return file.status();
    LODE_RETURN_IF_ERROR(append(out, at, encode({model, extent.meta.name.file_name(), read})));
    LODE_RETURN_IF_ERROR(copy(**file, 0, out, at, read));
    at += read;
  }
  LODE_RETURN_IF_ERROR(append(out, at, encode({{}, {}, extents.size()})));
  return out.fdatasync();
}

// Reads an archive into temporary files of the folder; they go again unless all get their names.
class Import {
 public:
  Import(platform::FileSystem& fs, const std::filesystem::path& folder, const std::string& model)
      : fs_(fs), folder_(folder), model_(model) {}
  ~Import() {
    for (const auto& file : files_) static_cast<void>(fs_.unlink(temporary(file)).ok());
  }

  Status read(platform::File& in);
  Status publish();
  Imported done;

 private:
  struct Pending {
    std::filesystem::path path;
  };
  static std::filesystem::path temporary(const Pending& file) { return file.path.string() + ".tmp"; }
  Status take(platform::File& in, std::uint64_t at, const Entry& entry);

  platform::FileSystem& fs_;
  const std::filesystem::path folder_;
  const std::string model_;
  std::vector<Pending> files_;
};

Status Import::read(platform::File& in) {
  std::array<char, 8> magic{};
  const Status first = platform::read_fully(in, std::as_writable_bytes(std::span(magic)), 0);
  if (!first.ok() || magic != kMagic) return Status::corrupt("it is no export of `lode cache`, or of another format");
  std::vector<std::byte> head(kHeadBytes);
  for (std::uint64_t at = magic.size(), entries = 0;; ++entries) {
    if (!platform::read_fully(in, head, at).ok()) return Status::corrupt("it ends before its end: it was cut off");
    const auto entry = decode(head);
    if (!entry.ok()) return entry.status();
    at += kHeadBytes;
    if (entry->name.empty()) {
      if (entry->bytes != entries) return Status::corrupt("entries are missing");
      return {};
    }
    LODE_RETURN_IF_ERROR(take(in, at, *entry));
    at += entry->bytes;
  }
}

Status Import::take(platform::File& in, std::uint64_t at, const Entry& entry) {
  const auto name = ExtentName::parse(entry.name);
  if (!name) return Status::corrupt("an entry's name is no extent's");
  const std::string model = hex(BlockKey{entry.model});
  if (!model_.empty() && model != model_)
    return Status::invalid(
        fmt::format("it holds KV of another model ({}...), expected {}...", model.substr(0, 16), model_.substr(0, 16)));
  const auto size = in.size();
  if (!size.ok()) return size.status();
  if (entry.bytes > *size - std::min(*size, at)) return Status::corrupt("it ends before its end: it was cut off");
  const Pending file{folder_ / model / entry.name};
  if (fs_.open(file.path, {}).ok()) {
    ++done.present;
    return {};
  }
  LODE_RETURN_IF_ERROR(fs_.make_dirs(folder_ / model));
  auto out = fs_.open(temporary(file), {.access = platform::OpenOptions::Access::update});
  if (!out.ok()) return out.status();
  files_.push_back(file);
  LODE_RETURN_IF_ERROR((*out)->truncate(0));
  LODE_RETURN_IF_ERROR(copy(in, at, **out, 0, entry.bytes));
  LODE_RETURN_IF_ERROR((*out)->fdatasync());
  std::uint64_t read = 0;
  if (const Status sound = verify_extent(fs_, temporary(file), *name, entry.model, read); !sound.ok())
    return Status(sound.code(), fmt::format("{}: {}", entry.name, sound.message()));
  ++done.extents;
  done.bytes += entry.bytes;
  return {};
}

Status Import::publish() {
  std::vector<std::filesystem::path> named;
  for (const auto& file : files_) {
    const Status renamed = fs_.rename(temporary(file), file.path);
    if (!renamed.ok()) {
      for (const auto& path : named) static_cast<void>(fs_.unlink(path).ok());
      return renamed;
    }
    named.push_back(file.path);
  }
  files_.clear();
  return {};
}

}  // namespace

Status export_extents(platform::FileSystem& fs, const std::filesystem::path& folder,
                      const std::vector<StoredExtent>& extents, const std::filesystem::path& path) {
  auto out = fs.open(path, {.access = platform::OpenOptions::Access::create});
  if (!out.ok()) return out.status();
  const Status written = write_archive(fs, folder, extents, **out);
  if (!written.ok()) static_cast<void>(fs.unlink(path).ok());
  return written;
}

Result<Imported> import_extents(platform::FileSystem& fs, const std::filesystem::path& folder,
                                const std::filesystem::path& path, const std::string& model) {
  auto in = fs.open(path, {});
  if (!in.ok()) return in.status();
  Import import(fs, folder, model);
  Status status = import.read(**in);
  if (status.ok()) status = import.publish();
  if (!status.ok())
    return Status(status.code(), fmt::format("{}: {}; nothing was imported", path.string(), status.message()));
  return import.done;
}

}  // namespace lode::kv
