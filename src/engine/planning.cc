// From options and what the machine has to a committed plan and an open KV store. See runtime.h.
#include <cstdlib>

#include <fmt/format.h>

#include "engine/kv_folder.h"
#include "engine/runtime.h"
#include "experts/layout.h"
#include "experts/policy.h"
#include "kv/known_models.h"
#include "kv/staging.h"
#include "plan/plan.h"
#include "platform/machine.h"

namespace lode::engine {
namespace {

namespace fs = std::filesystem;

// Bytes that earlier runs left in the KV folder: DIR/<fingerprint>/<extent>.
std::uint64_t stored_bytes(const fs::path& folder) {
  std::uint64_t total = 0;
  const auto models = platform::real_file_system().list(folder);
  if (!models.ok()) return 0;
  for (const auto& model : models.value()) {
    const auto files = platform::real_file_system().list(folder / model.name);
    if (!files.ok()) continue;
    for (const auto& file : files.value()) total += file.allocated_bytes;
  }
  return total;
}

// What names the model in the store. With a folder that outlives this process, every byte of the file counts: a file
// that is not known yet is read whole, once, about 1.5 GB/s. Without one nothing can be stored by another file.
Result<kv::Hash> model_name_for(const gguf::File& file, const std::optional<fs::path>& folder, EngineInfo& info) {
  auto fingerprint = file.fingerprint();
  if (!fingerprint.ok() || !folder) return fingerprint;
  kv::KnownModels known(platform::real_file_system(), *folder);
  const auto before = file.stamps();
  if (!before.ok()) return before.status();
  if (const auto content = known.find(before.value())) return kv::model_name(fingerprint.value(), *content);
  platform::Clock& clock = platform::system_clock();
  const std::int64_t began = clock.now_ns();
  const auto content = file.content_hash();
  if (!content.ok()) return content.status();
  info.notes.push_back(
      fmt::format("read all bytes of the model once, so that no other file's KV is ever taken for its "
                  "own: {:.1f} s",
                  static_cast<double>(clock.now_ns() - began) * 1e-9));
  // Written to meanwhile: what was read is named right, but not by what the file system says now. A folder that can't
  // be written costs the reading again.
  const auto after = file.stamps();
  if (after.ok() && after.value() == before.value()) static_cast<void>(known.remember(before.value(), content.value()));
  return kv::model_name(fingerprint.value(), content.value());
}

// Page-locked memory through which weights pass (DeviceOptions::staging_bytes).
constexpr std::uint64_t kUploadStaging = 32 * kMiB;

model::StepLimits limits_for(std::int64_t chunk, std::int64_t slots, std::int64_t context) {
  return {.rows = chunk + slots - 1, .outputs = slots, .runs = slots, .context = context};
}

// `staging`: bytes of page-locked memory beside a card.
plan::ModelFacts facts_for(const Runtime& rt, std::uint64_t staging) {
  const model::Facts& f = rt.model->facts();
  plan::ModelFacts facts;
  facts.name = rt.info.description;
  facts.file_bytes = rt.file->bytes_on_disk();
  // A tied embedding serves as the output and is counted there.
  const bool tied = f.output_bytes == 0;
  facts.embedding_bytes = tied ? 0 : f.embedding_bytes;
  facts.output_bytes = tied ? f.embedding_bytes : f.output_bytes;
  facts.attention_bytes = f.attention_bytes;
  facts.ffn_bytes = f.ffn_bytes;
  facts.other_bytes = f.other_bytes;
  facts.vocab = f.vocab;
  facts.width = f.width;
  facts.ffn = f.ffn;
  facts.heads = f.heads;
  facts.layers = f.layers;
  facts.context_trained = f.context_trained;
  facts.groups.assign(rt.model->groups().begin(), rt.model->groups().end());
  if (!rt.gpu) facts.packable_bytes = PackedWeights::bytes(*rt.file, *rt.stream.ops);
  if (!rt.gpu && rt.file->loaded_as() == gguf::LoadMode::mmap) {
    // Layers with different numbers of experts have no cache.
    if (const auto layout = experts::layout_of(*rt.file, rt.model->experts()); layout.ok()) {
      facts.experts.bytes = layout->bytes;
      facts.experts.slot_bytes = layout->slot_bytes;
      facts.experts.count = static_cast<std::int64_t>(layout->places.size());
      facts.experts.per_token = f.expert_layers * f.experts_used;
      facts.experts.packable_others =
          PackedWeights::bytes(*rt.file, *rt.stream.ops, PackedWeights::Scope::all_but_experts);
      facts.experts.policy_bytes = experts::Policy::bytes({.layers = static_cast<std::uint32_t>(f.expert_layers),
                                                           .experts = layout->experts,
                                                           .used = static_cast<std::uint32_t>(f.experts_used)});
    }
  }
  if (rt.gpu) {
    facts.card_weights_bytes = Gpu::device_bytes(*rt.file);
    facts.pinned_weights_bytes = Gpu::pinned_bytes(*rt.file);
    facts.card_workspace_bytes = [&rt, &f](const plan::WorkspaceShape& shape) {
      const std::uint64_t logits = static_cast<std::uint64_t>(f.vocab) * 4 * static_cast<std::uint64_t>(shape.slots);
      return align_up(rt.model->scratch_bytes(limits_for(shape.chunk, shape.slots, shape.context)), plan::kPieceBytes) +
             logits;
    };
    facts.workspace_bytes = [&f, staging](const plan::WorkspaceShape& shape) {
      return static_cast<std::uint64_t>(f.vocab) * 4 * static_cast<std::uint64_t>(shape.slots) + staging;
    };
    return facts;
  }
  facts.workspace_bytes = [&rt, &f](const plan::WorkspaceShape& shape) {
    const std::uint64_t threads =
        kernels::scratch_bytes_per_thread(f.cols_max, f.head_dim_max) * static_cast<std::uint64_t>(shape.threads);
    const std::uint64_t logits = static_cast<std::uint64_t>(f.vocab) * 4 * static_cast<std::uint64_t>(shape.slots);
    return rt.model->scratch_bytes(limits_for(shape.chunk, shape.slots, shape.context)) + threads + logits;
  };
  return facts;
}

// A SIZE as typed; shares are of `whole`. An empty one leaves `out` as it is.
Status parse(const std::string& text, std::uint64_t whole, std::optional<std::uint64_t>& out) {
  if (text.empty()) return Status::success();
  auto bytes = parse_size(text, whole);
  if (!bytes.ok()) return bytes.status();
  out = bytes.value();
  return Status::success();
}

Result<plan::Options> options_for(const EngineOptions& o, const plan::Hardware& hardware, const fs::path& folder,
                                  const plan::ModelFacts& facts) {
  plan::Options p;
  if (o.ctx > 0) p.context = o.ctx;
  if (o.slots > 0) p.slots = o.slots;
  if (o.chunk > 0) p.chunk = o.chunk;
  if (o.threads > 0) p.threads = o.threads;
  p.k_type = o.k_type;
  p.v_type = o.v_type;
  p.smaller_types = {kernels::KvType::q8_0};
  p.load_mode = o.load_mode;
  if (o.repack == EngineOptions::Repack::off) p.repack = plan::Options::Repack::off;
  LODE_RETURN_IF_ERROR(parse(o.memory, hardware.cgroup_limit.value_or(hardware.ram_total), p.memory));
  LODE_RETURN_IF_ERROR(parse(o.kv_ram, hardware.cgroup_limit.value_or(hardware.ram_total), p.kv_ram));
  if (o.expert_ram != "auto")
    LODE_RETURN_IF_ERROR(
        parse(o.expert_ram, facts.experts.slot_bytes * static_cast<std::uint64_t>(facts.experts.count), p.expert_ram));
  if (folder.empty()) return p;
  p.disk.kind = plan::DiskOption::Kind::folder;
  p.disk.folder = folder;
  p.disk.bytes_stored = stored_bytes(folder);
  LODE_RETURN_IF_ERROR(parse(o.kv_disk_max, hardware.disk_free + p.disk.bytes_stored, p.disk.bytes_max));
  return p;
}

// The part of the KV store's configuration that the planner has no say in.
Status configure_disk(const EngineOptions& options, const plan::Plan& plan, kv::DiskConfig& disk) {
  disk.dir = *plan.disk_folder;
  disk.quota_bytes = plan.disk_quota_bytes;
  std::optional<std::uint64_t> a_day;
  LODE_RETURN_IF_ERROR(parse(options.kv_disk_writes, disk.quota_bytes, a_day));
  disk.write_bytes_per_day_max = a_day.value_or(disk.write_bytes_per_day_max);
  if (options.kv_key_file.empty()) return Status::success();
  auto cipher = kv::Cipher::from_file(options.kv_key_file);
  if (!cipher.ok()) return cipher.status();
  disk.cipher = std::move(cipher).value();
  return Status::success();
}

}  // namespace

// XDG's rule: $XDG_CACHE_HOME, else ~/.cache.
fs::path default_kv_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return fs::path(cache) / "lode" / "kv";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache" / "lode" / "kv";
  return {};
}

Result<plan::Plan> plan_for(const EngineOptions& options, const Runtime& rt) {
  const fs::path folder = options.kv_disk == "off"  ? fs::path()
                          : options.kv_disk.empty() ? default_kv_folder()
                                                    : fs::path(options.kv_disk);
  const plan::Hardware hardware = platform::detect({.disk = folder});
  std::uint64_t staging = 0;
  if (rt.gpu) {
    std::vector<model::BlockLayout> layouts;
    for (const auto& g : rt.model->groups()) layouts.push_back(model::block_layout(g, options.k_type, options.v_type));
    staging = kUploadStaging + kv::staging_sizes(layouts).total();
  }
  const plan::ModelFacts facts = facts_for(rt, staging);
  auto wanted = options_for(options, hardware, folder, facts);
  if (!wanted.ok()) return wanted.status();
  if (rt.gpu) {
    wanted->card = rt.gpu->card();
    const std::uint64_t there = wanted->card->free_bytes + wanted->card->driver_bytes;
    LODE_RETURN_IF_ERROR(parse(options.vram, there, wanted->vram));
  }
  return plan::make(hardware, facts, wanted.value());
}

Status open_planned(const plan::Plan& plan, const EngineOptions& options, Runtime& rt) {
  rt.info.plan_text = plan.text();
  rt.info.context_max = plan.context;
  rt.info.slots = plan.slots;
  rt.info.chunk = plan.chunk;
  const model::StepLimits limits = limits_for(plan.chunk, plan.slots, plan.context);
  if (rt.gpu) {
    rt.limits = limits;
    rt.info.threads = 1;
    LODE_RETURN_IF_ERROR(rt.gpu->prepare(*rt.model, limits, plan));
    const memory::Budget& vram = rt.gpu->budget();
    rt.info.notes.push_back(fmt::format("{}: CUDA takes {}; {} of {} are left for KV", rt.gpu->device().description(),
                                        format_size(rt.gpu->driver_bytes()),
                                        format_size(vram.bytes_max() - vram.committed_bytes()),
                                        format_size(vram.bytes_max())));
  } else {
    make_workspace(rt, plan.threads, limits);
  }
  rt.logits = std::make_unique<model::Workspace>(static_cast<std::uint64_t>(rt.limits.outputs) *
                                                 static_cast<std::uint64_t>(rt.info.vocab) * sizeof(float));

  const auto name = model_name_for(*rt.file, plan.disk_folder, rt.info);
  if (!name.ok()) return name.status();
  kv::StoreConfig config;
  config.groups.assign(rt.model->groups().begin(), rt.model->groups().end());
  config.k_type = plan.k_type;
  config.v_type = plan.v_type;
  config.root.model_fingerprint = name.value();
  config.root.k_type = kernels::kv_format_name(plan.k_type);
  config.root.v_type = kernels::kv_format_name(plan.v_type);
  config.root.numerics_id = rt.info.numerics_id;
  config.root.placement = rt.gpu ? "cuda" : "cpu";
  if (rt.gpu) {
    config.device = &rt.gpu->device();
    config.device_budget = &rt.gpu->budget();
  }
  config.root.rope = rt.model->rope_id();
  config.arena_bytes_max = plan.arena_bytes_max;
  config.unpinned_bytes_max = plan.kv_ram_bytes_max;
  config.chunk_tokens = plan.chunk;
  config.context_max = plan.context;
  config.sequences_max = plan.slots;
  config.trace = options.kv_trace;
  if (plan.disk_folder) {
    config.disk.emplace();
    LODE_RETURN_IF_ERROR(configure_disk(options, plan, *config.disk));
  }
  auto store = kv::Store::open(config, platform::real_file_system(), platform::system_clock());
  if (!store.ok()) return store.status();
  rt.store = std::move(store).value();
  for (std::uint8_t byte : name.value()) rt.info.fingerprint += fmt::format("{:02x}", byte);
  const kv::StoreStats stats = rt.store->stats();
  if (plan.disk_folder && stats.disk_note.empty()) rt.info.kv_folder = plan.disk_folder->string();
  if (!stats.disk_note.empty()) rt.info.notes.push_back(stats.disk_note);
  else if (plan.disk_folder)
    rt.info.notes.push_back(fmt::format("SSD tier: {} of {} in use, {}", format_size(stats.disk.bytes_allocated),
                                        format_size(plan.disk_quota_bytes), stats.disk.mode));
  return Status::success();
}

}  // namespace lode::engine
