// SPDX-License-Identifier: Apache-2.0
// Counts what each thread of a test program takes by operator new, which it replaces: for one file of the program.
#pragma once

#include <cstdlib>
#include <new>

#include "support/sanitized.hpp"

namespace {
thread_local int allocations = 0;
}

// A sanitizer pairs each delete with its own new.
#if !defined(MXS_UNDER_ASAN) && !defined(MXS_UNDER_TSAN)
void *operator new(size_t bytes) {
  ++allocations;
  if (void *memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif
