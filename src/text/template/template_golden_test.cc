// Small templates against what jinja2 3.1.6 makes of them: testdata/templates.golden, by make_template_golden.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/template/template.h"

namespace lode::text {
namespace {

using Json = nlohmann::ordered_json;

TEST(TemplateGolden, RendersWhatJinja2Renders) {
  std::ifstream file(std::string(LODE_SOURCE_DIR) + "/src/text/testdata/templates.golden");
  ASSERT_TRUE(file);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Json variables = Json::parse(line);
  int cases = 0;
  while (std::getline(file, line)) {
    const Json c = Json::parse(line);
    const auto source = c["t"].get<std::string>();
    const auto parsed = Template::parse(source);
    const auto rendered = parsed.ok() ? (*parsed)->render(variables, {.now = DateTime{2026, 1, 2, 15, 4, 5}})
                                      : Result<std::string>(parsed.status());
    ++cases;
    if (c.contains("e")) {
      EXPECT_FALSE(rendered.ok()) << source << "\n  gave " << *rendered << "\n  expected " << c["e"];
      if (!rendered.ok()) {
        EXPECT_TRUE(rendered.status().message().starts_with("line ")) << rendered.status().message();
      }
    } else if (!rendered.ok()) {
      ADD_FAILURE() << source << "\n  gave " << rendered.status().message() << "\n  expected " << c["o"];
    } else {
      EXPECT_EQ(*rendered, c["o"].get<std::string>()) << source;
    }
  }
  EXPECT_GT(cases, 1000);
}

}  // namespace
}  // namespace lode::text
