// SPDX-License-Identifier: Apache-2.0
// The leader's word, which ranks of the failed comm's size index tables by.
#include "bootstrap/meeting.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

void lists_of_the_living_are_taken(void **) {
  assert_true(is_list_of_living({0, 1, 2, 3}, 0, 3, 4));
  assert_true(is_list_of_living({1, 3}, 1, 3, 4));
}

void lists_that_no_leader_sends_are_not(void **) {
  assert_false(is_list_of_living({}, 0, 1, 4));
  assert_false(is_list_of_living({0, 1}, 0, 2, 4));          // without this rank
  assert_false(is_list_of_living({1, 2}, 0, 2, 4));          // without its leader
  assert_false(is_list_of_living({0, 2, 1}, 0, 1, 4));       // in disorder
  assert_false(is_list_of_living({0, 1, 1}, 0, 1, 4));       // twice
  assert_false(is_list_of_living({0, 1, 4}, 0, 1, 4));       // of a larger comm
  assert_false(is_list_of_living({-1, 0, 1}, -1, 1, 4));     // no ranks
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lists_of_the_living_are_taken),
      cmocka_unit_test(lists_that_no_leader_sends_are_not),
  };
  return cmocka_run_group_tests_name("bootstrap meeting", tests, nullptr, nullptr);
}
