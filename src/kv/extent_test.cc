#include "kv/extent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kv/disk_test_util.h"
#include "kv/index_log.h"

namespace lode::kv {
namespace {

ExtentHeader example(std::uint32_t blocks, std::size_t slices) {
  ExtentHeader h;
  const auto chain = test::make_chain(blocks, blocks * 100 + slices);
  h.meta = {.name = {chain.back().key, 0x0123456789abcdefull, 3, blocks},
            .first_index = 7,
            .parent = chain[0].parent,
            .keys = {},
            .ids = {},
            .sealed = {}};
  for (const auto& b : chain) h.meta.keys.push_back(b.key), h.meta.ids.push_back(b.ids);
  h.model_fingerprint.fill(9);
  for (std::size_t s = 0; s < slices; ++s) h.slice_bytes.push_back(4096 * (s + 1));
  for (std::size_t i = 0; i < slices * blocks; ++i) h.checksums.push_back(i * 0x9e3779b97f4a7c15ull);
  return h;
}

TEST(Extent, HeadersSurviveTheRoundTrip) {
  for (const std::uint32_t blocks : {1u, 7u, 16u}) {
    for (const std::size_t slices : {1u, 18u, 80u}) {
      const ExtentHeader h = example(blocks, slices);
      const auto bytes = encode_header(h);
      EXPECT_EQ(bytes.size() % 4096, 0u);
      EXPECT_EQ(bytes.size(), ExtentShape(h.slice_bytes, blocks).header_bytes());
      const auto parsed = parse_header(bytes);
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      EXPECT_EQ(parsed->meta.name, h.meta.name);
      EXPECT_EQ(parsed->meta.keys, h.meta.keys);
      EXPECT_EQ(parsed->meta.ids, h.meta.ids);
      EXPECT_EQ(parsed->meta.parent, h.meta.parent);
      EXPECT_EQ(parsed->meta.first_index, 7);
      EXPECT_EQ(parsed->slice_bytes, h.slice_bytes);
      EXPECT_EQ(parsed->checksums, h.checksums);
      EXPECT_EQ(parsed->model_fingerprint, h.model_fingerprint);
    }
  }
}

// The worked example of docs/kv-format.md: two blocks of one layer.
TEST(Extent, TheWorkedExampleOfTheDocumentation) {
  model::BlockLayout layout = test::make_layout({4096}, 0, 1);
  layout.slices[0].kv = {.kv_heads = 1, .k_dim = 32, .v_dim = 32, .k_offset = 0, .v_offset = 2048};
  RootInputs root;
  for (std::size_t i = 0; i < 32; ++i) root.model_fingerprint[i] = static_cast<std::uint8_t>(i);
  root.k_type = root.v_type = "f16", root.numerics_id = "cpu-1", root.placement = "cpu", root.rope = "1";
  ExtentHeader h;
  h.model_fingerprint = root.model_fingerprint;
  h.slice_bytes = {4096};
  BlockKey key = h.meta.parent = root_key(root);
  for (int block = 0; block < 2; ++block) {
    auto& ids = h.meta.ids.emplace_back();
    for (int i = 0; i < kBlockTokens; ++i) ids[static_cast<std::size_t>(i)] = 1000 + 32 * block + i;
    h.meta.keys.push_back(key = child_key(key, ids));
    h.checksums.push_back(checksum(std::vector<std::byte>(4096, std::byte(block == 0 ? 0x11 : 0x22))));
  }
  h.meta.name = {key, layout_id(GroupId{0}, layout), 0, 2};
  EXPECT_EQ(h.meta.name.file_name(),
            "50eef42cf254d74554baac0e0ca793e2cdbee4bd1ac3f010e1e38bf47540822d-6445052f957c5655-0-2.kvx");
  const auto bytes = encode_header(h);
  ASSERT_EQ(bytes.size(), 4096u);
  const auto dump = [&](std::size_t at, std::size_t n) {
    std::string text;
    for (std::size_t i = at; i < at + n; ++i) text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
    return text;
  };
  EXPECT_EQ(dump(0, 32), "4c4f44454b56580001000000001000005c5bd90228aa668b55567c952f054564");
  EXPECT_EQ(dump(96, 40), "00000000000000000000000002000000010000000000000000300000000000000010000000000000");
  EXPECT_EQ(dump(456, 16), "bb74b1b53d4047e6a2106b1731a909b5");
  EXPECT_EQ(ExtentShape(h.slice_bytes, 2).file_bytes(), 12288u);
}

TEST(Extent, AnyFlippedByteAndAnyCutOfAHeaderIsSeen) {
  auto bytes = encode_header(example(16, 18));
  for (std::size_t i = 0; i < bytes.size(); i += i < 256 ? 1 : 13) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_FALSE(parse_header(bytes).ok()) << "byte " << i;
    bytes[i] ^= std::byte{0x10};
  }
  for (std::size_t n = 0; n < bytes.size(); n += 97) EXPECT_FALSE(parse_header(std::span(bytes).first(n)).ok()) << n;
  EXPECT_TRUE(parse_header(bytes).ok());
}

TEST(Extent, SlicesLieLayerByLayer) {
  const ExtentShape shape({4096, 8192}, 3);
  EXPECT_EQ(shape.header_bytes(), 4096u);
  EXPECT_EQ(shape.slice_offset(0, 0), 4096u);
  EXPECT_EQ(shape.slice_offset(0, 2), 4096u + 2 * 4096);
  EXPECT_EQ(shape.slice_offset(1, 0), 4096u + 3 * 4096);
  EXPECT_EQ(shape.slice_offset(1, 2), 4096u + 3 * 4096 + 2 * 8192);
  EXPECT_EQ(shape.file_bytes(), 4096u + 3 * (4096 + 8192));
}

TEST(Extent, NamesParseOnlyAsTheyAreWritten) {
  const ExtentName name = example(16, 2).meta.name;
  const std::string text = name.file_name();
  EXPECT_EQ(text.size(), 64u + 1 + 16 + 1 + 1 + 1 + 2 + 4);
  ASSERT_TRUE(ExtentName::parse(text).has_value());
  EXPECT_EQ(*ExtentName::parse(text), name);
  for (const std::string& wrong :
       {std::string(), std::string(".kvx"), text + "x", text.substr(1), "A" + text.substr(1),
        text.substr(0, text.size() - 6) + "17.kvx", text.substr(0, text.size() - 6) + "0.kvx",
        text.substr(0, text.size() - 6) + "016.kvx", text.substr(0, 80) + "-+3-16.kvx", std::string(200, 'a'),
        std::string(90, '-') + ".kvx"}) {
    EXPECT_FALSE(ExtentName::parse(wrong).has_value()) << wrong;
  }
}

class Log : public ::testing::Test {
 protected:
  std::array<std::uint8_t, 32> fingerprint_{1, 2, 3};
  LoggedExtent extent(std::uint32_t n) {
    auto meta = example(1 + n % 16, 2).meta;
    return {.meta = std::move(meta), .used_seconds = n};
  }
  static void append(std::vector<std::byte>& log, const std::vector<std::byte>& record) {
    log.insert(log.end(), record.begin(), record.end());
  }
};

TEST_F(Log, RecordsReplayInOrderOfUse) {
  auto log = begin_record(fingerprint_);
  for (std::uint32_t n = 0; n < 5; ++n) append(log, add_record(extent(n)));
  append(log, remove_record(extent(1).meta.name));
  const ExtentName touched[] = {extent(3).meta.name, extent(0).meta.name, extent(9).meta.name};
  append(log, touch_record(touched, 77));
  const auto replay = replay_log(log, fingerprint_);
  EXPECT_EQ(replay.sound_bytes, log.size());
  ASSERT_EQ(replay.extents.size(), 4u);
  EXPECT_EQ(replay.extents[0].meta.name, extent(2).meta.name);
  EXPECT_EQ(replay.extents[1].meta.name, extent(4).meta.name);
  EXPECT_EQ(replay.extents[2].meta.name, extent(3).meta.name);
  EXPECT_EQ(replay.extents[3].meta.name, extent(0).meta.name);
  EXPECT_EQ(replay.extents[3].used_seconds, 77);
  EXPECT_EQ(replay.extents[0].meta.ids, extent(2).meta.ids);
  EXPECT_EQ(replay_log(log, {}).sound_bytes, 0u) << "another model's log";
}

TEST_F(Log, DamageEndsTheReplayAndNeverInventsAnything) {
  auto log = begin_record(fingerprint_);
  std::vector<std::size_t> ends = {log.size()};
  for (std::uint32_t n = 0; n < 4; ++n) {
    append(log, add_record(extent(n)));
    ends.push_back(log.size());
  }
  for (std::size_t i = 0; i < log.size(); i += 7) {
    log[i] ^= std::byte{0x40};
    const auto replay = replay_log(log, fingerprint_);
    log[i] ^= std::byte{0x40};
    const auto sound = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
    EXPECT_EQ(replay.records, sound) << "byte " << i;
    EXPECT_EQ(replay.extents.size(), sound == 0 ? 0 : sound - 1);
    const auto cut = replay_log(std::span(log).first(i), fingerprint_);
    EXPECT_EQ(cut.records, sound);
  }
}

TEST_F(Log, ATornTailIsCutOffBeforeTheNextRecord) {
  platform::FakeFileSystem fs;
  ASSERT_TRUE(fs.make_dirs("/kv").ok());
  {
    IndexLog log(fs, "/kv", fingerprint_);
    EXPECT_EQ(log.load().extents.size(), 0u);
    ASSERT_TRUE(log.append(add_record(extent(1)), 1).ok());
    ASSERT_TRUE(log.append(add_record(extent(2)), 1).ok());
  }
  auto bytes = *fs.contents("/kv/index.log");
  bytes.resize(bytes.size() - 5);
  fs.set_contents("/kv/index.log", bytes);
  IndexLog log(fs, "/kv", fingerprint_);
  EXPECT_EQ(log.load().extents.size(), 1u);
  ASSERT_TRUE(log.append(add_record(extent(3)), 1).ok());
  IndexLog again(fs, "/kv", fingerprint_);
  EXPECT_EQ(again.load().extents.size(), 2u);
  for (const auto old : {IndexLog::Old::keep_until_replaced, IndexLog::Old::remove_first}) {
    ASSERT_TRUE(again.compact(old).ok());
    ASSERT_TRUE(again.append(add_record(extent(old == IndexLog::Old::remove_first ? 4 : 5)), 1).ok());
  }
  EXPECT_EQ(IndexLog(fs, "/kv", fingerprint_).load().extents.size(), 4u);
}

}  // namespace
}  // namespace lode::kv
