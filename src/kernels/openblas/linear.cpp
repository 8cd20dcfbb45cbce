// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra by OpenBLAS: products in panels of fixed size, one to a part; decompositions by LAPACK, which
// sees a row-major matrix as its transpose.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "kernels/linear.hpp"
#include "kernels/openblas/library.hpp"

namespace mxs {

namespace {

// LAPACK counts in int, and ssyevd asks for 2 n^2 numbers of work.
constexpr size_t eigh_side_max = 32'000;

constexpr size_t panel = 256;

// Whoever has the table has loaded it.
const OpenblasLibrary &library() {
  static const OpenblasLibrary *const loaded = [] {
    std::string unused;
    return openblas_library(&unused);
  }();
  return *loaded;
}

int as_int(size_t value) { return static_cast<int>(value); }

// Rows or columns [first, first + count) of a product, as OpenBLAS's arguments.
void multiply_panel(const LinearProduct &product, size_t row, size_t rows, size_t column, size_t columns) {
  const LinearFactor &left = product.left, &right = product.right;
  library().sgemm(CblasRowMajor, left.turned ? CblasTrans : CblasNoTrans, right.turned ? CblasTrans : CblasNoTrans,
                  as_int(rows), as_int(columns), as_int(product.inner), product.alpha,
                  left.data + (left.turned ? row : row * left.stride), as_int(left.stride),
                  right.data + (right.turned ? column * right.stride : column), as_int(right.stride), product.beta,
                  product.target + row * product.target_stride + column, as_int(product.target_stride));
}

void multiply(const LinearProduct &product, Team *team) {
  if (product.rows == 0 || product.columns == 0) return;
  const bool by_rows = product.rows >= product.columns;
  const size_t side = by_rows ? product.rows : product.columns;
  const OneThread one(library());
  run_parts(team, divide_up(side, panel), [&](size_t part) {
    const OneThread here(library());
    const size_t first = part * panel, count = std::min(panel, side - first);
    if (by_rows)
      multiply_panel(product, first, count, 0, product.columns);
    else
      multiply_panel(product, 0, product.rows, first, count);
  });
}

// Panels of rows up to the diagonal, the longest first; each is mirrored by who has it in its cache.
void update(const LinearUpdate &update, Team *team) {
  const LinearFactor &factor = update.factor;
  LinearProduct left_part;
  left_part.inner = update.inner;
  left_part.left = left_part.right = factor;
  left_part.right.turned = !factor.turned;
  left_part.target = update.target, left_part.target_stride = update.target_stride;
  left_part.alpha = update.alpha, left_part.beta = update.beta;
  const size_t part_count = divide_up(update.n, panel);
  const OneThread one(library());
  run_parts(team, part_count, [&](size_t part) {
    const OneThread here(library());
    const size_t first = (part_count - 1 - part) * panel, rows = std::min(panel, update.n - first);
    if (first > 0) multiply_panel(left_part, first, rows, 0, first);
    library().ssyrk(CblasRowMajor, CblasLower, factor.turned ? CblasTrans : CblasNoTrans, as_int(rows),
                    as_int(update.inner), update.alpha, factor.data + (factor.turned ? first : first * factor.stride),
                    as_int(factor.stride), update.beta, update.target + first * (update.target_stride + 1),
                    as_int(update.target_stride));
    mirror_rows(update.target, update.target_stride, first, first + rows);
  });
}

// ---- eigenvalues: ssyevd, and dsyev where it fails: another algorithm in another precision ----

// Twice 2 n^2 and some; ssyevd's work is as large as dsyev's matrix.
struct EighRoom {
  float *copy, *work;
  int *integers;
  size_t work_length, integers_length, bytes;

  EighRoom(size_t n, std::byte *workspace)
      : work_length(2 * n * n + 6 * n + 1 + 80 * n), integers_length(5 * n + 3) {
    const size_t copy_bytes = align_up(n * n * sizeof(float), 64), work_bytes = align_up(work_length * 4, 64);
    copy = reinterpret_cast<float *>(workspace);
    work = reinterpret_cast<float *>(workspace + copy_bytes);
    integers = reinterpret_cast<int *>(workspace + copy_bytes + work_bytes);
    bytes = copy_bytes + work_bytes + align_up(integers_length * sizeof(int), 64);
  }
};

uint64_t eigh_bytes(size_t n) { return EighRoom(n, nullptr).bytes; }

bool all_finite(const float *values, size_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// LAPACK's upper half of columns is our lower half of rows. Eigenvectors come as rows.
bool eigh_in_fp32(size_t n, float *matrix, size_t stride, float *values, const EighRoom &room) {
  const int side = as_int(n), step = as_int(stride), work = as_int(room.work_length),
            integers = as_int(room.integers_length);
  int info = 0;
  library().ssyevd("V", "U", &side, matrix, &step, values, room.work, &work, room.integers, &integers, &info, 1, 1);
  return info == 0 && all_finite(values, n) && !takes_failure(&eigh_fp32_failures_to_come);
}

bool eigh_in_fp64(size_t n, float *matrix, size_t stride, float *values, const EighRoom &room) {
  double *const wide = reinterpret_cast<double *>(room.work), *const wide_values = wide + n * n,
         *const work = wide_values + n;
  const int side = as_int(n), work_length = as_int(34 * n + 1);
  for (size_t i = 0; i < n * n; ++i) wide[i] = static_cast<double>(room.copy[i]);
  int info = 0;
  library().dsyev("V", "U", &side, wide, &side, wide_values, work, &work_length, &info, 1, 1);
  if (info != 0) return false;
  for (size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(wide_values[i]);
    for (size_t k = 0; k < n; ++k) matrix[i * stride + k] = static_cast<float>(wide[i * n + k]);
  }
  return all_finite(values, n);
}

mxs_status eigh(size_t n, float *matrix, size_t stride, float *values, std::byte *workspace) {
  int exponent = 0;
  const mxs_status status = check_finite_side("eigenvalues", matrix, n, stride, eigh_side_max, &exponent);
  if (status != MXS_OK || n == 0) return status;
  if (takes_failure(&eigh_failures_to_come)) return eigh_failed(n, "LAPACK's ssyevd, then dsyev");
  const OneThread one(library());
  const EighRoom room(n, workspace);
  scale_by_power(matrix, n, stride, -exponent);
  for (size_t row = 0; row < n; ++row) std::copy_n(matrix + row * stride, n, room.copy + row * n);
  if (!eigh_in_fp32(n, matrix, stride, values, room) && !eigh_in_fp64(n, matrix, stride, values, room))
    return eigh_failed(n, "LAPACK's ssyevd, then dsyev");
  turn_square(matrix, n, stride);
  for (size_t i = 0; i < n; ++i) values[i] = std::ldexp(values[i], exponent);
  return MXS_OK;
}

// ---- QR ----

constexpr size_t qr_work = 64;  // numbers for each column: sgeqrf takes blocks of 32

uint64_t qr_bytes(size_t n) { return align_up((2 + qr_work) * n * sizeof(float), 64); }

mxs_status qr(size_t n, float *matrix, size_t stride, std::byte *workspace) {
  int exponent = 0;
  const mxs_status status = check_finite_side("QR", matrix, n, stride, eigh_side_max, &exponent);
  if (status != MXS_OK || n == 0) return status;
  const OneThread one(library());
  float *const tau = reinterpret_cast<float *>(workspace), *const diagonal = tau + n, *const work = diagonal + n;
  const int side = as_int(n), step = as_int(stride), work_length = as_int(qr_work * n);
  int info = 0;
  scale_by_power(matrix, n, stride, -exponent);
  turn_square(matrix, n, stride);
  library().sgeqrf(&side, &side, matrix, &step, tau, work, &work_length, &info);
  assert(info == 0);
  for (size_t i = 0; i < n; ++i) diagonal[i] = matrix[i * (stride + 1)];
  library().sorgqr(&side, &side, &side, matrix, &step, tau, work, &work_length, &info);
  assert(info == 0);
  for (size_t i = 0; i < n; ++i)  // LAPACK's columns are our rows until the matrix is turned
    if (diagonal[i] < 0)
      for (size_t k = 0; k < n; ++k) matrix[i * stride + k] = -matrix[i * stride + k];
  turn_square(matrix, n, stride);
  return MXS_OK;
}

}  // namespace

mxs_status openblas_linear(const Linear **linear) {
  std::string why_not;
  const OpenblasLibrary *const loaded = openblas_library(&why_not);
  if (!loaded) return set_error(MXS_NOT_BUILT, "%s; take MXS_BACKEND_REFERENCE or _AUTO", why_not.c_str());
  static const Linear table = {loaded->name.c_str(), eigh_side_max, multiply, update, eigh_bytes, eigh, qr_bytes, qr};
  *linear = &table;
  return MXS_OK;
}

}  // namespace mxs
