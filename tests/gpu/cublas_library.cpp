// SPDX-License-Identifier: Apache-2.0
// cublasLt and cuSOLVER have the functions that the tables name, where they are installed: no GPU is asked. And
// MXS_CUBLAS=none keeps them out.
//
//   cublas_library found|none
#include <cstdio>
#include <cstring>
#include <string>

#include "cuda/cublas_library.hpp"
#include "matrixshard/status.h"
#include "support/complaints.hpp"

#include "support/cmocka_all.h"

namespace {

// Missing altogether is no fault; a library without a function is.
bool missing(mxs_status status) {
  return status != MXS_OK && std::string(mxs_last_error()).find("can't be loaded") != std::string::npos;
}

bool found(mxs_status status) {
  if (status != MXS_OK) print_error("%s\n", mxs_last_error());
  return status == MXS_OK;
}

void cublaslt_has_all_functions(void **) {
  const mxs::CublasLtLibrary *library = nullptr;
  const mxs_status status = mxs::load_cublaslt(&library);
  if (missing(status)) return mxs::test::not_run(mxs_last_error());
  assert_true(found(status));
  assert_non_null(library->matmul);
  assert_int_equal(library->name.compare(0, 9, "cublaslt "), 0);
}

void cusolver_has_all_functions(void **) {
  const mxs::CusolverLibrary *library = nullptr;
  const mxs_status status = mxs::load_cusolver(&library);
  if (missing(status)) return mxs::test::not_run(mxs_last_error());
  assert_true(found(status));
  assert_non_null(library->syevd);
  assert_int_equal(library->name.compare(0, 9, "cusolver "), 0);
}

void none_keeps_them_out(void **) {
  const mxs::CublasLtLibrary *multiplies = nullptr;
  const mxs::CusolverLibrary *decomposes = nullptr;
  assert_int_equal(mxs::load_cublaslt(&multiplies), MXS_NOT_BUILT);
  assert_int_equal(mxs::load_cusolver(&decomposes), MXS_NOT_BUILT);
  assert_true(std::string(mxs_last_error()).find("MXS_CUBLAS") != std::string::npos);
}

}  // namespace

int main(int argument_count, char **arguments) {
  if (argument_count != 2) return 2;
  const CMUnitTest wanted[] = {
      cmocka_unit_test(cublaslt_has_all_functions),
      cmocka_unit_test(cusolver_has_all_functions),
  };
  const CMUnitTest forbidden[] = {cmocka_unit_test(none_keeps_them_out)};
  return std::strcmp(arguments[1], "none") == 0 ? cmocka_run_group_tests(forbidden, nullptr, nullptr)
                                                : cmocka_run_group_tests(wanted, nullptr, nullptr);
}
