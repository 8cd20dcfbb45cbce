// SPDX-License-Identifier: Apache-2.0
// What a fuzz target is: two functions, in a file of its own.
//
//   LLVMFuzzerTestOneInput   hands bytes to one reader, and traps if what comes out contradicts itself
//   fuzz_seeds               inputs that the reader accepts, to begin with
//
// libFuzzer calls the first (./dev fuzz SECONDS). In ordinary builds replay.cpp calls it with the seeds and some
// thousand mutations of them, the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
std::vector<std::string> fuzz_seeds();

namespace mxs::fuzz {

inline std::string_view text_of(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

// What a reader gave away isn't what its header promises.
inline void promise(bool kept) {
  if (!kept) __builtin_trap();
}

}  // namespace mxs::fuzz
