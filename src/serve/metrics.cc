#include "serve/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "platform/process.h"

namespace lode::serve {
namespace {

class Page {
 public:
  void counter(std::string_view name, std::string_view help, auto value) { one(name, help, "counter", value); }
  void gauge(std::string_view name, std::string_view help, auto value) { one(name, help, "gauge", value); }
  // A family of samples that differ in one label: head, then any number of samples.
  void head(std::string_view name, std::string_view help, std::string_view type) {
    fmt::format_to(std::back_inserter(text_), "# HELP lode_{0} {1}\n# TYPE lode_{0} {2}\n", name, help, type);
  }
  void sample(std::string_view name, std::string_view label, std::string_view is, auto value) {
    fmt::format_to(std::back_inserter(text_), "lode_{}{{{}=\"{}\"}} {}\n", name, label, is, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& h) {
    head(name, help, "histogram");
    const auto counts = h.counts();
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < h.bounds().size(); ++i)
      sample(fmt::format("{}_bucket", name), "le", fmt::format("{}", h.bounds()[i]), sum += counts[i]);
    sum += counts.back();
    sample(fmt::format("{}_bucket", name), "le", "+Inf", sum);
    fmt::format_to(std::back_inserter(text_), "lode_{0}_sum {1}\nlode_{0}_count {2}\n", name, h.sum(), sum);
  }
  // A name that others have given: llama-server's, or Prometheus' own for a process.
  void known(std::string_view name, std::string_view help, std::string_view type, auto value) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  }
  std::string take() { return std::move(text_); }

 private:
  void one(std::string_view name, std::string_view help, std::string_view type, auto value) {
    head(name, help, type);
    fmt::format_to(std::back_inserter(text_), "lode_{} {}\n", name, value);
  }
  std::string text_;
};

void add_http(Page& page, const HttpCounters& http) {
  page.gauge("http_connections_open", "Open client connections.", http.connections_open.load());
  page.counter("http_connections_refused_total", "Connections closed because too many were open.",
               http.connections_refused.load());
  page.counter("http_requests_total", "Requests read.", http.requests.load());
  page.gauge("http_requests_open", "Requests being answered.", http.requests_open.load());
  page.head("http_replies_total", "Replies by class of status.", "counter");
  page.sample("http_replies_total", "class", "2xx", http.replies_2xx.load());
  page.sample("http_replies_total", "class", "4xx", http.replies_4xx.load());
  page.sample("http_replies_total", "class", "5xx", http.replies_5xx.load());
  page.counter("http_clients_gone_total", "Clients that left before their answer was finished.",
               http.clients_gone.load());
  page.counter("http_clients_slow_total", "Clients dropped for not reading or sending in time.",
               http.clients_slow.load());
}

void add_engine(Page& page, const engine::EngineStats& s) {
  page.gauge("slots_busy", "Sequences being computed.", s.slots_busy);
  page.gauge("requests_queued", "Sequences waiting for a slot.", s.queued);
  page.counter("steps_total", "Engine steps.", s.steps);
  page.counter("prompt_tokens_computed_total", "Prompt tokens computed.", s.tokens_prefilled);
  page.counter("tokens_generated_total", "Tokens generated.", s.tokens_generated);
  page.counter("sequences_total", "Sequences admitted.", s.requests);
  page.counter("sequences_failed_total", "Sequences that ended in an error.", s.requests_failed);
  page.counter("sequences_cancelled_total", "Sequences cancelled.", s.requests_cancelled);
  page.counter("preemptions_total", "Sequences set aside for want of memory.", s.preemptions);
}

void add_latencies(Page& page, const HttpCounters& http) {
  page.histogram("time_to_first_token_seconds", "From the request's last byte to the answer's first token.",
                 http.first_token);
  page.histogram("inter_token_latency_seconds", "Between two pieces of an answer's text.", http.between_tokens);
  page.histogram("time_per_output_token_seconds", "Mean of an answer, from its second token on.", http.per_token);
  page.histogram("queue_seconds", "Waiting for a slot.", http.queue);
  page.histogram("request_seconds", "Requests for text that went well, from their last byte to the answer's.",
                 http.whole);
}

double rate(double n, double seconds) {
  return seconds > 0 ? n / seconds : 0;
}

// The page of llama-server, for dashboards that were made for it.
void add_llama(Page& page, const HttpCounters& http, const engine::EngineStats& s) {
  const double prompt = http.prompt_seconds.load(), predicted = http.predicted_seconds.load();
  page.known("llamacpp:prompt_tokens_total", "Prompt tokens computed.", "counter", s.tokens_prefilled);
  page.known("llamacpp:prompt_seconds_total", "Seconds spent on prompts, of requests that ended.", "counter", prompt);
  page.known("llamacpp:tokens_predicted_total", "Tokens generated.", "counter", s.tokens_generated);
  page.known("llamacpp:tokens_predicted_seconds_total", "Seconds spent on answers, of requests that ended.", "counter",
             predicted);
  page.known("llamacpp:n_decode_total", "Engine steps.", "counter", s.steps);
  page.known("llamacpp:prompt_tokens_seconds", "Prompt tokens computed a second, on average.", "gauge",
             rate(static_cast<double>(s.tokens_prefilled), prompt));
  page.known("llamacpp:predicted_tokens_seconds", "Tokens generated a second, on average.", "gauge",
             rate(static_cast<double>(s.tokens_generated), predicted));
  page.known("llamacpp:requests_processing", "Sequences being computed.", "gauge", s.slots_busy);
  page.known("llamacpp:requests_deferred", "Sequences waiting for a slot.", "gauge", s.queued);
}

void add_process(Page& page) {
  const auto bytes = platform::resident_bytes();
  if (bytes.ok())
    page.known("process_resident_memory_bytes", "Resident memory, mapped weights included.", "gauge", *bytes);
}

void add_kv(Page& page, const kv::StoreStats& kv) {
  page.head("kv_reused_tokens_total", "Prompt tokens taken from the KV store, by tier.", "counter");
  page.sample("kv_reused_tokens_total", "tier", "ram", kv.hits_ram_tokens);
  page.sample("kv_reused_tokens_total", "tier", "disk", kv.hits_disk_tokens);
  page.sample("kv_reused_tokens_total", "tier", "in_flight", kv.hits_in_flight_tokens);
  page.counter("kv_computed_tokens_total", "Tokens whose KV was computed.", kv.computed_tokens);
  page.gauge("kv_blocks", "Blocks in memory.", kv.blocks);
  page.head("kv_memory_bytes", "KV memory.", "gauge");
  page.sample("kv_memory_bytes", "kind", "committed", kv.committed_bytes);
  page.sample("kv_memory_bytes", "kind", "pinned", kv.pinned_bytes);
  page.sample("kv_memory_bytes", "kind", "unpinned", kv.unpinned_bytes);
  page.sample("kv_memory_bytes", "kind", "limit", kv.arena_bytes_max);
  page.sample("kv_memory_bytes", "kind", "peak", kv.peak_committed_bytes);
  if (kv.vram_bytes_max > 0) {
    page.head("vram_bytes", "The card's memory: all that is taken of its bound, and KV in it.", "gauge");
    page.sample("vram_bytes", "kind", "committed", kv.vram_committed_bytes);
    page.sample("vram_bytes", "kind", "kv", kv.vram_kv_bytes);
    page.sample("vram_bytes", "kind", "limit", kv.vram_bytes_max);
    page.sample("vram_bytes", "kind", "peak", kv.vram_peak_bytes);
  }
  page.counter("kv_evicted_blocks_total", "Blocks evicted from memory.", kv.evicted_blocks);
  page.counter("kv_corrupt_blocks_total", "Blocks that failed a check and were computed again.", kv.corrupt_blocks);
}

void add_disk(Page& page, const kv::DiskStats& disk) {
  page.gauge("disk_extents", "Extent files.", disk.extents);
  page.gauge("disk_blocks", "Blocks on disk.", disk.blocks);
  page.gauge("disk_allocated_bytes", "Bytes allocated by extents.", disk.bytes_allocated);
  page.gauge("disk_quota_bytes", "Most bytes extents may allocate.", disk.quota_bytes);
  page.counter("disk_written_bytes_total", "Bytes written.", disk.bytes_written);
  page.counter("disk_read_bytes_total", "Bytes read.", disk.bytes_read);
  page.gauge("disk_written_today_bytes", "Bytes written in the current day of the write cap.",
             disk.bytes_written_today);
  page.gauge("disk_queue_bytes", "Bytes waiting to be written.", disk.queue_bytes);
  page.counter("disk_writes_dropped_total", "Writes dropped: queue full, quota, cap, read-only or error.",
               disk.writes_dropped);
  page.counter("disk_write_errors_total", "Writes that failed.", disk.write_errors);
  page.counter("disk_corrupt_slices_total", "Slices that failed their checksum.", disk.corrupt_slices);
  page.counter("disk_files_set_aside_total", "Damaged or foreign files set aside.", disk.files_set_aside);
  page.counter("disk_evicted_extents_total", "Extents removed to keep the quota.", disk.evicted_extents);
}

void add_experts(Page& page, const experts::CacheStats& s) {
  page.gauge("expert_slots", "Experts that memory can hold.", s.slots);
  page.gauge("expert_resident", "Experts in memory.", s.resident);
  page.gauge("expert_slots_bytes", "Memory of the slots.", s.slots * s.slot_bytes);
  page.counter("expert_hits_total", "Experts that a step needed and found in memory.", s.hits);
  page.counter("expert_misses_total", "Experts that a step had to read.", s.misses);
  page.counter("expert_read_bytes_total", "Bytes read from the model's file for experts.", s.bytes_read);
  page.counter("expert_stalls_total", "Times that a step waited for an expert.", s.stalls);
  page.counter("expert_stall_seconds_total", "Time that steps waited for experts.",
               static_cast<double>(s.stall_ns) * 1e-9);
  page.head("expert_prefetches_total", "Experts read before a step needed them, by what became of them.", "counter");
  page.sample("expert_prefetches_total", "outcome", "used", s.prefetch_used);
  page.sample("expert_prefetches_total", "outcome", "wasted", s.prefetch_wasted);
  page.sample("expert_prefetches_total", "outcome", "open", s.prefetched - s.prefetch_used - s.prefetch_wasted);
  page.counter("expert_read_errors_total", "Experts that could not be read.", s.read_errors);
}

}  // namespace

void HttpCounters::count_reply(int status) {
  auto& counter = status >= 500 ? replies_5xx : status >= 400 ? replies_4xx : replies_2xx;
  counter.fetch_add(1, std::memory_order_relaxed);
}

std::string prometheus_text(const HttpCounters& http, const engine::EngineStats* stats) {
  Page page;
  page.gauge("ready", "1 once the model is loaded.", stats != nullptr ? 1 : 0);
  add_http(page, http);
  add_latencies(page, http);
  add_process(page);
  if (stats != nullptr) {
    add_engine(page, *stats);
    add_llama(page, http, *stats);
    add_kv(page, stats->kv);
    add_disk(page, stats->kv.disk);
    if (stats->experts) add_experts(page, *stats->experts);
  }
  return page.take();
}

}  // namespace lode::serve
