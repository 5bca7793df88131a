// Pins, and the chains that slot files name.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "kv/store_impl.h"

namespace lode::kv {

Result<ChainState> StoreImpl::chain(std::span<const TokenId> tokens, std::string_view salt, Write write) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  if (n == 0 || n > config_.context_max)
    return Status::invalid(
        fmt::format("a chain of {} tokens; expected 1 to {}, what the context holds", n, config_.context_max));
  ChainState out;
  BlockKey key = root_key(root_inputs(salt));
  for (std::int64_t i = 0; i < n / kBlockTokens; ++i)
    out.keys.push_back(key = child_key(key, Ids(tokens.data() + i * kBlockTokens, kBlockTokens)));
  Sequence& seq = probe(tokens, salt);
  out.stored = find_resume(seq, seq.matched, config_.groups, disk_.get(), Tiers::ram_and_disk).stored;
  out.durable = find_resume(seq, seq.matched, config_.groups, disk_.get(), Tiers::disk).stored;
  if (disk_ && write == Write::now && out.durable < out.stored) {
    for (Sequence* live : live_)
      for (auto& g : live->groups) packer_->seal(g.run);
    write_unwritten(WhenFull::stop, 0);
  }
  end_probe(seq);
  return out;
}

std::uint64_t StoreImpl::ram_pinned_bytes() const {
  std::vector<const Copy*> copies;
  for (const RamPin& pin : ram_pins_) copies.insert(copies.end(), pin.copies.begin(), pin.copies.end());
  std::sort(copies.begin(), copies.end());
  copies.erase(std::unique(copies.begin(), copies.end()), copies.end());
  std::uint64_t bytes = 0;
  for (const Copy* c : copies) bytes += ram_->block_bytes(c->group);
  return bytes;
}

// Without an SSD tier a pin holds its copies in RAM, of which half may be held so: live sequences need the rest.
Status StoreImpl::pin_in_ram(const Sequence& seq, Pin pin) {
  RamPin held{.pin = std::move(pin), .copies = {}};
  for (std::size_t g = 0; g < config_.groups.size(); ++g)
    for (std::int64_t i = held.pin.first[g]; i < held.pin.blocks; ++i)
      held.copies.push_back(&seq.path[static_cast<std::size_t>(i)]->copies[g]);
  const std::uint64_t most = std::min(config_.arena_bytes_max, config_.unpinned_bytes_max) / 2;
  const std::uint64_t before = ram_pinned_bytes();
  ram_pins_.push_back(std::move(held));
  const std::uint64_t after = ram_pinned_bytes();
  if (after > most) {
    const std::int64_t tokens = ram_pins_.back().pin.blocks * kBlockTokens;
    ram_pins_.pop_back();
    return Status::exhausted(
        fmt::format("pinning these {} tokens would keep {} more in RAM, {} with what is pinned already; without an SSD "
                    "tier pins may take {}, half of --kv-ram: unpin something, raise --kv-ram, or give --kv-disk",
                    tokens, format_size(after - before), format_size(after), format_size(most)));
  }
  for (Copy* c : ram_pins_.back().copies) ram_->pin(*c);
  return Status::success();
}

Result<Pinned> StoreImpl::pin(std::span<const TokenId> tokens, std::string_view salt, const std::string& name) {
  const auto state = chain(tokens, salt, Write::now);
  if (!state.ok()) return state.status();
  if (state->stored == 0)
    return Status::not_found(
        "nothing of this prefix is stored, so there is nothing to pin: send it as a request first (a prefix has at "
        "least 32 tokens)");
  if (disk_ && state->durable < state->stored)
    return Status(Code::unavailable, "the prefix is not on the SSD yet: try again in a second");
  Pin pin{.key = state->keys[static_cast<std::size_t>(state->stored - 1)],
          .root = root_key(root_inputs(salt)),
          .blocks = state->stored,
          .wall_seconds = clock_.wall_seconds(),
          .first = {},
          .name = name};
  for (std::size_t g = 0; g < config_.groups.size(); ++g)
    pin.first.push_back(std::clamp<std::int64_t>(first_block(g, pin.blocks), 0, pin.blocks));
  Pinned out{.key = pin.key, .tokens = pin.blocks * kBlockTokens};
  for (std::size_t g = 0; g < layouts_.size(); ++g)
    out.bytes += static_cast<std::uint64_t>((pin.blocks - pin.first[g]) * layouts_[g].block_bytes);
  if (disk_) {
    LODE_RETURN_IF_ERROR(disk_->pin(pin));
    return out;
  }
  const auto same =
      std::find_if(ram_pins_.begin(), ram_pins_.end(), [&](const auto& p) { return p.pin.key == pin.key; });
  if (same != ram_pins_.end()) {
    same->pin.name = name;
    return out;
  }
  Sequence& seq = probe(tokens, salt);
  const Status held = pin_in_ram(seq, std::move(pin));
  end_probe(seq);
  if (!held.ok()) return held;
  return out;
}

Status StoreImpl::unpin(const BlockKey& key, std::string_view salt) {
  const BlockKey root = root_key(root_inputs(salt));
  Status none = Status::not_found("no prefix with this key is pinned here");
  if (disk_) {
    const auto& all = disk_->pins();
    if (std::none_of(all.begin(), all.end(), [&](const Pin& p) { return p.key == key && p.root == root; })) return none;
    return disk_->unpin(key);
  }
  const auto at = std::find_if(ram_pins_.begin(), ram_pins_.end(),
                               [&](const RamPin& p) { return p.pin.key == key && p.pin.root == root; });
  if (at == ram_pins_.end()) return none;
  for (auto c = at->copies.rbegin(); c != at->copies.rend(); ++c) {
    Block& block = *(*c)->block;
    (*c)->keep = true;
    ram_->unpin(**c);
    index_.settle(block);
  }
  ram_pins_.erase(at);
  evictor_.trim(config_.unpinned_bytes_max);
  return Status::success();
}

std::vector<Pin> StoreImpl::pins(std::string_view salt) const {
  const BlockKey root = root_key(root_inputs(salt));
  std::vector<Pin> out;
  if (disk_)
    for (const Pin& pin : disk_->pins())
      if (pin.root == root) out.push_back(pin);
  for (const RamPin& held : ram_pins_)
    if (held.pin.root == root) out.push_back(held.pin);
  return out;
}

}  // namespace lode::kv
