// Tests of the file that remembers hashes of model files.
#include "kv/known_models.h"

#include <gtest/gtest.h>

#include "platform/fake_file_system.h"

namespace lode::kv {
namespace {

using platform::FileStamp;

Hash filled(std::uint8_t value) {
  Hash hash;
  hash.fill(value);
  return hash;
}

class KnownModelsTest : public ::testing::Test {
 protected:
  platform::FakeFileSystem fs;
  KnownModels known{fs, "/cache/kv"};
  const FileStamp stamp{.device = 1, .inode = 2, .size = 3, .modified_ns = 4, .changed_ns = 5};
};

TEST_F(KnownModelsTest, RemembersByEverythingTheFileSystemSays) {
  EXPECT_EQ(known.find(std::vector{stamp}), std::nullopt);
  ASSERT_TRUE(known.remember(std::vector{stamp}, filled(7)).ok());
  EXPECT_EQ(known.find(std::vector{stamp}), filled(7));
  for (int field = 0; field < 5; ++field) {
    FileStamp other = stamp;
    if (field == 0) ++other.device;
    if (field == 1) ++other.inode;
    if (field == 2) ++other.size;
    if (field == 3) ++other.modified_ns;
    if (field == 4) ++other.changed_ns;
    EXPECT_EQ(known.find(std::vector{other}), std::nullopt) << field;
    EXPECT_EQ(known.find(std::vector{stamp, other}), std::nullopt) << field;
  }
  EXPECT_EQ(known.find({}), std::nullopt);
  // The same file again replaces its record; another model's name is another.
  ASSERT_TRUE(known.remember(std::vector{stamp}, filled(8)).ok());
  EXPECT_EQ(KnownModels(fs, "/cache/kv").find(std::vector{stamp}), filled(8));
  EXPECT_NE(model_name(filled(1), filled(7)), model_name(filled(1), filled(8)));
  EXPECT_NE(model_name(filled(1), filled(7)), model_name(filled(2), filled(7)));
}

TEST_F(KnownModelsTest, TheOldestOf256Goes) {
  for (std::uint64_t i = 0; i <= KnownModels::kRecordsMax; ++i) {
    FileStamp s = stamp;
    s.inode = i;
    ASSERT_TRUE(known.remember(std::vector{s}, filled(static_cast<std::uint8_t>(i))).ok());
  }
  FileStamp first = stamp, second = stamp;
  first.inode = 0, second.inode = 1;
  EXPECT_EQ(known.find(std::vector{first}), std::nullopt);
  EXPECT_EQ(known.find(std::vector{second}), filled(1));
}

TEST_F(KnownModelsTest, ADamagedFileKnowsNothing) {
  ASSERT_TRUE(known.remember(std::vector{stamp}, filled(7)).ok());
  auto file = fs.open("/cache/kv/known-models", {.access = platform::OpenOptions::Access::update});
  ASSERT_TRUE(file.ok());
  const std::uint64_t size = (*file)->size().value();
  for (std::uint64_t at = 0; at < size; ++at) {
    std::byte was{}, flipped{};
    ASSERT_TRUE((*file)->pread({&was, 1}, at).ok());
    flipped = was ^ std::byte{0x10};
    ASSERT_TRUE((*file)->pwrite({&flipped, 1}, at).ok());
    EXPECT_EQ(known.find(std::vector{stamp}), std::nullopt) << at;
    ASSERT_TRUE((*file)->pwrite({&was, 1}, at).ok());
  }
  EXPECT_EQ(known.find(std::vector{stamp}), filled(7));
  ASSERT_TRUE((*file)->truncate(size - 64).ok());
  EXPECT_EQ(known.find(std::vector{stamp}), std::nullopt);
}

}  // namespace
}  // namespace lode::kv
