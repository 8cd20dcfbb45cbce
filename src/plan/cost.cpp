// SPDX-License-Identifier: Apache-2.0
// What one optimizer step on a piece costs, in flops.
//
//   muon     5 steps of Newton-Schulz, n <= m:  5 * (4 m n^2 + 2 n^3), and the element passes
//   soap     project, project back, update of both factors: 6 r c (r + c); every 10th step for each side of d
//            a product, a QR and its Q: 14/3 d^3
//   shampoo  factors and their use: 4 r c (r + c); every 10th step for each side of d eigenvectors and
//            a product: 24 d^3
//   adamw    12 an element; muon's own element passes (scale, two lerps, norm, update) are as many
#include <algorithm>

#include "plan/stages.hpp"

namespace mxs {
namespace {

constexpr uint64_t element_flops = 12;
constexpr uint64_t refresh_interval = 10;  // steps between two refreshes of soap's and shampoo's bases

uint64_t saturating_multiply(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

template <class... Factors>
uint64_t product(uint64_t first, Factors... others) {
  ((first = saturating_multiply(first, static_cast<uint64_t>(others))), ...);
  return first;
}

uint64_t muon_cost(uint64_t rows, uint64_t columns) {
  const uint64_t n = std::min(rows, columns), m = std::max(rows, columns);
  return saturating_add(product(20, m, n, n), product(10, n, n, n));
}

uint64_t two_sided_cost(uint64_t rows, uint64_t columns, uint64_t products, uint64_t refresh_thirds) {
  const uint64_t cubes = saturating_add(product(rows, rows, rows), product(columns, columns, columns));
  const uint64_t refresh = product(refresh_thirds, cubes) / (3 * refresh_interval);
  return saturating_add(product(products, rows, columns, saturating_add(rows, columns)), refresh);
}

}  // namespace

uint64_t saturating_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t step_cost(mxs_rule rule, const std::vector<int64_t> &shape) {
  if (rule == MXS_RULE_FROZEN || rule == MXS_RULE_EXTERNAL) return 0;
  uint64_t elements = 1;
  for (const int64_t dimension : shape) elements = product(elements, dimension);
  const uint64_t passes = product(element_flops, elements);
  if (rule == MXS_RULE_ADAMW || shape.size() < 2) return passes;

  const uint64_t columns = static_cast<uint64_t>(shape.back());
  const uint64_t rows = columns == 0 ? 0 : elements / columns;
  if (rule == MXS_RULE_MUON) return saturating_add(passes, muon_cost(rows, columns));
  if (rule == MXS_RULE_SOAP) return saturating_add(passes, two_sided_cost(rows, columns, 6, 14));
  return saturating_add(passes, two_sided_cost(rows, columns, 4, 72));
}

double step_flops(mxs_rule rule, const std::vector<int64_t> &shape) {
  return static_cast<double>(step_cost(rule, shape));
}

}  // namespace mxs
