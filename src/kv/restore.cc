#include "kv/restore.h"

#include <algorithm>

namespace lode::kv {

Restorer::~Restorer() {
  for (auto& load : loads_) disk_.release(load->ticket);  // I/O threads may still write into slots until then.
}

void Restorer::start(std::span<Copy* const> copies, std::span<const SlotId> slots) {
  LODE_CHECK(!copies.empty() && copies.size() == slots.size());
  auto load = std::make_unique<Load>();
  load->copies.assign(copies.begin(), copies.end());
  std::vector<DiskTier::ReadItem> items;
  items.reserve(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Copy& c = *copies[i];
    ram_.pin(c);
    ram_.install(c, slots[i], CopyState::reading);
    c.load = load.get();
    items.push_back({.key = c.block->key, .group = c.group, .dst = ram_.address(c)});
  }
  load->ticket = disk_.start_read(items);
  loads_.push_back(std::move(load));
}

Load* Restorer::ended() const {
  for (const auto& load : loads_)
    if (load->ticket->done()) return load.get();
  return nullptr;
}

void Restorer::wait(const Load& load) const {
  for (std::size_t g = 0; g < layouts_.size(); ++g) {
    const auto in_group = [&](const Copy* c) { return c->group.v == g; };
    if (std::none_of(load.copies.begin(), load.copies.end(), in_group)) continue;
    for (const auto& slice : layouts_[g].slices) load.ticket->wait_layer(slice.layer);
  }
  load.ticket->wait_done();
}

void Restorer::finish(Load* load, std::vector<Copy*>& damaged) {
  wait(*load);
  const auto at = std::find_if(loads_.begin(), loads_.end(), [&](const auto& l) { return l.get() == load; });
  LODE_CHECK(at != loads_.end());
  const std::unique_ptr<Load> mine = std::move(*at);
  loads_.erase(at);
  const std::vector<std::size_t> failed = mine->ticket->failed();
  disk_.release(mine->ticket);
  for (const std::size_t i : failed) {
    Copy& c = *mine->copies[i];
    ram_.remove(c);
    c.bad_on_disk = true;
    ++corrupt_;
    damaged.push_back(&c);
  }
  for (Copy* c : mine->copies) {
    Block& block = *c->block;
    c->load = nullptr;
    if (c->state == CopyState::reading) ram_.arrived(*c);
    ram_.unpin(*c);
    index_.settle(block);
  }
}

}  // namespace lode::kv
