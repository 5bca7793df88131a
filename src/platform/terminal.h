// What the standard streams are connected to. Owns nothing. Any thread.
#pragma once

namespace lode::platform {

enum class StandardStream : unsigned char { in, out, error };

// Whether a person watches this stream, so that a progress bar or colours make sense.
bool is_terminal(StandardStream stream);

}  // namespace lode::platform
