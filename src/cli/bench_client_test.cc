#include "cli/bench_client.h"

#include <gtest/gtest.h>

#include "cli/mock_server.h"

namespace lode::cli {
namespace {

using test::event;
using test::finish_event;
using test::MockServer;
using test::ok_header;
using test::Piece;
using test::text_event;
using test::usage_event;

constexpr std::string_view kDone = "data: [DONE]\n\n";

Result<Sample> ask(const MockServer& server) {
  return stream_completion(server.endpoint(), {.body = "{}", .silence_timeout_s = 5, .tick = {}});
}

TEST(BenchClient, ParsesUrls) {
  auto plain = parse_url("http://localhost:8080");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, "8080");
  EXPECT_EQ(plain->prefix, "");
  EXPECT_EQ(parse_url("http://h/v1")->prefix, "");
  EXPECT_EQ(parse_url("http://h/api/v1/")->prefix, "/api");
  EXPECT_EQ(parse_url("http://h")->port, "80");
  EXPECT_EQ(parse_url("http://[::1]:99")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:99")->port, "99");
  EXPECT_EQ(parse_url("https://h").status().code(), Code::unsupported);
  for (const char* bad : {"h:80", "http://", "http://:80", "http://h:", "http://h:8x", "ftp://h"}) {
    EXPECT_EQ(parse_url(bad).status().code(), Code::invalid_argument) << bad;
  }
}

// Four tokens a chunk, sixteen chunks, usage says 64: speed counts tokens, without the first chunk's.
TEST(BenchClient, J03_TokensAreCountedByUsageAndTheFirstChunkIsTakenOff) {
  StreamMeter meter;
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(meter.feed(2.0 + 0.1 * i, text_event("aa bb cc dd ")).ok());
  ASSERT_TRUE(meter.feed(3.6, finish_event() + usage_event(100, 64)).ok());
  ASSERT_TRUE(meter.feed(3.6, kDone).ok());
  auto sample = meter.finish();
  ASSERT_TRUE(sample.ok()) << sample.status().message();
  EXPECT_EQ(sample->chunks, 16);
  EXPECT_EQ(sample->generated_tokens, 64);
  EXPECT_EQ(sample->first_chunk_tokens, 4);
  EXPECT_DOUBLE_EQ(sample->ttft_s, 2.0);
  EXPECT_NEAR(*sample->generation_tokens_per_s(), 60 / 1.5, 1e-9);
}

TEST(BenchClient, J03_TokenTextHeldBackIsNoReasonToCountLess) {
  StreamMeter meter;  // 40 tokens in 36 chunks: some characters spread over two tokens; the first chunk is long.
  ASSERT_TRUE(meter.feed(1.0, text_event("Notwithstanding")).ok());
  for (int i = 1; i < 36; ++i) ASSERT_TRUE(meter.feed(1.0 + 0.1 * i, text_event(" a")).ok());
  ASSERT_TRUE(meter.feed(5, usage_event(10, 40) + std::string(kDone)).ok());
  auto sample = meter.finish();
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->first_chunk_tokens, 1);
  EXPECT_NEAR(*sample->generation_tokens_per_s(), 39 / 3.5, 1e-9);
}

TEST(BenchClient, J03_ListedTokensOfTheFirstChunkAreExact) {
  StreamMeter meter;
  ASSERT_TRUE(meter.feed(1, event(R"({"choices":[{"text":"abc","logprobs":{"tokens":["a","b","c"]}}]})")).ok());
  ASSERT_TRUE(meter.feed(2, text_event("defghijklmnop")).ok());
  ASSERT_TRUE(meter.feed(2, usage_event(10, 8) + std::string(kDone)).ok());
  EXPECT_EQ(meter.finish()->first_chunk_tokens, 3);
}

TEST(BenchClient, J03_EverythingInOnePieceHasNoSpeed) {
  StreamMeter meter;
  ASSERT_TRUE(meter.feed(1, text_event("all of it") + usage_event(10, 8) + std::string(kDone)).ok());
  auto sample = meter.finish();
  ASSERT_TRUE(sample.ok());
  EXPECT_FALSE(sample->generation_tokens_per_s().has_value());
}

TEST(BenchClient, J03_WordsSplitOverPacketsAreOneChunk) {
  StreamMeter meter;
  const std::string all =
      ": still computing\n\n" + text_event("one") + text_event("two") + usage_event(7, 2) + std::string(kDone);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_TRUE(meter.feed(0.01 * static_cast<double>(i), all.substr(i, 1)).ok());
  auto sample = meter.finish();
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->chunks, 2);
  EXPECT_EQ(sample->text, "onetwo");
}

// A late usage chunk must not stretch the generation's time.
TEST(BenchClient, J04_TheEndIsTheLastTokenNotTheUsage) {
  MockServer server([](int, const std::string&) {
    return std::vector<Piece>{{0, ok_header()},    {50, text_event("a")},    {100, text_event("b")},
                              {0, finish_event()}, {400, usage_event(5, 2)}, {0, std::string(kDone)}};
  });
  auto sample = ask(server);
  ASSERT_TRUE(sample.ok()) << sample.status().message();
  EXPECT_GE(sample->ttft_s, 0.045);
  EXPECT_LT(sample->last_s, 0.4);
  EXPECT_GT(*sample->generation_tokens_per_s(), 3.0);  // 1 token in about 0.1 s; with the usage's wait it would be 2.
}

TEST(BenchClient, J04_EmptyAndBrokenStreamsAreErrors) {
  MockServer server([](int n, const std::string&) -> std::vector<Piece> {
    switch (n) {
      case 0: return {{0, ok_header() + usage_event(5, 0) + std::string(kDone)}};                   // Nothing at all.
      case 1: return {{0, ok_header() + finish_event() + usage_event(5, 1) + std::string(kDone)}};  // No text.
      case 2: return {{0, ok_header() + text_event("a")}};                                          // Breaks off.
      case 3: return {{0, ok_header() + text_event("a") + event(R"({"error":{"message":"out of luck"}})")}};
      case 4: return {{0, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"}};
      case 5: return {{0, ok_header() + event("{not json")}};
      case 6: return {{0, ok_header() + text_event("a") + finish_event() + std::string(kDone)}};  // No usage.
      default: return {};                                                                         // No answer.
    }
  });
  const char* expected[] = {"empty",          "empty",   "broke off", "out of luck",
                            "HTTP 503: busy", "no JSON", "no usage",  "cannot read from"};
  for (const char* words : expected) {
    auto sample = ask(server);
    ASSERT_FALSE(sample.ok()) << words;
    EXPECT_NE(sample.status().message().find(words), std::string::npos) << sample.status().message();
  }
}

TEST(BenchClient, SilenceEndsTheWait) {
  MockServer server([](int, const std::string&) { return std::vector<Piece>{{600, ok_header()}}; });
  auto sample = stream_completion(server.endpoint(), {.body = "{}", .silence_timeout_s = 0.1, .tick = {}});
  ASSERT_FALSE(sample.ok());
  EXPECT_NE(sample.status().message().find("silent"), std::string::npos) << sample.status().message();
}

TEST(BenchClient, ReportsProgressAndReuse) {
  std::int64_t seen = 0;
  MockServer server([](int, const std::string&) {
    return std::vector<Piece>{
        {0, ok_header() + event(R"({"choices":[],"prompt_progress":{"total":90,"processed":45}})")},
        {50, event(R"({"choices":[],"cache":{"by_tier":{"ram":32,"disk":0,"in_flight":64}}})")},
        {0, text_event("x") + usage_event(97, 1, 96) + std::string(kDone)}};
  });
  auto sample = stream_completion(server.endpoint(),
                                  {.body = "{}", .silence_timeout_s = 5, .tick = [&](const StreamMeter& meter) {
                                     seen = std::max(seen, meter.progress().processed);
                                   }});
  ASSERT_TRUE(sample.ok()) << sample.status().message();
  EXPECT_EQ(seen, 45);
  EXPECT_EQ(sample->cached_tokens, 96);
  EXPECT_EQ(sample->by_tier, "64 in_flight, 32 ram");
}

TEST(BenchClient, SendsTheKeyAndReadsWholeReplies) {
  MockServer server([](int, const std::string& head) {
    return std::vector<Piece>{{0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
                              {20, fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", head.size(), head)}};
  });
  Endpoint endpoint = server.endpoint();
  endpoint.prefix = "/api";
  endpoint.api_key = "k";
  auto reply = http_get(endpoint, "/v1/models", 5);
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 200);
  EXPECT_TRUE(reply->body.starts_with("GET /api/v1/models HTTP/1.1\r\n")) << reply->body;
  EXPECT_NE(reply->body.find("Bearer k"), std::string::npos);
}

TEST(BenchClient, SaysWhomItCouldNotReach) {
  auto reply = http_get({"127.0.0.1", "1", "", ""}, "/health", 2);
  ASSERT_FALSE(reply.ok());
  EXPECT_NE(reply.status().message().find("http://127.0.0.1:1"), std::string::npos) << reply.status().message();
}

}  // namespace
}  // namespace lode::cli
