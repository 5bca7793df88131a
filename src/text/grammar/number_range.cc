#include "text/grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace lode::text::grammar {
namespace {

constexpr std::size_t kIntegerDigits = 20, kSignificantDigits = 15;
constexpr std::uint64_t kMultipleMax = 10'000;  // Residues that are told apart.

// Magnitudes between two bounds, digit by digit. A prefix is "tight" at a bound while it equals the bound's own digits.
class Magnitudes {
 public:
  Magnitudes(const std::optional<NumberRange::Bound>& low, const std::optional<NumberRange::Bound>& high, bool integer,
             Work& work)
      : low_(low), high_(high), integer_(integer), work_(work), nfa_(work) {}

  Result<Fsa> run() {
    const std::uint32_t start = nfa_.add_state();
    accept_ = nfa_.add_state();
    std::size_t most = integer_ ? kIntegerDigits : kSignificantDigits;
    if (low_) most = std::max(most, low_->value.whole.size() + 1);
    if (high_)
      most = std::min(std::max(most, high_->value.whole.size()), std::max<std::size_t>(high_->value.whole.size(), 1));
    for (length_ = 1; length_ <= most; ++length_) {
      if (low_ && digits_of(*low_) > length_) continue;
      LODE_RETURN_IF_ERROR(work_.spend(100));
      made_.clear();
      const At at{0, false, low_ && digits_of(*low_) == length_, high_ && digits_of(*high_) == length_};
      nfa_.add_empty(start, state(at));
      while (!open_.empty()) {
        const At next = open_.back();
        open_.pop_back();
        LODE_RETURN_IF_ERROR(work_.spend(20));
        expand(next);
      }
    }
    return nfa_.determinize(start, accept_);
  }

 private:
  struct At {
    std::size_t digits = 0;  // Read of the whole part, or of the fraction.
    bool fraction = false;
    bool tight_low = false, tight_high = false;
    auto operator<=>(const At&) const = default;
  };

  static std::size_t digits_of(const NumberRange::Bound& b) { return std::max<std::size_t>(b.value.whole.size(), 1); }
  static int digit(const NumberRange::Bound& b, const At& at) {
    const std::string& digits = at.fraction ? b.value.fraction : b.value.whole;
    return at.digits < digits.size() ? digits[at.digits] - '0' : 0;
  }
  // Whether the bound has digits other than 0 after this place.
  static bool more(const NumberRange::Bound& b, const At& at) {
    return at.fraction ? at.digits < b.value.fraction.size() : !b.value.fraction.empty();
  }

  std::uint32_t state(const At& at) {
    const auto [it, fresh] = made_.try_emplace(at, 0);
    if (fresh) {
      it->second = nfa_.add_state();
      open_.push_back(at);
    }
    return it->second;
  }

  std::size_t fraction_digits() const {
    if (integer_) return 0;
    std::size_t most = length_ < kSignificantDigits ? kSignificantDigits - length_ : 0;
    if (low_) most = std::max(most, low_->value.fraction.size() + (low_->open ? 1 : 0));
    if (high_) most = std::max(most, high_->value.fraction.size() + (high_->open ? 1 : 0));
    return most;
  }

  void expand(const At& at) {
    const std::uint32_t from = made_[at];
    const bool whole_done = !at.fraction && at.digits == length_;
    if (whole_done || (at.fraction && at.digits > 0)) {
      const bool low_fits = !at.tight_low || (!more(*low_, at) && !low_->open);
      const bool high_fits = !at.tight_high || more(*high_, at) || !high_->open;
      if (low_fits && high_fits) nfa_.add_empty(from, accept_);
    }
    if (whole_done) {
      if (fraction_digits() > 0) nfa_.add_bytes(from, '.', '.', state({0, true, at.tight_low, at.tight_high}));
      return;
    }
    if (at.fraction && at.digits >= fraction_digits()) return;
    const int first = !at.fraction && at.digits == 0 && length_ > 1 ? 1 : 0;
    for (int d = first; d <= 9; ++d) {
      const int low = at.tight_low ? digit(*low_, at) : -1, high = at.tight_high ? digit(*high_, at) : 10;
      if (d < low || d > high) continue;
      const auto byte = static_cast<std::uint8_t>('0' + d);
      nfa_.add_bytes(from, byte, byte, state({at.digits + 1, at.fraction, d == low, d == high}));
    }
  }

  const std::optional<NumberRange::Bound>&low_, &high_;
  bool integer_;
  Work& work_;
  Nfa nfa_;
  std::uint32_t accept_ = 0;
  std::size_t length_ = 1;  // Of the whole part.
  std::map<At, std::uint32_t> made_;
  std::vector<At> open_;
};

// All magnitudes that are multiples of `m` / 10^places: residues of the digits read.
Result<Fsa> multiples(const Decimal& step, Work& work) {
  const std::size_t places = step.fraction.size();
  std::uint64_t m = 0;
  for (const char c : step.whole + step.fraction)
    m = std::min<std::uint64_t>(m * 10 + static_cast<std::uint64_t>(c - '0'), kMultipleMax + 1);
  if (m > kMultipleMax || places > 6) {
    return Status::unsupported(
        fmt::format("multipleOf {}: more than {} residues or 6 decimal places", step.text(), kMultipleMax));
  }
  // State: residue, and the place: 0 in the whole part before a digit, 1 in it, 2 + k after the point and k digits.
  Fsa out;
  std::map<std::pair<std::uint64_t, std::size_t>, std::uint32_t> made;
  std::vector<std::pair<std::uint64_t, std::size_t>> list;
  const auto state = [&](std::uint64_t residue, std::size_t place) {
    const auto [it, fresh] = made.try_emplace({residue, place}, static_cast<std::uint32_t>(list.size()));
    if (fresh) list.emplace_back(residue, place), out.states.emplace_back();
    return it->second;
  };
  state(0, 0);
  for (std::size_t i = 0; i < list.size(); ++i) {
    LODE_RETURN_IF_ERROR(work.spend(20));
    LODE_RETURN_IF_ERROR(work.check_states(list.size()));
    const auto [residue, place] = list[i];
    const std::size_t read = place < 2 ? 0 : place - 2;
    std::uint64_t scaled = residue;
    for (std::size_t k = read; k < places; ++k) scaled = scaled * 10 % m;
    out.states[i].accepts = scaled == 0 && place != 0 && place != 2;
    if (place >= 2 && read == places) continue;
    if (place == 1 && places > 0) {
      const std::uint32_t to = state(residue, 2);
      out.states[i].edges.push_back({'.', '.', to});
    }
    for (std::uint8_t d = 0; d < 10; ++d) {
      const std::uint32_t to = state((residue * 10 + d) % m, place < 2 ? 1 : place + 1);
      out.states[i].edges.push_back({static_cast<std::uint8_t>('0' + d), static_cast<std::uint8_t>('0' + d), to});
    }
  }
  return trim(out);
}

}  // namespace

void NumberRange::at_least(const Decimal& value, bool open) {
  const int order = low ? compare(value, low->value) : 1;
  if (order > 0 || (order == 0 && open)) low = Bound{value, open};
}

void NumberRange::at_most(const Decimal& value, bool open) {
  const int order = high ? compare(value, high->value) : -1;
  if (order < 0 || (order == 0 && open)) high = Bound{value, open};
}

bool NumberRange::holds(const Decimal& value) const {
  if (low && (compare(value, low->value) < 0 || (low->open && compare(value, low->value) == 0))) return false;
  return !high || !(compare(value, high->value) > 0 || (high->open && compare(value, high->value) == 0));
}

Result<Fsa> number_automaton(const NumberRange& range, Work& work) {
  const auto positive = [](const std::optional<NumberRange::Bound>& b) { return b && !b->value.negative; };
  Nfa nfa(work);
  const std::uint32_t start = nfa.add_state(), accept = nfa.add_state(), minus = nfa.add_state();
  nfa.add_bytes(start, '-', '-', minus);
  const auto add = [&](std::uint32_t from, const std::optional<NumberRange::Bound>& low,
                       const std::optional<NumberRange::Bound>& high) -> Status {
    auto part = Magnitudes(low, high, range.integer, work).run();
    for (const Decimal& step : range.multiples) {
      if (!part.ok()) return part.status();
      const auto other = multiples(step, work);
      if (!other.ok()) return other.status();
      part = combine(*part, *other, Combine::both, work);
    }
    if (!part.ok()) return part.status();
    const auto small = minimize(*part, work);
    if (!small.ok()) return small.status();
    nfa.add_fsa(from, *small, accept);
    return Status::success();
  };
  if (!range.high || positive(range.high)) {
    LODE_RETURN_IF_ERROR(add(start, positive(range.low) ? range.low : std::nullopt, range.high));
  }
  if (!range.low || range.low->value.negative) {
    const auto mirrored = [](const std::optional<NumberRange::Bound>& b) {
      return b ? std::optional(NumberRange::Bound{b->value.negated(), b->open}) : b;
    };
    // Below zero: the magnitude is above the high bound's, or above zero itself.
    const bool below = range.high && range.high->value.negative;
    LODE_RETURN_IF_ERROR(
        add(minus, below ? mirrored(range.high) : NumberRange::Bound{Decimal(), true}, mirrored(range.low)));
  }
  return nfa.determinize(start, accept);
}

}  // namespace lode::text::grammar
