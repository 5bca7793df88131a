// Expected failures as values: Status and Result<T>. Owns nothing beyond its text. Any thread.
//
// What a client or a file says never reaches an assert: it comes back as a Status whose message names what, where,
// expected and found, and what to do next. Broken invariants of our own use LODE_CHECK and end the process.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lode {

enum class Code {
  ok,
  invalid_argument,  // The caller's request is wrong; repeating it cannot help.
  corrupt,           // A file's bytes contradict themselves or their checksum.
  unsupported,       // Well-formed, but this build does not do it.
  not_found,
  resource_exhausted,  // Memory, disk, quota, slots.
  io_error,
  unavailable,  // Try again later.
  cancelled,
  internal,
};

// "invalid_argument", "corrupt", ... for logs and JSON.
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status success() { return {}; }
  static Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }
  static Status corrupt(std::string message) { return {Code::corrupt, std::move(message)}; }
  static Status unsupported(std::string message) { return {Code::unsupported, std::move(message)}; }
  static Status not_found(std::string message) { return {Code::not_found, std::move(message)}; }
  static Status exhausted(std::string message) { return {Code::resource_exhausted, std::move(message)}; }
  static Status io(std::string message) { return {Code::io_error, std::move(message)}; }

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// Either a T or a Status that is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : v_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return v_.index() == 0; }
  const Status& status() const {
    static const Status fine;
    return ok() ? fine : std::get<1>(v_);
  }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> v_;
};

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

}  // namespace lode

// A broken invariant of our own code, never of input. On in every build.
#define LODE_CHECK(cond) ((cond) ? void(0) : ::lode::check_failed(#cond, __FILE__, __LINE__))

#define LODE_RETURN_IF_ERROR(expr)                       \
  do {                                                   \
    if (::lode::Status s_ = (expr); !s_.ok()) return s_; \
  } while (0)
