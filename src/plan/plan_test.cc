// Tests of the planner: sums, constraints, refusals whose advice holds, warnings with figures. No file is read.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace lode::plan {
namespace {

using model::CacheGroup;
using model::CacheLayer;

CacheGroup group_of(CacheGroup::Kind kind, int layers, std::int64_t window, std::int32_t kv_heads, std::int32_t dim) {
  CacheGroup g;
  g.kind = kind;
  g.window = window;
  for (int i = 0; i < layers; ++i) {
    g.layers.push_back(CacheLayer{LayerIndex{static_cast<std::uint32_t>(i)}, kv_heads, dim, dim});
  }
  return g;
}

// 12 KiB of KV a token (f16), 200 MiB of weights, trained for a million tokens.
ModelFacts tiny() {
  ModelFacts f;
  f.name = "tiny";
  f.file_bytes = 210 * kMiB;
  f.embedding_bytes = 20 * kMiB;
  f.output_bytes = 30 * kMiB;
  f.attention_bytes = 50 * kMiB;
  f.ffn_bytes = 90 * kMiB;
  f.other_bytes = 10 * kMiB;
  f.vocab = 32000;
  f.context_trained = 1048576;
  f.groups = {group_of(CacheGroup::Kind::full, 6, 0, 4, 128)};
  f.workspace_bytes = [](const WorkspaceShape& s) {
    return static_cast<std::uint64_t>(s.chunk + s.slots) * 40 * kKiB + static_cast<std::uint64_t>(s.context) * 8;
  };
  return f;
}

// Gemma 3 270M: 3 full layers, 15 windows of 512.
ModelFacts gemma() {
  ModelFacts f = tiny();
  f.name = "gemma";
  f.vocab = 262144;
  f.context_trained = 32768;
  f.groups = {group_of(CacheGroup::Kind::window, 15, 512, 1, 256), group_of(CacheGroup::Kind::full, 3, 0, 1, 256)};
  return f;
}

Hardware machine(std::uint64_t ram) {
  Hardware hw;
  hw.cores = 2;
  hw.ram_total = ram;
  hw.ram_available = ram;
  hw.disk_free = 100 * kGiB;
  return hw;
}

Hardware container(std::uint64_t limit, std::uint64_t used = 0) {
  Hardware hw = machine(64 * kGiB);
  hw.cgroup_limit = limit;
  hw.cgroup_used = used;
  hw.cgroup_source = "/sys/fs/cgroup/memory.max";
  return hw;
}

void expect_has(const std::string& text, std::initializer_list<std::string_view> pieces) {
  for (const std::string_view piece : pieces) {
    EXPECT_NE(text.find(piece), std::string::npos) << text << "\nlacks: " << piece;
  }
}
std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// What must hold for every plan that is made.
void check(const Plan& p, const Hardware& hw, const ModelFacts& facts, const Options& o) {
  std::uint64_t sum = 0;
  for (const Line& line : p.lines) sum += line.bytes;
  EXPECT_EQ(sum, p.memory_bytes) << p.text();
  EXPECT_LE(p.memory_bytes, hw.ram_available + hw.own_bytes);
  if (hw.cgroup_limit) {
    EXPECT_LE(p.memory_bytes, *hw.cgroup_limit);
  }
  if (o.memory) {
    EXPECT_LE(p.memory_bytes, *o.memory);
  }
  EXPECT_LE(p.resident_bytes_max, p.memory_bytes);
  EXPECT_EQ(p.resident_bytes_max, p.resident_bytes_min + p.arena_bytes_max);
  EXPECT_EQ(p.arena_bytes_max % kPieceBytes, 0u);
  EXPECT_LE(p.sequence_bytes, p.arena_bytes_max) << "one sequence of the whole context fits";
  EXPECT_EQ(p.sequence_bytes, sequence_bytes(facts, o.k_type, o.v_type, p.context, p.chunk));
  EXPECT_LE(p.kv_ram_bytes_max, p.arena_bytes_max);
  EXPECT_EQ(p.workspace_bytes, facts.workspace_bytes({p.chunk, p.context, p.slots, p.threads}));
  EXPECT_GE(p.context, 1);
  if (o.context) {
    EXPECT_EQ(p.context, *o.context);
  }
  if (o.slots) {
    EXPECT_EQ(p.slots, *o.slots);
  }
  if (o.chunk) {
    EXPECT_EQ(p.chunk, *o.chunk);
  }
  if (o.threads) {
    EXPECT_EQ(p.threads, *o.threads);
  }
  if (o.kv_ram) {
    EXPECT_LE(p.kv_ram_bytes_max, *o.kv_ram);
  }
  // A clamped context says so.
  if (!o.context && p.context < facts.context_trained) {
    expect_has(joined(p.notes), {"instead of the trained"});
  }
}

Plan made(const Hardware& hw, const ModelFacts& facts, const Options& o) {
  const Result<Plan> p = make(hw, facts, o);
  EXPECT_TRUE(p.ok()) << p.status().message();
  if (!p.ok()) return {};
  check(*p, hw, facts, o);
  return *p;
}

TEST(Plan, DefaultsOnARoomyMachine) {
  const Plan p = made(machine(24 * kGiB), gemma(), {});
  EXPECT_EQ(p.context, 32768);
  EXPECT_EQ(p.chunk, 512);
  EXPECT_EQ(p.threads, 2);
  EXPECT_EQ(p.slots, 4);
  EXPECT_FALSE(p.disk_folder);
  EXPECT_EQ(p.kv_ram_bytes_max, 6 * kGiB);
  EXPECT_TRUE(p.warnings.empty()) << joined(p.warnings);
  // 3 full layers: 2 * 256 values of 2 bytes each; 15 windows of 512 + 512 tokens and two blocks.
  const std::uint64_t full = 32768ull * 3 * 1024, window = (1024ull + 64) * 15 * 1024;
  EXPECT_EQ(p.sequence_bytes, align_up(full, kPieceBytes) + align_up(window, kPieceBytes));
  ASSERT_EQ(p.groups.size(), 2u);
  EXPECT_EQ(p.groups[0].name, "window of 512, 15 layers");
  EXPECT_EQ(p.groups[0].bytes_per_1000_tokens, 0u);
  EXPECT_EQ(p.groups[1].bytes_per_1000_tokens, 1000u * 3 * 1024);
}

// G03: a trained length that would exhaust the memory is clamped, with a line saying so; the context is each slot's own
// and not divided among the six.
TEST(Plan, G03_DefaultContextIsClampedToTheContainer) {
  const Hardware hw = container(kGiB);
  Options o;
  o.slots = 6;
  const Plan p = made(hw, tiny(), o);
  EXPECT_LT(p.context, 1048576);
  EXPECT_GT(p.context, 32768);
  EXPECT_EQ(p.context % 256, 0);
  expect_has(joined(p.notes), {"context " + std::to_string(p.context) + " per slot instead of the trained 1048576",
                               "12.0 GiB of KV", "container's limit of 1.00 GiB", "-c",
                               "6 slots of " + std::to_string(p.context) + " tokens each", "1 of them may be full"});
  expect_has(p.text(), {"tokens per slot, the most that fits (trained: 1048576)"});
  // It is the longest one: the next step up is refused.
  Options more = o;
  more.context = p.context;
  more.chunk = p.chunk;
  EXPECT_TRUE(make(hw, tiny(), more).ok());
  more.context = p.context + 256;
  EXPECT_FALSE(make(hw, tiny(), more).ok());
}

// The number of an advice ("--memory " N "MiB would do"), tried.
void follow(const std::string& message, const std::string& before, const std::string& after,
            const std::function<bool(std::uint64_t)>& works) {
  for (std::size_t at = message.find(before); at != std::string::npos; at = message.find(before, at + 1)) {
    const std::size_t digits = at + before.size();
    const std::size_t end = message.find_first_not_of("0123456789", digits);
    if (end == digits || end == std::string::npos || message.compare(end, after.size(), after) != 0) continue;
    EXPECT_TRUE(works(std::stoull(message.substr(digits, end - digits)))) << message;
    return;
  }
  ADD_FAILURE() << message << "\nlacks: " << before << "N" << after;
}

TEST(Plan, ImpossibleContextIsRefusedWithNumbersThatHold) {
  const Hardware hw = container(kGiB, 100 * kMiB);
  Options o;
  o.context = 1048576;
  o.smaller_types = {kernels::KvType::q8_0};
  const Result<Plan> p = make(hw, tiny(), o);
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.status().code(), Code::resource_exhausted);
  const std::string text = p.status().message();
  expect_has(text, {"context 1048576 needs 12.0 GiB of KV (f16/f16)", "left under the container's limit of 1.00 GiB",
                    "200 MiB of weights", "bytes) too few", "Instead: -c "});
  follow(text, "-c ", " fits", [&](std::uint64_t n) {
    Options again = o;
    again.context = static_cast<std::int64_t>(n);
    if (!make(hw, tiny(), again).ok()) return false;
    again.chunk = 512;
    again.context = *again.context + 256;  // Nearest: the next one does not fit with this chunk.
    return !make(hw, tiny(), again).ok();
  });
}

TEST(Plan, SmallerKvTypeIsAdvisedWhereItHelps) {
  const Hardware hw = container(kGiB);
  Options o;
  o.context = 90000;  // 1.03 GiB in f16, 0.55 GiB in q8_0.
  o.smaller_types = {kernels::KvType::q8_0};
  const Result<Plan> p = make(hw, tiny(), o);
  ASSERT_FALSE(p.ok());
  expect_has(p.status().message(), {"-c 90000 fits with -ctk q8_0 -ctv q8_0"});
  o.k_type = o.v_type = kernels::KvType::q8_0;
  made(hw, tiny(), o);
}

TEST(Plan, MemoryOptionIsAConstraintAndItsAdviceHolds) {
  const Hardware hw = machine(64 * kGiB);
  Options o;
  o.memory = kGiB;
  EXPECT_EQ(made(hw, tiny(), o).memory_bytes, kGiB);
  o.context = 500000;
  const Result<Plan> p = make(hw, tiny(), o);
  ASSERT_FALSE(p.ok());
  follow(p.status().message(), "--memory ", "MiB would do", [&](std::uint64_t n) {
    Options again = o;
    again.memory = n * kMiB;
    return make(hw, tiny(), again).ok();
  });
  // More than there is: planned with what there is, and said.
  Options much;
  much.memory = 100 * kGiB;
  const Plan all = made(hw, tiny(), much);
  EXPECT_EQ(all.memory_bytes, 64 * kGiB);
  expect_has(joined(all.warnings), {"--memory 100 GiB is more than there is"});
}

// Rows are packed where the copies stay in memory instead of pages of the file: never beside bytes that were read.
TEST(Plan, WeightsArePackedWhereTheyStayInMemory) {
  ModelFacts f = tiny();
  f.packable_bytes = 170 * kMiB;
  const Plan roomy = made(machine(8 * kGiB), f, {});
  EXPECT_EQ(roomy.packed_bytes, 170 * kMiB);
  EXPECT_EQ(roomy.resident_bytes_min, made(machine(8 * kGiB), tiny(), {}).resident_bytes_min);
  EXPECT_NE(roomy.text().find("repacked from the file"), std::string::npos);
  Options off;
  off.repack = Options::Repack::off;
  EXPECT_EQ(made(machine(8 * kGiB), f, off).packed_bytes, 0u);
  Options read;
  read.load_mode = gguf::LoadMode::read;
  EXPECT_EQ(made(machine(8 * kGiB), f, read).packed_bytes, 0u);
  f.ffn_bytes = 2 * kGiB;
  f.packable_bytes = f.ffn_bytes;
  EXPECT_EQ(made(container(kGiB), f, {}).packed_bytes, 0u) << "weights that are read again from disk";
}

TEST(Plan, WeightsThatDoNotFitAreRefusedWhenReadAndStreamedWhenMapped) {
  ModelFacts f = tiny();
  f.ffn_bytes = 2 * kGiB;
  const Hardware hw = container(kGiB);
  for (const gguf::LoadMode mode : {gguf::LoadMode::read, gguf::LoadMode::direct}) {
    Options o;
    o.load_mode = mode;
    const Result<Plan> p = make(hw, f, o);
    ASSERT_FALSE(p.ok());
    expect_has(p.status().message(), {"the model does not fit", "weights 2.11 GiB", "container limit 1.00 GiB",
                                      "bytes) too few", "--load-mode mmap", "a quantization of at most"});
    o.memory = kGiB / 2;
    follow(make(machine(64 * kGiB), f, o).status().message(), "--memory ", "MiB would do", [&](std::uint64_t n) {
      Options again = o;
      again.memory = n * kMiB;
      return make(machine(64 * kGiB), f, again).ok();
    });
  }
  Options o;
  const Plan p = made(hw, f, o);
  expect_has(joined(p.warnings), {"weights of 2.11 GiB do not fit", "each token reads up to", "would fit whole"});
  EXPECT_EQ(p.weights_bytes, f.ffn_bytes + 110 * kMiB);
  EXPECT_LT(p.resident_bytes_min, p.weights_bytes);
  // A context that would push every weight out is refused even then.
  o.context = 100000;
  EXPECT_FALSE(make(hw, f, o).ok());
}

TEST(Plan, HopelessLimitsAreRefused) {
  for (const std::uint64_t limit : {std::uint64_t{0}, kMiB, 20 * kMiB, 40 * kMiB}) {
    const Result<Plan> p = make(container(limit), tiny(), {});
    ASSERT_FALSE(p.ok()) << limit;
    EXPECT_EQ(p.status().code(), Code::resource_exhausted);
    expect_has(p.status().message(), {"does not fit", "bytes) too few"});
  }
  EXPECT_FALSE(make(container(kGiB, 2 * kGiB), tiny(), {}).ok());
}

// A context was accepted at 300 MiB, where the weights are read again from disk, and refused at 350.
TEST(Plan, MoreMemoryNeverRefusesWhatLessAccepts) {
  for (const ModelFacts& facts : {tiny(), gemma()}) {
    for (const std::int64_t context : {2048, 8192, 16384, 32768, 65536}) {
      Options o;
      o.context = context;
      std::uint64_t accepted_at = 0;
      for (std::uint64_t memory = 64 * kMiB; memory <= 1536 * kMiB; memory += 7 * kMiB) {
        o.memory = memory;
        const Result<Plan> plan = make(machine(16 * kGiB), facts, o);
        if (plan.ok() && accepted_at == 0) accepted_at = memory;
        EXPECT_EQ(plan.ok(), accepted_at != 0)
            << facts.name << ", context " << context << ": accepted at " << format_size(accepted_at) << ", not at "
            << format_size(memory) << ": " << plan.status().message();
      }
      EXPECT_NE(accepted_at, 0u) << facts.name << ", context " << context;
    }
  }
}

TEST(Plan, OwnMemoryIsNotCountedTwice) {
  Hardware hw = container(kGiB, 400 * kMiB);
  const Plan before = made(hw, tiny(), {});
  hw.cgroup_used += 300 * kMiB;
  hw.own_bytes = 300 * kMiB;
  EXPECT_EQ(made(hw, tiny(), {}).memory_bytes, before.memory_bytes);
}

TEST(Plan, ChunkShrinksBeforeAnythingIsRefused) {
  ModelFacts f = tiny();
  f.workspace_bytes = [](const WorkspaceShape& s) { return static_cast<std::uint64_t>(s.chunk) * 4 * kMiB; };
  const Hardware hw = container(kGiB);
  const Plan p = made(hw, f, {});
  EXPECT_EQ(p.chunk, 128);
  Options o;
  o.chunk = 512;
  const Result<Plan> refused = make(hw, f, {.context = 4096, .chunk = 512, .load_mode = gguf::LoadMode::read});
  ASSERT_FALSE(refused.ok());
  expect_has(refused.status().message(), {"scratch of a 512-token chunk 2.00 GiB", "-ub 128 fits"});
  o.chunk = 32;
  expect_has(joined(made(hw, f, o).warnings), {"a chunk of 32 tokens", "16 times as often"});
}

TEST(Plan, KvRamIsABound) {
  const Hardware hw = container(kGiB);
  Options o;
  o.context = 8192;
  o.kv_ram = 0;
  const Plan none = made(hw, tiny(), o);
  EXPECT_EQ(none.kv_ram_bytes_max, 0u);
  EXPECT_EQ(none.arena_bytes_max, 4 * none.sequence_bytes);
  o.kv_ram = 100 * kMiB;
  EXPECT_EQ(made(hw, tiny(), o).arena_bytes_max, none.arena_bytes_max + 100 * kMiB);
  o.kv_ram = 3 * kGiB;
  const Result<Plan> p = make(hw, tiny(), o);
  ASSERT_FALSE(p.ok());
  expect_has(p.status().message(), {"--kv-ram 3.00 GiB does not fit", "bytes) too few"});
  follow(p.status().message(), "--kv-ram ", "MiB fits", [&](std::uint64_t n) {
    o.kv_ram = n * kMiB;
    return make(hw, tiny(), o).ok();
  });
}

TEST(Plan, DiskTier) {
  Hardware hw = machine(8 * kGiB);
  Options o;
  o.disk = {.kind = DiskOption::Kind::folder, .folder = "/kv", .bytes_max = {}, .bytes_stored = 0};
  Plan p = made(hw, tiny(), o);
  EXPECT_EQ(p.disk_folder, "/kv");
  EXPECT_EQ(p.disk_quota_bytes, 10 * kGiB);
  expect_has(joined(p.notes), {"KV is kept in /kv", "--kv-disk off"});
  hw.disk_free = 95 * kGiB;  // What the store holds counts as free: the quota does not shrink from start to start.
  o.disk.bytes_stored = 5 * kGiB;
  EXPECT_EQ(made(hw, tiny(), o).disk_quota_bytes, 10 * kGiB);
  o.disk.bytes_max = 3 * kGiB;
  EXPECT_EQ(made(hw, tiny(), o).disk_quota_bytes, 3 * kGiB);
  o.disk.bytes_max = 300 * kGiB;
  expect_has(joined(made(hw, tiny(), o).warnings), {"--kv-disk-max 300 GiB", "about 99.0 GiB will be used"});
  hw.disk_free = kGiB;
  o.disk = {.kind = DiskOption::Kind::folder, .folder = "/kv", .bytes_max = {}, .bytes_stored = 0};
  p = made(hw, tiny(), o);
  EXPECT_FALSE(p.disk_folder);
  expect_has(joined(p.warnings), {"no disk tier", "/kv"});
}

TEST(Plan, OddValuesAreRefusedByName) {
  const Hardware hw = machine(8 * kGiB);
  for (const auto& [o, flag] : std::vector<std::pair<Options, std::string>>{{{.context = 0}, "-c 0"},
                                                                            {{.context = -5}, "-c -5"},
                                                                            {{.slots = 0}, "-np 0"},
                                                                            {{.slots = 100000}, "-np"},
                                                                            {{.chunk = 0}, "-ub 0"},
                                                                            {{.chunk = 1 << 20}, "-ub"},
                                                                            {{.threads = 0}, "-t 0"},
                                                                            {{.threads = 5000}, "-t"}}) {
    const Result<Plan> p = make(hw, tiny(), o);
    ASSERT_FALSE(p.ok());
    EXPECT_EQ(p.status().code(), Code::invalid_argument);
    expect_has(p.status().message(), {flag, "expected 1 to"});
  }
}

TEST(Plan, UnwiseButLegal) {
  Options o;
  o.threads = 8;
  expect_has(joined(made(machine(8 * kGiB), gemma(), o).warnings), {"-t 8 is more than the 2 cores"});
  o = {};
  o.context = 65536;
  expect_has(joined(made(machine(8 * kGiB), gemma(), o).warnings), {"beyond the 32768 tokens"});
  ModelFacts f = gemma();
  f.context_trained = 0;
  EXPECT_EQ(made(machine(8 * kGiB), f, {}).context, 4096);
  f.context_trained = 100;
  EXPECT_EQ(made(machine(8 * kGiB), f, {}).context, 100);
}

// Over many limits and options: a plan adds up, or the refusal says by how many bytes; more memory never makes a plan
// worse.
TEST(Plan, EveryPlanAddsUp) {
  int plans = 0, refusals = 0;
  for (const ModelFacts& facts : {tiny(), gemma()}) {
    for (const auto& context : std::vector<std::optional<std::int64_t>>{{}, 1, 4097, 100000}) {
      for (const int slots : {1, 3, 64}) {
        for (const gguf::LoadMode mode : {gguf::LoadMode::mmap, gguf::LoadMode::read}) {
          std::int64_t before = 0;
          bool fit = false;
          for (std::uint64_t mib = 16; mib <= 4096; mib += mib / 3) {
            const Hardware hw = container(mib * kMiB);
            Options o;
            o.context = context;
            o.slots = slots;
            o.load_mode = mode;
            const Result<Plan> p = make(hw, facts, o);
            if (p.ok()) {
              ++plans;
              check(*p, hw, facts, o);
              if (mode == gguf::LoadMode::read) {
                EXPECT_GE(p->context, before);
              }
              before = p->context;
              fit = true;
            } else {
              ++refusals;
              if (mode == gguf::LoadMode::read) {
                EXPECT_FALSE(fit) << p.status().message();
              }
              expect_has(p.status().message(), {" bytes) too few"});
              EXPECT_EQ(p.status().message().find("(0 bytes)"), std::string::npos) << p.status().message();
            }
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 300);
  EXPECT_GT(refusals, 100);
}

TEST(Plan, JsonHasTheSameNumbers) {
  Options o;
  o.disk = {.kind = DiskOption::Kind::folder, .folder = "/kv", .bytes_max = {}, .bytes_stored = 0};
  const Plan p = made(container(kGiB), tiny(), o);
  const nlohmann::ordered_json j = p.json();
  std::uint64_t sum = 0;
  for (const auto& line : j["memory"]) sum += line["bytes"].get<std::uint64_t>();
  EXPECT_EQ(sum, j["memory_bytes"].get<std::uint64_t>());
  EXPECT_EQ(j["context"], p.context);
  EXPECT_EQ(j["disk_folder"], "/kv");
  EXPECT_EQ(j["settings"][0]["name"], "context");
  EXPECT_EQ(j["settings"][0]["value"], p.context);
  EXPECT_EQ(j.begin().key(), "model");
  expect_has(p.text(), {"Plan for tiny", "KV arena", "margin", "sum", "1.00 GiB", "full attention, 6 layers", "/kv"});
}

// ---- A card

// qwen3-8b in Q4_K with a vocabulary of 152k: 4.3 GiB on the card, 0.33 GiB of token table in RAM, 144 KiB of KV a
// token.
ModelFacts qwen8b() {
  ModelFacts f = tiny();
  f.name = "qwen3-8b";
  f.vocab = 151936;
  f.context_trained = 131072;
  f.groups = {group_of(CacheGroup::Kind::full, 36, 0, 8, 128)};
  f.embedding_bytes = f.output_bytes = 334 * kMiB;
  f.attention_bytes = kGiB;
  f.ffn_bytes = 2900 * kMiB;
  f.card_weights_bytes = f.output_bytes + f.attention_bytes + f.ffn_bytes + f.other_bytes;
  f.pinned_weights_bytes = f.embedding_bytes;
  f.card_workspace_bytes = [](const WorkspaceShape& s) {
    return static_cast<std::uint64_t>(s.chunk + s.slots) * 260 * kKiB + static_cast<std::uint64_t>(s.context) * 512;
  };
  f.workspace_bytes = [](const WorkspaceShape&) { return 200 * kMiB; };
  return f;
}
Options on_card(std::uint64_t total, std::optional<std::uint64_t> vram = {}) {
  Options o;
  o.card = Card{.name = "a card",
                .total_bytes = total,
                .free_bytes = total - 500 * kMiB,
                .driver_bytes = 500 * kMiB,
                .growth_bytes = 256 * kMiB};
  o.vram = vram;
  return o;
}
std::uint64_t sum_of(const std::vector<Line>& lines) {
  std::uint64_t sum = 0;
  for (const Line& line : lines) sum += line.bytes;
  return sum;
}

TEST(PlanCard, EightGiBAndALongContextNeedNoOtherOption) {
  Options o = on_card(24 * kGiB, 8 * kGiB);
  o.context = 32768;
  o.smaller_types = {kernels::KvType::q8_0};
  const auto plan = make(machine(32 * kGiB), qwen8b(), o);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->vram_bytes, 8 * kGiB);
  EXPECT_EQ(sum_of(plan->card_lines), plan->vram_bytes);
  EXPECT_EQ(sum_of(plan->lines), plan->memory_bytes);
  EXPECT_EQ(plan->chunk, 2048);
  EXPECT_EQ(plan->k_type, kernels::KvType::f16);
  EXPECT_GT(plan->vram_kv_bytes, kGiB);
  EXPECT_LT(plan->vram_kv_bytes, plan->sequence_bytes);
  EXPECT_GE(plan->vram_kv_bytes + plan->arena_bytes_max, plan->sequence_bytes) << "the rest fits RAM";
  expect_has(joined(plan->notes), {"its blocks lie in RAM", "-ctk q8_0 -ctv q8_0 would take"});
  expect_has(plan->text(), {"On a card", "CUDA", "margin"});
  const auto json = plan->json();
  EXPECT_EQ(json["vram_bytes"], 8 * kGiB);
  EXPECT_EQ(json["vram"].size(), plan->card_lines.size());
}

TEST(PlanCard, RefusesI16) {
  for (const bool k : {true, false}) {
    Options o = on_card(24 * kGiB);
    (k ? o.k_type : o.v_type) = kernels::KvType::i16;
    const auto plan = make(machine(32 * kGiB), qwen8b(), o);
    ASSERT_FALSE(plan.ok());
    expect_has(plan.status().message(), {"i16", "a card", "-ctk and -ctv f16, q8_0 or f32", "-ngl 0"});
    o.card.reset();
    EXPECT_TRUE(make(machine(32 * kGiB), qwen8b(), o).ok());
  }
}

TEST(PlanCard, TheDefaultContextStaysOnTheCard) {
  const auto plan = make(machine(64 * kGiB), qwen8b(), on_card(12 * kGiB));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_LE(plan->sequence_bytes, plan->vram_kv_bytes);
  EXPECT_GT(plan->context, 8192);
  EXPECT_LT(plan->context, plan->context_trained);
  EXPECT_LE(plan->vram_bytes, 12 * kGiB - 128 * kMiB) << "a margin for others stays free";
  expect_has(joined(plan->notes), {"instead of the trained 131072"});
}

TEST(PlanCard, WhatDoesNotFitIsRefusedWithFiguresThatHold) {
  const auto refused = make(machine(64 * kGiB), qwen8b(), on_card(24 * kGiB, 4 * kGiB));
  ASSERT_FALSE(refused.ok());
  const std::string text = refused.status().message();
  expect_has(text, {"the model does not fit the card", "weights", "--vram 4.00 GiB", "too few", "--vram 0 computes"});
  const auto at = text.find("--vram ", text.find("Instead"));
  ASSERT_NE(at, std::string::npos) << text;
  const std::uint64_t would_do = std::stoull(text.substr(at + 7)) * kMiB;
  EXPECT_TRUE(make(machine(64 * kGiB), qwen8b(), on_card(24 * kGiB, would_do)).ok()) << text;
  EXPECT_FALSE(make(machine(64 * kGiB), qwen8b(), on_card(24 * kGiB, would_do - 4 * kMiB)).ok()) << text;
}

TEST(PlanCard, ASmallerChunkWhereTheScratchWouldNotFit) {
  const auto plan = make(machine(64 * kGiB), qwen8b(), on_card(24 * kGiB, 5400 * kMiB));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_LT(plan->chunk, 2048);
  EXPECT_EQ(sum_of(plan->card_lines), plan->vram_bytes);
}

TEST(PlanCard, MoreThanThereIsIsSaid) {
  const auto plan = make(machine(64 * kGiB), qwen8b(), on_card(24 * kGiB, 48 * kGiB));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_LT(plan->vram_bytes, 24 * kGiB);
  expect_has(joined(plan->warnings), {"--vram 48.0 GiB is more than there is"});
}

// 8 layers of 64 experts, 4 used: 512 of 128 KiB among 90 MiB of feed-forward weights.
ModelFacts mixture() {
  ModelFacts f = tiny();
  f.context_trained = 4096;
  f.experts = {.bytes = 64 * kMiB,
               .slot_bytes = 136 * kKiB,
               .count = 512,
               .per_token = 32,
               .policy_bytes = 70 * kKiB,
               .packable_others = 60 * kMiB};
  f.packable_bytes = 120 * kMiB;
  return f;
}

TEST(PlanExperts, AShareIsAConstraintAndTheRestIsPlannedAroundIt) {
  const auto whole = make(machine(2 * kGiB), mixture(), {});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->expert_slots_bytes, 0u) << "everything fits: no cache";
  EXPECT_EQ(whole->packed_bytes, 120 * kMiB);
  const auto half = make(machine(2 * kGiB), mixture(), {.expert_ram = 256 * 136 * kKiB});
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_EQ(half->expert_slots_bytes, 256 * 136 * kKiB);
  EXPECT_EQ(half->packed_bytes, 60 * kMiB) << "slots hold experts as the file has them";
  EXPECT_EQ(sum_of(half->lines), half->memory_bytes);
  EXPECT_LT(half->resident_bytes_max, whole->resident_bytes_max);
  EXPECT_TRUE(half->warnings.empty());
  EXPECT_NE(half->text().find("256 of 512"), std::string::npos) << half->text();
  const auto all = make(machine(2 * kGiB), mixture(), {.expert_ram = kGiB});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->expert_slots_bytes, 0u);
}

TEST(PlanExperts, LessThanOneTokensWorthIsRefusedAndTheAdviceHolds) {
  const auto refused = make(machine(2 * kGiB), mixture(), {.expert_ram = 4 * kMiB});
  ASSERT_FALSE(refused.ok());
  const std::string& why = refused.status().message();
  EXPECT_NE(why.find("holds 30 experts of 136 KiB, fewer than the 32 that one token uses"), std::string::npos) << why;
  EXPECT_NE(why.find("(262144 bytes) too few"), std::string::npos) << why;
  EXPECT_NE(why.find("--expert-ram 5MiB is the least"), std::string::npos) << why;
  const auto least = make(machine(2 * kGiB), mixture(), {.expert_ram = 5 * kMiB});
  ASSERT_TRUE(least.ok());
  ASSERT_FALSE(least->warnings.empty()) << "legal, but unwise";
  EXPECT_NE(least->warnings.back().find("less than 1.8 tokens' worth"), std::string::npos);
}

// G01: an option that is fixed does not end the planning of the rest. G06: what does not fit gets a cache by itself.
TEST(PlanExperts, G01_G06_MemoryAloneDecidesHowManyStay) {
  std::uint64_t last = 0;
  for (const std::uint64_t memory : {230, 240, 250}) {
    const auto plan = make(machine(2 * kGiB), mixture(), {.slots = 1, .memory = memory * kMiB});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_GT(plan->expert_slots_bytes, last) << memory;
    EXPECT_LT(plan->expert_slots_bytes, 512 * 136 * kKiB);
    EXPECT_EQ(sum_of(plan->lines), plan->memory_bytes);
    EXPECT_LE(plan->resident_bytes_max, memory * kMiB);
    last = plan->expert_slots_bytes;
  }
  const auto fixed = make(machine(2 * kGiB), mixture(), {.slots = 1, .memory = 250 * kMiB, .expert_ram = 10 * kMiB});
  ASSERT_TRUE(fixed.ok()) << fixed.status().message();
  EXPECT_EQ(fixed->expert_slots_bytes, 10 * kMiB / (136 * kKiB) * (136 * kKiB));
}

// G08: how weights are loaded does not change what goes where.
TEST(PlanExperts, G08_TheSameInEveryLoadMode) {
  const auto mapped = make(machine(2 * kGiB), mixture(), {.expert_ram = 30 * kMiB});
  for (const auto mode : {gguf::LoadMode::read, gguf::LoadMode::direct}) {
    const auto plan = make(machine(2 * kGiB), mixture(), {.expert_ram = 30 * kMiB, .load_mode = mode});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->expert_slots_bytes, mapped->expert_slots_bytes);
    EXPECT_EQ(plan->resident_bytes_max, mapped->resident_bytes_max);
    EXPECT_EQ(plan->packed_bytes, mapped->packed_bytes);
  }
}

TEST(PlanExperts, WithoutExpertsTheFlagSaysSo) {
  const auto plan = make(machine(2 * kGiB), tiny(), {.context = 2048, .expert_ram = kGiB});
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->warnings.empty());
  EXPECT_NE(plan->warnings[0].find("the model has no routed experts"), std::string::npos);
}

}  // namespace
}  // namespace lode::plan
