// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra without any library. Products are fp32, in tiles by the table's multiply; eigenvalues by cyclic
// Jacobi and QR by Householder, both in fp64, so that what comes out is right to the last bits of fp32. Jacobi takes
// some 50 n^3 operations, five times LAPACK's: it is here to be right.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/arithmetic.hpp"
#include "kernels/kernels.hpp"
#include "kernels/linear.hpp"

namespace mxs {

namespace {

// ---- products: tiles of the target, each summed over blocks of product_block terms in order ----

constexpr size_t tile = 64;
constexpr size_t depth = product_block;

// target (rows x columns, dense) = part, at (row, column), of what source holds turned.
void turn_part(float *target, const LinearFactor &source, size_t row, size_t column, size_t rows, size_t columns) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c)
      target[r * columns + c] = source.data[(column + c) * source.stride + row + r];
}

// small.target = left * right, of the tile at (row, column). The table multiplies no left factor that is turned.
void sum_tile(Product small, const LinearProduct &product, size_t row, size_t column) {
  const LinearFactor &left = product.left, &right = product.right;
  small.right = right.data + (right.turned ? column * right.stride : column);
  small.right_stride = right.stride, small.right_turned = right.turned;
  if (!left.turned) {
    small.left = left.data + row * left.stride, small.left_stride = left.stride;
    small.inner = product.inner;
    return kernels().multiply(small);
  }
  float turned[tile * depth], part[tile * tile];
  float *const sum = small.target;
  const size_t sum_stride = small.target_stride;
  for (size_t first = 0; first < product.inner; first += depth) {
    small.inner = std::min(depth, product.inner - first);
    turn_part(turned, left, row, first, small.rows, small.inner);
    small.left = turned, small.left_stride = small.inner;
    small.target = first == 0 ? sum : part, small.target_stride = first == 0 ? sum_stride : small.columns;
    kernels().multiply(small);
    for (size_t r = 0; first > 0 && r < small.rows; ++r)
      for (size_t c = 0; c < (small.lower ? r + 1 : small.columns); ++c)
        sum[r * sum_stride + c] += part[r * small.columns + c];
    small.right += small.right_turned ? depth : depth * small.right_stride;
  }
}

// One tile of the target, at (row, column).
void multiply_tile(const LinearProduct &product, size_t row, size_t column) {
  float *const target = product.target + row * product.target_stride + column;
  Product small;
  small.rows = std::min(tile, product.rows - row), small.columns = std::min(tile, product.columns - column);
  small.lower = product.symmetric && row == column;
  if (product.alpha == 1.0f && product.beta == 0.0f && product.inner > 0) {
    small.target = target, small.target_stride = product.target_stride;
    return sum_tile(small, product, row, column);
  }
  float sum[tile * tile];
  small.target = sum, small.target_stride = small.columns;
  if (product.inner > 0)
    sum_tile(small, product, row, column);
  else
    std::fill_n(sum, small.rows * small.columns, 0.0f);
  for (size_t r = 0; r < small.rows; ++r) {
    float *const to = target + r * product.target_stride;
    const float *const from = sum + r * small.columns;
    for (size_t c = 0; c < (small.lower ? r + 1 : small.columns); ++c) {
      const float value = product.alpha * from[c];
      to[c] = product.beta == 0.0f ? value : value + product.beta * to[c];
    }
  }
}

void multiply(const LinearProduct &product, Team *team) {
  run_parts(team, divide_up(product.rows, tile), [&](size_t part) {
    const size_t row = part * tile;
    for (size_t column = 0; column < (product.symmetric ? row + 1 : product.columns); column += tile)
      multiply_tile(product, row, column);
    if (product.symmetric)
      mirror(product.target, product.target_stride, row, std::min(row + tile, product.rows), 0, row + tile);
  });
}

void update(const LinearUpdate &update, Team *team) {
  LinearProduct product;
  product.rows = product.columns = update.n, product.inner = update.inner;
  product.left = product.right = update.factor;
  product.right.turned = !update.factor.turned;
  product.target = update.target, product.target_stride = update.target_stride;
  product.alpha = update.alpha, product.beta = update.beta;
  product.symmetric = true;
  multiply(product, team);
}

// ---- eigenvalues ----

// Rows p and q of a dense n x n matrix: p' = c p - s q, q' = s p + c q.
void rotate_rows(double *p, double *q, size_t n, double c, double s) {
  for (size_t i = 0; i < n; ++i) {
    const double x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
}

// a becomes diagonal, rows of vectors its eigenvectors. False: not within so many sweeps; it takes 6 to 10.
bool diagonalise(size_t n, double *a, double *vectors) {
  constexpr int sweeps_max = 40;
  for (int sweep = 0; sweep < sweeps_max; ++sweep) {
    bool turned = false;
    for (size_t p = 0; p + 1 < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        const double pp = a[p * n + p], qq = a[q * n + q], pq = a[p * n + q];
        // Beside the larger of the two: eigenvalues are right to fp64's bits of the largest, which is what fp32 needs.
        if (std::fabs(pq) <= 1e-16 * std::max({std::fabs(pp), std::fabs(qq), 1e-3})) continue;
        turned = true;
        const double zeta = (qq - pp) / (2 * pq);
        const double tangent = (zeta < 0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        rotate_rows(a + p * n, a + q * n, n, cosine, sine);
        // Columns p and q follow from symmetry, but for the four elements where they cross the rows.
        for (size_t i = 0; i < n; ++i) {
          a[i * n + p] = a[p * n + i];
          a[i * n + q] = a[q * n + i];
        }
        a[p * n + p] = pp - tangent * pq;
        a[q * n + q] = qq + tangent * pq;
        a[p * n + q] = a[q * n + p] = 0.0;
        rotate_rows(vectors + p * n, vectors + q * n, n, cosine, sine);
      }
    if (!turned) return true;
  }
  return false;
}

uint64_t eigh_bytes(size_t n) { return align_up((2 * sizeof(double) * n + sizeof(size_t)) * n, 64); }

mxs_status eigh(size_t n, float *matrix, size_t stride, float *values, std::byte *workspace) {
  int exponent = 0;
  const mxs_status status = check_finite_side("eigenvalues", matrix, n, stride, SIZE_MAX, &exponent);
  if (status != MXS_OK) return status;
  double *const a = reinterpret_cast<double *>(workspace), *const vectors = a + n * n;
  size_t *const order = reinterpret_cast<size_t *>(vectors + n * n);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column <= row; ++column) {
      const double value = std::ldexp(static_cast<double>(matrix[row * stride + column]), -exponent);
      a[row * n + column] = a[column * n + row] = value;
      vectors[row * n + column] = vectors[column * n + row] = row == column ? 1.0 : 0.0;
    }
  if (takes_failure(&eigh_failures_to_come) || !diagonalise(n, a, vectors))
    return eigh_failed(n, "40 sweeps of Jacobi in fp64");
  std::iota(order, order + n, size_t{0});
  // The number decides between equal values, so that bits don't hang on the library's sort.
  std::sort(order, order + n, [&](size_t x, size_t y) {
    const double left = a[x * (n + 1)], right = a[y * (n + 1)];
    return left != right ? left < right : x < y;
  });
  for (size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(std::ldexp(a[order[i] * (n + 1)], exponent));
    for (size_t row = 0; row < n; ++row) matrix[row * stride + i] = static_cast<float>(vectors[order[i] * n + row]);
  }
  return MXS_OK;
}

// ---- QR ----

uint64_t qr_bytes(size_t n) { return align_up(sizeof(double) * (n + 2) * n, 64); }

// Of one column x of count numbers: x[0] becomes 1 and the rest the reflector's; *diagonal is R's, returned is tau.
double reflect(double *x, size_t count, double *diagonal) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += x[i] * x[i];
  const double norm = std::sqrt(squares), first = x[0];
  *diagonal = first > 0 ? -norm : norm;
  x[0] = 1;
  if (norm == 0) return 0;
  const double head = first - *diagonal;
  for (size_t i = 1; i < count; ++i) x[i] /= head;
  return -head / *diagonal;
}

// y -= tau v (v . y)
void apply_reflector(double *y, const double *v, size_t count, double tau) {
  double product = 0;
  for (size_t i = 0; i < count; ++i) product += v[i] * y[i];
  for (size_t i = 0; i < count; ++i) y[i] -= tau * product * v[i];
}

mxs_status qr(size_t n, float *matrix, size_t stride, std::byte *workspace) {
  int exponent = 0;
  const mxs_status status = check_finite_side("QR", matrix, n, stride, SIZE_MAX, &exponent);
  if (status != MXS_OK) return status;
  double *const columns = reinterpret_cast<double *>(workspace);
  double *const tau = columns + n * n, *const diagonal = tau + n;
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column)
      columns[column * n + row] = std::ldexp(static_cast<double>(matrix[row * stride + column]), -exponent);
  for (size_t k = 0; k < n; ++k) {
    double *const v = columns + k * n + k;
    tau[k] = reflect(v, n - k, &diagonal[k]);
    for (size_t j = k + 1; j < n; ++j) apply_reflector(columns + j * n + k, v, n - k, tau[k]);
  }
  // Q from the last reflector to the first, each in the place of its own column.
  for (size_t k = n; k-- > 0;) {
    double *const v = columns + k * n + k;
    for (size_t j = k + 1; j < n; ++j) {
      columns[j * n + k] = 0;
      apply_reflector(columns + j * n + k, v, n - k, tau[k]);
    }
    for (size_t i = 1; i < n - k; ++i) v[i] *= -tau[k];
    v[0] = 1 - tau[k];
    std::fill(columns + k * n, v, 0.0);
  }
  for (size_t column = 0; column < n; ++column)
    for (size_t row = 0; row < n; ++row) {
      const double value = columns[column * n + row];
      matrix[row * stride + column] = static_cast<float>(diagonal[column] < 0 ? -value : value);
    }
  return MXS_OK;
}

constexpr Linear table = {"reference", SIZE_MAX, multiply, update, eigh_bytes, eigh, qr_bytes, qr};

}  // namespace

const Linear &reference_linear() { return table; }

}  // namespace mxs
