// See pretokenizer_rules.h. Patterns are the models' own, from their tokenizer.json files; which names mean which one,
// and what other tokenizer behaviour hangs on a name, is llama.cpp's (src/llama-vocab.cpp), whose converter writes the
// names. Rewritten, without a change of what they match, where the syntax of the models' regex libraries is not
// PCRE2's: set differences, \b, and alternatives of single characters, which as a set need no stack.
#include "text/pretokenizer_rules.h"

namespace lode::text {
namespace {

// What ends most rules: whitespace up to its last line end, whitespace but for the space before a word, whitespace.
#define LODE_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LODE_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LODE_LLAMA3(contractions, word, digits, symbols) \
  contractions R"([^\r\n\p{L}\p{N}]?)" word "+|" digits "|" symbols "|" LODE_SPACES
#define LODE_SYMBOLS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define LODE_O200K(before, head, tail, contractions, digits, symbols)                                  \
  before R"([^\r\n\p{L}\p{N}]?)" head "*" tail "+" contractions R"(|[^\r\n\p{L}\p{N}]?)" head "+" tail \
         "*" contractions "|" digits "|" symbols "|" LODE_SPACES
#define LODE_HEAD R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LODE_TAIL R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LODE_SYMBOLS_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)"
#define LODE_DEEPSEEK_WORDS                                                                  \
  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)" \
  R"( ?[\p{P}\p{S}]+[\r\n]*|)" LODE_SPACES
// Letters that have cases, as deepseek-llm lists them.
#define LODE_CASED_LETTERS                                                                                    \
  R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"      \
  R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"        \
  R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"         \
  R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})" \
  R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"  \
  R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"  \
  R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"  \
  R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"   \
  R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"   \
  R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"  \
  R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})" \
  R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"        \
  R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"

using Step = PreTokenizerStep;

// ---- Patterns that several rules share.

constexpr Step kDigit = {R"(\p{N})"};
constexpr Step kThreeDigits = {R"(\p{N}{1,3})"};
constexpr Step kLineEnds = {R"([\r\n])"};
constexpr Step kHanKana = {R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"};
constexpr Step kCjk = {R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)"};
constexpr Step kGpt2Words = {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                             match_gpt2};
constexpr Step kQwen2Words = {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"(\p{L})", R"(\p{N})", LODE_SYMBOLS), match_qwen2};
constexpr Step kGpt4oWords = {
    LODE_O200K("", LODE_HEAD, LODE_TAIL, LODE_CONTRACTIONS "?", R"(\p{N}{1,3})", LODE_SYMBOLS_SLASH), match_gpt4o};

// ---- Steps of each rule, in order.

constexpr Step kGpt2[] = {kGpt2Words};
constexpr Step kDigitsAlone[] = {kDigit, kGpt2Words};
constexpr Step kLlama3[] = {
    {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"(\p{L})", R"(\p{N}{1,3})", LODE_SYMBOLS), match_llama3}};
constexpr Step kQwen2[] = {kQwen2Words};
constexpr Step kQwen35[] = {
    {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"([\p{L}\p{M}])", R"(\p{N})", R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"),
     match_qwen35}};
constexpr Step kDeepseekLlm[] = {
    kLineEnds,
    {R"(\s?[)" LODE_CASED_LETTERS "]+"},
    {R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"},
    {R"(\s+\z)", match_trailing_space},
    kCjk,
    {R"(\p{N}+)"}};
constexpr Step kDeepseekCoder[] = {kLineEnds, {R"(\s?\p{L}+)"}, {R"(\s?\p{P}+)"}, kCjk, kDigit};
constexpr Step kDeepseekV3[] = {kThreeDigits, kHanKana, {LODE_DEEPSEEK_WORDS}};
constexpr Step kSpark[] = {kThreeDigits,
                           kHanKana,
                           {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
                            R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)"},
                           kDigit};
constexpr Step kFalcon[] = {{R"([\p{P}$+<=>^~|`]+)"}, kGpt2Words, {R"([0-9][0-9][0-9])"}};
constexpr Step kDefault[] = {{R"([\p{P}$+<=>^~|]+)"}, kGpt2Words, {R"(\p{N}+)"}, {R"([0-9][0-9][0-9])"}};
// Between these words stand the characters of the set, each run of them a word too.
#define LODE_BLOOM R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"
constexpr Step kBloom[] = {{LODE_BLOOM}};
constexpr Step kViking[] = {{LODE_BLOOM}, kDigit};
constexpr Step kTekken[] = {{LODE_O200K("", LODE_HEAD, LODE_TAIL, "", R"(\p{N})", LODE_SYMBOLS_SLASH), match_tekken}};
constexpr Step kGpt4o[] = {kGpt4oWords};
constexpr Step kKimi[] = {
    {LODE_O200K(R"(\p{sc:Han}+|)", R"((?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))",
                R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))", LODE_CONTRACTIONS "?", R"(\p{N}{1,3})", LODE_SYMBOLS),
     match_kimi}};
constexpr Step kSuperbpe[] = {{R"(\p{N}+)"}, {R"((?=(\d{3})+(?!\d)))", match_thousands}};
constexpr Step kSeedCoder[] = {
    {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"(\p{L})", R"(\p{N})", R"( ?[^\s\p{L}\p{N}\r\n]+)"), match_seed_coder}};
constexpr Step kUfakzeka[] = {{LODE_LLAMA3("", R"(\p{L})", R"(\p{N})", LODE_SYMBOLS), match_ufakzeka}};
constexpr Step kMinicpm5[] = {
    kThreeDigits, {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"(\p{L})", R"(\p{N}+)", LODE_SYMBOLS), match_minicpm5}};
constexpr Step kK2Horizon[] = {
    {LODE_LLAMA3(LODE_CONTRACTIONS "|", R"([\p{L}\p{M}\x{200C}\x{200D}])", R"(\p{N}{1,3})", LODE_SYMBOLS),
     match_k2_horizon}};
constexpr Step kExaoneMoe[] = {{LODE_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}|)"
                                                  R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}};
constexpr Step kJais2[] = {{LODE_CONTRACTIONS
                            R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" LODE_SYMBOLS R"(|\s*[\r\n]+|\s{512}(?!\S)|)"
                            R"(\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|)"
                            R"(\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"}};
constexpr Step kYoutu[] = {
    {R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)"
     R"([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
     R"(|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"},
    {LODE_O200K("", LODE_HEAD, LODE_TAIL, LODE_CONTRACTIONS "?", R"(\p{N})", LODE_SYMBOLS_SLASH), match_youtu}};
constexpr Step kChameleon[] = {{R"(<sentinel:[0-9]+>)"},    {R"(IMGIMG[A-I]{1,4}Z)"},
                               {R"([\t\n]|    |  )"},       kDigit,
                               {R"([\p{P}!-/:-@\[-`{-~])"}, kGpt2Words};
// \b after a digit, written out: no letter, mark, digit, connector or other word character of Oniguruma's follows.
constexpr Step kTinyAya[] = {
    {R"(\d{1,3}(?=(?:\d{3})*(?![\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\xB2\xB3\xB9\xBC-\xBE\x{24B6}-\x{24E9})"
     R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}])))",
     match_thousands_words},
    kGpt4oWords};
constexpr Step kAfmoe[] = {
    {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", match_number_groups},
    {R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F})"
     R"(\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F})"
     R"(\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)"},
    {LODE_DEEPSEEK_WORDS}};
constexpr Step kLines[] = {{R"(\n+)", match_lines}};
constexpr Step kLaguna[] = {{R"(\n+)", match_lines}, kQwen2Words};

// ---- Names.

using Name = std::string_view;
constexpr Name kDefaultNames[] = {"default"};
constexpr Name kGpt2Names[] = {"gpt-2",    "gpt-neox",        "phi-2",        "mpt",         "olmo",
                               "jais",     "trillion",        "exaone4",      "a.x-4.0",     "mellum",
                               "gigachat", "granite-docling", "jina-v1-en",   "jina-v2-de",  "jina-es",
                               "jina-de",  "jina-v2-es",      "jina-v2-code", "roberta-bpe", "modern-bert"};
constexpr Name kDigitsAloneNames[] = {"smollm",    "starcoder", "refact",     "command-r",
                                      "codeshell", "exaone",    "minerva-7b", "mellum2"};
constexpr Name kLlama3Names[] = {"llama-bpe", "llama3",   "llama-v3", "falcon3",     "falcon-h1",
                                 "pixtral",   "midm-2.0", "lfm2",     "jina-v5-nano"};
constexpr Name kLlama3MergedNames[] = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe", "glm5"};
constexpr Name kQwen2Names[] = {"qwen2",  "deepseek-r1-qwen", "kormo",  "f2llmv2",    "stablelm2",   "hunyuan",
                                "megrez", "solar-open",       "grok-2", "bailingmoe", "bailingmoe2", "llada-moe"};
constexpr Name kQwen35Names[] = {"qwen35"};
constexpr Name kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr Name kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr Name kDeepseekV3Names[] = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"};
constexpr Name kSparkNames[] = {"spark2_5"};
constexpr Name kFalconNames[] = {"falcon"};
constexpr Name kBloomNames[] = {"bloom", "poro-chat", "gpt3-finnish"};
constexpr Name kVikingNames[] = {"viking"};
constexpr Name kTekkenNames[] = {"tekken"};
constexpr Name kGpt4oNames[] = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"};
constexpr Name kGraniteNames[] = {"granite-embed-multi-97m"};
constexpr Name kKimiNames[] = {"kimi-k2"};
constexpr Name kSuperbpeNames[] = {"superbpe"};
constexpr Name kSeedCoderNames[] = {"seed-coder"};
constexpr Name kUfakzekaNames[] = {"ufakzeka"};
constexpr Name kMinicpm5Names[] = {"minicpm5"};
constexpr Name kK2HorizonNames[] = {"k2-horizon"};
constexpr Name kExaoneMoeNames[] = {"exaone-moe"};
constexpr Name kJais2Names[] = {"jais-2"};
constexpr Name kYoutuNames[] = {"youtu"};
constexpr Name kChameleonNames[] = {"chameleon"};
constexpr Name kTinyAyaNames[] = {"tiny_aya", "cohere2moe"};
constexpr Name kAfmoeNames[] = {"afmoe"};
constexpr Name kLagunaNames[] = {"laguna"};
constexpr Name kLinesNames[] = {"gemma4", "granite-embed-multi-311m", "mmbert"};
constexpr Name kSarvamNames[] = {"sarvam-moe"};

constexpr PreTokenizerRule kRules[] = {
    {kDefaultNames, kDefault},
    {kGpt2Names, kGpt2},
    {kDigitsAloneNames, kDigitsAlone, match_gpt2_digits_alone},
    {kLlama3Names, kLlama3, nullptr, WholeWords::taken, true},
    {kLlama3MergedNames, kLlama3},
    {kQwen2Names, kQwen2},
    {kQwen35Names, kQwen35},
    {kDeepseekLlmNames, kDeepseekLlm},
    {kDeepseekCoderNames, kDeepseekCoder},
    {kDeepseekV3Names, kDeepseekV3},
    {kSparkNames, kSpark},
    {kFalconNames, kFalcon},
    {kBloomNames, kBloom},
    {kVikingNames, kViking},
    {kTekkenNames, kTekken, nullptr, WholeWords::taken, true},
    {kGpt4oNames, kGpt4o},
    {kGraniteNames, kGpt4o, nullptr, WholeWords::taken},
    {kKimiNames, kKimi},
    {kSuperbpeNames, kSuperbpe},
    {kSeedCoderNames, kSeedCoder},
    {kUfakzekaNames, kUfakzeka},
    {kMinicpm5Names, kMinicpm5, nullptr, WholeWords::taken},
    {kK2HorizonNames, kK2Horizon},
    {kExaoneMoeNames, kExaoneMoe},
    {kJais2Names, kJais2},
    {kYoutuNames, kYoutu, nullptr, WholeWords::taken},
    {kChameleonNames, kChameleon, nullptr, WholeWords::merged, true},
    {kTinyAyaNames, kTinyAya},
    {kAfmoeNames, kAfmoe},
    {kLagunaNames, kLaguna},
    {kLinesNames, kLines, nullptr, WholeWords::lines_taken, true},
    {kSarvamNames, kLines},
};

}  // namespace

std::span<const PreTokenizerRule> pretokenizer_rules() {
  return kRules;
}

const PreTokenizerRule* pretokenizer_rule(std::string_view name) {
  for (const PreTokenizerRule& rule : kRules) {
    for (const std::string_view known : rule.names) {
      if (known == name) return &rule;
    }
  }
  return nullptr;
}

}  // namespace lode::text
