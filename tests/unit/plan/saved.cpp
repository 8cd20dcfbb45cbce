// SPDX-License-Identifier: Apache-2.0
// Saved plans: the same plan comes back, and no text, however spoilt, becomes another plan or harms the reader.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "api/values.hpp"
#include "matrixshard/plan.h"
#include "models.hpp"
#include "plan/saved.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_status load_text(const std::string &text, Plan *plan) {
  SavedPlan saved;
  const mxs_status status = saved_plan_from_json(text, &saved);
  return status == MXS_OK ? restore_plan(saved, plan) : status;
}

bool same_placement(const Placement &a, const Placement &b) {
  return a.tensor == b.tensor && a.block == b.block && a.owner == b.owner && a.unit == b.unit && a.shape == b.shape &&
         a.element_offset == b.element_offset && a.element_count == b.element_count &&
         a.weight_offset == b.weight_offset && a.gradient_offset == b.gradient_offset && a.co_owner == b.co_owner &&
         a.co_owner_count == b.co_owner_count && a.matrix_index == b.matrix_index && a.matrix_count == b.matrix_count;
}

bool same_matrix(const Matrix &a, const Matrix &b) {
  return a.tensor == b.tensor && a.block == b.block && a.owner == b.owner && a.placement == b.placement &&
         a.element_offset == b.element_offset && a.rows == b.rows && a.columns == b.columns &&
         a.row_stride == b.row_stride && a.scale_rows == b.scale_rows && a.scale_columns == b.scale_columns;
}

bool same_objective(const Objective &a, const Objective &b) {
  return a.worst == b.worst && a.bound == b.bound && a.rank == b.rank && a.unit == b.unit;
}

// "" or what differs.
std::string difference(const Plan &a, const Plan &b) {
  if (a.fingerprint != b.fingerprint) return "fingerprint";
  if (!(a.topology == b.topology)) return "topology";
  if (!std::equal(a.placements.begin(), a.placements.end(), b.placements.begin(), b.placements.end(), same_placement))
    return "placements";
  if (!std::equal(a.matrices.begin(), a.matrices.end(), b.matrices.begin(), b.matrices.end(), same_matrix))
    return "matrices";
  if (a.tensors.size() != b.tensors.size() || a.units.size() != b.units.size()) return "counts";
  for (size_t index = 0; index < a.tensors.size(); ++index)
    if (a.tensors[index].hash != b.tensors[index].hash || a.tensors[index].reason != b.tensors[index].reason)
      return a.tensors[index].name + ": " + a.tensors[index].reason + " / " + b.tensors[index].reason;
  for (size_t unit = 0; unit < a.units.size(); ++unit)
    if (a.units[unit].placements != b.units[unit].placements ||
        a.units[unit].weights.hash() != b.units[unit].weights.hash())
      return "a unit";
  if (!std::equal(std::begin(a.objectives), std::end(a.objectives), std::begin(b.objectives), same_objective))
    return "objectives";
  if (a.rank_owned_bytes != b.rank_owned_bytes || a.rank_step_ps != b.rank_step_ps) return "loads";
  return a.warnings == b.warnings && plan_report(a) == plan_report(b) ? "" : "warnings or the report";
}

bool comes_back(const Plan &plan) {
  std::string text, again;
  Plan loaded;
  std::string what;
  if (plan_to_json(plan, &text) != MXS_OK || load_text(text, &loaded) != MXS_OK) what = last_error_text();
  if (what.empty()) what = difference(plan, loaded);
  if (what.empty()) what = check_plan(loaded);
  if (what.empty() && (plan_to_json(loaded, &again) != MXS_OK || again != text)) what = "saved again, the text differs";
  if (what.empty()) return true;
  print_error("%s\n%.3000s\n", what.c_str(), text.c_str());
  return false;
}

bool random_plans_come_back() {
  for (const int rank_count : test::thinned<int>({1, 2, 3, 4, 7, 8}))
    for (unsigned seed = 0; seed < test::few(60u); ++seed) {
      Plan plan;
      if (make(random_model(seed, rank_count), rank_count, &plan) != MXS_OK || !comes_back(plan)) {
        print_error("seed %u on %d ranks: %s\n", seed, rank_count, last_error_text());
        return false;
      }
    }
  return true;
}

bool extremes_come_back() {
  Model model = gpt(2, 64);
  model.options.rank_bytes_max = UINT64_MAX;
  model.options.flat_bytes = UINT64_MAX;
  model.options.step_weight = 1;
  model.options.egress_weight = UINT32_MAX;
  model.options.search_moves_max = UINT64_MAX;
  model.tensors[3].name = "\"quoted\" \\ \n\t \x7f \xc3\xa9 \xf0\x9f\x8c\x8d";
  Topology topology;
  if (parse_topology("nodes:2 ranks:3 nic:25 local:200", &topology) != MXS_OK) return false;
  topology.set_factor("chain", 1080);
  Plan plan, nothing;
  return make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, &plan) == MXS_OK &&
         comes_back(plan) && make(Model(), 3, &nothing) == MXS_OK && comes_back(nothing);
}

// Four ranks of a node, two nodes, three matrices: some are shared because they are asked to be, some by choice.
bool shared_matrices_come_back() {
  Topology topology;
  if (parse_topology("nodes:2 ranks:4", &topology) != MXS_OK) return false;
  Model model;
  model.add("asked", {512, 512}).co_owners = 3;
  model.add("chosen", {2048, 2048});
  model.add("alone", {512, 512}).co_owners = 1;
  model.add("small", {8, 64}).co_owners = 4;
  model.options.co_owners_max = 4;
  Plan plan;
  std::string text;
  if (make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, &plan) != MXS_OK) return false;
  if (plan.tensors[0].placement_count != 3 || plan.tensors[1].placement_count < 2) {
    print_error("%s\n", plan_report(plan).c_str());
    return false;
  }
  if (!comes_back(plan) || plan_to_json(plan, &text) != MXS_OK) return false;
  for (const char *owners : {"[0, 1]", "[0, 1, 2, 3]", "[2, 1, 0]", "[2, 3, 4]", "[1, 1, 1]"}) {
    const size_t place = text.find("\"owners\": ", text.find("\"asked\"")) + 10;
    std::string spoilt = text;
    spoilt.replace(place, text.find(']', place) + 1 - place, owners);
    Plan other;
    if (load_text(spoilt, &other) == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), "\"asked\"")) continue;
    print_error("%s: %s\n", owners, last_error_text());
    return false;
  }
  return plan.tensors[2].placement_count == 1 && plan.tensors[3].placement_count == 1;
}

// ---- what a file may not say ----

std::string small_text() {
  Model model;
  model.add("w", {64, 64}).fixed_owner = MXS_FIXED_OWNER(1);
  model.add_blocks("qkv", {64, 64, 64}, 64);
  model.add("odd", {3, 5, 64}, 1);
  model.add("e", {300, 100}, 1, MXS_RULE_ADAMW);
  model.add("b", {10}, 1);
  model.add("t", {10}, 1).tied_to = "b";
  model.options.rank_bytes_max = 400000;
  model.options.flat_bytes = 1000;
  Plan plan;
  std::string text;
  if (make(model, 2, &plan) != MXS_OK || plan_to_json(plan, &text) != MXS_OK) print_error("%s\n", last_error_text());
  return text;
}

// Replaces the first `from`; with "" for to a removal. Empty if there is none.
std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t place = text.find(from);
  if (place == std::string::npos) return "";
  return text.replace(place, from.size(), to);
}

bool is_refused(const std::string &text, const char *word) {
  Plan plan;
  plan.alignment = 1;
  const mxs_status status = load_text(text, &plan);
  if (status == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), word) && plan.alignment == 1) return true;
  print_error("%d, not refused with \"%s\": %s\n", status, word, status == MXS_OK ? "it loads" : last_error_text());
  return false;
}

bool spoilt_files_are_refused() {
  const struct {
    const char *from, *to, *word;
  } cases[] = {
      {"{\"matrixshard_plan\": 1", "[", "not JSON"},
      {"{\"matrixshard_plan\": 1", "{\"matrixshard_plan\": 2", "matrixshard_plan is not a whole number from 1 to 1"},
      {"{\"matrixshard_plan\": 1", "{\"matrixshard_topology\": 1", "matrixshard_topology is not a known field"},
      {"\"matrixshard_plan\": 1, ", "", "matrixshard_plan is missing"},
      {"\"fingerprint\": \"", "\"fingerprint\": \"x", "fingerprint is"},
      {"\"fingerprint\": \"", "\"fingerprint\": 3, \"f\": \"", "is not a known field"},
      {"\"alignment\": 4096", "\"alignment\": 4097", "alignment is 4097"},
      {"\"alignment\": 4096", "\"alignment\": -1", "options.alignment is not a whole number"},
      {"\"alignment\": 4096", "\"alignment\": \"4096\"", "options.alignment is not a whole number"},
      {"\"alignment\": 4096", "\"alinement\": 4096", "options.alinement is not a known field"},
      {"\"alignment\": 4096", "\"alignment\": 2147483648", "alignment is 2147483648"},
      {"\"unit_count\": 2", "\"unit_count\": 1", "unit is 1"},
      {"\"unit_count\": 2", "\"unit_count\": 99999999", "options.unit_count is not"},
      {"\"unit_count\": 2", "\"unit_count\": 3", "fingerprint is"},
      {"\"flat_bytes\": 1000", "\"flat_bytes\": 1001", "fingerprint is"},
      {"\"flat_bytes\": 1000", "\"flat_bytes\": 1e3", "options.flat_bytes is not"},
      {"\"rank_bytes_max\": 400000", "\"rank_bytes_max\": 1000", "more than rank_bytes_max"},
      {"\"step_weight\": 100000", "\"step_weight\": 0", "options.step_weight is not"},
      {"\"co_owners_max\": 1", "\"co_owners_max\": -1", "options.co_owners_max is not"},
      {"\"co_owners_max\": 1", "\"co_owners_max\": 1, \"previous\": \"12\"", "options.previous is not a text of 16"},
      {"\"co_owners_max\": 1", "\"co_owners_max\": 1, \"previous\": \"0123456789abcdef\"", "fingerprint is"},
      {"\"matrixshard_topology\": 1", "\"matrixshard_topology\": 7", "topology.matrixshard_topology"},
      {"{\"numa\":-1,\"rail\":0,\"rank\":1}", "{\"numa\":-1,\"rail\":0,\"rank\":2}", "topology.nodes has no rank 1"},
      {"\"tensors\": [", "\"tensors\": [3, ", "tensors[0] is not an object"},
      {"\"tensors\": [", "\"tensors\": {}, \"rest\": [", "is not a"},
      {"\"name\": \"w\"", "\"name\": \"\"", "tensors[0].name is empty"},
      {"\"name\": \"w\"", "\"name\": \"w\\u0000x\"", "tensors[0].name has a zero byte"},
      {"\"name\": \"w\"", "\"name\": 5", "tensors[0].name is not a text"},
      {"\"name\": \"w\"", "\"name\": \"qkv\"", "name of tensors[0] too"},
      {"\"name\": \"w\"", "\"name\": \"v\"", "fingerprint is"},
      {"\"name\": \"w\"", "\"name\": \"w\", \"name\": \"w\"", "stands twice"},
      {"\"shape\": [64, 64]", "\"shape\": [64, -64]", "tensors[0].shape[1] is not a whole number"},
      {"\"shape\": [64, 64]", "\"shape\": [64, 63]", "fingerprint is"},
      {"\"shape\": [64, 64]", "\"shape\": [9223372036854775807, 9223372036854775807]", "2^62"},
      {"\"shape\": [64, 64]", "\"shape\": [9223372036854775808]", "tensors[0].shape[0] is not"},
      {"\"shape\": [64, 64]", "\"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 1]", "tensors[0].shape is longer than 8"},
      {"\"shape\": [64, 64]", "\"shape\": 64", "tensors[0].shape is not a list"},
      {"\"shape\": [64, 64]", "\"shape\": [1099511627776, 1, 1]", "fewer ranks than the stack"},
      {"\"shape\": [64, 64], \"unit\": 0", "\"shape\": [64, 64], \"unit\": 2", "unit is 2"},
      {"\"shape\": [64, 64], \"unit\": 0", "\"shape\": [64, 64]", "tensors[0].unit is missing"},
      {"\"fixed_owner\": 1", "\"fixed_owner\": 2", "fixed_owner is rank 2"},
      {"\"fixed_owner\": 1", "\"fixed_owner\": 0", "another rank than fixed_owner"},
      {"\"fixed_owner\": 1", "\"dtype\": \"fp32\"", "tensors[0].dtype is none of none, f32, bf16"},
      {"\"fixed_owner\": 1", "\"rule\": 2", "tensors[0].rule is none of auto"},
      {"\"fixed_owner\": 1", "\"rule\": \"external\"", "fingerprint is"},
      {"\"fixed_owner\": 1", "\"role\": \"tied\"", "tied_to is NULL"},
      {"\"fixed_owner\": 1", "\"role\": \"flat\", \"rule\": \"muon\"", "tear"},
      {"\"fixed_owner\": 1", "\"transposed\": 2", "tensors[0].transposed is not"},
      {"\"fixed_owner\": 1", "\"group\": -2", "tensors[0].group is not"},
      {"\"owners\": [1]", "\"owners\": [2]", "tensors[0].owners[0] is not a whole number from 0 to 1"},
      {"\"owners\": [1]", "\"owners\": [-1]", "tensors[0].owners[0] is not"},
      {"\"owners\": [1]", "\"owners\": []", "owners has not as many ranks"},
      {"\"owners\": [1]", "\"owners\": [1, 1]", "owners has several ranks, but it can't be shared"},
      {"\"owners\": [1]", "\"owners\": [1], \"elements\": [4096]", "elements stands there, but it isn't flat"},
      {"\"owners\": [1]", "\"owners\": [1], \"elements\": [4000, 96]", "tensors[0].elements is not as long as owners"},
      {", \"owners\": [1]", "", "tensors[0].owners is missing"},
      {"\"block_rows\": [64, 64, 64]", "\"block_rows\": [64, 64, 63]", "block_rows add up"},
      {"\"block_rows\": [64, 64, 64]", "\"block_rows\": [64, 128]", "owners has 3 ranks, but it has 2 pieces"},
      {"\"block_rows\": [64, 64, 64]", "\"block_rows\": [64, 0, 128]", "tensors[1].block_rows[1] is not"},
      {"\"elements\": [", "\"elements\": [4096, ", "tensors[3].elements is not as long as owners"},
      {"\"elements\": [16384, 13616]", "\"elements\": [16384, 13615]", "add up to less"},
      {"\"elements\": [16384, 13616]", "\"elements\": [16384, 13617]", "add up to more"},
      {"\"elements\": [16384, 13616]", "\"elements\": [16000, 14000]", "on a border of chunks"},
      {"\"elements\": [16384, 13616]", "\"elements\": [12288, 17712]", "fingerprint is"},
      {"\"elements\": [16384, 13616]", "\"elements\": [30000, 0]", "tensors[3].elements[1] is not"},
      {"\"tied_to\": \"b\"", "\"tied_to\": \"z\"", "no tensor has that name"},
      {"\"tied_to\": \"b\"", "\"tied_to\": \"t\"", "itself"},
      {"\"tied_to\": \"b\"", "\"tied_to\": \"b\", \"owners\": [0]", "tensors[5].owners stands beside tied_to"},
  };
  const std::string text = small_text();
  Plan plan;
  if (load_text(text, &plan) != MXS_OK) {
    print_error("%s\n%s\n", last_error_text(), text.c_str());
    return false;
  }
  for (const auto &each : cases) {
    const std::string spoilt = replaced(text, each.from, each.to);
    if (spoilt.empty() || !is_refused(spoilt, each.word)) {
      print_error("%s -> %s in\n%s\n", each.from, each.to, text.c_str());
      return false;
    }
  }
  return true;
}

// Blocks that can't be parted have one owner; a file that says otherwise would tear pages.
bool unparted_blocks_keep_one_owner() {
  const std::string text = small_text();
  const size_t line = text.find("\"odd\"");
  if (line == std::string::npos) return false;
  for (const char *owners : {"\"owners\": [0, 0, 0]", "\"owners\": [1, 1, 1]"}) {
    const size_t place = text.find(owners, line);
    if (place == std::string::npos || place > text.find('\n', line)) continue;
    std::string spoilt = text;
    return is_refused(spoilt.replace(place, std::strlen(owners), "\"owners\": [0, 1, 0]"), "can't be parted");
  }
  return false;
}

bool hostile_texts_are_refused() {
  const std::string deep(size_t{10} << 20, '['), objects = [] {
    std::string text;
    for (int level = 0; level < 1'000'000; ++level) text.append("{\"a\":");
    return text;
  }();
  const std::string text = small_text();
  return is_refused("", "not JSON") && is_refused("{", "not JSON") && is_refused("null", "not an object") &&
         is_refused(std::string("\0\0\0", 3), "not JSON") && is_refused("\xff\xfe{}", "not JSON") &&
         is_refused(deep, "64 levels") && is_refused(objects, "64 levels") &&
         is_refused(replaced(text, "\"tensors\": [", "\"tensors\": [" + deep), "64 levels") &&
         is_refused(replaced(text, "\"fingerprint\": \"", "\"fingerprint\": 1e999, \"x\": \""), "not JSON");
}

// Cut short anywhere, or with a byte changed: refused, or the very plan that it was.
bool torn_texts_do_no_harm() {
  const std::string text = small_text();
  Plan plan;
  for (size_t bytes = 0; bytes + 2 < text.size(); ++bytes)
    if (load_text(text.substr(0, bytes), &plan) != MXS_INVALID_ARGUMENT) return false;
  if (load_text(text, &plan) != MXS_OK) return false;
  std::mt19937 random(3);
  const char bytes[] = "0123456789-\"[]{},:.e \xff";
  for (int repeat = 0; repeat < test::few(4000); ++repeat) {
    std::string changed = text;
    changed[random() % changed.size()] = bytes[random() % (sizeof bytes - 1)];
    Plan other;
    const mxs_status status = load_text(changed, &other);
    if (status == MXS_INVALID_ARGUMENT) continue;
    if (status == MXS_OK && other.fingerprint == plan.fingerprint) continue;
    print_error("%d: %s\n%s\n", status, last_error_text(), changed.c_str());
    return false;
  }
  return true;
}

// Some number of a tensor becomes another, and the fingerprint is made to fit: refused, or a plan with sound geometry.
std::string forged(const std::string &text, std::mt19937 *random) {
  const size_t tensors = text.find("\"tensors\"");
  const size_t begin = text.find_first_of("0123456789", tensors + (*random)() % (text.size() - tensors));
  if (begin == std::string::npos) return text;
  const size_t end = text.find_first_not_of("0123456789", begin);
  const char *const numbers[] = {"0", "1", "2", "3", "5", "8", "63", "64", "65", "128", "4096", "8192", "1048577"};
  return std::string(text).replace(begin, end - begin, numbers[(*random)() % std::size(numbers)]);
}

bool forged_plans_are_sound() {
  std::mt19937 random(11);
  int loaded = 0;
  for (unsigned seed = 0; seed < test::few(60u); ++seed) {
    Plan plan;
    std::string text;
    if (make(random_model(seed, 3), 3, &plan) != MXS_OK || plan_to_json(plan, &text) != MXS_OK) return false;
    for (int repeat = 0; repeat < 60; ++repeat) {
      const std::string changed = forged(text, &random);
      SavedPlan saved;
      Plan other;
      if (saved_plan_from_json(changed, &saved) != MXS_OK || restore_plan(saved, &other) == MXS_OK) continue;
      static const char before[] = "but what the file holds has ";
      const char *found = std::strstr(last_error_text(), before);
      if (!found) continue;
      saved.fingerprint = std::strtoull(found + sizeof before - 1, nullptr, 16);
      ++loaded;
      if (restore_plan(saved, &other) == MXS_OK && check_plan(other).empty()) continue;
      print_error("%s\n%.3000s\n", check_plan(other).c_str(), changed.c_str());
      return false;
    }
  }
  print_message("# %d of 3600 forged plans load\n", loaded);
  return loaded > test::few(300);
}

bool names_must_be_utf8() {
  Model model;
  model.add("\xff\xfe", {3});
  Plan plan;
  std::string text = "kept";
  return make(model, 1, &plan) == MXS_OK && plan_to_json(plan, &text) == MXS_INVALID_ARGUMENT && text == "kept" &&
         std::strstr(last_error_text(), "not UTF-8");
}

// ---- the calls ----

bool calls_save_and_load() {
  const char *path = "test_plan_saved.json";
  Plan made;
  if (make(gpt(2, 64), 4, &made) != MXS_OK) return false;
  const mxs_plan plan(std::move(made));
  mxs_plan *loaded = nullptr;
  if (mxs_plan_save(&plan, path) != MXS_OK || mxs_plan_load(&loaded, path) != MXS_OK) {
    print_error("%s\n", last_error_text());
    return false;
  }
  const std::string what = difference(plan.value, loaded->value);
  uint64_t move_count = 1;
  const bool alike = mxs_plan_moves(&plan, loaded, nullptr, 0, &move_count) == MXS_OK && move_count == 0;
  mxs_plan_destroy(&loaded);
  std::ofstream(path, std::ios::app) << "more";
  const bool refused = mxs_plan_load(&loaded, path) == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), path);
  std::remove(path);
  return what.empty() && alike && refused && loaded == nullptr;
}

bool bad_calls_say_why() {
  mxs_plan *loaded = nullptr;
  Plan nothing;
  if (make(Model(), 1, &nothing) != MXS_OK) return false;
  const mxs_plan plan(std::move(nothing));
  return mxs_plan_save(nullptr, "x") == MXS_INVALID_ARGUMENT && mxs_plan_save(&plan, nullptr) == MXS_INVALID_ARGUMENT &&
         mxs_plan_save(&plan, "") == MXS_INVALID_ARGUMENT && mxs_plan_load(nullptr, "x") == MXS_INVALID_ARGUMENT &&
         mxs_plan_load(&loaded, nullptr) == MXS_INVALID_ARGUMENT &&
         mxs_plan_load(&loaded, "") == MXS_INVALID_ARGUMENT &&
         mxs_plan_save(&plan, "no/such/folder/plan.json") == MXS_SYSTEM &&
         mxs_plan_load(&loaded, "no_such_plan.json") == MXS_SYSTEM && mxs_plan_load(&loaded, ".") == MXS_SYSTEM &&
         mxs_plan_load(&loaded, "/dev/zero") == MXS_SYSTEM && loaded == nullptr;
}

void every_plan_comes_back_as_it_was(void **) { assert_true(random_plans_come_back()); }
void the_largest_options_and_odd_names_come_back(void **) { assert_true(extremes_come_back()); }
void matrices_that_ranks_share_come_back(void **) { assert_true(shared_matrices_come_back()); }
void spoilt_files_are_refused_by_the_field(void **) { assert_true(spoilt_files_are_refused()); }
void blocks_that_cannot_be_parted_keep_one_owner(void **) { assert_true(unparted_blocks_keep_one_owner()); }
void hostile_texts_are_refused_in_little_room(void **) { assert_true(hostile_texts_are_refused()); }
void torn_and_changed_texts_do_no_harm(void **) { assert_true(torn_texts_do_no_harm()); }
void a_forged_plan_is_refused_or_sound(void **) { assert_true(forged_plans_are_sound()); }
void a_name_that_json_cannot_hold_is_refused(void **) { assert_true(names_must_be_utf8()); }
void the_calls_save_and_load_files(void **) { assert_true(calls_save_and_load()); }
void bad_calls_are_refused(void **) { assert_true(bad_calls_say_why()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_plan_comes_back_as_it_was),
      cmocka_unit_test(the_largest_options_and_odd_names_come_back),
      cmocka_unit_test(matrices_that_ranks_share_come_back),
      cmocka_unit_test(spoilt_files_are_refused_by_the_field),
      cmocka_unit_test(blocks_that_cannot_be_parted_keep_one_owner),
      cmocka_unit_test(hostile_texts_are_refused_in_little_room),
      cmocka_unit_test(torn_and_changed_texts_do_no_harm),
      cmocka_unit_test(a_forged_plan_is_refused_or_sound),
      cmocka_unit_test(a_name_that_json_cannot_hold_is_refused),
      cmocka_unit_test(the_calls_save_and_load_files),
      cmocka_unit_test(bad_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
