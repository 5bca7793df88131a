// Encryption of the SSD tier: nothing readable on disk, nothing forged accepted, no nonce twice, and a wrong key is a
// miss that is said once and harms nothing.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <set>
#include <sstream>

#include "kv/cipher.h"
#include "kv/disk_test_util.h"
#include "kv/extent.h"
#include "kv/index_log.h"

namespace lode::kv {
namespace {

using namespace test;
namespace fs = std::filesystem;
constexpr std::int64_t kSoon = 20'000;

std::shared_ptr<const Cipher> cipher_of(std::uint8_t fill) {
  SecretBytes secret;
  secret.fill(fill);
  return std::make_shared<const Cipher>(secret);
}

// What is logged while it lives.
class Log {
 public:
  Log() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~Log() { spdlog::set_default_logger(before_); }
  int count(const std::string& what) const {
    const std::string all = text_.str();
    int n = 0;
    for (std::size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) ++n;
    return n;
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

// Test case 14 of the GCM submission to NIST: key, nonce and 16 bytes of zeros.
TEST(Cipher, IsAes256Gcm) {
  const ExtentCipher cipher(SecretBytes{}, EVP_aes_256_gcm());
  std::vector<std::byte> bytes(16);
  const Tag tag = cipher.seal(0, {}, bytes, bytes.data());
  EXPECT_EQ(bytes,
            bytes_of({0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18}));
  EXPECT_EQ(tag, (Tag{0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19}));
  EXPECT_TRUE(cipher.open(0, {}, bytes, tag));
  EXPECT_EQ(bytes, std::vector<std::byte>(16));
}

TEST(Cipher, AnythingChangedIsNotOpened) {
  const auto secret = cipher_of(7);
  const ExtentCipher cipher = secret->extent(Salt{1});
  const auto clear = bytes_of({1, 2, 3}), plain = bytes_of({10, 20, 30, 40, 50});
  std::vector<std::byte> sealed(plain.size());
  const Tag tag = cipher.seal(3, clear, plain, sealed.data());
  const auto opens = [&](const ExtentCipher& c, std::uint64_t message, std::span<const std::byte> aad,
                         std::vector<std::byte> bytes, const Tag& t) {
    const bool ok = c.open(message, aad, bytes, t);
    EXPECT_EQ(bytes, ok ? plain : std::vector<std::byte>(plain.size())) << "nothing unproven is handed out";
    return ok;
  };
  EXPECT_TRUE(opens(cipher, 3, clear, sealed, tag));
  EXPECT_FALSE(opens(cipher, 4, clear, sealed, tag));
  EXPECT_FALSE(opens(cipher, 3, {}, sealed, tag));
  EXPECT_FALSE(opens(secret->extent(Salt{2}), 3, clear, sealed, tag));
  EXPECT_FALSE(opens(cipher_of(8)->extent(Salt{1}), 3, clear, sealed, tag));
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    auto other = sealed;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(opens(cipher, 3, clear, other, tag));
  }
  for (std::size_t i = 0; i < tag.size(); ++i) {
    Tag other = tag;
    other[i] ^= 1;
    EXPECT_FALSE(opens(cipher, 3, clear, sealed, other));
  }
}

TEST(Cipher, BlockKeysDependOnTheSecret) {
  const BlockKey key{{1, 2, 3}};
  std::set<BlockKey> keys = {key};
  std::set<std::uint64_t> ids;
  for (const std::uint8_t secret : {1, 2, 3}) {
    keys.insert(cipher_of(secret)->keyed(key));
    ids.insert(cipher_of(secret)->id());
  }
  EXPECT_EQ(keys.size(), 4u);
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(cipher_of(1)->keyed(key), cipher_of(1)->keyed(key));
}

TEST(Cipher, KeyFiles) {
  const TempDir temp;
  const fs::path path = temp.path / "key";
  const auto write = [&](const std::string& bytes, fs::perms mode = fs::perms::owner_read | fs::perms::owner_write) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    fs::permissions(path, mode);
    return Cipher::from_file(path);
  };
  std::string hex;
  for (int i = 0; i < 32; ++i) hex += "5A";
  const auto raw = write(std::string(32, '\x5a')), text = write(hex), line = write(hex + "\n");
  ASSERT_TRUE(raw.ok() && text.ok() && line.ok()) << text.status().message();
  EXPECT_EQ(raw.value()->id(), text.value()->id());
  EXPECT_EQ(raw.value()->id(), line.value()->id());
  for (const std::string& bad : {std::string(), std::string(31, 'a'), std::string(33, 'a'), hex.substr(1) + "g",
                                 hex + "00", std::string(1000, 'a')}) {
    const auto refused = write(bad);
    ASSERT_FALSE(refused.ok()) << bad.size();
    EXPECT_EQ(refused.status().code(), Code::invalid_argument) << refused.status().message();
  }
  for (const fs::perms others : {fs::perms::group_read, fs::perms::others_read, fs::perms::group_write}) {
    const auto refused = write(hex, fs::perms::owner_read | others);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("expected 0600"), std::string::npos) << refused.status().message();
  }
  EXPECT_EQ(Cipher::from_file(temp.path / "none").status().code(), Code::not_found);
  EXPECT_FALSE(Cipher::from_file(temp.path).ok()) << "a folder";
}

struct Sealed : Harness {
  Sealed() { config.cipher = cipher_of(1); }
  void store(std::span<const DiskBlock> chain) {
    for (const GroupId group : {kFullGroup, kWindowGroup})
      for (std::size_t i = 0; i < chain.size(); i += 16)
        ASSERT_EQ(write(group, chain.subspan(i, std::min<std::size_t>(16, chain.size() - i))), WriteResult::queued);
    ASSERT_TRUE(tier->flush(kSoon));
  }
};

TEST(Sealed, WhatWasWrittenIsReadBackAfterARestartWithAndWithoutTheLog) {
  Sealed h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(40, 1);
  h.store(chain);
  for (int restart = 0; restart < 4; ++restart) {
    EXPECT_EQ(h.read(kFullGroup, chain), 40u);
    EXPECT_EQ(h.read(kWindowGroup, chain), 40u);
    h.expect_tidy();
    h.tier.reset();
    if (restart == 1) {
      ASSERT_TRUE(h.fake.unlink(h.own() / "index.log").ok());
    }
    ASSERT_TRUE(h.open().ok());
    EXPECT_EQ(h.tier->stats().files_set_aside, 0u);
    if (restart == 1) continue;
    h.fake.reset_ops();  // The log has all of it: no header is read.
    ASSERT_TRUE(h.open().ok());
    EXPECT_LT(h.fake.ops(), 25u);
  }
}

TEST(Sealed, NothingOnTheDiskIsReadable) {
  for (const bool sealed : {true, false}) {
    Sealed h;
    if (!sealed) h.config.cipher = nullptr;
    ASSERT_TRUE(h.open().ok());
    const auto chain = make_chain(20, 1);
    h.store(chain);
    h.tier.reset();
    int found = 0;
    for (const auto& path : h.fake.files("/")) {
      const auto bytes = *h.fake.contents(path);
      for (const DiskBlock& b : chain) {
        const auto ids = std::as_bytes(std::span(b.ids)).subspan(32, 16);
        found += std::search(bytes.begin(), bytes.end(), ids.begin(), ids.end()) != bytes.end();
        const AlignedBytes payload = aligned_bytes(12288);
        fill_payload(b.key, kFullGroup, payload.get(), 12288);
        const std::span part(payload.get() + 8192, 16);
        found += std::search(bytes.begin(), bytes.end(), part.begin(), part.end()) != bytes.end();
      }
    }
    if (sealed) EXPECT_EQ(found, 0);
    else EXPECT_GE(found, 60) << "the search itself: ids in extents and log, and payloads";
  }
}

TEST(Sealed, NoKeyIsUsedForTwoExtents) {
  Sealed h;
  std::set<Salt> salts;
  std::size_t extents = 0;
  const auto chain = make_chain(32, 1);
  for (int round = 0; round < 3; ++round) {  // The same blocks again: a new key for each writing.
    ASSERT_TRUE(h.open().ok());
    h.store(chain);
    for (const auto& path : h.extents()) {
      const auto header = parse_header(*h.fake.contents(path));
      ASSERT_TRUE(header.ok() && header->meta.sealed);
      EXPECT_TRUE(header->meta.ids.empty());
      salts.insert(header->meta.sealed->salt);
      ++extents;
    }
    for (const DiskBlock& b : chain) h.tier->drop(b.key);
    ASSERT_TRUE(h.tier->flush(kSoon));
  }
  EXPECT_EQ(extents, 12u);
  EXPECT_EQ(salts.size(), extents);
  // And inside one: the header's number and those of the slices differ.
  std::set<std::uint64_t> messages = {ExtentCipher::kHeader};
  for (std::size_t slice = 0; slice < 5; ++slice)
    for (std::uint32_t block = 0; block < 16; ++block) messages.insert(slice_message(slice, 16, block));
  EXPECT_EQ(messages.size(), 81u);
}

// Somebody who can write the folder, but has no key: all checksums are made right again.
TEST(Sealed, WhatWasForgedIsAMiss) {
  const auto chain = make_chain(16, 1);
  Sealed h;
  ASSERT_TRUE(h.open().ok());
  ASSERT_EQ(h.write(kFullGroup, chain), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  const auto path = h.extents().at(0), log = h.own() / "index.log";
  const auto sound = *h.fake.contents(path);
  ExtentHeader header = std::move(parse_header(sound)).value();
  const ExtentShape shape = header.shape();
  const auto read_with = [&](const ExtentHeader& forged, std::vector<std::byte> bytes) {
    const auto head = encode_header(forged);
    std::copy(head.begin(), head.end(), bytes.begin());
    h.tier.reset();
    h.fake.set_contents(path, bytes);
    (void)h.fake.unlink(log);
    EXPECT_TRUE(h.open().ok());
    const std::size_t read = h.read(kFullGroup, chain);  // Checks bytes and ids of what came.
    EXPECT_TRUE(h.tier->flush(kSoon));
    return read;
  };
  spdlog::set_level(spdlog::level::off);
  EXPECT_EQ(read_with(header, sound), 16u);
  {
    auto bytes = sound;
    ExtentHeader forged = header;
    bytes[shape.slice_offset(1, 5) + 100] ^= std::byte{1};
    forged.checksums[16 + 5] = checksum(std::span(bytes).subspan(shape.slice_offset(1, 5), 8192));
    EXPECT_EQ(read_with(forged, bytes), 15u);
  }
  {
    auto bytes = sound;  // Two blocks' places exchanged, tags and all.
    ExtentHeader forged = header;
    std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(shape.slice_offset(0, 2)),
                     bytes.begin() + static_cast<std::ptrdiff_t>(shape.slice_offset(0, 3)),
                     bytes.begin() + static_cast<std::ptrdiff_t>(shape.slice_offset(0, 3)));
    std::swap(forged.checksums[2], forged.checksums[3]);
    std::swap(forged.tags[2], forged.tags[3]);
    EXPECT_EQ(read_with(forged, bytes), 14u);
  }
  const auto change = [&](auto&& what) {
    ExtentHeader forged = header;
    what(forged);
    EXPECT_EQ(read_with(forged, sound), 0u);
  };
  change([](ExtentHeader& h) { h.meta.first_index = 16; });
  change([](ExtentHeader& h) { h.meta.parent.bytes[3] ^= 1; });
  change([](ExtentHeader& h) { h.meta.keys[4].bytes[0] ^= 1; });
  change([](ExtentHeader& h) { h.meta.sealed->salt[0] ^= 1; });
  change([](ExtentHeader& h) { h.meta.sealed->bytes[77] ^= std::byte{1}; });
  change([](ExtentHeader& h) { h.meta.sealed->tag[0] ^= 1; });
  EXPECT_EQ(read_with(header, sound), 16u);
  // A record of the log, likewise: the header is asked instead.
  h.tier.reset();
  LoggedExtent logged{.meta = header.meta, .used_seconds = 5};
  logged.meta.first_index = 160;
  auto records = begin_record(h.config.model_fingerprint);
  const auto record = add_record(logged);
  records.insert(records.end(), record.begin(), record.end());
  h.fake.set_contents(log, records);
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.tier->find(chain[0].key)->index, 0);
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
  spdlog::set_level(spdlog::level::info);
}

TEST(Sealed, AWrongKeyIsAMissThatIsSaidOnceAndHarmsNothing) {
  const auto chain = make_chain(32, 1), other = make_chain(16, 2);
  for (const bool with_log : {true, false}) {
    Sealed h;
    ASSERT_TRUE(h.open().ok());
    h.store(chain);
    const std::size_t files = h.extents().size();
    for (const bool another : {true, false}) {
      h.tier.reset();
      if (!with_log) (void)h.fake.unlink(h.own() / "index.log");
      const Log log;
      h.config.cipher = another ? cipher_of(2) : nullptr;
      ASSERT_TRUE(h.open().ok());
      EXPECT_EQ(h.contained(kFullGroup, chain), 0u);
      EXPECT_EQ(h.read(kFullGroup, chain), 0u);
      h.store(other);  // It works with what it writes itself.
      EXPECT_EQ(h.read(kFullGroup, other), 16u);
      EXPECT_EQ(h.tier->stats().files_set_aside, 0u);
      EXPECT_EQ(log.count("are encrypted"), 1);
      EXPECT_EQ(log.count(another ? "with another key" : "there is no --kv-key-file"), 1);
      h.expect_tidy();
    }
    EXPECT_EQ(h.extents().size(), files + 4) << "nothing was removed: two more with the other key, two without one";
    h.config.cipher = cipher_of(1);
    const Log log;
    ASSERT_TRUE(h.open().ok());
    EXPECT_EQ(h.read(kFullGroup, chain), 32u);
    EXPECT_EQ(h.read(kWindowGroup, chain), 32u);
    EXPECT_EQ(h.contained(kFullGroup, other), 0u);
    EXPECT_EQ(log.count("2 files in"), 2) << "those of the other key, and those without one";
    EXPECT_EQ(log.count("they are not encrypted"), 1);
  }
}

// What another key wrote counts for the quota, and makes room.
TEST(Sealed, TheQuotaHoldsOverKeys) {
  Sealed h;
  h.config.quota_bytes = 2 << 20;
  spdlog::set_level(spdlog::level::off);
  for (std::uint8_t key = 1; key < 5; ++key) {
    h.config.cipher = cipher_of(key);
    ASSERT_TRUE(h.open().ok());
    const auto chain = make_chain(48, key);
    h.store(chain);
    EXPECT_EQ(h.read(kFullGroup, chain), 48u);
    h.expect_tidy();
  }
  spdlog::set_level(spdlog::level::info);
}

}  // namespace
}  // namespace lode::kv
