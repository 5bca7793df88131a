// Tests of mapping.h on real files.
#include "platform/mapping.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/bytes.h"

namespace lode::platform {
namespace {

namespace fs = std::filesystem;

class MappingTest : public ::testing::Test {
 protected:
  // The working folder: the temporary one may lie in memory, where O_DIRECT is refused.
  MappingTest() {
    std::string name = (fs::current_path() / "lode-mapping-XXXXXX").string();
    const char* made = mkdtemp(name.data());
    if (made == nullptr) made = mkdtemp((name = (fs::temp_directory_path() / "lode-mapping-XXXXXX").string()).data());
    dir_ = made;
    for (std::size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * 2654435761u >> 11);
    std::ofstream(path(), std::ios::binary) << content_;
  }
  ~MappingTest() override { fs::remove_all(dir_); }
  fs::path path() const { return dir_ / "file"; }
  fs::path dir_;
  std::string content_ = std::string(300001, '\0');
};

TEST_F(MappingTest, MapsAWholeFile) {
  const auto file = SourceFile::open(path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), content_.size());
  auto mapped = MappedFile::map(*file);
  ASSERT_TRUE(mapped.ok());
  const MappedFile moved = std::move(mapped).value();
  ASSERT_EQ(moved.bytes().size(), content_.size());
  EXPECT_EQ(std::memcmp(moved.bytes().data(), content_.data(), content_.size()), 0);
  std::ofstream(dir_ / "empty");
  const auto empty = SourceFile::open(dir_ / "empty");
  EXPECT_TRUE(MappedFile::map(*empty)->bytes().empty());
}

TEST_F(MappingTest, PositionalReads) {
  const auto file = SourceFile::open(path());
  std::vector<std::byte> got(1000);
  ASSERT_TRUE(file->read_at(12345, got).ok());
  EXPECT_EQ(std::memcmp(got.data(), content_.data() + 12345, 1000), 0);
  const Status past = file->read_at(content_.size() - 999, got);
  EXPECT_EQ(past.code(), Code::io_error);
  EXPECT_NE(past.message().find("ends at byte 300001"), std::string::npos) << past.message();
}

TEST_F(MappingTest, DirectReadsAgreeOrAreRefused) {
  const auto file = SourceFile::open(path());
  auto buffer = AlignedBuffer::allocate(align_up(content_.size(), kDirectAlign));
  ASSERT_TRUE(buffer.ok());
  const Status status = file->read_direct(8192, {buffer->data(), align_up(content_.size() - 8192, kDirectAlign)});
  if (status.code() == Code::unavailable) GTEST_SKIP() << "O_DIRECT is refused here: " << status.message();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(std::memcmp(buffer->data(), content_.data() + 8192, content_.size() - 8192), 0);
}

TEST_F(MappingTest, OnlyRegularFilesOpen) {
  EXPECT_EQ(SourceFile::open(dir_ / "none").status().code(), Code::not_found);
  EXPECT_NE(SourceFile::open(dir_).status().message().find("is a folder"), std::string::npos);
  ASSERT_EQ(mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(SourceFile::open(dir_ / "pipe").status().message().find("regular file"), std::string::npos);
}

TEST_F(MappingTest, SizeNowSeesACut) {
  const auto file = SourceFile::open(path());
  fs::resize_file(path(), 100);
  EXPECT_EQ(file->size(), content_.size());
  EXPECT_EQ(*file->size_now(), 100u);
}

TEST(AlignedBufferTest, CommitsInPlaceAndTrims) {
  auto made = AlignedBuffer::reserve(10 * kMiB);
  ASSERT_TRUE(made.ok());
  AlignedBuffer buffer = std::move(made).value();
  std::byte* const base = buffer.data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % 4096, 0u);
  EXPECT_EQ(buffer.committed(), 0u);
  ASSERT_TRUE(buffer.commit(5000).ok());
  EXPECT_EQ(buffer.committed(), 8192u);
  std::memset(base, 0x5a, 8192);
  ASSERT_TRUE(buffer.commit(1 * kMiB).ok());
  EXPECT_EQ(buffer.data(), base);
  EXPECT_EQ(base[8191], std::byte{0x5a});
  EXPECT_EQ(base[8192], std::byte{0});
  buffer.trim(100);
  EXPECT_EQ(buffer.capacity(), 4096u);
  EXPECT_EQ(base[99], std::byte{0x5a});
  buffer.trim(0);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(AlignedBufferTest, ImpossibleSizesAreErrors) {
  EXPECT_EQ(AlignedBuffer::reserve(~0ull).status().code(), Code::resource_exhausted);
  EXPECT_EQ(AlignedBuffer::allocate(1ull << 60).status().code(), Code::resource_exhausted);
  EXPECT_TRUE(AlignedBuffer::allocate(0).ok());
}

}  // namespace
}  // namespace lode::platform
