#include "serve/cache_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "kv/elsewhere.h"
#include "platform/file_system.h"
#include "serve/fields.h"
#include "serve/route_tools.h"
#include "serve/stored_prompt.h"

namespace lode::serve {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kListMost = 200, kListDefault = 50;
constexpr std::size_t kTextBytesMax = 200;  // Of a prefix's beginning and end in a list.
constexpr std::size_t kOthersMax = 8;       // Namespaces that one question compares with.
// For blocks to reach the SSD before a pin is refused, and for writes to end before a purge leaves their blocks.
constexpr std::chrono::seconds kPinWait{15}, kPurgeWait{2};

std::string text_of(const std::vector<TokenId>& ids, const text::Tokenizer& tokenizer) {
  return tokenizer.decode(ids, text::Tokenizer::Control::show);
}
std::string cut(std::string text) {
  if (text.size() > kTextBytesMax) text.resize(kTextBytesMax);
  return valid_utf8(text);
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<kv::BlockKey> parse_key(std::string_view digits) {
  kv::BlockKey key;
  if (digits.size() != 2 * key.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    const char* const at = digits.data() + 2 * i;
    if (std::from_chars(at, at + 2, key.bytes[i], 16).ptr != at + 2) return std::nullopt;
  }
  return key;
}

// The body's "key"; nothing, without an error, where it names none.
std::optional<kv::BlockKey> read_key(Fields& fields) {
  std::string digits;
  fields.string("key", digits, 256);
  if (digits.empty()) return std::nullopt;
  auto key = parse_key(digits);
  if (!key) fields.fail("key", "the 64 hexadecimal digits of a prefix's key", "something else");
  return key;
}

Finish answer_with(const ExchangePtr& exchange, Json body) {
  return then_answer(exchange, {.body = dump_json(body)});
}
Finish refuse_with(const ExchangePtr& exchange, const ApiError& error) {
  return then_answer(exchange, to_reply(error));
}

// ---- list

Json prefix_json(const kv::StoredPrefix& p, const text::Tokenizer& tokenizer) {
  Json out;
  out["key"] = kv::hex(p.key);
  out["tokens"] = p.tokens;
  out["bytes"] = {{"vram", p.vram_bytes}, {"ram", p.ram_bytes}, {"disk", p.disk_bytes}};
  out["last_used"] = p.used_seconds > 0 ? Json(p.used_seconds) : Json(nullptr);
  out["pinned"] = p.pinned;
  out["text"] = cut(text_of(p.first, tokenizer));
  out["end"] = cut(text_of(p.last, tokenizer));
  return out;
}

Json pin_json(const kv::Pin& pin) {
  Json out;
  out["key"] = kv::hex(pin.key);
  out["tokens"] = pin.blocks * kv::kBlockTokens;
  out["name"] = valid_utf8(pin.name);
  out["pinned_at"] = pin.wall_seconds;
  return out;
}

std::optional<std::int64_t> query_number(const HttpRequest& request, std::string_view name, std::int64_t absent,
                                         std::int64_t most) {
  const std::string text = query_field(request, name);
  if (text.empty()) return absent;
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return std::min(value, most);
}

// ---- explain

Json removal_json(const std::optional<kv::Removal>& removal) {
  if (!removal) return nullptr;
  Json out;
  out["at"] = removal->wall_seconds;
  out["seconds_ago"] = std::max<std::int64_t>(0, unix_seconds() - removal->wall_seconds);
  out["why"] = removed_why(removal->why);
  return out;
}

Json difference_json(const kv::Difference& d, const StoredPrompt& prompt, const text::Tokenizer& tokenizer) {
  const auto side = [&](const std::vector<TokenId>& ids) {
    Json out;
    out["id"] = ids.front();
    out["token"] = text_of({ids.front()}, tokenizer);
    out["text"] = text_of(ids, tokenizer);
    return out;
  };
  Json out;
  out["position"] = d.at;
  out["before"] = text_of(d.before, tokenizer);
  out["asked"] = side(d.asked);
  out["stored"] = side(d.stored);
  out["part"] = prompt.part_of(d.at, tokenizer);
  return out;
}

std::string removed_words(const kv::Explanation& e) {
  std::string out;
  const auto add = [&](const std::optional<kv::Removal>& removal, std::string_view where) {
    if (!removal) return;
    out += fmt::format("; it left {} {} s ago {}", where,
                       std::max<std::int64_t>(0, unix_seconds() - removal->wall_seconds), removed_why(removal->why));
  };
  add(e.from_ram, "RAM");
  add(e.from_disk, "the SSD");
  if (!out.empty() && !e.disk) out += ", and there is no SSD tier (--kv-disk)";
  return out;
}

Json explanation_json(const kv::Explanation& e, const StoredPrompt& prompt, const text::Tokenizer& tokenizer) {
  Json out;
  out["object"] = "cache.explanation";
  out["prompt_tokens"] = e.reuse.prompt_tokens;
  out["tokens_reused"] = e.reuse.tokens_reused;
  out["by_tier"] = {{"ram", e.reuse.from_ram}, {"disk", e.reuse.from_disk}, {"in_flight", e.reuse.from_in_flight}};
  out["resume"] = e.reuse.resume;
  out["stop"] = stop_name(e.stop);
  out["reason"] = e.reuse.reason + removed_words(e);
  out["tokens_known"] = e.tokens_known;
  out["difference"] = e.difference ? difference_json(*e.difference, prompt, tokenizer) : Json(nullptr);
  out["removed"] = {{"ram", removal_json(e.from_ram)}, {"disk", removal_json(e.from_disk)}};
  return out;
}

// A namespace that the asker could ask in as well: what is stored there shows why nothing is found here.
struct Other {
  std::string words, salt;
};

// The body's "compare_with", and the namespace without a salt.
std::vector<Other> read_others(Fields& fields, const App& app, const std::string& api_key, const std::string& salt) {
  std::vector<Other> out;
  if (!salt.empty()) out.push_back({"without cache_salt", salt_for(app, api_key, "")});
  const Json* given = fields.find("compare_with");
  if (given == nullptr) return out;
  if (!given->is_array() || given->size() > kOthersMax) {
    fields.fail("compare_with", fmt::format("an array of at most {} objects", kOthersMax), describe(*given));
    return out;
  }
  for (std::size_t i = 0; i < given->size(); ++i) {
    if (!(*given)[i].is_object()) {
      fields.fail("compare_with", "an array of objects", "one that holds " + describe((*given)[i]));
      return out;
    }
    Fields inner((*given)[i], fmt::format("compare_with[{}].", i));
    std::string other_salt, other_key = api_key;
    inner.string("cache_salt", other_salt, 1024);
    inner.string("api_key", other_key, 4096);
    if (inner.error()) fields.fail(*inner.error());
    // Whoever cannot authenticate as the other may not learn what is there.
    else if (!allowed(app, other_key))
      fields.fail("compare_with", fmt::format("'compare_with[{}].api_key' is no valid key", i));
    else out.push_back({fmt::format("compare_with[{}]", i), salt_for(app, other_key, other_salt)});
  }
  return out;
}

struct Question {
  StoredPrompt prompt;
  std::string salt;  // The namespace.
  std::vector<Other> others;
};

// What the folder holds of the prompt for other models and KV types. On a worker.
void add_other_models(const engine::EngineInfo& info, const kv::RootInputs& root, const Question& question,
                      std::int64_t reused, Json& elsewhere) {
  if (info.kv_folder.empty()) return;
  for (const auto& other :
       kv::find_elsewhere(platform::real_file_system(), info.kv_folder, root, question.prompt.ids)) {
    if (other.tokens <= reused) continue;
    Json one;
    one["where"] = other.same_model ? "other KV types" : "another model";
    if (!other.same_model) one["fingerprint"] = other.fingerprint;
    one["k_type"] = other.k_type;
    one["v_type"] = other.v_type;
    one["tokens_stored"] = other.tokens;
    elsewhere.push_back(std::move(one));
  }
}

// What one look into the store has found.
struct Found {
  kv::Explanation here;
  kv::RootInputs root;
  Json elsewhere = Json::array();
};

Json whole_explanation(const engine::Engine& engine, const Question& question, Found& found) {
  Json out = explanation_json(found.here, question.prompt, engine.tokenizer());
  if (found.here.stop != kv::Stop::whole) {
    if (!found.elsewhere.empty())
      out["reason"] = out["reason"].get<std::string>() + "; more of it is stored under another salt";
    const std::size_t salts = found.elsewhere.size();
    add_other_models(engine.info(), found.root, question, found.here.reuse.tokens_reused, found.elsewhere);
    if (found.elsewhere.size() > salts)
      out["reason"] = out["reason"].get<std::string>() + "; more of it is stored for " +
                      found.elsewhere.back()["where"].get<std::string>();
  }
  out["elsewhere"] = std::move(found.elsewhere);
  return out;
}

std::optional<Finish> explain_inside(App& app, engine::Inside& inside, const engine::Engine& engine,
                                     const ExchangePtr& exchange, const std::shared_ptr<const Question>& question) {
  auto explained = inside.store.explain(question->prompt.ids, question->salt);
  if (!explained.ok()) return refuse_with(exchange, from_status(explained.status()));
  auto found = std::make_shared<Found>();
  found->here = std::move(*explained);
  found->root = inside.store.root_inputs(question->salt);
  for (const Other& other : question->others) {
    if (other.salt == question->salt) continue;
    const auto there = inside.store.explain(question->prompt.ids, other.salt);
    if (there.ok() && there->reuse.tokens_reused > found->here.reuse.tokens_reused)
      found->elsewhere.push_back({{"where", other.words}, {"tokens_reused", there->reuse.tokens_reused}});
  }
  return [&app, exchange, question, found, &engine] {
    work_on_worker(app, exchange, [exchange, question, found, &engine](const std::string&) {
      return answer_with(exchange, whole_explanation(engine, *question, *found));
    });
  };
}

// ---- what pin, unpin and purge name

struct Target {
  std::optional<kv::BlockKey> key;
  std::vector<TokenId> ids;  // Where there is no key.
  std::string salt, name;
};

// A key, or a prompt's body. `Needed::no`: it may name neither.
enum class Needed { yes, no };
std::variant<Target, ApiError> read_target(const Json& body, App& app, const engine::Engine& engine,
                                           const std::string& api_key, const std::optional<ChatContext>& chat,
                                           Needed needed) {
  Fields fields(body);
  Target out;
  out.key = read_key(fields);
  fields.string("cache_salt", out.salt, 1024);
  fields.string("name", out.name, 128);
  if (fields.error()) return *fields.error();
  const bool names =
      fields.find("messages") != nullptr || fields.find("prompt") != nullptr || fields.find("tokens") != nullptr;
  if (!out.key && (names || needed == Needed::yes)) {
    auto read = read_stored_prompt(body, app.grammars(), engine.info().context_max, chat);
    if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
    out.ids = std::move(std::get<StoredPrompt>(read).ids);
  }
  out.salt = salt_for(app, api_key, out.salt);
  return out;
}

// Reads a target and then works on the step thread.
void with_target(App& app, const ExchangePtr& exchange, Needed needed,
                 std::function<std::optional<Finish>(engine::Inside&, const Json&, Target&)> work) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto chat = chat_context_if_any(app, *engine);
  const std::string api_key = exchange->request().api_key;
  work_on_json(app, exchange, [&app, engine, exchange, chat, api_key, needed, work](const Json& body) -> Finish {
    auto read = read_target(body, app, *engine, api_key, chat, needed);
    if (const auto* error = std::get_if<ApiError>(&read)) return refuse_with(exchange, *error);
    auto target = std::make_shared<Target>(std::get<Target>(std::move(read)));
    auto kept = std::make_shared<const Json>(body);
    return [engine, exchange, target, kept, work] {
      work_inside(*engine, exchange,
                  [target, kept, work](engine::Inside& inside) { return work(inside, *kept, *target); });
    };
  });
}

// The pin that a key, a name or a prompt means: of a prompt, the longest.
std::optional<kv::BlockKey> find_pin(kv::Store& store, const Target& target) {
  const std::vector<kv::Pin> pins = store.pins(target.salt);
  if (target.key || !target.name.empty()) {
    for (const kv::Pin& pin : pins)
      if (target.key ? pin.key == *target.key : pin.name == target.name) return pin.key;
    return std::nullopt;
  }
  if (target.ids.empty()) return std::nullopt;
  const auto chain = store.chain(target.ids, target.salt, kv::Store::Write::no);
  if (!chain.ok()) return std::nullopt;
  for (auto key = chain->keys.rbegin(); key != chain->keys.rend(); ++key)
    for (const kv::Pin& pin : pins)
      if (pin.key == *key) return *key;
  return std::nullopt;
}

ApiError no_pin() {
  return {.http_status = 404, .message = "no such prefix is pinned here", .type = "not_found_error"};
}

}  // namespace

void cache_list(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = ready_engine(app, exchange);
  if (engine == nullptr) return;
  const HttpRequest& request = exchange->request();
  const auto limit = query_number(request, "limit", kListDefault, kListMost);
  const auto offset = query_number(request, "offset", 0, std::int64_t{1} << 40);
  if (!limit || !offset)
    return answer_error(exchange, invalid_field(limit ? "offset" : "limit", "'limit' and 'offset' are whole numbers"));
  const std::string salt = salt_for(app, request.api_key, query_field(request, "cache_salt"));
  work_inside(*engine, exchange,
              [=, limit = *limit, offset = *offset](engine::Inside& inside) -> std::optional<Finish> {
                auto page = std::make_shared<kv::PrefixPage>(inside.store.list(salt, offset, limit));
                auto pins = std::make_shared<std::vector<kv::Pin>>(inside.store.pins(salt));
                return [=] {
                  Json out;
                  out["object"] = "list";
                  out["model"] = engine->info().model_name;
                  out["data"] = Json::array();
                  for (const auto& p : page->prefixes) out["data"].push_back(prefix_json(p, engine->tokenizer()));
                  out["offset"] = offset;
                  out["total"] = page->total;
                  out["truncated"] = page->truncated;
                  out["pins"] = Json::array();
                  for (const auto& pin : *pins) out["pins"].push_back(pin_json(pin));
                  answer_json(exchange, out);
                };
              });
}

void cache_explain(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto chat = chat_context_if_any(app, *engine);
  const std::string api_key = exchange->request().api_key;
  work_on_json(app, exchange, [&app, engine, exchange, chat, api_key](const Json& body) -> Finish {
    auto read = read_stored_prompt(body, app.grammars(), engine->info().context_max, chat);
    if (const auto* error = std::get_if<ApiError>(&read)) return refuse_with(exchange, *error);
    auto question = std::make_shared<Question>(Question{.prompt = std::get<StoredPrompt>(std::move(read))});
    question->salt = salt_for(app, api_key, question->prompt.salt);
    Fields fields(body);
    question->others = read_others(fields, app, api_key, question->prompt.salt);
    if (fields.error()) return refuse_with(exchange, *fields.error());
    return [&app, engine, exchange, question] {
      work_inside(*engine, exchange, [&app, engine, exchange, question](engine::Inside& inside) {
        return explain_inside(app, inside, *engine, exchange, question);
      });
    };
  });
}

void cache_pin(App& app, const ExchangePtr& exchange) {
  const auto deadline = Clock::now() + kPinWait;
  with_target(app, exchange, Needed::yes,
              [=](engine::Inside& inside, const Json&, Target& target) -> std::optional<Finish> {
                if (target.key && target.ids.empty()) {
                  auto ids = inside.store.tokens_of(*target.key, target.salt);
                  if (!ids.ok()) return refuse_with(exchange, from_status(ids.status()));
                  target.ids = std::move(*ids);
                }
                const auto pinned = inside.store.pin(target.ids, target.salt, target.name);
                if (pinned.status().code() == Code::unavailable && Clock::now() < deadline) return std::nullopt;
                if (!pinned.ok()) return refuse_with(exchange, from_status(pinned.status()));
                return answer_with(exchange, {{"object", "cache.pin"},
                                              {"key", kv::hex(pinned->key)},
                                              {"tokens", pinned->tokens},
                                              {"bytes", pinned->bytes}});
              });
}

void cache_unpin(App& app, const ExchangePtr& exchange) {
  with_target(app, exchange, Needed::no,
              [=](engine::Inside& inside, const Json&, Target& target) -> std::optional<Finish> {
                const auto key = find_pin(inside.store, target);
                if (!key) return refuse_with(exchange, no_pin());
                const Status unpinned = inside.store.unpin(*key, target.salt);
                if (!unpinned.ok()) return refuse_with(exchange, from_status(unpinned));
                return answer_with(exchange, {{"object", "cache.unpin"}, {"key", kv::hex(*key)}});
              });
}

void cache_purge(App& app, const ExchangePtr& exchange) {
  const auto deadline = Clock::now() + kPurgeWait;
  auto sum = std::make_shared<kv::Purged>();
  with_target(app, exchange, Needed::no,
              [=](engine::Inside& inside, const Json& body, Target& target) -> std::optional<Finish> {
                Fields fields(body);
                bool all = false, include_pinned = false;
                fields.boolean("all", all);
                fields.boolean("include_pinned", include_pinned);
                if (!fields.error() && all == target.key.has_value())
                  fields.fail("key", "say what to purge: 'key', or 'all': true for everything under this salt");
                if (fields.error()) return refuse_with(exchange, *fields.error());
                if (include_pinned)
                  for (const kv::Pin& pin : inside.store.pins(target.salt))
                    if (!target.key || pin.key == *target.key) (void)inside.store.unpin(pin.key, target.salt);
                const kv::Purged purged = inside.store.purge(target.salt, target.key);
                sum->blocks += purged.blocks;
                sum->ram_bytes += purged.ram_bytes;
                sum->disk_bytes += purged.disk_bytes;
                if (purged.kept_in_use > 0 && Clock::now() < deadline) return std::nullopt;  // Writes end soon.
                return answer_with(exchange, {{"object", "cache.purge"},
                                              {"blocks", sum->blocks},
                                              {"bytes", {{"ram", sum->ram_bytes}, {"disk", sum->disk_bytes}}},
                                              {"kept_pinned", purged.kept_pinned},
                                              {"kept_in_use", purged.kept_in_use}});
              });
}

}  // namespace lode::serve
