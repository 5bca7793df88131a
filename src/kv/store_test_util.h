// A tiny "model" over the store for tests: its kernel writes bytes that are a function of the tokens up to a position,
// the salt and the model, and every step first checks all bytes that its queries could see. Its recurrent layers
// compute a state from the state that they are given and each token, so that a wrong one shows ever after. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/fake_device.h"
#include "kv/fake_disk_tier.h"
#include "kv/store_impl.h"
#include "platform/fake_clock.h"
#include "platform/fake_file_system.h"

namespace lode::kv::test {

using Tokens = std::vector<TokenId>;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

inline Tokens random_tokens(std::mt19937& rng, std::int64_t n, int vocabulary = 1000) {
  Tokens t(static_cast<std::size_t>(n));
  for (auto& id : t) id = static_cast<TokenId>(rng() % static_cast<unsigned>(vocabulary));
  return t;
}
inline Tokens concat(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Tokens head(const Tokens& a, std::int64_t n) {
  return {a.begin(), a.begin() + n};
}

inline constexpr std::int64_t kWindow = 70;  // Not a multiple of a block.

// Two layers of full history and one windowed layer between them, 4 KiB a slice.
inline std::vector<model::CacheGroup> window_groups() {
  model::CacheGroup full, window;
  full.layers = {{LayerIndex{0}, 1, 2, 2}, {LayerIndex{2}, 1, 2, 2}};
  window.kind = model::CacheGroup::Kind::window;
  window.window = kWindow;
  window.layers = {{LayerIndex{1}, 1, 2, 2}};
  return {full, window};
}
inline std::vector<model::CacheGroup> full_groups() {
  return {window_groups()[0]};
}

// Recurrent layers 1 and 3; their states are no multiples of 4 KiB.
inline model::CacheGroup state_group() {
  model::CacheGroup state;
  state.kind = model::CacheGroup::Kind::checkpoint;
  state.layers = {{.layer = LayerIndex{1}, .state_bytes = 5000}, {.layer = LayerIndex{3}, .state_bytes = 1000}};
  return state;
}
// Full history in layers 0 and 2 beside them, as Qwen3.5 has it.
inline std::vector<model::CacheGroup> hybrid_groups() {
  return {state_group(), window_groups()[0]};
}
// And a window in layer 4.
inline std::vector<model::CacheGroup> three_groups() {
  auto groups = window_groups();
  groups[1].layers[0].layer = LayerIndex{4};
  groups.push_back(state_group());
  return groups;
}

// The same with slots that are large beside a device's pieces, so that few of them fill its memory.
inline std::vector<model::CacheGroup> wide(std::vector<model::CacheGroup> groups) {
  for (auto& g : groups)
    for (auto& l : g.layers) {
      if (g.kind == model::CacheGroup::Kind::checkpoint) l.state_bytes *= 8;
      else l.kv_heads = 64;
    }
  return groups;
}

struct RigOptions {
  std::vector<model::CacheGroup> groups = window_groups();
  std::uint64_t arena_bytes = 4 << 20, unpinned_bytes = 4 << 20;
  std::int64_t chunk = 64, context = 2048;
  int sequences = 12;
  std::int64_t checkpoint_tokens = 256;
  enum class Disk : std::uint8_t { off, fake } disk = Disk::off;
  BlockKey (*child_key)(const BlockKey&, std::span<const TokenId, kBlockTokens>) = &kv::child_key;
  BlockKey (*root_key)(const RootInputs&) = &kv::root_key;
  std::string k_type = "f16";  // Of the root key only.
  // Not 0: blocks live in a fake device's memory of so many bytes; arena and unpinned bytes are of the RAM behind it.
  std::uint64_t device_bytes = 0;
  // Instead of the fake: called at every start.
  std::function<std::unique_ptr<DiskTier>(const std::vector<model::BlockLayout>&)> make_disk = {};
  std::shared_ptr<const Cipher> cipher = nullptr;
  std::filesystem::path trace = {};  // On the fake file system.
  // Of several rigs: their common clock, and the prefixes that any of them has ever computed.
  platform::FakeClock* clock = nullptr;
  std::shared_ptr<std::unordered_set<std::uint64_t>> computed_prefixes = {};
};

class Rig {
 public:
  explicit Rig(RigOptions options = {})
      : clock(options.clock ? *options.clock : own_clock_), options_(std::move(options)) {
    start();
  }

  // A live sequence and the tokens that the test wants computed.
  struct Run {
    Sequence* seq = nullptr;
    Tokens tokens;
    std::string salt;
    std::vector<std::uint64_t> hash;                             // Of tokens [0, i].
    std::map<std::uint32_t, std::vector<std::uint64_t>> states;  // By recurrent layer: after i tokens.
  };

  void start() {
    StoreConfig c;
    c.groups = options_.groups;
    c.root.k_type = options_.k_type;
    c.arena_bytes_max = options_.arena_bytes;
    c.unpinned_bytes_max = options_.unpinned_bytes;
    c.chunk_tokens = options_.chunk;
    c.context_max = options_.context;
    c.sequences_max = options_.sequences;
    c.checkpoint_tokens = options_.checkpoint_tokens;
    if (options_.device_bytes > 0) {
      if (!device) device = std::make_unique<kernels::test::FakeDevice>();
      device_budget = std::make_unique<memory::Budget>(options_.device_bytes);
      c.device = device.get();
      c.device_budget = device_budget.get();
    }
    StoreParts parts;
    parts.pinned_piece_bytes = 48 * kKiB;  // Slots cross its edges.
    parts.child_key = options_.child_key;
    parts.root_key = options_.root_key;
    parts.piece_bytes = 16 * kKiB;
    parts.freed = memory::SlotPoolOptions::Freed::poison;
    parts.cipher = options_.cipher;
    if (!options_.trace.empty()) parts.trace = TraceRecorder::create(files, clock, options_.trace).value();
    std::vector<model::BlockLayout> layouts;
    for (const auto& g : c.groups) layouts.push_back(model::block_layout(g, c.k_type, c.v_type));
    if (options_.make_disk) {
      parts.disk = options_.make_disk(layouts);
    } else if (options_.disk == RigOptions::Disk::fake) {
      auto tier = std::make_unique<FakeDiskTier>(layouts, stored, knobs);
      disk = tier.get();
      parts.disk = std::move(tier);
    }
    auto made = StoreImpl::create(c, clock, std::move(parts));
    ASSERT_TRUE(made.ok()) << made.status().message();
    store = std::move(made).value();
  }
  void restart() {
    store.reset();
    start();
  }

  // Nullopt: exhausted.
  std::optional<Run> open(Tokens tokens, std::string salt = {}, std::vector<std::int64_t> marks = {}) {
    auto opened = store->open_sequence(tokens, salt, marks);
    check();
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), Code::resource_exhausted) << opened.status().message();
      return std::nullopt;
    }
    Run r{*opened, std::move(tokens), std::move(salt), {}, {}};
    extend_hash(r);
    return r;
  }
  void close(Run& r) {
    store->close(r.seq);
    r.seq = nullptr;
    check();
  }
  void append(Run& r, TokenId id) {
    r.tokens.push_back(id);
    extend_hash(r);
  }
  std::int64_t left(const Run& r) const { return static_cast<std::int64_t>(r.tokens.size()) - store->length(*r.seq); }

  enum class Stepped : std::uint8_t { ok, repaired, abandoned };
  enum class Then : std::uint8_t { commit, abandon };
  // One batch: `count` tokens of every run; grown before. It may be abandoned once everything was computed.
  Stepped step(const std::vector<std::pair<Run*, std::int64_t>>& parts, Then then = Then::commit) {
    std::vector<Store::RunSpec> specs;
    std::int64_t row = 0;
    for (auto& [r, count] : parts) {
      specs.push_back({r->seq, row, count});
      row += count;
    }
    model::KvView& view = store->view(specs);
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      for (const auto& l : options_.groups[g].layers)
        if (!view.wait(l.layer).ok()) {
          for (auto& [r, count] : parts) store->repair(*r->seq);
          check();
          return Stepped::repaired;
        }
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      for (const auto& l : options_.groups[g].layers) {
        if (recurrent(options_.groups[g])) compute_state(view, l, parts);
        else compute(view, options_.groups[g], l.layer, parts);
      }
    if (then == Then::abandon) return Stepped::abandoned;
    for (auto& [r, count] : parts) {
      const auto at = static_cast<std::size_t>(store->length(*r->seq));
      store->commit(*r->seq, std::span(r->tokens).subspan(at, static_cast<std::size_t>(count)));
      if (options_.computed_prefixes)
        for (std::size_t p = at; p < at + static_cast<std::size_t>(count); ++p)
          options_.computed_prefixes->insert(r->hash[p]);
      computed += count;
    }
    check();
    return Stepped::ok;
  }
  // Steps one run alone until all its tokens are computed; false: no memory.
  bool finish(Run& r) {
    while (left(r) > 0) {
      EXPECT_EQ(store->state(*r.seq), SeqState::ready);
      const std::int64_t count = store->step_limit(*r.seq, std::min(left(r), options_.chunk));
      const Status grown = store->grow(*r.seq, count);
      check();
      if (!grown.ok()) return false;
      step({{&r, count}});
      store->poll();
    }
    return true;
  }
  // Opens, computes, marks the prompt's end and closes; what was reused.
  Reuse serve(const Tokens& prompt, std::string salt = {}, std::vector<std::int64_t> marks = {}) {
    auto r = open(prompt, std::move(salt), std::move(marks));
    EXPECT_TRUE(r && finish(*r));
    if (!r) return {};
    store->mark_resume_point(*r->seq);
    const Reuse reuse = store->reuse(*r->seq);
    EXPECT_EQ(reuse.from_ram + reuse.from_disk + reuse.from_in_flight, reuse.tokens_reused);
    close(*r);
    return reuse;
  }

  void check() const {
    const StoreStats s = store->stats();
    ASSERT_LE(s.committed_bytes, s.arena_bytes_max);
    ASSERT_LE(s.unpinned_bytes + s.pinned_bytes, s.committed_bytes + s.vram_kv_bytes);
    ASSERT_LE(s.vram_kv_bytes, options_.device_bytes);
    if (device) {
      ASSERT_EQ(device->used_bytes() - device->memory().context, s.vram_kv_bytes);
    }
  }
  void check_unpinned() const {
    ASSERT_LE(store->stats().unpinned_bytes, options_.unpinned_bytes + options_.device_bytes);
  }

  const RigOptions& options() const { return options_; }

  platform::FakeClock& clock;
  platform::FakeFileSystem files;
  std::shared_ptr<FakeDiskTier::Stored> stored = std::make_shared<FakeDiskTier::Stored>();
  std::shared_ptr<FakeDiskTier::Knobs> knobs = std::make_shared<FakeDiskTier::Knobs>();
  std::unique_ptr<kernels::test::FakeDevice> device;
  std::unique_ptr<memory::Budget> device_budget;
  std::unique_ptr<StoreImpl> store;
  FakeDiskTier* disk = nullptr;
  std::int64_t computed = 0;  // Tokens that the kernel wrote.

 private:
  // Where a chain's expected values begin: another salt or another model has other bytes for the same tokens.
  std::uint64_t beginning(std::string_view salt) const {
    std::uint64_t h = 1;
    for (const std::string_view text : {std::string_view(options_.k_type), salt})
      for (const char c : text) h = mix(h, static_cast<unsigned char>(c));
    return h;
  }
  std::uint64_t first_state(const Run& r, LayerIndex layer) const { return beginning(r.salt) + layer.v; }
  static bool recurrent(const model::CacheGroup& group) { return group.kind == model::CacheGroup::Kind::checkpoint; }
  static std::uint64_t next_state(std::uint64_t state, TokenId id) {
    return mix(state, static_cast<std::uint64_t>(id) + 77);
  }
  void extend_hash(Run& r) const {
    std::uint64_t h = r.hash.empty() ? beginning(r.salt) : r.hash.back();
    for (std::size_t i = r.hash.size(); i < r.tokens.size(); ++i)
      r.hash.push_back(h = mix(h, static_cast<std::uint64_t>(r.tokens[i])));
    for (const auto& g : options_.groups)
      for (const auto& l : g.layers) {
        if (!recurrent(g)) continue;
        auto& states = r.states[l.layer.v];
        if (states.empty()) states.push_back(first_state(r, l.layer));
        for (std::size_t i = states.size() - 1; i < r.tokens.size(); ++i)
          states.push_back(next_state(states[i], r.tokens[i]));
      }
  }
  // Every 8 bytes of a state, each by its place.
  static std::uint64_t word(std::uint64_t state, std::int64_t i) {
    return state ^ (static_cast<std::uint64_t>(i) << 32);
  }
  void compute_state(model::KvView& view, const model::CacheLayer& layer,
                     const std::vector<std::pair<Run*, std::int64_t>>& parts) {
    const auto runs = view.states(layer.layer);
    ASSERT_EQ(runs.size(), parts.size());
    const std::int64_t words = layer.state_bytes / 8;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const Run& r = *parts[i].first;
      const auto length = static_cast<std::size_t>(store->length(*r.seq));
      ASSERT_EQ(runs[i].count, parts[i].second);
      ASSERT_EQ(runs[i].in == nullptr, length == 0);
      std::uint64_t state = first_state(r, layer.layer);
      for (std::int64_t w = 0; runs[i].in && w < words; ++w) {
        std::uint64_t have = 0;
        std::memcpy(&have, runs[i].in + 8 * w, 8);
        if (w == 0) state = have;
        ASSERT_EQ(have, word(r.states.at(layer.layer.v)[length], w))
            << "layer " << layer.layer.v << " word " << w << " of the state after " << length << " tokens";
      }
      for (std::size_t p = length; p < length + static_cast<std::size_t>(runs[i].count); ++p)
        state = next_state(state, r.tokens[p]);
      for (std::int64_t w = 0; w < words; ++w) {
        const std::uint64_t value = word(state, w);
        std::memcpy(runs[i].out + 8 * w, &value, 8);
      }
    }
  }
  // The two K and two V values of a token: K is [k_dim][32 tokens], V is [32 tokens][v_dim], 2 bytes each.
  template <typename Fn>
  static void for_values(const kernels::KvLayer& kv, std::byte* slot, std::int64_t position, std::uint64_t hash,
                         LayerIndex layer, Fn&& fn) {
    const std::int64_t t = position % kBlockTokens;
    const std::uint64_t h = mix(hash, layer.v);
    auto* k = reinterpret_cast<std::uint16_t*>(slot + kv.k_offset);
    auto* v = reinterpret_cast<std::uint16_t*>(slot + kv.v_offset);
    for (int d = 0; d < 2; ++d) {
      fn(k[d * kBlockTokens + t], static_cast<std::uint16_t>(h >> (16 * d)));
      fn(v[t * 2 + d], static_cast<std::uint16_t>(h >> (32 + 16 * d)));
    }
  }
  void compute(model::KvView& view, const model::CacheGroup& group, LayerIndex layer,
               const std::vector<std::pair<Run*, std::int64_t>>& parts) {
    const auto runs = view.runs(layer);
    ASSERT_EQ(runs.size(), parts.size());
    const kernels::KvLayer& kv = view.layer(layer);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const kernels::KvRun& run = runs[i];
      const Run& r = *parts[i].first;
      ASSERT_EQ(run.first_position, store->length(*r.seq));
      for (std::int64_t p = run.first_position; p < run.first_position + run.count; ++p)
        for_values(kv, run.blocks[p / kBlockTokens], p, r.hash[static_cast<std::size_t>(p)], layer,
                   [](std::uint16_t& at, std::uint16_t value) { at = value; });
      // Everything that the first query of the run, and so any of them, may see.
      for (std::int64_t p = group.first_needed(run.first_position); p < run.first_position; ++p)
        for_values(kv, run.blocks[p / kBlockTokens], p, r.hash[static_cast<std::size_t>(p)], layer,
                   [&](std::uint16_t& at, std::uint16_t value) {
                     if (at != value)
                       ADD_FAILURE() << "layer " << layer.v << " position " << p << " of " << run.first_position
                                     << " holds other bytes";
                   });
    }
  }

  platform::FakeClock own_clock_;
  RigOptions options_;
};

}  // namespace lode::kv::test
