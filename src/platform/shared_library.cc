#include "platform/shared_library.h"

#include <dlfcn.h>

namespace lode::platform {

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
  const char* why = dlerror();
  return Status(Code::not_found, name + ": " + (why ? why : "cannot be loaded"));
}

SharedLibrary::~SharedLibrary() {
  if (handle_) dlclose(handle_);
}

void* SharedLibrary::symbol(const char* name) const {
  return dlsym(handle_, name);
}

}  // namespace lode::platform
