#include "cli/bench_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace lode::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A loopback port that was free a moment ago.
Result<std::string> free_port() {
  namespace asio = boost::asio;
  boost::system::error_code error;
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context);
  acceptor.open(asio::ip::tcp::v4(), error);
  if (!error) acceptor.bind({asio::ip::make_address("127.0.0.1"), 0}, error);
  if (error) return Status::exhausted(fmt::format("no free port on 127.0.0.1: {}", error.message()));
  return std::to_string(acceptor.local_endpoint().port());
}

// Servers name the context they run with in different places.
std::int64_t context_of(const Json& model) {
  for (const char* pointer :
       {"/meta/n_ctx", "/max_model_len", "/context_length", "/meta/context_max", "/meta/n_ctx_train"}) {
    const Json::json_pointer at(pointer);
    if (model.contains(at) && model[at].is_number_integer()) return model[at].get<std::int64_t>();
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<BenchTarget>> BenchTarget::open(const TargetOptions& options) {
  std::unique_ptr<BenchTarget> target(new BenchTarget);
  target->options_ = options;
  if (options.target.find("://") != std::string::npos) {
    auto endpoint = parse_url(options.target);
    if (!endpoint.ok()) return endpoint.status();
    target->endpoint_ = std::move(*endpoint);
    target->endpoint_.api_key = options.api_key;
    auto reply = http_get(target->endpoint_, "/v1/models", 10);
    if (!reply.ok()) return reply.status();
  } else {
    auto folder = TemporaryFolder::make("lode-bench");
    if (!folder.ok()) return folder.status();
    target->folder_ = std::move(*folder);
    LODE_RETURN_IF_ERROR(target->start());
  }
  target->ask_for_model();
  return target;
}

BenchTarget::~BenchTarget() {
  if (child_) static_cast<void>(child_->terminate(30000).ok());
}

Status BenchTarget::start() {
  fs::path program = options_.program;
  if (program.empty()) {
    auto self = platform::self_path();
    if (!self.ok()) return self.status();
    program = std::move(*self);
  }
  auto port = free_port();
  if (!port.ok()) return port.status();
  endpoint_ = {"127.0.0.1", *port, "", options_.api_key};
  platform::ChildOptions child{.arguments = {program.string(), "serve", options_.target, "--port", *port},
                               .output = folder_.path() / "server.log"};
  const auto& extra = options_.serve_arguments;
  if (std::find(extra.begin(), extra.end(), "--kv-disk") == extra.end()) {
    child.arguments.insert(child.arguments.end(), {"--kv-disk", (folder_.path() / "kv").string()});
  }
  child.arguments.insert(child.arguments.end(), extra.begin(), extra.end());

  const auto begin = std::chrono::steady_clock::now();
  auto started = platform::Child::start(child);
  if (!started.ok()) return started.status();
  child_ = std::move(*started);
  while (true) {
    auto reply = http_get(endpoint_, "/health", 5);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (reply.ok() && reply->status == 200) {
      ready_s_.push_back(seconds);
      return Status::success();
    }
    if (const auto code = child_->poll()) {
      return Status(Code::unavailable,
                    fmt::format("lode serve {} ended with code {}: {}", options_.target, *code, last_words()));
    }
    if (seconds > options_.ready_timeout_s) {
      return Status(Code::unavailable, fmt::format("lode serve {} was not ready after {:.0f} s: {}", options_.target,
                                                   seconds, last_words()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Status BenchTarget::restart() {
  LODE_CHECK(child_.has_value());
  auto ended = child_->terminate(60000);
  if (!ended.ok()) return ended.status();
  return start();
}

std::uint64_t BenchTarget::resident_bytes() const {
  if (!child_) return 0;
  auto bytes = platform::resident_bytes(child_->pid());
  return bytes.ok() ? *bytes : 0;
}

void BenchTarget::ask_for_model() {
  auto reply = http_get(endpoint_, "/v1/models", 10);
  if (!reply.ok() || reply->status != 200) return;
  const Json json = Json::parse(reply->body, nullptr, false);
  const Json::json_pointer first("/data/0");
  if (!json.is_object() || !json.contains(first) || !json[first].is_object()) return;
  const Json& model = json[first];
  if (model.contains("id") && model["id"].is_string()) model_ = model["id"].get<std::string>();
  context_ = context_of(model);
}

// The last three lines of the server's output, as one: the last alone may only be a hint.
std::string BenchTarget::last_words() const {
  std::ifstream file(folder_.path() / "server.log");
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
    if (lines.size() > 3) lines.pop_front();
  }
  return lines.empty() ? "it said nothing" : fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace lode::cli
