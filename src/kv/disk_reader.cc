#include "kv/disk_reader.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace lode::kv {

using platform::OpenOptions;
using platform::ReadOp;

// All state is guarded by one mutex, taken once a read (some hundreds a restore); hashing goes on outside it.
class DiskReader::TicketImpl final : public DiskReader::Ticket, private platform::ReadSink {
 public:
  TicketImpl(DiskReader& owner, ReadPlan plan)
      : owner_(owner), plan_(std::move(plan)), item_failed_(plan_.item_groups.size()) {
    for (const auto& layout : owner_.config_.groups) {
      for (const auto& slice : layout.slices) layers_.resize(std::max<std::size_t>(layers_.size(), slice.layer.v + 1));
    }
    for (const std::size_t item : plan_.missing) fail_item(item);
    for (const auto& extent : plan_.extents) open(extent);
    prepare();
  }

  // Reads for a device start as buffers are free: later ones of this and other tickets, from reader threads.
  void submit() {
    std::vector<ReadOp*> pointers;
    pointers.reserve(ops_.size());
    std::vector<Waiting> staged;
    for (std::size_t tag = 0; tag < ops_.size(); ++tag) {
      if (purposes_[tag].staged) staged.push_back({this, tag});
      else pointers.push_back(&ops_[tag]);
    }
    if (!pointers.empty()) owner_.reader_->submit(pointers);
    if (!staged.empty()) owner_.stage(staged);
  }
  ReadOp* give_buffer(std::size_t tag, std::byte* buffer) {
    const Purpose& p = purposes_[tag];
    const auto& slice = layout(extents_[p.extent]).slices[p.slice];
    buffers_[tag] = buffer;
    ops_[tag].parts.emplace_back(buffer, static_cast<std::size_t>(slice.bytes) * p.run->items.size());
    return &ops_[tag];
  }

  bool wait_layer(LayerIndex layer) override {
    std::unique_lock lock(mutex_);
    if (layer.v >= layers_.size()) return true;
    changed_.wait(lock, [&] { return layers_[layer.v].pending == 0; });
    return !layers_[layer.v].failed;
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return pending_ == 0;
  }
  void wait_done() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_ == 0; });
  }
  std::vector<std::size_t> failed() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> items;
    for (std::size_t i = 0; i < item_failed_.size(); ++i) {
      if (item_failed_[i]) items.push_back(i);
    }
    return items;
  }
  std::uint64_t bytes() const override {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  double seconds() const override {
    const std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(ended_ - started_).count();
  }
  std::vector<ReadProblem> take_problems() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(problems_, {});
  }

 private:
  struct Layer {
    std::size_t pending = 0;  // Reads that still have to arrive and be checked.
    bool failed = false;
  };
  enum class HeaderState : std::uint8_t { reading, good, bad };
  struct OpenExtent {
    const ReadExtent* plan = nullptr;
    GroupId group;
    ExtentShape shape;
    std::unique_ptr<platform::File> file;
    AlignedBytes header_bytes;
    HeaderState header_state = HeaderState::reading;
    std::vector<std::uint64_t> checksums;  // [slices, blocks], once the header is good.
    std::vector<std::size_t> parked;       // Reads that arrived before the header.
    std::size_t pending = 0;               // Reads of it that are not finished.
    bool reported = false;
  };
  // What a read is for; ops_ and purposes_ run in parallel.
  struct Purpose {
    std::size_t extent = 0;
    const ReadRun* run = nullptr;  // nullptr: the header.
    std::size_t slice = 0;         // In the group's order.
    bool staged = false;           // Some of its destinations are on the device.
  };

  const model::BlockLayout& layout(const OpenExtent& e) const { return owner_.config_.groups[e.group.v]; }

  // mutex_ held, or before submit().
  void fail_item(std::size_t item) {
    item_failed_[item] = true;
    for (const auto& slice : owner_.config_.groups[plan_.item_groups[item].v].slices)
      layers_[slice.layer.v].failed = true;
  }
  void report(OpenExtent& e, const Status& status) {
    if (std::exchange(e.reported, true)) return;
    auto kind = ReadProblem::Kind::damaged;
    if (status.code() == Code::not_found) kind = ReadProblem::Kind::gone;
    if (status.code() == Code::resource_exhausted) kind = ReadProblem::Kind::later;
    problems_.push_back({e.plan->name, kind, status.message()});
  }

  void open(const ReadExtent& plan) {
    const GroupId group{plan.name.group};
    OpenExtent e{.plan = &plan,
                 .group = group,
                 .shape = ExtentShape::of(owner_.config_.groups[group.v], plan.name.blocks),
                 .file = nullptr,
                 .header_bytes = nullptr,
                 .checksums = {},
                 .parked = {}};
    bool aligned = true;
    for (const auto& run : plan.runs) {
      for (const std::byte* dst : run.dst) aligned &= reinterpret_cast<std::uintptr_t>(dst) % platform::kFileAlign == 0;
    }
    const auto path = owner_.paths_.own / plan.name.file_name();
    Result<std::unique_ptr<platform::File>> file = Status(Code::unsupported, "");
    if (aligned && owner_.counters_.direct) file = owner_.fs_.open(path, {.cache = OpenOptions::Cache::bypass});
    if (file.status().code() == Code::unsupported) {
      if (aligned) owner_.counters_.direct = false;
      file = owner_.fs_.open(path, {});
    }
    if (!file.ok()) {
      report(e, file.status());
      for (const auto& run : plan.runs) {
        for (const std::size_t item : run.items) fail_item(item);
      }
      return;
    }
    e.file = std::move(file).value();
    e.header_bytes = aligned_bytes(e.shape.header_bytes());
    extents_.push_back(std::move(e));
  }

  // Lays out all reads: headers first, since nothing counts before them, then layer by layer over all extents.
  void prepare() {
    std::vector<Purpose> slices;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      purposes_.push_back({.extent = i});
      for (const auto& run : extents_[i].plan->runs) {
        const bool staged = owner_.staging_ && std::any_of(run.dst.begin(), run.dst.end(), [&](const std::byte* dst) {
                              return owner_.config_.device->on_device(dst);
                            });
        for (std::size_t s = 0; s < extents_[i].shape.slice_bytes().size(); ++s) slices.push_back({i, &run, s, staged});
      }
    }
    const auto layer_of = [&](const Purpose& p) { return layout(extents_[p.extent]).slices[p.slice].layer.v; };
    std::stable_sort(slices.begin(), slices.end(),
                     [&](const Purpose& a, const Purpose& b) { return layer_of(a) < layer_of(b); });
    purposes_.insert(purposes_.end(), slices.begin(), slices.end());
    for (const Purpose& p : purposes_) {
      OpenExtent& e = extents_[p.extent];
      ReadOp op{.file = e.file.get(), .offset = 0, .parts = {}, .sink = this, .tag = ops_.size()};
      if (!p.run) {
        op.parts.emplace_back(e.header_bytes.get(), e.shape.header_bytes());
      } else {
        op.offset = e.shape.slice_offset(p.slice, p.run->first);
        const auto& slice = layout(e).slices[p.slice];
        for (std::byte* dst : p.run->dst) {
          if (p.staged) break;
          op.parts.emplace_back(dst + slice.offset, static_cast<std::size_t>(slice.bytes));
        }
        ++layers_[slice.layer.v].pending;
      }
      ops_.push_back(std::move(op));
      ++e.pending;
    }
    pending_ = ops_.size();
    buffers_.resize(ops_.size(), nullptr);
  }

  void read_done(ReadOp& op, Status status) override {
    const Purpose p = purposes_[op.tag];
    OpenExtent& e = extents_[p.extent];
    if (status.code() == Code::unsupported && owner_.counters_.direct) {
      owner_.counters_.direct = false;
      status = read_buffered(op, e);
    }
    if (!p.run) {
      header_done(e, std::move(status));
    } else {
      slice_read(op.tag, status);
    }
  }

  // This disk wants more of O_DIRECT than 4 KiB alignment.
  Status read_buffered(ReadOp& op, const OpenExtent& e) {
    auto file = owner_.fs_.open(e.file->path(), {});
    if (!file.ok()) return file.status();
    std::uint64_t at = op.offset;
    for (const auto part : op.parts) {
      LODE_RETURN_IF_ERROR(platform::read_fully(**file, part, at));
      at += part.size();
    }
    return {};
  }

  void header_done(OpenExtent& e, Status status) {
    std::vector<std::uint64_t> checksums;
    if (status.ok()) status = check_header(e, checksums);
    std::vector<std::size_t> parked;
    {
      const std::lock_guard lock(mutex_);
      e.header_state = status.ok() ? HeaderState::good : HeaderState::bad;
      e.checksums = std::move(checksums);
      parked = std::exchange(e.parked, {});
      if (!status.ok()) report(e, status);
      bytes_ += e.shape.header_bytes();
    }
    for (const std::size_t tag : parked) check_slice(tag);
    finish(e, 1);
  }

  Status check_header(const OpenExtent& e, std::vector<std::uint64_t>& checksums) const {
    auto header = parse_header({e.header_bytes.get(), e.shape.header_bytes()});
    if (!header.ok()) return Status::corrupt(fmt::format("{}: {}", e.file->path().string(), header.status().message()));
    if (header->meta.name != e.plan->name || header->meta.keys != e.plan->keys ||
        header->model_fingerprint != owner_.config_.model_fingerprint ||
        !std::equal(header->slice_bytes.begin(), header->slice_bytes.end(), e.shape.slice_bytes().begin(),
                    e.shape.slice_bytes().end())) {
      return Status::corrupt(fmt::format("{}: its header belongs to another extent", e.file->path().string()));
    }
    checksums = std::move(header->checksums);
    return {};
  }

  void slice_read(std::size_t tag, const Status& status) {
    const Purpose& p = purposes_[tag];
    OpenExtent& e = extents_[p.extent];
    if (!status.ok()) {
      return_buffer(tag);
      const std::lock_guard lock(mutex_);
      report(e, status);
      for (const std::size_t item : p.run->items) fail_item(item);
      end_slice(p, e);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (e.header_state == HeaderState::reading) {
        e.parked.push_back(tag);
        return;
      }
    }
    check_slice(tag);
  }

  // Its bytes and the header are here.
  void check_slice(std::size_t tag) {
    const Purpose& p = purposes_[tag];
    OpenExtent& e = extents_[p.extent];
    const auto& slice = layout(e).slices[p.slice];
    std::vector<std::size_t> bad;
    const bool good_header = e.header_state == HeaderState::good;  // Final, and published by the mutex before.
    const auto slice_bytes = static_cast<std::size_t>(slice.bytes);
    std::vector<kernels::DeviceCopy> copies;
    for (std::size_t i = 0; i < p.run->items.size(); ++i) {
      std::byte* const dst = p.run->dst[i] + slice.offset;
      const std::byte* const here = p.staged ? buffers_[tag] + i * slice_bytes : dst;
      if (!good_header || checksum({here, slice_bytes}) != e.checksums[p.slice * e.shape.blocks() + p.run->first + i])
        bad.push_back(p.run->items[i]);
      else if (p.staged) copies.push_back({dst, here, slice_bytes});
    }
    const Status copied = copies.empty() ? Status::success() : owner_.config_.device->copy(copies);
    return_buffer(tag);
    const std::lock_guard lock(mutex_);
    for (const std::size_t item : bad) fail_item(item);
    if (!copied.ok()) {
      for (const std::size_t item : p.run->items) fail_item(item);
      report(e, Status::exhausted(copied.message()));  // The file is fine.
    }
    if (!bad.empty() && good_header) {
      owner_.counters_.corrupt_slices += bad.size();
      report(e,
             Status::corrupt(fmt::format("{}: checksum of layer {} differs", e.file->path().string(), slice.layer.v)));
    }
    const std::uint64_t bytes = static_cast<std::uint64_t>(slice.bytes) * p.run->items.size();
    bytes_ += bytes;
    owner_.counters_.bytes_read += bytes;
    end_slice(p, e);
  }

  void return_buffer(std::size_t tag) {
    if (std::byte* buffer = std::exchange(buffers_[tag], nullptr)) owner_.unstage(buffer);
  }
  // mutex_ held.
  void end_slice(const Purpose& p, OpenExtent& e) {
    auto& layer = layers_[layout(e).slices[p.slice].layer.v];
    finish_locked(e, 1);
    if (--layer.pending == 0) changed_.notify_all();
  }
  void finish(OpenExtent& e, std::size_t reads) {
    const std::lock_guard lock(mutex_);
    finish_locked(e, reads);
  }
  // The last touch of the ticket by a reader's thread happens with mutex_ held, so that wait_done() outlasts it.
  void finish_locked(OpenExtent& e, std::size_t reads) {
    e.pending -= reads;
    if (e.pending == 0) {
      if (!owner_.counters_.direct) e.file->drop_cached();
      e.file.reset();
    }
    pending_ -= reads;
    if (pending_ == 0) {
      ended_ = std::chrono::steady_clock::now();
      changed_.notify_all();
    }
  }

  DiskReader& owner_;
  const ReadPlan plan_;
  std::vector<ReadOp> ops_;
  std::vector<Purpose> purposes_;
  std::vector<std::byte*> buffers_;  // [reads] where a staged one's bytes are; each touched by one thread at a time.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<OpenExtent> extents_;
  std::vector<bool> item_failed_;  // [items]
  std::vector<Layer> layers_;      // By LayerIndex.
  std::vector<ReadProblem> problems_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), ended_ = started_;
  std::size_t pending_ = 0;  // Reads.
  std::uint64_t bytes_ = 0;
};

DiskReader::DiskReader(const DiskConfig& config, platform::FileSystem& fs, DiskCounters& counters)
    : config_(config), paths_(config), fs_(fs), counters_(counters) {
  using Mode = platform::AsyncReadOptions::Mode;
  reader_ = platform::AsyncReader::create(
      {.mode = config.read_mode == DiskConfig::ReadMode::automatic ? Mode::automatic : Mode::threads});
}

Status DiskReader::open_staging() {
  const StagingSizes sizes = staging_sizes(config_.groups);
  auto staging = Staging::create(*config_.device, sizes.read_bytes, sizes.reads);
  if (!staging.ok()) return staging.status();
  staging_ = std::move(staging).value();
  return Status::success();
}

// Queues reads and starts as many as there are buffers for.
void DiskReader::stage(std::span<const Waiting> reads) {
  std::vector<ReadOp*> ready;
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    while (!waiting_.empty()) {
      std::byte* buffer = staging_->take();
      if (!buffer) break;
      const Waiting next = waiting_.front();
      waiting_.pop_front();
      ready.push_back(next.ticket->give_buffer(next.tag, buffer));
    }
  }
  if (!ready.empty()) reader_->submit(ready);
}

// A read is done with its buffer: the next one gets it.
void DiskReader::unstage(std::byte* buffer) {
  staging_->give(buffer);
  stage({});
}

std::unique_ptr<DiskReader::Ticket> DiskReader::start(ReadPlan plan) {
  auto ticket = std::make_unique<TicketImpl>(*this, std::move(plan));
  ticket->submit();
  return ticket;
}

}  // namespace lode::kv
