// The description of the interface says what there is: every route, every field that is read, and nothing that is not.
#include "serve/openapi.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "serve/routes.h"
#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

class OpenApiTest : public ServeTest {};

// Every name under any "properties" of the document, and of every parameter.
void collect(const Json& value, std::set<std::string>& names) {
  if (value.is_array())
    for (const Json& one : value) collect(one, names);
  if (!value.is_object()) return;
  if (value.contains("in") && value.contains("name")) names.insert(value["name"].get<std::string>());
  for (const auto& [key, inner] : value.items()) {
    if (key == "properties")
      for (const auto& property : inner.items()) names.insert(property.key());
    collect(inner, names);
  }
}

// Every "$ref" of the document.
void collect_references(const Json& value, std::set<std::string>& out) {
  if (value.is_array())
    for (const Json& one : value) collect_references(one, out);
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) {
    if (key == "$ref" && inner.is_string()) out.insert(inner.get<std::string>());
    collect_references(inner, out);
  }
}

TEST_F(OpenApiTest, EveryRouteIsDescribedAndNothingElse) {
  start_without_engine();
  const Reply reply = get("/openapi.json");
  EXPECT_EQ(reply.status, 200);
  const Json document = reply.json();
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::size_t described = 0;
  for (const auto& path : document["paths"].items()) described += path.value().size();
  EXPECT_EQ(described, route_names().size());
  for (const RouteName& route : route_names()) {
    bool found = false;
    for (const auto& [path, operations] : document["paths"].items()) {
      const bool same =
          route.path.ends_with('/') ? path.starts_with(std::string(route.path) + "{") : path == route.path;
      found |= same && operations.contains(route.method == "GET" ? "get" : "post");
    }
    EXPECT_TRUE(found) << route.method << " " << route.path << " is missing in openapi.json";
  }
}

TEST_F(OpenApiTest, EveryReferenceLeadsSomewhere) {
  const Json document = Json::parse(openapi_source());
  std::set<std::string> references;
  collect_references(document, references);
  EXPECT_GT(references.size(), 20u);
  for (const std::string& reference : references) {
    ASSERT_TRUE(reference.starts_with("#/"));
    EXPECT_TRUE(document.contains(Json::json_pointer(reference.substr(1)))) << reference;
  }
}

// What the sources read out of a body or a query by name is in the document.
TEST_F(OpenApiTest, EveryFieldThatIsReadIsDescribed) {
  std::set<std::string> described;
  collect(Json::parse(openapi_source()), described);
  const std::regex read(R"re((?:fields_?|inner)\.(?:string|number|integer|boolean|find)\("([a-z_]+)")re");
  const std::regex query(R"re(query_(?:field|number)\(request, "([a-z_]+)")re");
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LODE_SOURCE_DIR "/src/serve")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".cc") || name.ends_with("_test.cc")) continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const std::string source = text.str();
    for (const std::regex& pattern : {read, query}) {
      for (std::sregex_iterator it(source.begin(), source.end(), pattern), end; it != end; ++it, ++found)
        EXPECT_TRUE(described.contains((*it)[1].str())) << (*it)[1].str() << " of " << name;
    }
  }
  EXPECT_GT(found, 60u);
}

}  // namespace
}  // namespace lode::serve::test
