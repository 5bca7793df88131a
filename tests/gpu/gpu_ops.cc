// Every operation of the table "cuda" against the CPU's scalar one (attention: the CPU's best, which has the same bits;
// products: double over dequantized weights), over random shapes and fresh random inputs. Outputs start as NaN.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "gpu_commands.h"
#include "gpu_runner.h"
#include "kernels/cpu/ops.h"

namespace lode::gpu {
namespace {

using kernels::KvLayer;
using kernels::KvRun;
using kernels::KvType;
using quant::DType;

struct Row {
  int cases = 0;
  double worst = 0, bound = 0;
};

class Bench {
 public:
  explicit Bench(kernels::DeviceNumerics numerics)
      : device(must(kernels::open_cuda({.numerics = numerics}), "the device")),
        pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
    stream = device->stream();
    per_thread_ = align_up(kernels::scratch_bytes_per_thread(65536, 512), 64);
    room_ = std::make_unique<model::Workspace>(per_thread_ * static_cast<std::size_t>(pool.size()));
    cpu = {&kernels::generic::kTable, &pool, room_->data(), per_thread_, nullptr};
    best = cpu;
    best.ops = kernels::available_tables().front();
  }

  std::int64_t pick(std::initializer_list<std::int64_t> of) {
    return *(of.begin() + static_cast<std::ptrdiff_t>(rng() % of.size()));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::vector<float> normal(std::int64_t count) {
    std::normal_distribution<float> draw(0, 1);
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& v : x) v = draw(rng);
    return x;
  }
  // Device memory with the bytes of x; freed by clear().
  template <typename T>
  T* put(std::span<const T> x) {
    std::byte* at = must(device->allocate(x.size_bytes(), "a test"), "memory");
    must(device->upload(at, reinterpret_cast<const std::byte*>(x.data()), x.size_bytes()), "upload");
    held_.push_back(at);
    return reinterpret_cast<T*>(at);
  }
  float* put(const std::vector<float>& x) { return put(std::span<const float>(x)); }
  float* room(std::int64_t count) {  // NaN.
    std::byte* at = must(device->allocate(static_cast<std::uint64_t>(count) * 4, "a test"), "memory");
    must(device->fill(at, 0xFF, static_cast<std::uint64_t>(count) * 4), "fill");
    held_.push_back(at);
    return reinterpret_cast<float*>(at);
  }
  std::vector<float> get(const float* x, std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    must(device->download(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(x),
                          out.size() * 4),
         "an operation");
    return out;
  }
  void clear() {
    for (std::byte* at : held_) device->release(at);
    held_.clear();
  }
  // `power` instead of the sum of squares of `want`: what the norms of both factors of a product make likely.
  void note(const std::string& name, std::span<const float> got, std::span<const float> want, double bound,
            double power = 0) {
    double e = nmse(got, want);
    if (power > 0) {
      e = 0;
      for (std::size_t i = 0; i < want.size(); ++i)
        e += (double{got[i]} - want[i]) * (double{got[i]} - want[i]) / power;
    }
    Row& row = table[name];
    ++row.cases;
    row.bound = bound;
    if (!(e <= row.worst)) row.worst = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
  }

  std::unique_ptr<kernels::Device> device;
  ThreadPool pool;
  kernels::Stream stream, cpu, best;
  std::mt19937_64 rng{20261130};
  std::map<std::string, Row> table;

 private:
  std::size_t per_thread_ = 0;
  std::unique_ptr<model::Workspace> room_;
  std::vector<std::byte*> held_;
};

// Random blocks with finite scales of about 1/64.
std::vector<std::byte> random_weights(Bench& b, DType type, std::int64_t rows, std::int64_t cols) {
  const auto& info = quant::info(type);
  std::vector<std::byte> out(static_cast<std::size_t>(rows * quant::row_bytes(type, cols)));
  if (info.block == 1) {
    const auto x = b.normal(rows * cols);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint16_t half = type == DType::f16
                                     ? quant::f32_to_f16(x[i])
                                     : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x[i]) >> 16);
      if (type == DType::f32) std::memcpy(&out[i * 4], &x[i], 4);
      else std::memcpy(&out[i * 2], &half, 2);
    }
    return out;
  }
  for (std::byte& v : out) v = static_cast<std::byte>(b.rng());
  std::vector<std::size_t> halves{0};
  if (type == DType::q4_1 || type == DType::q5_1 || type == DType::q4_k || type == DType::q5_k) halves.push_back(2);
  if (type == DType::q6_k) halves = {208};
  std::uniform_real_distribution<float> scale(0.5f / 64, 2.0f / 64);
  for (std::size_t at = 0; at < out.size(); at += static_cast<std::size_t>(info.block_bytes))
    for (const std::size_t h : halves) {
      const std::uint16_t half = quant::f32_to_f16(scale(b.rng));
      std::memcpy(&out[at + h], &half, 2);
    }
  return out;
}

// A batch of rows without K and V.
void begin(Bench& b, std::vector<TokenId>& ids, std::vector<std::int64_t>& positions,
           std::vector<std::int32_t>& outputs, std::vector<KvRun>& runs, std::vector<std::span<const KvRun>>& groups,
           std::int64_t n) {
  ids.resize(static_cast<std::size_t>(n)), positions.resize(static_cast<std::size_t>(n));
  static std::byte* const none[4096] = {};
  runs = {{0, n, 0, none}};
  groups = {runs};
  for (std::int64_t i = 0; i < n; ++i) positions[static_cast<std::size_t>(i)] = b.between(0, 100000);
  must(b.device->begin_step({ids, positions, outputs, groups, 0}), "begin_step");
}

struct Step {
  std::vector<TokenId> ids;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> outputs;
  std::vector<KvRun> runs;
  std::vector<std::span<const KvRun>> groups;
};

void matmul_case(Bench& b, DType type, std::int64_t n, bool deterministic) {
  const auto& info = quant::info(type);
  const std::int64_t cols =
      std::max<std::int64_t>(info.block, b.pick({256, 512, 1024, 2304, 4096}) / info.block * info.block);
  Step step;
  begin(b, step.ids, step.positions, step.outputs, step.runs, step.groups, n);
  const auto x = b.normal(n * cols);
  const float* dx = b.put(x);
  std::byte* acts_room =
      reinterpret_cast<std::byte*>(b.room(static_cast<std::int64_t>(kernels::acts_bytes(n, cols) / 4 + 64)));
  kernels::Acts acts;
  kernels::acts_bind(acts, dx, n, cols, acts_room);
  std::vector<kernels::Matrix> matrices;
  std::vector<std::vector<float>> wants;
  std::vector<double> powers;
  double x_power = 0;
  for (const float v : x) x_power += double{v} * v;
  std::vector<kernels::MatmulJob> jobs;
  const int count = static_cast<int>(b.between(1, 3));
  matrices.reserve(3);
  for (int j = 0; j < count; ++j) {
    const std::int64_t rows = b.between(1, 200), stride = rows + b.between(0, 5);
    const auto w = random_weights(b, type, rows, cols);
    std::vector<float> wf(static_cast<std::size_t>(rows * cols)), want(static_cast<std::size_t>(n * rows));
    for (std::int64_t r = 0; r < rows; ++r)
      quant::dequantize_row(type, w.data() + r * quant::row_bytes(type, cols), wf.data() + r * cols, cols);
    b.pool.run(n, [&](std::int64_t t, int) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t k = 0; k < cols; ++k)
          sum += static_cast<double>(wf[static_cast<std::size_t>(r * cols + k)]) *
                 x[static_cast<std::size_t>(t * cols + k)];
        want[static_cast<std::size_t>(t * rows + r)] = static_cast<float>(sum);
      }
    });
    double w_power = 0;
    for (const float v : wf) w_power += double{v} * v;
    powers.push_back(w_power * x_power / static_cast<double>(cols));
    matrices.push_back({type, kernels::Layout::row_major, b.put(std::span<const std::byte>(w)), rows, cols});
    jobs.push_back({&matrices.back(), b.room(n * stride), stride});
    wants.push_back(std::move(want));
  }
  b.device->table().matmul(b.stream, jobs, acts);
  for (int j = 0; j < count; ++j) {
    const auto& job = jobs[static_cast<std::size_t>(j)];
    const auto padded = b.get(job.y, n * job.y_stride);
    std::vector<float> got;
    for (std::int64_t t = 0; t < n; ++t)
      got.insert(got.end(), padded.begin() + t * job.y_stride, padded.begin() + t * job.y_stride + job.w->rows);
    const bool floats = info.block == 1;
    const bool few = deterministic || n <= 24;
    const std::string name = "matmul " + std::string(info.name) +
                             (floats ? ""
                              : few  ? " int8"
                                     : " bf16") +
                             (deterministic ? ", deterministic" : "");
    b.note(name, got, wants[static_cast<std::size_t>(j)],
           floats ? 1e-11
           : few  ? 6e-5
                  : 1e-5,
           powers[static_cast<std::size_t>(j)]);
  }
  b.clear();
}

void small_ops(Bench& b) {
  const auto& k = b.device->table();
  const auto& g = kernels::generic::kTable;
  Step step;
  const std::int64_t n = b.pick({1, 2, 7, 8, 33, 200});
  const std::int64_t width = b.pick({64, 100, 256, 640, 1024, 4096, 5120, 8192, 9216});
  for (std::int64_t i = 0; i < n / 2 + 1; ++i) step.outputs.push_back(static_cast<std::int32_t>(i));
  begin(b, step.ids, step.positions, step.outputs, step.runs, step.groups, n);
  auto x = b.normal(n * width), y = b.normal(n * width);
  const auto w = b.normal(width);
  const std::int64_t count = n * width;
  float *dx = b.put(x), *dy = b.put(y), *dw = b.put(w), *out = b.room(count);
  std::vector<float> want(static_cast<std::size_t>(count));

  k.rms_norm(b.stream, dx, dw, 1e-6f, n, width, out);
  g.rms_norm(b.cpu, x.data(), w.data(), 1e-6f, n, width, want.data());
  b.note("rms_norm", b.get(out, count), want, 1e-12);
  k.add(b.stream, dy, dx, count);
  g.add(b.cpu, y.data(), x.data(), count);
  k.rms_norm(b.stream, dy, dw, 1e-6f, n, width, out);  // Joined with the add.
  g.rms_norm(b.cpu, y.data(), w.data(), 1e-6f, n, width, want.data());
  b.note("add + rms_norm", b.get(out, count), want, 1e-12);
  b.note("add", b.get(dy, count), y, 1e-14);
  k.add_bias(b.stream, dy, dw, n, width);
  g.add_bias(b.cpu, y.data(), w.data(), n, width);
  b.note("add_bias", b.get(dy, count), y, 1e-14);
  for (const auto act : {kernels::Activation::silu, kernels::Activation::gelu_tanh, kernels::Activation::sigmoid}) {
    k.glu(b.stream, act, dx, dy, out, count);
    g.glu(b.cpu, act, x.data(), y.data(), want.data(), count);
    b.note("glu", b.get(out, count), want, 1e-12);
  }
  const std::int64_t m = static_cast<std::int64_t>(step.outputs.size());
  k.gather_rows(b.stream, dx, step.outputs.data(), m, width, out);
  g.gather_rows(b.cpu, x.data(), step.outputs.data(), m, width, want.data());
  b.note("gather_rows", b.get(out, m * width), std::span(want).first(static_cast<std::size_t>(m * width)), 0);
  k.softcap(b.stream, dx, 2.5f, count);
  g.softcap(b.cpu, x.data(), 2.5f, count);
  b.note("softcap", b.get(dx, count), x, 1e-12);
  b.clear();
}

void embed_case(Bench& b, DType type) {
  const std::int64_t n = b.between(1, 40), rows = 100, cols = 512;
  Step step;
  for (std::int64_t i = 0; i < n; ++i) step.ids.push_back(static_cast<TokenId>(b.between(0, rows - 1)));
  begin(b, step.ids, step.positions, step.outputs, step.runs, step.groups, n);
  const auto w = random_weights(b, type, rows, cols);
  kernels::Matrix host{type, kernels::Layout::row_major, w.data(), rows, cols}, device = host;
  // From the device or from page-locked host memory.
  if (b.rng() % 2) {
    device.data = b.put(std::span<const std::byte>(w));
  } else {
    std::byte* pinned = must(b.device->allocate_pinned(w.size(), "a table"), "pinned memory");
    std::memcpy(pinned, w.data(), w.size());
    device.data = pinned;
  }
  float* out = b.room(n * cols);
  std::vector<float> want(static_cast<std::size_t>(n * cols));
  b.device->table().embed(b.stream, device, step.ids.data(), n, 1.7f, out);
  kernels::generic::kTable.embed(b.cpu, host, step.ids.data(), n, 1.7f, want.data());
  b.note("embed", b.get(out, n * cols), want, 1e-13);
  b.clear();
}

// norm + rope + kv_write + attention as a forward page calls them, over several sequences.
void attention_case(Bench& b, KvTypes types, std::int64_t dim, bool deterministic) {
  const auto& k = b.device->table();
  const auto& g = kernels::generic::kTable;
  const std::int64_t kv_heads = b.pick({1, 2, 3}), group = b.pick({1, 2, 3, 4, 6, 8}), heads = kv_heads * group;
  const KvLayer layer{types.k,
                      types.v,
                      static_cast<std::int32_t>(kv_heads),
                      static_cast<std::int32_t>(dim),
                      static_cast<std::int32_t>(dim),
                      256,
                      256 + 32 * 4 * kv_heads * dim};
  const std::size_t block_bytes = static_cast<std::size_t>(256 + 2 * 32 * 4 * kv_heads * dim);
  const int sequences = static_cast<int>(b.between(1, 3));
  const std::int64_t pairs = b.rng() % 2 ? dim / 2 : dim / 4;
  const auto style = b.rng() % 2 ? kernels::RopeStyle::neox : kernels::RopeStyle::normal;
  const auto q_weight = b.normal(dim), k_weight = b.normal(dim), sinks = b.normal(heads);
  const bool norm = b.rng() % 2, ropes = b.rng() % 4 != 0;
  float *dqw = b.put(q_weight), *dkw = b.put(k_weight), *ds = b.put(sinks);
  std::vector<double> freq;
  for (std::int64_t i = 0; i < pairs; ++i)
    freq.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  kernels::AttentionArgs args{.heads = static_cast<std::int32_t>(heads),
                              .scale = 1.5f / std::sqrt(static_cast<float>(dim))};
  args.window = b.pick({0, 0, 20, 100, 700});
  args.chunk = args.window == 0 && b.rng() % 4 == 0 ? 64 : 0;
  args.softcap = b.rng() % 4 == 0 ? 3.0f : 0.0f;
  const bool with_sinks = b.rng() % 4 == 0;
  args.layer = layer;

  struct Sequence {
    std::int64_t length = 0;
    std::vector<std::vector<std::byte>> host;
    std::vector<std::byte*> host_table, device_table;
  };
  std::vector<Sequence> all(static_cast<std::size_t>(sequences));
  const auto& best = *b.best.ops;
  constexpr std::int64_t kBlocks = 40;
  for (auto& s : all)
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      s.host.emplace_back(block_bytes, std::byte{0xFF});
      s.host_table.push_back(s.host.back().data());
      s.device_table.push_back(reinterpret_cast<std::byte*>(b.room(static_cast<std::int64_t>(block_bytes / 4))));
    }
  // A long prompt, decode of all, then a mixed step.
  for (int round = 0; round < 4; ++round) {
    Step step;
    std::vector<KvRun> cpu_runs;
    std::int64_t n = 0;
    for (auto& s : all) {
      const std::int64_t count = round == 0 ? b.between(1, 600) : round == 1 || b.rng() % 2 ? 1 : b.between(1, 150);
      step.runs.push_back({n, count, s.length, s.device_table.data()});
      cpu_runs.push_back({n, count, s.length, s.host_table.data()});
      for (std::int64_t i = 0; i < count; ++i) step.positions.push_back(s.length + i);
      n += count;
      s.length += count;
    }
    step.ids.resize(static_cast<std::size_t>(n));
    step.groups = {step.runs};
    must(b.device->begin_step({step.ids, step.positions, step.outputs, step.groups, kBlocks * 32}), "begin_step");
    auto q = b.normal(n * heads * dim), kk = b.normal(n * kv_heads * dim), v = b.normal(n * kv_heads * dim);
    float *dq = b.put(q), *dk = b.put(kk), *dv = b.put(v), *cos_sin = b.room(n * pairs * 2),
          *out = b.room(n * heads * dim);
    std::vector<float> cs(static_cast<std::size_t>(n * pairs * 2)), want(static_cast<std::size_t>(n * heads * dim));
    k.rope_table(b.stream, step.positions.data(), n, freq.data(), pairs, 1.25f, cos_sin);
    g.rope_table(b.cpu, step.positions.data(), n, freq.data(), pairs, 1.25f, cs.data());
    b.note("rope_table", b.get(cos_sin, n * pairs * 2), cs, 1e-14);
    if (norm) {
      k.rms_norm(b.stream, dq, dqw, 1e-6f, n * heads, dim, dq);
      k.rms_norm(b.stream, dk, dkw, 1e-6f, n * kv_heads, dim, dk);
      g.rms_norm(b.cpu, q.data(), q_weight.data(), 1e-6f, n * heads, dim, q.data());
      g.rms_norm(b.cpu, kk.data(), k_weight.data(), 1e-6f, n * kv_heads, dim, kk.data());
    }
    if (ropes) {
      k.rope(b.stream, dq, n, heads, dim, pairs, style, cos_sin);
      k.rope(b.stream, dk, n, kv_heads, dim, pairs, style, cos_sin);
      g.rope(b.cpu, q.data(), n, heads, dim, pairs, style, cs.data());
      g.rope(b.cpu, kk.data(), n, kv_heads, dim, pairs, style, cs.data());
    }
    k.kv_write(b.stream, {dk, dv, layer, step.runs});
    best.kv_write(b.best, {kk.data(), v.data(), layer, cpu_runs});
    args.q = dq, args.out = out, args.runs = step.runs, args.sinks = with_sinks ? ds : nullptr;
    args.span_room_floats = kernels::attention_span_room(3, heads, dim, kBlocks * 32);
    args.span_room = b.room(static_cast<std::int64_t>(args.span_room_floats));
    k.attention(b.stream, args);
    auto cpu_args = args;
    cpu_args.q = q.data(), cpu_args.out = want.data(), cpu_args.runs = cpu_runs;
    cpu_args.sinks = with_sinks ? sinks.data() : nullptr;
    cpu_args.span_room = nullptr, cpu_args.span_room_floats = 0;
    best.attention(b.best, cpu_args);
    b.note("norm + rope of Q", b.get(dq, n * heads * dim), q, 1e-12);
    const bool cores = types.k != KvType::f32 && types.v != KvType::f32 && dim != 80;
    const std::string name = "attention " + name_of(types) + ", heads of " + std::to_string(dim) +
                             (cores && !deterministic ? ", tiles" : ", rows");
    const bool exact = types.k == KvType::f32 && types.v == KvType::f32;
    b.note(name, b.get(out, n * heads * dim), want, exact ? 1e-11 : cores ? 3e-6 : 1e-7);
  }
  // Equal values give equal bytes, those that nobody wrote included; norm and rope differ from the CPU's by a rounding.
  const bool equal_k = !norm && !ropes;
  double differ = 0;
  std::vector<std::byte> got(block_bytes);
  for (auto& s : all)
    for (std::size_t i = 0; i < s.host.size(); ++i) {
      must(b.device->download(got.data(), s.device_table[i], block_bytes), "a block");
      for (std::size_t at = equal_k ? 0 : static_cast<std::size_t>(layer.v_offset); at < block_bytes; ++at)
        differ += got[at] != s.host[i][at];
    }
  const float bytes[] = {static_cast<float>(differ)}, none[] = {0};
  b.note("kv_write, bytes that differ, V " + name_of(types.v), bytes, none, 0);
  if (equal_k) b.note("kv_write, bytes that differ, K " + name_of(types.k), bytes, none, 0);
  b.clear();
}

// A token's bits with and without a much longer sequence in its step, which has other tables, spans and merges.
void neighbours_case(Bench& b, KvTypes types, std::int64_t dim) {
  constexpr std::int64_t kHeads = 8, kKvHeads = 2, kLengths[] = {3000, 9000};
  const KvLayer layer{types.k,
                      types.v,
                      kKvHeads,
                      static_cast<std::int32_t>(dim),
                      static_cast<std::int32_t>(dim),
                      0,
                      4 * 32 * kKvHeads * dim};
  const std::int64_t block_bytes = 8 * 32 * kKvHeads * dim;
  std::vector<std::vector<std::byte*>> tables(2);
  for (std::size_t s = 0; s < 2; ++s)
    for (std::int64_t i = 0; i * 32 < kLengths[s]; ++i)
      tables[s].push_back(reinterpret_cast<std::byte*>(b.room(block_bytes / 4)));
  const auto span_room = kernels::attention_span_room(2, kHeads, dim, kLengths[1]);
  const auto step_of = [&](std::initializer_list<std::size_t> of, std::int64_t count, std::int64_t from) {
    Step step;
    std::int64_t n = 0;
    for (const std::size_t s : of) {
      const std::int64_t first = from < 0 ? kLengths[s] - 1 : from, now = std::min(count, kLengths[s] - first);
      step.runs.push_back({n, now, first, tables[s].data()});
      for (std::int64_t i = 0; i < now; ++i) step.positions.push_back(first + i);
      n += now;
    }
    step.ids.resize(static_cast<std::size_t>(n));
    step.groups = {step.runs};
    return step;
  };
  for (std::size_t s = 0; s < 2; ++s) {  // All K and V, by one write a sequence.
    Step step = step_of({s}, kLengths[s], 0);
    must(b.device->begin_step({step.ids, step.positions, step.outputs, step.groups, kLengths[1]}), "begin_step");
    b.device->table().kv_write(b.stream, {b.put(b.normal(kLengths[s] * kKvHeads * dim)),
                                          b.put(b.normal(kLengths[s] * kKvHeads * dim)), layer, step.runs});
    must(b.device->finish(), "kv_write");
  }
  const auto q = b.normal(2 * kHeads * dim);
  std::vector<std::vector<float>> outs;
  for (const auto& of : {std::initializer_list<std::size_t>{0}, {0, 1}}) {
    Step step = step_of(of, 1, -1);
    must(b.device->begin_step({step.ids, step.positions, step.outputs, step.groups, kLengths[1]}), "begin_step");
    float* out = b.room(2 * kHeads * dim);
    b.device->table().attention(b.stream, {.q = b.put(q),
                                           .out = out,
                                           .heads = kHeads,
                                           .scale = 0.2f,
                                           .layer = layer,
                                           .runs = step.runs,
                                           .span_room = b.room(static_cast<std::int64_t>(span_room)),
                                           .span_room_floats = span_room});
    outs.push_back(b.get(out, kHeads * dim));
  }
  b.note("bits of attention beside a longer sequence", outs[0], outs[1], 0);
  b.clear();
}

}  // namespace

int run_ops() {
  int failed = 0;
  for (const bool deterministic : {false, true}) {
    Bench b(deterministic ? kernels::DeviceNumerics::deterministic : kernels::DeviceNumerics::fast);
    for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                             DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k})
      for (const std::int64_t n : {1, 2, 3, 5, 8, 13, 24, 25, 70}) matmul_case(b, type, n, deterministic);
    if (!deterministic) {
      for (int i = 0; i < 24; ++i) small_ops(b);
      for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                               DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k})
        embed_case(b, type);
    }
    for (const KvTypes types : {KvTypes(KvType::f32),
                                {KvType::f16},
                                {KvType::q8_0},
                                {KvType::q8_0, KvType::f16},
                                {KvType::f16, KvType::q8_0},
                                {KvType::q8_0, KvType::f32}})
      for (const std::int64_t dim : {64, 80, 128, 256})
        for (int i = 0; i < 3; ++i) attention_case(b, types, dim, deterministic);
    for (const KvTypes types : {KvTypes(KvType::f16), {KvType::q8_0}, {KvType::f32}})
      for (const std::int64_t dim : {64, 128}) neighbours_case(b, types, dim);
    std::printf("%s: largest NMSE of each operation\n", deterministic ? "deterministic" : "fast");
    for (const auto& [name, row] : b.table) {
      const bool ok = row.worst <= row.bound;
      failed += !ok;
      std::printf("  %-44s %10.3g  (at most %.1e, %d cases)  %s\n", name.c_str(), row.worst, row.bound, row.cases,
                  ok ? "ok" : "FAILED");
    }
  }
  return failed;
}

}  // namespace lode::gpu
