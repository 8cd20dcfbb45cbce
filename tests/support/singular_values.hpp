/* SPDX-License-Identifier: Apache-2.0 */
// The oracle of everything that is a function of singular values: U S V^T -> U f(S) V^T in fp64, by one-sided Jacobi.
// Slow, obvious, and without any library.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

// Row-major, rows <= columns.
struct SingularValues {
  size_t rows, columns;
  std::vector<double> turned;    // rows x rows, orthogonal: turned * matrix = orthogonal
  std::vector<double> orthogonal;  // rows x columns: row i is sigma[i] times a unit vector
  std::vector<double> sigma;
};

inline SingularValues singular_values(const std::vector<double> &matrix, size_t rows, size_t columns) {
  SingularValues s = {rows, columns, std::vector<double>(rows * rows), matrix, std::vector<double>(rows)};
  for (size_t i = 0; i < rows; ++i) s.turned[i * rows + i] = 1.0;
  const auto rotate = [](double *a, double *b, size_t count, double c, double t) {
    for (size_t i = 0; i < count; ++i) {
      const double x = a[i], y = b[i];
      a[i] = c * x - t * y;
      b[i] = t * x + c * y;
    }
  };
  bool turned = true;
  for (int sweep = 0; turned && sweep < 40; ++sweep) {
    turned = false;
    for (size_t p = 0; p + 1 < rows; ++p)
      for (size_t q = p + 1; q < rows; ++q) {
        double *const a = &s.orthogonal[p * columns], *const b = &s.orthogonal[q * columns];
        double aa = 0, bb = 0, ab = 0;
        for (size_t i = 0; i < columns; ++i) {
          aa += a[i] * a[i];
          bb += b[i] * b[i];
          ab += a[i] * b[i];
        }
        if (std::fabs(ab) <= 1e-15 * std::sqrt(aa * bb)) continue;
        turned = true;
        const double zeta = (bb - aa) / (2 * ab);
        const double tangent = (zeta < 0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent);
        rotate(a, b, columns, cosine, cosine * tangent);
        rotate(&s.turned[p * rows], &s.turned[q * rows], rows, cosine, cosine * tangent);
      }
  }
  for (size_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (size_t k = 0; k < columns; ++k) squares += s.orthogonal[i * columns + k] * s.orthogonal[i * columns + k];
    s.sigma[i] = std::sqrt(squares);
  }
  return s;
}

// U f(S) V^T.
inline std::vector<double> mapped(const SingularValues &s, const std::function<double(double)> &f) {
  std::vector<double> result(s.rows * s.columns);
  for (size_t i = 0; i < s.rows; ++i) {
    if (s.sigma[i] == 0) continue;
    const double factor = f(s.sigma[i]) / s.sigma[i];
    for (size_t r = 0; r < s.rows; ++r) {
      const double weight = s.turned[i * s.rows + r] * factor;
      for (size_t k = 0; k < s.columns; ++k) result[r * s.columns + k] += weight * s.orthogonal[i * s.columns + k];
    }
  }
  return result;
}
