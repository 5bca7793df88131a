// Every chat template of the shared data, byte for byte, as jinja2 3.1.6 renders it.
#include "text/template/template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

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

// ---- what users of other engines reported (field-reports.md, section c)

std::string rendered(std::string_view source, const char* input = "{}", const RenderOptions& options = {}) {
  const auto parsed = Template::parse(source);
  if (!parsed.ok()) return "parse error: " + parsed.status().message();
  const auto out = (*parsed)->render(Json::parse(input), options);
  return out.ok() ? *out : "error: " + out.status().message();
}

constexpr const char* kThree = R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},
    {"role":"user","content":"c"}]})";

TEST(TemplateFieldReport, C04ReverseSlices) {
  EXPECT_EQ(rendered("{% for m in messages[::-1] %}{{ m.content }}{% endfor %}", kThree), "cba");
  EXPECT_EQ(rendered("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", kThree), "bc");
  EXPECT_EQ(rendered("{% for m in messages[:-1] %}{{ m.content }}{% endfor %}", kThree), "ab");
  EXPECT_EQ(rendered("{% for m in messages[-2:] %}{{ m.content }}{% endfor %}", kThree), "bc");
  EXPECT_EQ(rendered("{% for m in messages[::2] %}{{ m.content }}{% endfor %}", kThree), "ac");
  EXPECT_EQ(rendered("{{ 'abc'[::-1] }}"), "cba");
}

TEST(TemplateFieldReport, C05SubscriptOfACall) {
  EXPECT_EQ(rendered(R"({{ content.split('</think>')[-1].lstrip('\n') }})", R"({"content":"<think>x</think>\n\nok"})"),
            "ok");
  EXPECT_EQ(rendered("a {{- '' }}b"), "ab");
  EXPECT_EQ(rendered("{{ m['a'].split(' ')[0].upper()[1:][0] }}", R"({"m":{"a":"xyz w"}})"), "Y");
}

TEST(TemplateFieldReport, C06MethodOfAFilteredValue) {
  EXPECT_EQ(rendered(R"({{ (c.split('</think>')|first).rstrip('\n') }}|)", R"({"c":"a\n</think>b"})"), "a|");
  EXPECT_EQ(rendered("{{ (c|trim).startswith('x') }}{{ (c|trim).endswith('x') }}{{ (c|trim).strip('xz') }}"
                     "{{ (c|trim).title() }}{{ (c|trim).replace('y', '-').upper() }}",
                     R"({"c":" xyz "})"),
            "TrueFalseyXyzX-Z");
  EXPECT_EQ(rendered("{{ c.shout() }}", R"({"c":"a"})"), "error: line 1: 'str object' has no attribute 'shout'");
}

TEST(TemplateFieldReport, C07Filters) {
  EXPECT_EQ(rendered("{{ messages | rejectattr('role','equalto','system') | list | length }}", kThree), "2");
  EXPECT_EQ(
      rendered("{{ messages | selectattr('role','equalto','user') | map(attribute='content') | join('+') }}", kThree),
      "b+c");
  EXPECT_EQ(rendered("{{ messages | map(attribute='role') | unique | list }}", kThree), "['system', 'user']");
  EXPECT_EQ(rendered("{{ ''|default('x', true) }}"), "x");
  EXPECT_EQ(rendered("a\n{{ 1|sparkle }}"), "parse error: line 2: there is no filter 'sparkle'");
  EXPECT_EQ(rendered("{{ 1 is sparkly }}"), "parse error: line 1: there is no test 'sparkly'");
}

TEST(TemplateFieldReport, C09KeysKeepTheirOrder) {
  EXPECT_EQ(
      rendered("{{ t|tojson }}{{ t }}{{ t|list }}", R"({"t":{"pattern":1,"include":{"z":1,"a":2}}})"),
      R"({"pattern": 1, "include": {"z": 1, "a": 2}}{'pattern': 1, 'include': {'z': 1, 'a': 2}}['pattern', 'include'])");
}

TEST(TemplateFieldReport, C10JsonEscapesNothingForHtml) {
  EXPECT_EQ(rendered("{{ {'d':\"if a > 1 & b < 2 (user's) / — 天\"} | tojson }}"),
            R"({"d": "if a > 1 & b < 2 (user's) / — 天"})");
}

TEST(TemplateFieldReport, C11JsonSeparatorsAndArguments) {
  const char* v = R"({"v":{"b":[1,2],"a":1.0,"c":true,"d":null,"e":"é"}})";
  EXPECT_EQ(rendered("{{ v|tojson }}", v), R"({"b": [1, 2], "a": 1.0, "c": true, "d": null, "e": "é"})");
  EXPECT_EQ(rendered("{{ v|tojson(separators=(',',':')) }}", v), R"({"b":[1,2],"a":1.0,"c":true,"d":null,"e":"é"})");
  EXPECT_EQ(rendered("{{ v|tojson(sort_keys=true) }}", v),
            R"({"a": 1.0, "b": [1, 2], "c": true, "d": null, "e": "é"})");
  EXPECT_EQ(rendered("{{ v.e|tojson(ensure_ascii=True) }}{{ v.e|tojson(ensure_ascii=False) }}", v), R"("\u00e9""é")");
  EXPECT_EQ(rendered("{{ v.b|tojson(indent=2) }}", v), "[\n  1,\n  2\n]");
}

TEST(TemplateFieldReport, C12BlocksAreTrimmed) {
  EXPECT_EQ(
      rendered(
          "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n",
          kThree),
      "b\nc\n");
}

TEST(TemplateFieldReport, C18ContentPartsReachTheTemplate) {
  const char* v = R"({"m":{"content":[{"type":"text","text":"tell me a "},{"type":"text","text":"riddle"}]}})";
  EXPECT_EQ(rendered("{% for p in m.content %}{{ p.text }}{% endfor %}", v), "tell me a riddle");
  EXPECT_EQ(rendered("{{ m.content is string }}{{ m.content is iterable }}{{ m.content is sequence }}", v),
            "FalseTrueTrue");
}

TEST(TemplateFieldReport, C21AbsentFieldsAreUndefined) {
  EXPECT_EQ(
      rendered("{{ m.reasoning_content }}{{ m.reasoning_content is defined }}", R"({"m":{"reasoning_content":"r"}})"),
      "rTrue");
  EXPECT_EQ(rendered("{{ m.reasoning_content }}{{ m.reasoning_content is defined }}", R"({"m":{"reasoning":"r"}})"),
            "False");
}

TEST(TemplateFieldReport, C22SplitAtTheLastTag) {
  const char* v = R"({"c":"<think>the tag `</think>` ends it</think>ok"})";
  EXPECT_EQ(rendered("{{ c.split('</think>')[-1] }}", v), "ok");
  EXPECT_EQ(rendered("{{ c.rpartition('</think>')[0].partition('<think>')[2] }}", v), "the tag `</think>` ends it");
}

// ---- errors

TEST(TemplateError, NamesTheLineAndWhatWasExpected) {
  EXPECT_EQ(rendered("a\n{% if x %}\nb\n"),
            "parse error: line 3: expected 'endif' for the 'if' of line 2, found the template's end");
  EXPECT_EQ(rendered("{% for x in y %}\n{% endif %}"),
            "parse error: line 2: expected 'endfor' for the 'for' of line 1, found 'endif'");
  EXPECT_EQ(rendered("{{ x"), "parse error: line 1: the tag has no end; expected '}}'");
  EXPECT_EQ(rendered("\n\n{{ a b }}"), "parse error: line 3: expected '}}', found 'b'");
  EXPECT_EQ(rendered("{{ 'a }}"), "parse error: line 1: the string has no end; expected '");
  EXPECT_EQ(rendered("{# x"), "parse error: line 1: the comment has no end; expected '#}'");
  EXPECT_EQ(rendered("a\nb\n{{ messages[0].x.y }}", kThree), "error: line 3: 'dict object' has no attribute 'x'");
  EXPECT_EQ(rendered("\n{{ raise_exception('Roles must alternate') }}"), "error: line 2: Roles must alternate");
  EXPECT_EQ(rendered("{{\n1 +\n'a' }}"), "error: line 2: unsupported operand type(s) for +: 'int' and 'str'");
}

TEST(TemplateError, RefusesOtherFilesByName) {
  for (const char* tag :
       {"include 'a'", "import 'a' as b", "from 'a' import b", "extends 'a'", "block a", "autoescape true"}) {
    const auto parsed = Template::parse(std::string("\n{% ") + tag + " %}");
    ASSERT_FALSE(parsed.ok()) << tag;
    EXPECT_EQ(parsed.status().code(), Code::unsupported);
    EXPECT_EQ(parsed.status().message().find("line 2: the tag '"), 0u) << parsed.status().message();
  }
}

TEST(TemplateError, ClockMustBeGiven) {
  EXPECT_EQ(rendered("{{ strftime_now('%Y') }}"), "error: line 1: strftime_now: this render was given no clock");
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}", "{}", {.now = kGoldenDay}), "02 Jan 2026");
}

// ---- bounds

void expect_exhausted(std::string_view source, const RenderLimits& limits = {}) {
  SCOPED_TRACE(source.substr(0, 200));
  const auto parsed = Template::parse(source);
  const Status status = parsed.ok() ? (*parsed)->render(Json::object(), {.limits = limits}).status() : parsed.status();
  EXPECT_EQ(status.code(), Code::resource_exhausted) << status.message();
  EXPECT_TRUE(status.message().starts_with("line ")) << status.message();
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(TemplateBounds, HostileTemplatesEnd) {
  expect_exhausted("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  expect_exhausted("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_exhausted("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}");
  expect_exhausted("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_exhausted("{{ 'x' * 9999999999 }}");
  expect_exhausted("{{ ([1] * 99999999999)|length }}");
  expect_exhausted("{{ 'x'.center(9999999999) }}");
  expect_exhausted("{{ '%999999999d' % 1 }}");
  expect_exhausted("{{ '{:999999999}'.format(1) }}");
  expect_exhausted("{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_exhausted("{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}");
  expect_exhausted("{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}");
  expect_exhausted(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}");
  expect_exhausted(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson "
      "}}");
  expect_exhausted("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}");
  expect_exhausted("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}");
  expect_exhausted("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}");
  expect_exhausted("{{ " + repeated("not ", 5000) + "1 }}");
  expect_exhausted("{{ " + repeated("-", 5000) + "1 }}");
  expect_exhausted("{{ 1" + repeated(" + 1", 5000) + " }}");
  expect_exhausted("{{ x" + repeated(".x", 5000) + " }}");
  expect_exhausted("{{ 1" + repeated("|abs", 5000) + " }}");
  expect_exhausted("{{ 1" + repeated(" if 1 else 1", 5000) + " }}");
  expect_exhausted(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000));
  expect_exhausted(
      "{{ range(9999)|map('string')|list|length }}{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}");
  expect_exhausted("{{ ('\\n' * 33000000).splitlines()|length }}");
  expect_exhausted("{{ (' a' * 16000000).rsplit()|length }}");
  expect_exhausted("{{ 'a' }}", {.steps_max = 1});
  expect_exhausted("{{ 'aaaa' * 100 }}", {.output_bytes_max = 100});
  expect_exhausted("{% set x = 'aaaa' * 1000 %}", {.memory_bytes_max = 1000});
  expect_exhausted(std::string((std::size_t{1} << 20) + 1, 'x'));
}

TEST(TemplateBounds, ManyNamesAndArgumentsEnd) {
  std::string names, arguments;
  for (int i = 0; i < 20'000; ++i) {
    names += "{% set a" + std::to_string(i) + " = 1 %}";
    arguments += "a" + std::to_string(i) + "=1,";
  }
  EXPECT_EQ(rendered(names + "{{ a9 }}"), "1");
  EXPECT_EQ(rendered("{{ f(" + arguments + ") }}"), "parse error: line 1: more than 1000 named arguments");
}

TEST(TemplateBounds, SearchesAreLinear) {
  // Each would take the product of both lengths in a plain search: 10^11 comparisons.
  const char* source =
      "{% set t = 'a' * 1000000 %}{% set n = 'a' * 300000 + 'b' %}"
      "{{ n in t }}{{ t.find(n) }}{{ t.rfind('b' + 'a' * 300000) }}{{ t.count(n) }}{{ t.split(n)|length }}"
      "{{ t.replace(n, '')|length }}{{ t.rsplit(n)|length }}";
  EXPECT_EQ(rendered(source), "False-1-10110000001");
}

TEST(TemplateBounds, LongConversationsFit) {
  Json input;
  for (int i = 0; i < 500; ++i) {
    input["messages"].push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(2000, 'x')}});
  }
  const auto parsed = Template::parse(
      "{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out + m.role + m.content|trim %}"
      "{% endfor %}{{ messages|length }}");
  ASSERT_TRUE(parsed.ok());
  const auto out = (*parsed)->render(input);
  EXPECT_TRUE(out.ok()) << out.status().message();
}

TEST(Template, OneServesManyThreads) {
  const auto parsed =
      Template::parse("{% macro m(x) %}{{ x|upper }}{% endmacro %}{% for i in l %}{{ m('a' ~ i) }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto out = (*parsed)->render(Json::parse(R"({"l":[1,2,3]})"));
        right[t] += out.ok() && *out == "A1A2A3";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 200));
}

}  // namespace
}  // namespace lode::text
