#include "serve/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "serve/completion_reply.h"
#include "serve/fake_engine.h"

namespace lode::serve {
namespace {

TEST(JsonTest, KeepsTheOrderOfKeys) {
  auto parsed = parse_json(R"({"pattern":1,"include":2,"a":3})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(dump_json(*parsed), R"({"pattern":1,"include":2,"a":3})");
}

TEST(JsonTest, NamesWhereATextIsWrong) {
  for (const char* text :
       {"", "  \n", "{", "{\"a\":1, x}", "{\"a\":NaN}", "[1,]", "{\"a\":1e999}", "\"\xff\"", "\xff\xfe{\0"}) {
    const auto parsed = parse_json(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_FALSE(parsed.status().message().empty());
    EXPECT_TRUE(is_valid_utf8(parsed.status().message()));
    EXPECT_EQ(parsed.status().message().find("json.exception"), std::string::npos);
  }
}

TEST(JsonTest, BoundsDepthMembersAndValues) {
  const std::string deep(1'000'000, '[');
  EXPECT_NE(parse_json(deep).status().message().find("deeper than 64"), std::string::npos);
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(65, '[') + std::string(65, ']')).ok());

  std::string wide = "{\"k\":0";
  for (int i = 0; i < 1023; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  EXPECT_TRUE(parse_json(wide + "}").ok());
  EXPECT_NE(parse_json(wide + ",\"x\":0}").status().message().find("1024 members"), std::string::npos);

  std::string many = "[0";
  for (int i = 0; i < 100; ++i) many += ",0";
  EXPECT_FALSE(parse_json(many + "]", {.values_max = 100}).ok());
  EXPECT_TRUE(parse_json(many + "]", {.values_max = 200}).ok());
  // Brackets and commas inside strings are text.
  EXPECT_TRUE(parse_json("\"" + std::string(500, '{') + "\\\"[[[,,,\"", {.depth_max = 1, .values_max = 10}).ok());
}

TEST(JsonTest, B07_WritingNeverFails) {
  Json value;
  value["text"] = "a\xF0";
  value["nan"] = std::nan("");
  value["inf"] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(dump_json(value), "{\"text\":\"a\xEF\xBF\xBD\",\"nan\":null,\"inf\":null}");
}

TEST(JsonTest, Utf8) {
  EXPECT_TRUE(is_valid_utf8("aé漢😊"));
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xED\xA0\x80", "\xF0\x9F\x98", "\xF5\x80\x80\x80", "\xE0\x80\x80", "a\xFF"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
    EXPECT_TRUE(is_valid_utf8(valid_utf8(bad)));
  }
  EXPECT_EQ(valid_utf8("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(ReplyTest, TimingsAreFiniteOverNoTime) {
  const Json json = timings_json({.prompt_n = 5, .predicted_n = 0, .prompt_ms = 0, .predicted_ms = std::nan("")});
  for (const auto& [key, value] : json.items())
    EXPECT_TRUE(value.is_number() && std::isfinite(value.get<double>())) << key;
}

TEST(ReplyTest, D08_MinusInfinityIsFinite) {
  ByteTokenizer tokenizer;
  LegacyLogprobs logprobs;
  const float inf = std::numeric_limits<float>::infinity();
  logprobs.add({.id = 'a', .bytes = "a", .logprob = -inf, .top = {{'b', 0.0f}, {'c', -inf}}}, tokenizer);
  logprobs.add({.id = 'a', .bytes = "a", .logprob = std::nanf(""), .top = {}}, tokenizer);
  const Json json = Json::parse(dump_json(logprobs.take()));
  EXPECT_EQ(json["token_logprobs"], Json::parse("[-9999.0,-9999.0]"));
  EXPECT_EQ(json["top_logprobs"][0], Json::parse(R"({"b":0.0,"c":-9999.0,"a":-9999.0})"));
}

TEST(ReplyTest, TokensThatAreNoTextKeepTheirBytes) {
  EXPECT_EQ(token_text("abc"), "abc");
  EXPECT_EQ(token_text("\xE2\x80"), "bytes:\\xe2\\x80");
}

TEST(ReplyTest, OffsetsCountCharacters) {
  ByteTokenizer tokenizer;
  LegacyLogprobs logprobs;
  for (const char* bytes : {"é", "\xF0\x9F", "\x98\x8A", "x"}) logprobs.add({.id = 1, .bytes = bytes}, tokenizer);
  EXPECT_EQ(logprobs.take()["text_offset"], Json::parse("[0,1,2,2]"));
  logprobs.add({.id = 1, .bytes = "y"}, tokenizer);
  EXPECT_EQ(logprobs.take()["text_offset"], Json::parse("[3]"));
}

TEST(TopLevelString, FindsTheNameAndNothingElse) {
  const auto model = [](std::string_view text) { return top_level_string(text, "model").value_or("-"); };
  EXPECT_EQ(model(R"({"model":"a"})"), "a");
  EXPECT_EQ(model(R"({ "prompt" : "\"model\":\"no\"" , "model" :  "b\u00e9\"" })"), "b\xC3\xA9\"");
  EXPECT_EQ(model(R"({"x":{"model":"no"},"y":["model","no",{"model":"no"}],"model":"c"})"), "c");
  EXPECT_EQ(model(R"({"x":"model","y":"z"})"), "-") << "a value is no key";
  EXPECT_EQ(model(R"({"model":5,"z":"no"})"), "-");
  EXPECT_EQ(model(R"({"model":null,"z":"no"})"), "-");
  EXPECT_EQ(model(R"({"model":{"model":"no"}})"), "-");
  EXPECT_EQ(model(R"({"model":["no"]})"), "-");
  EXPECT_EQ(model(R"([{"model":"no"}])"), "-");
  EXPECT_EQ(model(R"({"model":"cut)"), "-");
  EXPECT_EQ(model(R"({"model":"cut\)"), "-");
  for (const char* text : {"", "{", "\"model\"", "}}}", "{\"", "null"}) EXPECT_EQ(model(text), "-") << text;
}

}  // namespace
}  // namespace lode::serve
