#include "kv/trace_recorder.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include <fmt/format.h>

namespace lode::kv {

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::create(platform::FileSystem& fs, platform::Clock& clock,
                                                             const std::filesystem::path& path) {
  auto file = fs.open(path, {.access = platform::OpenOptions::Access::update});
  if (!file.ok()) return file.status();
  LODE_RETURN_IF_ERROR((*file)->truncate(0));
  std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(clock, std::move(file).value()));
  recorder->write("# seconds from shared prompt generated\n");
  return recorder;
}

void TraceRecorder::ended(const Sequence& seq) {
  if (!file_ || seq.waiting || seq.held == 0) return;
  if (first_.size() > kBlocksMax) {
    spdlog::warn("{} has {} requests and gets no more: they have too many blocks", file_->path().string(), requests_);
    file_.reset();
    return;
  }
  const std::int64_t prompt = std::min(seq.held, seq.reuse.prompt_tokens / kBlockTokens);
  if (prompt == 0) return;
  std::int64_t from = -1, shared = 0;
  for (std::int64_t i = 0; i < seq.held; ++i) {
    const auto [known, is_new] = first_.emplace(seq.path[static_cast<std::size_t>(i)]->key, requests_);
    if (is_new || shared != i || i >= prompt) continue;
    from = known->second;
    shared = i + 1;
  }
  const double seconds = static_cast<double>(clock_.now_ns() - began_ns_) * 1e-9;
  write(fmt::format("{:.3f} {} {} {} {}\n", seconds, from, shared, prompt, seq.held - prompt));
  ++requests_;
}

void TraceRecorder::write(const std::string& line) {
  const std::span<const std::byte> part = std::as_bytes(std::span(line));
  const Status written = platform::write_fully(*file_, {&part, 1}, bytes_);
  bytes_ += line.size();
  if (written.ok()) return;
  spdlog::warn("requests are recorded no more: {}", written.message());
  file_.reset();
}

}  // namespace lode::kv
