// Reads and writes NumPy's .npy files of little-endian float32 (format 1.0: numpy.lib.format). Any thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/status.h"

namespace lode {

struct Npy {
  std::vector<std::int64_t> shape;
  std::vector<float> data;
};

inline Result<Npy> read_npy(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  char head[10] = {};
  if (!in.read(head, 10) || std::string_view(head, 6) != "\x93NUMPY" || head[6] != 1)
    return Status::corrupt(fmt::format("{}: not a version 1 .npy file", path.string()));
  std::string text(static_cast<unsigned char>(head[8]) | static_cast<unsigned char>(head[9]) << 8, ' ');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (text.find("'<f4'") == std::string::npos || text.find("'fortran_order': False") == std::string::npos)
    return Status::unsupported(fmt::format("{}: expected C-ordered '<f4', found {}", path.string(), text));
  Npy npy;
  std::size_t count = 1;
  for (std::size_t at = text.find('(') + 1; at < text.size() && text[at] != ')';) {
    npy.shape.push_back(std::stoll(text.substr(at)));
    count *= static_cast<std::size_t>(npy.shape.back());
    at = text.find_first_of(",)", at);
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  npy.data.resize(count);
  if (!in.read(reinterpret_cast<char*>(npy.data.data()), static_cast<std::streamsize>(count * 4)))
    return Status::corrupt(fmt::format("{}: shorter than its shape", path.string()));
  return npy;
}

inline Status write_npy(const std::filesystem::path& path, const std::vector<std::int64_t>& shape,
                        const std::vector<float>& data) {
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", fmt::join(shape, ", "));
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const char head[10] = {'\x93',
                         'N',
                         'U',
                         'M',
                         'P',
                         'Y',
                         1,
                         0,
                         static_cast<char>(text.size() & 0xff),
                         static_cast<char>(text.size() >> 8)};
  out.write(head, 10).write(text.data(), static_cast<std::streamsize>(text.size()));
  out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size() * 4));
  out.flush();
  if (!out) {
    return Status::io(fmt::format("{}: could not write {} bytes: {}", path.string(), data.size() * 4,
                                  errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
  return Status::success();
}

}  // namespace lode
