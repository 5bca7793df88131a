// How fast the disk tier restores a long prefix, against raw O_DIRECT reads of the same files, taken in turns.
//
//   kv_disk_bench [FOLDER [TOKENS [threads]]]     default: the temporary folder, 16384 tokens, io_uring
//
// The shape is that of Gemma 3 270M with f16 KV: a full-history group of 3 layers (96 KiB a block) for all tokens, and
// a window group of 15 layers (480 KiB a block) for the last 512. Every byte is checksummed by the restore, not by the
// raw reads. The first line is the write path's; the rest are medians of 5 rounds with the spread.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kv/bytes_io.h"
#include "kv/disk_tier.h"
#include "kv/key.h"
#include "platform/async_read.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace {

using namespace lode;
using Seconds = std::chrono::duration<double>;
constexpr GroupId kFull{0}, kWindow{1};

double since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

model::BlockLayout layout_of(std::vector<std::uint32_t> layers) {
  model::BlockLayout layout;
  for (const std::uint32_t layer : layers) {
    model::BlockLayout::Slice slice;
    slice.layer = LayerIndex{layer};
    slice.offset = layout.block_bytes;
    slice.bytes = 32 << 10;  // 32 tokens, one KV head of 256, K and V of 2 bytes.
    layout.block_bytes += slice.bytes;
    layout.slices.push_back(slice);
  }
  return layout;
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "kv_disk_bench: %s\n", why.c_str());
  std::exit(1);
}

struct Prefix {
  std::vector<kv::DiskBlock> blocks;
  std::size_t window_first = 0;  // First block whose window part is stored.
};

Prefix make_prefix(std::size_t tokens) {
  Prefix p;
  std::mt19937 random(1);
  kv::BlockKey parent;
  for (std::size_t i = 0; i < tokens / kv::kBlockTokens; ++i) {
    kv::DiskBlock& b = p.blocks.emplace_back();
    for (auto& id : b.ids) id = static_cast<TokenId>(random() % 200'000);
    b.parent = parent, b.index = static_cast<std::int64_t>(i);
    b.key = parent = kv::child_key(parent, b.ids);
  }
  p.window_first = p.blocks.size() - std::min<std::size_t>(p.blocks.size(), 16);
  return p;
}

void write_all(kv::DiskTier& tier, const kv::DiskConfig& config, const Prefix& p, const std::byte* payload) {
  std::uint64_t bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const GroupId group : {kFull, kWindow}) {
    for (std::size_t i = group == kFull ? 0 : p.window_first; i < p.blocks.size(); i += kv::kExtentBlocks) {
      const auto n = std::min<std::size_t>(kv::kExtentBlocks, p.blocks.size() - i);
      const std::vector<const std::byte*> data(n, payload);
      if (tier.write(group, std::span(p.blocks).subspan(i, n), data, {}) != kv::WriteResult::queued)
        die("a write was dropped");
      bytes += n * static_cast<std::uint64_t>(config.groups[group.v].block_bytes);
      if (!tier.flush(60'000)) die("the disk does not finish");
    }
  }
  std::printf("write, one extent at a time, each durable: %6.0f MB/s\n",
              static_cast<double>(bytes) / 1e6 / since(start));
}

struct Restore {
  double seconds = 0, first_layer_seconds = 0;
  std::uint64_t bytes = 0;
};

Restore restore(kv::DiskTier& tier, const kv::DiskConfig& config, const Prefix& p, std::byte* arena) {
  std::vector<kv::DiskTier::ReadItem> items;
  for (const GroupId group : {kFull, kWindow}) {
    for (std::size_t i = group == kFull ? 0 : p.window_first; i < p.blocks.size(); ++i) {
      items.push_back({p.blocks[i].key, group, arena});
      arena += config.groups[group.v].block_bytes;
    }
  }
  Restore r;
  const auto start = std::chrono::steady_clock::now();
  kv::ReadTicket* ticket = tier.start_read(items);
  ticket->wait_layer(LayerIndex{0});
  r.first_layer_seconds = since(start);
  for (std::uint32_t layer = 1; layer < 18; ++layer) ticket->wait_layer(LayerIndex{layer});
  r.seconds = since(start);
  if (!ticket->failed().empty()) die("a restored block failed");
  tier.release(ticket);
  r.bytes = items.size() == 0 ? 0 : static_cast<std::uint64_t>(arena - items.front().dst);
  return r;
}

struct Sink final : platform::ReadSink {
  void read_done(platform::ReadOp&, Status status) override {
    if (!status.ok()) die(status.message());
    const std::lock_guard lock(mutex);
    if (--left == 0) done.notify_all();
  }
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = 0;
};

// All extents in 1 MiB reads, 64 at once: what the disk gives.
double raw_deep(platform::AsyncReader& reader, const std::vector<std::filesystem::path>& files, std::byte* arena) {
  auto& fs = platform::real_file_system();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<platform::File>> open;
  std::vector<platform::ReadOp> ops;
  Sink sink;
  for (const auto& path : files) {
    auto file = fs.open(path, {.cache = platform::OpenOptions::Cache::bypass});
    if (!file.ok()) die(file.status().message());
    const std::uint64_t size = *(*file)->size();
    for (std::uint64_t at = 0; at < size; at += 1 << 20) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(1 << 20, size - at));
      ops.push_back({.file = file->get(), .offset = at, .parts = {{arena, n}}, .sink = &sink});
      arena += n;
    }
    open.push_back(std::move(*file));
  }
  std::vector<platform::ReadOp*> pointers;
  for (auto& op : ops) pointers.push_back(&op);
  sink.left = ops.size();
  reader.submit(pointers);
  std::unique_lock lock(sink.mutex);
  sink.done.wait(lock, [&] { return sink.left == 0; });
  return since(start);
}

// One thread, one 1 MiB read at a time, as dd does.
double raw_one(const std::vector<std::filesystem::path>& files, std::byte* arena) {
  auto& fs = platform::real_file_system();
  const auto start = std::chrono::steady_clock::now();
  for (const auto& path : files) {
    auto file = fs.open(path, {.cache = platform::OpenOptions::Cache::bypass});
    if (!file.ok()) die(file.status().message());
    for (std::uint64_t at = 0;;) {
      auto got = (*file)->pread({arena, 1 << 20}, at);
      if (!got.ok()) die(got.status().message());
      if (*got == 0) break;
      at += *got;
      if (at % platform::kFileAlign != 0) break;
    }
  }
  return since(start);
}

void print(const char* what, std::uint64_t bytes, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto rate = [&](double s) { return static_cast<double>(bytes) / 1e6 / s; };
  std::printf("%-42s %7.1f ms  %6.0f MB/s  (%.0f-%.0f)\n", what, 1e3 * seconds[seconds.size() / 2],
              rate(seconds[seconds.size() / 2]), rate(seconds.back()), rate(seconds.front()));
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder =
      ((argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path()) / "lode-kv-XXXXXX")
          .string();
  const std::size_t tokens = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 16384;
  if (!::mkdtemp(folder.data())) die("cannot create " + folder);
  kv::DiskConfig config;
  config.dir = folder;
  config.groups = {layout_of({5, 11, 17}), layout_of({0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16})};
  config.quota_bytes = 8ull << 30;
  if (argc > 3) config.read_mode = kv::DiskConfig::ReadMode::pread_threads;
  const Prefix prefix = make_prefix(tokens);
  const std::size_t block_max = 480 << 10;
  const auto payload = kv::aligned_bytes(block_max);
  std::mt19937_64 random(2);
  for (std::size_t i = 0; i < block_max; ++i) payload[i] = static_cast<std::byte>(random());
  const std::size_t arena_bytes = (prefix.blocks.size() * (96 << 10) + 16 * block_max) * 2 + (4 << 20);
  const auto arena = kv::aligned_bytes(arena_bytes);
  {
    auto tier = kv::DiskTier::open(config, platform::real_file_system(), platform::system_clock());
    if (!tier.ok()) die(tier.status().message());
    write_all(**tier, config, prefix, payload.get());
  }
  std::vector<std::filesystem::path> files;
  std::uint64_t file_bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".kvx") files.push_back(entry.path()), file_bytes += entry.file_size();
  }
  auto tier = kv::DiskTier::open(config, platform::real_file_system(), platform::system_clock());
  if (!tier.ok()) die(tier.status().message());
  auto reader = platform::AsyncReader::create({});
  std::vector<double> restores, firsts, deep, one;
  std::uint64_t bytes = 0;
  for (int round = 0; round < 5; ++round) {
    const Restore r = restore(**tier, config, prefix, arena.get());
    bytes = r.bytes;
    restores.push_back(r.seconds), firsts.push_back(r.first_layer_seconds);
    deep.push_back(raw_deep(*reader, files, arena.get()));
    one.push_back(raw_one(files, arena.get()));
  }
  std::printf("%zu tokens, %zu extents, %.1f MB, restored by %s\n", tokens, files.size(),
              static_cast<double>(file_bytes) / 1e6, (*tier)->stats().mode.c_str());
  print("restore, checked", bytes, restores);
  print("raw O_DIRECT, 1 MiB reads, 64 at once", file_bytes, deep);
  print("raw O_DIRECT, 1 MiB reads, one at a time", file_bytes, one);
  std::sort(firsts.begin(), firsts.end());
  std::printf("layer 0 was in place after %.1f ms\n", 1e3 * firsts[firsts.size() / 2]);
  tier->reset();
  std::filesystem::remove_all(folder);
}
