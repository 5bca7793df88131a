// The command line as a user types it, in this process: what is printed and the exit code.
#include "cli/cli.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/test_data.h"
#include "serve/json.h"

namespace lode::cli {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
};

Outcome lode(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"lode"};
  for (const auto& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = cli::main(static_cast<int>(argv.size()), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// One line on stderr that begins with "lode: ".
void expect_one_line(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("lode: ")) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
}

class Scratch {
 public:
  Scratch() : path_(fs::temp_directory_path() / ("lode_cli_test_" + std::to_string(std::rand()))) {
    fs::create_directories(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

TEST(CliTest, VersionAndHelp) {
  EXPECT_EQ(lode({"--version"}).code, 0);
  EXPECT_TRUE(lode({"--version"}).out.starts_with("lode "));
  for (const char* command : {"run", "serve", "bench", "info", "plan", "eval", "tokenize", "template"}) {
    const Outcome help = lode({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Usage: lode " + std::string(command)), std::string::npos) << help.out;
    EXPECT_NE(lode({"--help"}).out.find(command), std::string::npos);
  }
}

TEST(CliTest, WrongUsageIsTwo) {
  expect_one_line(lode({}), 2);
  expect_one_line(lode({"fly"}), 2);
  expect_one_line(lode({"info"}), 2);
  expect_one_line(lode({"serve"}), 2);
  expect_one_line(lode({"info", "a.gguf", "--what"}), 2);
  expect_one_line(lode({"serve", "a.gguf", "--port", "70000"}), 2);
  expect_one_line(lode({"serve", "a.gguf", "-c", "-5"}), 2);
  expect_one_line(lode({"serve", "a.gguf", "-ctk", "q4"}), 2);
  expect_one_line(lode({"serve", "a.gguf", "--memory", "much"}), 2);
  expect_one_line(lode({"serve", "a.gguf", "--load-mode", "magic"}), 2);
  expect_one_line(lode({"eval", "a.gguf"}), 2);
  expect_one_line(lode({"run", "a.gguf", "--json"}), 2);
}

TEST(CliTest, ServeOfSeveralModelsMissesOneAtOnce) {
  const Outcome outcome = lode({"serve", "nowhere.gguf", "b.gguf"});
  expect_one_line(outcome, 1);
  EXPECT_NE(outcome.err.find("nowhere.gguf: no such model file"), std::string::npos) << outcome.err;
}

TEST(CliTest, FlagsOfLaterVersionsAreRefusedByName) {
  const std::pair<const char*, const char*> flags[] = {
      {"-ngl", "20"}, {"--n-cpu-moe", "3"}, {"--moe-cache-mib", "100"}, {"--draft", "ngram"}, {"--fit-target", "1"}};
  for (const auto& [flag, value] : flags) {
    const Outcome outcome = lode({"serve", "nowhere.gguf", flag, value});
    expect_one_line(outcome, 2);
    EXPECT_NE(outcome.err.find(flag), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("not in this version"), std::string::npos) << outcome.err;
  }
  // What asks for nothing more than is done anyway passes, and the file is the next thing that is wrong.
  expect_one_line(lode({"run",
                        "nowhere.gguf",
                        "-p",
                        "x",
                        "-ngl",
                        "0",
                        "--vram",
                        "0",
                        "--draft",
                        "off",
                        "--deterministic",
                        "-np",
                        "1",
                        "-ub",
                        "64",
                        "-ctk",
                        "f16",
                        "-ctv",
                        "f32",
                        "-t",
                        "1"}),
                  1);
}

TEST(CliTest, FilesThatAreNoModelsGiveOneLine) {
  Scratch scratch;
  for (const char* command : {"info", "tokenize", "plan"}) {
    expect_one_line(lode({command, "nowhere.gguf"}), 1);
    expect_one_line(lode({command, scratch.write("empty.gguf", "").string()}), 1);
    expect_one_line(lode({command, scratch.write("short.gguf", "GGUF\3\0\0").string()}), 1);
    expect_one_line(lode({command, scratch.write("text.gguf", std::string(5000, 'x')).string()}), 1);
    expect_one_line(lode({command, (scratch / ".").string()}), 1);
  }
}

TEST(CliTest, TemplateRendersACase) {
  Scratch scratch;
  const std::string t =
      scratch.write("t.jinja", "{% for m in messages %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}\n").string();
  const std::string variables = R"({"messages":[{"role":"user","content":"Grüße\n"}]})";
  const std::string c = scratch.write("c.json", variables).string();
  const Outcome plain = lode({"template", t, c});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out, "user: Grüße\n\n");  // Byte for byte: no line end is added.
  const std::string golden = scratch.write("g.json", R"({"name":"x","input":)" + variables + "}").string();
  EXPECT_EQ(lode({"template", t, golden}).out, plain.out);

  const std::string clock = scratch.write("clock.jinja", "{{ strftime_now('%d %b %Y %H:%M:%S') }}").string();
  EXPECT_EQ(lode({"template", clock, c, "--now", "2026-01-02"}).out, "02 Jan 2026 00:00:00");
  EXPECT_EQ(lode({"template", clock, c, "--now", "2026-01-02T15:04:05"}).out, "02 Jan 2026 15:04:05");
  EXPECT_EQ(lode({"template", clock, c}).out.size(), 20u);
  expect_one_line(lode({"template", clock, c, "--now", "2026-13-02"}), 1);
  expect_one_line(lode({"template", clock, c, "--now", "soon"}), 1);
}

TEST(CliTest, TemplateErrorsAreOneLine) {
  Scratch scratch;
  const std::string t = scratch.write("t.jinja", "a\n{% if x %}").string();
  const std::string c = scratch.write("c.json", "{}").string();
  expect_one_line(lode({"template", t, c}), 1);
  EXPECT_NE(lode({"template", t, c}).err.find("line 2: expected 'endif'"), std::string::npos);
  expect_one_line(lode({"template", t, scratch.write("bad.json", "{").string()}), 1);
  expect_one_line(
      lode({"template", scratch.write("fine.jinja", "x").string(), scratch.write("list.json", "[]").string()}), 1);
  expect_one_line(lode({"template", t, (scratch / "missing").string()}), 1);
  expect_one_line(lode({"template", (scratch / "missing").string(), c}), 1);
  expect_one_line(lode({"template", scratch.write("x.gguf", "GGUF\3").string(), c}), 1);
  expect_one_line(lode({"template"}), 2);
}

TEST(CliTest, TemplateOfAGguf) {
  const fs::path model = test::models() / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  Scratch scratch;
  const std::string c =
      scratch.write("c.json", R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true})").string();
  const Outcome outcome = lode({"template", model.string(), c});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")) << outcome.out;
}

TEST(CliTest, TokenizeMatchesTheGoldens) {
  const fs::path data = test::shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data beside this checkout";
  Scratch scratch;
  const fs::path model = data / "vocab" / "llama-spm.gguf";
  const Outcome plain = lode({"tokenize", model.string(), scratch.write("in", "Hello world").string(), "--no-bos"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out, "[15043, 3186]\n");
  EXPECT_EQ(lode({"tokenize", model.string(), (scratch / "in").string()}).out, "[1, 15043, 3186]\n");
  const fs::path special = scratch.write("special", "</s>");
  EXPECT_EQ(lode({"tokenize", model.string(), special.string(), "--no-bos", "--special"}).out, "[2]\n");
  EXPECT_NE(lode({"tokenize", model.string(), special.string(), "--no-bos"}).out, "[2]\n");
  expect_one_line(lode({"tokenize", model.string(), (scratch / "missing").string()}), 1);
}

TEST(CliTest, InfoShowsModelsAndVocabularies) {
  const fs::path data = test::shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data beside this checkout";
  const Outcome table = lode({"info", (data / "arch" / "gemma3.gguf").string()});
  EXPECT_EQ(table.code, 0) << table.err;
  for (const char* word : {"gemma3", "F32", "sliding window", "full attention", "general.architecture"}) {
    EXPECT_NE(table.out.find(word), std::string::npos) << word << "\n" << table.out;
  }
  const Outcome outcome = lode({"info", (data / "vocab" / "phi-3.gguf").string(), "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = serve::parse_json(outcome.out);
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ((*json)["vocabulary"]["size"], 32064);
  EXPECT_EQ((*json)["tensors"], 0);
  EXPECT_EQ((*json)["metadata"]["general.architecture"], "phi3");
}

TEST(CliTest, EvalWritesAllLogits) {
  const fs::path data = test::shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data beside this checkout";
  Scratch scratch;
  const std::string model = (data / "arch" / "llama.gguf").string();
  const std::string out = (scratch / "out.npy").string();
  const Outcome outcome = lode({"eval", model, "--tokens", scratch.write("ids", "[1, 2, 3]").string(), "--logits", out,
                                "--chunk", "2", "-ctk", "f32", "-ctv", "f32", "-t", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto npy = read_npy(out);
  ASSERT_TRUE(npy.ok()) << npy.status().message();
  EXPECT_EQ(npy->shape, (std::vector<std::int64_t>{3, 128}));
  for (const char* bad : {"[1, \"a\"]", "[1.5]", "{}", "[-1]", "[128]", "[]", "[1", "[99999999999]"}) {
    expect_one_line(lode({"eval", model, "--tokens", scratch.write("bad", bad).string(), "--logits", out}), 1);
  }
  expect_one_line(lode({"eval", model, "--tokens", (scratch / "missing").string(), "--logits", out}), 1);
  expect_one_line(
      lode({"eval", model, "--tokens", (scratch / "ids").string(), "--logits", "/nonexistent/folder/out.npy"}), 1);
}

void expect_words(const Outcome& outcome, int code, const std::string& words) {
  expect_one_line(outcome, code);
  EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
}

TEST(CliTest, AnEmptyApiKeyIsRefused) {
  for (const char* key : {"", " "}) expect_words(lode({"serve", "nowhere.gguf", "--api-key", key}), 2, "--api-key");
}

TEST(CliTest, PortsAreFrom0To65535) {
  for (const char* port : {"99999", "-1", "65536", "80x"})
    expect_words(lode({"serve", "nowhere.gguf", "--port", port}), 2, "65535");
  for (const char* url : {"http://127.0.0.1:99999", "http://127.0.0.1:0"}) {
    const Outcome outcome = lode({"bench", url});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.err.find("from 1 to 65535"), std::string::npos) << outcome.err;
  }
}

TEST(CliTest, NotANumberIsNoSamplingParameter) {
  for (const char* flag : {"--temp", "--top-p", "--min-p"}) {
    for (const char* value : {"nan", "-nan", "inf", "-1", "x"})
      expect_words(lode({"run", "nowhere.gguf", "-p", "x", flag, value}), 2, "expected a number");
    expect_one_line(lode({"run", "nowhere.gguf", "-p", "x", flag, "0.5"}), 1);
  }
}

TEST(CliTest, TheLastOfARepeatedOptionWins) {
  expect_one_line(lode({"run", "nowhere.gguf", "-p", "x", "-c", "2048", "-c", "512", "--temp", "1", "--temp", "0"}), 1);
  expect_one_line(lode({"serve", "a.gguf", "-m", "b.gguf"}), 2);
}

TEST(CliTest, AnEmptyKvFolderIsRefused) {
  expect_words(lode({"run", "nowhere.gguf", "-p", "x", "--kv-disk", ""}), 2, "off");
}

TEST(CliTest, AFileSizeLimitIsAWriteError) {
  lode({"--version"});
  std::raise(SIGXFSZ);  // Would end the program.
}

TEST(CliTest, AnUnwritableFileNamesTheReason) {
  const Status status = write_npy("/nonexistent/folder/out.npy", {1, 1}, {1.0f});
  EXPECT_NE(status.message().find("No such file"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace lode::cli
