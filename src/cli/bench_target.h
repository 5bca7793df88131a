// What the benchmark talks to: a server somebody else runs, or one that it starts for a model, restarts and ends. Owns
// the child process and its working folder. One thread (the main one: the child ends with it).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/bench_client.h"
#include "cli/temporary_folder.h"
#include "platform/process.h"

namespace lode::cli {

struct TargetOptions {
  std::string target;  // A URL, or a model as `serve` takes it.
  std::string api_key;
  std::vector<std::string> serve_arguments;  // For a model: handed on to `lode serve`.
  std::filesystem::path program;             // For a model: what to start; empty: this program.
  double ready_timeout_s = 120;
};

class BenchTarget {
 public:
  // For a model: starts the server. Errors name the server that does not answer, or quote what ours said last.
  static Result<std::unique_ptr<BenchTarget>> open(const TargetOptions& options);
  ~BenchTarget();  // Ends the server and removes its folder.

  bool owns_server() const { return child_.has_value(); }
  const Endpoint& endpoint() const { return endpoint_; }
  const std::string& model() const { return model_; }  // As /v1/models names it; empty: it names none.
  std::int64_t context() const { return context_; }    // Tokens; -1: unknown.
  const std::vector<double>& ready_s() const { return ready_s_; }
  std::uint64_t resident_bytes() const;  // 0 where the server is not ours.
  Status restart();                      // Only where the server is ours.

 private:
  BenchTarget() = default;
  Status start();
  void ask_for_model();
  std::string last_words() const;

  TargetOptions options_;
  Endpoint endpoint_;
  TemporaryFolder folder_;
  std::optional<platform::Child> child_;
  std::string model_;
  std::int64_t context_ = -1;
  std::vector<double> ready_s_;
};

}  // namespace lode::cli
