// What a body asks for, computed where it delays nobody: a small body's at once, a large one's on the workers. The work
// of a client that has gone, or of a server that is stopping, does not begin. Called on the exchange's strand.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "serve/app.h"
#include "serve/http.h"

namespace lode::serve {

// 64 KiB of JSON and text take a millisecond or two.
inline constexpr std::size_t kInlineBodyMax = 64 << 10;

// What is left to do on the strand once the costly part is done.
using Finish = std::function<void()>;
// The costly part. Any thread; knows nothing of the exchange but its body.
using Compute = std::function<Finish(const std::string& body)>;

// On the workers in any case: for a small body that asks for much.
void work_on_worker(App& app, const std::shared_ptr<Exchange>& exchange, Compute compute);

void work_on_body(App& app, const std::shared_ptr<Exchange>& exchange, Compute compute);

}  // namespace lode::serve
