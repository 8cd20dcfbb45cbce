// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz on the device: our own products give the bits of the host's reference; whatever AUTO takes is near the
// oracle.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/team.hpp"
#include "device/linear.hpp"
#include "gpu/device_arrays.hpp"
#include "gpu/gpu.hpp"
#include "kernels/kernels.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/recipe.hpp"
#include "support/newton_schulz.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs;
using mxs::test::DeviceArray;

Device *device = nullptr;

struct Wanted {
  size_t rows, columns, count;
  mxs_algorithm algorithm = MXS_ALGORITHM_AUTO;
  mxs_backend backend = MXS_BACKEND_REFERENCE;
};

std::vector<float> sources_of(const Wanted &wanted) {
  std::vector<float> all;
  for (size_t i = 0; i < wanted.count; ++i) {
    const Matrix matrix = scaled(gaussian(wanted.rows, wanted.columns, 20 + static_cast<unsigned>(i)),
                                 i % 2 ? 1e-20f : 1e15f);
    all.insert(all.end(), matrix.values.begin(), matrix.values.end());
  }
  if (wanted.count > 2) std::fill_n(&all[wanted.rows * wanted.columns], wanted.rows * wanted.columns, 0.0f);
  return all;
}

bool sum_squares(const Wanted &wanted, const std::vector<float> &sources, std::vector<double> *squares) {
  squares->resize(wanted.count);
  for (size_t i = 0; i < wanted.count; ++i)
    if (find_squares({&sources[i * wanted.rows * wanted.columns], wanted.columns}, wanted.rows, wanted.columns,
                     &(*squares)[i]) != MXS_OK)
      return false;
  return true;
}

// In place on the device, room for one matrix more than there is. Empty: a failure.
std::vector<float> on_device(const Wanted &wanted, const NewtonSchulzRecipe &recipe, const std::vector<float> &sources,
                             const std::vector<double> &squares, int32_t skip = 0) {
  std::unique_ptr<DeviceOrthogonalizer> made;
  if (make_device_orthogonalizer(&made, *device, static_cast<int64_t>(wanted.rows),
                                 static_cast<int64_t>(wanted.columns), wanted.count + 1, recipe,
                                 {wanted.backend, wanted.algorithm}) != MXS_OK)
    return {};
  const DeviceArray<float> matrices(*device, sources);
  const DeviceArray<double> squares_there(*device, squares);
  const DeviceArray<int32_t> skip_there(*device, std::vector<int32_t>{skip});
  const DeviceArray<std::byte> workspace(*device, made->workspace_bytes());
  if (made->enqueue(matrices.data(), wanted.count, squares_there.data(), skip_there.data(), workspace.data(),
                    nullptr) != MXS_OK ||
      workspace.get().empty())
    return {};
  return matrices.get();
}

std::vector<float> on_host(const Wanted &wanted, const NewtonSchulzRecipe &recipe, std::vector<float> matrices,
                           const std::vector<double> &squares) {
  std::unique_ptr<Team> team;
  std::unique_ptr<Orthogonalizer> made;
  if (Team::create(&team, 1) != MXS_OK ||
      make_orthogonalizer(&made, static_cast<int64_t>(wanted.rows), static_cast<int64_t>(wanted.columns), recipe,
                          {MXS_BACKEND_REFERENCE, wanted.algorithm}, team.get()) != MXS_OK)
    return {};
  std::vector<std::byte> workspace(made->workspace_bytes() + 64);
  const size_t address = reinterpret_cast<size_t>(workspace.data());
  made->bind(workspace.data() + (64 - address % 64) % 64);
  std::vector<MatrixSource> sources;
  std::vector<MatrixTarget> targets;
  for (size_t i = 0; i < wanted.count; ++i) {
    float *const matrix = &matrices[i * wanted.rows * wanted.columns];
    sources.push_back({matrix, wanted.columns});
    targets.push_back({matrix, wanted.columns});
  }
  if (made->run(sources.data(), targets.data(), wanted.count, squares.data()) != MXS_OK) return {};
  return matrices;
}

bool recipe_of_table(const TestedTable &table, NewtonSchulzRecipe *recipe) {
  mxs_newton_schulz options = table.options();
  return make_recipe(options, recipe) == MXS_OK;
}

bool is_the_hosts(const Wanted &wanted, const TestedTable &table) {
  NewtonSchulzRecipe recipe;
  std::vector<double> squares;
  const std::vector<float> sources = sources_of(wanted);
  if (!recipe_of_table(table, &recipe) || !sum_squares(wanted, sources, &squares)) return false;
  const std::vector<float> got = on_device(wanted, recipe, sources, squares);
  if (!got.empty() && mxs::test::same_bits(got, on_host(wanted, recipe, sources, squares))) return true;
  std::fprintf(stderr, "%s, %zu x %zu: %s\n", table.name, wanted.rows, wanted.columns, mxs_last_error());
  return false;
}

bool bits_are_the_hosts() {
  const Wanted shapes[] = {{1, 1, 1}, {1, 9, 2}, {64, 64, 1}, {33, 70, 3}, {70, 33, 3}, {16, 65, 3}, {100, 7, 4}};
  for (Wanted wanted : shapes)
    for (const mxs_algorithm algorithm : {MXS_ALGORITHM_AUTO, MXS_ALGORITHM_STANDARD, MXS_ALGORITHM_GRAM}) {
      wanted.algorithm = algorithm;
      for (const TestedTable &table : tested_tables())
        if (!is_the_hosts(wanted, table)) return false;
    }
  return true;
}

// Relative to the oracle's norm, as the tests of host backends judge Gaussians.
bool is_near_the_oracle(size_t rows, size_t columns, mxs_backend backend, mxs_algorithm algorithm, double bound) {
  const Matrix matrix = gaussian(rows, columns, 5);
  const Oracle oracle(matrix);
  for (const TestedTable &table : tested_tables()) {
    const Wanted wanted{rows, columns, 1, algorithm, backend};
    NewtonSchulzRecipe recipe;
    std::vector<double> squares;
    if (!recipe_of_table(table, &recipe) || !sum_squares(wanted, matrix.values, &squares)) return false;
    const std::vector<float> got = on_device(wanted, recipe, matrix.values, squares);
    const std::vector<double> exact = oracle.map(table);
    const double off = got.empty() ? INFINITY : distance(got, exact) / norm_of(exact);
    const double allowed = bound > 0 ? bound : table.gaussian_bf16;
    if (off <= allowed) continue;
    std::fprintf(stderr, "%s, %zu x %zu: off by %.3g, %.3g is allowed: %s\n", table.name, rows, columns, off, allowed,
                 mxs_last_error());
    return false;
  }
  return true;
}

bool a_matrix_that_is_not_finite_harms_no_other() {
  const Wanted wanted{20, 30, 3};
  NewtonSchulzRecipe recipe;
  std::vector<double> squares;
  std::vector<float> sources = sources_of(wanted);
  if (!recipe_of_table(tested_tables()[1], &recipe) || !sum_squares(wanted, sources, &squares)) return false;
  const std::vector<float> clean = on_device(wanted, recipe, sources, squares);
  sources[0] = NAN, squares[0] = NAN;
  const std::vector<float> got = on_device(wanted, recipe, sources, squares);
  const auto is_zero = [](float value) { return value == 0.0f; };
  return clean.size() == 1800 && got.size() == 1800 && std::all_of(&got[0], &got[600], is_zero) &&
         std::memcmp(&clean[600], &got[600], 1200 * sizeof(float)) == 0;
}

bool a_skipped_step_changes_nothing() {
  const Wanted wanted{20, 30, 2};
  NewtonSchulzRecipe recipe;
  const std::vector<float> sources = sources_of(wanted);
  return recipe_of_table(tested_tables()[1], &recipe) &&
         mxs::test::same_bits(on_device(wanted, recipe, sources, {1.0, 1.0}, 1), sources);
}

bool refuses() {
  NewtonSchulzRecipe recipe;
  std::unique_ptr<DeviceOrthogonalizer> made;
  const auto status = [&](int64_t rows, int64_t columns, uint64_t count, mxs_backend backend) {
    return make_device_orthogonalizer(&made, *device, rows, columns, count, recipe, {backend, MXS_ALGORITHM_AUTO});
  };
  return recipe_of_table(tested_tables()[1], &recipe) &&
         status(0, 4, 1, MXS_BACKEND_REFERENCE) == MXS_INVALID_ARGUMENT &&
         status(4, -1, 1, MXS_BACKEND_REFERENCE) == MXS_INVALID_ARGUMENT &&
         status(4, 4, 0, MXS_BACKEND_REFERENCE) == MXS_INVALID_ARGUMENT &&
         status(4, 4, 1, MXS_BACKEND_TILES) == MXS_NOT_BUILT && status(4, 4, 1, MXS_BACKEND_ONEDNN) == MXS_NOT_BUILT &&
         !made;
}

void our_own_products_give_the_bits_of_the_host(void **) { assert_true(bits_are_the_hosts()); }
void our_own_products_are_near_the_oracle(void **) {
  assert_true(is_near_the_oracle(96, 160, MXS_BACKEND_REFERENCE, MXS_ALGORITHM_STANDARD, 2e-5));
  assert_true(is_near_the_oracle(160, 64, MXS_BACKEND_REFERENCE, MXS_ALGORITHM_GRAM, 2e-5));
}
void what_auto_takes_is_near_the_oracle(void **) {
  assert_true(is_near_the_oracle(128, 192, MXS_BACKEND_AUTO, MXS_ALGORITHM_AUTO, 0));
}
void a_damaged_matrix_harms_no_other(void **) { assert_true(a_matrix_that_is_not_finite_harms_no_other()); }
void a_step_that_is_skipped_changes_nothing(void **) { assert_true(a_skipped_step_changes_nothing()); }
void what_makes_no_sense_is_refused(void **) { assert_true(refuses()); }

}  // namespace

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  if (find_device(0, &device) != MXS_OK) {
    std::printf("Bail out! %s\n", mxs_last_error());
    return 1;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(our_own_products_give_the_bits_of_the_host),
      cmocka_unit_test(our_own_products_are_near_the_oracle),
      cmocka_unit_test(what_auto_takes_is_near_the_oracle),
      cmocka_unit_test(a_damaged_matrix_harms_no_other),
      cmocka_unit_test(a_step_that_is_skipped_changes_nothing),
      cmocka_unit_test(what_makes_no_sense_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
