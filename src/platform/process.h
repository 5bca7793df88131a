// A child process: started with an argument list, no shell; watched and ended. Owns the child: the destructor ends it.
// One thread per Child; different children may live on different threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lode::platform {

// The program that is running now, as a path that can be started again.
Result<std::filesystem::path> self_path();

// Resident memory of a process in bytes; not_found where it has ended.
Result<std::uint64_t> resident_bytes(std::int64_t pid);
Result<std::uint64_t> resident_bytes();  // Of this one.

// Lets this process have as many files open at once as the system allows it without asking, up to 65,536; how many that
// are now. 0: unknown. Most systems start a program with 1,024, of which a restore may need half.
std::uint64_t raise_open_files();

struct ChildOptions {
  std::vector<std::string> arguments;  // The program's path first; at least one.
  std::filesystem::path output;        // Where its stdout and stderr are appended; empty: nowhere.
};

class Child {
 public:
  // not_found where the program is no file that can be run. Its stdin is empty. It is killed when the thread that
  // started it ends, however that happens: start it from the main thread.
  static Result<Child> start(const ChildOptions& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // Kills it if it still runs.

  std::int64_t pid() const { return pid_; }
  // The exit code once it has ended (128 + signal if a signal ended it); nullopt while it runs.
  std::optional<int> poll();
  // Asks it to end (SIGTERM) and waits up to `timeout_ms`; then kills it and says `unavailable`. The value is its exit
  // code. Ended already: the code it ended with.
  Result<int> terminate(std::int64_t timeout_ms);

 private:
  Child() = default;
  void kill_and_reap();

  std::int64_t pid_ = -1;  // -1: moved from.
  std::optional<int> exit_code_;
};

}  // namespace lode::platform
