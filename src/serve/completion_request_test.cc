#include "serve/completion_request.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "serve/fake_engine.h"

namespace lode::serve {
namespace {

std::variant<CompletionRequest, ApiError> parse(const std::string& text) {
  static const ByteTokenizer tokenizer;
  static text::grammar::GrammarStore grammars(tokenizer);
  auto body = parse_json(text);
  EXPECT_TRUE(body.ok()) << text;
  return parse_completion_request(*body, grammars, 1000);
}

CompletionRequest good(const std::string& text) {
  auto parsed = parse(text);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << text << ": " << error->message;
    return {};
  }
  return std::get<CompletionRequest>(std::move(parsed));
}

TEST(CompletionRequestTest, Defaults) {
  const auto r = good(R"({"prompt":"ab"})");
  ASSERT_EQ(r.prompts.size(), 1u);
  EXPECT_EQ(r.prompts[0], (std::vector<TokenId>{ByteTokenizer::kBos, 'a', 'b'}));
  EXPECT_EQ(r.shared.max_tokens, -1);
  EXPECT_EQ(r.shared.sampling.temperature, 1.0f);
  EXPECT_EQ(r.shared.top_logprobs, -1);
  EXPECT_EQ(r.n, 1);
  EXPECT_EQ(r.delivery, Delivery::whole);
}

TEST(CompletionRequestTest, EveryFieldArrives) {
  const auto r =
      good(R"({"model":"any","prompt":"a","max_tokens":7,"temperature":0.25,"top_p":0.5,"top_k":3,"min_p":0.125,
    "seed":18446744073709551615,"stop":["x",""],"n":2,"best_of":2,"echo":true,"logprobs":4,"stream":true,
    "stream_options":{"include_usage":true},"presence_penalty":0.5,"frequency_penalty":-0.5,"repeat_penalty":1.5,
    "repeat_last_n":9,"logit_bias":{"5":1.5,"6":-100},"ignore_eos":true,"cache_salt":"s","return_progress":true,
    "cache_prompt":false,"id_slot":3,"user":"u","suffix":"","response_format":{"type":"text"},"unknown":{"x":[1]}})");
  const auto& s = r.shared.sampling;
  EXPECT_EQ(r.shared.max_tokens, 7);
  EXPECT_EQ(s.temperature, 0.25f);
  EXPECT_EQ(s.top_p, 0.5f);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  EXPECT_EQ(r.shared.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.echo, Echo::yes);
  EXPECT_EQ(r.shared.top_logprobs, 4);
  EXPECT_EQ(r.delivery, Delivery::stream);
  EXPECT_EQ(r.stream_usage, StreamUsage::yes);
  EXPECT_EQ(s.presence_penalty, 0.5f);
  EXPECT_EQ(s.frequency_penalty, -0.5f);
  EXPECT_EQ(s.repeat_penalty, 1.5f);
  EXPECT_EQ(s.penalty_last_n, 9);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, 1.5f}, {6, -100.0f}}));
  EXPECT_EQ(r.shared.end_tokens, engine::Request::EndTokens::ignore);
  EXPECT_EQ(r.shared.salt, "s");
  EXPECT_EQ(r.shared.progress, engine::Request::Progress::yes);
}

TEST(CompletionRequestTest, SamplersOfLlamaServerAndVllm) {
  const auto r = good(R"({"prompt":"a","typical_p":0.5,"xtc_probability":0.25,"xtc_threshold":0.5,"dry_multiplier":0.75,
    "dry_base":2,"dry_allowed_length":3,"dry_penalty_last_n":9,"dry_sequence_breakers":["x","yz"],"min_tokens":4,
    "stop_token_ids":[9,5]})");
  const auto& s = r.shared.sampling;
  EXPECT_EQ(s.typical_p, 0.5f);
  EXPECT_EQ(s.xtc_probability, 0.25f);
  EXPECT_EQ(s.xtc_threshold, 0.5f);
  EXPECT_EQ(s.dry_multiplier, 0.75f);
  EXPECT_EQ(s.dry_base, 2.0f);
  EXPECT_EQ(s.dry_allowed_length, 3);
  EXPECT_EQ(s.dry_penalty_last_n, 9);
  EXPECT_EQ(s.dry_breakers, (std::vector<TokenId>{'x', ByteTokenizer::kBos, ByteTokenizer::kEos}));
  EXPECT_EQ(r.shared.min_tokens, 4);
  EXPECT_EQ(r.shared.stop_tokens, (std::vector<TokenId>{5, 9}));
  const auto usual = good(R"({"prompt":"a","dry_multiplier":1})").shared.sampling.dry_breakers;
  EXPECT_EQ(usual, (std::vector<TokenId>{'\n', '"', '*', ':', ByteTokenizer::kBos, ByteTokenizer::kEos}));
  EXPECT_TRUE(good(R"({"prompt":"a"})").shared.sampling.dry_breakers.empty());  // Not worth a look while it is off.
}

TEST(CompletionRequestTest, NullIsAbsent) {
  const auto r =
      good(R"({"prompt":"a","max_tokens":null,"stop":null,"logprobs":null,"seed":null,"logit_bias":null,"suffix":null,
    "n":null,"best_of":null,"stream":null,"stream_options":null,"temperature":null,"top_p":null})");
  EXPECT_EQ(r.shared.max_tokens, -1);
  EXPECT_EQ(r.shared.top_logprobs, -1);
}

TEST(CompletionRequestTest, PromptsOfEveryShape) {
  EXPECT_EQ(good(R"({"prompt":["a","b"]})").prompts.size(), 2u);
  EXPECT_EQ(good(R"({"prompt":[97,98]})").prompts, (std::vector<std::vector<TokenId>>{{97, 98}}));
  EXPECT_EQ(good(R"({"prompt":[[97],[98,99]]})").prompts, (std::vector<std::vector<TokenId>>{{97}, {98, 99}}));
  // Control tokens that the text spells out become ids, as in llama-server.
  EXPECT_EQ(good(R"({"prompt":"a</s>"})").prompts[0],
            (std::vector<TokenId>{ByteTokenizer::kBos, 'a', ByteTokenizer::kEos}));
}

TEST(CompletionRequestTest, D16_WrongTypesNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("stop":5)", "stop"},
      {R"("stop":["a",1])", "stop"},
      {R"("stop":{"a":1})", "stop"},
      {R"("top_k":0.01)", "top_k"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":-1)", "temperature"},
      {R"("model":5)", "model"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":"x")", "seed"},
      {R"("stream":"false")", "stream"},
      {R"("echo":1)", "echo"},
      {R"("max_tokens":"many")", "max_tokens"},
      {R"("max_tokens":-2)", "max_tokens"},
      {R"("max_tokens":1e12)", "max_tokens"},
      {R"("n":0)", "n"},
      {R"("n":17)", "n"},
      {R"("best_of":3)", "best_of"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("logprobs":-1)", "logprobs"},
      {R"("top_p":1.5)", "top_p"},
      {R"("min_p":[])", "min_p"},
      {R"("stream_options":true)", "stream_options"},
      {R"("stream_options":{"include_usage":"yes"})", "stream_options.include_usage"},
      {R"("logit_bias":5)", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"999":1})", "logit_bias"},
      {R"("logit_bias":{"5":"x"})", "logit_bias"},
      {R"("logit_bias":[[5]])", "logit_bias"},
      {R"("logit_bias":[[5,true]])", "logit_bias"},
      {R"("logit_bias":[[-1,1]])", "logit_bias"},
      {R"("cache_salt":7)", "cache_salt"},
      {R"("ignore_eos":"no")", "ignore_eos"},
      {R"("suffix":"tail")", "suffix"},
      {R"("grammar":"root ::= x")", "grammar"},
      {R"("grammar":5)", "grammar"},
      {R"("json_schema":{"type":"nothing"})", "json_schema"},
      {R"("response_format":"json")", "response_format"},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex"},
      {R"("guided_json":"{")", "guided_json"},
      {R"("guided_choice":["a",5])", "guided_choice"},
      {R"("guided_regex":"(")", "guided_regex"},
      {R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs.structural_tag"},
      {R"("presence_penalty":1e39)", "presence_penalty"},
      {R"("repeat_penalty":0)", "repeat_penalty"},
      {R"("repeat_last_n":-2)", "repeat_last_n"},
      {R"("typical_p":2)", "typical_p"},
      {R"("xtc_probability":"x")", "xtc_probability"},
      {R"("xtc_threshold":-1)", "xtc_threshold"},
      {R"("dry_multiplier":-1)", "dry_multiplier"},
      {R"("dry_base":[])", "dry_base"},
      {R"("dry_allowed_length":-1)", "dry_allowed_length"},
      {R"("dry_penalty_last_n":-2)", "dry_penalty_last_n"},
      {R"("dry_sequence_breakers":"x")", "dry_sequence_breakers"},
      {R"("dry_sequence_breakers":[""])", "dry_sequence_breakers"},
      {R"("dry_sequence_breakers":[1])", "dry_sequence_breakers"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("stop_token_ids":[999])", "stop_token_ids"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
  };
  for (const auto& [field, param] : cases) {
    const auto parsed = parse(std::string(R"({"prompt":"a",)") + field + "}");
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << field;
    EXPECT_EQ(error->http_status, 400) << field;
    EXPECT_EQ(error->param, param) << field;
    EXPECT_NE(error->message.find(param), std::string::npos) << error->message;
  }
  for (const char* body :
       {R"({})", R"({"prompt":5})", R"({"prompt":[]})", R"({"prompt":{"a":1}})", R"({"prompt":[1,"a"]})",
        R"({"prompt":["a",1]})", R"({"prompt":[[]]})", R"({"prompt":[258]})", R"({"prompt":[-1]})",
        R"({"prompt":[1.5]})", R"({"prompt":[[1],"a"]})", R"({"prompt":null})", R"({"prompt":[[1],[[2]]]})"}) {
    const auto parsed = parse(body);
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << body;
    EXPECT_EQ(error->param, "prompt") << body;
  }
}

TEST(CompletionRequestTest, WhatTheAnswerMayBeBecomesAConstraint) {
  for (const char* field :
       {R"("response_format":{"type":"json_object"})",
        R"("response_format":{"type":"json_object","schema":{"type":"null"}})",
        R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}})",
        R"("response_format":{"type":"json_schema","schema":{"type":"null"}})", R"("json_schema":{"type":"object"})",
        R"("grammar":"root ::= \"a\"")", R"("guided_json":{"type":"null"})", R"("guided_json":"{\"type\":\"null\"}")",
        R"("guided_regex":"a+")", R"("guided_grammar":"root ::= \"a\"")", R"("guided_choice":["a","b"])",
        R"("structured_outputs":{"choice":["a"],"json":null})", R"("structured_outputs":{"json_object":true})"})
    EXPECT_NE(good(std::string(R"({"prompt":"a",)") + field + "}").shared.constraint, nullptr) << field;
  for (const char* field :
       {R"("response_format":{"type":"text"})", R"("response_format":null)", R"("grammar":"")", R"("guided_choice":[])",
        R"("guided_json":null)", R"("structured_outputs":{})", R"("structured_outputs":{"json_object":false})"})
    EXPECT_EQ(good(std::string(R"({"prompt":"a",)") + field + "}").shared.constraint, nullptr) << field;
}

TEST(CompletionRequestTest, FieldsThatWouldChangeTheAnswerAreRefusedUnlessOff) {
  for (const auto& [name, on, off] :
       std::initializer_list<std::array<std::string, 3>>{{"mirostat", "2", "0"},
                                                         {"dynatemp_range", "0.5", "0"},
                                                         {"bad_words", "[\"a\"]", "[]"},
                                                         {"tools", "[{}]", "[]"},
                                                         {"top_n_sigma", "1", "-1"},
                                                         {"samplers", "[\"top_k\"]", "[]"},
                                                         {"skip_special_tokens", "false", "true"},
                                                         {"t_max_predict_ms", "100", "-1"},
                                                         {"use_beam_search", "true", "false"}}) {
    const auto parsed = parse(R"({"prompt":"a",")" + name + "\":" + on + "}");
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << name;
    EXPECT_EQ(error->param, name);
    good(R"({"prompt":"a",")" + name + "\":" + off + "}");
  }
  EXPECT_TRUE(std::holds_alternative<ApiError>(parse(R"({"prompt":"a","echo":true,"logprobs":1,"max_tokens":0})")));
  good(R"({"prompt":"a","echo":true,"max_tokens":0})");
}

TEST(CompletionRequestTest, D05_EmptyStopStringsAreIgnored) {
  for (const char* stop : {R"("")", R"([""])", "[]", "null"}) {
    EXPECT_TRUE(good(std::string(R"({"prompt":"a","stop":)") + stop + "}").shared.stop.empty()) << stop;
  }
  EXPECT_EQ(good(R"({"prompt":"a","stop":["1","2","3","4","5"]})").shared.stop.size(), 5u);
  EXPECT_TRUE(std::holds_alternative<ApiError>(
      parse(R"({"prompt":"a","stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})")));
}

TEST(CompletionRequestTest, D18_TinyValuesPass) {
  const auto r = good(R"({"prompt":"a","temperature":1e-40,"top_p":0.0001,"presence_penalty":1e30})");
  EXPECT_LE(r.shared.sampling.temperature, 1e-4f);
  EXPECT_EQ(r.shared.sampling.top_p, 0.0001f);
}

TEST(CompletionRequestTest, SeedIsDrawnWhenAbsentOrNegative) {
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 8; ++i) {
    seeds.insert(good(R"({"prompt":"a"})").shared.sampling.seed);
    seeds.insert(good(R"({"prompt":"a","seed":-1})").shared.sampling.seed);
  }
  EXPECT_GT(seeds.size(), 12u);
  EXPECT_EQ(good(R"({"prompt":"a","seed":7.0})").shared.sampling.seed, 7u);
}

TEST(CompletionRequestTest, LlamaServersNames) {
  EXPECT_EQ(good(R"({"prompt":"a","n_predict":5})").shared.max_tokens, 5);
  EXPECT_EQ(good(R"({"prompt":"a","n_predict":5,"max_tokens":6})").shared.max_tokens, 6);
  EXPECT_EQ(good(R"({"prompt":"a","max_completion_tokens":4})").shared.max_tokens, 4);
  EXPECT_EQ(good(R"({"prompt":"a","n_probs":0})").shared.top_logprobs, -1);
  EXPECT_EQ(good(R"({"prompt":"a","n_probs":3})").shared.top_logprobs, 3);
  EXPECT_EQ(good(R"({"prompt":"a","repeat_last_n":-1})").shared.sampling.penalty_last_n, 1000);
  const auto bias = good(R"({"prompt":"a","logit_bias":[[5,2],["hi",-1],[6,false]]})").shared.sampling.logit_bias;
  ASSERT_EQ(bias.size(), 4u);
  EXPECT_EQ(bias[1], (std::pair<TokenId, float>{'h', -1.0f}));
  EXPECT_LT(bias[3].second, -1e6f);
}

TEST(CompletionRequestTest, BoundsTheNumberOfChoices) {
  std::string prompts = "\"a\"";
  for (int i = 1; i < 20; ++i) prompts += ",\"a\"";
  EXPECT_TRUE(std::holds_alternative<ApiError>(parse(R"({"n":16,"prompt":[)" + prompts + "]}")));
  EXPECT_EQ(good(R"({"n":6,"prompt":[)" + prompts + "]}").prompts.size(), 20u);
}

}  // namespace
}  // namespace lode::serve
