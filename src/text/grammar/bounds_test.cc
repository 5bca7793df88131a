// Hostile grammars end in one line, in bounded time and memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

using Json = nlohmann::ordered_json;

// A second on a quiet machine; four others may be working.
constexpr double kSecondsMax = 20;

template <typename Compile>
void ends_well(const char* what, Compile compile) {
  const auto from = std::chrono::steady_clock::now();
  const Result<Compiled> out = compile();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  EXPECT_LT(seconds, kSecondsMax) << what;
  EXPECT_EQ(error_of(out).find('\n'), std::string::npos) << what;
  if (!out.ok()) {
    EXPECT_NE(out.status().message(), "") << what;
    return;
  }
  // What is accepted must also be usable within bounds.
  const auto masks = std::make_shared<MaskCache>(*out, json_trie());
  Matcher m(masks);
  for (int i = 0; i < 20 && !m.done(); ++i) {
    const auto mask = mask_of(m, 1000);
    TokenId id = 3;
    while (id < json_trie()->vocab_size() && !allows(mask, id)) ++id;
    if (id == json_trie()->vocab_size() || !m.accept(id)) break;
  }
}

std::string repeated(const char* text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Bounds, HostileExpressions) {
  const std::string cases[] = {"a{1000000}",
                               "(((a{1,1000}){1,1000}){1,1000}){1,1000}",
                               "(a|b)*a(a|b){20}",
                               "(a|b)*a(a|b){40}",
                               "(a|b)*a(a|b){300}",
                               "(a*)*(a*)*(a*)*b",
                               "(x+x+)+y",
                               "(.*a){40}",
                               "[\\p{L}\\p{N}]{1,400}@[\\p{L}]{1,400}",
                               repeated("(", 100000),
                               repeated("(a|", 190) + "b" + repeated(")", 190),
                               repeated("a?", 20000) + repeated("a", 20000),
                               repeated("[a-z]{0,99}", 300),
                               repeated("\\p{L}", 5000),
                               "(" + repeated("ab|", 100000) + "c)"};
  for (const std::string& regex : cases) ends_well(regex.substr(0, 40).c_str(), [&] { return compile_regex(regex); });
  EXPECT_FALSE(compile_regex(repeated("(", 100000)).ok());
  EXPECT_EQ(compile_regex("(a|b)*a(a|b){40}").status().code(), Code::resource_exhausted);
}

TEST(Bounds, HostileGrammars) {
  std::string doubling = "root ::= r30\nr0 ::= \"a\"\n", chain = "root ::= r0\n";
  for (int i = 1; i <= 30; ++i) doubling += fmt::format("r{} ::= r{} r{}\n", i, i - 1, i - 1);
  for (int i = 0; i < 20000; ++i) chain += fmt::format("r{} ::= \"(\" r{} \")\" | \"x\"\n", i, i + 1);
  chain += "r20000 ::= \"y\"\n";
  const std::string cases[] = {doubling,
                               chain,
                               "root ::= root root | \"a\"",
                               "root ::= (root? root?)* \"a\"",
                               "root ::= a b | b a\na ::= b a \"x\" | b\nb ::= a b \"y\" | \"z\"",
                               "root ::= " + repeated("(", 5000),
                               "root ::= (\"a\"*)*",
                               "root ::= [a-z]{1,1000000000}",
                               "root ::= ((\"a\" | root){1,1000}){1,1000}"};
  for (const std::string& text : cases) ends_well(text.substr(0, 40).c_str(), [&] { return compile_gbnf(text); });
}

TEST(Bounds, HostileSchemas) {
  Json deep = {{"type", "integer"}};
  for (int i = 0; i < 3000; ++i) deep = Json{{"type", "array"}, {"items", std::move(deep)}};
  Json wide = {{"type", "object"}}, all = {{"allOf", Json::array({{{"$ref", "#/$defs/d40"}}})}};
  for (int i = 0; i < 300; ++i)
    wide["properties"][fmt::format("property_{}", i)] = {{"type", "string"}, {"maxLength", i + 1}};
  all["$defs"]["d0"] = {{"minimum", 1}};
  for (int i = 1; i <= 40; ++i) {
    const std::string ref = fmt::format("#/$defs/d{}", i - 1);
    all["$defs"][fmt::format("d{}", i)] = {{"allOf", Json::array({{{"$ref", ref}}, {{"$ref", ref}}})}};
  }
  Json names = {{"enum", Json::array()}}, groups = {{"allOf", Json::array()}}, ones = {{"oneOf", Json::array()}};
  for (int i = 0; i < 5000; ++i) names["enum"].push_back(fmt::format("value number {}", i * 7919 % 100003));
  for (int i = 0; i < 12; ++i) {
    Json any = Json::array();
    for (int k = 0; k < 12; ++k) any.push_back({{"properties", {{fmt::format("p{}", k), {{"const", i}}}}}});
    groups["allOf"].push_back({{"anyOf", any}});
  }
  for (int i = 0; i < 100; ++i)
    ones["oneOf"].push_back({{"type", "object"}, {"properties", {{"k", {{"const", i}}}}}, {"required", {"k"}}});
  Json patterns = {{"type", "object"}};
  for (int i = 0; i < 40; ++i) patterns["patternProperties"][fmt::format("a.*b{}.*c", i)] = {{"const", i}};
  Json more_names = {{"enum", Json::array()}};
  for (int i = 0; i < 300000; ++i) more_names["enum"].push_back(i);
  const std::pair<const char*, Json> cases[] = {
      {"deep", deep},
      {"many names", more_names},
      {"wide", wide},
      {"allOf", all},
      {"enum", names},
      {"groups", groups},
      {"oneOf", ones},
      {"patterns", patterns},
      {"lengths", Json::parse(R"({"type":"string","pattern":"^(a|b)*a(a|b){12}$","minLength":900,"maxLength":1000})")},
      {"minLength", Json::parse(R"({"type":"string","minLength":1000000})")},
      {"huge", Json::parse(R"({"type":"string","minLength":99999999999})")},
      {"arrays",
       Json::parse(
           R"({"type":"array","minItems":1000,"items":{"type":"array","minItems":1000,"items":{"type":"array","minItems":1000}}})")},
      {"multiple", Json::parse(R"({"type":"integer","multipleOf":999983})")},
      {"digits", Json::parse(R"({"type":"number","minimum":1e-300,"maximum":1e300})")}};
  for (const auto& [name, json] : cases) ends_well(name, [&json = json] { return compile_json_schema(json); });
  EXPECT_EQ(compile_json_schema(deep).status().code(), Code::resource_exhausted);
  EXPECT_EQ(compile_json_schema(all).status().code(), Code::resource_exhausted);
  EXPECT_TRUE(compile_json_schema(wide).ok()) << error_of(compile_json_schema(wide));
  EXPECT_TRUE(compile_json_schema(names).ok()) << error_of(compile_json_schema(names));
  EXPECT_TRUE(compile_json_schema(ones).ok()) << error_of(compile_json_schema(ones));
}

}  // namespace
}  // namespace lode::text::grammar::test
