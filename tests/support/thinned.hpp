// SPDX-License-Identifier: Apache-2.0
// Sweeps under valgrind, which takes 30 to 100 times as long as the program alone. It looks for reads of what was never
// written, and for writes outside: turns that differ in their numbers alone are alike to it, so it gets some of them.
#pragma once

#include <vector>

#include "support/sanitized.hpp"

namespace mxs::test {

// Of so many turns: a tenth of them, at least one.
template <class Number>
Number few(Number count) {
  return under_valgrind() ? (count + 9) / 10 : count;
}

// Of these values: the second, and each third after it. One alone stays.
template <class Value>
std::vector<Value> thinned(std::vector<Value> all) {
  if (!under_valgrind() || all.size() < 2) return all;
  std::vector<Value> some;
  for (size_t i = 1; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}

}  // namespace mxs::test
