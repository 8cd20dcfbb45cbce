// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz of shapes, tables, strides, epsilons and thread counts that are drawn, beside the same formula in fp64:
//
//   newton_schulz_random BACKEND [SEED]     0 if none is given, so that a test is the same each time
//
// The formula itself, not singular values, so that hundreds of cases take a second; newton_schulz_oracle has those.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "support/newton_schulz.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

namespace {

TestedBackend backend;
unsigned long seed = 0;

// One case. Coefficients are the test's own, given to the library as a custom table.
struct Drawn {
  size_t rows = 0, columns = 0, count = 0;
  int threads = 1;
  std::vector<double> coefficients;
  double safety = 1, epsilon = 0;
  mxs_epsilon_kind epsilon_kind = MXS_EPSILON_MAX;
  mxs_strides source = MXS_STRIDES_INIT, target = MXS_STRIDES_INIT;
  bool in_place = false;
  float scale = 1;
  std::vector<float> values;  // of the sources' memory

  std::string text() const {
    char text[256];
    std::snprintf(text, sizeof text, "%zu of %zu x %zu%s, %d threads, strides %lld %lld, scale %g, safety %g, "
                  "epsilon %d %g, table",
                  count, rows, columns, in_place ? " in place" : "", threads, static_cast<long long>(source.row),
                  static_cast<long long>(source.matrix), static_cast<double>(scale), safety, epsilon_kind, epsilon);
    std::string whole = text;
    for (const double value : coefficients) whole.append(" ").append(std::to_string(value));
    return whole;
  }
};

class Dice {
 public:
  explicit Dice(unsigned long number) : random_(number) {}
  size_t whole(size_t from, size_t to) { return from + static_cast<size_t>(random_() % (to - from + 1)); }
  double real(double from, double to) { return from + (to - from) * static_cast<double>(random_() % 65537) / 65536; }
  bool one_in(size_t count) { return whole(1, count) == 1; }
  float normal() { return normal_(random_); }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
};

mxs_strides draw_strides(Dice *dice, size_t rows, size_t columns, size_t count) {
  mxs_strides strides = MXS_STRIDES_INIT;
  if (dice->one_in(2)) return strides;
  if (dice->one_in(3)) {  // side by side
    strides.row = static_cast<int64_t>(count * columns + dice->whole(0, 3));
    strides.matrix = static_cast<int64_t>(columns);
    return strides;
  }
  strides.row = static_cast<int64_t>(columns + dice->whole(0, 20));
  strides.matrix = static_cast<int64_t>(rows) * strides.row + static_cast<int64_t>(dice->whole(0, 9));
  return strides;
}

size_t row_of(const Drawn &drawn, const mxs_strides &strides) {
  return strides.row > 0 ? static_cast<size_t>(strides.row) : drawn.columns;
}
size_t matrix_of(const Drawn &drawn, const mxs_strides &strides) {
  return strides.matrix > 0 ? static_cast<size_t>(strides.matrix) : drawn.rows * row_of(drawn, strides);
}
size_t memory_of(const Drawn &drawn, const mxs_strides &strides) {
  return (drawn.rows - 1) * row_of(drawn, strides) + (drawn.count - 1) * matrix_of(drawn, strides) + drawn.columns;
}

// Sides near tiles' borders more often than others.
size_t draw_side(Dice *dice) {
  const size_t borders[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129};
  return dice->one_in(2) ? borders[dice->whole(0, 14)] : dice->whole(1, 140);
}

Drawn draw(Dice *dice) {
  Drawn drawn;
  drawn.rows = draw_side(dice), drawn.columns = draw_side(dice), drawn.count = dice->one_in(3) ? dice->whole(2, 4) : 1;
  drawn.threads = static_cast<int>(dice->whole(1, 3));
  const TestedTable &table = tested_tables()[dice->whole(0, tested_tables().size() - 1)];
  drawn.safety = table.safety;
  const size_t steps = dice->whole(1, table.coefficients.size() / 3);
  drawn.coefficients = table.coefficients;
  drawn.coefficients.resize(3 * steps);
  if (dice->one_in(4)) drawn.safety *= dice->real(1, 1.5);
  if (dice->one_in(3)) drawn.epsilon_kind = MXS_EPSILON_ADD;
  if (dice->one_in(3)) drawn.epsilon = dice->real(0, 2);
  if (dice->one_in(3)) drawn.scale = std::ldexp(1.0f, static_cast<int>(dice->whole(0, 160)) - 80);
  drawn.source = draw_strides(dice, drawn.rows, drawn.columns, drawn.count);
  drawn.in_place = dice->one_in(3);
  drawn.target = drawn.in_place ? drawn.source : draw_strides(dice, drawn.rows, drawn.columns, drawn.count);
  drawn.values.resize(memory_of(drawn, drawn.source));
  for (float &value : drawn.values) value = drawn.scale * dice->normal();
  return drawn;
}

// X <- a X + (b A + c A^2) X in fp64, on the shorter side.
std::vector<double> formula(const Matrix &matrix, const Drawn &drawn) {
  const Matrix wide = matrix.rows > matrix.columns ? turned(matrix) : matrix;
  const size_t n = wide.rows, m = wide.columns;
  const double norm = norm_of(wide.values) * drawn.safety;
  const double divisor = drawn.epsilon_kind == MXS_EPSILON_ADD ? norm + drawn.epsilon : std::max(norm, drawn.epsilon);
  std::vector<double> x(wide.values.begin(), wide.values.end()), a(n * n), p(n * n), next(n * m);
  for (double &value : x) value /= divisor;
  for (size_t step = 0; step < drawn.coefficients.size(); step += 3) {
    const double *const abc = &drawn.coefficients[step];
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (size_t k = 0; k < m; ++k) sum += x[i * m + k] * x[j * m + k];
        a[i * n + j] = a[j * n + i] = sum;
      }
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) sum += a[i * n + k] * a[j * n + k];
        p[i * n + j] = p[j * n + i] = abc[1] * a[i * n + j] + abc[2] * sum;
      }
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < m; ++k) next[i * m + k] = abc[0] * x[i * m + k];
      for (size_t j = 0; j < n; ++j)
        for (size_t k = 0; k < m; ++k) next[i * m + k] += p[i * n + j] * x[j * m + k];
    }
    x.swap(next);
  }
  return x;
}

bool complain(const Drawn &drawn, const std::string &what) {
  print_error("%s: %s; last error: %s\n", drawn.text().c_str(), what.c_str(), mxs_last_error());
  return false;
}

double bound_of(const Drawn &drawn, double size, bool bf16) {
  double slope = 1;
  for (size_t i = 0; i < drawn.coefficients.size(); i += 3) slope *= drawn.coefficients[i];
  if (bf16) return 0x1p-9 * (10 * size + 2 * slope);
  return (backend.gram() ? 0x1p-22 : 0x1p-24) * (100 * size + 8 * slope);
}

// got: the targets' memory after a call.
bool is_right(const Drawn &drawn, const std::vector<float> &got, bool bf16) {
  size_t written = 0;
  for (size_t number = 0; number < drawn.count; ++number) {
    Matrix source = zeros(drawn.rows, drawn.columns), target = source;
    for (size_t r = 0; r < drawn.rows; ++r)
      for (size_t c = 0; c < drawn.columns; ++c) {
        const auto at = [&](const mxs_strides &strides) {
          return number * matrix_of(drawn, strides) + r * row_of(drawn, strides) + c;
        };
        source.values[r * drawn.columns + c] = drawn.values[at(drawn.source)];
        target.values[r * drawn.columns + c] = got[at(drawn.target)];
      }
    written += target.values.size();
    if (drawn.rows > drawn.columns) target = turned(target);
    const std::vector<double> wanted = formula(source, drawn);
    const double size = norm_of(wanted), error = distance(target.values, wanted), bound = bound_of(drawn, size, bf16);
    if (!(error <= bound))
      return complain(drawn, std::to_string(error / bound).append(" of the bound, matrix ") + std::to_string(number));
  }
  // What is no matrix's still has its poison, or in place its first value.
  size_t untouched = 0;
  for (size_t i = 0; i < got.size(); ++i) untouched += drawn.in_place ? got[i] == drawn.values[i] : std::isnan(got[i]);
  if (untouched < got.size() - written) return complain(drawn, "elements beside the matrices were written");
  return true;
}

bool try_one(const Drawn &drawn) {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.table = MXS_TABLE_CUSTOM;
  options.step_count = static_cast<int32_t>(drawn.coefficients.size() / 3);
  options.coefficients = drawn.coefficients.data();
  options.safety = drawn.safety;
  options.epsilon_kind = drawn.epsilon_kind, options.epsilon = drawn.epsilon;
  options.backend = backend.backend, options.algorithm = backend.algorithm;
  options.thread_count = drawn.threads;
  mxs_orthogonalizer *made = nullptr;
  if (mxs_orthogonalizer_create(&made, static_cast<int64_t>(drawn.rows), static_cast<int64_t>(drawn.columns),
                                &options) != MXS_OK)
    return complain(drawn, "create");
  const OrthogonalizerPointer owner(made);
  std::vector<float> source = drawn.values, apart(memory_of(drawn, drawn.target), NAN);
  std::vector<float> &target = drawn.in_place ? source : apart;
  if (mxs_orthogonalize_batch(made, source.data(), &drawn.source, target.data(), &drawn.target,
                              static_cast<int64_t>(drawn.count)) != MXS_OK)
    return complain(drawn, "run");
  if (!drawn.in_place && source != drawn.values) return complain(drawn, "the source was written");
  return is_right(drawn, target, is_bf16(made));
}

bool all_draws_are_right() {
  Dice dice(seed);
  // oneDNN makes its primitives anew for each case.
  const int count = mxs::test::few(backend.backend == MXS_BACKEND_ONEDNN ? 60 : 200);
  for (int i = 0; i < count; ++i)
    if (!try_one(draw(&dice))) {
      print_error("case %d of seed %lu\n", i, seed);
      return false;
    }
  return true;
}

void whatever_is_drawn_agrees_with_the_formula(void **) { assert_true(all_draws_are_right()); }

}  // namespace

int main(int argument_count, char **arguments) {
  const CMUnitTest tests[] = {cmocka_unit_test(whatever_is_drawn_agrees_with_the_formula)};
  backend = tested_backend(argument_count > 1 ? arguments[1] : "reference");
  if (argument_count > 2) seed = std::strtoul(arguments[2], nullptr, 10);
  if (!is_here(backend)) {
    printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
