// Random sessions over the store, checked against the tokens themselves: whatever is evicted, delayed, damaged,
// refused, cancelled or restarted, every byte that a query could see is what computing its tokens would have written,
// memory stays within its bound, and nothing waits for ever. Seeded, so that a failure repeats. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "kv/store_test_util.h"

namespace lode::kv::test {

class Sessions {
 public:
  Sessions(std::uint32_t seed, RigOptions options) : rng_(seed), options_(options), rig_(std::move(options)) {
    for (int i = 0; i < 4; ++i) documents_.push_back(random_tokens(rng_, 200 + 150 * i));
    for (int i = 0; i < 3; ++i) {  // Siblings: the same beginning, another end.
      Tokens d = head(documents_[3], 100 + 130 * i);
      documents_.push_back(concat(d, random_tokens(rng_, 250)));
    }
  }

  void run(int actions) {
    for (int i = 0; i < actions && !::testing::Test::HasFailure(); ++i) one();
    finish();
  }
  // One action, and what must hold after it.
  void one() {
    act();
    rig_.check();
    progress();
  }
  // Ends all sessions and gives up everything that memory holds.
  void finish() {
    while (!runs_.empty()) close(runs_.begin());
    *rig_.knobs = {};
    shared += static_cast<std::int64_t>(rig_.store->stats().hits_in_flight_tokens);
    // A write that failed is queued again by a later poll, and pins its blocks until then: a few rounds.
    // So does a read that nobody waits for any more.
    for (int i = 0; i < 10 && (i == 0 || rig_.store->stats().pinned_bytes > 0); ++i) {
      if (background) background();
      EXPECT_TRUE(rig_.store->flush(60'000));
    }
    rig_.store->drop_ram();
    EXPECT_EQ(rig_.store->stats().committed_bytes, 0u) << "some slot has leaked";
    EXPECT_EQ(rig_.store->stats().vram_kv_bytes, 0u) << "some slot of the device has leaked";
    EXPECT_EQ(rig_.store->stats().pinned_bytes, 0u);
    if (!rig_.device) return;
    to_device += rig_.device->copied_in;
    to_ram += rig_.device->copied_out;
  }
  void reseed(std::uint32_t seed) { rng_.seed(seed); }
  Rig& rig() { return rig_; }
  std::size_t live() const { return runs_.size(); }
  enum class Restarts : std::uint8_t { no, yes } restarts = Restarts::yes;
  // Lets background work end that no thread does (platform::Turns).
  std::function<void()> background;
  // What hurts a disk tier that is not the fake; a call every 50 actions or so.
  std::function<void(std::mt19937&)> hurt;
  std::int64_t reused = 0, repairs = 0, preemptions = 0, shared = 0;
  std::uint64_t to_device = 0, to_ram = 0;  // Bytes copied, where there is a device.

 private:
  using Live = std::list<Rig::Run>::iterator;

  bool chance(unsigned percent) { return rng_() % 100 < percent; }

  void act() {
    const unsigned what = rng_() % 100;
    if (what < 14) open_some();
    else if (what < 72) step_some();
    else if (what < 78 && !runs_.empty()) close(pick());
    else if (what < 81 && !runs_.empty()) rig_.store->mark_resume_point(*pick()->seq);
    else if (what < 88) rig_.store->poll();
    else if (what < 90) rig_.clock.advance_ns(static_cast<std::int64_t>(rng_() % 3'000'000'000));
    else if (what < 92) rig_.store->drop_ram();
    else if (what < 93) rig_.store->flush(1000);
    else if (what < 97) turn_knobs();
    else if (what < 99) hurt_disk();
    else if (chance(20) && restarts == Restarts::yes) restart();
    if (chance(50)) {
      rig_.store->poll();
      rig_.check_unpinned();
    }
  }

  void open_some() {
    const Tokens& d = documents_[rng_() % documents_.size()];
    const auto n = static_cast<std::int64_t>(d.size());
    const std::int64_t keep = chance(40) ? n : 1 + static_cast<std::int64_t>(rng_() % static_cast<unsigned>(n));
    const Tokens prompt = concat(head(d, keep), random_tokens(rng_, static_cast<std::int64_t>(rng_() % 80), 3));
    const int copies = chance(20) ? 3 : 1;
    std::vector<std::int64_t> marks;
    if (chance(20)) marks = {static_cast<std::int64_t>(rng_() % 500), keep};
    for (int i = 0; i < copies; ++i) start(prompt, chance(10) ? "bob" : "", marks);
  }
  bool start(Tokens tokens, const std::string& salt, std::vector<std::int64_t> marks = {}) {
    if (runs_.size() >= static_cast<std::size_t>(options_.sequences)) return false;
    auto r = rig_.open(std::move(tokens), salt, std::move(marks));
    if (!r) return false;
    runs_.push_back(std::move(*r));
    note(runs_.back());
    return true;
  }
  void note(const Rig::Run& r) {
    if (rig_.store->state(*r.seq) != SeqState::ready) return;
    const Reuse& u = rig_.store->reuse(*r.seq);
    EXPECT_EQ(u.from_ram + u.from_disk + u.from_in_flight, u.tokens_reused);
    EXPECT_LT(u.tokens_reused, u.prompt_tokens);
    EXPECT_FALSE(u.reason.empty());
    if (options_.computed_prefixes && u.tokens_reused > 0) {
      EXPECT_TRUE(options_.computed_prefixes->contains(r.hash[static_cast<std::size_t>(u.tokens_reused) - 1]))
          << u.tokens_reused << " tokens are reused that nobody has computed with this salt and model";
    }
    reused += u.tokens_reused;
  }

  Live pick() { return std::next(runs_.begin(), static_cast<std::ptrdiff_t>(rng_() % runs_.size())); }

  // One batch of some ready sequences, as an engine would: grow each, preempt the youngest others where memory is
  // short.
  void step_some() {
    std::vector<std::pair<Rig::Run*, std::int64_t>> parts;
    for (auto it = runs_.begin(); it != runs_.end(); ++it) {
      if (rig_.store->state(*it->seq) != SeqState::ready || chance(40)) continue;
      if (rig_.left(*it) == 0) rig_.append(*it, static_cast<TokenId>(rng_() % 3));
      if (static_cast<std::int64_t>(it->tokens.size()) > options_.context) continue;
      std::int64_t count = std::min(rig_.left(*it), options_.chunk);
      if (chance(50)) count = 1 + static_cast<std::int64_t>(rng_() % static_cast<unsigned>(count));
      if (!chance(10)) count = rig_.store->step_limit(*it->seq, count);  // Passing a checkpoint is allowed.
      while (!rig_.store->grow(*it->seq, count).ok()) {
        if (std::next(it) == runs_.end()) {
          count = 0;
          break;
        }
        preempt(std::prev(runs_.end()));
      }
      if (count > 0) parts.push_back({&*it, count});
    }
    if (parts.empty()) return;
    if (chance(3)) return;  // The step was abandoned.
    repairs += rig_.step(parts, chance(5) ? Rig::Then::abandon : Rig::Then::commit) == Rig::Stepped::repaired;
  }
  void preempt(Live victim) {
    ++preemptions;
    waiting_.emplace_back(std::move(victim->tokens), victim->salt);
    close(victim);
  }
  void close(Live it) {
    rig_.close(*it);
    runs_.erase(it);
  }

  // If any sequence is live, one of them can be stepped.
  void progress() {
    bool any = runs_.empty();
    for (auto& r : runs_) any |= rig_.store->state(*r.seq) == SeqState::ready;
    ASSERT_TRUE(any) << "everybody waits for somebody";
    if (!waiting_.empty() && chance(30) && start(waiting_.front().first, waiting_.front().second))
      waiting_.erase(waiting_.begin());
  }

  void turn_knobs() {
    FakeDiskTier::Knobs& k = *rig_.knobs;
    k.writes_per_poll = std::array<int, 3>{0, 1, 1 << 30}[rng_() % 3];
    k.reads_per_poll = std::array<int, 3>{0, 1, 1 << 30}[rng_() % 3];
    k.queue_max = std::array<std::size_t, 4>{0, 2, 1 << 30, 1 << 30}[rng_() % 4];
    k.writes = chance(20) ? FakeDiskTier::Knobs::Fail::yes : FakeDiskTier::Knobs::Fail::no;
    k.refuse = chance(15) ? WriteResult::dropped_quota : WriteResult::queued;
  }
  void hurt_disk() {
    if (hurt) hurt(rng_);
    for (auto it = rig_.stored->blocks.begin(); it != rig_.stored->blocks.end();) {
      const unsigned what = rng_() % 100;
      const auto group = static_cast<std::uint32_t>(rng_() % std::max<std::size_t>(2, options_.groups.size()));
      if (what < 3) it->second.damaged.insert(group);
      else if (what < 6) it->second.bytes.erase(group);  // Evicted there, one group's extent at a time.
      else if (what < 9) it->second.flaky.insert(group);
      if (what == 9) it = rig_.stored->blocks.erase(it);
      else ++it;
    }
  }
  void restart() {
    while (!runs_.empty()) close(runs_.begin());
    if (chance(50)) rig_.store->flush(1000);
    rig_.restart();
  }

  std::mt19937 rng_;
  const RigOptions options_;
  Rig rig_;
  std::vector<Tokens> documents_;
  std::list<Rig::Run> runs_;
  std::vector<std::pair<Tokens, std::string>> waiting_;  // Preempted.
};

}  // namespace lode::kv::test
