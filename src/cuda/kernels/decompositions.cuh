// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and QR on any GPU: the reference backend. One block of threads, fp64, cyclic Jacobi and Householder, in
// the operations and their order of kernels/reference/linear.cpp, so that bits are the host's. Slow but right: a
// rotation is two phases of one block, and a sweep n^2 / 2 of them.
#pragma once

#include <cmath>

#include "cuda/kernels/arguments.hpp"
#include "cuda/kernels/block.hpp"

namespace mxs {

constexpr int32_t decompose_not_finite = 1, decompose_not_converged = 2;  // *failed

struct DecomposeShared {
  float largest[decompose_threads];
  int32_t not_finite[decompose_threads];
  int32_t exponent, failed, turned, skip;
  double tangent, cosine, sine, pp, qq, pq;  // of a rotation
  double norm, tau;                          // of a reflector
};

// The exponent of the largest element, 2^(exponent - 1) <= |it| < 2^exponent; 0 of zeros. shared.failed, if an element
// is not finite.
MXS_ON_DEVICE inline void find_exponent(const Block &block, const DecomposeArguments &a, DecomposeShared &shared) {
  block.each([&](uint32_t lane) {
    float largest = 0.0f;
    int32_t not_finite = 0;
    for (uint64_t i = lane; i < a.n * a.n; i += block.lanes()) {
      const float value = std::fabs(a.matrix[i / a.n * a.stride + i % a.n]);
      if (!std::isfinite(value)) not_finite = 1;
      if (value > largest) largest = value;
    }
    shared.largest[lane] = largest, shared.not_finite[lane] = not_finite;
  });
  block.each([&](uint32_t lane) {
    if (lane != 0) return;
    float largest = 0.0f;
    shared.failed = 0;
    for (uint32_t other = 0; other < block.lanes(); ++other) {
      if (shared.largest[other] > largest) largest = shared.largest[other];
      if (shared.not_finite[other]) shared.failed = decompose_not_finite;
    }
    shared.exponent = 0;
    int exponent = 0;
    if (largest > 0.0f && !shared.failed) std::frexp(largest, &exponent);
    shared.exponent = exponent;
    if (a.failed) *a.failed = shared.failed;
  });
}

// ---- eigenvalues ----

// shared.skip, or the rotation that makes element (p, q) zero.
MXS_ON_DEVICE inline void find_rotation(const double *a, uint64_t n, uint64_t p, uint64_t q, DecomposeShared &shared) {
  const double pp = a[p * n + p], qq = a[q * n + q], pq = a[p * n + q];
  const double left = std::fabs(pp), right = std::fabs(qq), larger = left < right ? right : left;
  shared.skip = std::fabs(pq) <= 1e-16 * (larger < 1e-3 ? 1e-3 : larger);
  if (shared.skip) return;
  shared.turned = 1;
  const double zeta = (qq - pp) / (2 * pq);
  shared.tangent = (zeta < 0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
  shared.cosine = 1 / std::sqrt(1 + shared.tangent * shared.tangent);
  shared.sine = shared.cosine * shared.tangent;
  shared.pp = pp, shared.qq = qq, shared.pq = pq;
}

MXS_ON_DEVICE inline void rotate_pair(double *p, double *q, double cosine, double sine) {
  const double x = *p, y = *q;
  *p = cosine * x - sine * y;
  *q = sine * x + cosine * y;
}

// Element i of rows p and q of both matrices, and of columns p and q of a: those but for where they cross the rows.
MXS_ON_DEVICE inline void rotate(double *a, double *vectors, uint64_t n, uint64_t p, uint64_t q, uint64_t i,
                                 const DecomposeShared &shared) {
  rotate_pair(vectors + p * n + i, vectors + q * n + i, shared.cosine, shared.sine);
  if (i == p || i == q) return;
  rotate_pair(a + p * n + i, a + q * n + i, shared.cosine, shared.sine);
  a[i * n + p] = a[p * n + i];
  a[i * n + q] = a[q * n + i];
}

MXS_ON_DEVICE inline void cross(double *a, uint64_t n, uint64_t p, uint64_t q, const DecomposeShared &shared) {
  a[p * n + p] = shared.pp - shared.tangent * shared.pq;
  a[q * n + q] = shared.qq + shared.tangent * shared.pq;
  a[p * n + q] = a[q * n + p] = 0.0;
}

// a becomes diagonal. False: not within so many sweeps.
MXS_ON_DEVICE inline bool diagonalise(const Block &block, double *a, double *vectors, uint64_t n,
                                      DecomposeShared &shared) {
  constexpr int sweeps_max = 40;
  for (int sweep = 0; sweep < sweeps_max; ++sweep) {
    block.each([&](uint32_t lane) {
      if (lane == 0) shared.turned = 0;
    });
    for (uint64_t p = 0; p + 1 < n; ++p)
      for (uint64_t q = p + 1; q < n; ++q) {
        block.each([&](uint32_t lane) {
          if (lane == 0) find_rotation(a, n, p, q, shared);
        });
        if (!shared.skip)
          block.share(n, [&](uint64_t i) {
            rotate(a, vectors, n, p, q, i, shared);
            if (i == 0) cross(a, n, p, q, shared);
          });
        else
          block.each([](uint32_t) {});  // nobody writes shared.skip before all have read it
      }
    if (!shared.turned) return true;
    block.each([](uint32_t) {});
  }
  return false;
}

// ---- QR ----

// v's own part of a reflector: v[0] becomes 1 once the rest has been divided. Lane 0; sums in order, as on the host.
MXS_ON_DEVICE inline void find_reflector(const double *v, uint64_t count, double *tau, double *diagonal,
                                         DecomposeShared &shared) {
  double squares = 0;
  for (uint64_t i = 0; i < count; ++i) squares += v[i] * v[i];
  const double norm = std::sqrt(squares), first = v[0];
  *diagonal = first > 0 ? -norm : norm;
  shared.norm = norm == 0 ? 0 : first - *diagonal;  // the head, which the rest is divided by
  *tau = norm == 0 ? 0 : -shared.norm / *diagonal;
  shared.tau = *tau;
}

// y -= tau v (v . y)
MXS_ON_DEVICE inline void reflect(double *y, const double *v, uint64_t count, double tau) {
  double product = 0;
  for (uint64_t i = 0; i < count; ++i) product += v[i] * y[i];
  for (uint64_t i = 0; i < count; ++i) y[i] -= tau * product * v[i];
}

// columns, n of n numbers each, become reflectors below their diagonals.
MXS_ON_DEVICE inline void factorise(const Block &block, double *columns, double *tau, double *diagonal, uint64_t n,
                                    DecomposeShared &shared) {
  for (uint64_t k = 0; k < n; ++k) {
    double *const v = columns + k * n + k;
    block.each([&](uint32_t lane) {
      if (lane == 0) find_reflector(v, n - k, tau + k, diagonal + k, shared);
    });
    block.share(n - k, [&](uint64_t i) {
      if (i == 0) v[0] = 1;
      else if (shared.norm != 0) v[i] /= shared.norm;
    });
    block.share(n - k - 1, [&](uint64_t j) { reflect(columns + (k + 1 + j) * n + k, v, n - k, shared.tau); });
  }
}

// Q from the last reflector to the first, each in the place of its own column.
MXS_ON_DEVICE inline void gather_reflectors(const Block &block, double *columns, const double *tau, uint64_t n) {
  for (uint64_t k = n; k-- > 0;) {
    double *const v = columns + k * n + k;
    block.share(n - k - 1, [&](uint64_t j) {
      double *const y = columns + (k + 1 + j) * n + k;
      y[0] = 0;
      reflect(y, v, n - k, tau[k]);
    });
    block.share(n, [&](uint64_t i) {
      if (i < k) columns[k * n + i] = 0.0;
      else if (i == k) v[0] = 1 - tau[k];
      else v[i - k] *= -tau[k];
    });
  }
}

}  // namespace mxs

MXS_KERNEL(mxs_eigh, mxs::DecomposeArguments, mxs::DecomposeShared) {
  if (block.index() != 0) return;
  const uint64_t n = arguments.n, stride = arguments.stride;
  float *const matrix = arguments.matrix;
  mxs::find_exponent(block, arguments, shared);
  if (shared.failed) return;
  const int exponent = shared.exponent;
  double *const a = reinterpret_cast<double *>(arguments.workspace), *const vectors = a + n * n;
  block.share(n * n, [&](uint64_t i) {
    const uint64_t row = i / n, column = i % n;  // the lower half counts
    const uint64_t place = row < column ? column * stride + row : row * stride + column;
    a[i] = std::ldexp(static_cast<double>(matrix[place]), -exponent);
    vectors[i] = row == column ? 1.0 : 0.0;
  });
  const bool converged = mxs::diagonalise(block, a, vectors, n, shared);
  block.each([&](uint32_t lane) {
    if (lane == 0 && !converged && arguments.failed) *arguments.failed = mxs::decompose_not_converged;
  });
  if (!converged) return;
  // Each value's place is the count of those before it; the number decides between equal ones.
  block.share(n, [&](uint64_t i) {
    const double value = a[i * (n + 1)];
    uint64_t place = 0;
    for (uint64_t j = 0; j < n; ++j) {
      const double other = a[j * (n + 1)];
      if (other < value || (other == value && j < i)) ++place;
    }
    arguments.values[place] = static_cast<float>(std::ldexp(value, exponent));
    for (uint64_t row = 0; row < n; ++row) matrix[row * stride + place] = static_cast<float>(vectors[i * n + row]);
  });
}

MXS_KERNEL(mxs_qr, mxs::DecomposeArguments, mxs::DecomposeShared) {
  if (block.index() != 0) return;
  const uint64_t n = arguments.n, stride = arguments.stride;
  float *const matrix = arguments.matrix;
  mxs::find_exponent(block, arguments, shared);
  if (shared.failed) return;
  const int exponent = shared.exponent;
  double *const columns = reinterpret_cast<double *>(arguments.workspace);
  double *const tau = columns + n * n, *const diagonal = tau + n;
  block.share(n * n, [&](uint64_t i) {
    columns[i % n * n + i / n] = std::ldexp(static_cast<double>(matrix[i / n * stride + i % n]), -exponent);
  });
  mxs::factorise(block, columns, tau, diagonal, n, shared);
  mxs::gather_reflectors(block, columns, tau, n);
  block.share(n * n, [&](uint64_t i) {
    const uint64_t row = i / n, column = i % n;
    const double value = columns[column * n + row];
    matrix[row * stride + column] = static_cast<float>(diagonal[column] < 0 ? -value : value);
  });
}

// ---- around cuSOLVER ----

MXS_KERNEL(mxs_end_eigh, mxs::CusolverArguments, mxs::DecomposeShared) {
  if (block.index() != 0) return;
  block.each([&](uint32_t lane) {
    if (lane == 0) shared.failed = *arguments.info;
  });
  block.share(arguments.n, [&](uint64_t i) {
    if (!std::isfinite(arguments.signs[i])) shared.failed = mxs::decompose_not_finite;
  });
  block.each([&](uint32_t lane) {
    if (lane == 0 && arguments.failed) *arguments.failed = shared.failed;
  });
}

MXS_KERNEL(mxs_take_signs, mxs::CusolverArguments, mxs::DecomposeShared) {
  if (block.index() != 0) return;
  block.each([&](uint32_t lane) {
    if (lane == 0) shared.failed = *arguments.info;
  });
  block.share(arguments.n, [&](uint64_t i) {
    const float diagonal = arguments.matrix[i * (arguments.n + 1)];
    if (!std::isfinite(diagonal)) shared.failed = mxs::decompose_not_finite;
    arguments.signs[i] = diagonal < 0.0f ? -1.0f : 1.0f;
  });
  block.each([&](uint32_t lane) {
    if (lane == 0 && arguments.failed) *arguments.failed = shared.failed;
  });
}

MXS_KERNEL(mxs_flip_columns, mxs::CusolverArguments, mxs::NothingShared) {
  block.spread(arguments.n * arguments.n, [&](uint64_t i) {
    const uint64_t column = i % arguments.n;
    arguments.matrix[i / arguments.n * arguments.stride + column] *= arguments.signs[column];
  });
}
