// Constraints that a test can follow by eye. Tests only.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/constraint.h"

namespace lode::engine::test {

// At each place one of a few tokens, and the end after the last place.
class ScriptedConstraint final : public Constraint {
 public:
  enum class Forced { no, yes };  // yes: a place with one token is forced.
  ScriptedConstraint(std::vector<std::vector<TokenId>> places, Forced forced)
      : places_(std::move(places)), forced_(forced) {}

  void fill_mask(std::span<std::uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0u);
    for (const TokenId t : here()) allow(mask, t);
  }
  bool accept(TokenId token) override {
    const auto& allowed = here();
    if (std::find(allowed.begin(), allowed.end(), token) == allowed.end()) return false;
    ++at_;
    return true;
  }
  bool done() const override { return at_ == places_.size(); }
  void forced(std::vector<TokenId>& out, std::size_t most) override {
    while (forced_ == Forced::yes && at_ < places_.size() && here().size() == 1 && out.size() < most)
      out.push_back(places_[at_++][0]);
  }
  std::int64_t closing_cost() const override { return static_cast<std::int64_t>(places_.size() - at_); }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<ScriptedConstraint>(*this); }

 private:
  const std::vector<TokenId>& here() const {
    static const std::vector<TokenId> kNothing;
    return at_ < places_.size() ? places_[at_] : kNothing;
  }
  std::vector<std::vector<TokenId>> places_;
  Forced forced_;
  std::size_t at_ = 0;
};

// Any number of `body`, then `close` once: whole as long as `close` is in. Keeps room for it.
class ClosingConstraint final : public Constraint {
 public:
  ClosingConstraint(TokenId body, TokenId close) : body_(body), close_(close) {}

  void fill_mask(std::span<std::uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0u);
    const bool room = left_ < 0 || left_ > closing_cost();
    if (room) allow(mask, body_);
    else allow(mask, close_);
  }
  bool accept(TokenId token) override {
    closed_ |= token == close_;
    return token == body_ || token == close_;
  }
  bool done() const override { return closed_; }
  std::int64_t closing_cost() const override { return 1; }
  void set_tokens_left(std::int64_t tokens) override { left_ = tokens; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<ClosingConstraint>(*this); }

 private:
  TokenId body_, close_;
  bool closed_ = false;
  std::int64_t left_ = -1;
};

}  // namespace lode::engine::test
