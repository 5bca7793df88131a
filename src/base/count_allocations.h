// Counts every allocation of a test program: include it in exactly one of its files. Tests only.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace lode::test {
inline std::atomic<std::int64_t> allocations{0};
}  // namespace lode::test

// The thread sanitizer has an operator new of its own.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LODE_OWN_NEW 1
#endif
#endif
#ifndef LODE_OWN_NEW
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  lode::test::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
// std::stable_sort's; else it would come from a sanitizer's own and go back through ours.
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  lode::test::allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
__attribute__((noinline)) void operator delete(void* p) noexcept {
  std::free(p);
}
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
#endif
