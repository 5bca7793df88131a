// What may be evicted, sorted so that the least valuable is found in constant time: one shelf for each class of earlier
// uses and each power of two of seconds per byte, and on every shelf the longest unused first. On one shelf the value
// falls with the time since the last use, so that only the first of each has to be looked at. Owns nothing; the links
// lie in the things themselves, and nothing here allocates. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/status.h"
#include "kv/value.h"

namespace lode::kv {

// What a thing on a shelf carries.
struct Ranked {
  ReuseModel::Kind kind = ReuseModel::Kind::history;
  std::uint32_t uses = 0;       // After the first.
  std::uint64_t used_tick = 0;  // The last.
  float seconds_per_byte = 0;   // What a use saves. 0: worth nothing, goes first.
  std::int16_t shelf = -1;      // -1: on none.
  Ranked *colder = nullptr, *warmer = nullptr;
};

class Shelves {
 public:
  static constexpr int kCosts = 32;
  static constexpr int kOthers = ReuseModel::kKinds * ReuseModel::kUses * kCosts + 1;
  static constexpr int kCount = kOthers + 1;

  // Expected seconds that a byte of it saves per tick.
  static double value(const Ranked& r, const ReuseModel& reuse, std::uint64_t now) {
    if (r.seconds_per_byte <= 0) return 0;
    return static_cast<double>(r.seconds_per_byte) * reuse.rate(r.kind, r.uses, now - std::min(now, r.used_tick));
  }

  // By its uses and seconds per byte; in the order of the last use, as the warmest of those used at the same time.
  void add(Ranked& r) { put(r, shelf_of(r)); }
  // What goes with another thing, and first only where nothing else is left: the longest here before the others.
  void add_other(Ranked& r) { put(r, kOthers); }
  Ranked* first_other() const { return shelves_[kOthers].coldest; }

  void remove(Ranked& r) {
    LODE_CHECK(r.shelf >= 0);
    Shelf& s = shelves_[static_cast<std::size_t>(r.shelf)];
    (r.colder ? r.colder->warmer : s.coldest) = r.warmer;
    (r.warmer ? r.warmer->colder : s.warmest) = r.colder;
    if (!s.coldest && r.shelf != kOthers)
      used_[static_cast<std::size_t>(r.shelf) / 64] &= ~(std::uint64_t{1} << (r.shelf % 64));
    r.shelf = -1;
    r.colder = r.warmer = nullptr;
  }

  // The least valuable; nullptr: nothing is here. `now`: the owner's tick.
  Ranked* least(const ReuseModel& reuse, std::uint64_t now) const {
    Ranked* found = nullptr;
    double least = 0;
    for (std::size_t word = 0; word < used_.size(); ++word)
      for (std::uint64_t bits = used_[word]; bits; bits &= bits - 1) {
        Ranked* r = shelves_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))].coldest;
        const double v = value(*r, reuse, now);
        if (!found || v < least) {
          found = r;
          least = v;
        }
      }
    return found;
  }

  static int shelf_of(const Ranked& r) {
    if (r.seconds_per_byte <= 0) return 0;
    // 2^-40 s a byte: a thousandth of what reading it from memory takes; 2^-8: 4 ms.
    int exponent = 0;
    std::frexp(r.seconds_per_byte, &exponent);
    const int like = static_cast<int>(r.kind) * ReuseModel::kUses + ReuseModel::uses_class(r.uses);
    return 1 + like * kCosts + std::clamp(exponent + 40, 0, kCosts - 1);
  }

 private:
  static constexpr int kSteps = 64;
  struct Shelf {
    Ranked *coldest = nullptr, *warmest = nullptr;
  };
  void put(Ranked& r, int shelf) {
    LODE_CHECK(r.shelf < 0);
    r.shelf = static_cast<std::int16_t>(shelf);
    Shelf& s = shelves_[static_cast<std::size_t>(r.shelf)];
    Ranked* colder = s.warmest;
    if (shelf != kOthers && colder && r.used_tick < colder->used_tick) {
      // A block whose children have gone: used as long ago as they, or later. From the cold end, since what goes is
      // old; after 64 places its exact one matters no more.
      Ranked* warmer = s.coldest;
      for (int i = 0; i < kSteps && warmer->used_tick <= r.used_tick; ++i) warmer = warmer->warmer;
      colder = warmer->colder;
    }
    Ranked* warmer = colder ? colder->warmer : s.coldest;
    r.colder = colder;
    r.warmer = warmer;
    (colder ? colder->warmer : s.coldest) = &r;
    (warmer ? warmer->colder : s.warmest) = &r;
    if (shelf == kOthers) return;
    used_[static_cast<std::size_t>(r.shelf) / 64] |= std::uint64_t{1} << (r.shelf % 64);
  }

  std::array<Shelf, kCount> shelves_{};
  std::array<std::uint64_t, (kCount + 63) / 64> used_{};
};

}  // namespace lode::kv
