// All logits of one sequence: `lode eval` and the exactness tests. See engine.h.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/runtime.h"

namespace lode::engine {

Result<std::vector<float>> eval_logits(const EngineOptions& options, std::span<const TokenId> ids, std::int64_t chunk) {
  Runtime rt;
  LODE_RETURN_IF_ERROR(load_model(options, options.load_mode, rt));
  const model::Facts& facts = rt.model->facts();
  const auto n = static_cast<std::int64_t>(ids.size());
  if (n == 0) return Status::invalid("eval: the list of ids is empty; give at least one");
  if (chunk < 1) return Status::invalid(fmt::format("eval: chunk {}: expected at least 1", chunk));
  for (std::int64_t i = 0; i < n; ++i)
    if (ids[static_cast<std::size_t>(i)] < 0 || ids[static_cast<std::size_t>(i)] >= facts.vocab)
      return Status::invalid(fmt::format("eval: id {} at index {}: expected 0 to {}", ids[static_cast<std::size_t>(i)],
                                         i, facts.vocab - 1));
  chunk = std::min(chunk, n);
  make_workspace(rt, options.threads > 0 ? options.threads : 1,
                 {.rows = chunk, .outputs = chunk, .runs = 1, .context = n});

  kv::StoreConfig config;
  config.groups.assign(rt.model->groups().begin(), rt.model->groups().end());
  config.k_type = options.k_type;
  config.v_type = options.v_type;
  config.arena_bytes_max = 1ull << 40;  // Bounded by context_max.
  config.chunk_tokens = chunk;
  config.context_max = n + 1;
  auto store = kv::Store::open(config, platform::real_file_system(), platform::system_clock());
  if (!store.ok()) return store.status();
  auto opened = store.value()->open_sequence(ids, "");
  if (!opened.ok()) return opened.status();
  kv::Sequence* seq = opened.value();

  std::vector<float> logits(static_cast<std::size_t>(n * facts.vocab));
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> rows;
  for (std::int64_t at = 0; at < n; at += chunk) {
    const std::int64_t count = std::min(chunk, n - at);
    positions.resize(static_cast<std::size_t>(count));
    rows.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      positions[static_cast<std::size_t>(i)] = at + i;
      rows[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
    }
    LODE_RETURN_IF_ERROR(store.value()->grow(*seq, count));
    const kv::Store::RunSpec run{seq, 0, count};
    const auto part = ids.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    LODE_RETURN_IF_ERROR(rt.model->forward(rt.stream, {part, positions, rows}, store.value()->view({&run, 1}),
                                           rt.limits, rt.scratch->data(), logits.data() + at * facts.vocab));
    store.value()->commit(*seq, part);
  }
  store.value()->close(seq);
  return logits;
}

}  // namespace lode::engine
