// Fixed work, each piece once and on one thread, for counting instructions (scripts/count_instructions.py): products
// of every format, attention, the small operations, and with models/ there a start and a few steps of a real model.
// The counter looks at lode_measured_work alone. Prints as JSON what was run, in order.
//
//   work_bench [--isa NAME] [--models FOLDER]     default: models; the repository's root is the working folder
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "gguf/gguf.h"
#include "kernel_work.h"
#include "model/model.h"
#include "model/simple_kv.h"
#include "text/tokenizer.h"

// What is counted: the only function with this name, never inlined and never merged.
extern "C" [[gnu::noinline]] void lode_measured_work(const std::function<void()>& work) {
  asm volatile("");
  work();
  asm volatile("");
}

namespace {

using namespace lode;
using namespace lode::bench;
using kernels::KvType;

struct Piece {
  std::string name;
  std::unique_ptr<Work> work;
};

// A model with its scratch; run() computes the tokens of `chunk` behind those of earlier runs.
class ModelSteps final : public Work {
 public:
  ModelSteps(const kernels::Table& table, std::unique_ptr<gguf::File> file, std::unique_ptr<model::Model> model)
      : file_(std::move(file)), model_(std::move(model)), kv_(model_->groups(), KvType::f16, 1) {
    const std::size_t per_thread =
        align_up(kernels::scratch_bytes_per_thread(model_->facts().cols_max, model_->facts().head_dim_max), 64);
    thread_scratch_ = std::make_unique<model::Workspace>(per_thread);
    scratch_ = std::make_unique<model::Workspace>(model_->scratch_bytes(kLimits));
    logits_.resize(static_cast<std::size_t>(model_->facts().vocab));
    stream_ = {&table, &pool_, thread_scratch_->data(), per_thread, nullptr};
  }
  void run() override {
    std::vector<TokenId> ids;
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < chunk; ++i) {
      positions.push_back(kv_.length(0) + i);
      ids.push_back(static_cast<TokenId>(positions.back() * 7919 % model_->facts().vocab));
    }
    const std::int32_t last = static_cast<std::int32_t>(chunk - 1);
    const Status done = model_->forward(stream_, {ids, positions, {&last, 1}}, kv_.prepare({{0, chunk}}), kLimits,
                                        scratch_->data(), logits_.data());
    LODE_CHECK(done.ok());
    kv_.advance();
  }
  std::int64_t chunk = 1;

 private:
  static constexpr model::StepLimits kLimits{.rows = 16, .outputs = 1, .runs = 1, .context = 64};
  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  model::test::SimpleKv kv_;
  ThreadPool pool_{1};
  std::unique_ptr<model::Workspace> thread_scratch_, scratch_;
  std::vector<float> logits_;
  kernels::Stream stream_;
};

class Runner {
 public:
  explicit Runner(const kernels::Table& table) : table_(table) {}

  void piece(const std::string& name, Work& work) {
    work.run();  // What is made once, such as tables and pages, is not counted.
    counted(name, [&work] { work.run(); });
  }
  void piece(const std::string& name, std::unique_ptr<Work> work) { piece(name, *work); }
  void counted(const std::string& name, const std::function<void()>& work) {
    lode_measured_work(work);
    works_.push_back(name);
  }
  void skip(const std::string& name, const std::string& why) { skipped_.push_back({{"name", name}, {"reason", why}}); }

  void products();
  void attention();
  void rows();
  enum class Prompt : std::uint8_t { no, yes };
  void model(const std::string& name, const std::filesystem::path& path, Prompt prompt);

  std::string report() const {
    nlohmann::ordered_json out = {{"table", table_.name}, {"works", works_}, {"skipped", skipped_}};
#if defined(__clang__)
    out["compiler"] = "clang++ " __clang_version__;
#else
    out["compiler"] = "g++ " __VERSION__;
#endif
    return out.dump();
  }

 private:
  const kernels::Table& table_;
  std::vector<std::string> works_;
  nlohmann::ordered_json skipped_ = nlohmann::ordered_json::array();
};

void Runner::products() {
  for (const quant::DType type : computable_types()) {
    const std::string name = short_name(type);
    piece("product " + name + " n64", make_product(table_, {type, 128, 1024, 64}, 1));
    piece("product " + name + " n1", make_product(table_, {type, 512, 1024, 1}, 1));
  }
  // Rows and columns of the small models that no tile divides.
  piece("product q5_0 640 columns n37", make_product(table_, {quant::DType::q5_0, 250, 640, 37}, 1));
  piece("product q4_1 576 columns n8", make_product(table_, {quant::DType::q4_1, 192, 576, 8}, 1));
  piece("quantize g32", make_quantize(table_, quant::DType::q5_0, 2048, 64));
  piece("quantize g256", make_quantize(table_, quant::DType::q4_k, 2048, 64));
}

void Runner::attention() {
  struct Shape {
    const char* name;
    std::int32_t heads, kv_heads, dim;
    std::int64_t window;
  };
  for (const Shape& s : {Shape{"gemma", 4, 1, 256, 512}, {"smollm2", 9, 3, 64, 0}, {"qwen3", 16, 8, 128, 0}}) {
    for (const KvType type : {KvType::f16, KvType::q8_0}) {
      const std::string suffix = std::string(" ") + s.name + (type == KvType::f16 ? " f16" : " q8_0");
      AttentionShape shape{s.heads, s.kv_heads, s.dim, s.window, type, 700, 32};
      piece("attention prompt" + suffix, make_attention(table_, shape, 1));
      piece("kv_write" + suffix, make_kv_write(table_, shape));
      shape.tokens = 1;
      piece("attention token" + suffix, make_attention(table_, shape, 1));
    }
  }
}

void Runner::rows() {
  piece("rms_norm", make_row_op(table_, RowOp::rms_norm, 32, 640));
  piece("add", make_row_op(table_, RowOp::add, 32, 640));
  piece("glu silu", make_row_op(table_, RowOp::glu_silu, 32, 1536));
  piece("glu gelu", make_row_op(table_, RowOp::glu_gelu, 32, 2048));
  piece("rope", make_row_op(table_, RowOp::rope, 32, 576));
}

// From an open file to a model and a tokenizer, then a chunk, where asked for, and a token.
void Runner::model(const std::string& name, const std::filesystem::path& path, Prompt prompt) {
  if (!std::filesystem::exists(path)) return skip(name, path.string() + " is not there; scripts/setup.sh fetches it");
  std::unique_ptr<gguf::File> file;
  std::unique_ptr<model::Model> loaded;
  counted(name + " start: header", [&] {
    auto opened = gguf::File::open(path, {});
    LODE_CHECK(opened.ok());
    file = std::move(opened).value();
  });
  counted(name + " start: weights", [&] {
    auto made = model::Model::load(*file);
    LODE_CHECK(made.ok());
    loaded = std::move(made).value();
  });
  counted(name + " start: tokenizer", [&] { LODE_CHECK(text::Tokenizer::load(*file).ok()); });
  ModelSteps steps(table_, std::move(file), std::move(loaded));
  if (prompt == Prompt::yes) {
    steps.chunk = 16;
    counted(name + " 16 tokens of a prompt", [&] { steps.run(); });
    steps.chunk = 1;
  }
  piece(name + " a token", steps);
}

}  // namespace

int main(int argc, char** argv) {
  std::string isa;
  std::filesystem::path models = "models";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--isa") isa = argv[i + 1];
    else if (std::string_view(argv[i]) == "--models") models = argv[i + 1];
  }
  const auto table = kernels::select_table(isa);
  if (!table.ok()) {
    std::fprintf(stderr, "work_bench: %s\n", table.status().message().c_str());
    return 2;
  }
  Runner runner(**table);
  runner.products();
  runner.attention();
  runner.rows();
  runner.model("smollm2", models / "SmolLM2-135M-Instruct.Q4_1.gguf", Runner::Prompt::yes);
  runner.model("gemma", models / "gemma-3-270m-q4_k_m.gguf", Runner::Prompt::no);
  std::printf("%s\n", runner.report().c_str());
  return 0;
}
