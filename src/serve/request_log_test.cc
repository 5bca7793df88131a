// The log as JSON lines. The mode is the process's: what is asserted here holds for words and fields alike.
#include "serve/request_log.h"

#include <gtest/gtest.h>
#include <spdlog/details/log_msg.h>

#include <string>

#include "serve/json.h"

namespace lode::serve::test {
namespace {

TEST(JsonLog, ALineIsAnObjectWhateverTheMessage) {
  const auto formatter = json_log_formatter();
  for (const std::string text : {"plain", "two\nlines and \"quotes\"", "bad \xFF bytes", "{\"not\": \"fields\"}", ""}) {
    spdlog::details::log_msg message("lode", spdlog::level::warn, text);
    spdlog::memory_buf_t out;
    formatter->format(message, out);
    const std::string line(out.data(), out.size());
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    const Json json = Json::parse(line);
    EXPECT_EQ(json["level"], "warning");
    EXPECT_EQ(json["message"], valid_utf8(text));
    EXPECT_EQ(json["time"].get<std::string>().size(), std::string("2026-12-01T02:00:00.123Z").size());
  }
}

}  // namespace
}  // namespace lode::serve::test
