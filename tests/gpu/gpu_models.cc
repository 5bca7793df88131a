// Whole models on the device: goldens, chunk invariance, greedy text, speed.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/npy.h"
#include "gpu_commands.h"
#include "gpu_runner.h"
#include "model/simple_kv.h"

namespace lode::gpu {
namespace {

using kernels::DeviceNumerics;
using kernels::KvType;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<TokenId> read_ids(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<TokenId> ids;
  for (char c = 0; in >> c;) {
    if (c < '0' || c > '9') continue;
    in.unget();
    TokenId id = 0;
    in >> id;
    ids.push_back(id);
  }
  return ids;
}

// Eight chains, so that a vocabulary takes microseconds.
std::int32_t largest(std::span<const float> x) {
  float top[8];
  std::size_t at[8] = {}, i = 0;
  std::fill(top, top + 8, -INFINITY);
  for (; i + 8 <= x.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j)
      if (x[i + j] > top[j]) top[j] = x[i + j], at[j] = i + j;
  for (; i < x.size(); ++i)
    if (x[i] > top[0]) top[0] = x[i], at[0] = i;
  std::size_t best = 0;
  for (std::size_t j = 1; j < 8; ++j)
    if (top[j] > top[best] || (top[j] == top[best] && at[j] < at[best])) best = j;
  return static_cast<std::int32_t>(at[best]);
}

int line(const char* name, double value, double bound) {
  const bool ok = value <= bound;  // NaN fails.
  std::printf("  %-44s %10.3g  (at most %.0e)  %s\n", name, value, bound, ok ? "ok" : "FAILED");
  return ok ? 0 : 1;
}

// Three sequences at different depths in shared steps: the first one's logits.
std::vector<float> run_batched(Runner& r, std::span<const TokenId> ids, KvTypes types) {
  auto kv = r.make_kv(types, 3, 128);
  std::vector<float> out;
  const auto vocab = static_cast<std::size_t>(r.vocab());
  for (const std::vector<DeviceKv::Part>& parts : {std::vector<DeviceKv::Part>{{1, 40}},
                                                   {{1, 1}, {0, 60}, {2, 33}},
                                                   {{2, 1}, {1, 1}, {0, 1}},
                                                   {{2, 20}, {0, 9}}}) {
    std::vector<TokenId> step;
    std::vector<std::int32_t> rows;
    std::size_t first = 0, count = 0;
    for (const auto& p : parts) {
      if (p.sequence == 0) first = step.size(), count = static_cast<std::size_t>(p.count);
      for (std::int64_t i = 0; i < p.count; ++i) {
        const auto at = static_cast<std::size_t>(kv->length(p.sequence) + i);
        step.push_back(p.sequence == 0 ? ids[at] : ids[(at * 13 + p.sequence) % ids.size()]);
        rows.push_back(static_cast<std::int32_t>(rows.size()));
      }
    }
    r.step(*kv, parts, step, rows, false);
    const auto got = r.logits(rows.size());
    out.insert(out.end(), got.begin() + static_cast<std::ptrdiff_t>(first * vocab),
               got.begin() + static_cast<std::ptrdiff_t>((first + count) * vocab));
  }
  return out;
}

}  // namespace

int run_goldens(const std::filesystem::path& folder) {
  int failed = 0;
  for (const auto& [name, tolerance] : {std::pair{"llama", 1e-6}, {"gemma3", 1e-4}, {"qwen2", 1e-6}, {"qwen3", 1e-6}}) {
    const std::string base = (folder / name).string();
    if (!std::filesystem::exists(base + ".gguf")) {
      std::printf("%s: absent\n", name);
      continue;
    }
    const auto ids = read_ids(base + ".tokens.json");
    const Npy want = must(read_npy(base + ".logits.npy"), "golden logits");
    std::printf("%s: NMSE against the golden logits, or 0 where bits agree\n", name);
    {
      Runner fast(base + ".gguf", DeviceNumerics::fast, {96, 96, 1, 96});
      failed += line("fast, f32 KV, one chunk", nmse(fast.run(ids, 96, KvType::f32, false), want.data), tolerance);
      failed +=
          line("fast, f32 KV, token by token, graphs", nmse(fast.run(ids, 1, KvType::f32, true), want.data), tolerance);
      failed += line("fast, f16 KV, one chunk (tiles)", nmse(fast.run(ids, 96, KvType::f16, false), want.data), 1e-4);
      failed += line("fast, f16 KV, chunks of 40", nmse(fast.run(ids, 40, KvType::f16, false), want.data), 1e-4);
      failed +=
          line("fast, f16 KV, token by token, graphs", nmse(fast.run(ids, 1, KvType::f16, true), want.data), 1e-4);
      for (const KvTypes types : {KvTypes(KvType::q8_0), {KvType::q8_0, KvType::f16}, {KvType::f16, KvType::q8_0}})
        for (const std::int64_t chunk : {96, 40, 1})
          failed += line(("fast, " + name_of(types) + " KV, chunks of " + std::to_string(chunk)).c_str(),
                         nmse(fast.run(ids, chunk, types, chunk == 1), want.data), 5e-4);
    }
    Runner exact(base + ".gguf", DeviceNumerics::deterministic, {96, 96, 3, 128});
    for (const KvTypes types : {KvTypes(KvType::f32), {KvType::f16}, {KvType::q8_0}, {KvType::f16, KvType::q8_0}}) {
      const auto first = exact.run(ids, 96, types, false);
      failed += line(("deterministic, " + name_of(types) + " KV").c_str(), nmse(first, want.data),
                     types.v == KvType::f32   ? tolerance
                     : types.v == KvType::f16 ? 1e-4
                                              : 5e-4);
      for (const std::int64_t chunk : {1, 31, 32, 33, 64}) {
        const auto other = exact.run(ids, chunk, types, chunk == 1);
        const bool same = std::memcmp(first.data(), other.data(), first.size() * 4) == 0;
        const std::string label = "bits of chunk " + std::to_string(chunk) + " = of one chunk";
        failed += line(label.c_str(), same ? 0 : 1, 0);
      }
      const auto batched = run_batched(exact, ids, types);
      const bool same = std::memcmp(first.data(), batched.data(), batched.size() * 4) == 0;
      failed += line("bits in a batch of three = alone", same ? 0 : 1, 0);
    }
  }
  return failed;
}

int run_text(const std::filesystem::path& path) {
  constexpr std::int64_t kPrompt = 40, kTokens = 64;
  const model::StepLimits limits{64, 64, 1, kPrompt + kTokens};
  Runner gpu(path, DeviceNumerics::fast, limits);
  // The CPU's best table over plain memory.
  const auto file = must(gguf::File::open(path, {}), "the file");
  const auto model = must(model::Model::load(*file), "the model");
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  const std::size_t per_thread =
      align_up(kernels::scratch_bytes_per_thread(model->facts().cols_max, model->facts().head_dim_max), 64);
  model::Workspace thread_scratch(per_thread * static_cast<std::size_t>(pool.size()));
  model::Workspace scratch(model->scratch_bytes(limits));
  kernels::Stream stream{kernels::available_tables().front(), &pool, thread_scratch.data(), per_thread, nullptr};

  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < kPrompt; ++i) ids.push_back(static_cast<TokenId>(100 + i * 7919 % 40000));
  model::test::SimpleKv cpu_kv(model->groups(), KvType::f16, 1);
  auto gpu_kv = gpu.make_kv(KvType::f16, 1, kPrompt + kTokens);
  std::vector<float> cpu_logits(static_cast<std::size_t>(gpu.vocab()));
  std::int64_t clear = 0, agree = 0, at = 0;
  std::vector<double> errors;
  for (std::int64_t n = 0; n < kTokens; ++n) {
    const std::span<const TokenId> part = std::span(ids).subspan(static_cast<std::size_t>(at));
    const std::int64_t count = static_cast<std::int64_t>(part.size());
    const std::int32_t rows[] = {static_cast<std::int32_t>(count - 1)};
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < count; ++i) positions.push_back(at + i);
    must(model->forward(stream, {part, positions, rows}, cpu_kv.prepare({{0, count}}), limits, scratch.data(),
                        cpu_logits.data()),
         "the CPU's step");
    cpu_kv.advance();
    const DeviceKv::Part one[] = {{0, count}};
    gpu.step(*gpu_kv, one, part, rows, count == 1);
    const auto got = gpu.logits(1);
    errors.push_back(nmse(got, cpu_logits));
    const std::int32_t best = largest(cpu_logits);
    std::vector<float> sorted = cpu_logits;
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    if (cpu_logits[static_cast<std::size_t>(best)] - sorted[1] > 0.3f) {
      ++clear;
      agree += largest(got) == best;
    }
    at += count;
    ids.push_back(best);
  }
  std::sort(errors.begin(), errors.end());
  std::printf("%s: %lld of %lld tokens with a lead over 0.3 agree; NMSE of logits: median %.3g, largest %.3g\n",
              path.filename().string().c_str(), static_cast<long long>(agree), static_cast<long long>(clear),
              errors[errors.size() / 2], errors.back());
  return agree == clear ? 0 : 1;
}

int run_logits(const std::filesystem::path& path, const std::filesystem::path& ids_path) {
  constexpr std::int64_t kPrompt = 40;
  const auto ids = read_ids(ids_path);
  const auto count = static_cast<std::int64_t>(ids.size());
  for (const auto& [name, numerics] :
       {std::pair{".fast", DeviceNumerics::fast}, {".deterministic", DeviceNumerics::deterministic}}) {
    Runner r(path, numerics, {64, 64, 1, count});
    auto kv = r.make_kv(KvType::f16, 1, count);
    std::ofstream out(ids_path.string() + name, std::ios::binary);
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t now = at == 0 ? std::min(kPrompt, count) : 1;
      std::vector<std::int32_t> rows;
      for (std::int64_t i = 0; i < now; ++i) rows.push_back(static_cast<std::int32_t>(i));
      const DeviceKv::Part one[] = {{0, now}};
      r.step(*kv, one, std::span(ids).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(now)), rows,
             now == 1);
      const auto logits = r.logits(static_cast<std::size_t>(now));
      out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * 4));
      at += now;
    }
  }
  return 0;
}

namespace {

// A prompt of `count` tokens in chunks of 2,048, the last logits wanted; seconds.
double prompt(Runner& r, DeviceKv& kv, std::int64_t count) {
  const auto start = Clock::now();
  std::vector<TokenId> ids;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t now = std::min<std::int64_t>(2048, count - done);
    ids.resize(static_cast<std::size_t>(now));
    for (std::int64_t i = 0; i < now; ++i)
      ids[static_cast<std::size_t>(i)] = static_cast<TokenId>((done + i) * 7919 % 40000);
    const std::int32_t row[] = {static_cast<std::int32_t>(now - 1)};
    const DeviceKv::Part one[] = {{0, now}};
    done += now;
    r.step(kv, one, ids, done == count ? std::span<const std::int32_t>(row) : std::span<const std::int32_t>(), false);
    must(r.device().finish(), "a chunk");
  }
  return seconds_since(start);
}

// `count` greedy tokens, each chosen on the CPU from downloaded logits; seconds.
double generate(Runner& r, DeviceKv& kv, std::int64_t count) {
  std::vector<TokenId> ids{17};
  std::vector<float> logits(static_cast<std::size_t>(r.vocab()));
  const std::int32_t row[] = {0};
  const DeviceKv::Part one[] = {{0, 1}};
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    r.step(kv, one, ids, row, true);
    r.download_logits(logits);
    ids[0] = largest(logits);
  }
  return seconds_since(start);
}

// The same without waiting for logits: what the device itself takes.
double replay_only(Runner& r, DeviceKv& kv, std::int64_t count) {
  const TokenId ids[] = {17};
  const std::int32_t row[] = {0};
  const DeviceKv::Part one[] = {{0, 1}};
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < count; ++i) r.step(kv, one, ids, row, true);
  must(r.device().finish(), "steps");
  return seconds_since(start);
}

template <typename Fn>
double best_of(int times, Fn&& fn) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) all.push_back(fn());
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];  // The median.
}

}  // namespace

int run_speed(const std::filesystem::path& path) {
  const std::int64_t deep = 16384, context = deep + 4096 + 128;
  const auto start = Clock::now();
  Runner r(path, DeviceNumerics::fast, {2048, 8, 8, context});
  std::printf("%s: loaded in %.1f s\n", path.filename().string().c_str(), seconds_since(start));
  auto kv = r.make_kv(KvType::f16, 1, context);
  const auto at = [&](std::int64_t tokens) { kv->set_length(0, tokens); };
  const auto report = [](const char* name, double tokens, double seconds, double goal) {
    std::printf("  %-16s %10.1f tok/s  %8.3f ms %s", name, tokens / seconds, 1e3 * seconds / tokens, "a token");
    if (goal > 0) std::printf("  (llama.cpp %.0f: %.2fx)", goal, tokens / seconds / goal);
    std::printf("\n");
  };
  at(0), prompt(r, *kv, 4096);  // Warm.
  report("pp512", 512, best_of(3, [&] { return at(0), prompt(r, *kv, 512); }), 9546);
  report("pp4096", 4096, best_of(3, [&] { return at(0), prompt(r, *kv, 4096); }), 10451);
  at(0), generate(r, *kv, 8);
  report("tg64", 64, best_of(5, [&] { return at(0), generate(r, *kv, 64); }), 264);
  report("  device alone", 64, best_of(5, [&] { return at(0), replay_only(r, *kv, 64); }), 0);
  at(0), prompt(r, *kv, deep);
  report("pp4096 @d16384", 4096, best_of(2, [&] { return at(deep), prompt(r, *kv, 4096); }), 7471);
  at(deep), generate(r, *kv, 8);
  report("tg64 @d16384", 64, best_of(5, [&] { return at(deep), generate(r, *kv, 64); }), 207);
  report("  device alone", 64, best_of(5, [&] { return at(deep), replay_only(r, *kv, 64); }), 0);
  for (const KvTypes types : {KvTypes(KvType::q8_0), {KvType::q8_0, KvType::f16}}) {
    kv.reset();
    kv = r.make_kv(types, 1, context);
    std::printf("  %s K and V:\n", name_of(types).c_str());
    at(0), prompt(r, *kv, deep);
    report("pp4096 @d16384", 4096, best_of(2, [&] { return at(deep), prompt(r, *kv, 4096); }), 0);
    at(deep), generate(r, *kv, 8);
    report("tg64 @d16384", 64, best_of(5, [&] { return at(deep), generate(r, *kv, 64); }), 154);
    report("  device alone", 64, best_of(5, [&] { return at(deep), replay_only(r, *kv, 64); }), 0);
  }
  return 0;
}

// Attention of one token at a depth of 16,384 in the shape of an 8B model, alone: time and bandwidth by type. Layers
// rotate, so that no L2 holds them.
int run_attention() {
  constexpr std::int64_t kTokens = 16384, kLayers = 36, kHeads = 32, kKvHeads = 8;
  auto device = must(kernels::open_cuda({}), "the device");
  kernels::Stream stream = device->stream();
  for (const std::int64_t dim : {128, 64, 256}) {
    for (const KvTypes types : {KvTypes(KvType::f16), {KvType::q8_0}, {KvType::q8_0, KvType::f16}}) {
      model::CacheGroup group;
      for (std::int64_t i = 0; i < kLayers; ++i)
        group.layers.push_back({.layer = LayerIndex(static_cast<std::uint32_t>(i)),
                                .kv_heads = static_cast<std::int32_t>(kKvHeads),
                                .k_dim = static_cast<std::int32_t>(dim),
                                .v_dim = static_cast<std::int32_t>(dim)});
      DeviceKv kv(*device, std::span(&group, 1), types, 1, kTokens + 32, KvPlacement::blocks);
      must(device->fill(kv.memory(), 0x11, kv.bytes()), "K and V");
      auto* q = reinterpret_cast<float*>(must(device->allocate(kHeads * dim * 4, "q"), "q"));
      must(device->fill(reinterpret_cast<std::byte*>(q), 0x3c, kHeads * dim * 4), "q");
      const std::size_t room = kernels::attention_span_room(1, kHeads, dim, kTokens + 32);
      auto* spans = reinterpret_cast<float*>(must(device->allocate(room * 4, "spans"), "spans"));
      kv.set_length(0, kTokens);
      const DeviceKv::Part one[] = {{0, 1}};
      kv.prepare(one);
      const TokenId ids[] = {1};
      const std::int64_t positions[] = {kTokens};
      must(device->begin_step({ids, positions, {}, kv.all_runs(), kTokens + 32}), "a step");
      const std::int64_t key[] = {9, dim, static_cast<std::int64_t>(types.k), static_cast<std::int64_t>(types.v)};
      const auto enqueue = [&] {
        for (std::int64_t i = 0; i < kLayers; ++i) {
          const LayerIndex layer(static_cast<std::uint32_t>(i));
          device->table().attention(stream, {.q = q,
                                             .out = q,
                                             .heads = kHeads,
                                             .scale = 0.1f,
                                             .layer = kv.layer(layer),
                                             .runs = kv.runs(layer),
                                             .span_room = spans,
                                             .span_room_floats = room});
        }
        return Status::success();
      };
      for (int i = 0; i < 3; ++i) must(device->replay(key, enqueue), "attention");
      must(device->finish(), "attention");
      std::vector<double> all;
      for (int i = 0; i < 7; ++i) {
        const auto start = Clock::now();
        for (int j = 0; j < 10; ++j) must(device->replay(key, enqueue), "attention");
        must(device->finish(), "attention");
        all.push_back(seconds_since(start) / 10);
      }
      std::sort(all.begin(), all.end());
      std::printf("  heads of %3d, %-8s %7.2f us a layer (%.2f to %.2f), %5.0f GB/s\n", static_cast<int>(dim),
                  name_of(types).c_str(), 1e6 * all[3] / kLayers, 1e6 * all[0] / kLayers, 1e6 * all[6] / kLayers,
                  static_cast<double>(kv.bytes()) / all[3] / 1e9);
      device->release(reinterpret_cast<std::byte*>(q));
      device->release(reinterpret_cast<std::byte*>(spans));
    }
  }
  return 0;
}

namespace {

// Bandwidth of products of one token, shapes of an 8B model; weights rotate beyond the L2.
void matvec_of(quant::DType type) {
  auto device = must(kernels::open_cuda({}), "the device");
  kernels::Stream stream = device->stream();
  struct Case {
    const char* name;
    std::int64_t jobs, rows, cols;
  };
  double total = 0;
  for (const Case& c : {Case{"q, k, v (as 6144 x 4096)", 1, 6144, 4096},
                        {"o (4096 x 4096)", 1, 4096, 4096},
                        {"gate, up (2 x 12288 x 4096)", 2, 12288, 4096},
                        {"down (4096 x 12288)", 1, 4096, 12288}}) {
    const std::int64_t bytes = c.rows * quant::row_bytes(type, c.cols);
    const std::int64_t copies = std::max<std::int64_t>(4, (std::int64_t{600} << 20) / (bytes * c.jobs));
    std::byte* weights =
        must(device->allocate(static_cast<std::uint64_t>(bytes * c.jobs * copies), "weights"), "weights");
    must(device->fill(weights, 0x11, static_cast<std::uint64_t>(bytes * c.jobs * copies)), "weights");
    std::byte* x = must(device->allocate(static_cast<std::uint64_t>(c.cols) * 4, "x"), "x");
    must(device->fill(x, 0x3c, static_cast<std::uint64_t>(c.cols) * 4), "x");
    std::byte* room = must(device->allocate(kernels::acts_bytes(1, c.cols), "x"), "x");
    auto* y =
        reinterpret_cast<float*>(must(device->allocate(static_cast<std::uint64_t>(c.rows * c.jobs) * 4, "y"), "y"));
    kernels::Acts acts;
    kernels::acts_bind(acts, reinterpret_cast<const float*>(x), 1, c.cols, room);
    const std::int64_t key[] = {7, c.rows, c.cols};
    const auto enqueue = [&] {
      for (std::int64_t i = 0; i < copies; ++i) {
        std::vector<kernels::Matrix> w(static_cast<std::size_t>(c.jobs));
        std::vector<kernels::MatmulJob> jobs;
        for (std::int64_t j = 0; j < c.jobs; ++j) {
          w[static_cast<std::size_t>(j)] = {type, kernels::Layout::row_major, weights + (i * c.jobs + j) * bytes,
                                            c.rows, c.cols};
          jobs.push_back({&w[static_cast<std::size_t>(j)], y + j * c.rows, c.rows});
        }
        device->table().matmul(stream, jobs, acts);
      }
      return Status::success();
    };
    for (int i = 0; i < 3; ++i) must(device->replay(key, enqueue), "products");
    must(device->finish(), "products");
    const auto start = Clock::now();
    constexpr int kTimes = 20;
    for (int i = 0; i < kTimes; ++i) must(device->replay(key, enqueue), "products");
    must(device->finish(), "products");
    const double each = seconds_since(start) / static_cast<double>(kTimes * copies);
    std::printf("  %-5s %-30s %7.2f us  %6.0f GB/s\n", std::string(quant::info(type).name).c_str(), c.name, each * 1e6,
                static_cast<double>(bytes * c.jobs) / each / 1e9);
    total += each;
    for (std::byte* at : {weights, x, room, reinterpret_cast<std::byte*>(y)}) device->release(at);
  }
  std::printf("  36 layers: %.3f ms\n", 36e3 * total);
}

}  // namespace

int run_matvec() {
  for (const auto type : {quant::DType::q4_k, quant::DType::q6_k, quant::DType::q8_0, quant::DType::q5_0,
                          quant::DType::q4_0, quant::DType::q5_k})
    matvec_of(type);
  return 0;
}

int run_steps(const std::filesystem::path& path) {
  Runner r(path, DeviceNumerics::fast, {2048, 8, 8, 20000});
  auto kv = r.make_kv(KvType::f16, 1, 20000);
  kv->set_length(0, 16384);
  std::vector<TokenId> ids{17};
  const std::int32_t row[] = {0};
  const DeviceKv::Part one[] = {{0, 1}};
  for (int i = 0; i < 2; ++i) r.step(*kv, one, ids, row, false);
  must(r.device().finish(), "steps");
  kv->set_length(0, 0);
  prompt(r, *kv, 2048);
  return 0;
}

}  // namespace lode::gpu
