// SPDX-License-Identifier: Apache-2.0
// Which libraries an optimizer loads. The cases follow each other in one process, from which none is ever unloaded.
#include <link.h>

#include <cstring>
#include <string>

#include "matrixshard/matrixshard.h"
#include "support/complaints.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

bool openblas_is_loaded() {
  const auto look = [](dl_phdr_info *object, size_t, void *) {
    return object->dlpi_name && std::strstr(object->dlpi_name, "openblas") ? 1 : 0;
  };
  return dl_iterate_phdr(look, nullptr) != 0;
}

// Makes an optimizer for two matrices under the rule; what its products are made by.
std::string make(mxs_comm *comm, mxs_rule rule, std::string *backend) {
  Model model;
  model.add("up", 0, {48, 32}).rule = rule;
  model.add("down", 0, {32, 48}).rule = rule;
  model.finish();
  Units units;
  std::string complaint = units.make(comm, model);
  if (!complaint.empty()) return complaint;
  mxs_optimizer *optimizer = nullptr;
  complaint = want(MXS_OK, mxs_optimizer_create(&optimizer, units.units.data(), units.units.size(), nullptr), "create");
  mxs_kernel_info info = MXS_KERNEL_INFO_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_optimizer_kernel(optimizer, 0, &info), "kernel");
  if (complaint.empty()) *backend = info.backend;
  mxs_optimizer_destroy(&optimizer);
  return complaint;
}

void adamw_alone_loads_no_openblas(void **) {
  assert_false(openblas_is_loaded());
  std::string backend;
  assert_true(good(run_world(1, [&](int, mxs_comm *comm) { return make(comm, MXS_RULE_ADAMW, &backend); })));
  assert_false(openblas_is_loaded());
}

// A build or a machine without OpenBLAS decomposes by the reference.
void shampoo_loads_what_it_names(void **) {
  std::string backend;
  assert_true(good(run_world(1, [&](int, mxs_comm *comm) { return make(comm, MXS_RULE_SHAMPOO, &backend); })));
  assert_int_equal(openblas_is_loaded(), backend.find("reference") == std::string::npos);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(adamw_alone_loads_no_openblas),
      cmocka_unit_test(shampoo_loads_what_it_names),
  };
  return cmocka_run_group_tests_name("optimizer libraries", tests, nullptr, nullptr);
}
