// The one table of functions that forward pages call, for every backend. Each takes a Stream; on a GPU each only
// enqueues. Owns nothing: buffers belong to the Workspace, weights to the Model, KV to kv::Store. Step thread only.
//
// Numbers: every function follows DESIGN.md's numbers contract. A token's result depends only on that token's row, the
// weights, and (attention) the stored K and V before it: never on how many rows are in the call, on threads or the
// instruction set. docs/numerics.md gives the exact order of operations of each function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "quant/types.h"

namespace lode::kernels {

struct Table;

// Where work is done. CPU: the pool and its per-thread scratch. (CUDA adds a device stream behind `device`.)
struct Stream {
  const Table* ops = nullptr;
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;  // [pool->size(), scratch_bytes_per_thread], 64-byte aligned; a kernel's to use.
  std::size_t scratch_bytes_per_thread = 0;
  void* device = nullptr;  // CUDA: its stream and handles. CPU: nullptr.
};

// A weight matrix W [rows, cols]; products are y = W x. row_major keeps the file's bytes as they are; packed is 8 rows
// at a time in the order of quant/packed.h, the same bytes in all, for tables that ask for it (Table::packs).
enum class Layout : std::uint8_t { row_major, packed };
struct Matrix {
  quant::DType type = quant::DType::f32;
  Layout layout = Layout::row_major;
  const std::byte* data = nullptr;  // [rows, row_bytes(type, cols)]
  std::int64_t rows = 0, cols = 0;
};

// Activations x [n, cols] with room for their quantized forms. The first matmul that needs a form fills it in; `reset`
// (a new x) forgets them. Room comes from the Workspace: acts_bytes(n, cols).
struct Acts {
  const float* x = nullptr;  // [n, cols]
  std::int64_t n = 0, cols = 0;
  bool has_g32 = false, has_g256 = false;
  // g32, for groups of 32: q32 [n, cols] int8, d32 [n, cols/32] f32 scales, s32 [n, cols/32] int32 sums of q over the
  // group, p32 [n, cols/32, 2] int16 sums of q over the group's k % 4 in {0, 1} and {2, 3}, t32 [n, cols/32] f32 d * s.
  std::int8_t* q32 = nullptr;
  float* d32 = nullptr;
  std::int32_t* s32 = nullptr;
  std::int16_t* p32 = nullptr;
  float* t32 = nullptr;
  // g256, for groups of 256: q256 [n, cols] int8, d256 [n, cols/256] f32 scales, int16 sums of q over 16 values
  // (s256 [n, cols/16]), over 32 (u256 [n, cols/32]), and over 16 split as p32 is (p256 [n, cols/16, 2]).
  std::int8_t* q256 = nullptr;
  float* d256 = nullptr;
  std::int16_t* s256 = nullptr;
  std::int16_t* u256 = nullptr;
  std::int16_t* p256 = nullptr;
};
std::size_t acts_bytes(std::int64_t n_max, std::int64_t cols_max);  // 64-byte aligned pieces included.
// Points `acts` at x with its quantized forms inside `room` (acts_bytes(n, cols) bytes, 64-byte aligned).
void acts_bind(Acts& acts, const float* x, std::int64_t n, std::int64_t cols, std::byte* room);

// One product of a group that shares its activations: y [n, w.rows], row stride y_stride floats.
struct MatmulJob {
  const Matrix* w = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

enum class RopeStyle : std::uint8_t {
  normal,  // Pairs (2i, 2i+1): llama.
  neox,    // Pairs (i, i + dims/2): gemma, qwen.
};
enum class Activation : std::uint8_t { silu, gelu_tanh, sigmoid };

// How one group stores one layer of a block (see model/kv_view.h): byte offsets inside a block's slot.
//
// q8_0 stores a rotated K or V (docs/numerics.md) as int8 values in the shapes of KvLayer and, after those of all
// heads, f16 scales, one for 32 consecutive values along the dim: K's [kv_head][kv_groups(k_dim)][32 tokens], V's
// [kv_head][32 tokens][kv_groups(v_dim)]. A dim that is no multiple of 32 ends in a shorter group.
enum class KvType : std::uint8_t { f32, f16, q8_0 };
inline constexpr std::int64_t kBlockTokens = 32;
inline constexpr std::int64_t kSpanTokens = 256;
inline constexpr std::int64_t kKvGroup = 32;  // Values that share a scale in q8_0.
struct KvLayer {
  KvType k_type = KvType::f16, v_type = KvType::f16;
  std::int32_t kv_heads = 0, k_dim = 0, v_dim = 0;
  std::int64_t k_offset = 0;  // K: [kv_head][k_dim][32 tokens]
  std::int64_t v_offset = 0;  // V: [kv_head][32 tokens][v_dim]
};
static inline std::int64_t kv_groups(std::int64_t dim) {
  return (dim + kKvGroup - 1) / kKvGroup;
}
// Bytes from a q8_0 side's offset to its scales: the values of all heads lie before them.
static inline std::int64_t kv_scales_offset(std::int64_t kv_heads, std::int64_t dim) {
  return kv_heads * dim * kBlockTokens;
}
// The name of everything that decides the bytes of a type, for the KV root key. Not the type's own name where a
// rotation goes with it: another rotation has another name.
std::string_view kv_format_name(KvType type);

// Consecutive tokens of one sequence inside a batch.
struct KvRun {
  std::int64_t first_row = 0;  // Row of its first token in the batch.
  std::int64_t count = 0;
  std::int64_t first_position = 0;  // Absolute position of that token.
  // Slot base of the block that holds position p is blocks[p / 32]; entries that no query of this run can see may be
  // nullptr. K and V of all positions < first_position that are visible are in place.
  std::byte* const* blocks = nullptr;
};

// Consecutive tokens of one sequence inside a batch, and its recurrent state in one layer (float32; the family says
// in which order).
struct StateRun {
  std::int64_t first_row = 0;
  std::int64_t count = 0;
  const std::byte* in = nullptr;  // Before its first token; nullptr: all zeros.
  std::byte* out = nullptr;       // After its last token. Never overlaps `in`.
};

struct KvWriteArgs {
  const float* k = nullptr;  // [n, kv_heads, k_dim], after norm and rope
  const float* v = nullptr;  // [n, kv_heads, v_dim]
  KvLayer layer;
  std::span<const KvRun> runs;
};

struct AttentionArgs {
  const float* q = nullptr;  // [n, heads, k_dim], after norm and rope, not yet scaled
  float* out = nullptr;      // [n, heads, v_dim]
  std::int32_t heads = 0;
  float scale = 1;               // Multiplies q before the product (rounded to f32 once per q value).
  std::int64_t window = 0;       // A query at p sees keys > p - window; 0: all history.
  std::int64_t chunk = 0;        // llama4: a query sees only keys of its own chunk; 0: off.
  float softcap = 0;             // c * tanh(s / c) on scores; 0: off.
  const float* sinks = nullptr;  // [heads] extra logits in the softmax's sum (gpt-oss); nullptr: none.
  KvLayer layer;
  std::span<const KvRun> runs;  // This step's K and V are written (kv_write) before the call.
  // Room for one span result per (query, head) and span when few queries split over threads: [span_room] floats.
  float* span_room = nullptr;
  std::size_t span_room_floats = 0;
};
// Floats of span_room that let `n` single-token runs at positions < context split freely over threads.
std::size_t attention_span_room(std::int64_t n, std::int64_t heads, std::int64_t v_dim, std::int64_t context);

// A causal convolution of each channel over the last `taps` tokens, then SiLU (recurrent layers). A run's state is the
// last taps - 1 inputs before it, [taps - 1, channels] float32, oldest first.
struct CausalConvArgs {
  const float* x = nullptr;             // [n, channels]
  const float* weights = nullptr;       // [taps, channels], the oldest token's first. The file has [channels][taps].
  float* out = nullptr;                 // [n, channels], not x.
  std::int64_t channels = 0, taps = 0;  // taps <= kConvTapsMax.
  std::span<const StateRun> runs;
  std::int64_t state_offset = 0;  // Bytes, of this part of the layer's state; a multiple of 4.
};

inline constexpr std::int64_t kConvTapsMax = 16;

// Scales the first `heads` vectors of every row, in place, to the length `scale` (before eps): v * (scale / |v|).
struct L2NormArgs {
  float* x = nullptr;  // [n, stride]; its first heads * dim columns change.
  std::int64_t n = 0, stride = 0, heads = 0, dim = 0;
  float eps = 1e-6f, scale = 1;
};

// decay = exp(a * softplus(alpha + dt_bias)), beta = sigmoid(beta), in place. Files hold a = -exp(A_log).
struct DeltaGatesArgs {
  float* alpha = nullptr;          // [n, heads] in; the decay out.
  float* beta = nullptr;           // [n, heads]
  const float* dt_bias = nullptr;  // [heads]
  const float* a = nullptr;        // [heads]
  std::int64_t n = 0, heads = 0;
};

// The gated delta rule, token by token, for every value head h with its state S [k_dim, v_dim] and the key head
// h % k_heads: S *= decay; S += k (beta (v - S^T k))^T; out = S^T q. A run's state is S [v_heads, k_dim, v_dim]
// float32.
struct DeltaNetArgs {
  const float* q = nullptr;      // [n] rows of `stride`, each [k_heads, k_dim]
  const float* k = nullptr;      // The same; normed, as q is.
  const float* v = nullptr;      // [n] rows of `stride`, each [v_heads, v_dim]
  const float* decay = nullptr;  // [n, v_heads]
  const float* beta = nullptr;   // [n, v_heads]
  float* out = nullptr;          // [n, v_heads, v_dim]
  std::int64_t stride = 0, k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;  // k_dim <= kDeltaKeyDimMax.
  std::span<const StateRun> runs;
  std::int64_t state_offset = 0;  // Bytes, of this part of the layer's state; a multiple of 4.
};
// A tile of 32 columns of S has to fit a thread's scratch (64 KiB).
inline constexpr std::int64_t kDeltaKeyDimMax = 512;

// Softmax over all experts, then the `used` largest of each token: by descending logit, equal ones by ascending id.
struct RouteArgs {
  const float* logits = nullptr;  // [n, experts]
  std::int32_t* ids = nullptr;    // [n, used], in rank order.
  float* weights = nullptr;       // [n, used]
  std::int64_t n = 0, experts = 0, used = 0;
  enum class Norm : std::uint8_t {
    none,
    sum
  } norm = Norm::sum;  // sum: the weights of a token are divided by their sum.
  float scale = 1;     // Multiplies the weights; 1: they stay.
};

// out[t] = sum over ranks r, ascending, of weights[t, r] * y[rows[t, r]].
struct CombineArgs {
  const float* y = nullptr;            // [any, width] experts' outputs
  const std::int32_t* rows = nullptr;  // [n, used]
  const float* weights = nullptr;      // [n, used]
  float* out = nullptr;                // [n, width]
  std::int64_t n = 0, used = 0, width = 0;
};

struct Table {
  std::string_view name;         // "generic", "avx2"
  std::string_view numerics_id;  // Part of the KV root key; equal for all CPU tables that keep the contract.

  // Whether products with this type are faster from Layout::packed; rows are then a multiple of 8. nullptr: with none.
  // A table takes any matrix as row_major, and these in both layouts; bits are the same.
  bool (*packs)(quant::DType) = nullptr;

  // out [n, table.cols] = scale * row ids[i] of the table (dequantized; `scale` multiplied once in f32).
  void (*embed)(Stream&, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out);
  // y_j = W_j x for every job. All jobs have x.cols columns.
  void (*matmul)(Stream&, std::span<const MatmulJob> jobs, Acts& x);
  // out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight, rows of `width`; weight nullptr: ones. out may be x.
  void (*rms_norm)(Stream&, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
                   float* out);
  // y[i] += x[i].
  void (*add)(Stream&, float* y, const float* x, std::int64_t count);
  // Adds bias [width] to every row of y [n, width].
  void (*add_bias)(Stream&, float* y, const float* bias, std::int64_t n, std::int64_t width);
  // cos_sin [n, pairs, 2] = attn_factor * (cos, sin)(position * inv_freq[pair]).
  void (*rope_table)(Stream&, const std::int64_t* positions, std::int64_t n, const double* inv_freq, std::int64_t pairs,
                     float attn_factor, float* cos_sin);
  // Rotates the first 2*pairs values of every head of x [n, heads, dim] in place.
  void (*rope)(Stream&, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs, RopeStyle,
               const float* cos_sin);
  // out[i] = act(gate[i]) * up[i].
  void (*glu)(Stream&, Activation, const float* gate, const float* up, float* out, std::int64_t count);
  // Rounds K and V to their storage types and writes them into the runs' blocks.
  void (*kv_write)(Stream&, const KvWriteArgs&);
  void (*attention)(Stream&, const AttentionArgs&);
  // out [m, width] = rows `rows[i]` of x.
  void (*gather_rows)(Stream&, const float* x, const std::int32_t* rows, std::int64_t m, std::int64_t width,
                      float* out);
  // x[i] = cap * tanh(x[i] / cap).
  void (*softcap)(Stream&, float* x, float cap, std::int64_t count);
  // Takes x [pairs, 2, width] apart: first [pairs, width] and second [pairs, width].
  void (*split_pairs)(Stream&, const float* x, std::int64_t pairs, std::int64_t width, float* first, float* second);

  // Recurrent layers. All rows of a call belong to its runs.
  void (*causal_conv)(Stream&, const CausalConvArgs&);
  void (*l2_norm)(Stream&, const L2NormArgs&);
  void (*delta_gates)(Stream&, const DeltaGatesArgs&);
  void (*delta_net)(Stream&, const DeltaNetArgs&);

  // Mixture of experts.
  void (*route)(Stream&, const RouteArgs&);
  void (*combine_experts)(Stream&, const CombineArgs&);
  // y[t] += sigmoid(gate[t]) * x[t], rows of `width`.
  void (*add_gated)(Stream&, float* y, const float* x, const float* gate, std::int64_t n, std::int64_t width);
};

// One call for a few products that share their activations: matmul(s, {{&wq, q, stride}, {&wk, k, stride}}, x).
inline void matmul(Stream& s, std::initializer_list<MatmulJob> jobs, Acts& x) {
  s.ops->matmul(s, std::span<const MatmulJob>(jobs.begin(), jobs.size()), x);
}

// The tables this binary holds and this processor can run, best first; "generic" is always last.
std::vector<const Table*> available_tables();
// The best table, or the one named by --isa. Errors list the names this machine can run.
Result<const Table*> select_table(std::string_view isa);
// Scratch every thread needs for matrices of up to `cols_max` columns and heads of `head_dim_max`.
std::size_t scratch_bytes_per_thread(std::int64_t cols_max, std::int64_t head_dim_max);

}  // namespace lode::kernels
