#include "kv/cipher.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "platform/private_file.h"

namespace lode::kv {
namespace {

constexpr int kNonceBytes = 12;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::array<unsigned char, kNonceBytes> nonce(std::uint64_t message) {
  std::array<unsigned char, kNonceBytes> n{};
  std::memcpy(n.data(), &message, sizeof message);
  return n;
}

int length(std::span<const std::byte> bytes) {
  LODE_CHECK(bytes.size() <= (std::size_t{1} << 30));  // Slices are at most 1 GiB.
  return static_cast<int>(bytes.size());
}

int digit(std::byte b) {
  const char c = static_cast<char>(b);
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool parse_secret(std::span<const std::byte> bytes, SecretBytes& secret) {
  if (bytes.size() == secret.size()) {
    std::memcpy(secret.data(), bytes.data(), secret.size());
    return true;
  }
  while (!bytes.empty() && (bytes.back() == std::byte{'\n'} || bytes.back() == std::byte{'\r'}))
    bytes = bytes.first(bytes.size() - 1);
  if (bytes.size() != 2 * secret.size()) return false;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const int high = digit(bytes[2 * i]), low = digit(bytes[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    secret[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

ExtentCipher::~ExtentCipher() {
  OPENSSL_cleanse(key_.data(), key_.size());
}

Tag ExtentCipher::seal(std::uint64_t message, std::span<const std::byte> clear, std::span<const std::byte> from,
                       std::byte* to) const {
  const Context context(EVP_CIPHER_CTX_new());
  Tag tag{};
  int n = 0;
  auto* const out = reinterpret_cast<unsigned char*>(to);
  const bool done = context &&
                    EVP_EncryptInit_ex2(context.get(), algorithm_, key_.data(), nonce(message).data(), nullptr) == 1 &&
                    EVP_EncryptUpdate(context.get(), nullptr, &n, bytes_of(clear), length(clear)) == 1 &&
                    EVP_EncryptUpdate(context.get(), out, &n, bytes_of(from), length(from)) == 1 &&
                    EVP_EncryptFinal_ex(context.get(), out + n, &n) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag.data()) == 1;
  LODE_CHECK(done);  // Nothing of it depends on data; without memory nothing else works either.
  return tag;
}

bool ExtentCipher::open(std::uint64_t message, std::span<const std::byte> clear, std::span<std::byte> bytes,
                        const Tag& tag) const {
  const Context context(EVP_CIPHER_CTX_new());
  Tag expected = tag;
  int n = 0;
  auto* const out = reinterpret_cast<unsigned char*>(bytes.data());
  const bool sound = context &&
                     EVP_DecryptInit_ex2(context.get(), algorithm_, key_.data(), nonce(message).data(), nullptr) == 1 &&
                     EVP_DecryptUpdate(context.get(), nullptr, &n, bytes_of(clear), length(clear)) == 1 &&
                     EVP_DecryptUpdate(context.get(), out, &n, bytes_of(bytes), length(bytes)) == 1 &&
                     EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, sizeof expected, expected.data()) == 1 &&
                     EVP_DecryptFinal_ex(context.get(), out + n, &n) == 1;
  if (!sound) std::fill(bytes.begin(), bytes.end(), std::byte{});
  return sound;
}

Result<std::shared_ptr<const Cipher>> Cipher::from_file(const std::filesystem::path& path) {
  constexpr std::size_t kFileBytesMax = 66;  // 64 digits and a line's end.
  auto bytes = platform::read_private_file(path, kFileBytesMax);
  if (!bytes.ok())
    return Status(bytes.status().code(), fmt::format("the key file of the KV store: {}", bytes.status().message()));
  SecretBytes secret{};
  const std::size_t size = bytes->size();
  const bool sound = parse_secret(*bytes, secret);
  OPENSSL_cleanse(bytes->data(), bytes->size());
  if (!sound)
    return Status::invalid(
        fmt::format("the key file {} has {} bytes that are no key; expected 32 random bytes, or 64 "
                    "hexadecimal digits: openssl rand -out FILE 32",
                    path.string(), size));
  auto cipher = std::make_shared<const Cipher>(secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return std::shared_ptr<const Cipher>(std::move(cipher));
}

Cipher::Cipher(const SecretBytes& secret) : secret_(secret) {
  algorithm_ = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  LODE_CHECK(algorithm_ != nullptr);
  names_ = derive("lode kv names", {});
  const SecretBytes id = derive("lode kv id", {});
  std::memcpy(&id_, id.data(), sizeof id_);
}

Cipher::~Cipher() {
  EVP_CIPHER_free(algorithm_);
  OPENSSL_cleanse(secret_.data(), secret_.size());
  OPENSSL_cleanse(names_.data(), names_.size());
}

// HMAC-SHA256 of the purpose, a zero byte and the rest, under the secret.
SecretBytes Cipher::derive(const char* purpose, std::span<const std::uint8_t> more) const {
  std::string message(purpose);
  message += '\0';
  message.append(reinterpret_cast<const char*>(more.data()), more.size());
  SecretBytes out{};
  const auto* done = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(), out.data(), nullptr);
  LODE_CHECK(done != nullptr);
  return out;
}

BlockKey Cipher::keyed(const BlockKey& key) const {
  BlockKey out;
  const auto* done = HMAC(EVP_sha256(), names_.data(), static_cast<int>(names_.size()), key.bytes.data(),
                          key.bytes.size(), out.bytes.data(), nullptr);
  LODE_CHECK(done != nullptr);
  return out;
}

ExtentCipher Cipher::extent(const Salt& salt) const {
  SecretBytes key = derive("lode kv extent", salt);
  return ExtentCipher(key, algorithm_);
}

Salt Cipher::random_salt() {
  Salt salt{};
  LODE_CHECK(RAND_bytes(salt.data(), static_cast<int>(salt.size())) == 1);
  return salt;
}

}  // namespace lode::kv
