// SPDX-License-Identifier: Apache-2.0
// Linear: the dense fp32 linear algebra of Shampoo and SOAP, as a table with two entries: OpenBLAS with its LAPACK, and
// a portable reference that always builds and is the oracle.
//
// Matrices are row-major, with a stride in elements from row to row. Bits depend on shapes and on the table, neither on
// the team nor on where memory lies. Nothing allocates but OpenBLAS itself, once for each thread that calls it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/team.hpp"
#include "matrixshard/kernels.h"
#include "matrixshard/status.h"

namespace mxs {

struct LinearFactor {
  const float *data = nullptr;
  size_t stride = 0;
  bool turned = false;  // data holds the factor's transpose
};

// target = alpha * left * right + beta * target; target overlaps neither factor. beta 0: target may hold anything.
struct LinearProduct {
  size_t rows = 0, columns = 0, inner = 0;  // of target, and what is summed over
  LinearFactor left, right;                 // rows x inner, inner x columns
  float *target = nullptr;
  size_t target_stride = 0;
  float alpha = 1, beta = 0;
  // The caller knows that target becomes symmetric, as with factors that commute: its lower half is computed, and
  // mirrored. With beta only the lower half is read.
  bool symmetric = false;
};

// target = alpha * factor * factor^T + beta * target, all of it, symmetric to the last bit. With beta the target's
// lower half is read, its upper half is not.
struct LinearUpdate {
  size_t n = 0, inner = 0;  // factor: n x inner
  LinearFactor factor;
  float *target = nullptr;
  size_t target_stride = 0;
  float alpha = 1, beta = 0;
};

struct Linear {
  const char *name;  // "openblas 0.3.21 SkylakeX", "reference"
  size_t side_max;   // of eigh and qr

  // team nullptr: the calling thread alone, as from within a job of a team.
  void (*multiply)(const LinearProduct &product, Team *team);
  void (*update)(const LinearUpdate &update, Team *team);

  // Both below run on the calling thread; workspace lies at a 64-byte border.
  //
  // matrix = Q diag(values) Q^T: n x n, symmetric, of which the lower half counts. After it, matrix is Q: column i is
  // the unit vector of values[i], its sign as it comes; values ascend. A decomposition that fails in fp32 is tried
  // again in fp64. MXS_INVALID_ARGUMENT: not finite, nothing is changed. MXS_INTERNAL: did not converge; matrix and
  // values hold anything.
  uint64_t (*eigh_bytes)(size_t n);
  mxs_status (*eigh)(size_t n, float *matrix, size_t stride, float *values, std::byte *workspace);
  // matrix = Q R, R with no negative number on its diagonal, so that Q is the only one if matrix has full rank. After
  // it, matrix is Q, orthogonal also for a matrix of lesser rank. MXS_INVALID_ARGUMENT: not finite, nothing is changed.
  uint64_t (*qr_bytes)(size_t n);
  mxs_status (*qr)(size_t n, float *matrix, size_t stride, std::byte *workspace);
};

// AUTO: OpenBLAS where it can be loaded, else the reference. MXS_NOT_BUILT: it can't, or a backend that has no
// decompositions.
mxs_status linear_of(mxs_backend backend, const Linear **linear);
const Linear &reference_linear();
mxs_status openblas_linear(const Linear **linear);

// For tests alone: the next so many calls of any table's eigh don't converge, or not in fp32.
extern std::atomic<int> eigh_failures_to_come, eigh_fp32_failures_to_come;

// ---- what the tables share ----

// False: not finite. Else the largest |element| lies in [2^(*exponent - 1), 2^*exponent); 0 for a matrix of zeros.
bool find_exponent(const float *matrix, size_t n, size_t stride, int *exponent);
// matrix *= 2^exponent: exact but for what vanishes beside the largest.
void scale_by_power(float *matrix, size_t n, size_t stride, int exponent);
void turn_square(float *matrix, size_t n, size_t stride);
// Of rows [row, row_end) what lies left of the diagonal and in columns [column, column_end) goes to the upper half.
void mirror(float *matrix, size_t stride, size_t row, size_t row_end, size_t column, size_t column_end);
mxs_status check_finite_side(const char *what, const float *matrix, size_t n, size_t stride, size_t side_max,
                             int *exponent);
// Takes one of failures_to_come, if there is one.
bool takes_failure(std::atomic<int> *failures_to_come);
mxs_status eigh_failed(size_t n, const char *how);

// target = b A + c A A^T of a symmetric A, n x n, both dense.
void form_polynomial(const Linear &linear, size_t n, float *target, const float *a, float b, float c, Team *team);

template <class Body>
void run_parts(Team *team, size_t part_count, Body &&body) {
  if (team) {
    team->run(part_count, [&](size_t part, int) { body(part); });
  } else {
    for (size_t part = 0; part < part_count; ++part) body(part);
  }
}

}  // namespace mxs
