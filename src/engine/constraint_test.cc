// Answers under a constraint, and the other bounds on what may come: end tokens, stop tokens, shown tokens.
#include "engine/constraint.h"

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/test_collector.h"
#include "engine/test_constraint.h"

namespace lode::engine {
namespace {

using test::ClosingConstraint, test::Collector, test::prompt, test::request, test::run, test::ScriptedConstraint;
using Forced = ScriptedConstraint::Forced;

class ConstraintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto data = lode::test::shared_data();
    if (data.empty()) GTEST_SKIP() << "shared test data is absent";
    EngineOptions options;
    options.model = data / "arch" / "llama.gguf";
    options.kv_disk = "off";
    options.threads = 2;
    options.slots = 4;
    options.chunk = 64;
    auto made = Engine::create(options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine = std::move(made).value();
  }
  static std::vector<TokenId> ids(const Collector& c) {
    std::vector<TokenId> out;
    for (const TokenInfo& t : c.tokens) out.push_back(t.id);
    return out;
  }
  // Without log-probabilities there is only text to see.
  std::string text_of(std::span<const TokenId> tokens) {
    text::Detokenizer d(engine->tokenizer(), {.start = text::Detokenizer::Start::continuation});
    std::string out;
    for (const TokenId t : tokens) out += d.push(t);
    return out + d.flush();
  }
  TokenId eos() const { return engine->tokenizer().eos(); }

  std::unique_ptr<Engine> engine;
};

TEST_F(ConstraintTest, EveryTokenIsAllowedAndTheAnswerEndsWithTheScript) {
  const std::vector<std::vector<TokenId>> places = {{40, 41, 42}, {50}, {60, 61}, {70}};
  Request r = request(prompt(40), 24);
  r.constraint = std::make_shared<ScriptedConstraint>(places, Forced::no);
  Collector c;
  run(*engine, r, c);
  EXPECT_EQ(c.last.finish, FinishReason::stop);
  const auto got = ids(c);
  ASSERT_EQ(got.size(), places.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NE(std::find(places[i].begin(), places[i].end(), got[i]), places[i].end()) << i;
  // The likeliest of them, where the draw is greedy.
  float best = -1e30f;
  for (const auto& [id, logprob] : c.tokens[0].top) {
    if (id >= 40 && id <= 42) best = std::max(best, logprob);
  }
  EXPECT_GE(c.tokens[0].logprob, best);
  // The request's own constraint is as it was: the same again.
  Collector again;
  run(*engine, r, again);
  EXPECT_EQ(ids(again), got);
}

TEST_F(ConstraintTest, ForcedTokensGiveWhatDrawingThemGives) {
  const std::vector<std::vector<TokenId>> places = {{40, 41, 42},     {50}, {51},        {52},
                                                    {53, 54, 55, 56}, {60}, {61, 62, 63}};
  for (const float temperature : {0.0f, 1.0f}) {
    std::string texts[2];
    for (const Forced forced : {Forced::no, Forced::yes}) {
      Request r = request(prompt(100), 24);
      r.top_logprobs = -1;
      r.sampling.temperature = temperature;
      r.sampling.seed = 9;
      r.constraint = std::make_shared<ScriptedConstraint>(places, forced);
      Collector c;
      run(*engine, r, c);
      EXPECT_EQ(c.last.finish, FinishReason::stop);
      EXPECT_EQ(c.last.timings.predicted_n, 7);
      texts[forced == Forced::yes] = c.text;
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_FALSE(texts[0].empty());
  }
}

TEST_F(ConstraintTest, ForcedTextStopsAtMaxTokensAndStopStrings) {
  const std::vector<std::vector<TokenId>> places(20, {104});
  Request r = request(prompt(40), 5);
  r.top_logprobs = -1;
  r.constraint = std::make_shared<ScriptedConstraint>(places, Forced::yes);
  Collector c;
  run(*engine, r, c);
  EXPECT_EQ(c.last.finish, FinishReason::length);
  EXPECT_EQ(c.last.timings.predicted_n, 5);
  const std::string one = text_of(std::vector<TokenId>{104});
  r.max_tokens = 20;
  r.stop = {one + one + one};
  Collector stopped;
  run(*engine, r, stopped);
  EXPECT_EQ(stopped.last.finish, FinishReason::stop);
  EXPECT_EQ(stopped.text, "");
}

TEST_F(ConstraintTest, RoomForTheEndIsKept) {
  for (const int most : {1, 2, 7}) {
    Request r = request(prompt(40), most);
    r.constraint = std::make_shared<ClosingConstraint>(80, 81);
    Collector c;
    run(*engine, r, c);
    EXPECT_EQ(c.last.finish, FinishReason::stop);
    std::vector<TokenId> want(static_cast<std::size_t>(most), 80);
    want.back() = 81;
    EXPECT_EQ(ids(c), want);
  }
}

TEST_F(ConstraintTest, ChoicesAndNeighboursDoNotShareState) {
  const std::vector<std::vector<TokenId>> places(6, {40, 41, 42, 43, 44, 45});
  const auto shared = std::make_shared<ScriptedConstraint>(places, Forced::no);
  std::vector<Collector> all(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request r = request(prompt(50), 24);
    r.sampling.temperature = 1.5f;
    r.choice = i;
    r.constraint = shared;
    if (i == 3) r.constraint = nullptr;
    ASSERT_TRUE(engine->submit(std::move(r), all[i].sink()).ok());
  }
  for (Collector& c : all) c.wait();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].tokens.size(), 6u);
  EXPECT_EQ(all[3].tokens.size(), 24u);
}

TEST_F(ConstraintTest, I09_WhereNothingIsAllowedTheRequestFailsAlone) {
  Request r = request(prompt(40), 24);
  r.constraint = std::make_shared<ScriptedConstraint>(std::vector<std::vector<TokenId>>{{40}, {}}, Forced::no);
  Collector bad, good;
  ASSERT_TRUE(engine->submit(r, bad.sink()).ok());
  ASSERT_TRUE(engine->submit(request(prompt(60), 8), good.sink()).ok());
  bad.wait();
  good.wait();
  EXPECT_EQ(bad.last.kind, Event::Kind::failed);
  EXPECT_NE(bad.last.error.message().find("allows no token"), std::string::npos);
  EXPECT_EQ(good.last.finish, FinishReason::length);
}

// E16: a bias for a control token does not get it past the mask.
TEST_F(ConstraintTest, E16_AFavouredControlTokenIsMasked) {
  Request r = request(prompt(40), 24);
  r.sampling.logit_bias = {{engine->tokenizer().bos(), 1e6f}, {eos(), 1e6f}};
  r.constraint =
      std::make_shared<ScriptedConstraint>(std::vector<std::vector<TokenId>>{{40, 41}, {50, 51}}, Forced::no);
  Collector c;
  run(*engine, r, c);
  EXPECT_EQ(c.last.finish, FinishReason::stop);
  EXPECT_EQ(c.tokens.size(), 2u);
}

TEST_F(ConstraintTest, AnEndTokenUnderAConstraintEndsTheAnswer) {
  Request r = request(prompt(40), 24);  // Which ignores end tokens otherwise.
  r.constraint =
      std::make_shared<ScriptedConstraint>(std::vector<std::vector<TokenId>>{{40}, {eos()}, {50}}, Forced::no);
  Collector c;
  run(*engine, r, c);
  EXPECT_EQ(c.last.finish, FinishReason::stop);
  EXPECT_EQ(ids(c), std::vector<TokenId>{40});
}

TEST_F(ConstraintTest, MinTokensHoldsTheEndBack) {
  Request r = request(prompt(40), 24);
  r.end_tokens = Request::EndTokens::stop;
  r.sampling.logit_bias = {{eos(), 1e6f}};
  for (const int least : {0, 1, 5}) {
    r.min_tokens = least;
    Collector c;
    run(*engine, r, c);
    EXPECT_EQ(c.last.finish, FinishReason::stop);
    EXPECT_EQ(static_cast<int>(c.tokens.size()), least);
  }
}

TEST_F(ConstraintTest, StopTokensEndTheAnswerAndAreNotInIt) {
  Request r = request(prompt(40), 24);
  r.sampling.logit_bias = {{90, 1e6f}};
  r.stop_tokens = {90};
  Collector c;
  run(*engine, r, c);
  EXPECT_EQ(c.last.finish, FinishReason::stop);
  EXPECT_TRUE(c.tokens.empty());
}

TEST_F(ConstraintTest, ControlTokensAreTextOnlyWhereTheyAreShown) {
  const TokenId bos = engine->tokenizer().bos();
  Request r = request(prompt(40), 2);
  r.sampling.logit_bias = {{bos, 1e6f}};
  Collector hidden, shown;
  run(*engine, r, hidden);
  EXPECT_EQ(hidden.text, "");
  r.shown = {bos};
  run(*engine, r, shown);
  EXPECT_EQ(shown.text, "<s><s>");
  EXPECT_EQ(shown.tokens[0].bytes, "<s>");
}

}  // namespace
}  // namespace lode::engine
