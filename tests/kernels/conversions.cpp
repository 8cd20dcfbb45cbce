// SPDX-License-Identifier: Apache-2.0
// bf16 and fp16, exhaustively: every pattern widens to the same bits in every table and comes back unchanged, and every
// midpoint between two neighbours rounds to the even one.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs;

template <class Check>
bool with_every_table(Check &&check) {
  int count = 0;
  const Kernels *const *tables = all_kernels(&count);
  for (int t = 0; t < count; ++t)
    for (mxs_dtype dtype : {MXS_BF16, MXS_F16})
      if (!check(*tables[t], dtype)) {
        print_error("%s, %s\n", tables[t]->name, mxs_dtype_name(dtype));
        return false;
      }
  return true;
}

std::vector<uint16_t> all_patterns() {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

// By arithmetic, not by bits: sign * fraction * 2^exponent.
double value_of(uint16_t bits, mxs_dtype dtype) {
  const int fraction_bits = dtype == MXS_BF16 ? 7 : 10, bias = dtype == MXS_BF16 ? 127 : 15;
  const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 2 * bias + 1) return fraction ? std::nan("") : sign * INFINITY;
  const int implied = exponent ? 1 << fraction_bits : 0;
  return sign * std::ldexp(implied + fraction, (exponent ? exponent : 1) - bias - fraction_bits);
}

bool widening_is_exact(const Kernels &table, mxs_dtype dtype) {
  const std::vector<uint16_t> patterns = all_patterns();
  std::vector<float> wide(patterns.size());
  table.widen(wide.data(), patterns.data(), dtype, patterns.size());
  for (uint16_t bits : patterns) {
    const double wanted = value_of(bits, dtype);
    const float got = wide[bits];
    if (std::isnan(wanted) ? !std::isnan(got) : (got != wanted || std::signbit(got) != std::signbit(wanted)))
      return false;
  }
  return true;
}

bool comes_back_unchanged(const Kernels &table, mxs_dtype dtype) {
  const std::vector<uint16_t> patterns = all_patterns();
  std::vector<float> wide(patterns.size());
  std::vector<uint16_t> back(patterns.size());
  table.widen(wide.data(), patterns.data(), dtype, patterns.size());
  table.narrow(back.data(), dtype, wide.data(), wide.size());
  for (uint16_t bits : patterns)
    if (std::isnan(wide[bits]) ? !std::isnan(value_of(back[bits], dtype)) : back[bits] != bits) return false;
  return true;
}

// Between each pair of neighbours: the midpoint, and the numbers beside it.
bool rounds_to_nearest_even(const Kernels &table, mxs_dtype dtype) {
  const uint16_t infinity = dtype == MXS_BF16 ? 0x7f80 : 0x7c00;
  std::vector<float> inputs;
  std::vector<uint16_t> wanted;
  for (uint32_t low = 0; low + 1 < infinity; ++low) {
    const float middle = static_cast<float>((value_of(static_cast<uint16_t>(low), dtype) +
                                             value_of(static_cast<uint16_t>(low + 1), dtype)) / 2);
    for (int side : {-1, 0, 1}) {
      const uint32_t rounded = side < 0 ? low : side > 0 ? low + 1 : low + (low & 1);
      const float input =
          side < 0 ? std::nextafter(middle, 0.0f) : side > 0 ? std::nextafter(middle, INFINITY) : middle;
      for (bool negative : {false, true}) {
        inputs.push_back(negative ? -input : input);
        wanted.push_back(static_cast<uint16_t>(rounded | (negative ? 0x8000u : 0u)));
      }
    }
  }
  std::vector<uint16_t> got(inputs.size());
  table.narrow(got.data(), dtype, inputs.data(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (got[i] != wanted[i]) {
      print_error("%a gives %04x, not %04x\n", static_cast<double>(inputs[i]), got[i], wanted[i]);
      return false;
    }
  return true;
}

void every_pattern_widens_exactly(void **) { assert_true(with_every_table(widening_is_exact)); }
void every_pattern_comes_back_unchanged(void **) { assert_true(with_every_table(comes_back_unchanged)); }
void midpoints_round_to_even(void **) { assert_true(with_every_table(rounds_to_nearest_even)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_pattern_widens_exactly),
      cmocka_unit_test(every_pattern_comes_back_unchanged),
      cmocka_unit_test(midpoints_round_to_even),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
