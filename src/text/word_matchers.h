// Hand-written forms of pre-tokenizer patterns: for speed in the rules that most models name, and for linear time where
// a pattern's look-ahead would read a long run again from each of its characters. Each follows one regular expression
// of pretokenizer_rules.cc, which pretokenizer_test holds it against. Own nothing; any thread; src/text only.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace lode::text {

// Cuts one piece into words: appends base + the end of each word. The words cover the piece. A byte that is not UTF-8
// is a symbol.
using WordMatcher = void (*)(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

// The words of GPT-2: a word may begin with a space; contractions in lower case.
void match_gpt2(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// The same after every number was cut out alone, in one pass.
void match_gpt2_digits_alone(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

// The words of Llama 3, and what differs by name: a word may begin with any one character but a letter, number or line
// end; at most three digits (one: qwen2).
void match_llama3(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
void match_qwen2(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Combining marks belong to words.
void match_qwen35(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Marks and joiners (U+200C, U+200D) belong to words.
void match_k2_horizon(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Symbols do not take the line end after them.
void match_seed_coder(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// No contractions.
void match_ufakzeka(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Any number of digits.
void match_minicpm5(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

// The words of o200k: capitals may only begin a word, contractions end it; at most three digits.
void match_gpt4o(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// One digit.
void match_youtu(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// One digit, no contractions.
void match_tekken(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Runs of Han characters stand alone.
void match_kimi(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

// \n+ against all else.
void match_lines(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// The whitespace that ends the piece.
void match_trailing_space(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Decimal digits in groups of three from the right: only cuts, no match takes anything.
void match_thousands(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Runs of decimal digits in groups of three from the right, where no letter follows.
void match_thousands_words(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);
// Runs of numbers in groups of three from the right.
void match_number_groups(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

}  // namespace lode::text
