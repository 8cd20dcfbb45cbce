// SPDX-License-Identifier: Apache-2.0
// What is drawn from a seed: choices, bytes and gradients. All are functions of their arguments, so that every rank
// knows what every other rank holds, and any case can be run again alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "matrixshard/types.h"

namespace soak {

// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

// Choices. Equal keys choose alike.
class Choices {
 public:
  explicit Choices(uint64_t key) : key_(key) {}

  uint64_t word() { return mix(key_, count_++); }
  // From least to most, both included.
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(word() % static_cast<uint64_t>(most - least + 1));
  }
  bool one_in(int64_t count) { return between(1, count) == 1; }
  template <class Value>
  Value of(const std::vector<Value> &values) {
    return values[static_cast<size_t>(between(0, static_cast<int64_t>(values.size()) - 1))];
  }
  // Each power of two is as likely as the next: small things are where borders are.
  uint64_t size(uint64_t most) {
    const uint64_t limit = uint64_t{1} << between(0, 64 - std::countl_zero(most | 1));
    const auto value = static_cast<uint64_t>(between(1, static_cast<int64_t>(limit)));
    return value < most ? value : most;
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

// Byte `offset` of a buffer; eight at a time where whole words are wanted.
inline unsigned char byte_at(uint64_t offset, uint64_t salt) {
  return static_cast<unsigned char>(mix(salt, offset / 8) >> (offset % 8 * 8));
}

inline void fill_bytes(void *target, uint64_t offset, uint64_t bytes, uint64_t salt) {
  auto *const out = static_cast<unsigned char *>(target);
  uint64_t i = 0;
  for (; i < bytes && (offset + i) % 8 != 0; i++) out[i] = byte_at(offset + i, salt);
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t word = mix(salt, (offset + i) / 8);
    std::memcpy(out + i, &word, 8);
  }
  for (; i < bytes; i++) out[i] = byte_at(offset + i, salt);
}

// The first byte that differs, or `bytes`.
inline uint64_t first_wrong_byte(const void *found, uint64_t offset, uint64_t bytes, uint64_t salt) {
  const auto *const in = static_cast<const unsigned char *>(found);
  uint64_t i = 0;
  for (; i < bytes && (offset + i) % 8 != 0; i++)
    if (in[i] != byte_at(offset + i, salt)) return i;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t word = mix(salt, (offset + i) / 8);
    if (std::memcmp(in + i, &word, 8) != 0) break;
  }
  for (; i < bytes; i++)
    if (in[i] != byte_at(offset + i, salt)) return i;
  return bytes;
}

// One element in dtype (f32, bf16, f16): its bits, and what they are worth.
struct Element {
  uint32_t bits;
  float value;
};

// A whole number up to 64: sums of any few are exact in fp32, in any order. bf16 and f16 hold it exactly.
inline Element whole_element(int number, mxs_dtype dtype) {
  const auto value = static_cast<float>(number);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == MXS_F32) return {bits, value};
  if (dtype == MXS_BF16) return {bits >> 16, value};
  if (number == 0) return {0, value};
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return {(bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff), value};
}

inline int whole_number(int rank, uint64_t element, uint64_t salt, int most = 64) {
  return static_cast<int>(mix(salt * 64 + static_cast<uint64_t>(rank), element) % static_cast<uint64_t>(2 * most + 1)) -
         most;
}

// Many bits and magnitudes: the order of additions shows in the sum.
inline Element rough_element(int rank, uint64_t element, uint64_t salt, mxs_dtype dtype) {
  const uint64_t random = mix(salt * 64 + static_cast<uint64_t>(rank), element);
  const auto sign = static_cast<uint32_t>(random & 1) << 31;
  const auto exponent = static_cast<uint32_t>(random >> 1 & 15) + 120;
  const uint32_t bits = sign | exponent << 23 | (static_cast<uint32_t>(random >> 8) & 0x7fffff);
  if (dtype == MXS_F32) return {bits, std::bit_cast<float>(bits)};
  if (dtype == MXS_BF16) return {bits >> 16, std::bit_cast<float>(bits & 0xffff0000u)};
  const uint32_t kept = bits & ~0x1fffu;  // ten bits of mantissa
  return {sign >> 16 | (exponent - 127 + 15) << 10 | (kept >> 13 & 0x3ff), std::bit_cast<float>(kept)};
}

}  // namespace soak
