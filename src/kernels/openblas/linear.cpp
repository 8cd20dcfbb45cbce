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

// Whoever has the table has loaded it.
const OpenblasLibrary &library() {
  static const OpenblasLibrary *const loaded = [] {
    std::string unused;
    return openblas_library(&unused);
  }();
  return *loaded;
}

int as_int(size_t value) { return static_cast<int>(value); }

// ---- products: tiles of the target, one to a part ----

struct Tile {
  size_t row, rows, column, columns;
};

// How a target is cut: by its shape alone, so that every team has the same parts.
class Tiling {
 public:
  // lower: tiles on and below the diagonal alone.
  Tiling(size_t rows, size_t columns, bool lower)
      : rows_(rows), columns_(columns), side_(rows * columns >= large_elements ? large_side : small_side),
        wide_(divide_up(columns, side_)), count_(divide_up(rows, side_) * wide_), lower_(lower) {
    if (lower) count_ = wide_ * (wide_ + 1) / 2;
  }
  size_t count() const { return count_; }
  Tile tile(size_t part) const {
    size_t i = part / wide_, j = part % wide_;
    if (lower_) {
      i = 0;
      for (j = part; j > i; j -= ++i) {
      }
    }
    const size_t row = i * side_, column = j * side_;
    return {row, std::min(side_, rows_ - row), column, std::min(side_, columns_ - column)};
  }

 private:
  static constexpr size_t large_elements = size_t{1} << 19, large_side = 512, small_side = 256;
  size_t rows_, columns_, side_, wide_, count_;
  bool lower_;
};

// A factor of no inner elements may be at no address.
const float *at(const LinearFactor &factor, size_t offset) { return factor.data ? factor.data + offset : nullptr; }

void multiply_tile(const LinearProduct &product, const Tile &tile) {
  const LinearFactor &left = product.left, &right = product.right;
  library().sgemm(CblasRowMajor, left.turned ? CblasTrans : CblasNoTrans, right.turned ? CblasTrans : CblasNoTrans,
                  as_int(tile.rows), as_int(tile.columns), as_int(product.inner), product.alpha,
                  at(left, left.turned ? tile.row : tile.row * left.stride), as_int(left.stride),
                  at(right, right.turned ? tile.column * right.stride : tile.column), as_int(right.stride),
                  product.beta, product.target + tile.row * product.target_stride + tile.column,
                  as_int(product.target_stride));
}

// Of factor * factor^T a tile on the diagonal.
void multiply_square(const LinearProduct &product, const Tile &tile) {
  const LinearFactor &factor = product.left;
  library().ssyrk(CblasRowMajor, CblasLower, factor.turned ? CblasTrans : CblasNoTrans, as_int(tile.rows),
                  as_int(product.inner), product.alpha,
                  at(factor, factor.turned ? tile.row : tile.row * factor.stride), as_int(factor.stride),
                  product.beta, product.target + tile.row * (product.target_stride + 1),
                  as_int(product.target_stride));
}

// A guard for the whole and one in each part: see OneThread.
void multiply_tiles(const LinearProduct &product, bool is_square, Team *team) {
  const Tiling tiling(product.rows, product.columns, product.symmetric);
  const OneThread one(library());
  run_parts(team, tiling.count(), [&](size_t part) {
    const OneThread here(library());
    const Tile tile = tiling.tile(part);
    if (is_square && tile.row == tile.column)
      multiply_square(product, tile);
    else
      multiply_tile(product, tile);
    if (product.symmetric)  // while the tile is in the cache
      mirror(product.target, product.target_stride, tile.row, tile.row + tile.rows, tile.column,
             tile.column + tile.columns);
  });
}

void multiply(const LinearProduct &product, Team *team) {
  if (product.rows != 0 && product.columns != 0) multiply_tiles(product, false, team);
}

void update(const LinearUpdate &update, Team *team) {
  if (update.n == 0) return;
  LinearProduct product;
  product.rows = product.columns = update.n, product.inner = update.inner;
  product.left = product.right = update.factor;
  product.right.turned = !update.factor.turned;
  product.target = update.target, product.target_stride = update.target_stride;
  product.alpha = update.alpha, product.beta = update.beta;
  product.symmetric = true;
  multiply_tiles(product, true, team);
}

// ---- eigenvalues: ssyevd, and dsyev where it fails: another algorithm in another precision ----

// Twice 2 n^2 and some; ssyevd's work is as large as dsyev's matrix.
struct EighSizes {
  size_t work_length, integers_length, copy_bytes, work_bytes;

  explicit EighSizes(size_t n)
      : work_length(2 * n * n + 6 * n + 1 + 80 * n), integers_length(5 * n + 3),
        copy_bytes(align_up(n * n * sizeof(float), 64)), work_bytes(align_up(work_length * sizeof(float), 64)) {}
  size_t bytes() const { return copy_bytes + work_bytes + align_up(integers_length * sizeof(int), 64); }
};

struct EighRoom : EighSizes {
  float *copy, *work;
  int *integers;

  EighRoom(size_t n, std::byte *workspace)
      : EighSizes(n), copy(reinterpret_cast<float *>(workspace)),
        work(reinterpret_cast<float *>(workspace + copy_bytes)),
        integers(reinterpret_cast<int *>(workspace + copy_bytes + work_bytes)) {}
};

uint64_t eigh_bytes(size_t n) { return EighSizes(n).bytes(); }

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
