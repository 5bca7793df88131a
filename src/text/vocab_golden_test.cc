// Token ids against llama.cpp's, id for id: the vocabularies of ../shared/data/vocab and the two real models.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/test_data.h"
#include "text/tokenizer.h"

namespace lode::text {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> split_texts(const std::string& all, const std::string& separator) {
  std::vector<std::string> out;
  for (std::size_t pos = 0; pos != std::string::npos;) {
    const std::size_t end = all.find(separator, pos);
    out.push_back(all.substr(pos, end == std::string::npos ? end : end - pos));
    pos = end == std::string::npos ? end : end + separator.size();
  }
  return out;
}

std::vector<std::vector<TokenId>> read_ids(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::vector<TokenId>> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    out.emplace_back(std::istream_iterator<TokenId>(words), std::istream_iterator<TokenId>());
  }
  return out;
}

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& path) {
  auto file = gguf::File::open(path, {.metadata_only = true});
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  auto out = Tokenizer::load(**file);  // The file is closed on return: the tokenizer must not need it.
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? std::move(*out) : nullptr;
}

void check(const Tokenizer& tokenizer, const fs::path& stem, const std::string& separator,
           const EncodeOptions& options) {
  auto texts = split_texts(read_all(stem.string() + ".inp"), separator);
  const auto expected = read_ids(stem.string() + ".out");
  if (texts.back().empty() && texts.size() == expected.size() + 1) texts.pop_back();  // A separator ends the file.
  ASSERT_GT(texts.size(), 10u) << stem;
  ASSERT_EQ(expected.size(), texts.size()) << stem;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::vector<TokenId> want = expected[i];
    // The reference adds BOS to a text that starts with one; Lode never doubles it (B09).
    if (options.bos == EncodeOptions::Bos::model && want.size() > 1 && want[0] == tokenizer.bos() &&
        want[1] == want[0]) {
      want.erase(want.begin());
    }
    EXPECT_EQ(tokenizer.encode(texts[i], options), want) << stem << " text " << i << ": " << texts[i];
    if (options.special == EncodeOptions::Special::text) {
      EXPECT_EQ(tokenizer.decode(want, Tokenizer::Control::hide), texts[i]) << stem << " text " << i;
    }
  }
}

constexpr EncodeOptions kPlain{};
constexpr EncodeOptions kParse{EncodeOptions::Special::parse, EncodeOptions::Bos::none};
constexpr EncodeOptions kFull{EncodeOptions::Special::parse, EncodeOptions::Bos::model};

class VocabGolden : public testing::TestWithParam<const char*> {};

TEST_P(VocabGolden, IdsEqualTheReference) {
  const fs::path dir = test::shared_data() / "vocab";
  if (test::shared_data().empty()) GTEST_SKIP() << "../shared/data is absent";
  auto tokenizer = open_tokenizer(dir / (std::string(GetParam()) + ".gguf"));
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->warnings().empty()) << tokenizer->warnings()[0];
  check(*tokenizer, dir / GetParam(), "\n__ggml_vocab_test__\n", kPlain);
  check(*tokenizer, dir / (std::string(GetParam()) + ".special"), "\n__ggml_vocab_test__\n", kFull);
}

INSTANTIATE_TEST_SUITE_P(Shared, VocabGolden, testing::Values("llama-spm", "phi-3", "llama-bpe", "qwen2", "gemma-4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

struct RealModel {
  const char* file;
  const char* golden;
};
class RealModelGolden : public testing::TestWithParam<RealModel> {};

TEST_P(RealModelGolden, IdsEqualTheReference) {
  const fs::path model = test::models() / GetParam().file;
  if (!fs::exists(model)) GTEST_SKIP() << model << " is absent; scripts/setup.sh fetches it";
  auto tokenizer = open_tokenizer(model);
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->warnings().empty()) << tokenizer->warnings()[0];
  const fs::path data = fs::path(LODE_SOURCE_DIR) / "src/text/testdata";
  check(*tokenizer, data / GetParam().golden, "\n======== next text ========\n", kPlain);
  check(*tokenizer, data / (std::string(GetParam().golden) + ".special"), "\n======== next text ========\n", kParse);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelGolden,
                         testing::Values(RealModel{"gemma-3-270m-q4_k_m.gguf", "gemma3"},
                                         RealModel{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm"}),
                         [](const auto& info) { return std::string(info.param.golden); });

TEST(RealModels, RolesAreAsTheFilesSay) {
  const fs::path gemma = test::models() / "gemma-3-270m-q4_k_m.gguf";
  if (!fs::exists(gemma)) GTEST_SKIP() << gemma << " is absent; scripts/setup.sh fetches it";
  auto t = open_tokenizer(gemma);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->vocab_size(), 262144);
  EXPECT_EQ(t->bos(), 2);
  EXPECT_EQ(t->eos(), 1);
  EXPECT_TRUE(t->is_end_of_generation(1));
  EXPECT_TRUE(t->is_end_of_generation(106));   // <end_of_turn>, which no metadata key names.
  EXPECT_FALSE(t->is_end_of_generation(212));  // </s>, HTML.
  EXPECT_EQ(t->kind(212), TokenKind::user_defined);
  EXPECT_EQ(t->encode("<bos>a", kFull), t->encode("a", kFull));
  EXPECT_EQ(t->encode("", kFull), std::vector<TokenId>{2});
  // U+2581 is how this vocabulary writes a space.
  EXPECT_EQ(t->encode("a\u2581b", kPlain), t->encode("a b", kPlain));
}

}  // namespace
}  // namespace lode::text
