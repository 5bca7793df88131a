#include "platform/process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

namespace lode::platform {
namespace {

// What the child does between fork and exec: async-signal-safe calls only. An errno goes up `report` if exec fails.
[[noreturn]] void become(char* const* argv, int output, int report, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {  // Otherwise the parent died before the line above could matter.
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::execv(argv[0], argv);
  }
  const int error = errno;
  if (::write(report, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<std::filesystem::path> self_path() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::io(fmt::format("cannot read /proc/self/exe: {}", error.message()));
  return path;
}

Result<std::uint64_t> resident_bytes(std::int64_t pid) {
  const std::string name = fmt::format("/proc/{}/statm", pid);
  std::FILE* file = std::fopen(name.c_str(), "re");
  if (!file) return Status::not_found(fmt::format("there is no process {}", pid));
  unsigned long long total = 0, resident = 0;
  const int fields = std::fscanf(file, "%llu %llu", &total, &resident);
  std::fclose(file);
  if (fields != 2) return Status::io(fmt::format("{}: expected page counts, found something else", name));
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Result<std::uint64_t> resident_bytes() {
  return resident_bytes(getpid());
}

std::uint64_t raise_open_files() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur < wanted) {
    const rlimit raised{wanted, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit.rlim_cur = wanted;
  }
  return limit.rlim_cur;
}

Result<Child> Child::start(const ChildOptions& options) {
  if (options.arguments.empty()) return Status::invalid("no program was named to start");
  std::vector<std::string> arguments = options.arguments;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const std::filesystem::path target = options.output.empty() ? "/dev/null" : options.output;
  const int output = ::open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0)
    return Status::io(fmt::format("cannot open {} for a child's output: {}", target.string(), ::strerror(errno)));
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    ::close(output);
    return Status::io(fmt::format("cannot make a pipe: {}", ::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv.data(), output, report[1], parent);
  const int fork_error = errno;
  ::close(output);
  ::close(report[1]);
  int exec_error = 0;
  // Closed by a successful exec: then this reads nothing.
  const bool failed = pid > 0 && ::read(report[0], &exec_error, sizeof exec_error) > 0;
  ::close(report[0]);
  if (pid < 0) return Status::exhausted(fmt::format("cannot start {}: {}", arguments[0], ::strerror(fork_error)));
  if (failed) {
    ::waitpid(pid, nullptr, 0);
    return Status::not_found(fmt::format("cannot start {}: {}", arguments[0], ::strerror(exec_error)));
  }
  Child child;
  child.pid_ = pid;
  return child;
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), exit_code_(other.exit_code_) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    kill_and_reap();
    pid_ = std::exchange(other.pid_, -1);
    exit_code_ = other.exit_code_;
  }
  return *this;
}

Child::~Child() {
  kill_and_reap();
}

void Child::kill_and_reap() {
  if (pid_ < 0 || exit_code_) return;
  ::kill(static_cast<pid_t>(pid_), SIGKILL);
  int status = 0;
  if (::waitpid(static_cast<pid_t>(pid_), &status, 0) == pid_) exit_code_ = code_of(status);
}

std::optional<int> Child::poll() {
  if (pid_ < 0 || exit_code_) return exit_code_;
  int status = 0;
  if (::waitpid(static_cast<pid_t>(pid_), &status, WNOHANG) == pid_) exit_code_ = code_of(status);
  return exit_code_;
}

Result<int> Child::terminate(std::int64_t timeout_ms) {
  if (!poll() && pid_ >= 0) ::kill(static_cast<pid_t>(pid_), SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!poll()) {
    if (pid_ < 0) return Status::invalid("this child was moved away");
    if (std::chrono::steady_clock::now() >= deadline) {
      kill_and_reap();
      return Status(Code::unavailable,
                    fmt::format("process {} did not end within {} ms of SIGTERM and was killed", pid_, timeout_ms));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return *exit_code_;
}

}  // namespace lode::platform
