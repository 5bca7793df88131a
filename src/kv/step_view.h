// The store's KvView: one step's runs over the sequences' block tables and states. Owns the runs, sized once. Step
// thread only.
#pragma once

#include <span>
#include <vector>

#include "kv/sequence.h"
#include "kv/store.h"
#include "model/kv_view.h"

namespace lode::kv {

class StepView final : public model::KvView {
 public:
  StepView(std::span<const model::CacheGroup> groups, std::span<const model::BlockLayout> layouts, int sequences_max,
           platform::Clock& clock);
  // Points the view at these runs; they have slots for all their positions.
  void bind(std::span<const Store::RunSpec> specs);

  std::span<const kernels::KvRun> runs(LayerIndex layer) override;
  const kernels::KvLayer& layer(LayerIndex layer) override;
  std::span<const kernels::StateRun> states(LayerIndex layer) override;
  Status wait(LayerIndex layer) override;

 private:
  struct Place {
    std::uint32_t group = 0, slice = 0;
    bool known = false;
  };
  const Place& place(LayerIndex layer) const;
  bool recurrent(std::size_t group) const { return groups_[group].kind == model::CacheGroup::Kind::checkpoint; }

  platform::Clock& clock_;
  const std::span<const model::CacheGroup> groups_;    // [groups]; the store's.
  const std::span<const model::BlockLayout> layouts_;  // [groups]; the store's.
  std::vector<Place> places_;                          // [layers]
  std::vector<std::vector<kernels::KvRun>> runs_;      // [groups][runs of this step]; empty in checkpoint groups.
  std::vector<Store::RunSpec> specs_;                  // [runs of this step]
  std::vector<kernels::StateRun> states_;              // [runs of this step], of the layer last asked for.
};

}  // namespace lode::kv
