// SPDX-License-Identifier: Apache-2.0
// A CPU on which oneDNN multiplies no bf16, as DNNL_MAX_CPU_ISA makes one of any: who asked for oneDNN is told so, and
// whoever left the choice to the library is served.
#include <cstring>

#include "matrixshard/matrixshard.h"
#include "support/cmocka_all.h"

namespace {

mxs_status create_by(mxs_backend backend) {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.backend = backend;
  mxs_orthogonalizer *made = nullptr;
  const mxs_status status = mxs_orthogonalizer_create(&made, 64, 96, &options);
  mxs_orthogonalizer_destroy(&made);
  return status;
}

void onednn_is_refused_in_a_sentence(void **) {
  assert_int_equal(create_by(MXS_BACKEND_ONEDNN), MXS_NOT_BUILT);
  assert_non_null(std::strstr(mxs_last_error(), "oneDNN"));
  assert_non_null(std::strstr(mxs_last_error(), "_AUTO"));
}

void the_library_chooses_another(void **) { assert_int_equal(create_by(MXS_BACKEND_AUTO), MXS_OK); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(onednn_is_refused_in_a_sentence),
      cmocka_unit_test(the_library_chooses_another),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
