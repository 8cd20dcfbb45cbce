// SPDX-License-Identifier: Apache-2.0
// Linear algebra on the device by our own kernels: the bits of the host's reference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "cuda/kernels/arguments.hpp"
#include "device/linear.hpp"
#include "gpu/device_arrays.hpp"
#include "gpu/gpu.hpp"
#include "kernels/linear.hpp"
#include "matrixshard/status.h"
#include "support/cmocka_all.h"

namespace {

using namespace mxs;
using mxs::test::DeviceArray;

Device *device = nullptr;
std::unique_ptr<DeviceLinear> linear;

std::vector<float> gaussian(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float &value : values) value = normal(random);
  return values;
}

struct ProductCase {
  size_t rows, columns, inner;
  bool left_turned, right_turned;
  float alpha, beta;
  bool symmetric;
};

// Of factors whose rows have a gap behind them.
bool multiplies(const ProductCase &c) {
  const size_t left_stride = (c.left_turned ? c.rows : c.inner) + 3;
  const size_t right_stride = (c.right_turned ? c.inner : c.columns) + 1, stride = c.columns + 2;
  const std::vector<float> left = gaussian(left_stride * (c.left_turned ? c.inner : c.rows), 1);
  const std::vector<float> right = gaussian(right_stride * (c.right_turned ? c.columns : c.inner), 2);
  std::vector<float> wanted = gaussian(stride * c.rows, 3);
  const DeviceArray<float> left_there(*device, left), right_there(*device, right), target(*device, wanted);
  LinearProduct product;
  product.rows = c.rows, product.columns = c.columns, product.inner = c.inner;
  product.left = {left.data(), left_stride, c.left_turned};
  product.right = {right.data(), right_stride, c.right_turned};
  product.target = wanted.data(), product.target_stride = stride;
  product.alpha = c.alpha, product.beta = c.beta, product.symmetric = c.symmetric;
  reference_linear().multiply(product, nullptr);
  product.left.data = left_there.data(), product.right.data = right_there.data(), product.target = target.data();
  if (linear->multiply(product, nullptr) != MXS_OK) return false;
  return mxs::test::same_bits(target.get(), wanted);
}

constexpr size_t product_shapes[][3] = {{1, 1, 1},     {64, 64, 16},   {65, 3, 300},
                                        {7, 130, 256}, {70, 67, 513}, {5, 5, 0}};
constexpr float product_factors[][2] = {{1, 0}, {1, 0.5f}, {-2.5f, 1}, {0.3f, 0}};

bool products_are_the_hosts() {
  for (const bool left_turned : {false, true})
    for (const bool right_turned : {false, true})
      for (const auto &[rows, columns, inner] : product_shapes)
        for (const auto &[alpha, beta] : product_factors) {
          const ProductCase plain{rows, columns, inner, left_turned, right_turned, alpha, beta, false};
          ProductCase square = plain;
          square.columns = rows, square.symmetric = true;
          if (!multiplies(plain) || !multiplies(square)) {
            std::fprintf(stderr, "%zu x %zu x %zu, turned %d %d, alpha %g, beta %g: %s\n", rows, columns, inner,
                         left_turned, right_turned, static_cast<double>(alpha), static_cast<double>(beta),
                         mxs_last_error());
            return false;
          }
        }
  return true;
}

bool updates(size_t n, size_t inner, bool turned, float beta) {
  const size_t stride = (turned ? n : inner) + 1;
  const std::vector<float> factor = gaussian(stride * (turned ? inner : n), 4);
  std::vector<float> wanted = gaussian(n * n, 5);
  const DeviceArray<float> there(*device, factor), target(*device, wanted);
  LinearUpdate update;
  update.n = n, update.inner = inner;
  update.factor = {factor.data(), stride, turned};
  update.target = wanted.data(), update.target_stride = n;
  update.alpha = 0.1f, update.beta = beta;
  reference_linear().update(update, nullptr);
  update.factor.data = there.data(), update.target = target.data();
  return linear->update(update, nullptr) == MXS_OK && mxs::test::same_bits(target.get(), wanted);
}

bool updates_are_the_hosts() {
  for (const bool turned : {false, true})
    for (const float beta : {0.0f, 0.9f})
      for (const size_t n : {1, 63, 65, 130})
        if (!updates(n, 77, turned, beta)) return false;
  return true;
}

bool block_counts_do_not_matter() {
  const size_t n = 200, count = 3;
  const std::vector<float> numbers = gaussian(count * n * n, 6);
  const DeviceArray<float> factors(*device, numbers);
  std::vector<float> first;
  for (const uint32_t blocks : {1u, 2u, 7u, 100u}) {
    const DeviceArray<float> target(*device, count * n * n);
    MultiplyArguments arguments;
    arguments.rows = arguments.columns = arguments.inner = n;
    arguments.left = arguments.right = {factors.data(), n, n * n, 0};
    arguments.target = target.data(), arguments.target_stride = n, arguments.target_matrix = n * n;
    arguments.count = count;
    if (device->launch("mxs_multiply", &arguments, sizeof arguments, blocks, product_threads, nullptr) != MXS_OK)
      return false;
    const std::vector<float> got = target.get();
    if (first.empty()) first = got;
    if (got.empty() || !mxs::test::same_bits(got, first)) return false;
  }
  return true;
}

// ---- decompositions ----

enum class Form { random, diagonal, equal, deficient, huge };

std::vector<float> symmetric(size_t n, size_t stride, Form form) {
  const std::vector<float> numbers = gaussian(n * n, 7);
  std::vector<float> matrix(n * stride, NAN);
  for (size_t r = 0; r < n; ++r)
    for (size_t c = 0; c < n; ++c) {
      const float random = numbers[r * n + c] + numbers[c * n + r], on = r == c ? 1.0f : 0.0f;
      matrix[r * stride + c] = form == Form::random      ? random
                               : form == Form::diagonal  ? on * numbers[r]
                               : form == Form::equal     ? on
                               : form == Form::deficient ? numbers[r] * numbers[c]
                                                         : 1e30f * random;
    }
  return matrix;
}

bool has_eigenvalues(size_t n, Form form) {
  const size_t stride = n + 3;
  std::vector<float> wanted = symmetric(n, stride, form), wanted_values(n);
  const DeviceArray<float> matrix(*device, wanted), values(*device, n);
  uint64_t bytes = 0;
  if (linear->workspace_bytes(n, &bytes) != MXS_OK) return false;
  const DeviceArray<std::byte> workspace(*device, bytes);
  const DeviceArray<int32_t> failed(*device, 1);
  std::vector<std::byte> room(reference_linear().eigh_bytes(n) + 64);
  if (reference_linear().eigh(n, wanted.data(), stride, wanted_values.data(), room.data()) != MXS_OK ||
      linear->eigh(n, matrix.data(), stride, values.data(), workspace.data(), failed.data(), nullptr) != MXS_OK)
    return false;
  return mxs::test::same_bits(matrix.get(), wanted) && mxs::test::same_bits(values.get(), wanted_values) &&
         failed.get() == std::vector<int32_t>{0} && !workspace.get().empty();
}

// Judged by itself, too: on a real GPU as on the stand-in, A Q = Q diag(values) and Q^T Q = I.
bool decomposes_truly(size_t n) {
  const std::vector<float> source = symmetric(n, n, Form::random);
  const DeviceArray<float> matrix(*device, source), values(*device, n);
  uint64_t bytes = 0;
  if (linear->workspace_bytes(n, &bytes) != MXS_OK) return false;
  const DeviceArray<std::byte> workspace(*device, bytes);
  const DeviceArray<int32_t> failed(*device, 1);
  if (linear->eigh(n, matrix.data(), n, values.data(), workspace.data(), failed.data(), nullptr) != MXS_OK)
    return false;
  const std::vector<float> q = matrix.get(), lambda = values.get();
  if (q.size() != n * n || lambda.size() != n) return false;
  double worst = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      double left = 0, unit = 0;
      for (size_t k = 0; k < n; ++k) {
        left += static_cast<double>(source[i * n + k]) * static_cast<double>(q[k * n + j]);
        unit += static_cast<double>(q[k * n + i]) * static_cast<double>(q[k * n + j]);
      }
      left -= static_cast<double>(q[i * n + j]) * static_cast<double>(lambda[j]);
      worst = std::max({worst, std::fabs(left) / static_cast<double>(n), std::fabs(unit - (i == j ? 1.0 : 0.0))});
    }
  return worst < 1e-6;
}

bool has_q(size_t n, Form form) {
  const size_t stride = n + 1;
  std::vector<float> wanted = form == Form::random ? gaussian(n * stride, 9) : symmetric(n, stride, form);
  for (size_t r = 0; r < n; ++r) wanted[r * stride + n] = NAN;
  const DeviceArray<float> matrix(*device, wanted);
  uint64_t bytes = 0;
  if (linear->workspace_bytes(n, &bytes) != MXS_OK) return false;
  const DeviceArray<std::byte> workspace(*device, bytes);
  const DeviceArray<int32_t> failed(*device, 1);
  std::vector<std::byte> room(reference_linear().qr_bytes(n) + 64);
  if (reference_linear().qr(n, wanted.data(), stride, room.data()) != MXS_OK ||
      linear->qr(n, matrix.data(), stride, workspace.data(), failed.data(), nullptr) != MXS_OK)
    return false;
  return mxs::test::same_bits(matrix.get(), wanted) && failed.get() == std::vector<int32_t>{0};
}

bool decompositions_are_the_hosts(bool eigenvalues) {
  for (const Form form : {Form::random, Form::diagonal, Form::equal, Form::deficient, Form::huge})
    for (const size_t n : {1, 2, 7, 33, 64})
      if (!(eigenvalues ? has_eigenvalues(n, form) : has_q(n, form))) {
        std::fprintf(stderr, "form %d, %zu: %s\n", static_cast<int>(form), n, mxs_last_error());
        return false;
      }
  return true;
}

bool not_finite_is_told(float bad) {
  std::vector<float> source = symmetric(9, 9, Form::random);
  source[80] = bad;
  uint64_t bytes = 0;
  if (linear->workspace_bytes(9, &bytes) != MXS_OK) return false;
  const DeviceArray<std::byte> workspace(*device, bytes);
  for (const bool eigenvalues : {false, true}) {
    const DeviceArray<float> matrix(*device, source), values(*device, 9);
    const DeviceArray<int32_t> failed(*device, 1);
    const mxs_status status =
        eigenvalues ? linear->eigh(9, matrix.data(), 9, values.data(), workspace.data(), failed.data(), nullptr)
                    : linear->qr(9, matrix.data(), 9, workspace.data(), failed.data(), nullptr);
    if (status != MXS_OK || failed.get().at(0) == 0 || !mxs::test::same_bits(matrix.get(), source)) return false;
  }
  return true;
}

bool backends_of_the_host_are_refused() {
  std::unique_ptr<DeviceLinear> none;
  return device->make_linear(&none, MXS_BACKEND_OPENBLAS) == MXS_NOT_BUILT && !none &&
         device->make_linear(&none, MXS_BACKEND_TILES) == MXS_NOT_BUILT && device->make_linear(&none, 99) != MXS_OK;
}

void products_have_the_bits_of_the_host(void **) { assert_true(products_are_the_hosts()); }
void symmetric_updates_have_the_bits_of_the_host(void **) { assert_true(updates_are_the_hosts()); }
void products_do_not_depend_on_the_count_of_blocks(void **) { assert_true(block_counts_do_not_matter()); }
void eigenvalues_have_the_bits_of_the_host(void **) { assert_true(decompositions_are_the_hosts(true)); }
void q_has_the_bits_of_the_host(void **) { assert_true(decompositions_are_the_hosts(false)); }
void eigenvectors_are_those_of_the_matrix(void **) {
  assert_true(decomposes_truly(50));
  assert_true(decomposes_truly(96));
}
void a_matrix_that_is_not_finite_is_told_of(void **) {
  assert_true(not_finite_is_told(NAN));
  assert_true(not_finite_is_told(-INFINITY));
}
void backends_that_are_none_of_the_device_are_refused(void **) { assert_true(backends_of_the_host_are_refused()); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  if (find_device(0, &device) != MXS_OK || device->make_linear(&linear, MXS_BACKEND_REFERENCE) != MXS_OK) {
    std::printf("Bail out! %s\n", mxs_last_error());
    return 1;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(products_have_the_bits_of_the_host),
      cmocka_unit_test(symmetric_updates_have_the_bits_of_the_host),
      cmocka_unit_test(products_do_not_depend_on_the_count_of_blocks),
      cmocka_unit_test(eigenvalues_have_the_bits_of_the_host),
      cmocka_unit_test(q_has_the_bits_of_the_host),
      cmocka_unit_test(eigenvectors_are_those_of_the_matrix),
      cmocka_unit_test(a_matrix_that_is_not_finite_is_told_of),
      cmocka_unit_test(backends_that_are_none_of_the_device_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
