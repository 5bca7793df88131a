// Tests of sound files: reading, typed look-ups, split models, load modes, the fingerprint, real models.
#include "gguf/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "base/test_data.h"
#include "gguf/test_writer.h"

namespace lode::gguf {
namespace {

namespace fs = std::filesystem;

// A folder of its own, removed at the end.
class GgufTest : public ::testing::Test {
 protected:
  GgufTest() {
    std::string name = (fs::temp_directory_path() / "lode-gguf-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~GgufTest() override { fs::remove_all(dir_); }
  fs::path dir_;
};

std::span<const std::byte> span_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

TestWriter small() {
  TestWriter w;
  w.string("general.architecture", "llama").u32("llama.block_count", 1).f32("eps", 0.5f).boolean("flag", 1);
  w.i8("minus", -3).u64("big", ~0ull).i16("i16", -300).f64("pi", 3.25).u8("u8", 200).i64("i64", -5);
  w.strings("tokens", {"a", "", "bcd"}).array<float>("scores", 6, {1, 2, 3}).array<std::int32_t>("types", 5, {1, -2});
  w.array<std::uint8_t>("flags", 7, {1, 0, 1}).array<std::uint64_t>("huge", 10, {~0ull});
  w.array<std::uint32_t>("none", 4, {});
  w.tensor("one", 0, {3}, f32_bytes({1, 2, 3}));
  w.tensor("two", 8, {32, 2}, std::string(2 * 34, 'q'));
  w.tensor("three", 0, {2, 1, 1, 2}, f32_bytes({4, 5, 6, 7}));
  return w;
}

TEST_F(GgufTest, ReadsMetadataAndTensors) {
  TestWriter w = small();
  for (const std::uint32_t version : {2u, 3u}) {
    w.version = version;
    const std::string bytes = w.bytes();
    const auto opened = File::open_bytes(span_of(bytes), "m.gguf");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const File& f = **opened;
    EXPECT_EQ(f.version(), version);
    EXPECT_EQ(f.metadata().size(), 16u);
    EXPECT_EQ(f.metadata()[0].first, "general.architecture");
    EXPECT_EQ(**f.get_string("general.architecture"), "llama");
    EXPECT_EQ(**f.get_uint("llama.block_count"), 1u);
    EXPECT_EQ(**f.get_uint("big"), ~0ull);
    EXPECT_EQ(**f.get_uint("u8"), 200u);
    EXPECT_EQ(**f.get_float("eps"), 0.5);
    EXPECT_EQ(**f.get_float("pi"), 3.25);
    EXPECT_EQ(**f.get_float("minus"), -3.0);
    EXPECT_TRUE(**f.get_bool("flag"));
    EXPECT_FALSE(f.get_uint("absent")->has_value());
    const auto tokens = **f.get_strings("tokens");
    EXPECT_EQ(std::vector<std::string>(tokens.begin(), tokens.end()), (std::vector<std::string>{"a", "", "bcd"}));
    EXPECT_EQ(**f.get_floats("scores"), (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(**f.get_floats("types"), (std::vector<double>{1, -2}));
    EXPECT_EQ(**f.get_floats("eps"), (std::vector<double>{0.5}));
    EXPECT_EQ(**f.get_ints("types"), (std::vector<std::int64_t>{1, -2}));
    EXPECT_EQ(**f.get_ints("flags"), (std::vector<std::int64_t>{1, 0, 1}));
    EXPECT_EQ(**f.get_ints("i16"), (std::vector<std::int64_t>{-300}));
    EXPECT_EQ((**f.get_strings("none")).size(), 0u);

    ASSERT_EQ(f.tensors().size(), 3u);
    EXPECT_EQ(f.tensors()[2].name, "three");
    EXPECT_EQ(f.tensors()[2].shape, (std::vector<std::int64_t>{2, 1, 1, 2}));
    EXPECT_EQ(f.tensor("two")->bytes, 68u);
    EXPECT_EQ(f.tensor("two")->type, quant::DType::q8_0);
    EXPECT_EQ(f.tensor_bytes(), 12u + 68 + 16);
    EXPECT_EQ(f.tensor("nothing"), nullptr);
    float value = 0;
    std::memcpy(&value, f.tensor("three")->data + 12, 4);
    EXPECT_EQ(value, 7.0f);
    EXPECT_TRUE(f.require_computable(*f.tensor("one")).ok());
  }
}

TEST_F(GgufTest, WrongTypeNamesKeyExpectedAndFound) {
  const std::string bytes = small().bytes();
  const auto opened = File::open_bytes(span_of(bytes), "m.gguf");
  ASSERT_TRUE(opened.ok());
  const File& f = **opened;
  EXPECT_EQ(f.get_uint("minus").status().message(),
            "m.gguf: key 'minus': expected a whole number, 0 or more, found i8 -3; convert the model again");
  EXPECT_NE(f.get_uint("eps").status().message().find("found f32 0.5"), std::string::npos);
  EXPECT_NE(f.get_uint("flag").status().message().find("found boolean true"), std::string::npos);
  EXPECT_NE(f.get_string("tokens").status().message().find("an array of 3 string"), std::string::npos);
  EXPECT_FALSE(f.get_strings("scores").ok());
  EXPECT_FALSE(f.get_ints("scores").ok());
  EXPECT_FALSE(f.get_ints("huge").ok());
  EXPECT_FALSE(f.get_ints("big").ok());
  EXPECT_FALSE(f.get_floats("flags").ok());
  EXPECT_FALSE(f.get_floats("tokens").ok());
  EXPECT_FALSE(f.get_float("flag").ok());
  EXPECT_FALSE(f.get_bool("u8").ok());
  EXPECT_FALSE(f.get_string("u8").ok());
}

TEST_F(GgufTest, EveryLoadModeGivesTheSameBytes) {
  TestWriter w = small();
  std::string large(3 * 1024 * 1024 + 128, '\0');  // Over several direct pieces' boundaries and not a multiple of 4096.
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  w.tensor("large", 0, {large.size() / 4}, large);
  // The working folder as well: the temporary one may lie in memory, where O_DIRECT is refused or means nothing.
  for (const fs::path& path : {dir_ / "m.gguf", fs::current_path() / (dir_.filename().string() + ".tmp")}) {
    w.write(path);
    for (const LoadMode mode : {LoadMode::mmap, LoadMode::read, LoadMode::direct}) {
      const auto f = File::open(path, {.mode = mode});
      ASSERT_TRUE(f.ok()) << f.status().message();
      ASSERT_TRUE((*f)->loaded_as().has_value());
      EXPECT_EQ(mode == LoadMode::mmap, (*f)->loaded_as() == LoadMode::mmap);  // direct may have fallen back to read.
      const Tensor* t = (*f)->tensor("large");
      ASSERT_EQ(t->bytes, large.size());
      EXPECT_EQ(std::memcmp(t->data, large.data(), large.size()), 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t->data) % 32, 0u);
      EXPECT_EQ(std::memcmp((*f)->tensor("one")->data, f32_bytes({1, 2, 3}).data(), 12), 0);
    }
    fs::remove(path);
  }
}

TEST_F(GgufTest, MetadataOnlyLoadsNothingUntilAsked) {
  small().write(dir_ / "m.gguf");
  const auto f = File::open(dir_ / "m.gguf", {.metadata_only = true});
  ASSERT_TRUE(f.ok());
  EXPECT_FALSE((*f)->loaded_as());
  EXPECT_EQ((*f)->tensor("one")->data, nullptr);
  ASSERT_TRUE((*f)->load_tensors(LoadMode::read).ok());
  EXPECT_NE((*f)->tensor("one")->data, nullptr);
}

TEST_F(GgufTest, FileCutBetweenOpenAndLoadIsAnError) {
  small().write(dir_ / "m.gguf");
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read, LoadMode::direct}) {
    small().write(dir_ / "m.gguf");
    const auto f = File::open(dir_ / "m.gguf", {.metadata_only = true});
    ASSERT_TRUE(f.ok());
    fs::resize_file(dir_ / "m.gguf", (*f)->bytes_on_disk() - 8);
    const Status status = (*f)->load_tensors(mode);
    EXPECT_NE(status.message().find("was it cut"), std::string::npos) << status.message();
    EXPECT_FALSE((*f)->fingerprint().ok());
  }
}

TEST_F(GgufTest, PathsThatAreNoModelFiles) {
  const auto missing = File::open(dir_ / "none.gguf", {});
  EXPECT_EQ(missing.status().code(), Code::not_found);
  EXPECT_NE(missing.status().message().find("No such file"), std::string::npos);
  EXPECT_NE(File::open(dir_, {}).status().message().find("is a folder"), std::string::npos);
  EXPECT_NE(File::open("/dev/zero", {}).status().message().find("regular file"), std::string::npos);
  TestWriter::write_file(dir_ / "empty", "");
  EXPECT_NE(File::open(dir_ / "empty", {}).status().message().find("0 bytes"), std::string::npos);
  TestWriter::write_file(dir_ / "lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  EXPECT_NE(File::open(dir_ / "lfs", {}).status().message().find("Git LFS"), std::string::npos);
}

// ---- Split models

class SplitTest : public GgufTest {
 protected:
  // Part n (from 0) of three, one tensor each.
  static TestWriter part(std::uint16_t n, std::uint16_t count = 3, std::int32_t tensors = 3) {
    TestWriter w;
    if (n == 0) w.string("general.architecture", "llama");
    w.u16("split.no", n).u16("split.count", count).i32("split.tensors.count", tensors);
    w.tensor("t" + std::to_string(n), 0, {2}, f32_bytes({float(n), float(n) + 0.5f}));
    return w;
  }
  fs::path name(int n) { return dir_ / ("m-0000" + std::to_string(n + 1) + "-of-00003.gguf"); }
  void write_all() {
    for (int n = 0; n < 3; ++n) part(static_cast<std::uint16_t>(n)).write(name(n));
  }
};

TEST_F(SplitTest, FirstPartOpensAll) {
  write_all();
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read, LoadMode::direct}) {
    const auto f = File::open(name(0), {.mode = mode});
    ASSERT_TRUE(f.ok()) << f.status().message();
    EXPECT_EQ((*f)->parts().size(), 3u);
    EXPECT_EQ((*f)->path(), name(0));
    ASSERT_EQ((*f)->tensors().size(), 3u);
    for (std::uint32_t n = 0; n < 3; ++n) {
      const Tensor& t = (*f)->tensors()[n];
      EXPECT_EQ(t.part, n);
      float v = -1;
      std::memcpy(&v, t.data + 4, 4);
      EXPECT_EQ(v, static_cast<float>(n) + 0.5f);
    }
    EXPECT_EQ((*f)->bytes_on_disk(), fs::file_size(name(0)) + fs::file_size(name(1)) + fs::file_size(name(2)));
    EXPECT_TRUE((*f)->fingerprint().ok());
  }
}

TEST_F(SplitTest, LaterPartSaysWhichToOpen) {
  write_all();
  const Status status = File::open(name(1), {}).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("part 2 of 3"), std::string::npos);
  EXPECT_NE(status.message().find("open the first part, " + name(0).string()), std::string::npos) << status.message();
}

TEST_F(SplitTest, MissingPartIsNamed) {
  write_all();
  fs::remove(name(2));
  const Status status = File::open(name(0), {}).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_EQ(status.message().find(name(2).string() + ": part 3 of 3"), 0u) << status.message();
}

TEST_F(SplitTest, RenamedPartIsAnError) {
  write_all();
  fs::rename(name(0), dir_ / "model.gguf");
  EXPECT_NE(File::open(dir_ / "model.gguf", {}).status().message().find("-00001-of-00003.gguf"), std::string::npos);
}

TEST_F(SplitTest, PartOfAnotherModelIsAnError) {
  write_all();
  part(2).write(name(1));
  EXPECT_NE(File::open(name(0), {}).status().message().find("expected split.no 1"), std::string::npos);
  part(1, 4).write(name(1));
  EXPECT_NE(File::open(name(0), {}).status().message().find("split.count 3"), std::string::npos);
}

TEST_F(SplitTest, TensorCountMustMatch) {
  write_all();
  part(0, 3, 4).write(name(0));
  EXPECT_NE(File::open(name(0), {}).status().message().find("split.tensors.count is 4, the 3 parts hold 3"),
            std::string::npos);
}

TEST_F(SplitTest, TensorTwiceInDifferentPartsIsAnError) {
  write_all();
  part(1).tensor("t0", 0, {1}, f32_bytes({1})).write(name(1));
  const Status status = File::open(name(0), {}).status();
  EXPECT_NE(status.message().find(name(1).string() + ": tensor 't0' occurs twice"), std::string::npos)
      << status.message();
}

TEST_F(SplitTest, CutPartNamesItself) {
  write_all();
  fs::resize_file(name(2), fs::file_size(name(2)) - 1);
  const Status status = File::open(name(0), {.metadata_only = true}).status();
  EXPECT_NE(status.message().find(name(2).string() + ": tensor 't2': needs 8 bytes"), std::string::npos);
}

TEST_F(SplitTest, OnePartOfOneIsAnOrdinaryFile) {
  part(0, 1, 1).write(dir_ / "any.gguf");
  EXPECT_TRUE(File::open(dir_ / "any.gguf", {}).ok());
}

// ---- Fingerprint

std::string fingerprint_of(const std::string& bytes) {
  const auto f = File::open_bytes(span_of(bytes), "m.gguf");
  if (!f.ok()) return f.status().message();
  const auto hash = (*f)->fingerprint();
  return std::string(hash->begin(), hash->end());
}

TEST_F(GgufTest, FingerprintCoversHeaderAndSamples) {
  TestWriter w = small();
  w.tensor("large", 0, {256 * 1024}, std::string(1024 * 1024, 'x'));
  const std::string bytes = w.bytes();
  const std::string before = fingerprint_of(bytes);
  ASSERT_EQ(before.size(), 32u);
  const std::uint64_t large = w.at("data large");
  // First, middle and last sample of the large tensor, all of a small one, a metadata value: each counts.
  for (const std::uint64_t at : {large, large + 65535, large + 512 * 1024, large + 1024 * 1024 - 1,
                                 w.at("data two") + 40, w.at("value eps") + 1}) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_NE(fingerprint_of(other), before) << at;
  }
  // Bytes between the samples do not: at most 192 KiB a tensor are read.
  std::string between = bytes;
  between[large + 128 * 1024] = 'y';
  EXPECT_EQ(fingerprint_of(between), before);
  // The hash of all bytes is what sees them.
  const auto content_of = [](const std::string& b) {
    return (*File::open_bytes(span_of(b), "m.gguf"))->content_hash().value();
  };
  EXPECT_NE(content_of(between), content_of(bytes));
  // From disk and in every mode the same.
  w.write(dir_ / "m.gguf");
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read, LoadMode::direct}) {
    const auto f = File::open(dir_ / "m.gguf", {.mode = mode});
    ASSERT_TRUE(f.ok());
    const auto hash = (*f)->fingerprint();
    ASSERT_TRUE(hash.ok());
    EXPECT_EQ(std::string(hash->begin(), hash->end()), before);
    EXPECT_EQ((*f)->content_hash().value(), content_of(bytes));
    EXPECT_EQ((*f)->stamps()->size(), 1u);
  }
}

// ---- Speed and real files

// A08: the metadata of a file with 256k vocabulary strings and 300k merges is parsed in linear time.
TEST_F(GgufTest, A08_LargeVocabularyOpensFast) {
  TestWriter w;
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 256 * 1024; ++i) tokens.push_back("token" + std::to_string(i * 7919));
  for (int i = 0; i < 300 * 1000; ++i) merges.push_back("mer " + std::to_string(i));
  w.strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", merges);
  w.array<float>("tokenizer.ggml.scores", 6, std::vector<float>(tokens.size(), 1.5f));
  w.array<std::int32_t>("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>(tokens.size(), 1));
  w.write(dir_ / "vocab.gguf");
  const auto start = std::chrono::steady_clock::now();
  const auto f = File::open(dir_ / "vocab.gguf", {.metadata_only = true});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(f.ok()) << f.status().message();
  EXPECT_EQ((**(*f)->get_strings("tokenizer.ggml.tokens")).back(), tokens.back());
  EXPECT_EQ((**(*f)->get_strings("tokenizer.ggml.merges")).back(), merges.back());
  RecordProperty("open_ms", static_cast<int>(took.count() * 1000));
  EXPECT_LT(took.count(), 0.5) << "about 0.02 s on an idle core";
}

TEST_F(GgufTest, SharedDataFilesOpen) {
  const fs::path data = test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent (set LODE_TEST_DATA)";
  int opened = 0;
  for (const char* folder : {"arch", "quant", "vocab", "models"}) {
    for (const auto& entry : fs::directory_iterator(data / folder)) {
      if (entry.path().extension() != ".gguf") continue;
      const auto f = File::open(entry.path(), {});
      EXPECT_TRUE(f.ok()) << f.status().message();
      if (!f.ok()) continue;
      EXPECT_TRUE((*f)->get_string("general.architecture")->has_value()) << entry.path();
      ++opened;
    }
  }
  EXPECT_GT(opened, 40);
}

TEST_F(GgufTest, RealModelOpens) {
  const fs::path path = test::models() / "gemma-3-270m-q4_k_m.gguf";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent: run scripts/setup.sh";
  const auto f = File::open(path, {});
  ASSERT_TRUE(f.ok()) << f.status().message();
  EXPECT_EQ((*f)->tensors().size(), 236u);
  EXPECT_EQ((**(*f)->get_strings("tokenizer.ggml.tokens")).size(), 262144u);
  EXPECT_EQ((*f)->tensors().front().offset, 6525120u);
  EXPECT_EQ(**(*f)->get_uint("gemma3.attention.sliding_window"), 512u);
}

}  // namespace
}  // namespace lode::gguf
