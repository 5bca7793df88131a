// A loaded model with everything that a step needs, over plain memory. Tests only.
#pragma once

#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "model/model.h"
#include "model/simple_kv.h"

namespace lode::model::test {

struct Runner {
  std::unique_ptr<gguf::File> file;
  std::unique_ptr<Model> model;
  ThreadPool pool;
  std::unique_ptr<Workspace> thread_scratch, scratch;
  kernels::Stream stream;
  StepLimits limits;

  Runner(Result<std::unique_ptr<gguf::File>> opened, const kernels::Table* table, int threads, StepLimits limits_)
      : pool(threads), limits(limits_) {
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    file = std::move(opened).value();
    auto loaded = Model::load(*file);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = std::move(loaded).value();
    const std::size_t per_thread =
        align_up(kernels::scratch_bytes_per_thread(model->facts().cols_max, model->facts().head_dim_max), 64);
    thread_scratch = std::make_unique<Workspace>(per_thread * static_cast<std::size_t>(threads));
    scratch = std::make_unique<Workspace>(model->scratch_bytes(limits));
    stream = {table, &pool, thread_scratch->data(), per_thread, nullptr};
  }
  Runner(const std::filesystem::path& path, const kernels::Table* table, int threads, StepLimits limits_)
      : Runner(gguf::File::open(path, {}), table, threads, limits_) {}
  // `bytes` must outlive the Runner.
  Runner(const std::string& bytes, StepLimits limits_)
      : Runner(gguf::File::open_bytes(std::as_bytes(std::span(bytes)), "edited.gguf"),
               kernels::available_tables().front(), 2, limits_) {}

  std::int64_t vocab() const { return model->facts().vocab; }

  // One step of some sequences; all rows' logits. `id(sequence, position)` gives the tokens.
  template <typename Id>
  std::vector<float> step(SimpleKv& kv, const std::vector<SimpleKv::Part>& parts, Id id,
                          ExpertSource* experts = nullptr) {
    std::vector<TokenId> ids;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> rows;
    for (const auto& p : parts)
      for (std::int64_t i = 0; i < p.count; ++i) {
        positions.push_back(kv.length(p.sequence) + i);
        ids.push_back(id(p.sequence, positions.back()));
        rows.push_back(static_cast<std::int32_t>(rows.size()));
      }
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(vocab()));
    const Status done = model->forward(stream, {ids, positions, rows, experts}, kv.prepare(parts), limits,
                                       scratch->data(), logits.data());
    EXPECT_TRUE(done.ok()) << done.message();
    kv.advance();
    return logits;
  }

  // Runs `ids` as one sequence in chunks; all logits.
  std::vector<float> run(std::span<const TokenId> ids, std::int64_t chunk, kernels::KvType kv_type,
                         ExpertSource* experts = nullptr) {
    SimpleKv kv(model->groups(), kv_type, 1);
    std::vector<float> logits;
    while (kv.length(0) < static_cast<std::int64_t>(ids.size())) {
      const std::int64_t n = std::min(chunk, static_cast<std::int64_t>(ids.size()) - kv.length(0));
      const auto part =
          step(kv, {{0, n}}, [&](std::size_t, std::int64_t p) { return ids[static_cast<std::size_t>(p)]; }, experts);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    return logits;
  }
};

// The numbers of a JSON array.
inline std::vector<TokenId> read_ids(const std::filesystem::path& path) {
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

template <typename A, typename B>
double nmse(const std::vector<A>& got, const std::vector<B>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, power = 0;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    error += (a - b) * (a - b);
    power += b * b;
  }
  return error / power;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace lode::model::test
