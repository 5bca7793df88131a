// `lode cache ls|verify|gc|rm|warm|export|import`: a KV folder, seen and kept in order from outside. Reading commands
// go beside a server; those that change files take the folder's lock.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/read_input.h"
#include "engine/kv_folder.h"
#include "kv/extent_file.h"
#include "kv/inventory.h"
#include "kv/known_models.h"
#include "platform/clock.h"
#include "platform/terminal.h"

namespace lode::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Flags {
  fs::path folder, model, file, prefix;
  std::string source, key, fingerprint, text, age, size, sort = "used";
  engine::EngineOptions engine;
  bool json = false, yes = false, all = false, remove = false;
};

platform::FileSystem& disk() {
  return platform::real_file_system();
}

fs::path folder_of(const Flags& flags) {
  if (!flags.folder.empty()) return flags.folder;
  const fs::path folder = engine::default_kv_folder();
  if (folder.empty()) fail(Status::invalid("there is no user's cache folder; name a KV folder with --kv-disk DIR"));
  return folder;
}

kv::Inventory inventory_of(const fs::path& folder) {
  auto inventory = kv::read_inventory(disk(), folder);
  if (!inventory.ok()) fail(inventory.status());
  return std::move(inventory).value();
}

std::unique_ptr<platform::FileLock> lock_of(const fs::path& folder) {
  auto lock = kv::lock_folder(disk(), folder);
  if (!lock.ok()) fail(lock.status());
  return std::move(lock).value();
}

// A model file, as far as this folder knows it: its name in the store, and its words.
struct KnownModel {
  std::string name;
  std::unique_ptr<text::Tokenizer> tokenizer;  // nullptr: the file has no vocabulary.
};

KnownModel model_of(const fs::path& path, const fs::path& folder) {
  auto file = gguf::File::open(path, {});
  if (!file.ok()) fail(file.status());
  const auto fingerprint = (*file)->fingerprint();
  const auto stamps = (*file)->stamps();
  if (!fingerprint.ok() || !stamps.ok()) fail(fingerprint.ok() ? stamps.status() : fingerprint.status());
  auto content = kv::KnownModels(disk(), folder).find(*stamps);
  if (!content) {
    const auto read = (*file)->content_hash();
    if (!read.ok()) fail(read.status());
    content = *read;
  }
  KnownModel model{kv::hex(kv::BlockKey{kv::model_name(*fingerprint, *content)}), nullptr};
  if (auto tokenizer = text::Tokenizer::load(**file); tokenizer.ok()) model.tokenizer = std::move(tokenizer).value();
  return model;
}

// "90s", "30m", "12h", "7d" in seconds.
std::int64_t seconds_of(const std::string& age) {
  std::int64_t n = -1;
  const auto [end, error] = std::from_chars(age.data(), age.data() + age.size(), n);
  const std::string_view unit(end, static_cast<std::size_t>(age.data() + age.size() - end));
  const std::map<std::string_view, std::int64_t> units = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86'400}};
  if (error != std::errc() || n < 0 || n > 100'000'000 || !units.contains(unit))
    throw CLI::ValidationError(fmt::format("expected an age such as 90s, 30m, 12h or 7d, found '{}'", age));
  return n * units.at(unit);
}

std::string age_text(std::int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", std::max<std::int64_t>(seconds, 0));
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172'800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86'400);
}

// What a chain begins with, as one line: text where the words are known, else ids.
std::string begin_of(const kv::StoredChain& chain, const std::optional<KnownModel>& model) {
  if (chain.begin.empty()) return "(its beginning is not stored)";
  if (model && model->tokenizer && model->name == chain.model) {
    std::string text = model->tokenizer->decode(chain.begin, text::Tokenizer::Control::show);
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
    if (text.size() <= 60) return text;
    std::size_t end = 60;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // Whole characters.
    return text.substr(0, end) + "...";
  }
  return fmt::format("ids {} ...", fmt::join(chain.begin.begin(), chain.begin.begin() + 8, " "));
}

bool selected(const std::string& model, const Flags& flags, const std::optional<KnownModel>& known) {
  return model.starts_with(flags.fingerprint) && (!known || model == known->name);
}

void run_ls(Flags& flags) {
  const fs::path folder = folder_of(flags);
  const kv::Inventory inventory = inventory_of(folder);
  std::optional<KnownModel> model;
  if (!flags.model.empty()) model = model_of(flags.model, folder);
  struct Row {
    kv::StoredChain chain;
    std::string begin;
  };
  std::vector<Row> rows;
  for (auto& chain : kv::chains_of(inventory)) {
    if (!selected(chain.model, flags, model) || !kv::hex(chain.last).starts_with(flags.key)) continue;
    std::string begin = begin_of(chain, model);
    if (begin.find(flags.text) == std::string::npos) continue;
    rows.push_back({std::move(chain), std::move(begin)});
  }
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    const auto &x = a.chain, &y = b.chain;
    if (flags.sort == "tokens" && x.tokens != y.tokens) return x.tokens > y.tokens;
    if (flags.sort == "bytes" && x.bytes != y.bytes) return x.bytes > y.bytes;
    return std::tie(y.used_seconds, x.model, x.last) < std::tie(x.used_seconds, y.model, y.last);
  });
  const std::int64_t now = platform::system_clock().wall_seconds();
  std::uint64_t bytes = 0;
  for (const auto& extent : inventory.extents) bytes += extent.allocated_bytes;
  if (flags.json) {
    Json out = {{"folder", folder.string()},
                {"bytes", bytes},
                {"extents", inventory.extents.size()},
                {"damaged", inventory.damaged.size()},
                {"temporary", inventory.temporaries.size()},
                {"prompts", Json::array()}};
    for (const Row& row : rows)
      out["prompts"].push_back({{"model", row.chain.model},
                                {"key", kv::hex(row.chain.last)},
                                {"begin", row.begin},
                                {"tokens", row.chain.tokens},
                                {"bytes", row.chain.bytes},
                                {"used", row.chain.used_seconds},
                                {"age_s", now - row.chain.used_seconds}});
    return fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  fmt::print("{}: {} in {} extents of {} prompts\n", folder.string(), format_size(bytes), inventory.extents.size(),
             rows.size());
  if (!inventory.damaged.empty() || !inventory.temporaries.empty())
    fmt::print("and {} damaged and {} half written files (gc removes them)\n", inventory.damaged.size(),
               inventory.temporaries.size());
  fmt::print("\n{:<12}  {:<12}  {:>9}  {:>10}  {:>9}  {}\n", "model", "key", "tokens", "bytes", "last use",
             "begins with");
  for (const Row& row : rows)
    fmt::print("{:<12}  {:<12}  {:>9}  {:>10}  {:>9}  {}\n", row.chain.model.substr(0, 12),
               kv::hex(row.chain.last).substr(0, 12), row.chain.tokens, format_size(row.chain.bytes),
               age_text(now - row.chain.used_seconds), row.begin);
}

// Removes files below the folder. Names and the space that they gave back are printed.
void remove_files(const fs::path& folder, const std::vector<std::pair<std::string, std::uint64_t>>& files) {
  std::uint64_t bytes = 0, removed = 0;
  std::set<std::string> folders;
  for (const auto& [path, size] : files) {
    const Status gone = disk().unlink(folder / path);
    if (!gone.ok() && gone.code() != Code::not_found) fail(gone);
    folders.insert(fs::path(path).parent_path().string());
    bytes += size;
    ++removed;
  }
  for (const auto& name : folders) static_cast<void>(disk().sync_dir(folder / name).ok());
  fmt::print("{} files removed, {} free again\n", removed, format_size(bytes));
}

void run_verify(Flags& flags) {
  const fs::path folder = folder_of(flags);
  std::unique_ptr<platform::FileLock> lock;
  if (flags.remove) lock = lock_of(folder);
  const kv::Inventory inventory = inventory_of(folder);
  std::vector<std::pair<std::string, std::uint64_t>> bad;
  for (const auto& file : inventory.damaged) {
    fmt::print("damaged: {}: {}\n", file.path, file.what);
    bad.emplace_back(file.path, file.allocated_bytes);
  }
  const bool person = platform::is_terminal(platform::StandardStream::error);
  std::uint64_t bytes = 0, sound = 0;
  for (std::size_t i = 0; i < inventory.extents.size(); ++i) {
    const kv::StoredExtent& extent = inventory.extents[i];
    if (person && i % 16 == 0)
      fmt::print(stderr, "\r\033[K{} of {} extents, {}", i, inventory.extents.size(), format_size(bytes));
    std::array<std::uint8_t, 32> fingerprint{};
    for (std::size_t b = 0; b < 32; ++b)
      fingerprint[b] = static_cast<std::uint8_t>(std::stoi(extent.model.substr(2 * b, 2), nullptr, 16));
    const Status status = kv::verify_extent(disk(), folder / extent.path(), extent.meta.name, fingerprint, bytes);
    if (status.code() == Code::not_found) continue;  // A server removed it meanwhile.
    if (status.ok()) {
      ++sound;
      continue;
    }
    if (person) fmt::print(stderr, "\r\033[K");
    fmt::print("damaged: {}: {}\n", extent.path(), status.message());
    bad.emplace_back(extent.path(), extent.allocated_bytes);
  }
  if (person) fmt::print(stderr, "\r\033[K");
  fmt::print("{} extents are sound, {} read; {} files are damaged\n", sound, format_size(bytes), bad.size());
  if (flags.remove && !bad.empty()) return remove_files(folder, bad);
  if (!bad.empty()) exit_with(1);
}

void run_gc(Flags& flags) {
  const fs::path folder = folder_of(flags);
  std::uint64_t limit = UINT64_MAX;
  if (!flags.size.empty()) {
    std::uint64_t total = 0;
    for (const auto& extent : inventory_of(folder).extents) total += extent.allocated_bytes;
    const auto size = parse_size(flags.size, total);
    if (!size.ok()) throw CLI::ValidationError(size.status().message());
    limit = *size;
  }
  const auto lock = lock_of(folder);
  const kv::Inventory inventory = inventory_of(folder);
  std::vector<std::pair<std::string, std::uint64_t>> files;
  for (const auto* strays : {&inventory.temporaries, &inventory.damaged})
    for (const auto& file : *strays) files.emplace_back(file.path, file.allocated_bytes);
  const std::size_t strays = files.size();
  const auto victims = kv::beyond(inventory, limit);
  for (const std::size_t i : kv::without_parent(inventory, victims))
    files.emplace_back(inventory.extents[i].path(), inventory.extents[i].allocated_bytes);
  fmt::print("{} damaged or half written files; {} extents beyond the size or without what they follow\n", strays,
             files.size() - strays);
  remove_files(folder, files);
}

bool agreed(const std::string& question) {
  if (!platform::is_terminal(platform::StandardStream::in))
    fail(Status::invalid(fmt::format("{} Nobody is there to ask: say --yes", question)));
  fmt::print(stderr, "{} [y/N] ", question);
  std::string line;
  return std::getline(std::cin, line) && (line == "y" || line == "Y" || line == "yes");
}

void run_rm(Flags& flags) {
  if (flags.model.empty() && flags.fingerprint.empty() && flags.key.empty() && flags.age.empty() && !flags.all)
    throw CLI::ValidationError("say what to remove: -m MODEL, --fingerprint HEX, --key HEX, --older AGE or --all");
  const std::int64_t before =
      flags.age.empty() ? INT64_MAX : platform::system_clock().wall_seconds() - seconds_of(flags.age);
  const fs::path folder = folder_of(flags);
  const auto lock = lock_of(folder);
  const kv::Inventory inventory = inventory_of(folder);
  std::optional<KnownModel> model;
  if (!flags.model.empty()) model = model_of(flags.model, folder);
  std::vector<std::size_t> chosen;
  for (const std::size_t i : kv::with_key(inventory, flags.key))
    if (selected(inventory.extents[i].model, flags, model) && inventory.extents[i].used_seconds <= before)
      chosen.push_back(i);
  if (chosen.empty()) return fmt::print("nothing stored is meant by that\n");
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::uint64_t bytes = 0;
  for (const std::size_t i : kv::without_parent(inventory, chosen)) {
    files.emplace_back(inventory.extents[i].path(), inventory.extents[i].allocated_bytes);
    bytes += files.back().second;
  }
  if (!flags.yes &&
      !agreed(fmt::format("Remove {} extents, {}, with what follows them?", files.size(), format_size(bytes))))
    return fmt::print("nothing was removed\n");
  remove_files(folder, files);
}

// Computes a prompt into the folder; the answer is not wanted.
void run_warm(Flags& flags) {
  auto text = read_input(flags.prefix);
  if (!text.ok()) fail(text.status());
  if (flags.engine.kv_disk == "off") throw CLI::ValidationError("warm fills a KV folder: leave out --kv-disk off");
  flags.folder = flags.engine.kv_disk;
  const fs::path folder = folder_of(flags);
  if (const Status made = disk().make_dirs(folder); !made.ok()) fail(made);
  lock_of(folder).reset();  // A folder that another process writes would be read only.
  flags.engine.kv_disk = folder.string();
  auto created = engine::Engine::create(flags.engine);
  if (!created.ok()) fail(created.status());
  engine::Engine& engine = **created;
  engine::Request request;
  request.prompt = engine.tokenizer().encode(
      *text, {.special = text::EncodeOptions::Special::parse, .bos = text::EncodeOptions::Bos::start});
  request.max_tokens = 0;
  const auto n = static_cast<std::int64_t>(request.prompt.size());
  if (n < kv::kBlockTokens)
    fail(Status::invalid(fmt::format("the prompt has {} tokens; whole blocks of {} are kept", n, kv::kBlockTokens)));
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<engine::Event> last;
  auto id = engine.submit(std::move(request), [&](engine::Event&& event) {
    if (event.kind != engine::Event::Kind::finished && event.kind != engine::Event::Kind::failed) return;
    const std::lock_guard held(mutex);
    last = std::move(event);
    changed.notify_all();
  });
  if (!id.ok()) fail(id.status());
  {
    std::unique_lock held(mutex);
    changed.wait(held, [&] { return last.has_value(); });
  }
  if (last->kind == engine::Event::Kind::failed) fail(last->error);
  engine.stop(0);
  const auto stats = engine.stats().kv;
  if (!stats.disk_note.empty()) fail(Status(Code::unavailable, stats.disk_note));
  fmt::print("{} tokens: {} computed in {:.2f} s, {} were stored already; {} written to {}\n", n,
             last->timings.prompt_n, last->timings.prompt_ms / 1e3, last->timings.cache_n,
             format_size(stats.disk.bytes_written), folder.string());
  if (stats.disk.writes_dropped + stats.disk.write_errors > 0)
    fail(Status::exhausted(fmt::format("{} extents were not written: the queue, the quota or the disk was full",
                                       stats.disk.writes_dropped + stats.disk.write_errors)));
}

void run_export(Flags& flags) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(flags.source, ignored);
  if (is_folder && !flags.folder.empty()) throw CLI::ValidationError("the folder is named twice");
  const fs::path folder = is_folder ? fs::path(flags.source) : folder_of(flags);
  const kv::Inventory inventory = inventory_of(folder);
  std::optional<KnownModel> model;
  if (!is_folder) model = model_of(flags.source, folder);
  // A chain is worth nothing without what it follows: --key takes all from the first block on.
  std::set<kv::BlockKey> wanted;
  std::vector<bool> take(inventory.extents.size());
  for (const std::size_t i : kv::with_key(inventory, flags.key)) take[i] = true;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < take.size(); ++i)
      if (take[i]) wanted.insert(inventory.extents[i].meta.parent);
    for (std::size_t i = 0; i < take.size(); ++i) {
      const auto& keys = inventory.extents[i].meta.keys;
      if (take[i] || std::none_of(keys.begin(), keys.end(), [&](const auto& k) { return wanted.contains(k); }))
        continue;
      take[i] = more = true;
    }
  }
  std::vector<kv::StoredExtent> extents;
  for (std::size_t i = 0; i < take.size(); ++i)
    if (take[i] && selected(inventory.extents[i].model, flags, model)) extents.push_back(inventory.extents[i]);
  if (extents.empty()) fail(Status::not_found(fmt::format("{} holds nothing of that", folder.string())));
  if (const Status written = kv::export_extents(disk(), folder, extents, flags.file); !written.ok()) fail(written);
  fmt::print("{} extents, {} in {}\n", extents.size(), format_size(fs::file_size(flags.file, ignored)),
             flags.file.string());
}

void run_import(Flags& flags) {
  const fs::path folder = folder_of(flags);
  if (const Status made = disk().make_dirs(folder); !made.ok()) fail(made);
  const auto lock = lock_of(folder);
  const std::string model = flags.model.empty() ? std::string() : model_of(flags.model, folder).name;
  const auto done = kv::import_extents(disk(), folder, flags.file, model);
  if (!done.ok()) fail(done.status());
  fmt::print("{} extents, {} imported into {}; {} were there already\n", done->extents, format_size(done->bytes),
             folder.string(), done->present);
}

void add_folder(CLI::App& command, Flags& flags) {
  command.add_option("--kv-disk", flags.folder, "The KV folder; default: the user's cache folder, as of serve");
}
void add_model(CLI::App& command, Flags& flags, const char* what) {
  command.add_option("-m,--model", flags.model, what);
}
void add_filters(CLI::App& command, Flags& flags) {
  command.add_option("--fingerprint", flags.fingerprint,
                     "Of models whose name in the store begins with these hex digits");
  command.add_option("--key", flags.key, "Of blocks whose key begins with these hex digits");
}

}  // namespace

void add_cache_command(CLI::App& app) {
  CLI::App& cache = *app.add_subcommand("cache", "What is stored in a KV folder: list, check, tidy, fill, move");
  cache.require_subcommand(1);
  cache.footer("ls, verify and export only read, and work beside a server; the others need the folder for themselves.");
  const auto add = [&](const char* name, const char* what, void (*body)(Flags&)) {
    const auto flags = std::make_shared<Flags>();
    CLI::App& command = *cache.add_subcommand(name, what);
    if (std::string_view(name) != "warm") add_folder(command, *flags);
    on_run(command, flags, body);
    return std::pair<CLI::App*, Flags*>(&command, flags.get());
  };
  const auto [ls, l] = add("ls", "The stored prompts", run_ls);
  add_model(*ls, *l, "Of this model alone, with the beginning of each prompt as text");
  add_filters(*ls, *l);
  ls->add_option("--text", l->text, "Whose beginning, as listed, contains this");
  ls->add_option("--sort", l->sort, "used, tokens or bytes, the most first")
      ->check(CLI::IsMember({"used", "tokens", "bytes"}))
      ->capture_default_str();
  ls->add_flag("--json", l->json, "Print JSON instead of a table");
  const auto [verify, v] =
      add("verify", "Read every byte and compare every checksum; exit code 1 if a file is damaged", run_verify);
  verify->add_flag("--remove", v->remove, "Remove what is damaged");
  const auto [gc, g] = add("gc", "Remove damaged and half written files, and blocks without what they follow", run_gc);
  gc->add_option("--size", g->size, "And the least recently used, until this much is left: 10GiB, 50%")
      ->type_name("SIZE");
  const auto [rm, r] = add("rm", "Remove stored prompts, and what follows them", run_rm);
  add_model(*rm, *r, "Of this model");
  add_filters(*rm, *r);
  rm->add_option("--older", r->age, "Not used for so long: 90s, 30m, 12h, 7d")->type_name("AGE");
  rm->add_flag("--all", r->all, "Everything");
  rm->add_flag("-y,--yes", r->yes, "Do not ask");
  const auto [warm, w] = add("warm", "Compute a prompt into the folder ahead of time", run_warm);
  add_model_argument(*warm, w->engine.model);
  warm->add_option("--prefix,--prompt-file", w->prefix, "The text; - reads stdin")->required();
  add_engine_flags(*warm, w->engine);
  const auto [out, o] = add("export", "Write stored prompts into one file", run_export);
  out->add_option("SOURCE", o->source, "A KV folder, or a model's file: what is stored of it")->required();
  out->add_option("FILE", o->file, "A new file")->required();
  out->add_option("--key", o->key, "Of blocks whose key begins with these hex digits, and what they follow");
  const auto [in, i] = add("import", "Take over an exported file: all of it, or nothing", run_import);
  in->add_option("FILE", i->file, "What export wrote")->required();
  add_model(*in, *i, "Refuse what is of another model than this");
}

}  // namespace lode::cli
