// SPDX-License-Identifier: Apache-2.0
// How long ranks wait for each other while bytes are on their way.
#pragma once

#include <cstdint>

namespace mxs {

// timeout_ns of mxs_checkpoint_options and mxs_load_options, where 0 is an hour.
constexpr uint64_t patience_of(uint64_t timeout_ns) {
  return timeout_ns != 0 ? timeout_ns : uint64_t{3600} * 1'000'000'000u;
}

}  // namespace mxs
