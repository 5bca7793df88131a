#include "base/status.h"

namespace lode {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::corrupt: return "corrupt";
    case Code::unsupported: return "unsupported";
    case Code::not_found: return "not_found";
    case Code::resource_exhausted: return "resource_exhausted";
    case Code::io_error: return "io_error";
    case Code::unavailable: return "unavailable";
    case Code::cancelled: return "cancelled";
    case Code::internal: return "internal";
  }
  return "unknown";
}

}  // namespace lode
