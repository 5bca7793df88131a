// libFuzzer target: any bytes either open and can be used whole, or give an error. Built with -DLODE_FUZZ=ON by clang.
#include <cstdint>
#include <cstdlib>

#include "gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lode;
  const auto opened = gguf::File::open_bytes({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
  if (!opened.ok()) {
    if (opened.status().message().empty()) std::abort();
    return 0;
  }
  const gguf::File& file = **opened;
  std::uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    if (file.find(key) != &value) std::abort();
    (void)file.get_uint(key);
    (void)file.get_float(key);
    (void)file.get_bool(key);
    (void)file.get_string(key);
    (void)file.get_ints(key);
    (void)file.get_floats(key);
    const auto strings = file.get_strings(key);
    if (!strings.ok()) continue;
    for (const std::string_view s : **strings) sum += s.empty() ? 0 : static_cast<unsigned char>(s.front() ^ s.back());
  }
  for (const gguf::Tensor& tensor : file.tensors()) {
    if (file.tensor(tensor.name) != &tensor || tensor.bytes == 0) std::abort();
    sum += static_cast<std::uint64_t>(tensor.data[0]) + static_cast<std::uint64_t>(tensor.data[tensor.bytes - 1]);
    (void)file.require_computable(tensor);
  }
  if (!file.fingerprint().ok()) std::abort();
  return sum == 1 ? 1 : 0;  // Keeps the reads; libFuzzer drops an input that returns non-zero from its corpus at worst.
}
