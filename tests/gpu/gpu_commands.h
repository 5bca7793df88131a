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
// A few decode steps without graphs, for a profiler.
int run_steps(const std::filesystem::path& model);

}  // namespace lode::gpu
