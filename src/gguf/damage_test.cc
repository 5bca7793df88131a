// Tests of damaged and hostile files: each gives one clear error, never a signal, a hang or a large allocation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "gguf/gguf.h"
#include "gguf/test_writer.h"

namespace lode::gguf {
namespace {

std::span<const std::byte> span_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

// The error of opening these bytes, "" where they open.
std::string error_of(const std::string& bytes) {
  return std::string(File::open_bytes(span_of(bytes), "m.gguf").status().message());
}
Code code_of(const std::string& bytes) {
  return File::open_bytes(span_of(bytes), "m.gguf").status().code();
}

// `text` has each of the pieces.
void expect_parts(const std::string& text, std::initializer_list<std::string_view> pieces) {
  for (const std::string_view piece : pieces)
    EXPECT_NE(text.find(piece), std::string::npos) << text << "\nlacks: " << piece;
}

template <typename T>
std::string patched(std::string bytes, std::uint64_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

TestWriter small() {
  TestWriter w;
  w.string("general.architecture", "llama").u32("llama.block_count", 1).strings("tokens", {"a", "bc"});
  w.array<float>("scores", 6, {1, 2, 3}).boolean("flag", 1);
  w.tensor("one", 0, {4, 2}, f32_bytes({1, 2, 3, 4, 5, 6, 7, 8}));
  w.tensor("two", 8, {32, 2}, std::string(2 * 34, 'q'));
  return w;
}

// A05: a dimension of zero and a key of zero length are errors.
TEST(GgufDamage, A05_ZeroDimensionAndEmptyKey) {
  TestWriter w;
  w.tensor("zero", 0, {0}, "");
  expect_parts(error_of(w.bytes()), {"m.gguf", "tensor 1 of 1 'zero'", "dimension 0 is 0", "at least 1"});
  TestWriter later;
  later.tensor("zero", 0, {4, 3, 0}, "");
  expect_parts(error_of(later.bytes()), {"'zero'", "dimension 2 is 0"});
  TestWriter negative;
  negative.tensor("neg", 0, {~0ull}, "");
  expect_parts(error_of(negative.bytes()), {"'neg'", "dimension 0 is -1"});
  TestWriter key;
  key.u32("ok", 1).u32("", 1);
  expect_parts(error_of(key.bytes()), {"metadata entry 2 of 2", "key of zero length", "at byte 42"});
  TestWriter name;
  name.tensor("", 0, {1}, f32_bytes({1}));
  expect_parts(error_of(name.bytes()), {"tensor 1 of 1", "name of zero length"});
}

// A07, the reader's part: a block count is a number like any other here; lengths that no memory could hold are refused
// before anything is reserved. (model/ checks the count against the tensors.)
TEST(GgufDamage, A07_CountsAreCheckedBeforeReserving) {
  TestWriter w;
  w.u32("llama.block_count", 1u << 31).array<std::int32_t>("llama.attention.head_count", 5, {4, 4});
  const std::string good = w.bytes();
  const auto f = File::open_bytes(span_of(good), "m.gguf");
  ASSERT_TRUE(f.ok());
  EXPECT_EQ(**(*f)->get_uint("llama.block_count"), 1ull << 31);
  EXPECT_EQ((**(*f)->get_ints("llama.attention.head_count")).size(), 2u);

  const std::uint64_t array_count = w.at("value llama.attention.head_count") + 4;
  for (const std::uint64_t n : {std::uint64_t{3}, std::uint64_t{1} << 31, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    expect_parts(error_of(patched(good, array_count, n)),
                 {"'llama.attention.head_count'", "array items", "8 bytes are left"});
    expect_parts(error_of(patched(good, w.at("metadata count"), n)), {n == 3 ? "3 of 3" : "metadata entries need"});
    expect_parts(error_of(patched(good, w.at("tensor count"), n)), {std::to_string(n) + " tensors", "33 bytes"});
    expect_parts(error_of(patched(good, w.at("key llama.block_count"), n + (1 << 20))),
                 {"metadata entry 1 of 2", "key of"});
  }
}

TEST(GgufDamage, StringAndArrayLengths) {
  TestWriter w = small();
  const std::string good = w.bytes();
  ASSERT_EQ(error_of(good), "");
  for (const std::uint64_t n : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    expect_parts(error_of(patched(good, w.at("value general.architecture"), n)),
                 {"m.gguf: metadata entry 1 of 5 'general.architecture' at byte", "string value"});
    expect_parts(error_of(patched(good, w.at("value tokens") + 4, n)), {"'tokens'", "array strings", "left"});
    expect_parts(error_of(patched(good, w.at("value tokens") + 12, n)), {"'tokens'", "array string"});
    expect_parts(error_of(patched(good, w.at("tensor one"), n)), {"tensor 1 of 2", "name of", "at most 1024"});
  }
}

TEST(GgufDamage, ValuesTypesAndNesting) {
  TestWriter w = small();
  const std::string good = w.bytes();
  expect_parts(error_of(patched(good, w.at("value flag"), std::uint8_t{2})),
               {"'flag'", "boolean of value 2", "0 or 1"});
  expect_parts(error_of(patched(good, w.at("value flag") - 4, 13u)), {"'flag'", "value type 13", "0 to 12"});
  expect_parts(error_of(patched(good, w.at("value scores"), 77u)), {"'scores'", "array element type 77"});
  // Arrays nested a million deep would overflow a recursive reader's stack.
  std::string nest;
  for (int i = 0; i < 1000000; ++i) nest += TestWriter::number(9u) + TestWriter::number(std::uint64_t{1});
  TestWriter deep;
  deep.raw("deep", 9, nest);
  EXPECT_EQ(code_of(deep.bytes()), Code::unsupported);
  expect_parts(error_of(deep.bytes()), {"'deep'", "array of arrays"});
  TestWriter booleans;
  booleans.array<std::uint8_t>("b", 7, {0, 1, 7});
  expect_parts(error_of(booleans.bytes()), {"'b'", "boolean of value 7"});
}

TEST(GgufDamage, NamesThatOccurTwice) {
  TestWriter keys = small();
  keys.u32("flag", 1);
  expect_parts(error_of(keys.bytes()), {"key 'flag' occurs twice", "5 and 6"});
  TestWriter tensors = small();
  tensors.tensor("one", 0, {1}, f32_bytes({1}));
  expect_parts(error_of(tensors.bytes()), {"tensor 'one' occurs twice", "1 and 3"});
}

TEST(GgufDamage, DimensionCountAndOverflow) {
  TestWriter none, five, product, bytes;
  none.tensor("t", 0, {}, "");
  expect_parts(error_of(none.bytes()), {"'t'", "0 dimensions, expected 1 to 4"});
  five.tensor("t", 0, {1, 1, 1, 1, 1}, "xxxx");
  expect_parts(error_of(five.bytes()), {"'t'", "5 dimensions"});
  product.tensor("t", 0, {1ull << 32, 1ull << 32}, "");
  expect_parts(error_of(product.bytes()), {"'t'", "[4294967296, 4294967296]", "2^62"});
  bytes.tensor("t", 0, {1ull << 61}, "");
  expect_parts(error_of(bytes.bytes()), {"'t'", "2^62"});
}

TEST(GgufDamage, Alignment) {
  for (const std::uint32_t a : {0u, 1u, 4u, 24u, 33u, 0x80000000u, ~0u}) {
    TestWriter w = small();
    w.u32("general.alignment", a);
    expect_parts(error_of(w.bytes()), {"'general.alignment'", "power of two", "found " + std::to_string(a)});
  }
  TestWriter text = small();
  text.string("general.alignment", "32");
  expect_parts(error_of(text.bytes()), {"'general.alignment'", "of type string"});
  TestWriter wide;
  wide.alignment = 4096;
  wide.u32("general.alignment", 4096).tensor("a", 0, {1}, f32_bytes({1})).tensor("b", 0, {1}, f32_bytes({2}));
  const std::string good = wide.bytes();
  const auto f = File::open_bytes(span_of(good), "m.gguf");
  ASSERT_TRUE(f.ok()) << f.status().message();
  EXPECT_EQ((*f)->tensor("b")->offset, 8192u);
}

// A09: a file shorter than its tensor table says so at open: tensor, offset, bytes needed, bytes present.
TEST(GgufDamage, A09_CutOrMisplacedTensors) {
  TestWriter w = small();
  const std::string good = w.bytes();
  const std::string at = std::to_string(w.at("data two"));
  expect_parts(
      error_of(good.substr(0, good.size() - 1)),
      {"tensor 'two'", "needs 68 bytes at byte " + at, "67 are present", std::to_string(good.size() - 1) + " bytes"});
  expect_parts(error_of(good.substr(0, w.at("data") + 5)), {"tensor 'one'", "needs 32 bytes", "5 are present"});
  expect_parts(error_of(patched(good, w.at("offset two"), std::uint64_t{1} << 63)), {"tensor 'two'", "0 are present"});
  expect_parts(error_of(patched(good, w.at("offset two"), ~std::uint64_t{31})),
               {"tensor 'two'", "2^64", "0 are present"});
  expect_parts(error_of(patched(good, w.at("offset two"), good.size() - 1)), {"tensor 'two'", "multiple of 32"});
  expect_parts(error_of(patched(good, w.at("offset two"), std::uint64_t{128})), {"tensor 'two'", "needs 68 bytes"});
  expect_parts(error_of(patched(good, w.at("offset two"), std::uint64_t{0})), {"'one'", "'two'", "overlap"});

  // The last megabyte of a larger file, on disk, in every mode.
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "lode-a09.gguf";
  w.tensor("large", 0, {512, 1024}, std::string(2 << 20, 'x'));
  const std::string large = w.bytes();
  TestWriter::write_file(path, std::string_view(large).substr(0, large.size() - (1 << 20)));
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read, LoadMode::direct}) {
    const Status status = File::open(path, {.mode = mode}).status();
    EXPECT_EQ(status.code(), Code::corrupt);
    expect_parts(status.message(), {path.string(), "'large'", "needs 2097152 bytes", "1048576 are present"});
  }
  std::filesystem::remove(path);
}

// A16: a type that is not known names tensor and number and lists what is supported.
TEST(GgufDamage, A16_UnknownTypeNumbers) {
  TestWriter w = small();
  const std::string good = w.bytes();
  for (const std::uint32_t type : {4u, 5u, 31u, 36u, 250u, ~0u}) {
    const std::string bad = patched(good, w.at("type two"), type);
    EXPECT_EQ(code_of(bad), Code::unsupported);
    expect_parts(error_of(bad), {"tensor 2 of 2 'two'", "type number " + std::to_string(type),
                                 "supported types: ", quant::computable_names(), "Q8_0"});
  }
  // A format whose size is known may lack kernels: the file opens for `info`, computing refuses it in the same words.
  for (std::uint32_t type = 0; type < 64; ++type) {
    const quant::TypeInfo* info = quant::find_type(type);
    if (info == nullptr) continue;
    TestWriter known;
    known.tensor("t", type, {static_cast<std::uint64_t>(info->block)},
                 std::string(static_cast<std::size_t>(info->block_bytes), '\0'));
    const std::string bytes = known.bytes();
    const auto f = File::open_bytes(span_of(bytes), "m.gguf");
    ASSERT_TRUE(f.ok()) << f.status().message();
    const Status status = (*f)->require_computable((*f)->tensors()[0]);
    EXPECT_EQ(status.ok(), info->computable);
    if (!info->computable)
      expect_parts(status.message(), {"'t'", std::to_string(type), info->name, "supported types: "});
  }
}

// A17: the other byte order and other versions are refused at once, by name.
TEST(GgufDamage, A17_EndiannessAndVersions) {
  TestWriter w = small();
  for (const std::uint32_t version : {0x03000000u, 0x02000000u, 0x01000000u}) {
    w.version = version;
    EXPECT_EQ(code_of(w.bytes()), Code::unsupported);
    expect_parts(error_of(w.bytes()), {"m.gguf", "big-endian file, not supported"});
  }
  for (const std::uint32_t version : {0u, 1u, 4u, 99u}) {
    w.version = version;
    EXPECT_EQ(code_of(w.bytes()), Code::unsupported);
    expect_parts(error_of(w.bytes()), {"version " + std::to_string(version) + " not supported", "expected 2 or 3"});
  }
  w.version = 2;
  EXPECT_EQ(error_of(w.bytes()), "");
  w.magic = "FUGG";
  expect_parts(error_of(w.bytes()), {"big-endian file, not supported"});
  w.magic = "PK\x03\x04";
  expect_parts(error_of(w.bytes()), {"magic is 'PK\\x03\\x04'", "GGUF"});
}

// A20: rows that are no multiple of the block are refused with the rule; legal odd widths open.
TEST(GgufDamage, A20_RowsMustHoldWholeBlocks) {
  struct Case {
    std::uint32_t type;
    std::string_view name;
    std::uint64_t cols, block;
    std::uint64_t bytes;  // 0: refused.
  };
  for (const Case& c :
       {Case{12, "Q4_K", 128, 256, 0}, Case{12, "Q4_K", 14464 + 64, 256, 0}, Case{17, "IQ2_XS", 128, 256, 0},
        Case{17, "IQ2_XS", 14528, 256, 0}, Case{12, "Q4_K", 1408, 256, 0}, Case{14, "Q6_K", 320, 256, 0},
        Case{8, "Q8_0", 48, 32, 0}, Case{8, "Q8_0", 1408, 32, 44 * 34}, Case{6, "Q5_0", 320, 32, 10 * 22},
        Case{20, "IQ4_NL", 96, 32, 3 * 18}, Case{12, "Q4_K", 512, 256, 2 * 144}}) {
    TestWriter w;
    w.tensor("blk.0.ffn_down.weight", c.type, {c.cols, 2}, std::string(2 * c.bytes, '\0'));
    const std::string bytes = w.bytes();
    if (c.bytes == 0) {
      expect_parts(error_of(bytes), {"'blk.0.ffn_down.weight'", "rows of " + std::to_string(c.cols), c.name,
                                     "multiple of " + std::to_string(c.block)});
    } else {
      EXPECT_EQ(error_of(bytes), "");
    }
  }
}

TEST(GgufDamage, EveryPrefixIsAnErrorOrWhole) {
  const std::string good = small().bytes();
  for (std::size_t n = 0; n < good.size(); ++n) {
    // In a block of its own, so that the address sanitizer sees a read past the end.
    const std::vector<std::byte> prefix(span_of(good).begin(), span_of(good).begin() + static_cast<std::ptrdiff_t>(n));
    const auto f = File::open_bytes(prefix, "m.gguf");
    ASSERT_FALSE(f.ok()) << n;
    EXPECT_FALSE(f.status().message().empty());
  }
}

// Whatever opens can be used whole: every name, value and tensor byte is where it is said to be.
void use(const File& f) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : f.metadata()) {
    for (const char c : key) sum += static_cast<unsigned char>(c);
    (void)f.get_uint(key);
    (void)f.get_floats(key);
    (void)f.get_ints(key);
    const auto strings = f.get_strings(key);
    if (!strings.ok()) continue;
    for (const std::string_view s : **strings) {
      for (const char c : s) sum += static_cast<unsigned char>(c);
    }
  }
  for (const Tensor& tensor : f.tensors()) {
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<std::uint64_t>(tensor.data[i]);
  }
  EXPECT_TRUE(f.fingerprint().ok());
  EXPECT_GT(sum + 1, 0u);
}

TEST(GgufDamage, RandomDamageNeverCrashes) {
  TestWriter w = small();
  const std::string good = w.bytes();
  std::mt19937 rng(1);
  int opened = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(span_of(good).begin(), span_of(good).end());
    const int edits = 1 + static_cast<int>(rng() % 3);
    for (int e = 0; e < edits; ++e) {
      const std::size_t at = rng() % w.at("data");
      switch (rng() % 4) {
        case 0: bytes[at] ^= static_cast<std::byte>(1u << (rng() % 8)); break;
        case 1: bytes[at] = static_cast<std::byte>(rng()); break;
        case 2: bytes[at] = static_cast<std::byte>(rng() % 2 ? 0xff : 0); break;
        default: {  // A whole number field's worth, near the edges of its range.
          const std::uint64_t v = (rng() % 2 ? ~std::uint64_t{0} : std::uint64_t{1} << (rng() % 64)) - rng() % 40;
          std::memcpy(bytes.data() + at, &v, std::min<std::size_t>(8, bytes.size() - at));
        }
      }
    }
    const auto f = File::open_bytes(bytes, "m.gguf");
    if (!f.ok()) continue;
    ++opened;
    use(**f);
  }
  // Most edits of names and values leave a readable file; if none did, the loop would prove nothing.
  EXPECT_GT(opened, 1000);
  EXPECT_LT(opened, 15000);
}

// A sparse terabyte with a claim to match: refused by the header's bound, with neither time nor memory spent.
TEST(GgufDamage, SparseTerabyteIsRefused) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "lode-sparse.gguf";
  TestWriter w = small();
  const std::string good = w.bytes();
  for (const std::string& bytes : {patched(good, w.at("value general.architecture"), std::uint64_t{1} << 39),
                                   patched(good, w.at("value tokens") + 4, std::uint64_t{1} << 35),
                                   patched(good, w.at("metadata count"), 1ull << 34)}) {
    TestWriter::write_file(path, bytes);
    std::error_code error;
    std::filesystem::resize_file(path, std::uint64_t{1} << 40, error);
    if (error) GTEST_SKIP() << "no sparse terabyte here: " << error.message();
    const Status status = File::open(path, {}).status();
    EXPECT_EQ(status.code(), Code::corrupt) << status.message();
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lode::gguf
