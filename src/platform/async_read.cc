#include "platform/async_read.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <fmt/format.h>

namespace lode::platform {
namespace {

constexpr std::size_t kPartsMax = 64;
// Reads in a row that return nothing: interruptions, or the end of the file.
constexpr int kEmptyReadsMax = 3;

Status ended_early(const ReadOp& op) {
  return Status::io(fmt::format("cannot read {}: it ends at byte {}", op.file->path().string(), op.offset));
}

// Takes `bytes` off the front of the op.
void advance(ReadOp& op, std::size_t bytes) {
  op.offset += bytes;
  std::size_t whole = 0;
  while (whole < op.parts.size() && bytes >= op.parts[whole].size()) bytes -= op.parts[whole++].size();
  op.parts.erase(op.parts.begin(), op.parts.begin() + static_cast<std::ptrdiff_t>(whole));
  if (bytes > 0) op.parts.front() = op.parts.front().subspan(bytes);
}

// Reads the whole op on this thread.
Status read_now(ReadOp& op) {
  int nothing = 0;
  while (!op.parts.empty()) {
    auto got = op.file->preadv(op.parts, op.offset);
    if (!got.ok()) return got.status();
    if (*got == 0 && ++nothing == kEmptyReadsMax) return ended_early(op);
    if (*got != 0) nothing = 0;
    advance(op, *got);
  }
  return {};
}

class ThreadReader final : public AsyncReader {
 public:
  explicit ThreadReader(unsigned threads) {
    for (unsigned i = 0; i < std::max(1u, threads); ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& t : threads_) t.join();
  }
  void submit(std::span<ReadOp* const> ops) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.end(), ops.begin(), ops.end());
    }
    ops.size() == 1 ? wake_.notify_one() : wake_.notify_all();
  }
  std::string_view name() const override { return "pread threads"; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      ReadOp* op = queue_.front();
      queue_.pop_front();
      lock.unlock();
      Status status = read_now(*op);
      op->sink->read_done(*op, std::move(status));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<ReadOp*> queue_;  // Guarded by mutex_.
  bool stop_ = false;          // Guarded by mutex_.
  std::vector<std::thread> threads_;
};

// Reads when its turn comes, in whatever order the turns say.
class TurnReader final : public AsyncReader {
 public:
  explicit TurnReader(Turns& turns)
      : turns_(turns), worker_(turns.add([this](std::uint64_t pick) { return take_turn(pick); })) {}
  ~TurnReader() override { turns_.remove(worker_); }
  void submit(std::span<ReadOp* const> ops) override { queue_.insert(queue_.end(), ops.begin(), ops.end()); }
  std::string_view name() const override { return "turns"; }

 private:
  bool take_turn(std::uint64_t pick) {
    if (queue_.empty()) return false;
    const auto at = queue_.begin() + static_cast<std::ptrdiff_t>(pick % queue_.size());
    ReadOp* op = *at;
    queue_.erase(at);
    Status status = read_now(*op);
    op->sink->read_done(*op, std::move(status));
    return true;
  }

  Turns& turns_;
  std::vector<ReadOp*> queue_;
  const std::uint64_t worker_;
};

// One thread owns the ring. Others put ops into a queue and ring an eventfd, whose pending read wakes that thread from
// the same wait as the disk's completions do.
class UringReader final : public AsyncReader {
 public:
  static std::unique_ptr<UringReader> create(unsigned depth) {
    auto reader = std::unique_ptr<UringReader>(new UringReader(depth));
    if (::io_uring_queue_init(depth + 1, &reader->ring_, 0) < 0) return nullptr;
    reader->ring_ready_ = true;
    if (reader->bell_ < 0 || !reader->works()) return nullptr;
    reader->thread_ = std::thread([r = reader.get()] { r->work(); });
    return reader;
  }
  ~UringReader() override {
    if (thread_.joinable()) {
      stop_ = true;
      ring_bell();
      thread_.join();
    }
    if (ring_ready_) ::io_uring_queue_exit(&ring_);
    if (bell_ >= 0) ::close(bell_);
  }
  void submit(std::span<ReadOp* const> ops) override {
    {
      const std::lock_guard lock(mutex_);
      incoming_.insert(incoming_.end(), ops.begin(), ops.end());
    }
    ring_bell();
  }
  std::string_view name() const override { return "io_uring"; }

 private:
  // A place in flight. The kernel may look at `io` until the read completes.
  struct Flight {
    ReadOp* op = nullptr;
    int nothing = 0;  // Empty reads in a row.
    std::array<iovec, kPartsMax> io;
  };

  explicit UringReader(unsigned depth) : bell_(::eventfd(0, EFD_CLOEXEC)), flights_(depth) {
    for (auto& f : flights_) free_.push_back(&f);
  }

  // A sandbox may allow the set-up and refuse the use.
  bool works() {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    if (!sqe) return false;
    ::io_uring_prep_nop(sqe);
    io_uring_cqe* cqe = nullptr;
    if (::io_uring_submit(&ring_) != 1 || ::io_uring_wait_cqe(&ring_, &cqe) < 0) return false;
    ::io_uring_cqe_seen(&ring_, cqe);
    return true;
  }

  void ring_bell() {
    const std::uint64_t one = 1;
    while (::write(bell_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  void listen() {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    LODE_CHECK(sqe);
    ::io_uring_prep_read(sqe, bell_, &bell_count_, sizeof bell_count_, 0);
    ::io_uring_sqe_set_data(sqe, nullptr);
  }

  void launch(Flight& f) {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    LODE_CHECK(sqe);  // depth flights and the bell: there is always room.
    const std::size_t n = std::min(f.op->parts.size(), kPartsMax);
    for (std::size_t i = 0; i < n; ++i) f.io[i] = {f.op->parts[i].data(), f.op->parts[i].size()};
    ::io_uring_prep_readv(sqe, f.op->file->native_fd(), f.io.data(), static_cast<unsigned>(n), f.op->offset);
    ::io_uring_sqe_set_data(sqe, &f);
  }

  // Hands everything prepared to the kernel. It may be short of memory for a moment: then it is asked again, unless
  // completions wait to be taken off first.
  void hand_over() {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int result = ::io_uring_submit(&ring_);
      if (result >= 0 || result == -EINTR) continue;
      if (::io_uring_cq_ready(&ring_) > 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void work() {
    listen();
    for (;;) {
      fill();
      hand_over();
      io_uring_cqe* cqe = nullptr;
      if (::io_uring_wait_cqe(&ring_, &cqe) < 0) continue;
      // The completions at hand are taken off first and their places refilled before anything is checked or hashed, so
      // that the disk is never idle meanwhile.
      finished_.clear();
      unsigned head, seen = 0;
      io_uring_for_each_cqe(&ring_, head, cqe) {
        ++seen;
        if (auto* f = static_cast<Flight*>(::io_uring_cqe_get_data(cqe))) {
          complete(*f, cqe->res);
        } else {
          listen();
        }
      }
      ::io_uring_cq_advance(&ring_, seen);
      fill();
      hand_over();
      for (auto& [op, status] : finished_) op->sink->read_done(*op, std::move(status));
      if (stop_ && free_.size() == flights_.size()) return;
    }
  }

  // Starts what waits, as far as places are free.
  void fill() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), incoming_.begin(), incoming_.end());
      incoming_.clear();
    }
    while (!waiting_.empty() && !free_.empty()) {
      ReadOp* op = waiting_.front();
      waiting_.pop_front();
      if (op->file->native_fd() < 0) {  // A fake file.
        Status status = read_now(*op);
        op->sink->read_done(*op, std::move(status));
        continue;
      }
      Flight* f = free_.back();
      free_.pop_back();
      f->op = op, f->nothing = 0;
      launch(*f);
    }
  }

  void complete(Flight& f, int result) {
    if (result >= 0) advance(*f.op, static_cast<std::size_t>(result));
    Status status;
    bool again = false;
    if (result < 0 && result != -EINTR && result != -EAGAIN) {
      status = errno_status(-result, "read", f.op->file->path());
    } else if (!f.op->parts.empty()) {
      f.nothing = result > 0 ? 0 : f.nothing + 1;
      again = f.nothing < kEmptyReadsMax;
      if (!again) status = ended_early(*f.op);
    }
    if (again) {
      launch(f);
      return;
    }
    finished_.emplace_back(f.op, std::move(status));
    f.op = nullptr;
    free_.push_back(&f);
  }

  const int bell_;
  io_uring ring_{};
  bool ring_ready_ = false;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<ReadOp*> incoming_;  // Guarded by mutex_.
  // The rest belongs to the ring's thread.
  std::uint64_t bell_count_ = 0;
  std::vector<Flight> flights_;
  std::vector<Flight*> free_;
  std::deque<ReadOp*> waiting_;
  std::vector<std::pair<ReadOp*, Status>> finished_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<AsyncReader> AsyncReader::create(const AsyncReadOptions& options) {
  if (options.turns) return std::make_unique<TurnReader>(*options.turns);
  if (options.mode == AsyncReadOptions::Mode::automatic) {
    if (auto reader = UringReader::create(std::max(1u, options.depth))) return reader;
  }
  return std::make_unique<ThreadReader>(options.threads);
}

}  // namespace lode::platform
