// The store's policy over its parts: index, RAM tier, disk tier, packer, loads. Used by Store::open and by tests, which
// hand in their own disk tier and keys. Owns everything. Step thread only.
//
// Files: store.cc (open, close, memory, flush), store_open.cc (prefix lookup, peers), store_step.cc (grow, view,
// commit), store_state.cc (recurrent states, checkpoints), store_restore.cc (loads, damage), store_catalog.cc (what is
// stored and why not, purges), store_pins.cc (pins, chains).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/eviction.h"
#include "kv/extent_packer.h"
#include "kv/prefix_index.h"
#include "kv/ram_tier.h"
#include "kv/restore.h"
#include "kv/resume.h"
#include "kv/sequence.h"
#include "kv/step_view.h"
#include "kv/store.h"

namespace lode::kv {

// What tests replace.
struct StoreParts {
  std::unique_ptr<DiskTier> disk;        // nullptr: RAM alone.
  std::string disk_note;                 // Why, if a disk tier was asked for.
  std::unique_ptr<RemovalLog> removals;  // Made by create().
  BlockKey (*root_key)(const RootInputs&) = &kv::root_key;
  BlockKey (*child_key)(const BlockKey&, std::span<const TokenId, kBlockTokens>) = &kv::child_key;
  std::uint64_t piece_bytes = memory::kPieceBytes;
  // RAM behind a device: page-locking 16 MiB takes little longer than 2 MiB.
  std::uint64_t pinned_piece_bytes = 8 * memory::kPieceBytes;
  memory::SlotPoolOptions::Freed freed = memory::SlotPoolOptions::Freed::keep;
};

class StoreImpl final : public Store {
 public:
  // Checks the configuration; the disk tier comes from `parts`, config.disk is not looked at.
  static Result<std::unique_ptr<StoreImpl>> create(const StoreConfig& config, platform::Clock& clock, StoreParts parts);
  ~StoreImpl() override;

  using Store::open_sequence;
  Result<Sequence*> open_sequence(std::span<const TokenId> prompt, std::string_view salt,
                                  std::span<const std::int64_t> marks) override;
  SeqState state(Sequence& seq) override;
  std::int64_t length(const Sequence& seq) const override { return seq.length; }
  const Reuse& reuse(const Sequence& seq) const override { return seq.reuse; }
  std::int64_t step_limit(const Sequence& seq, std::int64_t wanted) const override;
  Status grow(Sequence& seq, std::int64_t tokens) override;
  model::KvView& view(std::span<const RunSpec> runs) override;
  void commit(Sequence& seq, std::span<const TokenId> ids) override;
  void mark_resume_point(Sequence& seq) override;
  void repair(Sequence& seq) override;
  void close(Sequence* seq) override;
  void note_computed(const ComputedStep& step) override;
  void yield_device(std::uint64_t bytes) override;
  void poll() override;
  bool flush(std::int64_t timeout_ms) override;
  void drop_ram() override;
  Result<Explanation> explain(std::span<const TokenId> prompt, std::string_view salt) override;
  PrefixPage list(std::string_view salt, std::int64_t offset, std::int64_t limit) override;
  Result<std::vector<TokenId>> tokens_of(const BlockKey& key, std::string_view salt) override;
  Purged purge(std::string_view salt, const std::optional<BlockKey>& key) override;
  Result<ChainState> chain(std::span<const TokenId> tokens, std::string_view salt, Write write) override;
  Result<Pinned> pin(std::span<const TokenId> tokens, std::string_view salt, const std::string& name) override;
  Status unpin(const BlockKey& key, std::string_view salt) override;
  std::vector<Pin> pins(std::string_view salt) const override;
  RootInputs root_inputs(std::string_view salt) const override;
  StoreStats stats() const override;

 private:
  // Window groups keep this many blocks more than the next token reads. A prompt that shares all but its last 128
  // tokens (another question at the same document's end) then finds its window in RAM. 4 blocks of Gemma 3 270M are
  // 2 MiB a sequence.
  static constexpr std::int64_t kSlackBlocks = 4;
  // Blocks without bytes that the index keeps to explain misses: about 6 MiB.
  static constexpr std::size_t kStubsMax = 16384;
  // A prompt's checkpoint at its end is of no use to one with another question after the same document. So one more is
  // kept kSlackBlocks before it, where that saves this many blocks: short chats, whose turns' ends are near, do
  // without.
  static constexpr std::int64_t kSlackGapBlocks = 8;
  // Blocks that a listing or a purge looks at in one go: about 50 ms.
  static constexpr std::size_t kWalkMax = 65536;
  // Longest wait for queued writes when memory is full, before somebody is preempted.
  static constexpr std::int64_t kWriteWaitMs = 2000;
  // How often dropped writes are tried again. It looks at every block: a millisecond for ten thousand.
  static constexpr std::int64_t kRetryNs = 1'000'000'000;

  StoreImpl(const StoreConfig& config, std::vector<model::BlockLayout> layouts, platform::Clock& clock,
            StoreParts parts, std::unique_ptr<RamTier> ram);

  // store.cc
  std::optional<SlotId> allocate(GroupId group);
  Status exhausted(std::string_view what) const;
  Sequence* take_sequence();
  void release(Sequence& seq);
  void release_path(Sequence& seq, std::size_t blocks);
  void retry_dropped_writes();
  enum class WhenFull : std::uint8_t { wait, stop };
  void write_unwritten(WhenFull when_full, std::int64_t deadline_ns);
  std::int64_t ms_until(std::int64_t deadline_ns) const;
  // Blocks that a token at block boundary `end` reads start here.
  std::int64_t first_block(std::size_t group, std::int64_t end) const {
    return config_.groups[group].first_needed(end * kBlockTokens) / kBlockTokens;
  }
  bool full(std::size_t group) const { return config_.groups[group].kind == model::CacheGroup::Kind::full; }
  bool recurrent(std::size_t group) const { return config_.groups[group].kind == model::CacheGroup::Kind::checkpoint; }
  // Whether the group's copies are worth keeping wherever they are: no window, which slides on.
  bool lasting(std::size_t group) const { return full(group) || recurrent(group); }

  // store_open.cc
  Block* child_block(Block& parent, Ids ids);
  void build_path(Sequence& seq, std::span<const TokenId> prompt);
  enum class Attached : std::uint8_t { ok, no_memory, gone };
  enum class Peers : std::uint8_t { wait, ignore };
  ResumePoints find_start(Sequence& seq, std::int64_t blocks_max) const;
  Attached attach_best(Sequence& seq, std::int64_t blocks_max, Peers peers);
  Attached attach(Sequence& seq, std::int64_t blocks);
  bool reading_pays(const Sequence& seq, std::int64_t blocks, std::int64_t from_ram) const;
  void count_uses(Sequence& seq);
  Attached start_reads(const Sequence& seq);
  void attach_from_ram(Sequence& seq, std::int64_t blocks_max);
  void note_sources(Sequence& seq) const;
  static void count_sources(Sequence& seq);
  void promote(Sequence& seq);
  void become_ready(Sequence& seq);
  void note_reuse(Sequence& seq);
  void plan_points(Sequence& seq, std::span<const std::int64_t> marks);
  void plan_more_points(Sequence& seq, const ResumePoints& found);
  void claim(Sequence& seq);
  void settle_waiters();
  void count_hits(const Reuse& reuse, std::int64_t sign);
  static std::int64_t resume_limit(const Sequence& seq) { return (seq.reuse.prompt_tokens - 1) / kBlockTokens; }

  // store_step.cc
  void complete_block(Sequence& seq);
  void publish(Sequence& seq, Block& block, std::size_t group);
  bool worth_writing(const Copy& copy) const;
  void offer(ExtentPacker::Run& run, Copy& copy);
  void write_chain(Copy& last);
  void advance_windows(Sequence& seq);
  void add_mark(Sequence& seq);
  void release_marks(Sequence& seq);
  void free_own_slots(Sequence& seq);

  // store_state.cc
  Status grow_state(Sequence& seq, std::size_t group);
  static void start_state(Sequence::Group& group, const std::byte* in);
  void take_states(Sequence& seq);
  void drop_last_state(Sequence& seq, std::size_t group);
  void publish_states(Sequence& seq);
  void keep_last_state(Sequence& seq);
  void keep_checkpoint(Sequence& seq);
  void release_last_states(Sequence& seq);
  void free_states(Sequence& seq, std::size_t group);

  // store_restore.cc
  void end_load(Load* load);
  void finish_loads(Sequence& seq);

  // store_catalog.cc
  struct Node {  // A stored block, wherever it is known.
    BlockKey key;
    Block* block = nullptr;  // nullptr: only the disk knows it.
    std::int64_t index = -1;
  };
  // The stored continuation of `parent`, other than `but`, that has most in common with `ids`.
  struct Closest {
    std::int64_t common = -1;  // Tokens; -1: there is none.
    Node node;
    std::array<TokenId, kBlockTokens> ids{};
  };
  Closest closest(Block& parent, std::span<const TokenId> ids, const Block* but) const;
  Node root_node(std::string_view salt) const;
  std::vector<Node> children(const Node& node, std::size_t most) const;
  bool stored(const Node& node) const;
  bool pinned(const Node& node) const;
  const std::array<TokenId, kBlockTokens>* ids_of(const Node& node) const;
  // Every stored block below `node`, parents first, kWalkMax at most. False: there were more.
  bool walk(const Node& node, std::vector<Node>& found) const;
  std::optional<Node> find_node(const BlockKey& key, std::string_view salt, std::vector<Node>& path) const;
  StoredPrefix describe(const std::vector<Node>& path) const;
  Sequence& probe(std::span<const TokenId> tokens, std::string_view salt);
  void end_probe(Sequence& seq);
  ResumePoints attach_probe(Sequence& seq);
  void find_removals(const Sequence& seq, Explanation& out) const;
  void note_difference(const Sequence& seq, std::span<const TokenId> prompt, Explanation& out) const;
  void drop_ram_copies(const Node& node, Purged& out);
  Status pin_in_ram(const Sequence& seq, Pin pin);
  std::uint64_t ram_pinned_bytes() const;

  const StoreConfig config_;
  const std::vector<model::BlockLayout> layouts_;  // [groups]
  const std::int64_t blocks_max_;                  // Of one sequence.
  const std::int64_t every_blocks_;                // Between regular checkpoints; 0: no recurrent layers.
  platform::Clock& clock_;
  const std::unique_ptr<RemovalLog> removals_;  // Of RAM.
  decltype(StoreParts::root_key) const root_key_;
  decltype(StoreParts::child_key) const child_key_;
  const std::string disk_note_;
  std::unique_ptr<DiskTier> disk_;  // nullptr: RAM alone.
  std::unique_ptr<RamTier> ram_;
  PrefixIndex index_;
  Evictor evictor_;
  std::unique_ptr<ExtentPacker> packer_;  // With the disk tier.
  std::unique_ptr<Restorer> restorer_;    // With the disk tier.
  StepView view_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // Live and spare.
  std::vector<Sequence*> live_, spare_;               // live_: in the order of opening.
  std::vector<Copy*> reads_;                          // Scratch of start_reads.
  std::vector<SlotId> read_slots_;
  std::unique_ptr<Sequence> probe_;  // Scratch of questions; never live.
  // Pins without an SSD tier: the copies are pinned in RAM.
  struct RamPin {
    Pin pin;
    std::vector<Copy*> copies;
  };
  std::vector<RamPin> ram_pins_;
  std::vector<Copy*> damaged_;  // Scratch of end_load.
  std::int64_t retry_ns_ = 0;   // Dropped writes are tried again from this time on,
  bool retry_ = false;          // if there are any.
  bool reads_in_step_ = false;  // The step at hand waits for the disk: its time says nothing of computing.
  std::uint64_t hits_ram_ = 0, hits_disk_ = 0, hits_in_flight_ = 0, computed_ = 0;  // Tokens.
};

}  // namespace lode::kv
