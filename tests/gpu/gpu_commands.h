// What gpu_test can do; each prints a table and returns the number of failed lines.
#pragma once

#include <filesystem>

namespace lode::gpu {

// Every operation against the CPU's scalar reference (products: against double), over random shapes.
int run_ops();
// The golden files of `folder` (shared data's arch/), and the same bits for any chunk where numerics say so.
int run_goldens(const std::filesystem::path& folder);
// Greedy text of a real model against the CPU's, wherever the CPU's two best are more than 0.3 apart.
int run_text(const std::filesystem::path& model);
// Prompt and generation speed of a model, with and without a long context before.
int run_speed(const std::filesystem::path& model);
// Products of one token alone: bandwidth by shape.
int run_matvec();
// Attention of one token at depth, alone, by K and V types.
int run_attention();
// All logits of the ids in a text file of numbers, as float32 [ids, vocabulary]: the first 40 ids as one chunk, then
// token by token, as `text` does. Once in each numerics: FILE.fast and FILE.deterministic.
int run_logits(const std::filesystem::path& model, const std::filesystem::path& ids);
// A few decode steps without graphs, for a profiler.
int run_steps(const std::filesystem::path& model);

}  // namespace lode::gpu
