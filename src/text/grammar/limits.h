// Bounds of compiling a grammar and of matching with it. What goes past one is refused with one line that names it.
// docs/grammar.md explains each. Plain data: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lode::text::grammar {

struct CompileLimits {
  std::size_t source_bytes_max = std::size_t{1} << 20;  // Of a regex or a GBNF text.
  int nesting_max = 200;                                // Groups in groups, schemas in schemas.
  std::size_t nodes_max = 400'000;                      // Of the intermediate form.
  std::size_t states_max = 200'000;                     // Of the automaton, and of each automaton on the way there.
  std::int64_t work_max = 60'000'000;                   // Steps of building: about two seconds on a slow core.
};

// Repetitions up to this count are exact; an upper bound above it reads as "no bound", since no context window can hold
// so many. A lower bound above kLeastMax is refused: no document could ever be finished.
inline constexpr std::uint32_t kCountMax = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kLeastMax = 1'000'000;
inline constexpr std::uint32_t kNoBound = 0xFFFFFFFFu;

// Rules open at once: a document may go on while at most kOpenSoft are open, and its end may then take
// kShortestDepthMax more.
inline constexpr std::uint32_t kOpenSoft = 256;
inline constexpr std::uint32_t kShortestDepthMax = 100;

}  // namespace lode::text::grammar
