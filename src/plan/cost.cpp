// SPDX-License-Identifier: Apache-2.0
// What one optimizer step on a piece costs: products in flops, element passes in bytes, and both together in
// picoseconds by the two rates of the options. All in integers, so that every machine compares the same numbers.
//
//   muon     5 steps of Newton-Schulz, n <= m:  5 * (4 m n^2 + 2 n^3)
//   soap     project, project back, update of the factor, for each side of d that has one (d <= 10,000): 6 r c d;
//            every 10th step the average into the new basis, 4 r c d, and a product, a QR and its Q, 14/3 d^3
//   shampoo  blocks of sides up to 1,024, of each the factors and their use: 4 r c (r + c); every 10th step for each
//            side of d eigenvectors and a product: 24 d^3
//   adamw    no products
//
//   co-owned by g (muon only): rows of X are cut, so that 20 m n^2 is shared; the n x n products are done by each;
//            5 Gram matrices are summed inside the group. Where rows are the short side, the group first exchanges
//            rows for columns, and back.
#include <algorithm>

#include "base/arithmetic.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

__extension__ using Wide = unsigned __int128;

// Bytes that pass through memory for each element, fp32 sums and state, bf16 weights:
//   adamw  gradient 4, two averages 16, master 8, weight 2
//   muon   gradient 4, momentum 8, update 4 + 4, its rounding for the products 6, master 8, weight 2
constexpr uint64_t adamw_bytes = 30, matrix_bytes = 36;
constexpr uint64_t newton_schulz_steps = 5;
constexpr uint64_t refresh_interval = 10;  // steps between two refreshes of soap's and shampoo's bases
constexpr uint64_t soap_side_max = 10'000, shampoo_block_max = 1'024;

template <class... Factors>
uint64_t product(uint64_t first, Factors... others) {
  ((first = saturating_multiply(first, static_cast<uint64_t>(others))), ...);
  return first;
}

uint64_t soap_flops(uint64_t rows, uint64_t columns) {
  uint64_t sides = 0, cubes = 0;
  for (const uint64_t side : {rows, columns}) {
    if (side > soap_side_max) continue;
    sides += side;
    cubes += product(side, side, side);
  }
  const uint64_t refresh =
      saturating_add(product(4, rows, columns, sides), product(14, cubes) / 3) / refresh_interval;
  return saturating_add(product(6, rows, columns, sides), refresh);
}

// One side cut into blocks: how many, and the sums of their squares and cubes.
struct CutSide {
  uint64_t count, squares, cubes;

  explicit CutSide(uint64_t side) {
    const uint64_t whole = side / shampoo_block_max, rest = side % shampoo_block_max;
    count = whole + (rest != 0);
    squares = saturating_add(product(whole, shampoo_block_max, shampoo_block_max), rest * rest);
    cubes = saturating_add(product(whole, shampoo_block_max, shampoo_block_max, shampoo_block_max), rest * rest * rest);
  }
};

// Summed over all pairs of a block of rows and a block of columns.
uint64_t shampoo_flops(uint64_t rows, uint64_t columns) {
  const CutSide r(rows), c(columns);
  const uint64_t products = saturating_add(product(4, r.squares, columns), product(4, c.squares, rows));
  const uint64_t cubes = saturating_add(product(r.cubes, c.count), product(c.cubes, r.count));
  return saturating_add(products, product(24, cubes) / refresh_interval);
}

void add_muon(uint64_t rows, uint64_t columns, uint64_t co_owner_count, StepWork *work) {
  const uint64_t n = std::min(rows, columns), m = std::max(rows, columns);
  const uint64_t shared = product(4 * newton_schulz_steps, m, n, n) / co_owner_count;
  work->flops = saturating_add(shared, product(2 * newton_schulz_steps, n, n, n));
  if (co_owner_count == 1) return;
  const uint64_t sums = product(newton_schulz_steps * 4, n, n, co_owner_count + 1);  // each reads all, writes its own
  const uint64_t exchange = rows < columns ? product(4 * 4, m, n) / co_owner_count : 0;  // there and back, in and out
  work->bytes = saturating_add(work->bytes, saturating_add(sums, exchange));
}

uint64_t picoseconds(uint64_t amount, uint64_t per_second) {
  const Wide time = Wide{amount} * 1'000'000'000'000u / per_second;
  return time > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(time);
}

}  // namespace

uint64_t saturating_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t saturating_multiply(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

StepWork step_work(mxs_rule rule, const std::vector<int64_t> &shape, int co_owner_count) {
  StepWork work;
  if (rule == MXS_RULE_FROZEN || rule == MXS_RULE_EXTERNAL) return work;
  const uint64_t group = static_cast<uint64_t>(co_owner_count);
  uint64_t elements = 1;
  for (const int64_t dimension : shape) elements = product(elements, dimension);
  const bool is_matrix = rule != MXS_RULE_ADAMW && shape.size() >= 2;
  work.bytes = product(is_matrix ? matrix_bytes : adamw_bytes, elements) / group;
  if (!is_matrix) return work;

  const uint64_t columns = static_cast<uint64_t>(shape.back());
  const uint64_t rows = columns == 0 ? 0 : elements / columns;
  if (rule == MXS_RULE_MUON) add_muon(rows, columns, group, &work);
  if (rule == MXS_RULE_SOAP) work.flops = soap_flops(rows, columns);
  if (rule == MXS_RULE_SHAMPOO) work.flops = shampoo_flops(rows, columns);
  return work;
}

uint64_t step_ps(const StepWork &work, const PlanSettings &settings) {
  return saturating_add(picoseconds(work.flops, settings.matrix_flops_per_second),
                        picoseconds(work.bytes, settings.memory_bytes_per_second));
}

StepWork piece_work(const PlannedTensor &tensor, const Placement &piece) {
  if (piece.co_owner_count > 1) return step_work(tensor.rule, tensor.shape, piece.co_owner_count);
  if (!tensor.has_column_blocks()) return step_work(tensor.rule, piece.shape);
  StepWork sum;
  for (const int64_t columns : tensor.block_columns) {
    const StepWork work = step_work(tensor.rule, {piece.shape[0], columns});
    sum.flops = saturating_add(sum.flops, work.flops);
    sum.bytes = saturating_add(sum.bytes, work.bytes);
  }
  return sum;
}

double piece_flops(const PlannedTensor &tensor, const Placement &piece) {
  if (piece.co_owner_count > 1) return step_flops(tensor.rule, tensor.shape, piece.co_owner_count);
  if (!tensor.has_column_blocks()) return step_flops(tensor.rule, piece.shape);
  double sum = 0;
  for (const int64_t columns : tensor.block_columns) sum += step_flops(tensor.rule, {piece.shape[0], columns});
  return sum;
}

// 12 an element for its passes: muon's (scale, two lerps, norm, update) are as many as adamw's.
double step_flops(mxs_rule rule, const std::vector<int64_t> &shape, int co_owner_count) {
  if (rule == MXS_RULE_FROZEN || rule == MXS_RULE_EXTERNAL) return 0;
  double elements = 1;
  for (const int64_t dimension : shape) elements *= static_cast<double>(dimension);
  return static_cast<double>(step_work(rule, shape, co_owner_count).flops) + 12 * elements / co_owner_count;
}

}  // namespace mxs
