// SPDX-License-Identifier: Apache-2.0
// Monotonic time. The only clock in the library; planner and schedules may not include it.
#pragma once

#include <cstdint>
#include <ctime>

namespace mxs {

inline uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace mxs
