#include "cli/engine_flags.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string_view>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/read_input.h"

namespace lode::cli {
namespace {

constexpr std::string_view kCompute = "Compute", kMemory = "Memory and KV cache";

void add_kv_type(CLI::App& command, const char* name, const char* typed, const char* what, kernels::KvType& type) {
  static const std::map<std::string, kernels::KvType> kTypes = {{"f32", kernels::KvType::f32},
                                                                {"f16", kernels::KvType::f16},
                                                                {"i16", kernels::KvType::i16},
                                                                {"q8_0", kernels::KvType::q8_0}};
  command
      .add_option_function<std::string>(
          name, [&type](const std::string& text) { type = kTypes.at(text); },
          fmt::format("{} cache type; q8_0 takes half of f16's memory for a small error; i16 (CPU) is "
                      "f16's size and faster behind long contexts; also {}",
                      what, typed))
      ->check(CLI::IsMember(kTypes))
      ->type_name("f32|f16|i16|q8_0")
      ->default_str("f16")
      ->group(std::string(kCompute));
}

// A size is kept as typed: a share such as 50% is of something only the planner knows. What is no size is refused here.
void add_size(CLI::App& command, const char* name, const char* what, std::string& size) {
  command.add_option(name, size, what)
      ->type_name("SIZE")
      ->group(std::string(kMemory))
      ->check([](const std::string& text) {
        const auto parsed = parse_size(text, kGiB);
        return parsed.ok() ? std::string() : parsed.status().message();
      });
}

// A flag of the design that this version does not honour. Only `harmless` is accepted: it asks for what is done anyway.
struct Refusal {
  const char *name, *typed, *harmless, *why;
};
constexpr Refusal kRefusals[] = {
    {"--n-cpu-moe", "--n-cpu-moe", "", "experts are not offloaded yet"},
    {"--moe-cache-mib", "--moe-cache-mib", "0", "there is no expert cache yet"},
    {"--draft", "--draft", "off", "there is no drafting yet"},
    {"--fit-target", "--fit-target", "", "--memory bounds what is used"},
};

void refuse(CLI::App& command, const Refusal& refusal) {
  command
      .add_option_function<std::string>(
          refusal.name,
          [r = &refusal](const std::string& value) {
            const std::string_view harmless = r->harmless;
            if (!harmless.empty() && value == harmless) return;
            const std::string instead = harmless.empty() ? "" : fmt::format("; only '{}' is accepted", harmless);
            throw CLI::ValidationError(fmt::format("{} is not in this version: {}{}", r->typed, r->why, instead));
          })
      ->group("");  // Not in --help.
}

}  // namespace

void add_model_argument(CLI::App& command, std::filesystem::path& model) {
  auto* positional = command.add_option("MODEL", model, "A GGUF file, or the first part of a split one");
  auto* named = command.add_option("-m,--model", model, "The same as MODEL");
  positional->excludes(named);
  command.parse_complete_callback([positional, named] {
    if (positional->count() + named->count() == 0) throw CLI::RequiredError("MODEL");
  });
}

void add_compute_flags(CLI::App& command, engine::EngineOptions& options) {
  command.add_option("-t,--threads", options.threads, "Threads; default: the physical cores")
      ->check(CLI::Range(1, 1024))
      ->group(std::string(kCompute));
  add_kv_type(command, "--ctk", "-ctk", "K", options.k_type);
  add_kv_type(command, "--ctv", "-ctv", "V", options.v_type);
  command.add_option("--isa", options.isa, "Force an instruction set: generic, avx2 or avx512; default: the best here")
      ->group(std::string(kCompute));
  static const std::map<std::string, gguf::LoadMode> kModes = {
      {"mmap", gguf::LoadMode::mmap}, {"read", gguf::LoadMode::read}, {"direct", gguf::LoadMode::direct}};
  command
      .add_option_function<std::string>(
          "--load-mode", [&options](const std::string& text) { options.load_mode = kModes.at(text); },
          "How weights get into memory")
      ->check(CLI::IsMember(kModes))
      ->type_name("mmap|read|direct")
      ->default_str("mmap")
      ->group(std::string(kCompute));
  command
      .add_flag_function(
          "--no-repack",
          [&options](std::int64_t count) {
            if (count > 0) options.repack = engine::EngineOptions::Repack::off;
          },
          "Keep weights as the file has them: starts sooner and shares memory with other processes, generates slower")
      ->group(std::string(kCompute));
  command
      .add_flag_function(
          "--deterministic",
          [&options](std::int64_t count) {
            if (count > 0) options.numerics = kernels::DeviceNumerics::deterministic;
          },
          "Results never depend on batching or caching (always so on a CPU; slower on a card)")
      ->group(std::string(kCompute));
}

void add_engine_flags(CLI::App& command, engine::EngineOptions& options) {
  add_compute_flags(command, options);
  command
      .add_option("-c,--ctx", options.ctx,
                  "Context of each sequence in tokens; default: what fits, at most what the model was trained with")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->group(std::string(kMemory));
  command.add_option("--slots,--np", options.slots, "Sequences computed side by side; also -np")
      ->check(CLI::Range(1, 256))
      ->group(std::string(kMemory));
  command.add_option("--chunk,--ub", options.chunk, "Most prompt tokens in a step; also -ub")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->group(std::string(kMemory));
  add_size(command, "--memory", "Bound on all memory: 8GiB, 50%; default: what the machine allows", options.memory);
  add_size(command, "--vram",
           "Bound on the card's memory, the driver's own included; 0 computes on the CPU; default: what is free there",
           options.vram);
  // Layers are not split between a card and the CPU: all of them, or none.
  command
      .add_option_function<std::string>(
          "--ngl,--gpu-layers",
          [&options](const std::string& layers) {
            if (layers == "0") options.vram = "0";
            else if (layers != "all" && layers != "-1" && layers != "99" && layers != "999")
              throw CLI::ValidationError(
                  "-ngl " + layers +
                  " is not in this version: a model computes on the card (all) or on the CPU (0); "
                  "--vram bounds what it takes of the card");
          },
          "Layers on the card: all or 0; also -ngl")
      ->type_name("all|0")
      ->group(std::string(kMemory));
  add_size(command, "--kv-ram", "KV kept in RAM for later requests; 0 keeps none", options.kv_ram);
  command
      .add_option("--expert-ram", options.expert_ram,
                  "Memory for experts of a mixture, the others are read when needed: 2GiB, 50% of them; default: "
                  "all, or what fits")
      ->type_name("SIZE|auto")
      ->group(std::string(kMemory))
      ->check([](const std::string& text) {
        const auto parsed = parse_size(text, kGiB);
        return text == "auto" || parsed.ok() ? std::string() : parsed.status().message();
      });
  command.add_option("--kv-disk", options.kv_disk, "Folder of the KV store, or off; default: the user's cache folder")
      ->type_name("DIR|off")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("expected a folder, found nothing; 'off' turns the KV store off")
                            : std::string();
      })
      ->group(std::string(kMemory));
  add_size(command, "--kv-disk-max", "Most disk space of the KV store; default: 10% of what is free",
           options.kv_disk_max);
  add_size(command, "--kv-disk-writes", "Most bytes a day that are written there; default: 100GiB",
           options.kv_disk_writes);
  command
      .add_option("--kv-key-file", options.kv_key_file,
                  "Encrypt what is stored on disk with this file's key: 32 bytes or 64 hexadecimal digits, mode 0600")
      ->type_name("FILE")
      ->group(std::string(kMemory));
  command
      .add_option("--kv-trace", options.kv_trace,
                  "Record there how much requests share with each other, without their text, for the cache simulator")
      ->type_name("FILE")
      ->group(std::string(kMemory));

  for (const Refusal& refusal : kRefusals) refuse(command, refusal);
}

void add_chat_template_flag(CLI::App& command, std::filesystem::path& file) {
  command.add_option("--chat-template-file", file, "A Jinja chat template to use instead of the model's own")
      ->type_name("FILE");
}

std::string read_chat_template(const std::filesystem::path& file) {
  if (file.empty()) return {};
  auto text = read_input(file);
  if (!text.ok()) fail(text.status());
  if (text->empty())
    fail(Status::invalid(fmt::format("{}: expected a chat template, found an empty file", file.string())));
  return std::move(*text);
}

}  // namespace lode::cli
