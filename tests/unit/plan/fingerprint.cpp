// SPDX-License-Identifier: Apache-2.0
// Equal input, equal plan; any field that matters, another fingerprint; and the hash that names the first difference.
#include <functional>

#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

uint64_t fingerprint_of(const Model &model, const Topology &topology) {
  Plan plan;
  if (make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, &plan) == MXS_OK)
    return plan.fingerprint;
  print_error("%s\n", last_error_text());
  return 0;
}

bool equal_input_gives_equal_plans() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8, 64})
    for (unsigned seed = 0; seed < 20; ++seed) {
      const uint64_t first = fingerprint_of(random_model(seed, rank_count), world(rank_count));
      for (int repeat = 0; repeat < 3; ++repeat)
        if (first == 0 || fingerprint_of(random_model(seed, rank_count), world(rank_count)) != first) return false;
    }
  return true;
}

Model plain() {
  Model model;
  model.add("a", {64, 64});
  model.add("b", {100}, 1);
  model.add_blocks("c", {32, 32}, 64, 1);
  model.add("d", {64, 64}, 1);
  model.options.unit_count = 3;
  return model;
}

bool changes(const std::function<void(Model &)> &change, const char *what) {
  Model model = plain();
  const uint64_t before = fingerprint_of(model, world(4));
  change(model);
  const uint64_t after = fingerprint_of(model, world(4));
  if (before && after && before != after) return true;
  print_error("%s makes no difference\n", what);
  return false;
}

bool every_field_counts() {
  return changes([](Model &m) { m.tensors[0].name = "z"; }, "name") &&
         changes([](Model &m) { m.tensors[0].dtype = MXS_BF16; }, "dtype") &&
         changes([](Model &m) { m.tensors[0].dtype = m.tensors[0].master_dtype = MXS_BF16; }, "master") &&
         changes([](Model &m) { m.tensors[0].gradient_dtype = MXS_BF16; }, "gradient_dtype") &&
         changes([](Model &m) { m.tensors[0].shape[1] = 65; }, "shape") &&
         changes([](Model &m) { m.tensors[1].dimension_count = 2, m.tensors[1].shape[1] = 1; }, "dimension_count") &&
         changes([](Model &m) { m.tensors[0].unit = 2; }, "unit") &&
         changes([](Model &m) { m.tensors[0].rule = MXS_RULE_SHAMPOO; }, "rule") &&
         changes([](Model &m) { m.tensors[0].group = 1; }, "group") &&
         changes([](Model &m) { m.tensors[1].role = MXS_ROLE_FLAT; }, "role") &&
         changes([](Model &m) { m.tensors[0].fixed_owner = MXS_FIXED_OWNER(3); }, "fixed_owner") &&
         changes([](Model &m) { m.tensors[2].block_rows = nullptr, m.tensors[2].block_count = 0; }, "block_rows") &&
         changes([](Model &m) { m.tensors[3].tied_to = "c"; }, "tied_to") &&
         changes([](Model &m) { m.cut_columns(&m.tensors[0], {32, 32}); }, "block_columns") &&
         changes([](Model &m) { m.tensors[0].transposed = 1; }, "transposed") &&
         changes([](Model &m) { m.tensors[0].whole_rows = 128; }, "whole_rows") &&
         changes([](Model &m) { m.tensors[0].whole_columns = 128; }, "whole_columns") &&
         changes([](Model &m) { m.tensors.pop_back(); }, "a tensor less") &&
         changes([](Model &m) { std::swap(m.tensors[0], m.tensors[3]); }, "order") &&
         changes([](Model &m) { m.options.unit_count = 4; }, "unit_count") &&
         changes([](Model &m) { m.options.alignment = 64; }, "alignment") &&
         changes([](Model &m) { m.options.flat_bytes = 5; }, "flat_bytes") &&
         changes([](Model &m) { m.options.rank_bytes_max = uint64_t{1} << 40; }, "rank_bytes_max");
}

bool the_topology_counts() {
  const uint64_t one_node = fingerprint_of(plain(), topology_from_nodes({0, 0, 0, 0}));
  return one_node != fingerprint_of(plain(), topology_from_nodes({0, 0, 1, 1})) &&
         one_node != fingerprint_of(plain(), topology_from_nodes({0, 1, 0, 1})) &&
         one_node != fingerprint_of(plain(), topology_from_nodes({0, 0, 0})) &&
         one_node == fingerprint_of(plain(), topology_from_nodes({9, 9, 9, 9}));
}

bool defaults_spelt_out_are_equal() {
  Model spelt = plain();
  spelt.tensors[0].dtype = spelt.tensors[0].gradient_dtype = spelt.tensors[0].master_dtype = MXS_F32;
  spelt.tensors[0].rule = MXS_RULE_MUON;
  spelt.options.alignment = 4096;
  spelt.options.flat_bytes = 65536;
  return fingerprint_of(spelt, world(4)) == fingerprint_of(plain(), world(4));
}

bool the_hash_names_the_tensor() {
  Model other = plain();
  other.tensors[2].group = 9;
  Plan mine, theirs;
  if (make(plain(), 4, &mine) != MXS_OK || make(other, 4, &theirs) != MXS_OK) return false;
  for (size_t index = 0; index < 4; ++index)
    if ((mine.tensors[index].hash == theirs.tensors[index].hash) != (index != 2)) return false;
  return true;
}

void the_same_input_gives_the_same_plan_each_time(void **) { assert_true(equal_input_gives_equal_plans()); }
void every_field_changes_the_fingerprint(void **) { assert_true(every_field_counts()); }
void who_shares_a_node_changes_the_fingerprint(void **) { assert_true(the_topology_counts()); }
void defaults_and_their_values_are_the_same_plan(void **) { assert_true(defaults_spelt_out_are_equal()); }
void the_hash_of_a_tensor_names_the_one_that_differs(void **) { assert_true(the_hash_names_the_tensor()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_same_input_gives_the_same_plan_each_time),
      cmocka_unit_test(every_field_changes_the_fingerprint),
      cmocka_unit_test(who_shares_a_node_changes_the_fingerprint),
      cmocka_unit_test(defaults_and_their_values_are_the_same_plan),
      cmocka_unit_test(the_hash_of_a_tensor_names_the_one_that_differs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
