// gpu_test ops | matvec | attention | goldens FOLDER | text MODEL | logits MODEL IDS | speed MODEL | steps MODEL:
// checks and measures the CUDA backend. docs/gpu.md says how to build and run it.
#include <cstdio>
#include <string_view>

#include "gpu_commands.h"
#include "kernels/device.h"

int main(int argc, char** argv) {
  using namespace lode;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what.empty() || (what != "ops" && what != "matvec" && what != "attention" && argc < 3) ||
      (what == "logits" && argc < 4)) {
    std::printf(
        "usage: gpu_test ops | matvec | attention | goldens FOLDER | text MODEL | logits MODEL IDS | speed MODEL | "
        "steps MODEL\n");
    return 2;
  }
  const auto device = kernels::open_cuda({});
  if (!device.ok()) {
    std::printf("no device: %s\n", device.status().message().c_str());
    return 2;
  }
  std::printf("%s; numerics %s\n", std::string((*device)->description()).c_str(),
              std::string((*device)->table().numerics_id).c_str());
  int failed = 0;
  if (what == "ops") failed = gpu::run_ops();
  else if (what == "matvec") failed = gpu::run_matvec();
  else if (what == "attention") failed = gpu::run_attention();
  else if (what == "logits") failed = gpu::run_logits(argv[2], argv[3]);
  else if (what == "goldens") failed = gpu::run_goldens(argv[2]);
  else if (what == "text") failed = gpu::run_text(argv[2]);
  else if (what == "speed") failed = gpu::run_speed(argv[2]);
  else if (what == "steps") failed = gpu::run_steps(argv[2]);
  else std::printf("unknown command\n"), failed = 1;
  std::printf("%.*s: %s\n", static_cast<int>(what.size()), what.data(), failed ? "FAILED" : "passed");
  return failed ? 1 : 0;
}
