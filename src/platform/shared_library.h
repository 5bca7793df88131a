// A library that is looked for at run time: a driver's, which a machine may do without. Owns the handle. Any thread.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace lode::platform {

class SharedLibrary {
 public:
  // not_found where the system has none of this name.
  static Result<SharedLibrary> open(const std::string& name);
  SharedLibrary(SharedLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedLibrary();

  // A function of this signature, such as int(unsigned); nullptr: it has none of this name.
  template <typename Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(symbol(name));
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
};

}  // namespace lode::platform
