/* SPDX-License-Identifier: Apache-2.0 */
// What tests of Newton-Schulz have in common: matrices, backends by name, tables with their fp64 map, and the oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "matrixshard/kernels.h"
#include "matrixshard/status.h"
#include "support/singular_values.hpp"

struct Matrix {
  size_t rows = 0, columns = 0;
  std::vector<float> values = {};

  size_t n() const { return std::min(rows, columns); }
  size_t m() const { return std::max(rows, columns); }
};

inline Matrix zeros(size_t rows, size_t columns) { return {rows, columns, std::vector<float>(rows * columns)}; }

inline Matrix gaussian(size_t rows, size_t columns, unsigned seed) {
  Matrix matrix = zeros(rows, columns);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float &value : matrix.values) value = normal(random);
  return matrix;
}

inline Matrix of_rank(size_t rank, size_t rows, size_t columns, unsigned seed) {
  const Matrix left = gaussian(rows, rank, seed), right = gaussian(rank, columns, seed + 1);
  Matrix matrix = zeros(rows, columns);
  for (size_t r = 0; r < rows; ++r)
    for (size_t k = 0; k < rank; ++k)
      for (size_t c = 0; c < columns; ++c)
        matrix.values[r * columns + c] += left.values[r * rank + k] * right.values[k * columns + c];
  return matrix;
}

inline Matrix turned(const Matrix &matrix) {
  Matrix result = zeros(matrix.columns, matrix.rows);
  for (size_t r = 0; r < matrix.rows; ++r)
    for (size_t c = 0; c < matrix.columns; ++c)
      result.values[c * matrix.rows + r] = matrix.values[r * matrix.columns + c];
  return result;
}

inline Matrix scaled(Matrix matrix, float factor) {
  for (float &value : matrix.values) value *= factor;
  return matrix;
}

// A corner of zeros around it.
inline Matrix padded(const Matrix &matrix, size_t rows, size_t columns) {
  Matrix result = zeros(rows, columns);
  for (size_t r = 0; r < matrix.rows; ++r)
    std::copy_n(&matrix.values[r * matrix.columns], matrix.columns, &result.values[r * columns]);
  return result;
}

template <class Number>
double norm_of(const std::vector<Number> &values) {
  double squares = 0;
  for (Number value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

template <class Left, class Right>
double distance(const std::vector<Left> &left, const std::vector<Right> &right) {
  double squares = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const double difference = static_cast<double>(left[i]) - static_cast<double>(right[i]);
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

// ---- tables --------------------------------------------------------------------------------------------------------

// The published polynomials once more, in fp64 and with safety as published: the tests' own, so that a wrong number in
// the library shows. safety multiplies the norm.
struct TestedTable {
  const char *name;
  mxs_table table;
  std::vector<double> coefficients;  // a, b, c of each step
  double safety = 1;
  double gaussian_bf16 = 2e-2;  // relative error of Gaussian matrices, n >= 64
  double inside = 2e-2;         // of matrices of low rank, within the subspace
  int step_count = 0;           // asked for; 0: the table's own

  double map(double sigma) const {
    for (size_t i = 0; i < coefficients.size(); i += 3) {
      const double square = sigma * sigma;
      sigma *= coefficients[i] + square * (coefficients[i + 1] + square * coefficients[i + 2]);
    }
    return sigma;
  }
  double slope() const {
    double product = 1;
    for (size_t i = 0; i < coefficients.size(); i += 3) product *= coefficients[i];
    return product;
  }
  mxs_newton_schulz options() const {
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    options.table = table;
    options.step_count = table == MXS_TABLE_CUSTOM ? static_cast<int32_t>(coefficients.size() / 3) : step_count;
    options.coefficients = table == MXS_TABLE_CUSTOM ? coefficients.data() : nullptr;
    options.safety = table == MXS_TABLE_CUSTOM ? safety : 0;
    return options;
  }
};

inline std::vector<double> repeated(const std::vector<double> &coefficients, int count) {
  std::vector<double> result;
  for (int i = 0; i < count; ++i) result.insert(result.end(), coefficients.begin(), coefficients.end());
  return result;
}

inline std::vector<double> folded(std::vector<double> coefficients, double safety) {
  for (size_t i = 0; i < coefficients.size(); ++i)
    coefficients[i] /= std::pow(safety, 1 + 2 * static_cast<int>(i % 3));
  return coefficients;
}

inline const std::vector<TestedTable> &tested_tables() {
  static const std::vector<double> jordan = {3.4445, -4.7750, 2.0315};
  static const std::vector<double> you = {4.0848, -6.8946, 2.9270, 3.9505, -6.3029, 2.6377, 3.7418, -5.5913,
                                          2.3037, 2.8769,  -3.1427, 1.2046, 2.8366, -3.0525, 1.2012};
  static const std::vector<double> polar = {
      8.28721201814563,   -23.595886519098837, 17.300387312530933, 4.107059111542203,  -2.9478499167379106,
      0.5448431082926601, 3.9486908534822946,  -2.908902115962949, 0.5518191394370137, 3.3184196573706015,
      -2.488488024314874, 0.51004894012372,    2.300652019954817,  -1.6689039845747493, 0.4188073119525673};
  static const std::vector<double> cushion = {
      8.156554524902461,   -22.48329292557795, 15.878769915207462, 4.042929935166739,   -2.808917465908714,
      0.5000178451051316,  3.8916678022926607, -2.772484153217685, 0.5060648178503393,  3.285753657755655,
      -2.3681294933425376, 0.46449024233003106, 2.3465413258596377, -1.7097828382687081, 0.42323551169305323};
  static const std::vector<double> cans = {8.4703, -25.1081, 18.6293, 4.1828,  -3.1087, 0.5806, 3.9619, -2.9541,
                                           0.5630, 3.2866,   -2.4647, 0.5074, 2.2737,  -1.6447, 0.4162};
  static const auto deepseek = [] {
    std::vector<double> table = repeated(jordan, 8);
    for (const double value : repeated({2, -1.5, 0.5}, 2)) table.push_back(value);
    return table;
  };
  static const std::vector<TestedTable> tables = {
      {"jordan", MXS_TABLE_JORDAN, repeated(jordan, 5)},
      {"you", MXS_TABLE_YOU, you, 1, 1e-2},
      {"polar-express", MXS_TABLE_POLAR_EXPRESS, folded(polar, 1.05)},
      {"polar-cushion", MXS_TABLE_POLAR_CUSHION, cushion, 1.02, 3e-2, 4e-2},
      {"deepseek-v4", MXS_TABLE_DEEPSEEK_V4, deepseek(), 1, 1e-2},
      // No middle, no end, an even number of steps: forms that a backend may have taken for granted.
      {"cubic", MXS_TABLE_CUSTOM, repeated({1.5, -0.5, 0}, 2)},
      {"no cube", MXS_TABLE_CUSTOM, repeated({1.5, 0, -0.5}, 3)},
      {"a number", MXS_TABLE_CUSTOM, {0.75, 0, 0}},
      // By the norm alone, safety leaves CANS without any once X is rounded again: in bf16 it then diverges (7 x 13).
      {"CANS folded by 1.02", MXS_TABLE_CUSTOM, folded(cans, 1.02), 1, 4e-2, 6e-2},
      {"you with safety 1.25", MXS_TABLE_CUSTOM, you, 1.25},
  };
  return tables;
}

// The first two steps of YOU: as exact an oracle, at two fifths of the work.
inline TestedTable two_steps() {
  return {"you, two steps", MXS_TABLE_YOU, {4.0848, -6.8946, 2.9270, 3.9505, -6.3029, 2.6377}, 1, 1e-2, 2e-2, 2};
}

// ---- backends ------------------------------------------------------------------------------------------------------

// "reference", "reference-gram", "openblas", "openblas-gram", "onednn", "tiles".
struct TestedBackend {
  mxs_backend backend = MXS_BACKEND_REFERENCE;
  mxs_algorithm algorithm = MXS_ALGORITHM_AUTO;

  bool gram() const { return algorithm == MXS_ALGORITHM_GRAM; }
};

inline TestedBackend tested_backend(const std::string &name) {
  if (name == "reference-gram") return {MXS_BACKEND_REFERENCE, MXS_ALGORITHM_GRAM};
  if (name == "openblas") return {MXS_BACKEND_OPENBLAS, MXS_ALGORITHM_STANDARD};
  if (name == "openblas-gram") return {MXS_BACKEND_OPENBLAS, MXS_ALGORITHM_GRAM};
  if (name == "onednn") return {MXS_BACKEND_ONEDNN, MXS_ALGORITHM_AUTO};
  if (name == "tiles") return {MXS_BACKEND_TILES, MXS_ALGORITHM_AUTO};
  return {MXS_BACKEND_REFERENCE, MXS_ALGORITHM_AUTO};
}

struct DestroyOrthogonalizer {
  void operator()(mxs_orthogonalizer *orthogonalizer) const { mxs_orthogonalizer_destroy(&orthogonalizer); }
};
using OrthogonalizerPointer = std::unique_ptr<mxs_orthogonalizer, DestroyOrthogonalizer>;

// nullptr: mxs_last_error() says why.
inline OrthogonalizerPointer orthogonalizer_of(size_t rows, size_t columns, const TestedTable &table,
                                               TestedBackend backend, int threads = 1) {
  mxs_newton_schulz options = table.options();
  options.backend = backend.backend;
  options.algorithm = backend.algorithm;
  options.thread_count = threads;
  mxs_orthogonalizer *made = nullptr;
  mxs_orthogonalizer_create(&made, static_cast<int64_t>(rows), static_cast<int64_t>(columns), &options);
  return OrthogonalizerPointer(made);
}

// Into a target full of poison. Empty: mxs_last_error() says why.
inline std::vector<float> orthogonalized(const Matrix &matrix, const TestedTable &table, TestedBackend backend,
                                         int threads = 1) {
  const OrthogonalizerPointer made = orthogonalizer_of(matrix.rows, matrix.columns, table, backend, threads);
  std::vector<float> result(matrix.values.size(), NAN);
  if (!made || mxs_orthogonalize(made.get(), matrix.values.data(), result.data()) != MXS_OK) result.clear();
  return result;
}

// Not for another status than NOT_BUILT, or than what MXS_TILES gets which names a kernel of other CPUs: such a failure
// is one of the program's cases.
inline bool is_here(TestedBackend backend) {
  mxs_newton_schulz options = tested_tables()[1].options();
  options.backend = backend.backend;
  options.algorithm = backend.algorithm;
  mxs_orthogonalizer *made = nullptr;
  const mxs_status status = mxs_orthogonalizer_create(&made, 64, 96, &options);
  mxs_orthogonalizer_destroy(&made);
  const bool other_cpu = status == MXS_ENVIRONMENT && std::strncmp(mxs_last_error(), "MXS_TILES is", 12) == 0;
  return status != MXS_NOT_BUILT && !other_cpu;
}

// Which arithmetic runs; oneDNN leaves small matrices to the reference.
inline bool is_bf16(const mxs_orthogonalizer *orthogonalizer) {
  const char *const name = mxs_orthogonalizer_backend(orthogonalizer);
  return std::strncmp(name, "onednn", 6) == 0 || std::strncmp(name, "tiles", 5) == 0;
}

// ---- the oracle ----------------------------------------------------------------------------------------------------

// Of the matrix scaled to norm 1. One serves all tables.
struct Oracle {
  SingularValues svd;  // of the wide form
  bool tall = false;

  explicit Oracle(const Matrix &matrix) : tall(matrix.rows > matrix.columns) {
    const Matrix wide = tall ? turned(matrix) : matrix;
    std::vector<double> values(wide.values.begin(), wide.values.end());
    const double norm = norm_of(values);
    for (double &value : values) value /= norm > 0 ? norm : 1;
    svd = singular_values(values, wide.rows, wide.columns);
  }
  std::vector<double> map(const TestedTable &table) const {
    const std::vector<double> wide = mapped(svd, [&](double sigma) { return table.map(sigma / table.safety); });
    if (!tall) return wide;
    std::vector<double> result(wide.size());
    for (size_t r = 0; r < svd.rows; ++r)
      for (size_t c = 0; c < svd.columns; ++c) result[c * svd.rows + r] = wide[r * svd.columns + c];
    return result;
  }
};
