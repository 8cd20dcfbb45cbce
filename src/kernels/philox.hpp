// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): ten rounds that turn a counter of four words and a key of two into four random words.
// Static functions: this header is compiled for several CPU levels, and a shared copy could be of any.
#pragma once

#include <cstdint>

#include "base/both.hpp"

namespace mxs {
namespace {

constexpr uint32_t philox_multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr uint32_t philox_key_step[2] = {0x9E3779B9u, 0xBB67AE85u};
constexpr int philox_rounds = 10;

MXS_BOTH inline void philox(uint32_t (&words)[4], uint32_t key0, uint32_t key1) {
  constexpr uint32_t step0 = philox_key_step[0], step1 = philox_key_step[1];  // arrays are the host's alone
  for (int round = 0; round < philox_rounds; ++round) {
    const uint64_t product0 = uint64_t{philox_multiplier[0]} * words[0];
    const uint64_t product1 = uint64_t{philox_multiplier[1]} * words[2];
    words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(product1);
    words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(product0);
    key0 += step0;
    key1 += step1;
  }
}

}  // namespace
}  // namespace mxs
