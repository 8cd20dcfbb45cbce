// SPDX-License-Identifier: Apache-2.0
// What Newton-Schulz of a changed matrix, or in another way of calling, has to do with that of the matrix itself:
//
//   newton_schulz_identities BACKEND [SEED]
//
//   bit by bit       turned (n < m), times a power of two; again, in place, with 2 and 3 threads; in a batch, dense or
//                    with strides, whatever lies between and beside its elements
//   to rounding      rows or columns in another order, turned (n = m), padded with zeros, which stay zero
//   zero             stays zero
//   not finite       is refused, and no target is touched
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "support/newton_schulz.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

namespace {

TestedBackend backend;
unsigned seed = 0;

const TestedTable &you() { return tested_tables()[1]; }
// A common one, one of an even number of steps, and one without a cube.
const std::vector<TestedTable> tables = {tested_tables()[1], tested_tables()[4], tested_tables()[6]};

bool complain(const char *what, size_t rows, size_t columns) {
  print_error("%s, %zu x %zu; last error: %s\n", what, rows, columns, mxs_last_error());
  return false;
}

using Shape = std::pair<size_t, size_t>;
const std::vector<Shape> shapes =
    mxs::test::thinned<Shape>({{1, 9}, {9, 1}, {5, 8}, {128, 300}, {40, 72}, {33, 32}, {300, 113}});

bool turning_and_powers_of_two_show_in_no_bit() {
  std::vector<Shape> all = shapes;
  if (!mxs::test::under_valgrind()) all.push_back({300, 513});
  for (const auto &[rows, columns] : all)
    for (const TestedTable &table : tables) {
      const Matrix matrix = gaussian(rows, columns, seed + 7);
      const Matrix result = {rows, columns, orthogonalized(matrix, table, backend)};
      if (result.values.empty()) return complain("run", rows, columns);
      if (turned(result).values != orthogonalized(turned(matrix), table, backend))
        return complain("turned", rows, columns);
      for (const float scale : {0x1p-40f, 0x1p+90f, -1.0f}) {
        const std::vector<float> wanted = scale < 0 ? scaled(result, -1).values : result.values;
        if (orthogonalized(scaled(matrix, scale), table, backend) != wanted) return complain("scaled", rows, columns);
      }
    }
  return true;
}

// Twice the bound of each against the oracle, f of norm sqrt(n) or less.
double bound_of(const Matrix &matrix, const TestedTable &table) {
  const OrthogonalizerPointer made = orthogonalizer_of(matrix.rows, matrix.columns, table, backend);
  const double size = 1.2 * std::sqrt(static_cast<double>(matrix.n()));
  if (is_bf16(made.get())) return 2 * 0x1p-9 * (10 * size + 2 * table.slope());
  return 2 * (backend.gram() ? 0x1p-22 : 0x1p-24) * (100 * size + 8 * table.slope());
}

Matrix reordered(const Matrix &matrix, bool columns, const std::vector<size_t> &order) {
  Matrix result = matrix;
  for (size_t r = 0; r < matrix.rows; ++r)
    for (size_t c = 0; c < matrix.columns; ++c)
      result.values[r * matrix.columns + c] =
          matrix.values[(columns ? r : order[r]) * matrix.columns + (columns ? order[c] : c)];
  return result;
}

bool is_near(const std::vector<float> &got, const std::vector<float> &wanted, const Matrix &matrix,
             const TestedTable &table, const char *what) {
  if (got.size() != wanted.size()) return complain(what, matrix.rows, matrix.columns);
  const double apart = distance(got, wanted), bound = bound_of(matrix, table);
  if (apart <= bound) return true;
  print_error("%s, %zu x %zu, %s: apart by %.3g, bound %.3g\n", what, matrix.rows, matrix.columns, table.name, apart,
              bound);
  return false;
}

bool order_shows_in_rounding_only() {
  for (const auto &[rows, columns] : shapes)
    for (const TestedTable &table : tables)
      for (const bool of_columns : {false, true}) {
        const Matrix matrix = gaussian(rows, columns, seed + 8);
        std::vector<size_t> order(of_columns ? columns : rows);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(seed + 9));
        const Matrix result = {rows, columns, orthogonalized(matrix, table, backend)};
        if (result.values.empty()) return complain("run", rows, columns);
        if (!is_near(orthogonalized(reordered(matrix, of_columns, order), table, backend),
                     reordered(result, of_columns, order).values, matrix, table, "another order"))
          return false;
      }
  const Matrix square = gaussian(96, 96, seed + 10);
  const Matrix result = {96, 96, orthogonalized(square, you(), backend)};
  return is_near(orthogonalized(turned(square), you(), backend), turned(result).values, square, you(), "turned");
}

bool padding_with_zeros_changes_nothing_else() {
  for (const auto &[rows, columns] : shapes)
    for (const auto &[more_rows, more_columns] :
         {Shape{0, 5}, {3, 0}, {31, 70}, {columns, 0}}) {
      const Matrix matrix = gaussian(rows, columns, seed + 11);
      const Matrix larger = padded(matrix, rows + more_rows, columns + more_columns);
      const std::vector<float> got = orthogonalized(larger, you(), backend);
      if (got.empty()) return complain("run", larger.rows, larger.columns);
      Matrix corner = zeros(rows, columns);
      for (size_t r = 0; r < larger.rows; ++r)
        for (size_t c = 0; c < larger.columns; ++c) {
          const float value = got[r * larger.columns + c];
          if (r < rows && c < columns)
            corner.values[r * columns + c] = value;
          else if (value != 0)
            return complain("a zero is no longer zero", larger.rows, larger.columns);
        }
      // Small ones may change from fp32 to bf16 by padding: the larger bound is the one that counts.
      if (!is_near(corner.values, orthogonalized(matrix, you(), backend), larger, you(), "padded")) return false;
    }
  return true;
}

bool calls_and_threads_show_in_no_bit() {
  for (const auto &[rows, columns] :
       mxs::test::thinned<Shape>({{7, 5}, {257, 65}, {300, 420}, {64, 1000}})) {
    const Matrix matrix = gaussian(rows, columns, seed + 12), other = gaussian(rows, columns, seed + 13);
    const std::vector<float> wanted = orthogonalized(matrix, you(), backend);
    for (const int threads : {1, 2, 3}) {
      const OrthogonalizerPointer made = orthogonalizer_of(rows, columns, you(), backend, threads);
      std::vector<float> got(wanted.size(), NAN), in_place = matrix.values, unused(wanted.size());
      if (!made || mxs_orthogonalize(made.get(), matrix.values.data(), got.data()) != MXS_OK || got != wanted)
        return complain("threads", rows, columns);
      if (mxs_orthogonalize(made.get(), other.values.data(), unused.data()) != MXS_OK ||
          mxs_orthogonalize(made.get(), in_place.data(), in_place.data()) != MXS_OK || in_place != wanted)
        return complain("in place, after another", rows, columns);
    }
  }
  return true;
}

bool zero_stays_zero() {
  for (const auto &[rows, columns] : shapes)
    for (const TestedTable &table : tables)
      for (const float zero : {0.0f, -0.0f}) {
        Matrix matrix = zeros(rows, columns);
        std::fill(matrix.values.begin(), matrix.values.end(), zero);
        const std::vector<float> got = orthogonalized(matrix, table, backend);
        if (got.size() != matrix.values.size()) return complain("run", rows, columns);
        for (const float value : got)
          if (value != 0) return complain("zero", rows, columns);
      }
  return true;
}

// ---- batches -------------------------------------------------------------------------------------------------------

// One side of a batch within memory: elements that are no matrix's are poison.
struct Side {
  mxs_strides strides = MXS_STRIDES_INIT;
  std::vector<float> memory = {};

  Side(size_t rows, size_t columns, size_t count, int64_t row, int64_t matrix) : rows_(rows), columns_(columns) {
    strides.row = row, strides.matrix = matrix;
    row_ = row > 0 ? static_cast<size_t>(row) : columns;
    matrix_ = matrix > 0 ? static_cast<size_t>(matrix) : rows * row_;
    memory.assign((rows - 1) * row_ + (count - 1) * matrix_ + columns, NAN);
  }
  float *at(size_t number, size_t row) { return memory.data() + number * matrix_ + row * row_; }
  void put(size_t number, const Matrix &matrix) {
    for (size_t r = 0; r < rows_; ++r) std::copy_n(&matrix.values[r * columns_], columns_, at(number, r));
  }
  std::vector<float> get(size_t number) {
    std::vector<float> values;
    for (size_t r = 0; r < rows_; ++r) values.insert(values.end(), at(number, r), at(number, r) + columns_);
    return values;
  }
  // Elements that are not poison any more.
  size_t written() const {
    return static_cast<size_t>(std::count_if(memory.begin(), memory.end(), [](float x) { return !std::isnan(x); }));
  }

 private:
  size_t rows_, columns_, row_, matrix_;
};

struct Layout {
  const char *name;
  int64_t row, matrix;
};

// Of 24 x 40 and 40 x 24 matrices and others.
std::vector<Layout> layouts_of(int64_t rows, int64_t columns, int64_t count) {
  return {{"dense", 0, 0},
          {"dense, in numbers", columns, rows * columns},
          {"long rows", columns + 3, 0},
          {"room between", columns, rows * columns + 17},
          {"side by side", count * columns + 1, columns},
          {"rows in turn", count * (columns + 2), columns + 2}};
}

bool batches_equal_single_calls() {
  for (const auto &[rows, columns] : std::vector<Shape>{{24, 40}, {40, 24}, {1, 5}, {40, 33}})
    for (const size_t count : {size_t{1}, size_t{5}})
      for (const int threads : {1, 2}) {
        std::vector<Matrix> matrices;
        std::vector<std::vector<float>> wanted;
        for (size_t i = 0; i < count; ++i) {
          matrices.push_back(i == 2 ? zeros(rows, columns)
                                    : scaled(gaussian(rows, columns, seed + 30 + static_cast<unsigned>(i)),
                                             i == 1 ? 1e-20f : 1));
          wanted.push_back(orthogonalized(matrices[i], you(), backend));
        }
        const OrthogonalizerPointer made = orthogonalizer_of(rows, columns, you(), backend, threads);
        const auto layouts = layouts_of(static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                        static_cast<int64_t>(count));
        // With two threads each second layout: on busy CPUs OpenMP's threads wait for each other long.
        for (size_t l = 0; l < layouts.size(); l += static_cast<size_t>(threads)) {
          const Layout from = layouts[l], to = layouts[(l * 5 + 1) % layouts.size()];
          Side source(rows, columns, count, from.row, from.matrix), target(rows, columns, count, to.row, to.matrix);
          for (size_t i = 0; i < count; ++i) source.put(i, matrices[i]);
          if (mxs_orthogonalize_batch(made.get(), source.memory.data(), &source.strides, target.memory.data(),
                                      &target.strides, static_cast<int64_t>(count)) != MXS_OK)
            return complain(to.name, rows, columns);
          for (size_t i = 0; i < count; ++i)
            if (target.get(i) != wanted[i]) return complain(to.name, rows, columns);
          if (target.written() != count * rows * columns) return complain("beside the matrices", rows, columns);
          // And in place.
          if (mxs_orthogonalize_batch(made.get(), source.memory.data(), &source.strides, source.memory.data(),
                                      &source.strides, static_cast<int64_t>(count)) != MXS_OK)
            return complain(from.name, rows, columns);
          for (size_t i = 0; i < count; ++i)
            if (source.get(i) != wanted[i]) return complain("in place", rows, columns);
        }
      }
  return true;
}

// More than any list of squares holds from the start.
bool a_large_batch_equals_single_calls() {
  constexpr size_t rows = 3, columns = 4, count = 1500;
  Side source(rows, columns, count, 0, 0);
  for (size_t i = 0; i < count; ++i) source.put(i, gaussian(rows, columns, static_cast<unsigned>(i)));
  const std::vector<float> given = source.memory;
  const OrthogonalizerPointer made = orthogonalizer_of(rows, columns, you(), backend, 2);
  float *const memory = source.memory.data();
  if (mxs_orthogonalize_batch(made.get(), memory, nullptr, memory, nullptr, count) != MXS_OK)
    return complain("batch", rows, columns);
  for (size_t i = 0; i < count; ++i) {
    std::vector<float> one(given.begin() + static_cast<std::ptrdiff_t>(i * rows * columns),
                           given.begin() + static_cast<std::ptrdiff_t>((i + 1) * rows * columns));
    if (mxs_orthogonalize(made.get(), one.data(), one.data()) != MXS_OK || one != source.get(i))
      return complain("one of the batch", rows, columns);
  }
  return true;
}

bool what_is_not_finite_is_refused() {
  constexpr size_t rows = 40, columns = 33, count = 3;
  const OrthogonalizerPointer made = orthogonalizer_of(rows, columns, you(), backend, 2);
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (const size_t number : {size_t{0}, size_t{2}})
      for (const size_t at : {size_t{0}, rows * columns - 1}) {
        Side source(rows, columns, count, 0, 0);
        for (size_t i = 0; i < count; ++i) source.put(i, gaussian(rows, columns, seed + static_cast<unsigned>(i)));
        source.memory[number * rows * columns + at] = bad;
        std::vector<float> target(source.memory.size(), 42.0f);
        if (mxs_orthogonalize_batch(made.get(), source.memory.data(), nullptr, target.data(), nullptr, count) !=
                MXS_INVALID_ARGUMENT ||
            !std::strstr(mxs_last_error(), ("source matrix " + std::to_string(number) + " of 3").c_str()) ||
            target != std::vector<float>(target.size(), 42.0f))
          return complain("not finite", rows, columns);
        const std::vector<float> before = source.memory;
        if (mxs_orthogonalize_batch(made.get(), source.memory.data(), nullptr, source.memory.data(), nullptr, count) !=
                MXS_INVALID_ARGUMENT ||
            std::memcmp(before.data(), source.memory.data(), before.size() * sizeof(float)) != 0)
          return complain("not finite, in place", rows, columns);
      }
  return true;
}

void turned_and_scaled_matrices_give_the_same_bits(void **) { assert_true(turning_and_powers_of_two_show_in_no_bit()); }
void rows_and_columns_may_change_places(void **) { assert_true(order_shows_in_rounding_only()); }
void zeros_beside_a_matrix_stay_zero(void **) { assert_true(padding_with_zeros_changes_nothing_else()); }
void calls_and_threads_do_not_show_in_bits(void **) { assert_true(calls_and_threads_show_in_no_bit()); }
void zero_maps_to_zero(void **) { assert_true(zero_stays_zero()); }
void a_batch_gives_the_bits_of_single_calls(void **) { assert_true(batches_equal_single_calls()); }
void a_batch_of_1500_gives_the_bits_of_single_calls(void **) { assert_true(a_large_batch_equals_single_calls()); }
void sources_that_are_not_finite_change_nothing(void **) { assert_true(what_is_not_finite_is_refused()); }

}  // namespace

int main(int argument_count, char **arguments) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(turned_and_scaled_matrices_give_the_same_bits),
      cmocka_unit_test(rows_and_columns_may_change_places),
      cmocka_unit_test(zeros_beside_a_matrix_stay_zero),
      cmocka_unit_test(calls_and_threads_do_not_show_in_bits),
      cmocka_unit_test(zero_maps_to_zero),
      cmocka_unit_test(a_batch_gives_the_bits_of_single_calls),
      cmocka_unit_test(a_batch_of_1500_gives_the_bits_of_single_calls),
      cmocka_unit_test(sources_that_are_not_finite_change_nothing),
  };
  backend = tested_backend(argument_count > 1 ? arguments[1] : "reference");
  if (argument_count > 2) seed = static_cast<unsigned>(std::strtoul(arguments[2], nullptr, 10));
  if (!is_here(backend)) {
    printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
