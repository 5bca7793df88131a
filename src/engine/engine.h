// The engine: admits requests, steps them together, samples, emits. Owns weights, config, Plan, the KV store, the
// sequences and the step thread. submit, cancel, stats and tokenizer may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "engine/slots.h"
#include "experts/stats.h"
#include "gguf/gguf.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "text/tokenizer.h"

namespace lode::engine {

struct EngineOptions {
  std::filesystem::path model;
  std::string name;  // What clients call the model; empty: as its file does.
  gguf::LoadMode load_mode = gguf::LoadMode::mmap;
  std::int64_t ctx = 0;    // Tokens per sequence; 0: the planner's choice.
  int threads = 0;         // 0: the planner's choice.
  int slots = 0;           // Sequences stepped together; 0: the planner's choice.
  std::int64_t chunk = 0;  // Most prompt tokens in a step; 0: the planner's choice.
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  std::string isa;  // Empty: the best.
  // Weights in packed rows (engine/packing.h), for processors whose kernels read them faster so.
  enum class Repack : std::uint8_t { automatic, off } repack = Repack::automatic;
  // --vram SIZE as typed: the most that a card's driver may count for this process. "0": the CPU computes. Empty: what
  // is free on the card, where there is one that can compute this model.
  std::string vram;
  kernels::DeviceNumerics numerics = kernels::DeviceNumerics::fast;  // Of a card; --deterministic.
  Result<std::unique_ptr<kernels::Device>> (*open_device)(const kernels::DeviceOptions&) = &kernels::open_cuda;
  std::string memory;                 // --memory SIZE as typed; empty: what the machine allows.
  std::string kv_ram;                 // --kv-ram SIZE; empty: the planner's choice.
  std::string expert_ram;             // --expert-ram SIZE, a share of all experts, "auto" or empty: what fits.
  std::string kv_disk;                // Folder, "off", or empty: the user's cache folder.
  std::string kv_disk_max;            // SIZE; empty: 10% of the free space.
  std::string kv_disk_writes;         // SIZE that a day may write there; empty: 100 GiB.
  std::filesystem::path kv_key_file;  // What the SSD tier is encrypted with (kv/cipher.h); empty: nothing.
  std::filesystem::path kv_trace;     // Where it is recorded what requests share; empty: nowhere.
  std::int32_t queue_max = 256;       // Requests waiting beyond the slots; more are refused (unavailable).
  // `optional`: a model without a vocabulary is loaded too; its tokens then have no text.
  enum class Vocabulary : std::uint8_t { needed, optional } vocabulary = Vocabulary::needed;
};

struct EngineInfo {
  std::string model_path;
  std::string model_name, architecture, description;  // description: "Gemma 3 270m, 18 layers, Q4_K_M, 241 MiB"
  std::string isa, numerics_id;
  std::int64_t context_max = 0, context_trained = 0, vocab = 0, chunk = 0, parameters = 0, file_bytes = 0;
  int threads = 0, slots = 0;
  std::int64_t window_max = 0;  // Tokens of the widest sliding window or chunk of a layer; 0: there is none.
  std::string fingerprint;      // Hex.
  std::string kv_folder;        // Of the SSD tier; empty: there is none.
  std::string plan_text;        // The planner's table, notes and warnings.
  std::string chat_template;    // Empty: none in the file.
  std::vector<std::string>
      notes;  // Lines a user should see at start beside the plan's: tokenizer warnings, the SSD tier.
  double load_ms = 0;
};

struct EngineStats {
  kv::StoreStats kv;
  std::optional<experts::CacheStats> experts;  // nullopt: there is no expert cache.
  std::int64_t slots_busy = 0, queued = 0, steps = 0, tokens_prefilled = 0, tokens_generated = 0, requests = 0,
               requests_failed = 0, requests_cancelled = 0, preemptions = 0;
};

// What work on the step thread may touch.
struct Inside {
  kv::Store& store;
  Slots& slots;
};

class Engine {
 public:
  // Plans, loads, opens the store and starts the step thread. Errors say what did not fit and what would.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  virtual ~Engine() = default;  // Calls stop(0).

  virtual const EngineInfo& info() const = 0;
  virtual const text::Tokenizer& tokenizer() const = 0;

  // Queues a request. Errors (also as return values here, before any event): invalid (empty prompt, id out of range,
  // prompt >= context_max: the message has both numbers), unavailable (queue full or stopping).
  virtual Result<RequestId> submit(Request request, EventSink sink) = 0;
  // The request ends within one step; its sink gets `finished` with FinishReason::cancelled. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
  // Runs `work` on the step thread between two steps, some milliseconds at most, again after each step or 5 ms until it
  // says that it is done. Every call gets an end: work that is left when the engine stops is called with nullptr, once.
  // Errors: unavailable (stopping); then it is never called.
  enum class Work : std::uint8_t { done, again };
  virtual Status run_inside(std::function<Work(Inside*)> work) {
    return Status::unsupported("this engine has no store to look into");
  }
  // Stops admitting, gives running requests up to `drain_ms` (then cancels them), writes all published KV blocks.
  virtual void stop(std::int64_t drain_ms) = 0;
};

// What create() would plan, without loading weights or opening the store. The same errors.
Result<plan::Plan> make_plan(const EngineOptions& options);

// One sequence, all logits: for `lode eval` and tests. Runs `ids` in chunks of `chunk` through a fresh store of the
// given KV types with no disk tier; logits float32 [ids.size(), vocab]. Options' model, threads, isa and load_mode
// count.
Result<std::vector<float>> eval_logits(const EngineOptions& options, std::span<const TokenId> ids, std::int64_t chunk);

}  // namespace lode::engine
