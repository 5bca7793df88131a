// The engine on tiny models with known weights: exactness across batching, preemption, restart; cancel; limits.
#include "engine/engine.h"

#include <filesystem>
#include <fstream>
#include <mutex>

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "engine/test_collector.h"

namespace lode::engine {
namespace {

namespace fs = std::filesystem;

using test::Collector, test::expect_same, test::prompt, test::request, test::run;

class EngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto data = lode::test::shared_data();
    if (data.empty()) GTEST_SKIP() << "shared test data is absent";
    options.model = data / "arch" / GetParam();
    options.kv_disk = "off";
    options.threads = 2;
    options.slots = 4;
    options.chunk = 64;
    disk = fs::temp_directory_path() / ("lode_engine_test_" + std::to_string(::getpid()) + "_" + GetParam());
    fs::remove_all(disk);
  }
  void TearDown() override { fs::remove_all(disk); }

  std::unique_ptr<Engine> make() {
    auto e = Engine::create(options);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return std::move(e).value();
  }

  EngineOptions options;
  fs::path disk;
};

TEST_P(EngineTest, AnswersAndCountsTokens) {
  auto engine = make();
  Collector c;
  Request r = request(prompt(100));
  r.progress = Request::Progress::yes;
  run(*engine, std::move(r), c);
  EXPECT_EQ(c.last.kind, Event::Kind::finished);
  EXPECT_EQ(c.last.finish, FinishReason::length);
  EXPECT_EQ(c.last.timings.prompt_n, 100);
  EXPECT_EQ(c.last.timings.cache_n, 0);
  EXPECT_EQ(c.last.timings.predicted_n, 24);
  EXPECT_EQ(c.tokens.size(), 24u);
  ASSERT_EQ(c.progress.size(), 2u);  // 64 + 36 tokens.
  EXPECT_EQ(c.progress[0].processed, 64);
  EXPECT_EQ(c.progress[1].processed, 100);
  EXPECT_EQ(c.tokens[0].top[0].first, c.tokens[0].id);
}

// A reply follows its prompt: the space that its first token begins with is text.
TEST_P(EngineTest, B11_TheFirstSpaceOfAReplyStays) {
  auto engine = make();
  Collector c;
  Request r = request(prompt(40), 3);
  r.sampling.logit_bias = {{103, 1e6f}};  // "▁the" in both vocabularies.
  run(*engine, std::move(r), c);
  EXPECT_EQ(c.text, " the the the");
}

TEST_P(EngineTest, WarmEqualsColdAndReusesWholeBlocks) {
  auto engine = make();
  Collector cold, warm, other;
  run(*engine, request(prompt(200)), cold);
  run(*engine, request(prompt(200)), warm);
  expect_same(cold, warm);
  EXPECT_EQ(warm.last.reuse.tokens_reused, 192);
  EXPECT_EQ(warm.last.reuse.from_ram, 192);
  EXPECT_EQ(warm.last.timings.prompt_n, 8);
  run(*engine, request(prompt(200, 1, 195)), other);  // Another question behind the same prefix.
  EXPECT_EQ(other.last.reuse.tokens_reused, 192);
}

TEST_P(EngineTest, BatchedEqualsAlone) {
  std::vector<Collector> alone(4), batched(4);
  {
    auto engine = make();
    for (int i = 0; i < 4; ++i) run(*engine, request(prompt(70 + 20 * i, i + 1)), alone[static_cast<std::size_t>(i)]);
  }
  auto engine = make();
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(engine->submit(request(prompt(70 + 20 * i, i + 1)), batched[static_cast<std::size_t>(i)].sink()).ok());
  for (auto& c : batched) c.wait();
  for (std::size_t i = 0; i < 4; ++i) expect_same(alone[i], batched[i]);
}

TEST_P(EngineTest, TenAtOnceComputeAColdPrefixOnce) {
  options.slots = 10;
  auto engine = make();
  std::vector<Collector> all(10);
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(engine->submit(request(prompt(330, i, 322), 4), all[static_cast<std::size_t>(i)].sink()).ok());
  std::int64_t computed = 0;
  for (auto& c : all) {
    c.wait();
    ASSERT_EQ(c.last.kind, Event::Kind::finished) << c.last.error.message();
    computed += c.last.timings.prompt_n;
  }
  EXPECT_EQ(computed, 330 + 9 * 10);  // 320 tokens are whole blocks.
}

TEST_P(EngineTest, RestartEqualsCold) {
  options.kv_disk = disk.string();
  Collector cold, restored, shared;
  {
    auto engine = make();
    run(*engine, request(prompt(400)), cold);
    engine->stop(0);
  }
  {
    auto engine = make();
    run(*engine, request(prompt(400)), restored);
    expect_same(cold, restored);
    EXPECT_EQ(restored.last.reuse.tokens_reused, 384);
    EXPECT_EQ(restored.last.reuse.from_disk, 384);
  }
  auto engine = make();
  run(*engine, request(prompt(400, 3, 240)), shared);  // 60% of the prefix.
  EXPECT_EQ(shared.last.reuse.tokens_reused, 224);
  EXPECT_EQ(shared.last.reuse.from_disk, 224);
  options.kv_disk = "off";
  auto fresh = make();
  Collector again;
  run(*fresh, request(prompt(400, 3, 240)), again);
  expect_same(again, shared);
}

TEST_P(EngineTest, SaltsShareNothing) {
  auto engine = make();
  Collector a, b, c;
  Request r = request(prompt(100));
  r.salt = "alice";
  run(*engine, r, a);
  r.salt = "bob";
  run(*engine, r, b);
  EXPECT_EQ(b.last.reuse.tokens_reused, 0);
  r.salt = "alice";
  run(*engine, r, c);
  EXPECT_EQ(c.last.reuse.tokens_reused, 96);
}

TEST_P(EngineTest, CancelEndsWithinAStepAndLeavesOthersAlone) {
  auto engine = make();
  Collector victim, other, quiet;
  run(*engine, request(prompt(60), 40), quiet);
  Request endless = request(prompt(50, 2), 400);
  const auto id = engine->submit(std::move(endless), victim.sink());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(engine->submit(request(prompt(60), 40), other.sink()).ok());
  engine->cancel(id.value());
  engine->cancel(123456);  // Unknown.
  victim.wait();
  other.wait();
  EXPECT_EQ(victim.last.finish, FinishReason::cancelled);
  expect_same(quiet, other);
}

TEST_P(EngineTest, QueuedRequestsCanBeCancelledAndRefused) {
  options.slots = 1;
  options.queue_max = 2;
  auto engine = make();
  Collector first, second;
  const auto a = engine->submit(request(prompt(50), 400), first.sink());
  ASSERT_TRUE(a.ok());
  std::vector<Collector> more(64);
  int refused = 0;
  std::vector<RequestId> ids;
  std::vector<Collector*> accepted;
  for (auto& c : more) {
    auto r = engine->submit(request(prompt(50), 400), c.sink());
    if (r.ok()) {
      ids.push_back(r.value());
      accepted.push_back(&c);
    } else {
      EXPECT_EQ(r.status().code(), Code::unavailable);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  for (RequestId id : ids) engine->cancel(id);
  for (Collector* c : accepted) {
    c->wait();
    EXPECT_EQ(c->last.finish, FinishReason::cancelled);
  }
  engine->cancel(a.value());
  first.wait();
}

// Also while a step runs, which may take seconds.
TEST_P(EngineTest, WaitingRequestsAreCountedAtOnce) {
  options.slots = 1;
  auto engine = make();
  Collector first;
  const auto running = engine->submit(request(prompt(50), 1500), first.sink());
  ASSERT_TRUE(running.ok());
  {
    std::unique_lock lock(first.mutex);
    ASSERT_TRUE(first.ready.wait_for(lock, std::chrono::seconds(60), [&] { return !first.tokens.empty(); }));
  }
  std::vector<Collector> more(20);
  std::vector<RequestId> ids;
  for (auto& c : more) {
    ids.push_back(engine->submit(request(prompt(50)), c.sink()).value());
    EXPECT_EQ(engine->stats().queued, static_cast<std::int64_t>(ids.size()));
    EXPECT_EQ(engine->stats().slots_busy, 1);
  }
  for (RequestId id : ids) engine->cancel(id);
  for (auto& c : more) c.wait();
  engine->cancel(running.value());
  first.wait();
}

TEST_P(EngineTest, LimitsAreClearErrors) {
  options.ctx = 256;
  auto engine = make();
  EXPECT_EQ(engine->info().context_max, 256);
  auto none = [](Event&&) {};
  auto r = engine->submit(request({}), none);
  EXPECT_EQ(r.status().code(), Code::invalid_argument);
  r = engine->submit(request({1, 2, 9999}), none);
  EXPECT_NE(r.status().message().find("9999"), std::string::npos);
  r = engine->submit(request(prompt(256)), none);
  EXPECT_NE(r.status().message().find("256 tokens"), std::string::npos) << r.status().message();
  Collector full;  // D12: a full context is `length`.
  run(*engine, request(prompt(250), -1), full);
  EXPECT_EQ(full.last.finish, FinishReason::length);
  EXPECT_EQ(full.tokens.size(), 6u);
  Collector zero;
  run(*engine, request(prompt(40), 0), zero);
  EXPECT_EQ(zero.last.finish, FinishReason::length);
  EXPECT_EQ(zero.tokens.size(), 0u);
}

TEST_P(EngineTest, StopStringsEndTheText) {
  auto engine = make();
  Collector whole, cut;
  run(*engine, request(prompt(64), 30), whole);
  ASSERT_GE(whole.text.size(), 8u);
  Request r = request(prompt(64), 30);
  const std::string stop = whole.text.substr(whole.text.size() / 2, 3);
  r.stop = {stop};
  run(*engine, std::move(r), cut);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.last.finish, FinishReason::stop);
  EXPECT_EQ(cut.last.stop_string, stop);
}

TEST_P(EngineTest, SeedsReproduceWhateverTheBatch) {
  auto engine = make();
  const auto sampled = [&](std::uint64_t seed) {
    Request r = request(prompt(64), 30);
    r.sampling.temperature = 1.2f;
    r.sampling.top_p = 0.95f;
    r.sampling.seed = seed;
    return r;
  };
  Collector a, b, c, d;
  run(*engine, sampled(7), a);
  ASSERT_TRUE(engine->submit(sampled(7), b.sink()).ok());
  ASSERT_TRUE(engine->submit(sampled(8), c.sink()).ok());
  ASSERT_TRUE(engine->submit(request(prompt(90, 5), 30), d.sink()).ok());
  b.wait();
  c.wait();
  d.wait();
  expect_same(a, b);
  EXPECT_NE(a.text, c.text);
}

INSTANTIATE_TEST_SUITE_P(Tiny, EngineTest, ::testing::Values("llama.gguf", "gemma3.gguf"), [](const auto& info) {
  return std::string(info.param).substr(0, std::string(info.param).find('.'));
});

}  // namespace
}  // namespace lode::engine
