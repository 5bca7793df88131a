#include "cli/bench_text.h"

#include <fmt/format.h>

#include <array>

namespace lode::cli {
namespace {

// A small generator of our own: the text of a seed must be the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {
    state_ += 0x9e3779b97f4a7c15ull;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) % n;
  }

 private:
  std::uint64_t state_;
};

constexpr std::array kSubjects = {"the harbour master", "a young surveyor",   "the old printer", "our neighbour",
                                  "the night train",    "a travelling clerk", "the river pilot", "the librarian",
                                  "a patient gardener", "the mill owner"};
constexpr std::array kVerbs = {
    "kept a record of", "walked slowly past", "asked again about", "remembered",         "wrote a letter about",
    "counted",          "could not explain",  "sold a drawing of", "carefully measured", "spoke well of"};
constexpr std::array kObjects = {"the northern road",  "seven wooden crates", "the price of salt",  "a broken clock",
                                 "the winter harvest", "the stone bridge",    "every passing ship", "the empty market",
                                 "a map of the coast", "the town archive"};
constexpr std::array kEndings = {"before the rain began",  "without a single word", "as the bells rang",
                                 "for most of the summer", "on the following day",  "while the others waited",
                                 "in spite of the cold",   "near the end of March"};

}  // namespace

std::string filler(std::uint64_t seed, std::size_t bytes) {
  Random random(seed);
  std::string text = fmt::format("Notebook {:06}. ", random.below(1000000));
  while (text.size() < bytes) {
    std::string sentence =
        fmt::format("{} {} {} {}", kSubjects[random.below(kSubjects.size())], kVerbs[random.below(kVerbs.size())],
                    kObjects[random.below(kObjects.size())], kEndings[random.below(kEndings.size())]);
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
    text += sentence;
    text += random.below(6) == 0 ? ".\n" : ". ";
  }
  const std::size_t end = text.find_last_of(" \n", bytes);
  if (end != std::string::npos && end > 0) text.resize(end);
  return text;
}

Needle make_needle(std::uint64_t seed) {
  const std::string code = std::to_string(1000 + Random(seed ^ 0x5eed).below(9000));
  return {fmt::format("The secret code of the lighthouse is {}.", code), "What is the secret code of the lighthouse?",
          code};
}

std::string hide(const std::string& text, const Needle& needle) {
  std::size_t at = text.find(". ", text.size() / 3);
  at = at == std::string::npos ? text.size() : at + 2;
  std::string whole = text.substr(0, at);
  whole += needle.sentence;
  whole += ' ';
  whole += text.substr(at);
  return whole;
}

}  // namespace lode::cli
