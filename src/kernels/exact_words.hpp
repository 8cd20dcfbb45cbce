// SPDX-License-Identifier: Apache-2.0
// ExactSum (kernels.hpp) as source for host and device: what a number adds to the words, and what the words are worth.
//
// The lowest bit is 2^-512, the highest 2^767. Squares of fp32 numbers are multiples of 2^-298 and below 2^256, so a
// sum of them never loses a bit. A word has 31 bits of room: words of 2^31 ranks, or what 2^31 numbers add, may be
// added before anybody carries.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/both.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

constexpr int exact_lowest_exponent = -512;
constexpr int exact_word_bits = 32;
constexpr int64_t exact_word_mask = (int64_t{1} << exact_word_bits) - 1;

// What a number adds to words [first, first + 3).
struct ExactParts {
  int first = 0;
  int64_t words[3] = {};
};

// 0 <= value < 2^760, a multiple of 2^-512.
MXS_BOTH inline ExactParts exact_parts(double value) {
  ExactParts parts;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52);
  if (exponent == 0) return parts;  // zero: nothing subnormal is a multiple of 2^-512
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;  // times 2^(exponent - 1075)
  const int position = exponent - 1075 - exact_lowest_exponent;
  // Below the lowest bit there are zeros alone.
  const uint64_t whole = position >= 0 ? mantissa : mantissa >> -position;
  const int place = position >= 0 ? position : 0;
  const int shift = place % exact_word_bits;
  const uint64_t low = whole << shift, high = shift == 0 ? 0 : whole >> (64 - shift);
  parts.first = place / exact_word_bits;
  parts.words[0] = static_cast<int64_t>(low) & exact_word_mask;
  parts.words[1] = static_cast<int64_t>(low >> exact_word_bits);
  parts.words[2] = static_cast<int64_t>(high);
  return parts;
}

// Rounded once. Carries in place, which changes no sum.
MXS_BOTH inline double exact_value(int64_t *words) {
  for (int i = 0; i + 1 < MXS_NORM_WORDS; ++i) {
    words[i + 1] += words[i] >> exact_word_bits;
    words[i] &= exact_word_mask;
  }
  int top = MXS_NORM_WORDS - 1;
  while (top > 0 && words[top] == 0) --top;
  if (words[top] == 0) return 0.0;
  // 64 bits from the leading one on, and whether anything is below them: enough for one rounding to 53.
  const uint64_t first = static_cast<uint64_t>(words[top]);
  const uint64_t second = top >= 1 ? static_cast<uint64_t>(words[top - 1]) : 0;
  const uint64_t third = top >= 2 ? static_cast<uint64_t>(words[top - 2]) : 0;
  int unused = 0;  // leading zeros of the top word
  while ((first >> (exact_word_bits - 1 - unused) & 1) == 0 && unused < exact_word_bits - 1) ++unused;
  uint64_t leading = (first << exact_word_bits | second) << unused | third >> (exact_word_bits - unused);
  bool below = (third << (32 + unused)) != 0;
  for (int i = top - 3; i >= 0; --i) below = below || words[i] != 0;
  if (below) leading |= 1;  // rounding to odd first makes the second rounding right
  return std::ldexp(static_cast<double>(leading), exact_lowest_exponent + (top - 1) * exact_word_bits - unused);
}

}  // namespace mxs
