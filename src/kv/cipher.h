// AES-256-GCM for what the SSD tier stores, under a key from a file: the bytes of blocks and the ids of their tokens.
// Everything else of an extent (keys, sizes, places) stays readable and is authenticated; block keys are made with the
// secret, so that nobody without it can try guesses. Immutable; any thread. docs/kv-format.md has the bytes.
//
// No nonce is ever used twice under one key: every extent has a key of its own, from 32 random bytes that are written
// with it, and within it the header and each slice have numbers of their own. The ids may be sealed again (for the
// index log): then they are the same message, with the same result.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/status.h"
#include "kv/key.h"

namespace lode::kv {

using Salt = std::array<std::uint8_t, 32>;
using Tag = std::array<std::uint8_t, 16>;
using SecretBytes = std::array<std::uint8_t, 32>;

// The key of one extent.
class ExtentCipher {
 public:
  static constexpr std::uint64_t kHeader = 0;  // The message number of the header; slices follow.

  ExtentCipher(const SecretBytes& key, const EVP_CIPHER* algorithm) : key_(key), algorithm_(algorithm) {}
  ~ExtentCipher();
  ExtentCipher(const ExtentCipher&) = delete;
  ExtentCipher& operator=(const ExtentCipher&) = delete;

  // `to` has as many bytes as `from`, and may be the same place.
  Tag seal(std::uint64_t message, std::span<const std::byte> clear, std::span<const std::byte> from,
           std::byte* to) const;
  // In place. False: the bytes, `clear` or the tag are not what was sealed; then the bytes are zero.
  bool open(std::uint64_t message, std::span<const std::byte> clear, std::span<std::byte> bytes, const Tag& tag) const;

 private:
  SecretBytes key_;
  const EVP_CIPHER* algorithm_;
};

class Cipher {
 public:
  // The file holds 32 bytes, or 64 hexadecimal digits and perhaps the end of a line; mode 0600. Errors: as
  // platform::read_private_file, and invalid for other contents.
  static Result<std::shared_ptr<const Cipher>> from_file(const std::filesystem::path& path);
  explicit Cipher(const SecretBytes& secret);
  ~Cipher();
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  std::uint64_t id() const { return id_; }  // Tells secrets apart; nothing can be learned from it.
  // A block key that only holders of the secret can compute from the tokens.
  BlockKey keyed(const BlockKey& key) const;
  ExtentCipher extent(const Salt& salt) const;
  static Salt random_salt();

 private:
  SecretBytes derive(const char* purpose, std::span<const std::uint8_t> more) const;

  SecretBytes secret_, names_{};
  std::uint64_t id_ = 0;
  EVP_CIPHER* algorithm_ = nullptr;
};

}  // namespace lode::kv
