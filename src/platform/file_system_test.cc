#include "platform/file_system.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "platform/fake_file_system.h"

namespace lode::platform {
namespace {

namespace stdfs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Both file systems must behave alike.
class FileSystems : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      fs_ = &fake_;
      dir_ = "/kv";
    } else {
      fs_ = &real_file_system();
      std::string name = (stdfs::temp_directory_path() / "lode-fs-XXXXXX").string();
      ASSERT_NE(::mkdtemp(name.data()), nullptr);
      root_ = name;
      dir_ = root_ / "a" / "b";
    }
    ASSERT_TRUE(fs_->make_dirs(dir_).ok());
    ASSERT_TRUE(fs_->make_dirs(dir_).ok());
  }
  void TearDown() override {
    if (!root_.empty()) stdfs::remove_all(root_);
  }
  FakeFileSystem fake_;
  FileSystem* fs_ = nullptr;
  stdfs::path root_, dir_;
};

TEST_P(FileSystems, WritesReadsRenamesLists) {
  const auto path = dir_ / "x.tmp", final_path = dir_ / "x";
  EXPECT_EQ(fs_->open(path, {}).status().code(), Code::not_found);
  {
    auto file = fs_->open(path, {.access = OpenOptions::Access::create});
    ASSERT_TRUE(file.ok()) << file.status().message();
    const std::span<const std::byte> parts[] = {bytes_of("hello "), bytes_of("world")};
    ASSERT_TRUE(write_fully(**file, parts, 3).ok());
    ASSERT_TRUE((*file)->fdatasync().ok());
    EXPECT_EQ(*(*file)->size(), 14u);
    EXPECT_GT(*(*file)->allocated_bytes(), 0u);
    char text[11];
    ASSERT_TRUE(read_fully(**file, std::as_writable_bytes(std::span(text)), 3).ok());
    EXPECT_EQ(std::string_view(text, 11), "hello world");
    const Status cut = read_fully(**file, std::as_writable_bytes(std::span(text)), 4);
    EXPECT_EQ(cut.code(), Code::io_error);
  }
  EXPECT_EQ(fs_->open(path, {.access = OpenOptions::Access::create}).status().code(), Code::io_error);
  ASSERT_TRUE(fs_->rename(path, final_path).ok());
  ASSERT_TRUE(fs_->sync_dir(dir_).ok());
  ASSERT_TRUE(fs_->make_dirs(dir_ / "sub").ok());
  auto entries = fs_->list(dir_);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  const auto& file = (*entries)[(*entries)[0].name == "x" ? 0 : 1];
  EXPECT_EQ(file.name, "x");
  EXPECT_EQ(file.size, 14u);
  EXPECT_EQ((*entries)[(*entries)[0].name == "x" ? 1 : 0].kind, DirEntry::Kind::folder);
  ASSERT_TRUE(fs_->remove_dir(dir_ / "sub").ok());
  EXPECT_FALSE(fs_->remove_dir(dir_).ok());
  ASSERT_TRUE(fs_->unlink(final_path).ok());
  EXPECT_EQ(fs_->unlink(final_path).code(), Code::not_found);
  EXPECT_EQ(fs_->list(dir_ / "nowhere").status().code(), Code::not_found);
}

TEST_P(FileSystems, ALockHasOneHolder) {
  auto first = fs_->lock(dir_ / "lock");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(fs_->lock(dir_ / "lock").status().code(), Code::unavailable);
  first.value().reset();
  EXPECT_TRUE(fs_->lock(dir_ / "lock").ok());
}

TEST_P(FileSystems, ALockWhoseFileIsRemovedHasItsNameNoMore) {
  const stdfs::path path = dir_ / "lock";
  auto first = fs_->lock(path);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)->named());
  ASSERT_TRUE(fs_->unlink(path).ok());
  EXPECT_FALSE((*first)->named());
  auto second = fs_->lock(path);  // Another process, which makes the file again.
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE((*second)->named());
  EXPECT_FALSE((*first)->named());
  first.value().reset();
  EXPECT_TRUE((*second)->named()) << "the old lock took the new one with it";
  EXPECT_EQ(fs_->lock(path).status().code(), Code::unavailable);
}

TEST_P(FileSystems, SpaceAndTruncate) {
  auto space = fs_->space(dir_);
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
  auto file = fs_->open(dir_ / "log", {.access = OpenOptions::Access::update});
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->pwrite(bytes_of("abcdef"), 0).ok());
  ASSERT_TRUE((*file)->truncate(2).ok());
  EXPECT_EQ(*(*file)->size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(All, FileSystems, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fake" : "Real"; });

TEST(RealFileSystem, NewFilesAndFoldersArePrivateAndLinksAreRefused) {
  std::string name = (stdfs::temp_directory_path() / "lode-fs-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const stdfs::path root = name;
  ASSERT_TRUE(real_file_system().make_dirs(root / "kv").ok());
  EXPECT_EQ(stdfs::status(root / "kv").permissions(), stdfs::perms::owner_all);
  ASSERT_TRUE(real_file_system().open(root / "f", {.access = OpenOptions::Access::create}).ok());
  EXPECT_EQ(stdfs::status(root / "f").permissions(), stdfs::perms::owner_read | stdfs::perms::owner_write);
  stdfs::create_symlink(root / "f", root / "link");
  EXPECT_FALSE(real_file_system().open(root / "link", {}).ok());
  EXPECT_FALSE(real_file_system().open(root / "kv", {}).ok());
  stdfs::remove_all(root);
}

TEST(FakeFileSystem, PowerLossTakesWhatWasNotSynced) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.make_dirs("/d").ok());
  const auto put = [&](const char* path, bool sync) {
    auto file = fs.open(path, {.access = OpenOptions::Access::create});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->pwrite(bytes_of("data"), 0).ok());
    if (sync) {
      ASSERT_TRUE((*file)->fdatasync().ok());
    }
  };
  put("/d/synced", true);
  put("/d/bytes-lost", false);
  ASSERT_TRUE(fs.sync_dir("/d").ok());
  put("/d/name-lost", true);
  ASSERT_TRUE(fs.unlink("/d/synced").ok());
  fs.restart(FakeFileSystem::Lose::unsynced, 1);
  EXPECT_EQ(fs.contents("/d/synced")->size(), 4u);
  EXPECT_EQ(fs.contents("/d/bytes-lost")->size(), 0u);
  EXPECT_FALSE(fs.contents("/d/name-lost").has_value());
}

TEST(FakeFileSystem, FailsAndCrashesWhereItIsTold) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.make_dirs("/d").ok());
  fs.reset_ops();
  fs.fail_at(1, ENOSPC);
  auto file = fs.open("/d/f", {.access = OpenOptions::Access::create});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->pwrite(bytes_of("x"), 0).status().code(), Code::resource_exhausted);
  EXPECT_TRUE((*file)->pwrite(bytes_of("x"), 0).ok());
  fs.crash_at(3, 7);
  EXPECT_FALSE((*file)->fdatasync().ok());
  EXPECT_FALSE(fs.list("/d").ok());
  fs.restart(FakeFileSystem::Lose::nothing, 1);
  EXPECT_FALSE((*file)->fdatasync().ok()) << "a handle of before the crash is dead";
  EXPECT_EQ(fs.contents("/d/f")->size(), 1u);
  fs.set_total_bytes(2 * kFileAlign);
  std::vector<std::byte> big(3 * kFileAlign);
  auto other = fs.open("/d/g", {.access = OpenOptions::Access::create});
  EXPECT_EQ((*other)->pwrite(big, 0).status().code(), Code::resource_exhausted);
}

}  // namespace
}  // namespace lode::platform
