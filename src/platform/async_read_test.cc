#include "platform/async_read.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>

#include "platform/fake_file_system.h"

namespace lode::platform {
namespace {

namespace stdfs = std::filesystem;

struct AlignedFree {
  void operator()(std::byte* p) const { std::free(p); }
};
std::unique_ptr<std::byte, AlignedFree> aligned(std::size_t bytes) {
  return std::unique_ptr<std::byte, AlignedFree>(static_cast<std::byte*>(std::aligned_alloc(kFileAlign, bytes)));
}

struct CountingSink final : ReadSink {
  void read_done(ReadOp& op, Status status) override {
    const std::lock_guard lock(mutex);
    if (!status.ok()) failed.push_back(op.tag), last = status;
    ++done;
    changed.notify_all();
  }
  void wait(std::size_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done == n; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0;
  std::vector<std::uint64_t> failed;
  Status last;
};

class AsyncReads : public ::testing::TestWithParam<AsyncReadOptions::Mode> {
 protected:
  void SetUp() override {
    std::string name = (stdfs::temp_directory_path() / "lode-read-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { stdfs::remove_all(dir_); }
  stdfs::path dir_;
};

TEST_P(AsyncReads, ManyScatteredReadsArriveWhole) {
  constexpr std::size_t kPages = 256;
  std::vector<std::byte> written(kPages * kFileAlign);
  std::mt19937_64 random(1);
  for (auto& b : written) b = static_cast<std::byte>(random());
  auto& fs = real_file_system();
  {
    auto file = fs.open(dir_ / "f", {.access = OpenOptions::Access::create});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->pwrite(written, 0).ok());
  }
  for (const auto cache : {OpenOptions::Cache::bypass, OpenOptions::Cache::use}) {
    auto file = fs.open(dir_ / "f", {.cache = cache});
    if (!file.ok()) continue;  // No O_DIRECT here.
    auto buffer = aligned(written.size());
    std::memset(buffer.get(), 0, written.size());
    auto reader = AsyncReader::create({.mode = GetParam(), .depth = 8, .threads = 3});
    CountingSink sink;
    std::vector<ReadOp> ops(kPages / 4);
    std::vector<ReadOp*> pointers;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      // Pages in reverse order, four to a read, each page to the mirrored place: the parts are scattered.
      ops[i] = {.file = file->get(), .offset = i * 4 * kFileAlign, .parts = {}, .sink = &sink, .tag = i};
      for (std::size_t p = 0; p < 4; ++p) {
        ops[i].parts.emplace_back(buffer.get() + (kPages - 1 - (i * 4 + p)) * kFileAlign, kFileAlign);
      }
      pointers.push_back(&ops[i]);
    }
    reader->submit(std::span(pointers).first(10));
    reader->submit(std::span(pointers).subspan(10));
    sink.wait(ops.size());
    EXPECT_TRUE(sink.failed.empty()) << sink.last.message();
    for (std::size_t p = 0; p < kPages; ++p) {
      ASSERT_EQ(0,
                std::memcmp(buffer.get() + (kPages - 1 - p) * kFileAlign, written.data() + p * kFileAlign, kFileAlign))
          << p;
    }
  }
}

TEST_P(AsyncReads, AReadPastTheEndFailsAndTheOthersDoNot) {
  FakeFileSystem fake;
  ASSERT_TRUE(fake.make_dirs("/d").ok());
  fake.set_contents("/d/f", std::vector<std::byte>(2 * kFileAlign));
  for (FileSystem* fs : {static_cast<FileSystem*>(&fake), &real_file_system()}) {
    const stdfs::path path = fs == &fake ? stdfs::path("/d/f") : dir_ / "g";
    if (fs != &fake) {
      auto file = fs->open(path, {.access = OpenOptions::Access::create});
      ASSERT_TRUE((*file)->truncate(2 * kFileAlign).ok());
    }
    auto file = fs->open(path, {});
    ASSERT_TRUE(file.ok());
    auto buffer = aligned(4 * kFileAlign);
    auto reader = AsyncReader::create({.mode = GetParam()});
    CountingSink sink;
    ReadOp good{.file = file->get(), .offset = 0, .parts = {{buffer.get(), kFileAlign}}, .sink = &sink, .tag = 0};
    ReadOp cut{.file = file->get(),
               .offset = kFileAlign,
               .parts = {{buffer.get() + kFileAlign, 2 * kFileAlign}},
               .sink = &sink,
               .tag = 1};
    ReadOp beyond{.file = file->get(),
                  .offset = 8 * kFileAlign,
                  .parts = {{buffer.get() + 3 * kFileAlign, kFileAlign}},
                  .sink = &sink,
                  .tag = 2};
    ReadOp* ops[] = {&cut, &good, &beyond};
    reader->submit(ops);
    sink.wait(3);
    std::sort(sink.failed.begin(), sink.failed.end());
    EXPECT_EQ(sink.failed, (std::vector<std::uint64_t>{1, 2}));
  }
}

TEST_P(AsyncReads, AnIdleReaderEnds) {
  AsyncReader::create({.mode = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Modes, AsyncReads,
                         ::testing::Values(AsyncReadOptions::Mode::automatic, AsyncReadOptions::Mode::threads),
                         [](const auto& info) {
                           return info.param == AsyncReadOptions::Mode::automatic ? "Uring" : "Threads";
                         });

}  // namespace
}  // namespace lode::platform
