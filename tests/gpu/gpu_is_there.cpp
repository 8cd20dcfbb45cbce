// SPDX-License-Identifier: Apache-2.0
// The driver that gpu_is_there() found answers this program, too.
#include <dlfcn.h>

#include "gpu/gpu.hpp"
#include "support/cmocka_all.h"

static void the_driver_tells_its_version(void **) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  assert_non_null(driver);
  const auto version = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDriverGetVersion"));
  assert_non_null(version);
  int number = 0;
  assert_int_equal(version(&number), 0);
  assert_true(number >= 12000);
}

int main(int, char **arguments) {
  if (!mxs::test::gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {cmocka_unit_test(the_driver_tells_its_version)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
