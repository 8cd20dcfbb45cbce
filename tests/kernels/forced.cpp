// SPDX-License-Identifier: Apache-2.0
// MXS_KERNELS: run once with a table that every CPU has, once with one that none has.
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/kernels.hpp"
#include "matrixshard/matrixshard.h"
#include "support/cmocka_all.h"

namespace {

bool is_forced() { return std::strcmp(std::getenv("MXS_KERNELS"), "reference") == 0; }

bool obeys_or_refuses() {
  mxs_orthogonalizer *orthogonalizer = nullptr;
  const mxs_status status = mxs_orthogonalizer_create(&orthogonalizer, 4, 4, nullptr);
  mxs_orthogonalizer_destroy(&orthogonalizer);
  if (is_forced()) return status == MXS_OK && std::strcmp(mxs::kernels().name, "reference") == 0;
  return status == MXS_ENVIRONMENT && std::strstr(mxs_last_error(), "x86-64-v9") != nullptr;
}

bool passes_obey_or_refuse() {
  float number = 1;
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = MXS_F32;
  elements.count = 1;
  elements.gradient = elements.exp_avg = elements.exp_avg_sq = &number;
  elements.weights = &number;
  elements.step_number = 1;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  return mxs_adamw(&elements, &values) == (is_forced() ? MXS_OK : MXS_ENVIRONMENT);
}

void an_orthogonalizer_obeys_or_says_what_there_is(void **) { assert_true(obeys_or_refuses()); }
void a_pass_obeys_or_refuses(void **) { assert_true(passes_obey_or_refuse()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_orthogonalizer_obeys_or_says_what_there_is),
      cmocka_unit_test(a_pass_obeys_or_refuses),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
