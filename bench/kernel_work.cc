// See kernel_work.h. All values come from one generator with a fixed seed: the same work each time.
#include "kernel_work.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/virtual_range.h"

namespace lode::bench {
namespace {

using kernels::KvType;
using kernels::Table;

// Memory that is never moved, of the same kind as the engine's: in huge pages where the system has them.
class Room {
 public:
  explicit Room(std::size_t bytes) {
    auto range = platform::VirtualRange::reserve(bytes + 1);
    LODE_CHECK(range.ok());
    range_ = std::move(range).value();
    LODE_CHECK(range_.commit(0, range_.capacity()).ok());
  }
  std::byte* data() { return range_.data(); }

 private:
  platform::VirtualRange range_;
};

// A pool and its scratch.
struct Place {
  ThreadPool pool;
  std::size_t per_thread;
  Room scratch;
  kernels::Stream stream;
  Place(const Table& table, int threads, std::int64_t cols_max, std::int64_t dim_max)
      : pool(threads),
        per_thread(align_up(kernels::scratch_bytes_per_thread(cols_max, dim_max), 64)),
        scratch(per_thread * static_cast<std::size_t>(threads)) {
    stream.ops = &table;
    stream.pool = &pool;
    stream.scratch = scratch.data();
    stream.scratch_bytes_per_thread = per_thread;
  }
};

// Bytes from 0x20 to 0x3f: wherever a format has a scale (a half, a single, an exponent), it is a normal number below
// 2, so that no product is slowed down by denormals and no sum becomes infinite.
void fill_blocks(std::byte* bytes, std::size_t n) {
  std::mt19937 random(1);
  const std::size_t fresh = std::min<std::size_t>(n, std::size_t{1} << 20);
  for (std::size_t i = 0; i < fresh; ++i) bytes[i] = static_cast<std::byte>(0x20 + random() % 0x20);
  for (std::size_t i = fresh; i < n; i += fresh) std::memcpy(bytes + i, bytes, std::min(fresh, n - i));
}

std::vector<float> floats(std::int64_t n) {
  std::mt19937 random(2);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& v : out) v = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
  return out;
}

class Product final : public Work {
 public:
  Product(const Table& table, const ProductShape& s, int threads)
      : shape_(s),
        place_(table, threads, s.cols, 256),
        weights_(static_cast<std::size_t>(s.rows * quant::row_bytes(s.type, s.cols))),
        room_(kernels::acts_bytes(s.tokens, s.cols)),
        x_(floats(s.tokens * s.cols)),
        y_(static_cast<std::size_t>(s.tokens * s.rows)) {
    fill_blocks(weights_.data(), static_cast<std::size_t>(s.rows * quant::row_bytes(s.type, s.cols)));
    matrix_ = {.type = s.type, .layout = s.layout, .data = weights_.data(), .rows = s.rows, .cols = s.cols};
  }
  void run() override {
    const kernels::MatmulJob job{&matrix_, y_.data(), shape_.rows};
    kernels::Acts acts;
    kernels::acts_bind(acts, x_.data(), shape_.tokens, shape_.cols, room_.data());
    place_.stream.ops->matmul(place_.stream, {&job, 1}, acts);
  }

 private:
  ProductShape shape_;
  Place place_;
  Room weights_, room_;
  std::vector<float> x_, y_;
  kernels::Matrix matrix_;
};

// K and V of depth + tokens tokens in `layers` layers.
class Attention : public Work {
 public:
  Attention(const Table& table, const AttentionShape& s, int threads)
      : shape_(s),
        place_(table, threads, 4096, s.dim),
        blocks_((s.depth + s.tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens),
        kv_(static_cast<std::size_t>(s.layers * blocks_ * 2 * s.side_bytes())),
        q_(floats(s.tokens * s.heads * s.dim)),
        k_(floats(s.tokens * s.kv_heads * s.dim)),
        out_(q_.size()),
        span_room_(kernels::attention_span_room(1, s.heads, s.dim, s.depth + 1)) {
    layer_.kv_heads = s.kv_heads;
    layer_.k_dim = layer_.v_dim = s.dim;
    layer_.k_type = layer_.v_type = s.type;
    layer_.v_offset = s.side_bytes();
    fill_blocks(kv_.data(), static_cast<std::size_t>(s.layers * blocks_ * 2 * s.side_bytes()));
    for (std::int64_t i = 0; i < s.layers * blocks_; ++i) tables_.push_back(kv_.data() + i * 2 * s.side_bytes());
  }
  void run() override {
    const kernels::KvRun run = next_run();
    kernels::AttentionArgs args;
    args.q = q_.data();
    args.out = out_.data();
    args.heads = shape_.heads;
    args.scale = 0.1f;
    args.window = shape_.window;
    args.layer = layer_;
    args.runs = {&run, 1};
    args.span_room = span_room_.data();
    args.span_room_floats = span_room_.size();
    place_.stream.ops->attention(place_.stream, args);
  }

 protected:
  kernels::KvRun next_run() {
    turn_ = (turn_ + 1) % shape_.layers;
    return {.first_row = 0,
            .count = shape_.tokens,
            .first_position = shape_.depth,
            .blocks = tables_.data() + turn_ * blocks_};
  }
  AttentionShape shape_;
  Place place_;
  std::int64_t blocks_ = 0, turn_ = 0;
  Room kv_;
  kernels::KvLayer layer_;
  std::vector<std::byte*> tables_;  // [layers, blocks]
  std::vector<float> q_, k_, out_, span_room_;
};

class KvWrite final : public Attention {
 public:
  KvWrite(const Table& table, const AttentionShape& s) : Attention(table, s, 1) {}
  void run() override {
    const kernels::KvRun run = next_run();
    place_.stream.ops->kv_write(place_.stream, {.k = k_.data(), .v = k_.data(), .layer = layer_, .runs = {&run, 1}});
  }
};

class RowWork final : public Work {
 public:
  RowWork(const Table& table, RowOp op, std::int64_t rows, std::int64_t width)
      : op_(op),
        rows_(rows),
        width_(width),
        place_(table, 1, width, kHeadDim),
        a_(floats(rows * width)),
        b_(a_),
        out_(a_) {
    weight_ = floats(width);
    if (op != RowOp::rope) return;
    std::vector<std::int64_t> positions(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) positions[static_cast<std::size_t>(i)] = 1000 + i;
    const std::vector<double> frequencies(kHeadDim / 2, 0.01);
    cos_sin_.resize(static_cast<std::size_t>(rows * kHeadDim));
    table.rope_table(place_.stream, positions.data(), rows, frequencies.data(), kHeadDim / 2, 1, cos_sin_.data());
  }
  void run() override {
    const Table& ops = *place_.stream.ops;
    const std::int64_t count = rows_ * width_;
    switch (op_) {
      case RowOp::rms_norm:
        return ops.rms_norm(place_.stream, a_.data(), weight_.data(), 1e-6f, rows_, width_, out_.data());
      case RowOp::add: return ops.add(place_.stream, out_.data(), a_.data(), count);
      case RowOp::glu_silu:
        return ops.glu(place_.stream, kernels::Activation::silu, a_.data(), b_.data(), out_.data(), count);
      case RowOp::glu_gelu:
        return ops.glu(place_.stream, kernels::Activation::gelu_tanh, a_.data(), b_.data(), out_.data(), count);
      case RowOp::rope:
        return ops.rope(place_.stream, out_.data(), rows_, width_ / kHeadDim, kHeadDim, kHeadDim / 2,
                        kernels::RopeStyle::neox, cos_sin_.data());
    }
  }

 private:
  static constexpr std::int64_t kHeadDim = 64;
  RowOp op_;
  std::int64_t rows_, width_;
  Place place_;
  std::vector<float> a_, b_, out_, weight_, cos_sin_;
};

}  // namespace

std::string short_name(quant::DType type) {
  std::string name(quant::info(type).name);
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return name;
}

std::vector<quant::DType> computable_types() {
  std::vector<quant::DType> types;
  for (std::uint32_t number = 0; number < 256; ++number) {
    const quant::TypeInfo* type = quant::find_type(number);
    if (type != nullptr && type->computable) types.push_back(type->type);
  }
  return types;
}

double AttentionShape::pairs() const {
  double all = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t seen = depth + i + 1;
    all += static_cast<double>(window > 0 ? std::min(window, seen) : seen);
  }
  return all;
}

std::int64_t AttentionShape::side_bytes() const {
  const std::int64_t values = kernels::kBlockTokens * kv_heads * dim;
  switch (type) {
    case KvType::f32: return 4 * values;
    case KvType::f16: return 2 * values;
    case KvType::q8_0: return values + 2 * kernels::kBlockTokens * kv_heads * kernels::kv_groups(dim);
  }
  return 0;
}

double AttentionShape::read_bytes() const {
  const std::int64_t seen = window > 0 ? std::min(window, depth + 1) : depth + 1;
  return static_cast<double>(seen * 2 * side_bytes()) / kernels::kBlockTokens;
}

std::unique_ptr<Work> make_product(const Table& table, const ProductShape& shape, int threads) {
  return std::make_unique<Product>(table, shape, threads);
}
std::unique_ptr<Work> make_quantize(const Table& table, quant::DType type, std::int64_t cols, std::int64_t tokens) {
  return make_product(table, {.type = type, .rows = 0, .cols = cols, .tokens = tokens}, 1);
}
std::unique_ptr<Work> make_attention(const Table& table, const AttentionShape& shape, int threads) {
  return std::make_unique<Attention>(table, shape, threads);
}
std::unique_ptr<Work> make_kv_write(const Table& table, const AttentionShape& shape) {
  return std::make_unique<KvWrite>(table, shape);
}
std::unique_ptr<Work> make_row_op(const Table& table, RowOp op, std::int64_t rows, std::int64_t width) {
  return std::make_unique<RowWork>(table, op, rows, width);
}

}  // namespace lode::bench
