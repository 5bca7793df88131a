#include "serve/slot_routes.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <utility>

#include "kv/slot_file.h"
#include "platform/file_system.h"
#include "serve/fields.h"
#include "serve/route_tools.h"

namespace lode::serve {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kNameBytesMax = 120;
// For a slot to become free, and for its blocks to reach the SSD.
constexpr std::chrono::seconds kWait{30};
constexpr double kEraseWaitMs = 2000;  // For writes of what is to be erased to end.

struct Action {
  int slot = 0;
  std::string salt, filename;
  enum class Pin { no, yes } pin = Pin::yes;
  std::filesystem::path folder;
  Time begun = Clock::now();

  std::filesystem::path path() const { return folder / filename; }
  std::string pin_name() const { return "slot:" + filename; }
  bool late() const { return Clock::now() - begun > kWait; }
  double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - begun).count(); }
};

Finish refuse(const ExchangePtr& exchange, const ApiError& error) {
  return then_answer(exchange, to_reply(error));
}
Finish refuse(const ExchangePtr& exchange, const Status& status) {
  return refuse(exchange, from_status(status));
}

bool good_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c != '/' && c != '\\' && c != 0x7F; }) &&
         name.find("..") == std::string_view::npos && !name.ends_with(".tmp");
}

// Each namespace has its own folder: files of others can neither be seen nor overwritten by their names.
std::filesystem::path folder_of(const std::string& base, const std::string& salt) {
  if (salt.empty()) return base;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(salt.data()), salt.size(), digest);
  std::string name = "salt-";
  for (int i = 0; i < 16; ++i) name += fmt::format("{:02x}", digest[i]);
  return std::filesystem::path(base) / name;
}

// The slot once it is free and the asker's; a slot of somebody else's shows as an empty one.
engine::Slot* free_slot(engine::Inside& inside, const Action& action) {
  engine::Slot& slot = inside.slots.all()[static_cast<std::size_t>(action.slot)];
  return slot.busy ? nullptr : &slot;
}

std::optional<Finish> when_busy(const ExchangePtr& exchange, const Action& action) {
  if (!action.late()) return std::nullopt;
  return refuse(exchange, Status(Code::unavailable, fmt::format("slot {} is busy; try again later", action.slot)));
}

// ---- save

Finish write_slot(const ExchangePtr& exchange, const Action& action, const kv::SlotFile& file, std::int64_t stored) {
  auto& fs = platform::real_file_system();
  const Status folder = fs.make_dirs(action.folder);
  if (!folder.ok()) return refuse(exchange, folder);
  const auto written = kv::write_slot_file(fs, action.path(), file);
  if (!written.ok()) return refuse(exchange, written.status());
  Json out;
  out["id_slot"] = action.slot;
  out["filename"] = action.filename;
  out["n_saved"] = file.tokens.size();
  out["n_stored"] = stored;
  out["n_written"] = *written;
  out["timings"] = {{"save_ms", action.ms()}};
  return then_answer(exchange, {.body = dump_json(out)});
}

// Pins what the file names; an older file of this name lets go of what it named.
Status pin_slot(kv::Store& store, const Action& action, std::span<const TokenId> tokens) {
  std::optional<kv::BlockKey> now;
  const auto pinned = store.pin(tokens, action.salt, action.pin_name());
  if (!pinned.ok()) return pinned.status();
  for (const kv::Pin& pin : store.pins(action.salt))
    if (pin.name == action.pin_name() && pin.key != pinned->key) (void)store.unpin(pin.key, action.salt);
  return Status::success();
}

std::optional<Finish> save(App& app, engine::Inside& inside, const ExchangePtr& exchange, const Action& action) {
  const kv::StoreStats stats = inside.store.stats();
  if (stats.disk.mode.empty())
    return refuse(exchange,
                  Status::unsupported(fmt::format(
                      "a slot file names blocks on the SSD, and there is no SSD tier{}{}; start the server with "
                      "--kv-disk DIR",
                      stats.disk_note.empty() ? "" : ": ", stats.disk_note)));
  engine::Slot* slot = free_slot(inside, action);
  if (slot == nullptr) return when_busy(exchange, action);
  auto file = std::make_shared<kv::SlotFile>();
  file->root = inside.store.root_inputs("");
  if (slot->salt == action.salt) file->tokens = slot->tokens;
  std::int64_t stored = 0;
  if (!file->tokens.empty()) {
    auto chain = inside.store.chain(file->tokens, action.salt, kv::Store::Write::now);
    if (!chain.ok()) return refuse(exchange, chain.status());
    if (chain->durable < chain->stored) {
      if (!action.late()) return std::nullopt;
      return refuse(exchange, Status(Code::unavailable,
                                     fmt::format("{} of {} tokens are on the SSD, which takes no more for now (see the "
                                                 "server's log); try again later",
                                                 chain->durable * kv::kBlockTokens, file->tokens.size())));
    }
    stored = chain->durable * kv::kBlockTokens;
    file->keys = std::move(chain->keys);
    if (action.pin == Action::Pin::yes && stored > 0) {
      const Status pinned = pin_slot(inside.store, action, file->tokens);
      if (!pinned.ok()) return refuse(exchange, pinned);
    }
  }
  return [&app, exchange, action, file, stored] {
    work_on_worker(app, exchange, [exchange, action, file, stored](const std::string&) {
      return write_slot(exchange, action, *file, stored);
    });
  };
}

// ---- restore

std::optional<Finish> restore_inside(engine::Inside& inside, const ExchangePtr& exchange, const Action& action,
                                     const kv::SlotFileRead& read) {
  const kv::SlotFile& file = read.slot;
  if (const Status same = kv::same_root(file.root, inside.store.root_inputs("")); !same.ok())
    return refuse(exchange, same);
  engine::Slot* slot = free_slot(inside, action);
  if (slot == nullptr) return when_busy(exchange, action);
  std::int64_t restored = 0, stored = 0;
  if (!file.tokens.empty()) {
    const auto chain = inside.store.chain(file.tokens, action.salt, kv::Store::Write::no);
    if (!chain.ok()) return refuse(exchange, chain.status());
    if (chain->keys != file.keys)
      return refuse(exchange,
                    Status::corrupt("the slot file's keys are not those of its tokens here; nothing was changed"));
    stored = chain->stored * kv::kBlockTokens;
    // A state of recurrent layers may lie before the last block: as much as there was when the slot was saved.
    const bool whole =
        !chain->keys.empty() ? stored > 0 && inside.store.tokens_of(chain->keys.back(), action.salt).ok() : true;
    restored = whole ? static_cast<std::int64_t>(file.tokens.size()) : stored;
    if (stored == 0 && !chain->keys.empty())
      return refuse(exchange, Status::not_found(fmt::format(
                                  "the {} blocks that '{}' names are no longer stored: the KV folder was emptied or is "
                                  "another one, or they were evicted. Send the prompt again; nothing was changed",
                                  file.keys.size(), action.filename)));
  }
  slot->tokens.assign(file.tokens.begin(), file.tokens.begin() + restored);
  slot->salt = action.salt;
  Json out;
  out["id_slot"] = action.slot;
  out["filename"] = action.filename;
  out["n_restored"] = restored;
  out["n_stored"] = stored;
  out["n_read"] = read.bytes;
  out["timings"] = {{"restore_ms", action.ms()}};
  return then_answer(exchange, {.body = dump_json(out)});
}

void restore(App& app, engine::Engine& engine, const ExchangePtr& exchange, const Action& action) {
  work_on_worker(app, exchange, [&engine, exchange, action](const std::string&) -> Finish {
    auto read = kv::read_slot_file(platform::real_file_system(), action.path());
    if (read.status().code() == Code::not_found)
      return refuse(exchange,
                    Status::not_found(fmt::format("there is no slot file '{}'; nothing was changed", action.filename)));
    if (!read.ok()) {
      ApiError error = from_status(read.status());
      error.http_status = 400;  // The client named it.
      error.message += "; nothing was changed";
      return refuse(exchange, error);
    }
    auto kept = std::make_shared<kv::SlotFileRead>(std::move(*read));
    return [&engine, exchange, action, kept] {
      work_inside(engine, exchange, [exchange, action, kept](engine::Inside& inside) {
        return restore_inside(inside, exchange, action, *kept);
      });
    };
  });
}

// ---- erase

// The slot forgets, and what only its chain needs is dropped; pinned blocks (of a saved slot, say) stay.
std::optional<Finish> erase(engine::Inside& inside, const ExchangePtr& exchange, const Action& action) {
  engine::Slot* slot = free_slot(inside, action);
  if (slot == nullptr) return when_busy(exchange, action);
  std::size_t erased = 0;
  if (slot->salt == action.salt && !slot->tokens.empty()) {
    const auto chain = inside.store.chain(slot->tokens, action.salt, kv::Store::Write::no);
    if (!chain.ok()) return refuse(exchange, chain.status());
    for (auto key = chain->keys.rbegin(); key != chain->keys.rend(); ++key) {
      if (!inside.store.tokens_of(*key, action.salt).ok()) continue;
      const kv::Purged purged = inside.store.purge(action.salt, *key);
      if (purged.kept_in_use > 0 && action.ms() < kEraseWaitMs) return std::nullopt;  // Being written, or another's.
      break;
    }
    erased = slot->tokens.size();
    slot->tokens.clear();
  }
  return then_answer(exchange, {.body = dump_json({{"id_slot", action.slot}, {"n_erased", erased}})});
}

// ---- what is asked

std::optional<int> slot_of(const HttpRequest& request, std::int64_t slots) {
  constexpr std::string_view kPrefix = "/slots/";
  const std::string_view text = std::string_view(request.path).substr(kPrefix.size());
  int id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool good = error == std::errc() && end == text.data() + text.size() && id >= 0 && id < slots;
  return good ? std::optional(id) : std::nullopt;
}

std::variant<Action, ApiError> read_action(const Json& body, const std::string& action_name) {
  Fields fields(body);
  Action out;
  bool pin = true;
  fields.string("cache_salt", out.salt, 1024);
  fields.string("filename", out.filename, 4096);
  fields.boolean("pin", pin);
  out.pin = pin ? Action::Pin::yes : Action::Pin::no;
  if (!fields.error() && action_name != "erase" && !good_name(out.filename))
    fields.fail("filename", fmt::format("'filename' must be a plain file name of at most {} bytes: no folders, no "
                                        "spaces, no '..', not beginning with a dot",
                                        kNameBytesMax));
  if (fields.error()) return *fields.error();
  return out;
}

void start(App& app, engine::Engine& engine, const ExchangePtr& exchange, const Action& action,
           const std::string& what) {
  if (what == "restore") return restore(app, engine, exchange, action);
  if (what == "save")
    return work_inside(engine, exchange, [&app, exchange, action](engine::Inside& inside) {
      return save(app, inside, exchange, action);
    });
  work_inside(engine, exchange, [exchange, action](engine::Inside& inside) { return erase(inside, exchange, action); });
}

Json slot_json(const engine::Slot& slot, std::size_t id, const engine::Engine& engine, bool own, bool show) {
  Json out;
  out["id"] = id;
  out["n_ctx"] = engine.info().context_max;
  out["speculative"] = false;
  out["is_processing"] = slot.busy;
  out["state"] = slot.busy ? "busy" : "idle";
  out["n_prompt_tokens"] = own ? slot.tokens.size() : 0;
  if (show) out["prompt"] = own ? engine.tokenizer().decode(slot.tokens, text::Tokenizer::Control::show) : "";
  return out;
}

}  // namespace

void slots_list(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = ready_engine(app, exchange);
  if (engine == nullptr) return;
  const HttpRequest& request = exchange->request();
  const std::string salt = salt_for(app, request.api_key, query_field(request, "cache_salt"));
  const bool show = query_field(request, "prompt") == "1" || query_field(request, "prompt") == "true";
  const bool fail = query_field(request, "fail_on_no_slot") == "1";
  work_inside(*engine, exchange, [=](engine::Inside& inside) -> std::optional<Finish> {
    auto slots = std::make_shared<std::vector<engine::Slot>>(inside.slots.all().begin(), inside.slots.all().end());
    return [=] {
      const bool none = std::all_of(slots->begin(), slots->end(), [](const engine::Slot& s) { return s.busy; });
      if (fail && none) return answer_error(exchange, unavailable("no slot available", "no_slot"));
      Json out = Json::array();
      for (std::size_t i = 0; i < slots->size(); ++i)
        out.push_back(slot_json((*slots)[i], i, *engine, (*slots)[i].salt == salt, show));
      answer_json(exchange, out);
    };
  });
}

void slot_action(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const HttpRequest& request = exchange->request();
  const std::string what = query_field(request, "action"), api_key = request.api_key;
  const auto slot = slot_of(request, engine->info().slots);
  if (!slot)
    return answer_error(exchange, invalid_field("id_slot", fmt::format("no such slot: this server has 0 to {}",
                                                                       engine->info().slots - 1)));
  if (what != "save" && what != "restore" && what != "erase")
    return answer_error(exchange, invalid_field("action", "'action' must be save, restore or erase"));
  const std::string base = app.options().slot_save_path;
  if (what != "erase" && base.empty())
    return answer_error(exchange,
                        {.http_status = 501,
                         .message = "this server saves no slots: start it with --slot-save-path DIR. (Prompts "
                                    "are kept without it, see --kv-disk.)",
                         .type = "not_supported_error"});
  const auto compute = [&app, engine, exchange, what, api_key, slot = *slot, base](const Json& body) -> Finish {
    auto read = read_action(body, what);
    if (const auto* error = std::get_if<ApiError>(&read)) return refuse(exchange, *error);
    Action action = std::get<Action>(std::move(read));
    action.slot = slot;
    action.salt = salt_for(app, api_key, action.salt);
    action.folder = folder_of(base, action.salt);
    return [&app, engine, exchange, action, what] { start(app, *engine, exchange, action, what); };
  };
  if (request.body.empty()) return compute(Json::object())();  // llama-server's erase has none.
  work_on_json(app, exchange, compute);
}

}  // namespace lode::serve
