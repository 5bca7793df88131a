#include "kv/trace_recorder.h"

#include <gtest/gtest.h>

#include <string>

#include "kv/store_test_util.h"
#include "kv/trace.h"

namespace lode::kv::test {
namespace {

sim::Trace recorded(Rig& rig, std::string* text = nullptr) {
  const auto bytes = rig.files.contents("/trace");
  if (!bytes) return {};
  const std::string all(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (text) *text = all;
  auto trace = sim::parse_trace(all);
  EXPECT_TRUE(trace.ok()) << trace.status().message() << "\n" << all;
  return trace.ok() ? std::move(*trace) : sim::Trace{};
}

TEST(TraceRecorder, SaysWhatRequestsShare) {
  std::mt19937 rng(1);
  Rig rig({.trace = "/trace"});
  const Tokens first = random_tokens(rng, 32 * 10 + 5);
  Tokens second(first.begin(), first.begin() + 32 * 6 + 9);  // Parts from it inside its seventh block.
  for (const TokenId id : random_tokens(rng, 32 * 4)) second.push_back(id);
  auto run = rig.open(first);  // With an answer of 100 tokens.
  ASSERT_TRUE(run && rig.finish(*run));
  for (const TokenId id : random_tokens(rng, 100)) {
    rig.append(*run, id);
    ASSERT_TRUE(rig.finish(*run));
  }
  const Tokens all = run->tokens;
  rig.close(*run);
  rig.clock.advance_seconds(7);
  rig.serve(random_tokens(rng, 20));  // Less than a block.
  rig.serve(second);
  rig.serve(all);
  rig.serve(second, "another salt");
  rig.serve(second);
  std::string text;
  const sim::Trace trace = recorded(rig, &text);
  ASSERT_EQ(trace.size(), 5u) << text;
  const auto expect = [&](std::size_t i, std::int64_t from, std::int64_t shared, std::int64_t prompt,
                          std::int64_t generated) {
    EXPECT_EQ(trace[i].from, from) << i;
    EXPECT_EQ(trace[i].shared, shared) << i;
    EXPECT_EQ(trace[i].prompt, prompt) << i;
    EXPECT_EQ(trace[i].generated, generated) << i;
  };
  expect(0, -1, 0, 10, 3);
  expect(1, 0, 6, 10, 0);
  expect(2, 0, 13, 13, 0);
  expect(3, -1, 0, 10, 0);
  expect(4, 1, 10, 10, 0);
  EXPECT_GE(trace[1].seconds, 7);
}

TEST(TraceRecorder, ADiskThatFailsEndsItAndNothingElse) {
  std::mt19937 rng(2);
  Rig rig({.trace = "/trace"});
  rig.serve(random_tokens(rng, 100));
  rig.files.reset_ops();
  rig.files.fail_at(0, ENOSPC, 1000);
  const Tokens prompt = random_tokens(rng, 100);
  rig.serve(prompt);
  EXPECT_EQ(rig.serve(prompt).tokens_reused, 96);
  EXPECT_EQ(recorded(rig).size(), 1u);
}

}  // namespace
}  // namespace lode::kv::test
