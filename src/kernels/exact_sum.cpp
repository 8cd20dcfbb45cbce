// SPDX-License-Identifier: Apache-2.0
// Exact sums: a fixed-point number of 1,280 bits, 32 of them in each word. See exact_words.hpp.
#include <algorithm>
#include <cassert>

#include "base/dtype.hpp"
#include "kernels/exact_words.hpp"
#include "kernels/kernels.hpp"

namespace mxs {

namespace {
void carry_from(int64_t *words, int index) {
  for (; index + 1 < MXS_NORM_WORDS && (words[index] >> exact_word_bits) != 0; ++index) {
    words[index + 1] += words[index] >> exact_word_bits;
    words[index] &= exact_word_mask;
  }
}
}  // namespace

void ExactSum::add(double value) {
  assert(value >= 0.0 && value < 0x1p760);
  const ExactParts parts = exact_parts(value);
  for (int i = 0; i < 3; ++i) words[parts.first + i] += parts.words[i];
  for (int i = 0; i < 3; ++i) carry_from(words, parts.first + i);
}

double ExactSum::value() const {
  ExactSum carried = *this;
  return exact_value(carried.words);
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
