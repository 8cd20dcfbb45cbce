// SPDX-License-Identifier: Apache-2.0
// Random numbers without a state: each is a function of its counter, so that any rank can make any of them, in any
// order, and gets what every other rank would get.
#pragma once

#include <cstdint>
#include <string_view>

namespace train {

// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

inline uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (unsigned char byte : name) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

// In [-1, 1), 24 bits: exact in fp32.
inline float uniform(uint64_t key, uint64_t counter) {
  return static_cast<float>(static_cast<int64_t>(mix(key, counter) >> 40) - (1 << 23)) * (1.0f / (1 << 23));
}

}  // namespace train
