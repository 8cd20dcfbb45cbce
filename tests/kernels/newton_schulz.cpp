// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz from inside, a backend at a time: workspace beside its prediction, batches whose squares nobody has
// formed, large matrices by bf16 beside fp32. And of the reference alone: products of all tables, calls at once, bad
// arguments.
//
// What it computes is held to the map of singular values by newton_schulz_oracle.cpp and newton_schulz_random.cpp, and
// to itself by newton_schulz_identities.cpp.
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "kernels/recipe.hpp"
#include "plan/memory.hpp"
#include "support/newton_schulz.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

namespace {

TestedBackend backend;

// DEFAULT's table.
const TestedTable &you() { return tested_tables()[1]; }

// One product by a table, its target in poison: what the target doesn't hold stays poison.
std::vector<float> product_by(const mxs::Kernels &table, mxs::Product product, size_t stride) {
  std::vector<float> target(product.rows * stride, 42.0f);
  product.target = target.data(), product.target_stride = stride;
  table.multiply(product);
  for (size_t r = 0; product.lower && r < product.rows; ++r)
    std::fill_n(&target[r * stride + r + 1], product.columns - r - 1, 0.0f);  // may hold anything
  return target;
}

bool tables_agree_on(size_t rows, size_t columns, size_t inner, bool right_turned, bool lower) {
  const Matrix left = gaussian(rows, inner + 3, 1);
  const Matrix right = right_turned ? gaussian(columns, inner + 2, 2) : gaussian(inner, columns + 2, 2);
  mxs::Product product;
  product.left = left.values.data(), product.right = right.values.data();
  product.rows = rows, product.columns = columns, product.inner = inner;
  product.left_stride = left.columns, product.right_stride = right.columns;
  product.right_turned = right_turned, product.lower = lower;
  const std::vector<float> wanted = product_by(mxs::reference_kernels(), product, columns + 3);
  int count = 0;
  const mxs::Kernels *const *tables = mxs::all_kernels(&count);
  for (int t = 1; t < count; ++t)
    if (product_by(*tables[t], product, columns + 3) != wanted) {
      print_error("%s: %zu x %zu x %zu%s%s\n", tables[t]->name, rows, columns, inner, right_turned ? ", turned" : "",
                  lower ? ", lower" : "");
      return false;
    }
  return true;
}

// Every height and width of a tile, tiles that are cut short, and several blocks of what is summed.
bool tables_agree_on_products() {
  for (size_t inner : mxs::test::thinned<size_t>({1, 5, 255, 256, 600}))
    for (bool right_turned : {false, true}) {
      for (size_t rows : mxs::test::thinned<size_t>({1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 24, 31, 33, 70})) {
        if (!tables_agree_on(rows, rows, inner, right_turned, true)) return false;
        for (size_t columns : {size_t{1}, size_t{8}, size_t{15}, size_t{16}, size_t{17}, size_t{32}, rows + 37})
          if (!tables_agree_on(rows, columns, inner, right_turned, false)) return false;
      }
    }
  return true;
}

// Two threads with one orthogonalizer: each call is made alone, or refused.
bool calls_at_once_are_refused() {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.thread_count = 2;
  mxs_orthogonalizer *made = nullptr;
  if (mxs_orthogonalizer_create(&made, 48, 48, &options) != MXS_OK) return false;
  const Matrix source = gaussian(48, 48, 5);
  std::vector<float> wanted(source.values.size());
  std::atomic<int> good{0}, others{0};
  bool right = mxs_orthogonalize(made, source.values.data(), wanted.data()) == MXS_OK;
  const auto call = [&] {
    std::vector<float> target(wanted.size());
    for (int turn = 0; turn < 100; ++turn) {
      const mxs_status status = mxs_orthogonalize(made, source.values.data(), target.data());
      if (status == MXS_OK && target == wanted) ++good;
      if (status != MXS_HELD && !(status == MXS_OK && target == wanted)) ++others;
    }
  };
  std::thread one(call), two(call);
  one.join();
  two.join();
  mxs_orthogonalizer_destroy(&made);
  return right && good > 0 && others == 0;
}

bool bad_arguments_are_refused() {
  mxs_orthogonalizer *made = nullptr;
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  const auto refused = [&](int64_t rows, int64_t columns) {
    return mxs_orthogonalizer_create(&made, rows, columns, &options) == MXS_INVALID_ARGUMENT && made == nullptr;
  };
  if (!refused(0, 1) || !refused(1, 0) || !refused(-1, 5) || !refused(INT64_MAX, INT64_MAX) ||
      !refused(int64_t{1} << 21, int64_t{1} << 20))
    return false;
  if (mxs_orthogonalizer_create(nullptr, 4, 4, &options) != MXS_INVALID_ARGUMENT) return false;
  for (const mxs_preset preset : {-1, MXS_PRESET_SOAP, 99}) {  // numbers that are none, and another rule's
    options.preset = preset;
    if (!refused(4, 4)) return false;
  }
  options = MXS_NEWTON_SCHULZ_INIT;
  options.backend = -1;
  if (!refused(4, 4)) return false;
  options = MXS_NEWTON_SCHULZ_INIT;
  options.thread_count = -1;
  if (!refused(4, 4)) return false;
  options = MXS_NEWTON_SCHULZ_INIT;
  options.size = 4;
  if (!refused(4, 4)) return false;
  float value = 1;
  if (mxs_orthogonalize(nullptr, &value, &value) != MXS_INVALID_ARGUMENT) return false;
  mxs_orthogonalizer_destroy(nullptr);
  mxs_orthogonalizer_destroy(&made);
  if (mxs_orthogonalizer_create(&made, 1, 1, nullptr) != MXS_OK) return false;
  const bool good = mxs_orthogonalize(made, nullptr, &value) == MXS_INVALID_ARGUMENT &&
                    mxs_orthogonalize(made, &value, nullptr) == MXS_INVALID_ARGUMENT &&
                    mxs_orthogonalize_batch(made, &value, nullptr, &value, nullptr, (1 << 24) + 1) ==
                        MXS_INVALID_ARGUMENT &&
                    mxs_orthogonalize_batch(made, &value, nullptr, &value, nullptr, -1) == MXS_INVALID_ARGUMENT &&
                    mxs_orthogonalizer_workspace_bytes(made) > 0 &&
                    std::strcmp(mxs_orthogonalizer_backend(made), "reference standard") == 0;
  mxs_orthogonalizer_destroy(&made);
  return good && made == nullptr && mxs_orthogonalizer_workspace_bytes(nullptr) == 0 &&
         *mxs_orthogonalizer_backend(nullptr) == '\0';
}

// What mxs_plan_memory predicts is enough, also for long matrices, whose scratch outweighs their squares.
bool predictions_are_enough() {
  const int64_t shapes[][2] = {{1, 1},      {1, 4096},  {2, 6},     {16, 4096}, {31, 93},      {31, 20000}, {20000, 9},
                               {32, 32},    {32, 4096}, {64, 4096}, {4096, 64},   {100, 3000},
                               {128, 4096}, {512, 512}, {700, 740}, {1024, 1100}, {2048, 2048}};
  for (const auto &[rows, columns] : shapes)
    for (const int thread_count : {1, 2, 3}) {
      if (backend.gram() && std::max(rows, columns) < 2 * std::min(rows, columns)) continue;
      std::unique_ptr<mxs::Orthogonalizer> made;
      std::unique_ptr<mxs::Team> team;
      if (mxs::Team::create(&team, thread_count) != MXS_OK ||
          mxs::make_orthogonalizer(&made, rows, columns, mxs::recipe_of(MXS_PRESET_DEFAULT),
                                   {backend.backend, backend.algorithm}, team.get()) != MXS_OK)
        return false;
      const uint64_t predicted = mxs::newton_schulz_workspace_bytes(rows, columns, thread_count);
      if (made->workspace_bytes() <= predicted) continue;
      print_error("%lld x %lld, %d threads, %s: %llu bytes, but %llu are predicted\n", static_cast<long long>(rows),
                  static_cast<long long>(columns), thread_count, made->backend(),
                  static_cast<unsigned long long>(made->workspace_bytes()),
                  static_cast<unsigned long long>(predicted));
      return false;
    }
  return true;
}

// Small matrices, one a thread, and larger ones with all threads; a matrix that is not finite leaves all targets alone.
bool batches_equal_single_matrices() {
  using Shape = std::pair<size_t, size_t>;
  for (const auto &[rows, columns] :
       mxs::test::thinned<Shape>({{40, 90}, {90, 40}, {31, 31}, {31, 310}, {270, 3}, {1030, 600}})) {
    const size_t count = rows == 1030 ? 2 : 5;
    std::vector<Matrix> matrices;
    std::vector<std::vector<float>> targets(count, std::vector<float>(rows * columns, 42.0f));
    std::vector<mxs::MatrixSource> sources;
    std::vector<mxs::MatrixTarget> places;
    for (size_t i = 0; i < count; ++i) matrices.push_back(gaussian(rows, columns, static_cast<unsigned>(20 + i)));
    for (size_t i = 0; i < count; ++i) {
      sources.push_back({matrices[i].values.data(), columns});
      places.push_back({targets[i].data(), columns});
    }
    std::unique_ptr<mxs::Team> team;
    std::unique_ptr<mxs::Orthogonalizer> made;
    if (mxs::Team::create(&team, 3) != MXS_OK ||
        mxs::make_orthogonalizer(&made, static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                 mxs::recipe_of(MXS_PRESET_DEFAULT), {backend.backend, backend.algorithm},
                                 team.get()) != MXS_OK)
      return false;
    std::vector<std::byte> memory(made->workspace_bytes() + 64);
    made->bind(memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64);
    const float last = matrices[count - 1].values.back();
    matrices[count - 1].values.back() = NAN;
    if (made->run(sources.data(), places.data(), count, nullptr) != MXS_INVALID_ARGUMENT) return false;
    for (const std::vector<float> &target : targets)
      if (target != std::vector<float>(target.size(), 42.0f)) return false;
    matrices[count - 1].values.back() = last;
    if (made->run(sources.data(), places.data(), count, nullptr) != MXS_OK) return false;
    for (size_t i = 0; i < count; ++i)
      if (targets[i] != orthogonalized(matrices[i], you(), backend)) return false;
  }
  return true;
}

// Where oneDNN cuts A^2 into panels, too large for the oracle: beside OpenBLAS or the reference in fp32. At 1,088 rows
// its own threads would change bits.
bool large_matrices_agree_with_fp32() {
  const Matrix matrix = gaussian(1088, 1060, 12);
  std::vector<float> wanted = orthogonalized(matrix, you(), tested_backend("openblas"));
  if (wanted.empty()) wanted = orthogonalized(matrix, you(), tested_backend("reference"));
  const std::vector<float> got = orthogonalized(matrix, you(), backend);
  return got.size() == wanted.size() && distance(got, wanted) <= 1e-2 * norm_of(wanted) &&
         orthogonalized(matrix, you(), backend, 2) == got &&
         orthogonalized(matrix, you(), backend, 3) == got;
}

void no_more_workspace_than_predicted_is_needed(void **) { assert_true(predictions_are_enough()); }
void batches_equal_single_calls(void **) { assert_true(batches_equal_single_matrices()); }
void a_large_matrix_agrees_with_fp32(void **) { assert_true(large_matrices_agree_with_fp32()); }
void every_table_multiplies_to_the_same_bits(void **) { assert_true(tables_agree_on_products()); }
void calls_of_one_orthogonalizer_are_made_one_at_a_time(void **) { assert_true(calls_at_once_are_refused()); }
void bad_arguments_change_nothing(void **) { assert_true(bad_arguments_are_refused()); }

}  // namespace

// A program for each backend, so that one that isn't here shows as skipped.
int main(int argument_count, char **arguments) {
  const std::string name = argument_count > 1 ? arguments[1] : "reference";
  const CMUnitTest reference_tests[] = {
      cmocka_unit_test(no_more_workspace_than_predicted_is_needed),
      cmocka_unit_test(batches_equal_single_calls),
      cmocka_unit_test(every_table_multiplies_to_the_same_bits),
      cmocka_unit_test(calls_of_one_orthogonalizer_are_made_one_at_a_time),
      cmocka_unit_test(bad_arguments_change_nothing),
  };
  const CMUnitTest fp32_tests[] = {
      cmocka_unit_test(no_more_workspace_than_predicted_is_needed),
      cmocka_unit_test(batches_equal_single_calls),
  };
  const CMUnitTest bf16_tests[] = {
      cmocka_unit_test(no_more_workspace_than_predicted_is_needed),
      cmocka_unit_test(batches_equal_single_calls),
      cmocka_unit_test(a_large_matrix_agrees_with_fp32),
  };
  backend = tested_backend(name);
  if (!is_here(backend)) {
    printf("1..0 # SKIP %s\n", mxs_last_error());
    return 0;
  }
  if (name == "reference") return cmocka_run_group_tests(reference_tests, nullptr, nullptr);
  if (backend.backend == MXS_BACKEND_ONEDNN || backend.backend == MXS_BACKEND_TILES)
    return cmocka_run_group_tests(bf16_tests, nullptr, nullptr);
  return cmocka_run_group_tests(fp32_tests, nullptr, nullptr);
}
