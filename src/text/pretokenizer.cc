// See pretokenizer.h.
#include "text/pretokenizer.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace lode::text {
namespace {

// The text with every byte that is not UTF-8 replaced by a control character, in `copy`, or as it is where none is.
std::string_view valid_text(std::string_view text, std::string& copy) {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid()) {
      if (copy.empty()) copy.assign(text);
      copy[pos] = '\x01';
    }
    pos += c.bytes;
  }
  return copy.empty() ? text : std::string_view(copy);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::optional<std::string_view> name, Engine engine, std::string* warning) {
  const PreTokenizerRule* rule = name ? pretokenizer_rule(*name) : nullptr;
  if (rule == nullptr) {
    rule = pretokenizer_rule("default");
    *warning = fmt::format(
        "tokenizer.ggml.pre is {}: this build does not know how that tokenizer cuts words and uses the rule "
        "\"default\", "
        "so token ids, and with them answers, may differ from the model's own",
        name ? fmt::format("\"{}\"", name->substr(0, 64)) : "missing");
  }
  PreTokenizer out;
  out.whole_words_ = rule->whole_words;
  if (engine != Engine::regex && rule->all_steps != nullptr) {
    out.cuts_.push_back({.matcher = rule->all_steps});
    return out;
  }
  for (const PreTokenizerStep& step : rule->steps) {
    Cut cut;
    if (engine != Engine::regex && step.matcher != nullptr) {
      cut.matcher = step.matcher;
    } else {
      auto regex = RegexSplitter::make(step.pattern, engine == Engine::interpreter ? RegexSplitter::Engine::interpreter
                                                                                   : RegexSplitter::Engine::jit);
      if (!regex.ok()) return regex.status();
      cut.regex = std::move(*regex);
    }
    out.cuts_.push_back(std::move(cut));
  }
  return out;
}

void PreTokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  if (cuts_.size() == 1 && cuts_[0].matcher != nullptr) return cuts_[0].matcher(text, 0, ends);
  std::string copy;
  split_by_steps(valid_text(text, copy), ends);
}

void PreTokenizer::split_by_steps(std::string_view text, std::vector<std::size_t>& ends) const {
  if (text.empty()) return;
  std::vector<std::size_t> pieces{text.size()}, finer;
  for (const Cut& cut : cuts_) {
    finer.clear();
    std::size_t begin = 0;
    if (cut.matcher != nullptr) {
      for (const std::size_t end : pieces) {
        cut.matcher(text.substr(begin, end - begin), begin, finer);
        begin = end;
      }
    } else {
      RegexSplitter::Scratch scratch(*cut.regex);
      for (const std::size_t end : pieces) {
        cut.regex->split(text.substr(begin, end - begin), begin, scratch, finer);
        begin = end;
      }
    }
    pieces.swap(finer);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
}

}  // namespace lode::text
