// Limits and timeouts of one client connection. Plain data: no Boost header, so that those who only configure a server
// do not compile one.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace lode::serve {

struct ConnectionOptions {
  std::size_t body_bytes_max = 32u << 20;
  std::size_t header_bytes_max = 32u << 10;
  std::size_t unsent_bytes_max = 1u << 20;          // Of a stream, beyond what the kernel buffers.
  std::size_t send_buffer_bytes = 0;                // SO_SNDBUF; 0: the system's. Tests make it small.
  std::chrono::milliseconds read_timeout{60'000};   // From the first wait to the last byte of a request.
  std::chrono::milliseconds write_timeout{30'000};  // Without a byte taken by the client.
  std::chrono::milliseconds linger{2'000};          // For the client to close after we have.
  std::chrono::milliseconds tick{200};
  // Web pages that may use this server from a browser: their origins, or "*". Empty: none.
  std::vector<std::string> cors_origins;
};

}  // namespace lode::serve
