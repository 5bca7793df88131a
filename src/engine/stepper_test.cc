// The step over a made-up hybrid: a recurrent layer whose state is a hash of all tokens, and an attention layer whose
// output is a hash of all K before. Both come out of the KV store, so that a wrong byte changes every later token.
#include "engine/stepper.h"

#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "platform/fake_clock.h"
#include "platform/fake_file_system.h"

namespace lode::engine {
namespace {

constexpr LayerIndex kAttention{0}, kRecurrent{1};
constexpr std::int64_t kSlots = 4, kContext = 2000;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ (b + 0x9E3779B97F4A7C15ull)) * 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

class FakeHybrid final : public model::Model {
 public:
  explicit FakeHybrid(std::int64_t vocab) {
    facts_.vocab = vocab;
    model::CacheGroup full, state;
    full.layers = {{kAttention, 1, 256, 256}};  // 32 KiB a block.
    state.kind = model::CacheGroup::Kind::checkpoint;
    state.layers = {{.layer = kRecurrent, .state_bytes = 40}};
    groups_ = {full, state};
  }
  std::uint64_t scratch_bytes(const model::StepLimits&) const override { return 64; }

  Status forward(kernels::Stream&, const model::Batch& batch, model::KvView& kv, const model::StepLimits&, std::byte*,
                 float* logits) const override {
    std::vector<std::uint64_t> rows(batch.ids.size());
    ++steps;
    if (steps == fail_at) return Status::corrupt("this step is abandoned before anything was computed");
    LODE_RETURN_IF_ERROR(kv.wait(kAttention));
    for (const kernels::KvRun& run : kv.runs(kAttention)) {
      const auto at = [&](std::int64_t position) {
        return run.blocks[position / 32] + kv.layer(kAttention).k_offset + position % 32 * 2;
      };
      std::uint64_t sum = 1;
      for (std::int64_t p = 0; p < run.first_position + run.count; ++p) {
        const auto row = static_cast<std::size_t>(run.first_row + p - run.first_position);
        std::uint16_t k = 0;
        if (p >= run.first_position) {
          k = static_cast<std::uint16_t>(mix(static_cast<std::uint64_t>(batch.ids[row]), 3));
          std::memcpy(at(p), &k, 2);
        }
        std::memcpy(&k, at(p), 2);
        sum = mix(sum, k);
        if (p >= run.first_position) rows[row] = sum;
      }
    }
    LODE_RETURN_IF_ERROR(kv.wait(kRecurrent));
    for (const kernels::StateRun& run : kv.states(kRecurrent)) {
      std::uint64_t state = 5;
      if (run.in) std::memcpy(&state, run.in + 32, 8);
      for (std::int64_t i = run.first_row; i < run.first_row + run.count; ++i) {
        state = mix(state, static_cast<std::uint64_t>(batch.ids[static_cast<std::size_t>(i)]));
        rows[static_cast<std::size_t>(i)] = mix(rows[static_cast<std::size_t>(i)], state);
      }
      std::memcpy(run.out + 32, &state, 8);
    }
    if (steps == spoil_at) return Status::corrupt("this step is abandoned after everything was computed");
    for (std::size_t o = 0; o < batch.output_rows.size(); ++o)
      for (std::int64_t v = 0; v < facts_.vocab; ++v)
        logits[static_cast<std::int64_t>(o) * facts_.vocab + v] = static_cast<float>(
            mix(rows[static_cast<std::size_t>(batch.output_rows[o])], static_cast<std::uint64_t>(v)) >> 40);
    return Status::success();
  }

  mutable int steps = 0;
  int fail_at = -1, spoil_at = -1;
};

// One process: a runtime made by hand and a stepper. The disk is the test's.
class Machine {
 public:
  Machine(const std::filesystem::path& vocabulary, platform::FakeFileSystem& fs, std::int64_t chunk,
          std::uint64_t arena_bytes = 64 << 20) {
    auto file = gguf::File::open(vocabulary, {});
    EXPECT_TRUE(file.ok());
    rt_.file = std::move(file).value();
    rt_.tokenizer = text::Tokenizer::load(*rt_.file).value();
    auto hybrid = std::make_unique<FakeHybrid>(128);
    model = hybrid.get();
    rt_.model = std::move(hybrid);
    rt_.limits = {.rows = chunk + kSlots - 1, .outputs = kSlots, .runs = kSlots, .context = kContext};
    rt_.scratch = std::make_unique<model::Workspace>(64);
    rt_.logits = std::make_unique<model::Workspace>(kSlots * 128 * sizeof(float));
    rt_.info.chunk = chunk;
    rt_.info.context_max = kContext;
    kv::StoreConfig c;
    c.groups.assign(rt_.model->groups().begin(), rt_.model->groups().end());
    c.arena_bytes_max = c.unpinned_bytes_max = arena_bytes;
    c.chunk_tokens = chunk;
    c.context_max = kContext;
    c.sequences_max = kSlots;
    c.checkpoint_tokens = 256;
    c.disk.emplace();
    c.disk->dir = "/kv";
    c.disk->quota_bytes = 1 << 30;
    c.disk->free_floor_bytes = 0;
    auto store = kv::Store::open(c, fs, clock_);
    EXPECT_TRUE(store.ok()) << store.status().message();
    rt_.store = std::move(store).value();
    stepper_ = std::make_unique<Stepper>(rt_, clock_);
  }
  ~Machine() { EXPECT_TRUE(rt_.store->flush(20'000)); }

  struct Answer {
    std::vector<TokenId> tokens;
    Event last;
    bool over = false;
  };
  std::shared_ptr<Answer> submit(std::vector<TokenId> prompt, int n = 40, std::vector<std::int64_t> marks = {}) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = n;
    r.sampling.temperature = 0;
    r.top_logprobs = 0;
    r.end_tokens = Request::EndTokens::ignore;
    r.marks = std::move(marks);
    auto answer = std::make_shared<Answer>();
    auto sink = [answer](Event&& e) {
      for (const TokenInfo& t : e.tokens) answer->tokens.push_back(t.id);
      answer->over = e.kind == Event::Kind::finished || e.kind == Event::Kind::failed;
      if (answer->over) answer->last = std::move(e);
    };
    stepper_->enqueue(std::make_unique<Live>(++id_, std::move(r), std::move(sink), *rt_.tokenizer, 0));
    return answer;
  }
  void run() {
    for (int i = 0; i < 20'000 && !stepper_->idle(); ++i) stepper_->step();
    EXPECT_TRUE(stepper_->idle()) << "nothing ends";
  }
  std::shared_ptr<Answer> answer(std::vector<TokenId> prompt, int n = 40, std::vector<std::int64_t> marks = {}) {
    auto a = submit(std::move(prompt), n, std::move(marks));
    run();
    EXPECT_EQ(a->last.kind, Event::Kind::finished) << a->last.error.message();
    return a;
  }
  std::int64_t preemptions() const { return stepper_->counters().preemptions; }

  FakeHybrid* model = nullptr;

 private:
  platform::FakeClock clock_;
  Runtime rt_;
  std::unique_ptr<Stepper> stepper_;
  RequestId id_ = 0;
};

class HybridStepper : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto data = lode::test::shared_data();
    if (data.empty()) GTEST_SKIP() << "shared test data is absent";
    vocabulary = data / "arch" / "llama.gguf";
  }
  static std::vector<TokenId> prompt(int n, int seed = 0, int from = 0) {
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(5 + (i * 37 + (i >= from ? seed * 11 : 0)) % 120);
    return ids;
  }
  // With nothing cached, in one chunk.
  std::vector<TokenId> truth(std::vector<TokenId> ids, int n = 40) {
    platform::FakeFileSystem fs;
    return Machine(vocabulary, fs, 1024).answer(std::move(ids), n)->tokens;
  }
  std::filesystem::path vocabulary;
  platform::FakeFileSystem fs;
};

TEST_F(HybridStepper, ColdWarmRestoredAndAnyChunkAnswerAlike) {
  const auto expected = truth(prompt(700));
  for (const std::int64_t chunk : {1, 31, 64, 512}) {
    platform::FakeFileSystem own;
    for (const char* how : {"cold", "restored"}) {
      SCOPED_TRACE(how);
      Machine m(vocabulary, own, chunk);
      const auto first = m.answer(prompt(700));
      EXPECT_EQ(first->tokens, expected) << chunk;
      EXPECT_EQ(first->last.reuse.tokens_reused, how == std::string("cold") ? 0 : 672);
      EXPECT_EQ(first->last.reuse.from_disk, first->last.reuse.tokens_reused);
      const auto again = m.answer(prompt(700));
      EXPECT_EQ(again->tokens, expected);
      EXPECT_EQ(again->last.reuse.from_ram, 672);
      EXPECT_EQ(again->last.reuse.resume, "checkpoint");
      EXPECT_EQ(again->last.timings.prompt_n, 28);
    }
  }
}

TEST_F(HybridStepper, ANextTurnResumesAtTheEndOfTheLast) {
  Machine m(vocabulary, fs, 64);
  auto ids = prompt(300);
  const auto turn = m.answer(ids, 150);
  ids.insert(ids.end(), turn->tokens.begin(), turn->tokens.end());
  ids.insert(ids.end(), 20, 9);
  const auto next = m.answer(ids);
  EXPECT_EQ(next->last.reuse.tokens_reused, 448);  // Of 450 that were there.
  EXPECT_EQ(next->tokens, truth(ids));
}

TEST_F(HybridStepper, MarksReachTheStore) {
  Machine m(vocabulary, fs, 64);
  m.answer(prompt(700), 4, {330});
  const auto other = m.answer(prompt(500, 1, 335));
  EXPECT_EQ(other->last.reuse.tokens_reused, 320);
  EXPECT_EQ(other->tokens, truth(prompt(500, 1, 335)));
}

TEST_F(HybridStepper, AFewAtOnceComputeAColdPrefixOnce) {
  Machine m(vocabulary, fs, 64);
  std::vector<std::shared_ptr<Machine::Answer>> all;
  for (int i = 0; i < kSlots; ++i) all.push_back(m.submit(prompt(600, i, 450), 10));
  m.run();
  std::int64_t computed = 0;
  for (int i = 0; i < kSlots; ++i) {
    computed += all[static_cast<std::size_t>(i)]->last.timings.prompt_n;
    EXPECT_EQ(all[static_cast<std::size_t>(i)]->tokens, truth(prompt(600, i, 450), 10));
  }
  EXPECT_EQ(computed, 448 + kSlots * 152);
}

TEST_F(HybridStepper, PreemptedSequencesAnswerAlike) {
  // One piece of 2 MiB for the history, 64 blocks: two sequences of 960 tokens fit, the other two do not.
  Machine m(vocabulary, fs, 64, 4 << 20);
  std::vector<std::shared_ptr<Machine::Answer>> all;
  for (int i = 0; i < kSlots; ++i) all.push_back(m.submit(prompt(900, i + 1), 60));
  m.run();
  for (int i = 0; i < kSlots; ++i) {
    ASSERT_EQ(all[static_cast<std::size_t>(i)]->last.kind, Event::Kind::finished)
        << all[static_cast<std::size_t>(i)]->last.error.message();
    EXPECT_EQ(all[static_cast<std::size_t>(i)]->tokens, truth(prompt(900, i + 1), 60));
  }
  EXPECT_GT(m.preemptions(), 0);
}

TEST_F(HybridStepper, AnAbandonedStepIsRepeated) {
  const auto expected = truth(prompt(200));
  for (int step = 1; step < 12; ++step) {
    platform::FakeFileSystem own;
    Machine m(vocabulary, own, 64);
    m.model->fail_at = step;
    m.model->spoil_at = step + 3;
    EXPECT_EQ(m.answer(prompt(200))->tokens, expected) << step;
  }
}

}  // namespace
}  // namespace lode::engine
