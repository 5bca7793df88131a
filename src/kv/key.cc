#include "kv/key.h"

#include <openssl/sha.h>

#include <bit>

namespace lode::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "keys and files hold little-endian numbers");

// Bytes to hash, each field as: tag (1 byte), length (8 bytes, little-endian), the bytes.
class Message {
 public:
  void field(char tag, const void* data, std::size_t bytes) {
    const std::uint64_t length = bytes;
    bytes_.push_back(tag);
    bytes_.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes_.append(static_cast<const char*>(data), bytes);
  }
  void field(char tag, const std::string& text) { field(tag, text.data(), text.size()); }
  BlockKey hash() const {
    BlockKey key;
    SHA256(reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size(), key.bytes.data());
    return key;
  }

 private:
  std::string bytes_;
};

}  // namespace

BlockKey root_key(const RootInputs& inputs) {
  Message message;
  message.field('V', &kFormatVersion, sizeof kFormatVersion);
  message.field('M', inputs.model_fingerprint.data(), inputs.model_fingerprint.size());
  message.field('k', inputs.k_type);
  message.field('v', inputs.v_type);
  message.field('n', inputs.numerics_id);
  message.field('p', inputs.placement);
  message.field('r', inputs.rope);
  message.field('s', inputs.salt);
  return message.hash();
}

BlockKey child_key(const BlockKey& parent, std::span<const TokenId, kBlockTokens> ids) {
  std::array<unsigned char, sizeof(BlockKey::bytes) + kBlockTokens * sizeof(TokenId)> message;
  __builtin_memcpy(message.data(), parent.bytes.data(), parent.bytes.size());
  __builtin_memcpy(message.data() + parent.bytes.size(), ids.data(), ids.size_bytes());
  BlockKey key;
  SHA256(message.data(), message.size(), key.bytes.data());
  return key;
}

std::string hex(const BlockKey& key) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * key.bytes.size());
  for (const std::uint8_t b : key.bytes) text += digits[b >> 4], text += digits[b & 15];
  return text;
}

}  // namespace lode::kv
