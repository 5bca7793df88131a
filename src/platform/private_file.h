// Reads a file that holds a secret, and refuses one that others may read. Owns nothing. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "base/status.h"

namespace lode::platform {

// The bytes of a regular file that nobody but its owner, this process's user or root, may read or write (mode 0600 or
// less). Errors: not_found; invalid: others may read or write it, it is no regular file, somebody else's, or longer
// than bytes_max; io_error.
Result<std::vector<std::byte>> read_private_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace lode::platform
