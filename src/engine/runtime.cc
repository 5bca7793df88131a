#include "engine/runtime.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/no_text.h"

namespace lode::engine {

// The model of an open file: config and where its tensors lie, in milliseconds.
static Status read_model(const model::LoadOptions& options, Runtime& rt) {
  auto model = model::Model::load(*rt.file, options);
  if (!model.ok()) return model.status();
  rt.model = std::move(model).value();
  return Status::success();
}

Status load_model(const EngineOptions& options, gguf::LoadMode mode, Runtime& rt) {
  auto table = kernels::select_table(options.isa);
  if (!table.ok()) return table.status();
  rt.stream.ops = table.value();
  auto file = gguf::File::open(options.model, {.mode = mode});
  if (!file.ok()) return file.status();
  rt.model.reset();  // It points into the file.
  rt.file = std::move(file).value();
  LODE_RETURN_IF_ERROR(read_model({.context = options.ctx}, rt));

  const model::Facts& facts = rt.model->facts();
  rt.info.model_name = options.name.empty() ? facts.name : options.name;
  rt.info.model_path = options.model.string();
  rt.info.architecture = facts.architecture;
  rt.info.isa = rt.stream.ops->name;
  rt.info.numerics_id = rt.stream.ops->numerics_id;
  rt.info.context_trained = facts.context_trained;
  rt.info.vocab = facts.vocab;
  rt.info.parameters = facts.parameters;
  rt.info.file_bytes = static_cast<std::int64_t>(rt.file->bytes_on_disk());
  for (const model::CacheGroup& group : rt.model->groups())
    rt.info.window_max = std::max(rt.info.window_max, group.window);
  rt.info.description = fmt::format("{}, {} layers, {}, {}", facts.name, facts.layers, facts.type_summary,
                                    format_size(rt.file->bytes_on_disk()));
  return Status::success();
}

void make_workspace(Runtime& rt, int threads, const model::StepLimits& limits) {
  const model::Facts& facts = rt.model->facts();
  rt.info.threads = threads;
  rt.limits = limits;
  rt.pool = std::make_unique<ThreadPool>(threads);
  const std::size_t per_thread = align_up(kernels::scratch_bytes_per_thread(facts.cols_max, facts.head_dim_max), 64);
  rt.thread_scratch = std::make_unique<model::Workspace>(per_thread * static_cast<std::uint64_t>(threads));
  rt.stream.pool = rt.pool.get();
  rt.stream.scratch = rt.thread_scratch->data();
  rt.stream.scratch_bytes_per_thread = per_thread;
  rt.scratch = std::make_unique<model::Workspace>(rt.model->scratch_bytes(limits));
}

static Status no_gpu(const EngineOptions& options, Status why, Runtime& rt) {
  if (!options.vram.empty()) return why;
  rt.info.notes.push_back("computing on the CPU: " + why.message());
  return Status::success();
}

Status open_gpu(const EngineOptions& options, Runtime& rt) {
  if (!options.vram.empty()) {
    const auto bytes = parse_size(options.vram, kGiB);
    if (!bytes.ok()) return bytes.status();
    if (bytes.value() == 0) return Status::success();
  }
  auto device = options.open_device({.numerics = options.numerics});
  if (!device.ok()) {
    // Nobody asked, and this build or this machine has none.
    const Code code = device.status().code();
    if (options.vram.empty() && (code == Code::unsupported || code == Code::unavailable)) return Status::success();
    return no_gpu(options, device.status(), rt);
  }
  if (!model::placeable(rt.info.architecture))
    return no_gpu(
        options,
        Status::unsupported(fmt::format("models of architecture '{}' have no kernels for a card yet; --vram 0 "
                                        "computes on the CPU",
                                        rt.info.architecture)),
        rt);
  rt.gpu = std::make_unique<Gpu>(std::move(device).value());
  rt.info.isa = rt.gpu->device().table().name;
  rt.info.numerics_id = rt.gpu->device().table().numerics_id;
  return Status::success();
}

// Copies weights into packed rows and reads the model again over them.
static Status pack_weights(const plan::Plan& plan, Runtime& rt) {
  ThreadPool pool(plan.threads);
  auto packed = PackedWeights::make(*rt.file, *rt.stream.ops, pool);
  if (!packed.ok()) return packed.status();
  rt.packed = std::move(packed).value();
  return read_model({.context = plan.context, .place = rt.packed->placer(), .where = model::LoadOptions::Where::memory},
                    rt);
}

// Opens the expert cache over the file, and copies everything else into memory: a file that is cut or vanishes later
// then fails reads of experts, and never a page of a mapping.
static Status open_experts(const EngineOptions& options, const plan::Plan& plan, Runtime& rt) {
  auto cache = experts::Cache::open(*rt.file, rt.model->experts(),
                                    {.bytes_max = plan.expert_slots_bytes,
                                     .used = static_cast<std::uint32_t>(rt.model->facts().experts_used),
                                     .table = options.repack == EngineOptions::Repack::off ? nullptr : rt.stream.ops},
                                    platform::real_file_system(), platform::system_clock());
  if (!cache.ok()) return cache.status();
  rt.experts = std::move(cache).value();
  const experts::CacheStats s = rt.experts->stats();
  rt.info.notes.push_back(fmt::format("experts: {} of {} in memory ({}), the others are read from the file: {}",
                                      s.slots, s.experts, format_size(s.slots * s.slot_bytes), s.mode));
  ThreadPool pool(plan.threads);
  auto packed = PackedWeights::make(*rt.file, *rt.stream.ops, pool, PackedWeights::Scope::all_but_experts);
  if (!packed.ok()) return packed.status();
  rt.packed = std::move(packed).value();
  return read_model({.context = plan.context, .place = rt.packed->placer(), .where = model::LoadOptions::Where::memory},
                    rt);
}

// The rest of the chain, on the card or the CPU: the model is loaded over a mapped file.
static Status start(const EngineOptions& options, Runtime& rt) {
  const auto plan = plan_for(options, rt);
  if (!plan.ok()) return plan.status();
  // Rope factors that depend on the context (longrope) follow the one that was planned, where it is not the one that
  // the model was read for.
  const std::int64_t read_for = options.ctx > 0 ? options.ctx : rt.info.context_trained;
  if (rt.gpu) {
    LODE_RETURN_IF_ERROR(rt.gpu->open(plan.value(), *rt.file));
    LODE_RETURN_IF_ERROR(read_model({.context = plan->context, .place = rt.gpu->placer(*rt.file)}, rt));
  } else if (plan->expert_slots_bytes > 0) {
    LODE_RETURN_IF_ERROR(open_experts(options, plan.value(), rt));
  } else {
    if (options.load_mode != gguf::LoadMode::mmap) LODE_RETURN_IF_ERROR(load_model(options, options.load_mode, rt));
    if (plan->packed_bytes > 0) LODE_RETURN_IF_ERROR(pack_weights(plan.value(), rt));
    else if (plan->context != read_for) LODE_RETURN_IF_ERROR(read_model({.context = plan->context}, rt));
  }
  auto tokenizer = text::Tokenizer::load(*rt.file);
  const bool absent = tokenizer.status().code() == Code::not_found;
  if (absent && options.vocabulary == EngineOptions::Vocabulary::optional)
    tokenizer = text::tokenizer_without_text(static_cast<std::int32_t>(rt.info.vocab));
  if (!tokenizer.ok()) return tokenizer.status();
  rt.tokenizer = std::move(tokenizer).value();
  for (const std::string& warning : rt.tokenizer->warnings()) rt.info.notes.push_back(warning);
  const auto chat = rt.file->get_string("tokenizer.chat_template");
  if (chat.ok() && chat.value()) rt.info.chat_template = *chat.value();
  LODE_RETURN_IF_ERROR(open_planned(plan.value(), options, rt));
  if (rt.packed) rt.packed->release_file(*rt.file);  // The fingerprint has looked at parts of every tensor.
  if (rt.experts)
    for (const gguf::Tensor& t : rt.file->tensors())
      if (holds_experts(t)) rt.file->release_pages(t, 0, t.bytes);
  return Status::success();
}

Result<std::unique_ptr<Runtime>> make_runtime(const EngineOptions& options) {
  auto rt = std::make_unique<Runtime>();
  LODE_RETURN_IF_ERROR(load_model(options, gguf::LoadMode::mmap, *rt));
  LODE_RETURN_IF_ERROR(open_gpu(options, *rt));
  const bool on_card = rt->gpu != nullptr;
  Status started = start(options, *rt);
  if (!started.ok() && on_card && options.vram.empty()) {
    rt = std::make_unique<Runtime>();
    LODE_RETURN_IF_ERROR(load_model(options, gguf::LoadMode::mmap, *rt));
    LODE_RETURN_IF_ERROR(no_gpu(options, started, *rt));
    started = start(options, *rt);
  }
  if (!started.ok()) return started;
  return rt;
}

Result<plan::Plan> make_plan(const EngineOptions& options) {
  Runtime rt;
  LODE_RETURN_IF_ERROR(load_model(options, gguf::LoadMode::mmap, rt));
  LODE_RETURN_IF_ERROR(open_gpu(options, rt));
  auto plan = plan_for(options, rt);
  if (plan.ok() || !rt.gpu || !options.vram.empty()) return plan;
  const Status why = plan.status();
  rt.gpu.reset();
  plan = plan_for(options, rt);
  if (plan.ok()) plan->notes.push_back("computing on the CPU: " + why.message());
  return plan;
}

}  // namespace lode::engine
