// SPDX-License-Identifier: Apache-2.0
// Which sanitizer is a test built with, and does it run under valgrind? gcc tells by a macro, clang by a feature.
#pragma once

#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MXS_UNDER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define MXS_UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(MXS_UNDER_ASAN)
#define MXS_UNDER_ASAN
#endif
#if defined(__SANITIZE_THREAD__) && !defined(MXS_UNDER_TSAN)
#define MXS_UNDER_TSAN
#endif

namespace mxs::test {

// For a case that is built all the same, so that no function is unused; under one of them it is not run.
#if defined(MXS_UNDER_ASAN)
constexpr bool under_asan = true;
#else
constexpr bool under_asan = false;
#endif
#if defined(MXS_UNDER_TSAN)
constexpr bool under_tsan = true;
#else
constexpr bool under_tsan = false;
#endif
constexpr bool under_sanitizer = under_asan || under_tsan;

// valgrind comes into a program by LD_PRELOAD; its header is not needed to know.
inline bool under_valgrind() {
  static const char *const preloaded = std::getenv("LD_PRELOAD");
  static const bool is_there = preloaded && std::strstr(preloaded, "vgpreload");
  return is_there;
}

// It has an allocator of its own, whatever the program defines, allocates where it likes, and needs more address space
// than any limit leaves.
inline bool under_tool() { return under_sanitizer || under_valgrind(); }

// For a case in which descriptors end. UBSan, which comes with ASan, looks into memory through a pipe of its own, and
// takes an object for a foreign one when it can't open that. valgrind keeps some for itself, and no limit may go below.
inline bool needs_descriptors() { return under_asan || under_valgrind(); }

}  // namespace mxs::test
