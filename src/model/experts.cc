#include "model/experts.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace lode::model {
namespace {

// One tensor of all experts, or one tensor each as early files have it.
std::vector<kernels::Matrix> read_stack(TensorReader& t, std::int64_t layer, const std::string& part, std::int64_t rows,
                                        std::int64_t cols, std::int64_t count) {
  const std::string all = layer_tensor(layer, part + "_exps");
  if (t.has(all) || !t.has(layer_tensor(layer, part + ".0"))) return t.stack(all, rows, cols, count);
  std::vector<kernels::Matrix> each;
  for (std::int64_t e = 0; e < count; ++e)
    each.push_back(t.matrix(layer_tensor(layer, fmt::format("{}.{}", part, e)), rows, cols));
  return each;
}

// Rows [first, first + rows) of w.
kernels::Matrix rows_of(kernels::Matrix w, std::int64_t first, std::int64_t rows) {
  w.data += first * quant::row_bytes(w.type, w.cols);
  w.rows = rows;
  return w;
}

// Sorts the (token, rank) pairs by expert, then token: `tokens`, `places`, `starts` and `uses`. Returns the uses.
std::span<const ExpertUse> group_by_expert(std::int64_t n, const ExpertConfig& e, const ExpertScratch& b) {
  std::fill(b.starts, b.starts + e.count + 1, 0);
  for (std::int64_t i = 0; i < n * e.used; ++i) ++b.starts[b.ids[i] + 1];
  std::size_t count = 0;
  for (std::int64_t x = 0; x < e.count; ++x) {
    if (b.starts[x + 1] > 0) b.uses[count++] = {ExpertId{static_cast<std::uint32_t>(x)}, b.starts[x + 1]};
    b.starts[x + 1] += b.starts[x];
  }
  for (std::int64_t i = 0; i < n * e.used; ++i) {
    const std::int32_t place = b.starts[b.ids[i]]++;
    b.tokens[place] = static_cast<std::int32_t>(i / e.used);
    b.places[i] = place;
  }
  // Every start has moved to its expert's end: move them back.
  for (std::int64_t x = e.count; x > 0; --x) b.starts[x] = b.starts[x - 1];
  b.starts[0] = 0;
  return {b.uses, count};
}

// One expert over its tokens, from the layer's input h [n, width] to its rows of y.
void run_expert(kernels::Stream& s, const ExpertWeights& w, const float* h, const ExpertScratch& b) {
  const std::int64_t width = w.gate.cols, ffn = w.gate.rows;
  const std::int64_t first = b.starts[w.expert.v], n = b.starts[w.expert.v + 1] - first;
  kernels::Acts acts;
  s.ops->gather_rows(s, h, b.tokens + first, n, width, b.x);
  kernels::acts_bind(acts, b.x, n, width, b.acts_room);
  kernels::matmul(s, {{&w.gate, b.gate, ffn}, {&w.up, b.up, ffn}}, acts);
  s.ops->glu(s, kernels::Activation::silu, b.gate, b.up, b.gate, n * ffn);
  kernels::acts_bind(acts, b.gate, n, ffn, b.acts_room);
  kernels::matmul(s, {{&w.down, b.y + first * width, width}}, acts);
}

// The only token's experts: gate and up of all of them in one product, since they share their input.
void run_one_token(kernels::Stream& s, std::span<const ExpertWeights> experts, kernels::Acts& h,
                   const ExpertScratch& b) {
  const std::int64_t width = experts[0].gate.cols, ffn = experts[0].gate.rows;
  const std::int64_t count = static_cast<std::int64_t>(experts.size());
  for (std::int64_t i = 0; i < count; ++i) {
    b.jobs[2 * i] = {&experts[static_cast<std::size_t>(i)].gate, b.gate + i * ffn, ffn};
    b.jobs[2 * i + 1] = {&experts[static_cast<std::size_t>(i)].up, b.up + i * ffn, ffn};
  }
  s.ops->matmul(s, {b.jobs, static_cast<std::size_t>(2 * count)}, h);
  s.ops->glu(s, kernels::Activation::silu, b.gate, b.up, b.gate, count * ffn);
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpertWeights& w = experts[static_cast<std::size_t>(i)];
    kernels::Acts acts;
    kernels::acts_bind(acts, b.gate + i * ffn, 1, ffn, b.acts_room);
    kernels::matmul(s, {{&w.down, b.y + b.starts[w.expert.v] * width, width}}, acts);
  }
}

// Before anything else of the step uses `b.x`, `b.logits` and `b.acts_room`.
void guess_next(kernels::Stream& s, const NextRouter& next, std::int64_t n, ExpertSource& source,
                const ExpertScratch& b) {
  const ExpertConfig& e = next.ffn->config;
  const std::int64_t width = next.ffn->router.cols;
  s.ops->rms_norm(s, next.x, next.norm, next.eps, n, width, b.x);
  kernels::Acts acts;
  kernels::acts_bind(acts, b.x, n, width, b.acts_room);
  kernels::matmul(s, {{&next.ffn->router, b.logits, e.count}}, acts);
  s.ops->route(s, {.logits = b.logits,
                   .ids = b.guess_ids,
                   .weights = b.guess_weights,
                   .n = n,
                   .experts = e.count,
                   .used = e.used,
                   .norm = e.norm,
                   .scale = e.weights_scale});
  source.guess(next.ffn->layer, {b.guess_ids, static_cast<std::size_t>(n * e.used)});
}

}  // namespace

std::vector<ExpertWeights> read_experts(TensorReader& t, std::int64_t layer, std::int64_t width,
                                        const ExpertConfig& e) {
  const bool fused = t.has(layer_tensor(layer, "ffn_gate_up_exps"));
  const auto gate = fused ? t.stack(layer_tensor(layer, "ffn_gate_up_exps"), 2 * e.ffn, width, e.count)
                          : read_stack(t, layer, "ffn_gate", e.ffn, width, e.count);
  const auto up = fused ? gate : read_stack(t, layer, "ffn_up", e.ffn, width, e.count);
  const auto down = read_stack(t, layer, "ffn_down", width, e.ffn, e.count);
  std::vector<ExpertWeights> out;
  if (!t.status().ok()) return out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(e.count); ++i) {
    out.push_back({.expert = ExpertId{static_cast<std::uint32_t>(i)},
                   .gate = rows_of(gate[i], 0, e.ffn),
                   .up = rows_of(up[i], fused ? e.ffn : 0, e.ffn),
                   .down = down[i]});
  }
  return out;
}

ExpertScratch cut_expert_scratch(Cutter& cut, std::int64_t n, std::int64_t width, const ExpertConfig& e) {
  ExpertScratch b{};
  b.logits = cut.take<float>(n * e.count);
  b.ids = cut.take<std::int32_t>(n * e.used);
  b.weights = cut.take<float>(n * e.used);
  b.places = cut.take<std::int32_t>(n * e.used);
  b.tokens = cut.take<std::int32_t>(n * e.used);
  b.starts = cut.take<std::int32_t>(e.count + 1);
  b.uses = cut.take<ExpertUse>(e.count);
  b.room = cut.take<ExpertWeights>(e.count);
  b.jobs = cut.take<kernels::MatmulJob>(2 * e.count);
  b.x = cut.take<float>(n * width);
  b.gate = cut.take<float>(std::max(n, e.used) * e.ffn);
  b.up = cut.take<float>(std::max(n, e.used) * e.ffn);
  b.y = cut.take<float>(n * e.used * width);
  b.acts_room = cut.take<std::byte>(static_cast<std::int64_t>(kernels::acts_bytes(n, std::max(width, e.ffn))));
  b.guess_ids = cut.take<std::int32_t>(std::min(n, kGuessTokensMax) * e.used);
  b.guess_weights = cut.take<float>(std::min(n, kGuessTokensMax) * e.used);
  return b;
}

Status run_experts(kernels::Stream& s, const ExpertFfn& w, kernels::Acts& acts, ExpertSource& source,
                   const ExpertScratch& b, float* out, const NextRouter& next) {
  const ExpertConfig& e = w.config;
  const std::int64_t n = acts.n;
  kernels::matmul(s, {{&w.router, b.logits, e.count}}, acts);
  s.ops->route(s, {.logits = b.logits,
                   .ids = b.ids,
                   .weights = b.weights,
                   .n = n,
                   .experts = e.count,
                   .used = e.used,
                   .norm = e.norm,
                   .scale = e.weights_scale});
  const std::span<const ExpertUse> uses = group_by_expert(n, e, b);
  source.begin(w.layer, uses);
  if (next.ffn != nullptr && n <= kGuessTokensMax && source.wants_guess(next.ffn->layer, n))
    guess_next(s, next, n, source, b);
  for (std::size_t done = 0; done < uses.size();) {
    const auto ready = source.ready(w.layer);
    LODE_RETURN_IF_ERROR(ready.status());
    const std::span<const ExpertWeights> experts = ready.value();
    LODE_CHECK(!experts.empty());
    if (n == 1) run_one_token(s, experts, acts, b);
    else
      for (const ExpertWeights& expert : experts) run_expert(s, expert, acts.x, b);
    done += experts.size();
  }
  source.end(w.layer);
  s.ops->combine_experts(
      s,
      {.y = b.y, .rows = b.places, .weights = b.weights, .out = out, .n = n, .used = e.used, .width = w.router.cols});
  return Status::success();
}

}  // namespace lode::model
