// SPDX-License-Identifier: Apache-2.0
// Who is asked to multiply, and in which order: the pure choice, MXS_BACKEND, and what the door answers.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"
#include "matrixshard/kernels.h"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

constexpr mxs_backend reference = MXS_BACKEND_REFERENCE, onednn = MXS_BACKEND_ONEDNN, openblas = MXS_BACKEND_OPENBLAS,
                      tiles = MXS_BACKEND_TILES;

std::string order_is(int64_t rows, int64_t columns, mxs_algorithm algorithm, bool bf16,
                     const std::vector<mxs_backend> &wanted) {
  const mxs::BackendOrder order = mxs::backends_in_order({rows, columns}, algorithm, bf16);
  if (std::vector<mxs_backend>(order.begin(), order.end()) == wanted) return "";
  return words("%lld x %lld, algorithm %d, %s: %d backends, first %d", static_cast<long long>(rows),
               static_cast<long long>(columns), algorithm, bf16 ? "bf16" : "no bf16", order.count, order.list[0]);
}

std::string orders_follow_shape_algorithm_and_cpu() {
  std::string complaint;
  const auto expect_order = [&](int64_t rows, int64_t columns, mxs_algorithm algorithm, bool bf16,
                                const std::vector<mxs_backend> &wanted) {
    if (complaint.empty()) complaint = order_is(rows, columns, algorithm, bf16, wanted);
    if (complaint.empty()) complaint = order_is(columns, rows, algorithm, bf16, wanted);
  };
  for (mxs_algorithm algorithm : {MXS_ALGORITHM_AUTO, MXS_ALGORITHM_STANDARD}) {
    expect_order(4096, 4096, algorithm, true, {tiles, onednn, openblas, reference});
    expect_order(32, 100000, algorithm, true, {tiles, onednn, openblas, reference});
    expect_order(31, 100000, algorithm, true, {reference});
    expect_order(4096, 4096, algorithm, false, {openblas, reference});
    expect_order(16, 16, algorithm, false, {openblas, reference});
    expect_order(15, 4096, algorithm, false, {reference});
  }
  for (bool bf16 : {true, false}) {
    expect_order(4096, 4096, MXS_ALGORITHM_GRAM, bf16, {openblas, reference});
    expect_order(1, 1, MXS_ALGORITHM_GRAM, bf16, {openblas, reference});
  }
  return complaint;
}

// "" if it can't be made.
std::string backend_of(int64_t rows, int64_t columns, mxs_backend backend, mxs_algorithm algorithm) {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.backend = backend;
  options.algorithm = algorithm;
  mxs_orthogonalizer *made = nullptr;
  if (mxs_orthogonalizer_create(&made, rows, columns, &options) != MXS_OK) return "";
  const std::string name = mxs_orthogonalizer_backend(made);
  mxs_orthogonalizer_destroy(&made);
  return name;
}

bool begins_and_ends(const std::string &text, const char *first, const char *last) {
  return text.rfind(first, 0) == 0 && text.size() > std::strlen(last) &&
         text.compare(text.size() - std::strlen(last), std::string::npos, last) == 0;
}

std::string algorithms_are_named() {
  if (!begins_and_ends(backend_of(64, 64, reference, MXS_ALGORITHM_AUTO), "reference", " standard") ||
      !begins_and_ends(backend_of(64, 256, reference, MXS_ALGORITHM_GRAM), "reference", " gram") ||
      !begins_and_ends(backend_of(32, 4096, reference, MXS_ALGORITHM_AUTO), "reference", " standard") ||
      !begins_and_ends(backend_of(31, 92, reference, MXS_ALGORITHM_AUTO), "reference", " standard") ||
      !begins_and_ends(backend_of(93, 31, reference, MXS_ALGORITHM_AUTO), "reference", " gram") ||
      !begins_and_ends(backend_of(1, 3, reference, MXS_ALGORITHM_AUTO), "reference", " gram") ||
      !begins_and_ends(backend_of(16, 4096, reference, MXS_ALGORITHM_STANDARD), "reference", " standard"))
    return "the reference names another algorithm";
  for (mxs_backend backend : {onednn, tiles})
    if (!backend_of(64, 256, backend, MXS_ALGORITHM_GRAM).empty() || !std::strstr(mxs_last_error(), "bf16"))
      return error_of("gram in bf16");
  if (backend_of(64, 64, openblas, MXS_ALGORITHM_AUTO).empty()) return "";  // not in this build
  if (!begins_and_ends(backend_of(128, 255, openblas, MXS_ALGORITHM_AUTO), "openblas", " standard") ||
      !begins_and_ends(backend_of(256, 128, openblas, MXS_ALGORITHM_AUTO), "openblas", " gram") ||
      !begins_and_ends(backend_of(128, 256, openblas, MXS_ALGORITHM_STANDARD), "openblas", " standard") ||
      !begins_and_ends(backend_of(128, 128, openblas, MXS_ALGORITHM_GRAM), "openblas", " gram"))
    return "OpenBLAS names another algorithm";
  return "";
}

std::string the_environment_decides_where_options_do_not() {
  const mxs::Linear *linear = nullptr;
  setenv("MXS_BACKEND", "reference", 1);
  const std::string forced = backend_of(64, 64, MXS_BACKEND_AUTO, MXS_ALGORITHM_AUTO);
  if (forced != "reference standard") return "forced to the reference, but is " + forced;
  if (mxs::linear_of(MXS_BACKEND_AUTO, &linear) != MXS_OK || linear != &mxs::reference_linear())
    return "linear algebra is not the reference's";
  const mxs_status openblas_status = mxs::linear_of(openblas, &linear);
  if (openblas_status == MXS_OK && linear == &mxs::reference_linear()) return "options don't go before the environment";
  setenv("MXS_BACKEND", "tiles", 1);  // has no decompositions: linear algebra is chosen as without it
  if (mxs::linear_of(MXS_BACKEND_AUTO, &linear) != MXS_OK ||
      (linear == &mxs::reference_linear()) != (openblas_status != MXS_OK))
    return "tiles keep linear algebra from OpenBLAS";
  setenv("MXS_BACKEND", "mkl", 1);
  std::string complaint;
  if (!backend_of(64, 64, MXS_BACKEND_AUTO, MXS_ALGORITHM_AUTO).empty() || !std::strstr(mxs_last_error(), "\"mkl\""))
    complaint = error_of("mkl is taken");
  if (mxs::linear_of(MXS_BACKEND_AUTO, &linear) != MXS_ENVIRONMENT) complaint = "mkl is taken for linear algebra";
  unsetenv("MXS_BACKEND");
  return complaint;
}

std::string decompositions_by_bf16_are_refused() {
  const mxs::Linear *linear = nullptr;
  for (mxs_backend backend : {onednn, tiles})
    if (mxs::linear_of(backend, &linear) != MXS_NOT_BUILT || linear) return "bf16 has decompositions";
  return "";
}

void the_order_follows_shape_algorithm_and_cpu(void **) { assert_true(good(orders_follow_shape_algorithm_and_cpu())); }
void a_backend_tells_its_algorithm(void **) { assert_true(good(algorithms_are_named())); }
void mxs_backend_decides_where_options_do_not(void **) {
  assert_true(good(the_environment_decides_where_options_do_not()));
}
void bf16_backends_have_no_decompositions(void **) { assert_true(good(decompositions_by_bf16_are_refused())); }

}  // namespace

int main() {
  unsetenv("MXS_BACKEND");
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_order_follows_shape_algorithm_and_cpu),
      cmocka_unit_test(a_backend_tells_its_algorithm),
      cmocka_unit_test(mxs_backend_decides_where_options_do_not),
      cmocka_unit_test(bf16_backends_have_no_decompositions),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
