#include "text/grammar/schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

struct Language {
  const char* schema;
  std::vector<const char*> in, out;
};

void check(const Language& l) {
  const auto masks = masks_of(schema(l.schema));
  ASSERT_TRUE(masks) << l.schema;
  for (const char* text : l.in) EXPECT_TRUE(accepts_text(masks, text)) << l.schema << " takes " << text;
  for (const char* text : l.out) EXPECT_FALSE(accepts_text(masks, text)) << l.schema << " refuses " << text;
}

TEST(Schema, Types) {
  check({R"({})",
         {"1", "\"x\"", "null", "[1, {\"a\":2}]", "-1.5e+3", "true"},
         {"", "nul", "01", "[1,]", "{\"a\"}", "1 ", "tru"}});
  check({R"(true)", {"{}"}, {"{"}});
  check({R"({"type":"integer"})", {"0", "-7", "12345678901234567890"}, {"-0", "1.0", "1e3", "007", "+1"}});
  check({R"({"type":"number"})", {"0", "-0.5", "1E2", "3.25e-7"}, {".5", "1.", "1e", "0x1", "1e100"}});
  check({R"({"type":["string","null"]})", {"\"\"", "null"}, {"1"}});
  check({R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}});
  check({R"({"type":"boolean"})", {"true", "false"}, {"null", "\"true\""}});
}

TEST(Schema, ConstAndEnum) {
  check({R"({"const":null})", {"null"}, {"0", "\"null\""}});
  check({R"({"enum":["a",1,null,true,[1,{"k":2}]]})",
         {"\"a\"", "1", "null", "true", "[1, {\"k\": 2}]", "[1,{\"k\":2}]"},
         {"\"b\"", "2", "[1]"}});
  check({R"({"type":"integer","minimum":2,"enum":[1,2,3,"x"]})", {"2", "3"}, {"1", "\"x\""}});
  check({R"({"const":"q\"\\\n漢"})", {"\"q\\\"\\\\\\n漢\""}, {"\"q\""}});
}

TEST(Schema, Objects) {
  const char* abc =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})";
  check({abc,
         {"{\"b\":\"\"}", "{\"a\":1,\"b\":\"x\"}", "{\"a\":1, \"b\": \"x\", \"c\": null}", "{\"b\":\"\",\"c\":null}"},
         {"{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":\"\",\"d\":1}", "{,\"b\":\"\"}", "{\"b\":\"\",}",
          "{\"b\":\"\",\"b\":\"\"}"}});
  check({R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
         {"{}", "{\"a\":1}", "{\"x\":true}", "{\"a\":1,\"x\":true,\"y\":false}", "{\"ab\":true}", "{\"\":true}"},
         {"{\"a\":true}", "{\"x\":1}", "{\"x\":true,\"a\":1}", "{\"\\u0061\":true}"}});
  check({R"({"type":"object","additionalProperties":false})", {"{}"}, {"{\"a\":1}"}});
  check({R"({"type":"object","required":["z"]})", {"{\"z\":[1]}"}, {"{}", "{\"y\":1}"}});
  check({R"({"type":"object","minProperties":1,"properties":{"a":{"const":1},"b":{"const":2}}})",
         {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
         {"{}"}});
  check({R"({"type":"object","maxProperties":2,"additionalProperties":{"const":1}})",
         {"{}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1,\"b\":1,\"c\":1}"}});
  check({R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"const":1}})",
         {"{\"ab\":1}"},
         {"{\"A\":1}", "{\"\":1}"}});
}

TEST(Schema, Arrays) {
  check({R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
         {"[1,2]", "[1, 2,3]"},
         {"[1]", "[]", "[1,2,3,4]", "[1,\"x\"]"}});
  check({R"({"type":"array","prefixItems":[{"const":1},{"const":2}]})", {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"}});
  check({R"({"type":"array","prefixItems":[{"const":1}],"items":{"const":2},"minItems":2,"maxItems":4})",
         {"[1,2]", "[1,2,2,2]"},
         {"[1]", "[2,2]", "[1,2,2,2,2]"}});
  check({R"({"type":"array","prefixItems":[{"const":1}],"items":false})", {"[1]", "[]"}, {"[1,1]"}});
  check({R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2}})", {"[1,2,2]"}, {"[2]"}});
  check({R"({"type":"array","items":{"type":"array","items":{"const":0},"maxItems":300},"maxItems":2})",
         {"[[0,0],[]]"},
         {"[[],[],[]]"}});
}

TEST(Schema, Strings) {
  check({R"({"type":"string","minLength":2,"maxLength":3})",
         {"\"ab\"", "\"漢字x\"", "\"\\ud83d\\ude0a😊\"", "\"\\n\\\"\""},
         {"\"a\"", "\"abcd\"", "\"\\u0061\"", "\"😊\""}});
  check({R"({"type":"string","pattern":"^\\d+$"})", {"\"12\""}, {"\"\"", "\"1a\""}});
  check({R"({"type":"string","pattern":"b"})", {"\"abc\"", "\"b\"", "\"\\n漢b\\\\\""}, {"\"ac\""}});
  check({R"({"type":"string","pattern":"^\"\\\\$"})", {"\"\\\"\\\\\""}, {"\"\"\\\""}});
  check({R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":3})",
         {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\"", "\"A1\""}});
  check({R"({"type":"string","format":"date"})",
         {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-13-01\"", "\"2023-04-31\"", "\"0000-01-01\""}});
  check({R"({"type":"string","format":"ipv4"})", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}});
  check({R"({"type":"string","format":"int32"})", {"\"anything\""}, {"1"}});
}

TEST(Schema, Combinations) {
  check({R"({"anyOf":[{"type":"string","maxLength":1},{"type":"integer","minimum":5}]})",
         {"\"a\"", "5"},
         {"\"ab\"", "4"}});
  check(
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
       {"{}"}});
  check(
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3},"b":{"const":1}},"required":["a"]}]})",
       {"{\"a\":3}", "{\"a\":9,\"b\":1}"},
       {"{\"a\":2}", "{}", "{\"b\":1}"}});
  check(
      {R"({"allOf":[{"properties":{"a":{"const":1}},"additionalProperties":false},{"properties":{"b":{"const":1}}}]})",
       {"{}", "{\"a\":1}"},
       {"{\"b\":1}"}});
  check(
      {R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"],"type":"object"},{"properties":{"k":{"const":2}},"required":["k"],"type":"object"}]})",
       {"{\"k\":1}", "{\"k\":2}"},
       {"{}", "{\"k\":3}"}});
  // A contradiction in one alternative leaves the others.
  check({R"({"type":"integer","minimum":5,"anyOf":[{"maximum":3},{"maximum":7}]})", {"5", "7"}, {"3", "8"}});
}

// What is refused names the place and the keyword.
TEST(Schema, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"properties":{"a":{"not":{}}}})", "#/properties/a/not"},
      {R"({"if":{},"then":{}})", "#/if"},
      {R"({"properties":{"a/b":{"contains":{}}}})", "#/properties/a~1b/contains"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"dependentRequired":{"a":["b"]}})", "#/dependentRequired"},
      {R"({"$defs":{"x":{"unevaluatedProperties":false}},"$ref":"#/$defs/x"})", "#/$defs/x/unevaluatedProperties"},
      {R"({"type":"strin"})", "#/type"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"anyOf":[{"type":"string"},{"pattern":"("}]})", "#/anyOf/1/pattern: regular expression: line 1, column 1"},
      {R"({"format":"regex"})", "#/format"},
      {R"({"minLength":-1})", "#/minLength"},
      {R"({"minLength":5,"maxLength":2})", "#/minLength"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"items":3})", "#/items"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "#/oneOf"},
      {R"({"type":"object","minProperties":3})", "#/minProperties"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "no type is left"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "required and forbidden"},
      {R"(3)", "#: a schema is"},
      {R"(false)", "#: nothing satisfies false"}};
  for (const auto& [text, why] : kWrong) {
    const std::string error = error_of(schema(text));
    EXPECT_NE(error.find(why), std::string::npos) << text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

// Field report E07: references into arrays, escapes in pointers, recursion, cycles.
TEST(FieldReports, E07_ReferencesAreResolvedOrRefused) {
  check(
      {R"({"type":"object","properties":{"tree":{"type":"object","properties":{"left":{"anyOf":[{"type":"null"},{"type":"integer"}]}}},
           "o":{"$ref":"#/properties/tree/properties/left/anyOf/1"}},"required":["o"]})",
       {"{\"o\":3}"},
       {"{\"o\":null}"}});
  check(
      {R"({"$defs":{"a":{"const":1},"b":{"const":2}},"type":"array","prefixItems":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"},{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"minItems":4})",
       {"[1,2,1,2]"},
       {"[1,1,1,2]"}});
  check(
      {R"({"$defs":{"l":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/l"},{"type":"null"}]}},"required":["n"]}},"$ref":"#/$defs/l"})",
       {"{\"n\":{\"n\":{\"n\":null}}}"},
       {"{\"n\":{}}"}});
  check(
      {R"({"$defs":{"a/b":{"const":1},"c%d":{"const":2},"~":{"const":3}},"anyOf":[{"$ref":"#/$defs/a~1b"},{"$ref":"#/$defs/c%25d"},{"$ref":"#/$defs/~0"}]})",
       {"1", "2", "3"},
       {"4"}});
  for (const char* wrong :
       {R"({"$ref":"#"})", R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
        R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})",
        R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})", R"({"$ref":"#/$defs/none"})",
        R"({"$ref":"other.json#/x"})", R"({"$ref":"#anchor"})", R"({"$ref":5})", R"({"anyOf":[{"$ref":"#/anyOf/7"}]})",
        R"({"type":"object","properties":{"x":{"$ref":"#"}},"required":["x"]})"}) {
    EXPECT_NE(error_of(schema(wrong)), "") << wrong;
  }
}

// Field report E11: integers in range alone, canonical.
TEST(FieldReports, E11_IntegerBoundsAreExact) {
  check({R"({"type":"integer","minimum":3})", {"3", "10", "99999"}, {"2", "0", "-3", "03", "003"}});
  check({R"({"type":"integer","minimum":-123,"maximum":42})", {"-123", "-1", "0", "42"}, {"-124", "43", "-0", "042"}});
  check({R"({"type":"integer","exclusiveMinimum":0})", {"1", "10"}, {"0", "-1"}});
  check({R"({"type":"integer","maximum":-1})", {"-1", "-100"}, {"0", "1", "-0"}});
  check({R"({"type":"integer","minimum":0,"maximum":0})", {"0"}, {"1", "-0", "00"}});
  check({R"({"type":"integer","multipleOf":5})", {"0", "-25", "1005"}, {"1", "12"}});
  check({R"({"type":"integer","minimum":18446744073709551615})",
         {"18446744073709551615", "18446744073709551616"},
         {"18446744073709551614"}});
  check({R"({"type":"integer","maximum":1e20})", {"100000000000000000000", "-5"}, {"100000000000000000001"}});
  EXPECT_NE(error_of(schema(R"({"type":"integer","minimum":5,"maximum":3})")).find("#/minimum"), std::string::npos);
  EXPECT_NE(error_of(schema(R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":4})")), "");
  EXPECT_NE(error_of(schema(R"({"type":"integer","multipleOf":0})")).find("#/multipleOf"), std::string::npos);
}

// Field report E12: only what JSON allows inside a string.
TEST(FieldReports, E12_StringsHoldNoRawControlsAndNoBadEscapes) {
  const auto masks = masks_of(schema(R"({"type":"string"})"));
  for (const char* text : {"\"\n\"", "\"\t\"", "\"\\q\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ud83dx\"", "\"\\ude0a\"",
                           "\"\\ud83d\\u0041\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xFF\"", "\"\xF4\x90\x80\x80\"",
                           "\"\xE6\xBC\"", "\"\\\"", "\"\\U0041\""}) {
    EXPECT_FALSE(accepts_text(masks, text)) << text;
  }
  for (const char* text : {"\"\"", "\"\\u0000\"", "\"\\ud83d\\ude0a\"", "\"\\/\\b\\f\\n\\r\\t\\\\\\\"\"", "\"\x7F\"",
                           "\"\xF4\x8F\xBF\xBF\""}) {
    EXPECT_TRUE(accepts_text(masks, text)) << text;
  }
  Matcher m(masks);
  ASSERT_TRUE(m.accept_bytes("\""));
  const auto mask = mask_of(m);
  for (TokenId id = 3; id < json_trie()->vocab_size(); ++id) {
    const std::string_view text = json_trie()->text(id);
    if (text.find('\n') != std::string_view::npos) EXPECT_FALSE(allows(mask, id));
  }
}

// Field report E13: enforced, or refused by name.
TEST(FieldReports, E13_EveryKeywordIsEnforcedOrRefused) {
  check({R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
         {"{}", "{\"x-a\":1,\"x-\":2}"},
         {"{\"y\":1}", "{\"x-a\":\"s\"}"}});
  check({R"({"type":"array","items":{"const":1},"minItems":10})", {"[1,1,1,1,1,1,1,1,1,1]"}, {"[1,1,1,1,1,1,1,1,1]"}});
  check({R"({"type":"string","format":"date"})", {"\"2024-01-31\""}, {"\"2024-1-31\"", "\"x\""}});
  check({R"({"const":null})", {"null"}, {"{}", "0"}});
  check({R"({"enum":["x",7,null,{"a":[]}]})", {"\"x\"", "7", "null", "{\"a\":[]}"}, {"8"}});
  for (const char* keyword : {"uniqueItems\":true", "dependentRequired\":{\"a\":[\"b\"]}", "not\":{}", "contains\":{}",
                              "if\":true", "unevaluatedItems\":false", "dependentSchemas\":{}"}) {
    const std::string error = error_of(schema(fmt::format("{{\"{}}}", keyword).c_str()));
    const std::string name(keyword, std::string_view(keyword).find('"'));
    EXPECT_NE(error.find("#/" + name), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace lode::text::grammar::test
