// SPDX-License-Identifier: Apache-2.0
// Small dense matrices in fp64, as the books have them: what loops written from formulas are made of.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace mxs::test {

struct Dense {
  size_t rows = 0, columns = 0;
  std::vector<double> values;

  Dense() = default;
  Dense(size_t row_count, size_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}

  double &at(size_t row, size_t column) { return values[row * columns + column]; }
  double at(size_t row, size_t column) const { return values[row * columns + column]; }

  static Dense identity(size_t n) {
    Dense one(n, n);
    for (size_t i = 0; i < n; ++i) one.at(i, i) = 1;
    return one;
  }
  Dense turned() const {
    Dense other(columns, rows);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) other.at(c, r) = at(r, c);
    return other;
  }
  Dense part(size_t first_row, size_t row_count, size_t first_column, size_t column_count) const {
    Dense other(row_count, column_count);
    for (size_t r = 0; r < row_count; ++r)
      for (size_t c = 0; c < column_count; ++c) other.at(r, c) = at(first_row + r, first_column + c);
    return other;
  }
  double norm() const {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
  }
};

inline Dense operator*(const Dense &a, const Dense &b) {
  Dense product(a.rows, b.columns);
  for (size_t r = 0; r < a.rows; ++r)
    for (size_t k = 0; k < a.columns; ++k)
      for (size_t c = 0; c < b.columns; ++c) product.at(r, c) += a.at(r, k) * b.at(k, c);
  return product;
}

// body(element of target, element of source) for all of them.
template <class Body>
void each(Dense &target, const Dense &source, Body &&body) {
  for (size_t i = 0; i < target.values.size(); ++i) body(target.values[i], source.values[i]);
}

inline double distance(const Dense &a, const Dense &b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
  return std::sqrt(sum);
}

// matrix = vectors diag(values) vectors^T, in whatever order; by cyclic Jacobi.
inline void diagonalise(Dense matrix, Dense *vectors, std::vector<double> *values) {
  const size_t n = matrix.rows;
  *vectors = Dense::identity(n);
  for (int sweep = 0; sweep < 50; ++sweep)
    for (size_t p = 0; p + 1 < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (std::fabs(matrix.at(p, q)) <= 1e-300) continue;
        const double zeta = (matrix.at(q, q) - matrix.at(p, p)) / (2 * matrix.at(p, q));
        const double tangent = (zeta < 0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        const auto turn = [&](double &x, double &y) {
          const double a = x, b = y;
          x = cosine * a - sine * b, y = sine * a + cosine * b;
        };
        for (size_t i = 0; i < n; ++i) turn(matrix.at(i, p), matrix.at(i, q));
        for (size_t i = 0; i < n; ++i) turn(matrix.at(p, i), matrix.at(q, i));
        for (size_t i = 0; i < n; ++i) turn(vectors->at(i, p), vectors->at(i, q));
      }
  values->resize(n);
  for (size_t i = 0; i < n; ++i) (*values)[i] = matrix.at(i, i);
}

}  // namespace mxs::test
