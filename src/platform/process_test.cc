#include "platform/process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace lode::platform {
namespace {

std::optional<int> wait_for_end(Child& child) {
  for (int i = 0; i < 500 && !child.poll(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return child.poll();
}

TEST(Process, MayOpenMoreFilesThanItWasStartedWith) {
  const std::uint64_t files = raise_open_files();
  EXPECT_GE(files, 64u);
  EXPECT_EQ(raise_open_files(), files);
  std::ifstream in("/proc/self/limits");
  std::string line;
  while (std::getline(in, line) && !line.starts_with("Max open files")) {
  }
  EXPECT_NE(line.find(" " + std::to_string(files) + " "), std::string::npos) << line;
}

TEST(Process, ReportsTheExitCodeAndAppendsOutput) {
  const auto output = std::filesystem::path(::testing::TempDir()) / "process_test_output";
  std::filesystem::remove(output);
  for (int i = 0; i < 2; ++i) {
    auto child = Child::start({.arguments = {"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, .output = output});
    ASSERT_TRUE(child.ok()) << child.status().message();
    EXPECT_EQ(wait_for_end(*child), 7);
  }
  std::ifstream file(output);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "out\nerr\nout\nerr\n");
  std::filesystem::remove(output);
}

TEST(Process, NamesAProgramThatCannotBeStarted) {
  auto child = Child::start({.arguments = {"/no/such/program"}, .output = {}});
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.status().code(), Code::not_found);
  EXPECT_NE(child.status().message().find("/no/such/program"), std::string::npos);
  EXPECT_FALSE(Child::start({}).ok());
}

TEST(Process, TerminateAsksFirst) {
  auto child =
      Child::start({.arguments = {"/bin/sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done"}, .output = {}});
  ASSERT_TRUE(child.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // The trap must be set before the signal comes.
  auto code = child->terminate(5000);
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 3);
  EXPECT_EQ(*child->terminate(5000), 3);  // Again: the same answer.
}

TEST(Process, TerminateKillsWhatDoesNotListen) {
  auto child =
      Child::start({.arguments = {"/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"}, .output = {}});
  ASSERT_TRUE(child.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  auto code = child->terminate(200);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), Code::unavailable);
  EXPECT_EQ(child->poll(), 128 + 9);
}

TEST(Process, KnowsResidentMemory) {
  auto child = Child::start({.arguments = {"/bin/sleep", "5"}, .output = {}});
  ASSERT_TRUE(child.ok());
  auto bytes = resident_bytes(child->pid());
  ASSERT_TRUE(bytes.ok());
  EXPECT_GT(*bytes, 4096u);
  EXPECT_LT(*bytes, 1ull << 30);
  ASSERT_TRUE(child->terminate(2000).ok());
  EXPECT_EQ(resident_bytes(child->pid()).status().code(), Code::not_found);
}

TEST(Process, DestructionEndsTheChild) {
  std::int64_t pid = 0;
  {
    auto child = Child::start({.arguments = {"/bin/sleep", "30"}, .output = {}});
    ASSERT_TRUE(child.ok());
    pid = child->pid();
    Child moved = std::move(*child);
    EXPECT_FALSE(moved.poll().has_value());
  }
  EXPECT_FALSE(resident_bytes(pid).ok());
}

TEST(Process, KnowsItself) {
  auto self = self_path();
  ASSERT_TRUE(self.ok());
  EXPECT_EQ(self->filename(), "platform_test");
}

}  // namespace
}  // namespace lode::platform
