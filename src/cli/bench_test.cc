#include "cli/bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bench_text.h"
#include "cli/mock_server.h"

namespace lode::cli {
namespace {

using test::finish_event;
using test::MockServer;
using test::ok_header;
using test::Piece;
using test::text_event;
using test::usage_event;

constexpr const char* kModels =
    "HTTP/1.1 200 OK\r\nContent-Type: "
    "application/json\r\n\r\n{\"data\":[{\"id\":\"mock\",\"meta\":{\"n_ctx\":30000}}]}";

std::vector<Piece> good_reply(std::string_view text) {
  std::vector<Piece> pieces = {{0, ok_header()}, {20, text_event(text)}};
  for (int i = 0; i < 9; ++i) pieces.push_back({5, text_event(" x")});
  pieces.push_back({0, finish_event() + usage_event(400, 10, 96) + "data: [DONE]\n\n"});
  return pieces;
}

BenchOptions options_for(const MockServer& server, std::vector<std::string> tests) {
  BenchOptions options;
  options.target.target = server.url();
  options.tests = std::move(tests);
  options.progress = BenchOptions::Progress::off;
  options.seed = 7;
  return options;
}

TEST(BenchText, FillerIsReproducibleAndUnlikeFromItsFirstLine) {
  EXPECT_EQ(filler(1, 5000), filler(1, 5000));
  EXPECT_NE(filler(1, 5000).substr(0, 20), filler(2, 5000).substr(0, 20));
  EXPECT_NEAR(static_cast<double>(filler(3, 70000).size()), 70000, 40);
  const Needle needle = make_needle(5);
  const std::string whole = hide(filler(1, 9000), needle);
  const std::size_t at = whole.find(needle.sentence);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GT(at, 3000u - 1);
  EXPECT_LT(at, 3200u);
  EXPECT_NE(needle.sentence.find(needle.answer), std::string::npos);
}

TEST(BenchReport, MedianAndSpread) {
  EXPECT_FALSE(spread_of({}).has_value());
  EXPECT_EQ(spread_of({3, 1, 2})->median, 2);
  EXPECT_EQ(spread_of({4, 1, 2, 3})->median, 2.5);
  EXPECT_EQ(spread_of({3, 1, 2})->least, 1);
  EXPECT_EQ(spread_of({3, 1, 2})->most, 3);
}

// Every fifth reply is empty, every fifth breaks in mid-stream: they are failures, and the figures are of the others.
TEST(Bench, J04_FailuresAreCountedAndStayOutOfTheFigures) {
  MockServer server([](int n, const std::string& head) -> std::vector<Piece> {
    if (head.starts_with("GET")) return {{0, kModels}};
    if (n < 5) return good_reply("hello");  // The calibration; figures come after it.
    if (n % 5 == 0) return {{0, ok_header() + usage_event(400, 0) + "data: [DONE]\n\n"}};
    if (n % 5 == 1) return {{0, ok_header() + text_event("a")}};
    return good_reply("hello");
  });
  BenchOptions options = options_for(server, {"depth"});
  options.depths = {1000};
  options.repeat = 10;
  auto report = measure(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->rows.size(), 1u);
  const BenchRow& row = report->rows[0];
  EXPECT_EQ(row.attempts, 10);
  EXPECT_EQ(row.failures.size(), 4u);
  EXPECT_EQ(row.ttft_s.size(), 6u);
  EXPECT_EQ(row.facts_asked, 6);
  EXPECT_EQ(row.facts_found, 0);
  for (const double s : row.ttft_s) EXPECT_GE(s, 0.015);
  for (const double rate : row.generation_tokens_per_s) EXPECT_GT(rate, 0);
  EXPECT_FALSE(report->all_succeeded());
  EXPECT_NE(to_table(*report).find("failed: depth 1000 tokens: the reply is empty"), std::string::npos)
      << to_table(*report);
}

TEST(Bench, DepthsThatDoNotFitAreSkippedWithNumbers) {
  MockServer server([](int, const std::string& head) -> std::vector<Piece> {
    if (head.starts_with("GET")) return {{0, kModels}};
    return good_reply("hello");
  });
  auto report = measure(options_for(server, {"depth"}));
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->rows.size(), 3u);
  EXPECT_EQ(report->rows[0].attempts, 1);  // 25,000 tokens fit into 30,000,
  EXPECT_EQ(report->rows[1].attempts, 0);  // 77,000 do not,
  EXPECT_NE(report->rows[1].skipped.find("the context has 30000"), std::string::npos) << report->rows[1].skipped;
  EXPECT_EQ(report->rows[2].arm, "1000 tokens");  // and the short one comes last.
  EXPECT_TRUE(report->all_succeeded());
}

TEST(Bench, AUrlHasNoRestartArmAndJsonParses) {
  MockServer server([](int, const std::string& head) -> std::vector<Piece> {
    if (head.starts_with("GET")) return {{0, kModels}};
    return good_reply("hello");
  });
  BenchOptions options = options_for(server, {"ttft", "speed"});
  options.repeat = 2;
  auto report = measure(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto json = nlohmann::json::parse(to_json(*report));
  EXPECT_EQ(json["model"], "mock");
  EXPECT_EQ(json["context"], 30000);
  ASSERT_EQ(json["rows"].size(), 3u + 4u);
  EXPECT_EQ(json["rows"][0]["arm"], "cold");
  EXPECT_EQ(json["rows"][0]["ttft_s"]["n"], 2);
  EXPECT_EQ(json["rows"][1]["cached_tokens"], 96);
  EXPECT_TRUE(json["rows"][2].contains("skipped"));
  EXPECT_EQ(json["rows"][3]["arm"], "pp512");
  EXPECT_GT(json["rows"][3]["prompt_tokens_per_s"]["median"], 0);
  EXPECT_EQ(json["rows"][6]["arm"], "tg64 @d4096");
}

TEST(Bench, SaysWhatIsWrongWithItsTarget) {
  BenchOptions options;
  options.progress = BenchOptions::Progress::off;
  options.target.target = "http://127.0.0.1:1";
  EXPECT_EQ(measure(options).status().code(), Code::unavailable);
  options.target.target = "/no/such/model.gguf";
  options.target.program = "/bin/false";  // A server that ends at once.
  auto ended = measure(options);
  ASSERT_FALSE(ended.ok());
  EXPECT_NE(ended.status().message().find("ended with code 1"), std::string::npos) << ended.status().message();
  options.tests = {"width"};
  EXPECT_EQ(measure(options).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace lode::cli
