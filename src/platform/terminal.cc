#include "platform/terminal.h"

#include <unistd.h>

namespace lode::platform {

bool is_terminal(StandardStream stream) {
  switch (stream) {
    case StandardStream::in: return ::isatty(STDIN_FILENO) != 0;
    case StandardStream::out: return ::isatty(STDOUT_FILENO) != 0;
    case StandardStream::error: return ::isatty(STDERR_FILENO) != 0;
  }
  return false;
}

}  // namespace lode::platform
