// SPDX-License-Identifier: Apache-2.0
// Exact sums: the order, and over how many parts a sum is spread, change nothing; the value is rounded once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::ExactSum;

std::vector<double> squares(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> result(count);
  for (double &value : result) {
    const double root =
        std::ldexp(1.0 + std::generate_canonical<double, 53>(random), static_cast<int>(random() % 260) - 140);
    value = root * root;
  }
  return result;
}

ExactSum sum_of(const std::vector<double> &values, size_t first, size_t step) {
  ExactSum sum;
  for (size_t i = first; i < values.size(); i += step) sum.add(values[i]);
  return sum;
}

bool order_and_parts_are_of_no_consequence() {
  std::vector<double> values = squares(5000, 1);
  const ExactSum whole = sum_of(values, 0, 1);
  std::mt19937 random(2);
  for (int parts : {1, 2, 3, 8, 300}) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum total;
    for (int part = 0; part < parts; ++part) {
      const ExactSum one = sum_of(values, static_cast<size_t>(part), static_cast<size_t>(parts));
      for (int word = 0; word < MXS_NORM_WORDS; ++word) total.words[word] += one.words[word];
    }
    if (total.value() != whole.value()) return false;
  }
  return true;
}

// Numbers whose sum fp64 holds exactly: any loss shows.
bool nothing_is_lost() {
  for (int exponent : {-298, -100, -1, 0, 31, 32, 63, 64, 200, 255}) {
    ExactSum sum;
    for (int i = 0; i < 1000; ++i) sum.add(std::ldexp(1.0 + i, exponent));
    if (sum.value() != std::ldexp(500500.0, exponent)) return false;
  }
  ExactSum sum;
  for (int i = 0; i < 1 << 12; ++i) sum.add(0x1p-60);  // each of them would vanish beside 1 in fp64
  sum.add(1.0);
  return sum.value() == 1.0 + 0x1p-48;
}

bool ties_round_to_even_unless_something_is_below() {
  const auto sum_of_three = [](double a, double b, double c) {
    ExactSum sum;
    sum.add(a);
    sum.add(b);
    sum.add(c);
    return sum.value();
  };
  return sum_of_three(1.0, 0x1p-53, 0.0) == 1.0 && sum_of_three(1.0, 0x1p-53, 0x1p-290) == 1.0 + 0x1p-52 &&
         sum_of_three(1.0 + 0x1p-52, 0x1p-53, 0.0) == 1.0 + 0x1p-51 &&
         sum_of_three(0x1p255, 0x1p202, 0x1p-298) == 0x1p255 + 0x1p203;
}

bool agrees_with_long_double() {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    ExactSum sum;
    long double plain = 0.0L;
    for (int i = 0; i < 1000; ++i) {
      const double value = static_cast<double>(random()) * static_cast<double>(random() % 1000);
      sum.add(value);
      plain += static_cast<long double>(value);
    }
    if (sum.value() != static_cast<double>(plain)) return false;  // below 2^63, so long double is exact
  }
  return true;
}

bool zero_is_zero() {
  ExactSum sum;
  sum.add(0.0);
  return sum.value() == 0.0 && mxs::ExactSum().value() == 0.0;
}

void a_sum_does_not_depend_on_order_or_parts(void **) { assert_true(order_and_parts_are_of_no_consequence()); }
void a_sum_loses_nothing(void **) { assert_true(nothing_is_lost()); }
void a_sum_is_rounded_once(void **) { assert_true(ties_round_to_even_unless_something_is_below()); }
void a_sum_agrees_with_exact_arithmetic(void **) { assert_true(agrees_with_long_double()); }
void nothing_added_is_zero(void **) { assert_true(zero_is_zero()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_sum_does_not_depend_on_order_or_parts), cmocka_unit_test(a_sum_loses_nothing),
      cmocka_unit_test(a_sum_is_rounded_once),                   cmocka_unit_test(a_sum_agrees_with_exact_arithmetic),
      cmocka_unit_test(nothing_added_is_zero),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
