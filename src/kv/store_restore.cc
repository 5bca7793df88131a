// Ends of reads, and what is done about damage.
#include <algorithm>

#include "kv/store_impl.h"

namespace lode::kv {

// Takes note of a read's end (waits for it if it is still going on). Damage breaks the ready sequences that relied on
// it: they are repaired before their next step. Waiting ones look for another resume point at once.
void StoreImpl::end_load(Load* load) {
  damaged_.clear();
  const std::int64_t ended_ns = load->ended_ns ? load->ended_ns : clock_.now_ns();
  const ReadTicket& ticket = *load->ticket;
  if (ticket.done()) evictor_.costs().read.observe(ticket.bytes(), ticket.seconds(), clock_.now_ns());
  restorer_->finish(load, damaged_);
  for (Sequence* seq : live_) {
    const auto at = std::find(seq->loads.begin(), seq->loads.end(), load);
    if (at == seq->loads.end()) continue;
    seq->loads.erase(at);
    seq->reuse.load_ms = static_cast<double>(ended_ns - seq->opened_ns) / 1e6;
    if (!damaged_.empty()) seq->broken = true;
  }
  if (damaged_.empty()) return;
  for (const Copy* c : damaged_) removals_->note(c->block->key, c->group, RemovedWhy::damaged);
  for (const Copy* c : damaged_)
    if (full(c->group.v)) evictor_.orphan(*c->block);
  settle_waiters();
}

void StoreImpl::finish_loads(Sequence& seq) {
  while (!seq.loads.empty()) end_load(seq.loads.back());
}

void StoreImpl::repair(Sequence& seq) {
  LODE_CHECK(seq.live);
  finish_loads(seq);
  if (!seq.broken) return;
  seq.broken = false;
  for (auto& g : seq.groups) packer_->seal(g.run);
  free_own_slots(seq);
  release_marks(seq);
  const std::int64_t before = seq.held;
  if (attach_best(seq, before, Peers::ignore) == Attached::no_memory) attach_from_ram(seq, before);
  become_ready(seq);
  if (seq.held < before) seq.reuse.reason = "damaged block";
  settle_waiters();
}

}  // namespace lode::kv
