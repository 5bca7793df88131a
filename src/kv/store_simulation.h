// A simulation of whole stores: one or two processes on one KV folder, with the real disk tier, over a fake disk, a
// fake clock and sometimes a fake device. Everything that happens is drawn from (seed, number of the operation):
// sessions, faults, crashes with lost data, killed processes, clock jumps, a vanished folder, damage. Checked against a
// plain model: the bytes that a prefix of tokens, a salt and a model must have, and the prefixes that were ever
// computed.
//
// A replay is exact: there are no threads (platform::Turns), no time and no addresses in any decision. Operations draw
// from their own seeds, so that a failing run can be cut down by leaving some out. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kv/extent.h"
#include "kv/store_sessions.h"
#include "platform/fake_file_system.h"
#include "platform/turns.h"

namespace lode::kv::test {

// What a seed stands for.
struct SimulationSetup {
  std::string groups;
  RigOptions options;
  std::uint64_t quota = 0, queue = 0, per_day = 0, floor = 0;
  int processes = 1;
  // Keys with so few bits that chains collide. The disk of another process's time cannot be told apart then (with real
  // keys there is nothing to tell apart), so that the folder is emptied with every restart.
  enum class Keys : std::uint8_t { real, weak } keys = Keys::real;

  std::string text() const {
    return fmt::format("{}, arena {} KiB, unpinned {} KiB, device {} KiB, quota {} KiB, queue {} KiB, {} process(es){}",
                       groups, options.arena_bytes >> 10, options.unpinned_bytes >> 10, options.device_bytes >> 10,
                       quota >> 10, queue >> 10, processes, keys == Keys::weak ? ", colliding keys" : "");
  }
};

// 12 bits of the key, and so the same for any continuation of two chains that collide.
inline BlockKey weak_child_key(const BlockKey& parent, std::span<const TokenId, kBlockTokens> ids) {
  BlockKey key = kv::child_key(parent, ids);
  for (std::size_t i = 2; i < key.bytes.size(); ++i) key.bytes[i] = 0;
  key.bytes[1] &= 0x0f;
  return key;
}

inline SimulationSetup make_setup(std::uint64_t seed) {
  std::mt19937_64 rng(mix(seed, 0x5e7));
  const auto one_of = [&](std::initializer_list<std::uint64_t> from) { return from.begin()[rng() % from.size()]; };
  SimulationSetup s;
  RigOptions& o = s.options;
  const unsigned kind = rng() % 6;
  const char* const names[] = {"full", "window", "chunk", "hybrid", "three groups", "recurrent alone"};
  s.groups = names[kind];
  o.groups = kind == 0   ? full_groups()
             : kind <= 2 ? window_groups()
             : kind == 3 ? hybrid_groups()
             : kind == 4 ? three_groups()
                         : std::vector{state_group()};
  if (kind == 2) o.groups[1].kind = model::CacheGroup::Kind::chunk, o.groups[1].window = 96;
  o.arena_bytes = one_of({640 << 10, 640 << 10, 1 << 20, 4 << 20});
  o.unpinned_bytes = one_of({0, 100 << 10, 200 << 10, 1 << 20});
  if (rng() % 6 == 0) {
    o.groups = wide(o.groups);
    o.device_bytes = 4 << 20;
    o.arena_bytes = 16 << 20;
    s.groups += ", wide";
  }
  o.context = 800;
  o.sequences = 5;
  o.checkpoint_tokens = static_cast<std::int64_t>(one_of({64, 256}));
  s.quota = one_of({400 << 10, 1500 << 10, 1500 << 10, 64 << 20});
  if (o.device_bytes > 0) s.quota *= 16;
  s.queue = one_of({64 << 10, 512 << 10, 8 << 20});
  s.per_day = one_of({4 << 20, 1 << 30, 1 << 30, 1 << 30});
  s.floor = one_of({0, 0, 1 << 20});
  s.processes = rng() % 3 == 0 ? 2 : 1;
  if (s.processes == 1 && rng() % 4 == 0) s.keys = SimulationSetup::Keys::weak;
  if (s.keys == SimulationSetup::Keys::weak) o.child_key = weak_child_key;
  return s;
}

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : seed_(seed), setup_(make_setup(seed)) {
    processes_.resize(static_cast<std::size_t>(setup_.processes));
    for (std::size_t p = 0; p < processes_.size(); ++p) start(p);
  }

  const SimulationSetup& setup() const { return setup_; }
  const std::string& last() const { return last_; }  // What the last operation was.
  std::int64_t reused() const { return reused_; }

  // Operation `i`. What it does depends on the seed, `i` and the state that the ones before it left.
  void operate(std::uint64_t i) {
    rng_.seed(mix(seed_, i));
    turns_.reseed(mix(seed_, ~i));
    const unsigned what = rng_() % 1000;
    if (what < 900) sessions();
    else if (what < 915) fail_some();
    else if (what < 935) heal();
    else if (what < 955) turn_clock();
    else if (what < 970) hurt_files();
    else if (what < 978) kill_process();
    else if (what < 984) plan_crash();
    else if (what < 987) vanish();
    else if (what < 991) size_disk();
    else settle();
    if (fs_.crashed()) recover();
    for (std::size_t n = rng_() % 6; n > 0 && turns_.take();) --n;
    check();
  }

  // All faults are over: everything is closed and dropped, nothing is left but what the index accounts for, and the
  // store works.
  void finish() {
    last_ = "the end";
    if (fs_.crashed()) recover();
    heal();
    for (auto& p : processes_) p->finish();
    settle();
    for (auto& p : processes_) keep_count(*p), p.reset();
    clock_.advance_seconds(200'000);
    if (setup_.keys == SimulationSetup::Keys::weak) empty_folder();
    start(0);
    life_goes_on(*processes_[0]);
    processes_[0].reset();
  }

  // A number that two runs agree in if they took the same course.
  std::uint64_t digest() const {
    std::uint64_t h = mix(fs_.ops(), static_cast<std::uint64_t>(clock_.now_ns()));
    for (const auto& path : fs_.files(kDir))
      for (const char c : path.string()) h = mix(h, static_cast<unsigned char>(c));
    for (const auto& p : processes_) {
      if (!p) continue;
      const StoreStats s = p->rig().store->stats();
      for (const std::uint64_t n : {s.committed_bytes, s.pinned_bytes, s.hits_ram_tokens, s.hits_disk_tokens,
                                    s.computed_tokens, s.evicted_blocks, s.disk.bytes_written, s.disk.bytes_read})
        h = mix(h, n);
    }
    return h;
  }

 private:
  static constexpr const char* kDir = "/kv";

  std::uint64_t draw(std::uint64_t below) { return rng_() % below; }
  bool chance(unsigned percent) { return draw(100) < percent; }
  bool weak() const { return setup_.keys == SimulationSetup::Keys::weak; }

  void start(std::size_t p) {
    RigOptions o = setup_.options;
    o.clock = &clock_;
    o.computed_prefixes = computed_;
    // Another model at times: another namespace and other bytes for the same tokens.
    const bool other = !weak() && chance(15);
    o.k_type = other ? "of another model" : "f16";
    o.make_disk = [this, other, groups = o.groups](const std::vector<model::BlockLayout>& layouts) {
      DiskConfig c;
      c.dir = kDir;
      c.model_fingerprint.fill(other ? 0xcd : 0xab);
      c.groups = layouts;
      for (const auto& g : groups) c.whole_history.push_back(g.kind == model::CacheGroup::Kind::full);
      c.quota_bytes = setup_.quota;
      c.free_floor_bytes = setup_.floor;
      c.queue_bytes_max = setup_.queue;
      c.write_bytes_per_day_max = setup_.per_day;
      c.turns = &turns_;
      const std::uint64_t failures = fs_.failures();
      auto tier = DiskTier::open(c, fs_, clock_);
      if (!tier.ok()) return std::unique_ptr<DiskTier>();
      // An extent whose header could not be read is kept, out of the index.
      if (writes(**tier)) meddled_ = fs_.failures() != failures;
      return std::move(tier).value();
    };
    processes_[p] = std::make_unique<Sessions>(static_cast<std::uint32_t>(seed_), std::move(o));
    if (weak()) processes_[p]->restarts = Sessions::Restarts::no;
    processes_[p]->background = [this] {
      while (turns_.take()) {
      }
    };
  }
  static bool writes(const DiskTier& tier) { return !tier.stats().mode.starts_with("read-only"); }
  static bool writes(const DiskStats& s) { return !s.mode.empty() && !s.mode.starts_with("read-only"); }
  void keep_count(const Sessions& s) { reused_ += s.reused; }

  void sessions() {
    last_ = "a session's action";
    Sessions& s = *processes_[draw(processes_.size())];
    s.reseed(static_cast<std::uint32_t>(rng_()));
    s.one();
  }

  void fail_some() {
    const int errors[] = {EIO, ENOSPC, EMFILE, EROFS};
    const std::uint64_t more[] = {0, 0, 5, 100, ~0ull};
    last_ = "failing operations of the disk";
    fs_.fail_at(fs_.ops() + draw(30), errors[draw(4)], more[draw(5)]);
  }
  void heal() {
    last_ = "the disk is well";
    fs_.reset_ops();
    fs_.set_total_bytes(1ull << 40);
  }
  void plan_crash() {
    if (weak()) return;
    last_ = "a crash is coming";
    fs_.crash_at(fs_.ops() + draw(60), rng_());
  }
  void turn_clock() {
    last_ = "clocks";
    const std::int64_t day = 86'400, wall[] = {0, -1, 3600, day, -day, 400 * day, -400 * day};
    clock_.jump_wall_seconds(wall[draw(7)]);
    if (chance(30)) clock_.advance_seconds(static_cast<std::int64_t>(draw(2) ? 70 : 3 * 86'400));
    fs_.set_now_seconds(clock_.wall_seconds());
  }
  void size_disk() {
    last_ = "a nearly full disk";
    fs_.set_total_bytes((128u << 10) + draw(2 << 20));
  }
  void vanish() {
    if (weak()) return;
    last_ = "the folder vanishes";
    fs_.vanish(kDir);
    durable_.clear();
    meddled_ = true;
  }

  // Flips bits of, cuts or removes some files, under the store's feet.
  void hurt_files() {
    if (weak()) return;
    last_ = "damaged files";
    for (const auto& path : fs_.files(kDir)) {
      const std::uint64_t what = draw(20);
      if (what > 2) continue;
      auto bytes = fs_.contents(path);
      if (!bytes || bytes->empty() || path.extension() == ".tmp") continue;
      meddled_ = true;
      durable_.erase(path);
      if (what == 2) {
        vanish_file(path);
        continue;
      }
      if (what == 0) (*bytes)[draw(bytes->size())] ^= static_cast<std::byte>(1 << draw(8));
      else bytes->resize(draw(bytes->size()));
      fs_.set_contents(path, std::move(*bytes));
    }
  }
  void vanish_file(const std::filesystem::path& path) {
    if (!fs_.crashed()) (void)fs_.unlink(path);
  }

  // kill -9: what is queued is lost, what runs is cut off, and nobody says goodbye.
  void kill_process() {
    last_ = "a process is killed";
    const std::size_t p = draw(processes_.size());
    keep_count(*processes_[p]);
    processes_[p].reset();
    if (weak()) empty_folder();
    start(p);
  }
  void empty_folder() {
    fs_.vanish(kDir);
    durable_.clear();
    computed_->clear();
  }

  // The machine comes back after a crash: all processes are new, and what was not synced may be lost.
  void recover() {
    using Lose = platform::FakeFileSystem::Lose;
    last_ = "a crash";
    for (auto& p : processes_) keep_count(*p), p.reset();
    std::erase_if(durable_, [&](const auto& entry) { return fs_.identity(entry.first) != entry.second.identity; });
    const Lose lose[] = {Lose::nothing, Lose::unsynced, Lose::some};
    fs_.restart(lose[draw(3)], rng_());
    for (const auto& [path, file] : durable_) {
      const auto now = fs_.contents(path);
      EXPECT_TRUE(now && *now == file.bytes) << path << " was written and flushed, and did not survive a power loss";
    }
    durable_.clear();
    fs_.reset_ops();
    over_ = ~0ull;  // Files may be back that had been removed: the next start makes room.
    for (std::size_t p = 0; p < processes_.size(); ++p) start(p);
  }

  // Faults end; what is queued is written; then the counts must agree with the folder.
  void settle() {
    heal();
    last_ = "settle";
    fs_.set_total_bytes(1ull << 40);
    for (int round = 0; round < 4; ++round) {
      clock_.advance_seconds(120);
      for (auto& p : processes_) p->rig().store->flush(60'000);
    }
    // A poll may queue again what had been dropped.
    for (bool any = true; any;) {
      for (any = false; turns_.take();) any = true;
      for (auto& p : processes_) p->rig().store->poll();
    }
    if (fs_.crashed()) return;  // One that was planned came meanwhile.
    for (auto& p : processes_) {
      const StoreStats s = p->rig().store->stats();
      if (!writes(s.disk) || meddled_) continue;
      EXPECT_EQ(s.disk.bytes_allocated, fs_.allocated_bytes(kDir)) << "bytes of the folder that nobody accounts for";
      std::uint64_t extents = 0;
      const char own = p->rig().options().k_type == "f16" ? 'a' : 'c';  // How the model's folder begins.
      for (const auto& path : fs_.files(kDir)) {
        if (path.parent_path().filename().string()[0] != own) continue;
        EXPECT_NE(path.extension(), ".tmp") << path;
        extents += path.extension() == ".kvx";
      }
      EXPECT_EQ(s.disk.extents, extents) << "extents that the index does not know, or that are not there";
      durable_.clear();
      for (const auto& path : fs_.files(kDir))
        if (path.extension() == ".kvx" && path.parent_path().filename().string()[0] == own)  // The writer's.
          durable_[path] = {fs_.identity(path), *fs_.contents(path)};
    }
  }

  // After every operation.
  void check() {
    const std::uint64_t now = fs_.allocated_now(), peak = fs_.peak_allocated_bytes();
    EXPECT_LE(peak, std::max(setup_.quota, over_)) << "the quota is exceeded" << listing();
    if (over_ != ~0ull || now <= setup_.quota) over_ = now > setup_.quota ? now : 0;
    else if (!fs_.crashed()) over_ = now;
    fs_.reset_peak();
    for (auto& p : processes_) {
      const StoreStats s = p->rig().store->stats();
      EXPECT_LE(s.committed_bytes, s.arena_bytes_max);
      EXPECT_LE(s.disk.bytes_written_today, setup_.per_day);
    }
  }

  std::string listing() const {
    std::string text;
    for (const auto& path : fs_.files("/"))
      text += fmt::format("\n  {:8} {}", fs_.contents(path)->size(), path.string());
    for (const auto& p : processes_)
      text += p ? fmt::format("\n  {}: counted {}, {} dropped", p->rig().store->stats().disk.mode,
                              p->rig().store->stats().disk.bytes_allocated, p->rig().store->stats().disk.writes_dropped)
                : "";
    return text;
  }

  void life_goes_on(Sessions& s) {
    last_ = "life goes on";
    std::mt19937 rng(1);
    const Tokens prompt = random_tokens(rng, 200);
    Rig& rig = s.rig();
    ASSERT_TRUE(writes(rig.store->stats().disk)) << rig.store->stats().disk.mode;
    rig.serve(prompt);
    // A full disk may hold what is worth more than a prompt that nobody has asked for twice.
    std::int64_t from_disk = 0;
    for (int again = 0; again < 3 && from_disk == 0; ++again) {
      ASSERT_TRUE(rig.store->flush(60'000));
      rig.store->drop_ram();
      from_disk = rig.serve(prompt).from_disk;
    }
    // Each extent of a prompt reserves 64 KiB more than it takes: some prompts find no room in the smallest quota.
    if (setup_.quota >= 1 << 20) {
      EXPECT_GT(from_disk, 0) << "a well disk does not keep a prompt" << listing();
    }
    ASSERT_TRUE(rig.store->flush(60'000));
    rig.store->drop_ram();
    EXPECT_EQ(rig.store->stats().committed_bytes, 0u) << "some slot has leaked";
  }

  struct Durable {
    std::uint64_t identity = 0;
    std::vector<std::byte> bytes;
  };

  const std::uint64_t seed_;
  const SimulationSetup setup_;
  std::mt19937_64 rng_{1};
  platform::FakeClock clock_;
  platform::FakeFileSystem fs_;
  platform::Turns turns_;
  std::shared_ptr<std::unordered_set<std::uint64_t>> computed_ = std::make_shared<std::unordered_set<std::uint64_t>>();
  std::vector<std::unique_ptr<Sessions>> processes_;
  std::map<std::filesystem::path, Durable> durable_;  // What a flush has promised to outlive a power loss.
  bool meddled_ = false;                              // The folder was changed since its writer started.
  std::uint64_t over_ = 0;                            // Allocated bytes where a crash brought back more than the quota.
  std::int64_t reused_ = 0;
  std::string last_ = "start";
};

}  // namespace lode::kv::test
