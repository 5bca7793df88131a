#include "kv/slot_file.h"

#include <gtest/gtest.h>

#include "kv/disk_test_util.h"

namespace lode::kv {
namespace {

SlotFile example() {
  SlotFile slot;
  for (std::size_t i = 0; i < 32; ++i) slot.root.model_fingerprint[i] = static_cast<std::uint8_t>(i);
  slot.root.k_type = slot.root.v_type = "f16";
  slot.root.numerics_id = "cpu-1";
  slot.root.placement = "cpu";
  slot.root.rope = "1";
  for (TokenId id = 1000; id < 1070; ++id) slot.tokens.push_back(id);
  BlockKey key = root_key(slot.root);
  for (std::size_t i = 0; i < 2; ++i)
    slot.keys.push_back(key = child_key(key, std::span<const TokenId, 32>(slot.tokens.data() + 32 * i, 32)));
  return slot;
}

class SlotFiles : public testing::Test {
 protected:
  SlotFiles() {
    EXPECT_TRUE(fs.make_dirs("/slots").ok());
    const auto bytes = write_slot_file(fs, "/slots/a", example());
    EXPECT_TRUE(bytes.ok());
    auto file = fs.open("/slots/a", {});
    content.resize(*bytes);
    EXPECT_TRUE(platform::read_fully(**file, content, 0).ok());
  }
  platform::FakeFileSystem fs;
  std::vector<std::byte> content;
};

TEST_F(SlotFiles, ComeBackAsTheyWere) {
  const auto read = read_slot_file(fs, "/slots/a");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const SlotFile wanted = example();
  EXPECT_EQ(read->slot.tokens, wanted.tokens);
  EXPECT_EQ(read->slot.keys, wanted.keys);
  EXPECT_TRUE(same_root(read->slot.root, wanted.root).ok());
  EXPECT_EQ(read->bytes, content.size());
  EXPECT_EQ(content.size(), 447u) << "docs/kv-format.md";
  EXPECT_EQ(read_slot_file(fs, "/slots/none").status().code(), Code::not_found);
}

// F02: whatever is damaged is refused, wherever the damage is.
TEST_F(SlotFiles, EveryByteFlipAndEveryLengthIsRefused) {
  for (std::size_t at = 0; at < content.size(); ++at)
    for (const std::byte flip : {std::byte{1}, std::byte{0x80}}) {
      auto bytes = content;
      bytes[at] ^= flip;
      EXPECT_FALSE(parse_slot_file(bytes).ok()) << "byte " << at;
    }
  for (std::size_t length = 0; length < content.size(); ++length)
    EXPECT_FALSE(parse_slot_file(std::span(content).first(length)).ok()) << length;
  auto longer = content;
  longer.push_back({});
  EXPECT_FALSE(parse_slot_file(longer).ok());
}

// F04: each part of what the blocks depend on is named where it differs.
TEST_F(SlotFiles, ARootThatDiffersIsRefusedByName) {
  const RootInputs here = example().root;
  const auto refusal = [&](auto change) {
    RootInputs other = here;
    change(other);
    const Status status = same_root(other, here);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message();
  };
  EXPECT_NE(refusal([](RootInputs& r) { r.model_fingerprint[5] ^= 1; }).find("another model"), std::string::npos);
  EXPECT_NE(refusal([](RootInputs& r) { r.k_type = "q8_0+wht"; }).find("K cache type 'q8_0+wht'"), std::string::npos);
  EXPECT_NE(refusal([](RootInputs& r) { r.v_type = "f32"; }).find("V cache type"), std::string::npos);
  EXPECT_NE(refusal([](RootInputs& r) { r.numerics_id = "cpu-0"; }).find("numerics"), std::string::npos);
  EXPECT_NE(refusal([](RootInputs& r) { r.rope = "2"; }).find("rope"), std::string::npos);
  auto old = content;
  old[8] = std::byte{0};
  EXPECT_EQ(parse_slot_file(old).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace lode::kv
