#include "kv/step_view.h"

#include "kv/restore.h"

namespace lode::kv {

StepView::StepView(std::span<const model::CacheGroup> groups, std::span<const model::BlockLayout> layouts,
                   int sequences_max, platform::Clock& clock)
    : clock_(clock), groups_(groups), layouts_(layouts), runs_(layouts.size()) {
  for (std::size_t g = 0; g < layouts.size(); ++g)
    for (std::size_t s = 0; s < layouts[g].slices.size(); ++s) {
      const std::size_t l = layouts[g].slices[s].layer.v;
      if (places_.size() <= l) places_.resize(l + 1);
      places_[l] = {static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(s), true};
    }
  for (auto& r : runs_) r.reserve(static_cast<std::size_t>(sequences_max));
  specs_.reserve(static_cast<std::size_t>(sequences_max));
  states_.reserve(static_cast<std::size_t>(sequences_max));
}

void StepView::bind(std::span<const Store::RunSpec> specs) {
  specs_.assign(specs.begin(), specs.end());
  for (auto& r : runs_) r.clear();
  for (const Store::RunSpec& spec : specs) {
    const Sequence& s = *spec.seq;
    LODE_CHECK(s.live && !s.waiting && spec.count > 0);
    for (std::size_t g = 0; g < runs_.size(); ++g) {
      if (recurrent(g)) {
        LODE_CHECK(s.broken || s.groups[g].state.out);
        continue;
      }
      LODE_CHECK(s.broken || s.length + spec.count <= s.groups[g].slots_end * kBlockTokens);
      runs_[g].push_back({.first_row = spec.first_row,
                          .count = spec.count,
                          .first_position = s.length,
                          .blocks = s.groups[g].table.data()});
    }
  }
}

const StepView::Place& StepView::place(LayerIndex layer) const {
  LODE_CHECK(layer.v < places_.size() && places_[layer.v].known);
  return places_[layer.v];
}

std::span<const kernels::KvRun> StepView::runs(LayerIndex layer) {
  return runs_[place(layer).group];
}

const kernels::KvLayer& StepView::layer(LayerIndex layer) {
  const Place& p = place(layer);
  return layouts_[p.group].slices[p.slice].kv;
}

std::span<const kernels::StateRun> StepView::states(LayerIndex layer) {
  const Place& p = place(layer);
  LODE_CHECK(recurrent(p.group));
  const std::int64_t offset = layouts_[p.group].slices[p.slice].offset;
  states_.clear();
  for (const Store::RunSpec& spec : specs_) {
    const RunningState& s = spec.seq->groups[p.group].state;
    // A broken sequence has no places: wait() has said so.
    states_.push_back({.first_row = spec.first_row,
                       .count = spec.count,
                       .in = s.in ? s.in + offset : nullptr,
                       .out = s.out ? s.out + offset : nullptr});
  }
  return states_;
}

Status StepView::wait(LayerIndex layer) {
  for (const Store::RunSpec& spec : specs_) {
    const Sequence* s = spec.seq;
    bool sound = !s->broken;
    for (Load* load : s->loads) {
      sound = sound && load->ticket->wait_layer(layer);
      if (load->ended_ns == 0 && load->ticket->done()) load->ended_ns = clock_.now_ns();
    }
    if (!sound)
      return Status::corrupt(
          "a restored KV block is damaged or could not be read: repair the sequence and compute it again");
  }
  return Status::success();
}

}  // namespace lode::kv
