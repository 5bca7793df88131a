// Every chat template of the shared data, byte for byte, as jinja2 3.1.6 renders it.
#include "text/template/template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"

namespace lode::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr DateTime kGoldenDay{2026, 1, 2};

std::vector<std::filesystem::path> template_files() {
  std::vector<std::filesystem::path> files;
  const auto folder = test::shared_data() / "templates";
  if (!test::shared_data().empty() && std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) files.emplace_back();  // One case that says it is skipped.
  return files;
}

class GoldenTemplate : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenTemplate, RendersByteForByte) {
  if (GetParam().empty()) GTEST_SKIP() << "no shared data (templates/)";
  std::ifstream file(GetParam());
  const Json golden = Json::parse(file);
  const auto parsed = Template::parse(golden["template"].get<std::string>());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_FALSE(golden["cases"].empty());
  for (const Json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto rendered = (*parsed)->render(c["input"], {.now = kGoldenDay});
    if (c.contains("error")) {
      EXPECT_FALSE(rendered.ok()) << "expected " << c["error"];
      if (!rendered.ok()) {
        EXPECT_TRUE(rendered.status().message().starts_with("line ")) << rendered.status().message();
      }
    } else {
      ASSERT_TRUE(rendered.ok()) << rendered.status().message();
      EXPECT_EQ(*rendered, c["output"].get<std::string>());
    }
  }
}

std::string case_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.empty() ? "none" : info.param.stem().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Shared, GoldenTemplate, testing::ValuesIn(template_files()), case_name);

}  // namespace
}  // namespace lode::text
