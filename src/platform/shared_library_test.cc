#include "platform/shared_library.h"

#include <gtest/gtest.h>

namespace lode::platform {
namespace {

TEST(SharedLibrary, FindsFunctions) {
  auto library = SharedLibrary::open("libc.so.6");
  ASSERT_TRUE(library.ok()) << library.status().message();
  auto* absolute = library->function<int(int)>("abs");
  ASSERT_NE(absolute, nullptr);
  EXPECT_EQ(absolute(-3), 3);
  EXPECT_EQ(library->function<int()>("no_such_function_here"), nullptr);
}

TEST(SharedLibrary, SaysWhatIsMissing) {
  const auto library = SharedLibrary::open("libno-such-library.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::not_found);
  EXPECT_NE(library.status().message().find("libno-such-library.so.1"), std::string::npos);
}

}  // namespace
}  // namespace lode::platform
