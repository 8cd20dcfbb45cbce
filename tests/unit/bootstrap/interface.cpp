// SPDX-License-Identifier: Apache-2.0
// The interface that MXS_INTERFACE names.
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/status.hpp"
#include "bootstrap/interface.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

void the_loopback_has_an_address(void **) {
  std::string address;
  assert_int_equal(interface_address("lo", &address), MXS_OK);
  assert_string_equal(address.c_str(), "127.0.0.1");
}

void one_that_is_not_there_is_told_with_those_that_are(void **) {
  std::string address;
  assert_int_equal(interface_address("mxs-nowhere", &address), MXS_ENVIRONMENT);
  assert_non_null(std::strstr(last_error_text(), "\"mxs-nowhere\""));
  assert_non_null(std::strstr(last_error_text(), "lo"));
}

void the_variable_counts_and_may_be_missing(void **) {
  std::string address = "before";
  unsetenv("MXS_INTERFACE");
  assert_int_equal(read_interface(&address), MXS_OK);
  assert_true(address.empty());
  setenv("MXS_INTERFACE", "lo", 1);
  assert_int_equal(read_interface(&address), MXS_OK);
  assert_string_equal(address.c_str(), "127.0.0.1");
  unsetenv("MXS_INTERFACE");
}

// Other ranks must find the listener where they look for it.
void an_address_that_leads_elsewhere_is_refused(void **) {
  assert_int_equal(check_interface_is_found("lo", "127.0.0.1"), MXS_OK);
  assert_int_equal(check_interface_is_found("lo", "localhost"), MXS_OK);
  assert_int_equal(check_interface_is_found("eth0", "192.0.2.1"), MXS_OK);  // of nobody here: a translated address
  assert_int_equal(check_interface_is_found("mxs-other", "127.0.0.1"), MXS_ENVIRONMENT);
  assert_non_null(std::strstr(last_error_text(), "127.0.0.1"));
  assert_non_null(std::strstr(last_error_text(), "set MASTER_ADDR"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_loopback_has_an_address),
      cmocka_unit_test(one_that_is_not_there_is_told_with_those_that_are),
      cmocka_unit_test(the_variable_counts_and_may_be_missing),
      cmocka_unit_test(an_address_that_leads_elsewhere_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
