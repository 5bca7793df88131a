#include "serve/signals.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <thread>
#include <utility>

namespace lode::serve {

struct SignalWatch::Impl {
  explicit Impl(std::function<void(int)> fn) : on_signal(std::move(fn)) {
    wait();
    thread = std::thread([this] { io.run(); });
  }
  ~Impl() {
    io.stop();
    thread.join();
  }
  void wait() {
    set.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      on_signal(++count);
      wait();
    });
  }

  std::function<void(int)> on_signal;
  int count = 0;
  boost::asio::io_context io{1};
  boost::asio::signal_set set{io, SIGINT, SIGTERM};
  std::thread thread;
};

SignalWatch::SignalWatch(std::function<void(int)> on_signal) : impl_(std::make_unique<Impl>(std::move(on_signal))) {}
SignalWatch::~SignalWatch() = default;

}  // namespace lode::serve
