#include "serve/body_work.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <exception>
#include <utility>

#include "serve/api_error.h"

namespace lode::serve {
namespace {

class BodyWork : public Observer, public std::enable_shared_from_this<BodyWork> {
 public:
  BodyWork(App& app, std::shared_ptr<Exchange> exchange, Compute compute)
      : app_(app), exchange_(std::move(exchange)), body_(exchange_->take_body()), compute_(std::move(compute)) {}

  void on_gone() override {
    if (take(Stage::gone)) std::string().swap(body_);  // Nobody reads it any more: the memory need not wait its turn.
    gone_ = true;
  }
  void on_tick(Time) override {}

  // On a worker.
  void run() {
    if (!take(Stage::running)) return;
    Finish finish;
    if (app_.stopping()) finish = [this] { exchange_->reply(error_reply(exchange_->request(), server_stopping())); };
    else finish = computed();
    exchange_->post([self = shared_from_this(), finish = std::move(finish)] {
      if (!self->gone_) finish();
    });
  }

 private:
  enum class Stage { waiting, running, gone };
  bool take(Stage next) {
    Stage waiting = Stage::waiting;
    return stage_.compare_exchange_strong(waiting, next);
  }

  Finish computed() {
    try {
      Finish finish = compute_(body_);
      std::string().swap(body_);
      return finish;
    } catch (const std::exception& e) {  // Out of memory, say: it ends this request, never the server.
      spdlog::error("internal error while reading a body: {}", e.what());
      return [this] { exchange_->reply(error_reply(exchange_->request(), ApiError{.message = "internal error"})); };
    }
  }

  App& app_;
  const std::shared_ptr<Exchange> exchange_;
  std::string body_;  // Of whoever took the stage.
  const Compute compute_;
  std::atomic<Stage> stage_{Stage::waiting};
  bool gone_ = false;  // Strand only.
};

}  // namespace

void work_on_worker(App& app, const std::shared_ptr<Exchange>& exchange, Compute compute) {
  const auto work = std::make_shared<BodyWork>(app, exchange, std::move(compute));
  exchange->observe(work);
  app.workers().run([work] { work->run(); });
}

void work_on_body(App& app, const std::shared_ptr<Exchange>& exchange, Compute compute) {
  if (exchange->request().body.size() <= kInlineBodyMax) return compute(exchange->request().body)();
  work_on_worker(app, exchange, std::move(compute));
}

}  // namespace lode::serve
