#include "quant/types.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/test_data.h"

namespace lode::quant {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
T at(const std::string& bytes, std::size_t offset) {
  T v;
  if (offset + sizeof(T) > bytes.size()) throw std::out_of_range("golden file is short");
  std::memcpy(&v, bytes.data() + offset, sizeof(T));
  return v;
}

// The arrays of an .npz whose members are deflated .npy files of float32. Sizes come from the central directory.
std::map<std::string, std::vector<float>> read_npz(const std::filesystem::path& path) {
  const std::string zip = read_file(path);
  std::map<std::string, std::vector<float>> arrays;
  std::size_t end = zip.size() - 22;
  while (at<std::uint32_t>(zip, end) != 0x06054b50u) --end;
  std::size_t entry = at<std::uint32_t>(zip, end + 16);
  for (int left = at<std::uint16_t>(zip, end + 10); left > 0; --left) {
    const auto packed = at<std::uint32_t>(zip, entry + 20), size = at<std::uint32_t>(zip, entry + 24);
    const auto name_size = at<std::uint16_t>(zip, entry + 28);
    const std::string name = zip.substr(entry + 46, name_size);
    const std::size_t local = at<std::uint32_t>(zip, entry + 42);
    const std::size_t data = local + 30 + at<std::uint16_t>(zip, local + 26) + at<std::uint16_t>(zip, local + 28);
    std::string npy(size, '\0');
    z_stream z{};
    inflateInit2(&z, -15);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zip.data() + data));
    z.avail_in = packed;
    z.next_out = reinterpret_cast<Bytef*>(npy.data());
    z.avail_out = size;
    EXPECT_EQ(inflate(&z, Z_FINISH), Z_STREAM_END) << name;
    inflateEnd(&z);
    const std::size_t header = 10 + at<std::uint16_t>(npy, 8);
    EXPECT_NE(npy.find("'<f4'"), std::string::npos);
    std::vector<float> values((npy.size() - header) / 4);
    std::memcpy(values.data(), npy.data() + header, values.size() * 4);
    arrays[name.substr(0, name.size() - 4)] = std::move(values);
    entry += 46 + name_size + at<std::uint16_t>(zip, entry + 30) + at<std::uint16_t>(zip, entry + 32);
  }
  return arrays;
}

struct Tensor {
  std::uint32_t type;
  std::int64_t values;
  std::size_t offset;  // From the start of the file.
};

// Just enough of GGUF to find tensors, so that these tests depend on no other room.
class Locator {
 public:
  explicit Locator(const std::string& file) : file_(file) {
    const auto tensors = (pos_ = 8, take<std::uint64_t>()), keys = take<std::uint64_t>();
    for (std::uint64_t i = 0; i < keys; ++i) {
      text();
      skip(take<std::uint32_t>());
    }
    for (std::uint64_t i = 0; i < tensors; ++i) {
      const std::string name = text();
      Tensor t{0, 1, 0};
      for (auto dims = take<std::uint32_t>(); dims > 0; --dims) t.values *= take<std::int64_t>();
      t.type = take<std::uint32_t>();
      t.offset = take<std::uint64_t>();
      tensors_[name] = t;
    }
    const std::size_t data = (pos_ + 31) / 32 * 32;
    for (auto& [name, t] : tensors_) t.offset += data;
  }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  template <typename T>
  T take() {
    const T v = at<T>(file_, pos_);
    pos_ += sizeof(T);
    return v;
  }
  std::string text() {
    const auto size = take<std::uint64_t>();
    std::string s = file_.substr(pos_, size);
    pos_ += size;
    return s;
  }
  void skip(std::uint32_t type) {
    static constexpr int kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      text();
    } else if (type == 9) {
      const auto item = take<std::uint32_t>();
      for (auto n = take<std::uint64_t>(); n > 0; --n) skip(item);
    } else {
      pos_ += kSizes[type];
    }
  }

  const std::string& file_;
  std::size_t pos_ = 0;
  std::map<std::string, Tensor> tensors_;
};

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, DequantizesExactly) {
  const auto folder = test::shared_data() / "quant";
  const std::string name = GetParam();
  if (test::shared_data().empty() || !std::filesystem::exists(folder / (name + ".gguf")))
    GTEST_SKIP() << "no golden file quant/" << name << ".gguf in the shared data folder";
  const std::string file = read_file(folder / (name + ".gguf"));
  const Locator locator(file);
  const auto expected = read_npz(folder / (name + ".dequant.npz"));
  ASSERT_EQ(expected.size(), 2u);
  for (const auto& [tensor, want] : expected) {
    const Tensor t = locator.tensors().at(tensor);
    const TypeInfo* type = find_type(t.type);
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->name, name);
    ASSERT_EQ(static_cast<std::size_t>(t.values), want.size());
    std::vector<float> got(want.size());
    dequantize_row(type->type, reinterpret_cast<const std::byte*>(file.data()) + t.offset, got.data(), t.values);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
          << tensor << " value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden,
                         ::testing::Values("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
                                           "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XXS",
                                           "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "MXFP4", "NVFP4", "Q1_0", "Q2_0",
                                           "TQ1_0", "TQ2_0"),
                         [](const auto& p) { return std::string(p.param); });

// Every tensor of every golden file begins where the one before ends, rounded up to 32: the sizes of all types hold.
TEST(Types, SizesMatchEveryGoldenFile) {
  const auto folder = test::shared_data() / "quant";
  if (test::shared_data().empty()) GTEST_SKIP() << "no shared data folder";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string file = read_file(entry.path());
    const Locator locator(file);
    std::map<std::size_t, Tensor> by_offset;
    for (const auto& [name, t] : locator.tensors()) by_offset[t.offset] = t;
    for (auto it = by_offset.begin(); std::next(it) != by_offset.end(); ++it) {
      const TypeInfo* type = find_type(it->second.type);
      ASSERT_NE(type, nullptr) << entry.path();
      const auto bytes = static_cast<std::size_t>(row_bytes(type->type, it->second.values));
      EXPECT_EQ(std::next(it)->first - it->first, (bytes + 31) / 32 * 32) << entry.path() << " " << type->name;
    }
    ++files;
  }
  EXPECT_GE(files, 28);
}

TEST(Types, NamesAndUnknownNumbers) {
  EXPECT_EQ(find_type(4), nullptr);
  EXPECT_EQ(find_type(0xffffffffu), nullptr);
  EXPECT_EQ(info(DType::q4_k).name, "Q4_K");
  EXPECT_EQ(row_bytes(DType::q5_0, 640), 440);
  EXPECT_NE(computable_names().find("Q6_K"), std::string_view::npos);
  EXPECT_NE(computable_names().find("IQ1_S"), std::string_view::npos);
  EXPECT_EQ(computable_names().find("F64"), std::string_view::npos);
}

TEST(Half, EveryHalfRoundTrips) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<std::uint16_t>(h));
    const int exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(f));
      EXPECT_EQ(f32_to_f16(f), h | 0x200u);
      continue;
    }
    const double magnitude = exponent == 31  ? INFINITY
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<double>(f), (h & 0x8000u) ? -magnitude : magnitude) << h;
    ASSERT_EQ(f32_to_f16(f), h);
  }
}

TEST(Half, RoundsToNearestEven) {
  // Between two neighbouring halves: below, at and above the middle. The middle goes to the even one.
  for (std::uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = f16_to_f32(static_cast<std::uint16_t>(h)), high = f16_to_f32(static_cast<std::uint16_t>(h + 1));
    const float middle = (low + high) / 2;  // Exact: 11 significant bits and one more.
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(f32_to_f16(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, INFINITY)), h + 1);
    ASSERT_EQ(f32_to_f16(-middle), (h % 2 == 0 ? h : h + 1) | 0x8000u);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
}

}  // namespace
}  // namespace lode::quant
