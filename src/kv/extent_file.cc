#include "kv/extent_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "kv/disk_scan.h"

namespace lode::kv {
namespace {

// Where the block with these tokens lies in the extent; -1: it does not.
std::int64_t place_of(const ExtentMeta& meta, std::int64_t index, std::span<const TokenId, kBlockTokens> ids) {
  const std::int64_t at = index - meta.first_index;
  if (at < 0 || at >= static_cast<std::int64_t>(meta.ids.size())) return -1;
  return std::equal(ids.begin(), ids.end(), meta.ids[static_cast<std::size_t>(at)].begin()) ? at : -1;
}

Status falsify(platform::FileSystem& fs, const std::filesystem::path& path, ExtentHeader header, std::uint32_t block) {
  auto file = fs.open(path, {.access = platform::OpenOptions::Access::update});
  if (!file.ok()) return file.status();
  const ExtentShape shape(header.slice_bytes, header.meta.name.blocks);
  for (std::size_t slice = 0; slice < header.slice_bytes.size(); ++slice) {
    std::vector<std::byte> bytes(header.slice_bytes[slice]);
    const std::uint64_t at = shape.slice_offset(slice, block);
    LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, at));
    for (std::byte& b : bytes) b ^= std::byte{0x80};
    header.checksums[slice * shape.blocks() + block] = checksum(bytes);
    const std::span<const std::byte> part = bytes;
    LODE_RETURN_IF_ERROR(platform::write_fully(**file, {&part, 1}, at));
  }
  const auto encoded = encode_header(header);
  const std::span<const std::byte> part = encoded;
  LODE_RETURN_IF_ERROR(platform::write_fully(**file, {&part, 1}, 0));
  return (*file)->fdatasync();
}

}  // namespace

Status verify_extent(platform::FileSystem& fs, const std::filesystem::path& path, const ExtentName& name,
                     const std::array<std::uint8_t, 32>& fingerprint, std::uint64_t& bytes_read) {
  auto file = fs.open(path, {});
  if (!file.ok()) return file.status();
  const auto size = (*file)->size();
  if (!size.ok()) return size.status();
  const auto header = read_extent_header(fs, path, *size);
  if (!header.ok()) return header.status();
  if (header->meta.name != name || header->model_fingerprint != fingerprint)
    return Status::corrupt("its header belongs to another extent");
  const ExtentShape shape(header->slice_bytes, name.blocks);
  if (*size != shape.file_bytes())
    return Status::corrupt(fmt::format("{} bytes, expected {}", *size, shape.file_bytes()));
  bytes_read += shape.header_bytes();
  std::vector<std::byte> bytes;
  for (std::size_t slice = 0; slice < header->slice_bytes.size(); ++slice)
    for (std::uint32_t block = 0; block < name.blocks; ++block) {
      bytes.resize(header->slice_bytes[slice]);
      LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, shape.slice_offset(slice, block)));
      bytes_read += bytes.size();
      if (checksum(bytes) != header->checksums[slice * shape.blocks() + block])
        return Status::corrupt(fmt::format("checksum of slice {}, block {} of {} differs", slice, block, name.blocks));
    }
  (*file)->drop_cached();
  return {};
}

Result<std::int64_t> falsify_block(platform::FileSystem& fs, const std::filesystem::path& folder, std::int64_t index,
                                   std::span<const TokenId, kBlockTokens> ids) {
  const auto entries = fs.list(folder);
  if (!entries.ok()) return entries.status();
  std::int64_t changed = 0;
  for (const auto& entry : *entries) {
    if (!ExtentName::parse(entry.name)) continue;
    auto header = read_extent_header(fs, folder / entry.name, entry.size);
    if (!header.ok()) return header.status();
    const std::int64_t at = place_of(header->meta, index, ids);
    if (at < 0) continue;
    LODE_RETURN_IF_ERROR(falsify(fs, folder / entry.name, std::move(*header), static_cast<std::uint32_t>(at)));
    ++changed;
  }
  return changed;
}

}  // namespace lode::kv
