// The planner's arithmetic. How it goes: what may be used, minus margin, weights, engine and scratch, is left for KV;
// the context is the longest of which one sequence fits there; the arena is what the slots and --kv-ram can use of it.
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "plan/refusal.h"

namespace lode::plan {
namespace {

constexpr std::int64_t kContextStep = 256;   // An attention span: contexts are offered in whole spans.
constexpr std::int64_t kContextLeast = 512;  // Below this a server is of no use to anyone: refuse instead.
constexpr std::int64_t kChunkDefault = 512;
constexpr std::int64_t kChunkCard = 2048;  // A card reads its weights once a chunk, and is idle below this.
constexpr std::int64_t kChunkLeast = 32;
constexpr int kSlotsDefault = 4;  // Enough for an agent with helpers; a slot costs nothing until used.
constexpr std::int64_t kContextMost = std::int64_t{1} << 31;
constexpr std::int64_t kChunkMost = 1 << 16;
constexpr int kSlotsMost = 1024, kThreadsMost = 1024;
constexpr std::uint64_t kDiskFloor = kGiB;  // The disk tier never writes when less is free.

std::uint64_t sub(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}
std::uint64_t blocks_of(std::int64_t tokens) {
  return (static_cast<std::uint64_t>(tokens) + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
}

Status range(std::string_view flag, std::int64_t found, std::int64_t least, std::int64_t most) {
  if (found >= least && found <= most) return {};
  return Status::invalid(fmt::format("{} {}: expected {} to {}", flag, found, least, most));
}

Status check_options(const Options& o) {
  if (o.context) LODE_RETURN_IF_ERROR(range("-c", *o.context, 1, kContextMost));
  if (o.slots) LODE_RETURN_IF_ERROR(range("-np", *o.slots, 1, kSlotsMost));
  if (o.chunk) LODE_RETURN_IF_ERROR(range("-ub", *o.chunk, 1, kChunkMost));
  if (o.threads) LODE_RETURN_IF_ERROR(range("-t", *o.threads, 1, kThreadsMost));
  return {};
}

// ---- What may be used

struct Room {
  std::uint64_t bytes = 0;
  std::string limit;  // "the container's limit of 1.00 GiB", for messages.
  std::string why;    // How `bytes` comes about.
};

Room room_of(const Hardware& hw, const Options& options, std::vector<std::string>& warnings) {
  // This process' own memory is counted again below, line by line: add it back to what is free.
  Room room{
      hw.ram_available + hw.own_bytes, fmt::format("{} of free memory", format_size(hw.ram_available)),
      fmt::format("{} of {} RAM are free or can be freed", format_size(hw.ram_available), format_size(hw.ram_total))};
  if (hw.cgroup_limit) {
    const std::uint64_t left = sub(*hw.cgroup_limit, sub(hw.cgroup_used, hw.own_bytes));
    if (left < room.bytes) {
      room = {left, fmt::format("the container's limit of {}", format_size(*hw.cgroup_limit)),
              fmt::format("container limit {} ({}), of which others use {}", format_size(*hw.cgroup_limit),
                          hw.cgroup_source, format_size(sub(hw.cgroup_used, hw.own_bytes)))};
    }
  }
  if (!options.memory) return room;
  if (*options.memory > room.bytes) {
    warnings.push_back(fmt::format("--memory {} is more than there is: planned with {} ({})",
                                   format_size(*options.memory), format_size(room.bytes), room.why));
    return room;
  }
  return {*options.memory, fmt::format("--memory {}", format_size(*options.memory)), "--memory"};
}

// ---- What is needed

// The card's part of that.
struct CardBase {
  std::uint64_t bytes = 0;  // --vram, or what is free and a margin.
  std::string limit;        // For messages.
  std::uint64_t driver = 0;
  std::uint64_t fixed(const ModelFacts& facts) const { return driver + kVramMargin + facts.card_weights_bytes; }
};

// Everything that is settled before KV gets its share.
struct Base {
  Room room;
  std::uint64_t margin = 0, weights = 0, engine = 0;
  // 5%: page tables, allocator slack, sockets, the estimate's own error. At least 16 MiB, at most 1 GiB.
  static std::uint64_t margin_of(std::uint64_t room) { return std::clamp(room / 20, 16 * kMiB, kGiB); }
  std::uint64_t fixed() const { return margin + weights + engine; }
};

class Planner {
 public:
  Planner(const Hardware& hw, const ModelFacts& facts, const Options& options)
      : hw_(hw), facts_(facts), options_(options) {}
  Result<Plan> run();

 private:
  void settle_base();
  std::int64_t chunk_for(std::int64_t context) const;
  Status settle_chunk();
  Status settle_context();
  Status settle_arena();
  void settle_disk();
  void stream_weights();
  Status ask_experts();
  bool cache_experts();
  void hold_experts(std::uint64_t slots);
  void note_experts();
  void warn_streamed();
  std::uint64_t workspace(std::int64_t chunk, std::int64_t context) const {
    return facts_.workspace_bytes({.chunk = chunk, .context = context, .slots = plan_.slots, .threads = plan_.threads});
  }
  std::uint64_t kv(std::int64_t context, std::int64_t chunk) const {
    return sequence_bytes(facts_, options_.k_type, options_.v_type, context, chunk);
  }
  // The first of the smaller types in which K and V of `context` tokens take at most `bytes`.
  std::optional<kernels::KvType> smaller_type(std::int64_t context, std::uint64_t bytes) const;
  // RAM for KV beside everything else.
  std::uint64_t ram_left(std::int64_t chunk, std::int64_t context) const {
    return sub(base_.room.bytes, base_.fixed() + workspace(chunk, context)) / kPieceBytes * kPieceBytes;
  }
  std::uint64_t card_workspace(std::int64_t chunk, std::int64_t context) const {
    return align_up(
        facts_.card_workspace_bytes({.chunk = chunk, .context = context, .slots = plan_.slots, .threads = 1}),
        kPieceBytes);
  }
  // The same on the card.
  std::uint64_t card_left(std::int64_t chunk, std::int64_t context) const {
    if (!options_.card) return 0;
    return sub(card_.bytes, card_.fixed(facts_) + card_workspace(chunk, context)) / kPieceBytes * kPieceBytes;
  }
  // The card computes only where its memory holds the blocks of a short sequence at least.
  bool card_has_room(std::int64_t chunk, std::int64_t context) const {
    return !options_.card || card_left(chunk, context) >= kv(std::min(context, least_context()), chunk);
  }
  // Memory for KV, of both.
  std::uint64_t left(std::int64_t chunk, std::int64_t context) const {
    if (!card_has_room(chunk, context)) return 0;
    return ram_left(chunk, context) + card_left(chunk, context);
  }
  std::int64_t first_chunk() const { return options_.chunk.value_or(options_.card ? kChunkCard : kChunkDefault); }
  bool fits(std::int64_t context, std::int64_t chunk) const { return kv(context, chunk) <= left(chunk, context); }
  // The longest context, a multiple of kContextStep up to `most` (or `most` itself), that fits; 0: none.
  std::int64_t longest(std::int64_t most, std::int64_t chunk) const;
  std::int64_t longest_on_card(std::int64_t most, std::int64_t chunk) const;
  std::int64_t least_context() const;
  void settle_card();
  Status refuse_card() const;
  void note_overflow();
  void fill_card_lines();
  Status refuse_base() const;
  Status refuse_context() const;
  void fill_lines();
  void fill_settings();
  void fill_groups();
  std::string context_reason() const;

  const Hardware& hw_;
  const ModelFacts& facts_;
  const Options& options_;
  Base base_;
  CardBase card_;
  Plan plan_;
  std::uint64_t expert_slots_ = 0;  // Of a cache; 0: there is none.
  std::uint64_t streamed_ = 0;      // Weights that do not stay in memory, in mmap mode.
};

std::optional<kernels::KvType> Planner::smaller_type(std::int64_t context, std::uint64_t bytes) const {
  for (const kernels::KvType type : options_.smaller_types) {
    if (sequence_bytes(facts_, type, type, context, plan_.chunk) <= bytes) return type;
  }
  return std::nullopt;
}

std::int64_t Planner::longest(std::int64_t most, std::int64_t chunk) const {
  if (fits(most, chunk)) return most;
  std::int64_t low = 0, high = (most + kContextStep - 1) / kContextStep;  // In steps; low fits (nothing), high doesn't.
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle * kContextStep, chunk) ? low : high) = middle;
  }
  return low * kContextStep;
}

// The longest whose blocks all fit on the card.
std::int64_t Planner::longest_on_card(std::int64_t most, std::int64_t chunk) const {
  std::int64_t context = longest(most, chunk);
  while (context > kContextLeast && kv(context, chunk) > card_left(chunk, context))
    context =
        std::max(kContextLeast, (context - std::max<std::int64_t>(1, context / 64)) / kContextStep * kContextStep);
  return context;
}

// The shortest context that is of use.
std::int64_t Planner::least_context() const {
  const std::int64_t trained = facts_.context_trained > 0 ? facts_.context_trained : kContextLeast;
  return std::min({kContextLeast, trained, options_.context.value_or(kContextLeast)});
}

void Planner::settle_base() {
  plan_.model = facts_.name;
  plan_.context_trained = facts_.context_trained;
  plan_.k_type = options_.k_type;
  plan_.v_type = options_.v_type;
  plan_.load_mode = options_.load_mode;
  plan_.threads = options_.threads.value_or(std::max(1, hw_.cores));
  plan_.slots = options_.slots.value_or(kSlotsDefault);
  plan_.weights_bytes =
      facts_.embedding_bytes + facts_.output_bytes + facts_.attention_bytes + facts_.ffn_bytes + facts_.other_bytes;
  base_.room = room_of(hw_, options_, plan_.warnings);
  base_.margin = std::min(base_.room.bytes, Base::margin_of(base_.room.bytes));
  base_.weights = options_.card ? facts_.pinned_weights_bytes : plan_.weights_bytes;
  // 24 MiB of code, libraries and thread stacks; a token's text, score, type and hash entries take about 96 bytes.
  base_.engine = facts_.engine_bytes.value_or(24 * kMiB + static_cast<std::uint64_t>(facts_.vocab) * 96);
  if (options_.card) settle_card();
  if (plan_.threads > hw_.cores) {
    plan_.warnings.push_back(
        fmt::format("-t {} is more than the {} cores this process may use: threads would wait for "
                    "each other in every step; -t {} is faster",
                    plan_.threads, hw_.cores, hw_.cores));
  }
}

// What of the card may be used. Without --vram: what is free, but for a twentieth that other programs, the desktop
// above all, may come to need.
void Planner::settle_card() {
  const Card& card = *options_.card;
  base_.engine += 256 * kMiB;  // The driver's and cuBLAS' own memory of the host.
  const std::uint64_t there = card.free_bytes + card.driver_bytes;
  card_.bytes = sub(there, std::clamp(there / 20, 128 * kMiB, kGiB));
  card_.limit = fmt::format("{} of {} on the card", format_size(card_.bytes), format_size(card.total_bytes));
  if (options_.vram) {
    if (*options_.vram > there) {
      plan_.warnings.push_back(fmt::format("--vram {} is more than there is: planned with {}, of {} free",
                                           format_size(*options_.vram), format_size(card_.bytes), format_size(there)));
    } else {
      card_.bytes = *options_.vram;
      card_.limit = fmt::format("--vram {}", format_size(card_.bytes));
    }
  }
  card_.driver = align_up(card.driver_bytes + card.growth_bytes, kPieceBytes);
  plan_.card = card.name;
  plan_.vram_bytes = card_.bytes;
}

// The largest chunk down from the wanted one beside which `context` fits; 0: none.
std::int64_t Planner::chunk_for(std::int64_t context) const {
  const std::int64_t first = first_chunk(), last = options_.chunk.value_or(kChunkLeast);
  for (std::int64_t chunk = first; chunk >= last; chunk /= 2) {
    if (fits(context, chunk)) return chunk;
  }
  return 0;
}

// The chunk: as asked, or the largest part of the default (halved again and again) that leaves room for the context
// that was asked for.
Status Planner::settle_chunk() {
  const std::int64_t wanted = options_.context.value_or(least_context());
  // Also where only the context asked for is too long: more memory must never refuse what less memory accepts.
  if (!options_.card && chunk_for(wanted) == 0 && !cache_experts() && expert_slots_ == 0 &&
      options_.load_mode == gguf::LoadMode::mmap)
    stream_weights();
  plan_.chunk = chunk_for(wanted);
  if (plan_.chunk == 0) {
    plan_.chunk = chunk_for(least_context());
    if (plan_.chunk > 0) return refuse_context();
    const std::int64_t least = options_.chunk.value_or(kChunkLeast);
    plan_.chunk = options_.card ? least : options_.chunk.value_or(kChunkDefault);
    if (!card_has_room(least, least_context())) return refuse_card();
    return refuse_base();
  }
  if (plan_.chunk < 128) {
    plan_.warnings.push_back(fmt::format(
        "a chunk of {} tokens: a prompt reads all weights once a chunk, {} times as often as with {}; expect slow "
        "prompts",
        plan_.chunk, (kChunkDefault + plan_.chunk - 1) / plan_.chunk, kChunkDefault));
  }
  return {};
}

// In mmap mode the kernel may drop weights and read them again. When they do not fit beside the context asked for, or
// even a short one, KV gets half of what the rest leaves, or up to three quarters where -c asks for it: each byte of
// weights dropped is read again for every token.
void Planner::stream_weights() {
  const std::int64_t chunk = options_.chunk.value_or(kChunkLeast);
  const std::int64_t context = options_.context.value_or(least_context());
  const std::uint64_t others = base_.margin + base_.engine + workspace(chunk, context);
  const std::uint64_t rest = sub(base_.room.bytes, others);
  const std::uint64_t asked = kv(context, chunk);
  const std::uint64_t for_kv = std::max(rest / 2, std::min(asked + kPieceBytes, rest / 4 * 3));
  base_.weights = std::min(plan_.weights_bytes, sub(rest, for_kv));
  streamed_ = plan_.weights_bytes - base_.weights;
}

// --expert-ram: so many experts in slots, the others read from the file when a token needs them.
Status Planner::ask_experts() {
  const ExpertFacts& e = facts_.experts;
  if (!options_.expert_ram) return {};
  if (options_.card || e.slot_bytes == 0) {
    plan_.warnings.push_back(fmt::format(
        "--expert-ram {} has no effect: {}", format_size(*options_.expert_ram),
        options_.card ? "the card computes, with all experts in its memory" : "the model has no routed experts"));
    return {};
  }
  const std::uint64_t slots = *options_.expert_ram / e.slot_bytes, least = static_cast<std::uint64_t>(e.per_token);
  if (slots >= static_cast<std::uint64_t>(e.count)) return {};  // All of them: nothing to choose.
  if (slots < least) {
    Refusal r;
    r.what = fmt::format(
        "--expert-ram {} holds {} experts of {}, fewer than the {} that one token uses: {} ({} bytes) too few",
        format_size(*options_.expert_ram), slots, format_size(e.slot_bytes), least,
        format_size(least * e.slot_bytes - *options_.expert_ram), least * e.slot_bytes - *options_.expert_ram);
    r.advise(fmt::format("--expert-ram {} is the least", fitting(align_up(least * e.slot_bytes, kMiB))));
    r.advise(fmt::format("{} hold all {} experts", fitting(align_up(e.bytes, kMiB)), e.count));
    return r.status();
  }
  hold_experts(slots);
  return {};
}

void Planner::hold_experts(std::uint64_t slots) {
  expert_slots_ = slots;
  base_.weights = plan_.weights_bytes - facts_.experts.bytes + facts_.experts.policy_bytes +
                  align_up(slots * facts_.experts.slot_bytes, kPieceBytes);
}

// Where the weights do not fit, experts get what the rest leaves, as stream_weights divides it. False: there are none,
// or not even one token's.
bool Planner::cache_experts() {
  const ExpertFacts& e = facts_.experts;
  if (e.slot_bytes == 0 || options_.expert_ram) return false;
  const std::int64_t chunk = options_.chunk.value_or(kChunkLeast);
  const std::int64_t context = options_.context.value_or(least_context());
  const std::uint64_t others = base_.margin + base_.engine + workspace(chunk, context) + plan_.weights_bytes - e.bytes +
                               e.policy_bytes + kPieceBytes;
  const std::uint64_t rest = sub(base_.room.bytes, others), asked = kv(context, chunk) + kPieceBytes;
  const std::uint64_t for_kv = std::max(rest / 4, std::min(asked, rest / 4 * 3));
  const std::uint64_t slots = std::min(sub(rest, for_kv) / e.slot_bytes, static_cast<std::uint64_t>(e.count));
  if (slots < static_cast<std::uint64_t>(e.per_token)) return false;
  hold_experts(slots);
  return true;
}

void Planner::note_experts() {
  const ExpertFacts& e = facts_.experts;
  const auto least = static_cast<std::uint64_t>(e.per_token);
  const std::uint64_t token = least * e.bytes / static_cast<std::uint64_t>(e.count);
  plan_.expert_slots_bytes = expert_slots_ * e.slot_bytes;
  const std::string what = fmt::format(
      "{} of {} experts stay in memory ({}); a token uses {} of {}, and what is not there is read from the "
      "file",
      expert_slots_, e.count, format_size(plan_.expert_slots_bytes), least, format_size(token));
  if (expert_slots_ * 5 < least * 9) {
    plan_.warnings.push_back(
        fmt::format("{}; less than 1.8 tokens' worth keeps little from one token to the next, and "
                    "each may read most of that: {} would be 1.8",
                    what, format_size(least * 9 / 5 * e.slot_bytes)));
  } else {
    plan_.notes.push_back(what);
  }
}

Status Planner::settle_context() {
  const std::int64_t trained = facts_.context_trained > 0 ? facts_.context_trained : 4096;
  if (options_.context) {
    plan_.context = *options_.context;
    if (!fits(plan_.context, plan_.chunk)) return refuse_context();
    if (facts_.context_trained > 0 && plan_.context > trained) {
      plan_.warnings.push_back(
          fmt::format("-c {} is beyond the {} tokens that the model was trained for: answers get "
                      "worse there",
                      plan_.context, trained));
    }
  } else {
    plan_.context = options_.card ? longest_on_card(trained, plan_.chunk) : longest(trained, plan_.chunk);
    if (plan_.context < trained && options_.card) {
      plan_.notes.push_back(fmt::format(
          "context {} per slot instead of the trained {}: that would need {} of KV, {} are left on the card; a longer "
          "one, set with -c, keeps what does not fit in RAM",
          plan_.context, trained, format_size(kv(trained, plan_.chunk)),
          format_size(card_left(plan_.chunk, plan_.context))));
    } else if (plan_.context < trained) {
      plan_.notes.push_back(fmt::format(
          "context {} per slot instead of the trained {}: that would need {} of KV, {} are left under {} (set it "
          "with -c)",
          plan_.context, trained, format_size(kv(trained, plan_.chunk)), format_size(left(plan_.chunk, trained)),
          base_.room.limit));
    }
  }
  plan_.workspace_bytes = workspace(plan_.chunk, plan_.context);
  plan_.sequence_bytes = kv(plan_.context, plan_.chunk);
  if (options_.card) note_overflow();
  return {};
}

// Blocks beyond the card's memory are used where they lie, in page-locked RAM: the same bits, but every token reads
// them over the bus. 8-bit K and V are offered, not chosen: they are another model's answers, if nearly the same.
void Planner::note_overflow() {
  const std::uint64_t card = card_left(plan_.chunk, plan_.context);
  plan_.vram_kv_bytes = card;
  plan_.vram_driver_bytes = card_.driver;
  plan_.vram_weights_bytes = facts_.card_weights_bytes;
  plan_.vram_workspace_bytes = card_workspace(plan_.chunk, plan_.context);
  plan_.vram_margin_bytes = kVramMargin;
  if (plan_.sequence_bytes <= card) return;
  const std::uint64_t over = plan_.sequence_bytes - card;
  const std::int64_t fits = longest_on_card(plan_.context, plan_.chunk);
  std::string note = fmt::format(
      "a sequence of {} tokens takes {} of KV, and {} are left on the card: beyond about {} tokens its blocks lie in "
      "RAM and every token reads them over the bus, at {} tokens {} (about {} ms at 25 GB/s)",
      plan_.context, format_size(plan_.sequence_bytes), format_size(card), fits, plan_.context, format_size(over),
      over / 25'000'000);
  if (const auto type = smaller_type(plan_.context, card)) {
    note += fmt::format("; -ctk {0} -ctv {0} would take {1} and fit", kv_type_name(*type),
                        format_size(sequence_bytes(facts_, *type, *type, plan_.context, plan_.chunk)));
  }
  plan_.notes.push_back(note);
}

// One sequence of the full context always fits. Others share what is left and are preempted when it runs out: memory is
// committed as sequences grow, so slots cost nothing until they are used.
Status Planner::settle_arena() {
  const std::uint64_t left_bytes = ram_left(plan_.chunk, plan_.context), card = plan_.vram_kv_bytes;
  if (options_.kv_ram && *options_.kv_ram > left_bytes) {
    return Status::exhausted(
        fmt::format("--kv-ram {} does not fit: {} are left for KV under {}, {} ({} bytes) too few; --kv-ram {} fits, "
                    "or 0 to keep none",
                    format_size(*options_.kv_ram), format_size(left_bytes), base_.room.limit,
                    format_size(*options_.kv_ram - left_bytes), *options_.kv_ram - left_bytes, fitting(left_bytes)));
  }
  // By default a quarter of what may be used: enough for many prefixes, and polite on a desktop.
  plan_.kv_ram_bytes_max = options_.kv_ram.value_or(std::min(left_bytes, base_.room.bytes / 4));
  const auto slots = static_cast<std::uint64_t>(plan_.slots);
  const std::uint64_t all_slots = checked_mul(slots, plan_.sequence_bytes).value_or(left_bytes);
  const std::uint64_t wanted = checked_add(sub(all_slots, card), plan_.kv_ram_bytes_max).value_or(left_bytes);
  plan_.arena_bytes_max = std::min(left_bytes, align_up(wanted, kPieceBytes));
  plan_.kv_ram_bytes_max = std::min(plan_.kv_ram_bytes_max, plan_.arena_bytes_max);
  if (plan_.slots > 1) {
    std::string sharing = "all may be full at once";
    if (all_slots > plan_.arena_bytes_max + card) {
      sharing = fmt::format(
          "{} of them may be full at once; beyond that the youngest gives its memory up and resumes "
          "later",
          (plan_.arena_bytes_max + card) / plan_.sequence_bytes);
    }
    plan_.notes.push_back(fmt::format("{} slots of {} tokens each: {}", plan_.slots, plan_.context, sharing));
  }
  return {};
}

void Planner::settle_disk() {
  const DiskOption& disk = options_.disk;
  if (disk.kind == DiskOption::Kind::off) return;
  const std::uint64_t free = hw_.disk_free + disk.bytes_stored;
  if (free < 2 * kDiskFloor && !disk.bytes_max) {
    plan_.warnings.push_back(
        fmt::format("no disk tier: {} has {} free, and {} must stay free; name another folder "
                    "with --kv-disk",
                    disk.folder.string(), format_size(free), format_size(kDiskFloor)));
    return;
  }
  if (disk.bytes_max && *disk.bytes_max > sub(free, kDiskFloor)) {
    plan_.warnings.push_back(
        fmt::format("--kv-disk-max {} is more than {} can give: {} are free and {} must stay "
                    "free, so about {} will be used",
                    format_size(*disk.bytes_max), disk.folder.string(), format_size(free), format_size(kDiskFloor),
                    format_size(sub(free, kDiskFloor))));
  }
  plan_.disk_folder = disk.folder;
  plan_.disk_quota_bytes = disk.bytes_max.value_or(free / 10);
  plan_.notes.push_back(
      fmt::format("KV is kept in {} (up to {}); prompts can be read back from it; --kv-disk off turns "
                  "it off",
                  disk.folder.string(), format_size(plan_.disk_quota_bytes)));
}

// ---- Refusals

// The weights, the engine and a step's scratch do not leave room for even a short context.
Status Planner::refuse_base() const {
  const std::int64_t context = least_context();
  const std::uint64_t scratch = workspace(plan_.chunk, context), kv_bytes = kv(context, plan_.chunk);
  const std::uint64_t need = plan_.weights_bytes + base_.engine + scratch + kv_bytes;
  const std::uint64_t usable = sub(base_.room.bytes, base_.margin);
  Refusal r;
  r.what = fmt::format(
      "the model does not fit: weights {}, engine {}, scratch of a {}-token chunk {}, KV of {} tokens {}, margin {} "
      "make {}; {} may be used ({}), {} ({} bytes) too few",
      format_size(plan_.weights_bytes), format_size(base_.engine), plan_.chunk, format_size(scratch), context,
      format_size(kv_bytes), format_size(base_.margin), format_size(need + base_.margin), format_size(base_.room.bytes),
      base_.room.why, format_size(sub(need, usable)), sub(need, usable));
  if (options_.load_mode != gguf::LoadMode::mmap)
    r.advise("--load-mode mmap, which can drop weights and read them again");
  if (options_.chunk) {
    for (std::int64_t chunk = plan_.chunk / 2; chunk >= kChunkLeast; chunk /= 2) {
      if (!fits(context, chunk)) continue;
      r.advise(fmt::format("-ub {} fits", chunk));
      break;
    }
  }
  const std::uint64_t fits_whole = sub(usable, base_.engine + scratch + kv_bytes);
  if (fits_whole > 0) r.advise(fmt::format("a quantization of at most {} of weights fits", format_size(fits_whole)));
  if (options_.memory) r.advise(fmt::format("--memory {} would do", fitting(memory_for(need))));
  return r.status();
}

// The card's memory is too small for the weights and a short step.
Status Planner::refuse_card() const {
  const std::int64_t context = least_context();
  const std::uint64_t scratch = card_workspace(plan_.chunk, context), kv_bytes = kv(context, plan_.chunk);
  const std::uint64_t fixed = card_.driver + kVramMargin, need = fixed + facts_.card_weights_bytes + scratch + kv_bytes;
  Refusal r;
  r.what = fmt::format(
      "the model does not fit the card: CUDA {}, weights {}, scratch of a {}-token chunk {}, KV of {} tokens {}, "
      "margin "
      "{} make {}; {} may be used, {} ({} bytes) too few",
      format_size(card_.driver), format_size(facts_.card_weights_bytes), plan_.chunk, format_size(scratch), context,
      format_size(kv_bytes), format_size(kVramMargin), format_size(need), card_.limit,
      format_size(sub(need, card_.bytes)), sub(need, card_.bytes));
  if (options_.vram && need <= options_.card->free_bytes + options_.card->driver_bytes)
    r.advise(fmt::format("--vram {}MiB would do", (need + kMiB - 1) / kMiB));
  for (std::int64_t chunk = plan_.chunk / 2; options_.chunk && chunk >= kChunkLeast; chunk /= 2) {
    if (!card_has_room(chunk, context)) continue;
    r.advise(fmt::format("-ub {} fits", chunk));
    break;
  }
  const std::uint64_t fits_whole = sub(card_.bytes, fixed + scratch + kv_bytes);
  if (fits_whole > 0) r.advise(fmt::format("a quantization of at most {} of weights fits", format_size(fits_whole)));
  r.advise("--vram 0 computes on the CPU");
  return r.status();
}

// A context that was asked for, and is the cause.
Status Planner::refuse_context() const {
  const std::int64_t asked = *options_.context;
  const std::uint64_t need = kv(asked, plan_.chunk), have = left(plan_.chunk, asked);
  Refusal r;
  r.what = fmt::format(
      "context {} needs {} of KV ({}/{}), {} are left under {} beside {} of weights, {} of engine and "
      "scratch and a margin of {}: {} ({} bytes) too few",
      asked, format_size(need), kv_type_name(options_.k_type), kv_type_name(options_.v_type), format_size(have),
      base_.room.limit, format_size(base_.weights), format_size(base_.engine + workspace(plan_.chunk, asked)),
      format_size(base_.margin), format_size(need - std::min(need, have)), need - std::min(need, have));
  if (const std::int64_t fit = longest(asked, plan_.chunk); fit > 0) r.advise(fmt::format("-c {} fits", fit));
  if (const auto type = smaller_type(asked, have))
    r.advise(fmt::format("-c {0} fits with -ctk {1} -ctv {1}", asked, kv_type_name(*type)));
  for (std::int64_t chunk = plan_.chunk / 2; chunk >= kChunkLeast; chunk /= 2) {
    if (!fits(asked, chunk)) continue;
    r.advise(fmt::format("-c {} fits with -ub {}", asked, chunk));
    break;
  }
  if (options_.memory) {
    const std::uint64_t all = plan_.weights_bytes + base_.engine + workspace(plan_.chunk, asked) + need;
    r.advise(fmt::format("--memory {} would do", fitting(memory_for(all))));
  }
  return r.status();
}

// ---- Telling it

void Planner::fill_card_lines() {
  const auto add = [&](const char* name, std::uint64_t bytes, std::string reason) {
    plan_.card_lines.push_back({name, bytes, std::move(reason)});
  };
  add("CUDA", card_.driver, "the driver's context, its code, cuBLAS; measured again before KV gets the rest");
  add("weights", facts_.card_weights_bytes, "all that a step multiplies by");
  add("scratch", plan_.vram_workspace_bytes, fmt::format("a step of {} prompt tokens, and logits", plan_.chunk));
  add("KV", plan_.vram_kv_bytes, "at most; committed as used. What leaves it falls to RAM");
  add("margin", kVramMargin, "what the driver takes between two counts: graphs, code of new shapes");
  std::uint64_t sum = 0;
  for (const Line& line : plan_.card_lines) sum += line.bytes;
  LODE_CHECK(sum <= card_.bytes);
  add("unused", card_.bytes - sum, "less than a piece");
}

void Planner::fill_lines() {
  const bool mapped = options_.load_mode == gguf::LoadMode::mmap;
  const char* where =
      mapped ? plan_.packed_bytes > 0 ? "repacked from the file" : "mapped from the file" : "read into memory";
  std::uint64_t streamed = streamed_;
  if (options_.card) {
    if (facts_.pinned_weights_bytes > 0)
      plan_.lines.push_back(
          {"token embedding", facts_.pinned_weights_bytes, "page-locked; only looked up, a row a token, by the card"});
    fill_card_lines();
  }
  const auto weights = [&](const char* name, std::uint64_t bytes, std::string reason) {
    if (bytes == 0 || options_.card) return;
    // What does not stay is taken from the largest class' line, and from the others once that is used up.
    const std::uint64_t dropped = std::min(streamed, bytes);
    streamed -= dropped;
    if (dropped > 0) reason += fmt::format("; {} more are read again from disk", format_size(dropped));
    plan_.lines.push_back({name, bytes - dropped, reason});
  };
  if (expert_slots_ > 0) {
    weights("feed-forward weights", facts_.ffn_bytes - facts_.experts.bytes, "read into memory");
    plan_.lines.push_back(
        {"experts", align_up(expert_slots_ * facts_.experts.slot_bytes, kPieceBytes) + facts_.experts.policy_bytes,
         fmt::format("slots for {} of {}; the others are read from the file when needed", expert_slots_,
                     facts_.experts.count)});
    where = "read into memory";
  } else {
    weights("feed-forward weights", facts_.ffn_bytes, where);
  }
  weights("attention weights", facts_.attention_bytes, where);
  weights("output matrix", facts_.output_bytes, where);
  weights("token embedding", facts_.embedding_bytes, fmt::format("{}; only looked up, a row a token", where));
  weights("other weights", facts_.other_bytes, where);
  plan_.lines.push_back({"engine", base_.engine, "code, tokenizer, threads"});
  plan_.lines.push_back({"scratch", plan_.workspace_bytes,
                         options_.card
                             ? std::string("logits, and page-locked staging of the card's blocks")
                             : fmt::format("a step of {} prompt tokens; never context x context", plan_.chunk)});
  plan_.lines.push_back(
      {"KV arena", plan_.arena_bytes_max,
       fmt::format("at most; committed as used. A sequence of {} tokens takes {}; up to {} are kept "
                   "for reuse",
                   plan_.context, format_size(plan_.sequence_bytes), format_size(plan_.kv_ram_bytes_max))});
  plan_.lines.push_back({"margin", base_.margin, "5%, for what the kernel and the allocator need"});
  std::uint64_t sum = 0;
  for (const Line& line : plan_.lines) sum += line.bytes;
  LODE_CHECK(sum <= base_.room.bytes);
  plan_.lines.push_back({"unused", base_.room.bytes - sum, "left to the system"});
  plan_.memory_bytes = base_.room.bytes;
  plan_.resident_bytes_min = base_.weights + base_.engine + plan_.workspace_bytes;
  plan_.resident_bytes_max = plan_.resident_bytes_min + plan_.arena_bytes_max;
}

std::string Planner::context_reason() const {
  if (options_.context) return "tokens per slot, as set by -c";
  if (facts_.context_trained <= 0) return "tokens per slot; the file does not say what the model was trained for";
  if (plan_.context == facts_.context_trained) return "tokens per slot, the trained length";
  return fmt::format("tokens per slot, the most that fits (trained: {})", facts_.context_trained);
}

void Planner::fill_settings() {
  const auto add = [&](const char* name, std::int64_t value, std::string reason) {
    plan_.settings.push_back({name, static_cast<std::uint64_t>(value), std::move(reason)});
  };
  add("context", plan_.context, context_reason());
  add("slots", plan_.slots, options_.slots ? "set by -np" : "the default; a slot costs nothing until it is used");
  add("chunk", plan_.chunk,
      options_.chunk                 ? "prompt tokens in a step, as set by -ub"
      : plan_.chunk == first_chunk() ? "prompt tokens in a step, the default"
                                     : "prompt tokens in a step, the most that fits");
  add("threads", plan_.threads, options_.threads ? "set by -t" : "the cores this process may use");
  if (plan_.packed_bytes > 0)
    add("repacked", static_cast<std::int64_t>(plan_.packed_bytes),
        "bytes of weights, in the kernels' own order instead of the file's pages; --no-repack keeps those");
}

void Planner::fill_groups() {
  for (const model::CacheGroup& group : facts_.groups) {
    const auto block =
        static_cast<std::uint64_t>(model::block_layout(group, options_.k_type, options_.v_type).block_bytes);
    const std::size_t n = group.layers.size();
    const std::string layers = fmt::format("{} layer{}", n, n == 1 ? "" : "s");
    GroupLine line;
    ModelFacts alone;
    alone.groups = {group};
    const std::uint64_t pinned = sequence_bytes(alone, options_.k_type, options_.v_type, plan_.context, plan_.chunk);
    switch (group.kind) {
      case model::CacheGroup::Kind::full:
        line = {fmt::format("full attention, {}", layers), block * 1000 / kernels::kBlockTokens, 0};
        break;
      case model::CacheGroup::Kind::window:
        line = {fmt::format("window of {}, {}", group.window, layers), 0, pinned};
        break;
      case model::CacheGroup::Kind::chunk:
        line = {fmt::format("chunks of {}, {}", group.window, layers), 0, pinned};
        break;
      case model::CacheGroup::Kind::checkpoint: line = {fmt::format("recurrent state, {}", layers), 0, pinned}; break;
    }
    plan_.groups.push_back(std::move(line));
  }
}

// Weights that a token reads again from disk, and what would spare it.
void Planner::warn_streamed() {
  const std::uint64_t whole =
      sub(base_.room.bytes, base_.margin + base_.engine + plan_.workspace_bytes + plan_.sequence_bytes);
  const std::uint64_t beside = plan_.weights_bytes + base_.margin + base_.engine + plan_.workspace_bytes;
  const auto type = smaller_type(plan_.context, sub(base_.room.bytes, beside));
  const std::string smaller =
      type ? fmt::format("; with -ctk {0} -ctv {0} they fit whole", kv_type_name(*type)) : std::string();
  plan_.warnings.push_back(fmt::format(
      "weights of {} do not fit under {}: {} of them stay in memory and each token reads up to {} again from disk; a "
      "quantization of at most {} would fit whole{}",
      format_size(plan_.weights_bytes), base_.room.limit, format_size(base_.weights), format_size(streamed_),
      format_size(whole), smaller));
}

Result<Plan> Planner::run() {
  LODE_RETURN_IF_ERROR(check_options(options_));
  settle_base();
  LODE_RETURN_IF_ERROR(ask_experts());
  LODE_RETURN_IF_ERROR(settle_chunk());
  LODE_RETURN_IF_ERROR(settle_context());
  LODE_RETURN_IF_ERROR(settle_arena());
  settle_disk();
  if (streamed_ > 0) warn_streamed();
  if (expert_slots_ > 0) note_experts();
  // What does not stay in memory is read from the file, as the file has it; what was read into memory is there once.
  const bool mapped = (options_.load_mode == gguf::LoadMode::mmap || expert_slots_ > 0) && !options_.card;
  if (mapped && streamed_ == 0 && options_.repack == Options::Repack::automatic)
    plan_.packed_bytes = expert_slots_ > 0 ? facts_.experts.packable_others : facts_.packable_bytes;
  fill_lines();
  fill_settings();
  fill_groups();
  return std::move(plan_);
}

}  // namespace

std::uint64_t sequence_bytes(const ModelFacts& facts, kernels::KvType k_type, kernels::KvType v_type,
                             std::int64_t tokens, std::int64_t chunk) {
  std::uint64_t sum = 0;
  for (const model::CacheGroup& group : facts.groups) {
    const auto block = static_cast<std::uint64_t>(model::block_layout(group, k_type, v_type).block_bytes);
    if (group.kind == model::CacheGroup::Kind::checkpoint) {
      sum += align_up(3 * block, kPieceBytes);  // The state that a step reads, the one it writes, and a resume point.
      continue;
    }
    std::uint64_t blocks = blocks_of(tokens);
    if (group.kind != model::CacheGroup::Kind::full) {
      // The ring of window + chunk tokens; one block more at each end, since neither starts at a block's edge.
      blocks = std::min(blocks, blocks_of(group.window + chunk) + 2);
    }
    sum += align_up(blocks * block, kPieceBytes);
  }
  return sum;
}

Result<Plan> make(const Hardware& hardware, const ModelFacts& facts, const Options& options) {
  LODE_CHECK(facts.workspace_bytes);
  using kernels::KvType;
  if (options.card && (options.k_type == KvType::i16 || options.v_type == KvType::i16)) {
    return Status::invalid("K and V in i16 are for the CPU; " + options.card->name +
                           " takes -ctk and -ctv f16, q8_0 or f32 (or leave the card out with -ngl 0)");
  }
  return Planner(hardware, facts, options).run();
}

}  // namespace lode::plan
