// What a family declares about its cache, and what a forward page sees of it. kv/ implements KvView; model/ and
// kernels/ never learn where bytes come from. Owns nothing. Step thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace lode::model {

// What one layer keeps: K and V of every token, or (checkpoint groups) one recurrent state.
struct CacheLayer {
  LayerIndex layer;
  std::int32_t kv_heads = 0, k_dim = 0, v_dim = 0;  // 0 in checkpoint groups.
  std::int64_t state_bytes = 0;                     // 0 in all others.
};

// Layers whose cached state lives and dies alike. kv/ sees bytes and first_needed, never an architecture.
struct CacheGroup {
  enum class Kind : std::uint8_t {
    full,        // Every earlier position.
    window,      // The last `window - 1` positions before a query, and itself.
    chunk,       // Positions of the query's own chunk of `window` tokens (llama4).
    checkpoint,  // The state after the last position alone (recurrent layers). A block's copy is the state at its end.
  };
  Kind kind = Kind::full;
  std::int64_t window = 0;  // Tokens; window and chunk kinds.
  std::vector<CacheLayer> layers;

  // The first position whose K, V or state a token at `position` reads. position >= 0.
  std::int64_t first_needed(std::int64_t position) const {
    switch (kind) {
      case Kind::full: return 0;
      case Kind::window: return position >= window ? position - window + 1 : 0;
      case Kind::chunk: return position / window * window;
      case Kind::checkpoint: return position > 0 ? position - 1 : 0;
    }
    return 0;
  }
};

// Bytes of a block (32 tokens; of a checkpoint group: one state of every layer) of one group for given KV types:
// layer-major slices, each padded to 4 KiB, so that any layer can be read from disk straight into its place. The same
// in memory and on disk.
struct BlockLayout {
  struct Slice {
    LayerIndex layer;
    std::int64_t offset = 0;  // Of the slice inside the block; a multiple of 4096.
    std::int64_t bytes = 0;   // Padded; a multiple of 4096.
    kernels::KvLayer kv;      // k_offset and v_offset count from the block's start. Unused in checkpoint groups.
  };
  std::vector<Slice> slices;     // In the group's layer order.
  std::int64_t block_bytes = 0;  // Sum of the slices.
};
inline constexpr std::int64_t kSliceAlign = 4096;
BlockLayout block_layout(const CacheGroup& group, kernels::KvType k_type, kernels::KvType v_type);

// One step's view of the cache.
class KvView {
 public:
  virtual ~KvView() = default;
  // The runs of the batch with the block tables of the group that holds `layer`.
  virtual std::span<const kernels::KvRun> runs(LayerIndex layer) = 0;
  virtual const kernels::KvLayer& layer(LayerIndex layer) = 0;
  // The runs of the batch with the states of `layer`, which is in a checkpoint group. `in` may be read and `out`
  // written once wait(layer) has returned; `out` counts only if the whole step succeeds, so that a step can be run
  // again. The span lives until the next call.
  virtual std::span<const kernels::StateRun> states(LayerIndex layer) = 0;
  // Returns once this layer's restored bytes are in place (they may still be on their way from disk). An error says
  // that they never will be; the step is then abandoned and the sequences concerned recompute.
  virtual Status wait(LayerIndex layer) = 0;
};

}  // namespace lode::model
