#include "text/grammar/gbnf.h"

#include <gtest/gtest.h>

#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

TEST(Gbnf, ReadsItsNotation) {
  const auto masks = masks_of(compile_gbnf(R"g(
# a small language
root   ::= (expr "=" ws term "\n")+   # lines
expr   ::= term ([-+*/] term)*
term   ::= ident | num | "(" ws expr ")" ws
ident  ::= [a-z] [a-z0-9_]{0,3} ws
num    ::= [0-9]+ ws
         | "\x30\u0078" [0-9A-Fa-f]{2,} ws
ws     ::= [ \t\n]*
)g"));
  EXPECT_TRUE(accepts_text(masks, "a+b*c=1\n"));
  EXPECT_TRUE(accepts_text(masks, "(x1 +0xFF)=  y\nz=0\n"));
  EXPECT_FALSE(accepts_text(masks, "a+b*c=1"));
  EXPECT_FALSE(accepts_text(masks, "abcde=1\n"));
  EXPECT_FALSE(accepts_text(masks, "0xF=1\n"));
}

// llama.cpp's grammar for JSON, in its own words' meaning.
TEST(Gbnf, JsonGrammar) {
  const auto masks = masks_of(compile_gbnf(R"g(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)g"));
  EXPECT_TRUE(accepts_text(masks, "{\"a\": [1, 2.5e3, {\"b\":\"\\u00e9\"}],\n    \"c\":null}"));
  EXPECT_FALSE(accepts_text(masks, "{\"a\": [1,]}"));
  EXPECT_FALSE(accepts_text(masks, "[1]"));
}

TEST(Gbnf, RecursionOfEveryKind) {
  const auto left = masks_of(compile_gbnf("root ::= root \",\" item | item\nitem ::= [0-9]+"));
  EXPECT_TRUE(accepts_text(left, "1,22,333"));
  EXPECT_FALSE(accepts_text(left, "1,,2"));
  const auto hidden = masks_of(compile_gbnf("root ::= a root \"x\" | \"y\"\na ::= \"z\"?"));
  EXPECT_TRUE(accepts_text(hidden, "yxx"));
  EXPECT_TRUE(accepts_text(hidden, "zyx"));
  EXPECT_TRUE(accepts_text(hidden, "zzyxx"));
  EXPECT_FALSE(accepts_text(hidden, "zzyx"));
  const auto middle = masks_of(compile_gbnf("root ::= \"(\" root \")\" root | \"\""));
  EXPECT_TRUE(accepts_text(middle, "(()())()"));
  EXPECT_FALSE(accepts_text(middle, "(()"));
  // Right recursion takes no stack.
  const auto right = masks_of(compile_gbnf("root ::= \"a\" root | \"b\""));
  EXPECT_TRUE(accepts_text(right, std::string(5000, 'a') + "b"));
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"root ::= \"a\"\nx ::= y", "line 2, column 7: the rule \"y\" is not defined"},
      {"start ::= \"a\"", "no rule named \"root\""},
      {"root ::= (\"a\"", "line 1, column 10"},
      {"root ::= [a", "column 10"},
      {"root ::= \"a", "column 10"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root := \"a\"", "expected ::="},
      {"root ::= \"a\"{3,2}", "upper bound"},
      {"root ::= \"a\"{x}", "expected {m}"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= \"a\" )", "expected the rule's end"},
      {"root ::= <[12]>", "token ids"},
      {"root ::= root", "no finite document"},
      {"root ::= \"a\" root", "no finite document"},
      {"", "no rule named"}};
  for (const auto& [text, why] : kWrong) {
    const std::string error = error_of(compile_gbnf(text));
    EXPECT_NE(error.find(why), std::string::npos) << text << ": " << error;
  }
}

}  // namespace
}  // namespace lode::text::grammar::test
