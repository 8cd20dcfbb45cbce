// SPDX-License-Identifier: Apache-2.0
// The tables of linear.hpp against sums in fp64 and against what decompositions must satisfy. One program for each
// table: "reference" or "openblas".
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/team.hpp"
#include "kernels/linear.hpp"
#include "support/complaints.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

mxs_backend backend = MXS_BACKEND_REFERENCE;

const mxs::Linear &table() {
  const mxs::Linear *linear = nullptr;
  return mxs::linear_of(backend, &linear) == MXS_OK ? *linear : mxs::reference_linear();
}

using Values = std::vector<float>;

Values gaussian(size_t count, unsigned seed) {
  Values values(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float &value : values) value = normal(random);
  return values;
}

// Element (row, column) of a factor.
double at(const mxs::LinearFactor &factor, size_t row, size_t column) {
  return static_cast<double>(factor.turned ? factor.data[column * factor.stride + row]
                                           : factor.data[row * factor.stride + column]);
}

// Of a sum of products: relative to the sum of their absolute values.
bool is_near(float got, double wanted, double absolute_sum) {
  return std::fabs(static_cast<double>(got) - wanted) <= 2e-6 * absolute_sum + 1e-30;
}

std::string compare_product(const mxs::LinearProduct &product, const Values &before, const Values &after) {
  const size_t stride = product.target_stride;
  for (size_t row = 0; row < product.rows; ++row)
    for (size_t column = 0; column < stride; ++column) {
      const float got = after[row * stride + column], old = before[row * stride + column];
      if (column >= product.columns) {
        if (std::memcmp(&got, &old, sizeof got) != 0) return words("(%zu, %zu) lies beyond the target", row, column);
        continue;
      }
      double wanted = product.beta == 0 ? 0 : static_cast<double>(product.beta) * static_cast<double>(old);
      double absolute = std::fabs(wanted);
      for (size_t k = 0; k < product.inner; ++k) {
        const double left = at(product.left, row, k), right = at(product.right, k, column);
        const double term = static_cast<double>(product.alpha) * left * right;
        wanted += term;
        absolute += std::fabs(term);
      }
      if (!is_near(got, wanted, absolute))
        return words("%zu x %zu x %zu: (%zu, %zu) is %g, not %g", product.rows, product.columns, product.inner, row,
                     column, static_cast<double>(got), wanted);
    }
  return "";
}

std::string multiplies(size_t rows, size_t columns, size_t inner, bool left_turned, bool right_turned, float beta) {
  const size_t left_stride = (left_turned ? rows : inner) + 3, right_stride = (right_turned ? inner : columns) + 1;
  const Values left = gaussian((left_turned ? inner : rows) * left_stride, 1);
  const Values right = gaussian((right_turned ? columns : inner) * right_stride, 2);
  mxs::LinearProduct product;
  product.rows = rows, product.columns = columns, product.inner = inner;
  product.left = {left.data(), left_stride, left_turned};
  product.right = {right.data(), right_stride, right_turned};
  product.target_stride = columns + 2;
  product.alpha = 0.75f, product.beta = beta;
  Values before = gaussian(rows * product.target_stride, 3);
  if (beta == 0) std::fill(before.begin(), before.end(), NAN);  // must not be read
  Values after = before, with_team = before;
  product.target = after.data();
  table().multiply(product, nullptr);
  const std::string complaint = compare_product(product, before, after);
  if (!complaint.empty()) return complaint;
  std::unique_ptr<mxs::Team> team;
  if (mxs::Team::create(&team, 3) != MXS_OK) return "no team";
  product.target = with_team.data();
  table().multiply(product, team.get());
  if (std::memcmp(after.data(), with_team.data(), after.size() * sizeof(float)) != 0)
    return words("%zu x %zu x %zu: a team of 3 has other bits", rows, columns, inner);
  return "";
}

std::string all_products() {
  const size_t shapes[][3] = {{1, 1, 1}, {1, 7, 5}, {9, 1, 300}, {33, 65, 17}, {257, 70, 40}, {70, 600, 65}, {5, 5, 0}};
  for (const auto &shape : shapes)
    for (bool left_turned : {false, true})
      for (bool right_turned : {false, true})
        for (float beta : {0.0f, 1.0f, -0.5f}) {
          const std::string complaint = multiplies(shape[0], shape[1], shape[2], left_turned, right_turned, beta);
          if (!complaint.empty()) return complaint;
        }
  return "";
}

std::string updates(size_t n, size_t inner, bool factor_turned, float beta) {
  const size_t factor_stride = (factor_turned ? n : inner) + 2;
  const Values factor = gaussian((factor_turned ? inner : n) * factor_stride, 1);
  mxs::LinearUpdate update;
  update.n = n, update.inner = inner;
  update.factor = {factor.data(), factor_stride, factor_turned};
  update.target_stride = n + 1;
  update.alpha = 0.25f, update.beta = beta;
  Values before = gaussian(n * update.target_stride, 3);
  // The upper half is poison; without beta so is all.
  for (size_t row = 0; row < n; ++row)
    for (size_t column = beta == 0 ? 0 : row + 1; column < n; ++column) before[row * (n + 1) + column] = NAN;
  Values after = before;
  update.target = after.data();
  table().update(update, nullptr);
  Values with_team = before;
  std::unique_ptr<mxs::Team> team;
  if (mxs::Team::create(&team, 2) != MXS_OK) return "no team";
  update.target = with_team.data();
  table().update(update, team.get());
  if (std::memcmp(after.data(), with_team.data(), after.size() * sizeof(float)) != 0) return "a team has other bits";
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < row; ++column) {
      if (after[row * (n + 1) + column] != after[column * (n + 1) + row])
        return words("%zu: (%zu, %zu) is not symmetric", n, row, column);
      before[column * (n + 1) + row] = before[row * (n + 1) + column];
    }
  mxs::LinearProduct product;
  product.rows = product.columns = n, product.inner = inner;
  product.left = product.right = update.factor;
  product.right.turned = !factor_turned;
  product.target_stride = n + 1, product.alpha = update.alpha, product.beta = beta;
  return compare_product(product, before, after);
}

std::string all_updates() {
  for (size_t n : thinned<size_t>({1, 2, 31, 64, 257, 300}))
    for (size_t inner : {0, 1, 70, 270})
      for (bool turned : {false, true})
        for (float beta : {0.0f, 0.95f}) {
          const std::string complaint = updates(n, inner, turned, beta);
          if (!complaint.empty()) return complaint;
        }
  return "";
}

// ---- decompositions ----

struct Square {
  size_t n, stride;
  Values values;
  float &operator()(size_t row, size_t column) { return values[row * stride + column]; }
  double operator()(size_t row, size_t column) const { return static_cast<double>(values[row * stride + column]); }
};

Square square(size_t n) { return {n, n + 3, Values(n * (n + 3), 42.0f)}; }

// B B^T of an n x rank Gaussian, plus so much on the diagonal.
Square spectrum(size_t n, size_t rank, float shift) {
  Square matrix = square(n);
  const Values factor = gaussian(n * std::max<size_t>(rank, 1), 11);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column <= row; ++column) {
      double sum = row == column ? static_cast<double>(shift) : 0.0;
      for (size_t k = 0; k < rank; ++k)
        sum += static_cast<double>(factor[row * rank + k]) * static_cast<double>(factor[column * rank + k]);
      matrix(row, column) = matrix(column, row) = static_cast<float>(sum);
    }
  return matrix;
}

Square scaled(Square matrix, float scale) {
  for (size_t row = 0; row < matrix.n; ++row)
    for (size_t column = 0; column < matrix.n; ++column) matrix(row, column) *= scale;
  return matrix;
}

double largest(const Square &matrix) {
  double found = 0;
  for (size_t row = 0; row < matrix.n; ++row)
    for (size_t column = 0; column < matrix.n; ++column) found = std::max(found, std::fabs(matrix(row, column)));
  return found;
}

// How far the columns are from orthogonal unit vectors, at worst.
double orthogonality(const Square &q) {
  double worst = 0;
  for (size_t i = 0; i < q.n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = i == j ? -1 : 0;
      for (size_t k = 0; k < q.n; ++k) sum += q(k, i) * q(k, j);
      worst = std::max(worst, std::fabs(sum));
    }
  return worst;
}

bool padding_is_whole(const Square &matrix) {
  for (size_t row = 0; row < matrix.n; ++row)
    for (size_t column = matrix.n; column < matrix.stride; ++column)
      if (matrix(row, column) != 42.0) return false;
  return true;
}

struct Room {
  explicit Room(uint64_t bytes) : memory(bytes + 128, std::byte{0xEE}) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    start = memory.data() + (64 - address % 64) % 64;
    end = start + bytes;
  }
  bool is_whole() const { return end[0] == std::byte{0xEE} && end[7] == std::byte{0xEE}; }
  std::vector<std::byte> memory;
  std::byte *start, *end;
};

mxs_status eigh_of(Square *matrix, Values *values) {
  const size_t n = matrix->n;
  Room room(table().eigh_bytes(n));
  values->assign(n, NAN);
  const mxs_status status = table().eigh(n, matrix->values.data(), matrix->stride, values->data(), room.start);
  return room.is_whole() && padding_is_whole(*matrix) ? status : MXS_INTERNAL;
}

std::string decomposes(const Square &matrix, const char *what) {
  const size_t n = matrix.n;
  Square q = matrix;
  Values values;
  if (eigh_of(&q, &values) != MXS_OK) return error_of(what);
  if (!std::is_sorted(values.begin(), values.end())) return words("%s, %zu: values do not ascend", what, n);
  const double size = largest(matrix), bound = 1e-6 * std::sqrt(static_cast<double>(n)) + 2e-6;
  if (orthogonality(q) > bound) return words("%s, %zu: Q is off by %g", what, n, orthogonality(q));
  for (size_t i = 0; i < n; ++i)
    for (size_t row = 0; row < n; ++row) {
      double sum = -static_cast<double>(values[i]) * q(row, i);
      for (size_t k = 0; k < n; ++k) sum += matrix(row, k) * q(k, i);
      if (std::fabs(sum) > bound * size * std::sqrt(static_cast<double>(n)))
        return words("%s, %zu: A q - value q has %g at %zu of vector %zu", what, n, sum, row, i);
    }
  Square again = matrix;
  Values again_values;
  if (eigh_of(&again, &again_values) != MXS_OK || again_values != values || again.values != q.values)
    return words("%s, %zu: the second time has other bits", what, n);
  return "";
}

std::string all_decompositions() {
  for (size_t n : thinned<size_t>({1, 2, 3, 7, 33, 64, 129, 200})) {
    for (const size_t rank : {size_t{0}, size_t{1}, n / 2, n, 2 * n}) {
      const std::string complaint = decomposes(spectrum(n, rank, 0), rank < n ? "rank-deficient" : "of full rank");
      if (!complaint.empty()) return complaint;
    }
    for (const Square &matrix : {spectrum(n, 0, 1), spectrum(n, 0, -3), spectrum(n, 1, 2)}) {
      const std::string complaint = decomposes(matrix, "equal values");
      if (!complaint.empty()) return complaint;
    }
    for (float scale : {1e30f, 1e-30f, 1e-36f, 0x1p100f}) {
      const std::string complaint = decomposes(scaled(spectrum(n, n, 0), scale), "scaled");
      if (!complaint.empty()) return complaint;
    }
  }
  return "";
}

std::string scaling_keeps_bits() {
  const Square matrix = spectrum(40, 60, 0);
  Square one = matrix, other = scaled(matrix, 0x1p-60f);
  Values values, other_values;
  if (eigh_of(&one, &values) != MXS_OK || eigh_of(&other, &other_values) != MXS_OK) return mxs_last_error();
  for (float &value : other_values) value *= 0x1p60f;
  return one.values == other.values && values == other_values ? "" : "a power of two changes bits";
}

// Against the reference, which is Jacobi in fp64.
std::string values_are_right() {
  for (size_t n : {1, 5, 64, 150}) {
    Square matrix = spectrum(n, n + 3, 0), same = matrix;
    Values values, wanted(n);
    if (eigh_of(&matrix, &values) != MXS_OK) return mxs_last_error();
    Room room(mxs::reference_linear().eigh_bytes(n));
    if (mxs::reference_linear().eigh(n, same.values.data(), same.stride, wanted.data(), room.start) != MXS_OK)
      return mxs_last_error();
    for (size_t i = 0; i < n; ++i)
      if (std::fabs(values[i] - wanted[i]) > 2e-6f * wanted[n - 1])
        return words("value %zu of %zu is %g, not %g", i, n, static_cast<double>(values[i]),
                     static_cast<double>(wanted[i]));
  }
  return "";
}

mxs_status qr_of(Square *matrix) {
  Room room(table().qr_bytes(matrix->n));
  const mxs_status status = table().qr(matrix->n, matrix->values.data(), matrix->stride, room.start);
  return room.is_whole() && padding_is_whole(*matrix) ? status : MXS_INTERNAL;
}

Square rectangle(size_t n, size_t rank) {
  Square matrix = square(n);
  const Values left = gaussian(n * n, 21), right = gaussian(n * n, 22);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column) {
      double sum = 0;
      for (size_t k = 0; k < rank; ++k)
        sum += static_cast<double>(left[row * n + k]) * static_cast<double>(right[k * n + column]);
      matrix(row, column) = static_cast<float>(sum);
    }
  return matrix;
}

std::string orthogonalizes(const Square &matrix, bool full_rank, const char *what) {
  const size_t n = matrix.n;
  Square q = matrix;
  if (qr_of(&q) != MXS_OK) return error_of(what);
  const double bound = 1e-6 * std::sqrt(static_cast<double>(n)) + 2e-6;
  if (orthogonality(q) > bound) return words("%s, %zu: Q is off by %g", what, n, orthogonality(q));
  // R = Q^T A is upper triangular, and its diagonal not negative.
  const double size = largest(matrix) * std::sqrt(static_cast<double>(n));
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column <= row; ++column) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k) sum += q(k, row) * matrix(k, column);
      if (column < row && std::fabs(sum) > bound * size)
        return words("%s, %zu: R has %g at (%zu, %zu)", what, n, sum, row, column);
      if (column == row && sum < -bound * size) return words("%s, %zu: R has %g on its diagonal", what, n, sum);
      if (column == row && full_rank && !(sum > 0)) return words("%s, %zu: R has no positive diagonal", what, n);
    }
  Square again = matrix;
  return qr_of(&again) == MXS_OK && again.values == q.values ? "" : words("%s: the second time has other bits", what);
}

std::string all_orthogonalizations() {
  for (size_t n : {1, 2, 3, 17, 64, 129, 200}) {
    std::string complaint = orthogonalizes(rectangle(n, n), true, "of full rank");
    for (const size_t rank : {size_t{0}, size_t{1}, n / 2})
      if (complaint.empty()) complaint = orthogonalizes(rectangle(n, rank), false, "rank-deficient");
    for (float scale : {-1.0f, 1e30f, 1e-30f})
      if (complaint.empty()) complaint = orthogonalizes(scaled(rectangle(n, n), scale), true, "scaled");
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string what_is_not_finite_is_refused() {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    Square matrix = spectrum(20, 20, 0);
    matrix(19, 3) = matrix(3, 19) = bad;
    const Square before = matrix;
    Values values;
    if (eigh_of(&matrix, &values) != MXS_INVALID_ARGUMENT) return "eigh takes it";
    if (!std::isnan(values[0])) return "eigh wrote values";
    if (qr_of(&matrix) != MXS_INVALID_ARGUMENT) return "qr takes it";
    if (std::memcmp(matrix.values.data(), before.values.data(), before.values.size() * sizeof(float)) != 0)
      return "the matrix was changed";
  }
  return "";
}

std::string planned_failures_come() {
  mxs::eigh_failures_to_come = 2;
  for (const mxs_status wanted : {MXS_INTERNAL, MXS_INTERNAL, MXS_OK}) {
    Square matrix = spectrum(20, 20, 0);
    Values values;
    const mxs_status got = eigh_of(&matrix, &values);
    if (got != wanted) return words("status %d, not %d", got, wanted);
    if (got != MXS_OK && !std::strstr(mxs_last_error(), "20 x 20")) return mxs_last_error();
  }
  return "";
}

// The matrix is spoilt by then.
std::string fp64_comes_after_fp32() {
  mxs::eigh_fp32_failures_to_come = 6;
  for (size_t n : {1, 20, 65}) {
    const std::string complaint = decomposes(spectrum(n, n, 0), "again in fp64");
    if (!complaint.empty()) return complaint;
  }
  const int left = mxs::eigh_fp32_failures_to_come.exchange(0);
  return left == (backend == MXS_BACKEND_OPENBLAS ? 0 : 6) ? "" : words("%d failures are left", left);
}

// OpenBLAS's count for this process, as another user of it sees it. 0: it has none.
int process_threads() {
  void *const handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  const auto get = handle ? reinterpret_cast<int (*)()>(dlsym(handle, "openblas_get_num_threads")) : nullptr;
  return get ? get() : 0;
}

void set_process_threads(int count) {
  void *const handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  const auto set = handle ? reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads")) : nullptr;
  if (set) set(count);
}

std::string threads_of_the_process_stay() {
  if (backend != MXS_BACKEND_OPENBLAS) return "";
  const int before = process_threads();
  if (before < 1) return "OpenBLAS doesn't tell its thread count";
  for (int count : {1, 3}) {
    set_process_threads(count);
    if (process_threads() != count) continue;  // the serial flavour has one, and knows no other
    std::vector<std::string> complaints(4);
    std::vector<std::thread> threads;
    for (std::string &complaint : complaints)
      threads.emplace_back([&complaint] {
        complaint = multiplies(300, 200, 100, false, true, 1.0f);
        if (complaint.empty()) complaint = decomposes(spectrum(60, 60, 0), "beside others");
      });
    for (std::thread &thread : threads) thread.join();
    for (const std::string &complaint : complaints)
      if (!complaint.empty()) return complaint;
    if (process_threads() != count) return words("%d threads have become %d", count, process_threads());
  }
  set_process_threads(before);
  return "";
}

void products_agree_with_sums_in_fp64(void **) { assert_true(good(all_products())); }
void updates_are_symmetric_and_agree_with_sums_in_fp64(void **) { assert_true(good(all_updates())); }
void eigenvectors_are_orthogonal_and_belong_to_their_values(void **) { assert_true(good(all_decompositions())); }
void eigenvalues_agree_with_jacobi_in_fp64(void **) { assert_true(good(values_are_right())); }
void powers_of_two_change_no_bits(void **) { assert_true(good(scaling_keeps_bits())); }
void qr_gives_the_one_basis_with_a_positive_diagonal(void **) { assert_true(good(all_orthogonalizations())); }
void matrices_that_are_not_finite_are_refused(void **) { assert_true(good(what_is_not_finite_is_refused())); }
void eigh_can_be_made_to_fail(void **) { assert_true(good(planned_failures_come())); }
void what_fails_in_fp32_is_done_in_fp64(void **) { assert_true(good(fp64_comes_after_fp32())); }
void the_process_keeps_its_thread_count(void **) { assert_true(good(threads_of_the_process_stay())); }

}  // namespace

int main(int argument_count, char **arguments) {
  if (argument_count > 1 && std::strcmp(arguments[1], "openblas") == 0) backend = MXS_BACKEND_OPENBLAS;
  const mxs::Linear *linear = nullptr;
  if (mxs::linear_of(backend, &linear) == MXS_NOT_BUILT) {
    std::printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(products_agree_with_sums_in_fp64),
      cmocka_unit_test(updates_are_symmetric_and_agree_with_sums_in_fp64),
      cmocka_unit_test(eigenvectors_are_orthogonal_and_belong_to_their_values),
      cmocka_unit_test(eigenvalues_agree_with_jacobi_in_fp64),
      cmocka_unit_test(powers_of_two_change_no_bits),
      cmocka_unit_test(qr_gives_the_one_basis_with_a_positive_diagonal),
      cmocka_unit_test(matrices_that_are_not_finite_are_refused),
      cmocka_unit_test(eigh_can_be_made_to_fail),
      cmocka_unit_test(what_fails_in_fp32_is_done_in_fp64),
      cmocka_unit_test(the_process_keeps_its_thread_count),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
