// Prompts for the benchmark: plain filler of a wanted length that no cache has seen, with a fact to find. Owns nothing.
// Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace lode::cli {

// English-looking sentences, the same for the same seed, `bytes` long (cut at a word). They start differently for each
// seed, so that no cache holds the prompt of another run.
std::string filler(std::uint64_t seed, std::size_t bytes);

struct Needle {
  std::string sentence;  // "The secret code of the lighthouse is 4711."
  std::string question;
  std::string answer;  // What a right answer contains.
};
Needle make_needle(std::uint64_t seed);

// The filler with the needle's sentence a third of the way in, between two sentences.
std::string hide(const std::string& text, const Needle& needle);

}  // namespace lode::cli
