// SPDX-License-Identifier: Apache-2.0
// Exact sums: a fixed-point number of 1,280 bits, 32 of them in each word.
//
// The lowest bit is 2^-512, the highest 2^767. Squares of fp32 numbers are multiples of 2^-298 and below 2^256, so a
// sum of them never loses a bit. A word has 31 bits of room: words of 2^31 ranks may be added before anybody carries.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"

namespace mxs {

namespace {
constexpr int lowest_exponent = -512;
constexpr int word_bits = 32;
constexpr int64_t word_mask = (int64_t{1} << word_bits) - 1;

void carry_from(int64_t *words, int index) {
  for (; index + 1 < MXS_NORM_WORDS && (words[index] >> word_bits) != 0; ++index) {
    words[index + 1] += words[index] >> word_bits;
    words[index] &= word_mask;
  }
}
}  // namespace

void ExactSum::add(double value) {
  assert(value >= 0.0 && value < 0x1p760);
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));  // value = mantissa * 2^(exponent - 53)
  if (mantissa == 0) return;
  const int position = exponent - 53 - lowest_exponent;
  assert(position >= 0);
  const int first = position / word_bits, shift = position % word_bits;
  const uint64_t low = mantissa << shift, high = shift == 0 ? 0 : mantissa >> (64 - shift);
  words[first] += static_cast<int64_t>(low) & word_mask;
  words[first + 1] += static_cast<int64_t>(low >> word_bits);
  words[first + 2] += static_cast<int64_t>(high);
  for (int i = 0; i < 3; ++i) carry_from(words, first + i);
}

double ExactSum::value() const {
  ExactSum carried = *this;
  for (int i = 0; i + 1 < MXS_NORM_WORDS; ++i) {
    carried.words[i + 1] += carried.words[i] >> word_bits;
    carried.words[i] &= word_mask;
  }
  int top = MXS_NORM_WORDS - 1;
  while (top > 0 && carried.words[top] == 0) --top;
  if (carried.words[top] == 0) return 0.0;
  // 64 bits from the leading one on, and whether anything is below them: enough for one rounding to 53.
  const auto word = [&](int i) { return i >= 0 ? static_cast<uint64_t>(carried.words[i]) : uint64_t{0}; };
  const int unused = word_bits - (64 - std::countl_zero(word(top)));  // leading zeros of the top word
  uint64_t leading = (word(top) << word_bits | word(top - 1)) << unused | word(top - 2) >> (word_bits - unused);
  bool below = (word(top - 2) << (32 + unused)) != 0;
  for (int i = top - 3; i >= 0; --i) below = below || carried.words[i] != 0;
  if (below) leading |= 1;  // rounding to odd first makes the second rounding right
  return std::ldexp(static_cast<double>(leading), lowest_exponent + (top - 1) * word_bits - unused);
}

bool add_squares(const void *gradient, mxs_dtype dtype, size_t elements, float scale, ExactSum *sum) {
  bool all_finite = true;
  for (size_t first = 0; first < elements; first += norm_chunk) {
    bool not_finite = false;
    const void *const chunk = static_cast<const std::byte *>(gradient) + first * dtype_bytes(dtype);
    const double squares =
        kernels().sum_of_squares(chunk, dtype, scale, std::min(norm_chunk, elements - first), &not_finite);
    if (not_finite)
      all_finite = false;
    else
      sum->add(squares);
  }
  return all_finite;
}

}  // namespace mxs
