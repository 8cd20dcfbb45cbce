// SPDX-License-Identifier: Apache-2.0
// Making and ending units: bad arguments, ranks that disagree, what is held, bytes as predicted.
#include <string>
#include <vector>

#include "support/complaints.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// A call that must be refused, with a word that its sentence must hold.
std::string refused(mxs_status wanted, mxs_status status, const std::string &word) {
  const std::string complaint = want(wanted, status, "a call that is to say \"" + word + "\"");
  if (!complaint.empty()) return complaint;
  const std::string sentence = mxs_last_error();
  return sentence.find(word) == std::string::npos ? "\"" + sentence + "\" doesn't say \"" + word + "\"" : "";
}

// The first complaint of several.
class Complaints {
 public:
  void add(const std::string &complaint) {
    if (text_.empty()) text_ = complaint;
  }
  const std::string &text() const { return text_; }

 private:
  std::string text_;
};

std::string refuses_bad_options(mxs_comm *comm) {
  Units units;
  Complaints all;
  all.add(units.make(comm, plain_model(2)));
  if (!all.text().empty()) return all.text();
  mxs_unit *unit = nullptr;
  const auto create = [&](mxs_unit_options options) { return mxs_unit_create(&unit, comm, units.plan, 0, &options); };
  const mxs_unit_options good = MXS_UNIT_OPTIONS_INIT;
  mxs_unit_options options = good;
  options.size = 0;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.size"));
  options.size = 5000;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.size"));
  options = good;
  options.gather = 3;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.gather"));
  options = good;
  options.slots = -1;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.slots"));
  options.slots = 2147483647;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.slots"));
  options = good;
  options.gradient_slots = -5;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.gradient_slots"));
  options = good;
  options.flags = 2;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.flags"));
  options = good;
  options.memory = MXS_CUDA;
  all.add(refused(MXS_NOT_BUILT, create(options), "CUDA"));
  options.memory = 9;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "options.memory"));
  options = good;
  options.replicas = comm;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "replicas"));
  options = good;
  options.algorithm = "carrier pigeon";
  all.add(refused(MXS_NOT_FOUND, create(options), "carrier pigeon"));
  options = good;
  options.buffer = &options;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "page"));
  options.gather = MXS_GATHER_BY_REFERENCE;
  all.add(refused(MXS_INVALID_ARGUMENT, create(options), "reference"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_create(nullptr, comm, units.plan, 0, nullptr), "unit is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, nullptr, units.plan, 0, nullptr), "comm is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, nullptr, 0, nullptr), "plan is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, units.plan, 2, nullptr), "unit is 2"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, units.plan, -1, nullptr), "unit is -1"));
  if (unit) all.add("a failed create has set its output");
  return all.text();
}

std::string refuses_bad_calls(mxs_comm *comm) {
  Units units;
  Complaints all;
  all.add(units.make(comm, plain_model(2)));
  if (!all.text().empty()) return all.text();
  mxs_unit *unit = units.units[0];
  mxs_view view = MXS_VIEW_INIT, short_view = MXS_VIEW_INIT;
  short_view.size = 8;
  mxs_call call = MXS_CALL_INIT;
  call.stream = &call;
  mxs_unit_info info = MXS_UNIT_INFO_INIT;
  mxs_memory memory = MXS_MEMORY_INIT;
  const std::string null = "unit is NULL";
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gather(nullptr, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_wait(nullptr, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_tensor(nullptr, 0, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_release(nullptr, 0, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient(nullptr, 0, 0, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(nullptr, 0, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_reduce(nullptr, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_skip(nullptr, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_discard(nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_wait_reduce(nullptr, nullptr), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_shard(nullptr, 0, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_commit(nullptr, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_shard_gradient(nullptr, 0, &view), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_query(nullptr, &info), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_memory(nullptr, &memory), null));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_tensor(unit, 0, nullptr), "view is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_tensor(unit, 0, &short_view), "view->size"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient(unit, 0, 0, nullptr), "view is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient(unit, 0, 7, &view), "flags is 7"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(unit, 0, nullptr), "view is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(unit, 0, &short_view), "view.size"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(unit, 0, &view), "gradient dtype"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_shard(unit, 0, nullptr), "view is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_shard(unit, 12345, &view), "placement is 12345"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_shard_gradient(unit, uint64_t{1} << 63, &view), "placement is"));
  all.add(refused(MXS_NOT_FOUND, mxs_unit_shard(units.units[1], 0, &view), "unit 0"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_commit(unit, nullptr), "view is NULL"));
  all.add(refused(MXS_NOT_FOUND, mxs_unit_gradient(unit, 5, 0, &view), "unit 1"));
  all.add(refused(MXS_NOT_FOUND, mxs_unit_gradient(unit, -1, 0, &view), "tensor is -1"));
  all.add(refused(MXS_NOT_FOUND, mxs_unit_tensor(unit, 99, &view), "tensor is 99"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_release(unit, 3, nullptr), "mode is 3"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_gather(unit, &call), "stream"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_reduce(unit, &call), "stream"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_query(unit, nullptr), "info is NULL"));
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_memory(unit, nullptr), "memory is NULL"));
  info.size = 4;
  all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_query(unit, &info), "info->size"));
  if (view.data || view.bytes) all.add("a failed call has written its output");
  return all.text();
}

// ---- ranks that disagree ----

// Every rank must get MXS_MISMATCH, with a sentence that holds the word.
template <class Change>
std::string disagree(const std::string &word, Change &&change) {
  return run_world(3, [&](int rank, mxs_comm *comm) {
    Model model = plain_model(2);
    mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
    int index = 0;
    if (rank == 1) change(model, options, index);
    model.finish();
    mxs_topology *topology = nullptr;
    mxs_plan *plan = nullptr;
    mxs_unit *unit = nullptr;
    std::string complaint = want(MXS_OK, mxs_comm_topology(comm, &topology), "mxs_comm_topology");
    if (complaint.empty())
      complaint = want(MXS_OK, mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, nullptr),
                       "mxs_plan_create");
    if (complaint.empty())
      complaint = refused(MXS_MISMATCH, mxs_unit_create(&unit, comm, plan, index, &options), word);
    mxs_plan_destroy(&plan);
    mxs_topology_destroy(&topology);
    return complaint;
  });
}

std::string ranks_that_disagree() {
  Complaints all;
  all.add(disagree("block0.norm", [](Model &model, auto &, int &) { model.tensors[2].shape[0]++; }));
  all.add(disagree("'block1.norms'", [](Model &model, auto &, int &) { model.names[6] = "block1.norms"; }));
  all.add(disagree("block1.qkv", [](Model &model, auto &, int &) { model.tensors[4].group = 3; }));
  all.add(disagree("block0.out", [](Model &model, auto &, int &) { model.tensors[1].dtype = MXS_BF16; }));
  all.add(disagree("block1.up", [](Model &model, auto &, int &) { model.tensors.pop_back(); }));
  all.add(disagree("unit 1", [](Model &, auto &, int &index) { index = 1; }));
  all.add(disagree("options", [](Model &, mxs_unit_options &options, int &) { options.slots = 3; }));
  all.add(disagree("options", [](Model &, mxs_unit_options &options, int &) { options.flags = MXS_RANK_ORDER; }));
  all.add(disagree("options", [](Model &, mxs_unit_options &options, int &) { options.algorithm = "flat"; }));
  return all.text();
}

std::string refuses_a_plan_for_others(mxs_comm *comm) {
  const Model model = plain_model(1);
  mxs_topology *topology = nullptr;
  mxs_plan *plan = nullptr;
  mxs_unit *unit = nullptr;
  std::string complaint = want(MXS_OK, mxs_topology_create(&topology, "ranks:5"), "mxs_topology_create");
  if (complaint.empty())
    complaint = want(MXS_OK, mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, nullptr),
                     "mxs_plan_create");
  if (complaint.empty())
    complaint = refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, plan, 0, nullptr), "5 ranks");
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  return complaint;
}

std::string refuses_borders_inside_pages(mxs_comm *comm) {
  const Model model = plain_model(1);
  mxs_topology *topology = nullptr;
  mxs_plan *plan = nullptr;
  mxs_unit *unit = nullptr;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.alignment = 64;
  std::string complaint = want(MXS_OK, mxs_comm_topology(comm, &topology), "mxs_comm_topology");
  if (complaint.empty())
    complaint = want(MXS_OK, mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, &options),
                     "mxs_plan_create");
  if (complaint.empty())
    complaint = refused(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, plan, 0, nullptr), "alignment");
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  return complaint;
}

// "": a unit of one tensor that is changed so can be made.
template <class Change>
std::string create_one(mxs_comm *comm, Change &&change) {
  Model model;
  change(model.add("x", 0, {64, 64}));
  model.finish();
  Units units;
  return units.make(comm, model);
}

std::string refuses_masters_it_cannot_round(mxs_comm *comm) {
  const auto says = [](const std::string &complaint, const char *word) {
    const bool well = complaint.find("NOT_BUILT") != std::string::npos && complaint.find(word) != std::string::npos;
    return well ? "" : "\"" + complaint + "\" doesn't say NOT_BUILT and " + word;
  };
  Complaints all;
  all.add(says(create_one(comm, [](mxs_tensor &tensor) {
                 tensor.master_dtype = MXS_F16;
                 tensor.rule = MXS_RULE_EXTERNAL;
               }), "f16"));
  all.add(says(create_one(comm, [](mxs_tensor &tensor) {
                 tensor.dtype = MXS_U8;
                 tensor.master_dtype = MXS_F32;
                 tensor.rule = MXS_RULE_FROZEN;
               }), "u8"));
  all.add(create_one(comm, [](mxs_tensor &tensor) {
    tensor.dtype = MXS_U8;
    tensor.rule = MXS_RULE_FROZEN;
  }));
  return all.text();
}

// ---- what is held ----

std::string destroys_nothing_that_is_held(mxs_comm *comm) {
  Units units;
  Complaints all;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.slots = 1;
  all.add(units.make(comm, plain_model(2), &options));
  if (!all.text().empty()) return all.text();
  mxs_unit *&unit = units.units[0];
  mxs_unit *const kept = unit;
  mxs_view view = MXS_VIEW_INIT;
  all.add(want(MXS_OK, mxs_unit_gather(unit, nullptr), "gather"));
  all.add(refused(MXS_HELD, mxs_unit_destroy(&unit), "gathered"));
  all.add(refused(MXS_HELD, mxs_unit_shard(unit, 0, &view), "gathered"));
  all.add(refused(MXS_HELD, unit->check_idle("mxs_optimizer_step"), "before mxs_optimizer_step"));
  all.add(want(MXS_OK, mxs_unit_wait(unit, nullptr), "wait"));
  all.add(refused(MXS_HELD, mxs_unit_destroy(&unit), "gathered"));
  all.add(want(MXS_OK, mxs_unit_release(unit, MXS_PIN, nullptr), "release"));
  all.add(want(MXS_OK, mxs_unit_gradient(unit, 0, MXS_WRITE, &view), "gradient"));
  all.add(refused(MXS_HELD, mxs_unit_destroy(&unit), "open"));
  all.add(refused(MXS_HELD, unit->check_idle("mxs_optimizer_step"), "mxs_unit_reduce"));
  all.add(want(MXS_OK, mxs_unit_reduce(unit, nullptr), "reduce"));
  all.add(want(MXS_OK, mxs_unit_wait_reduce(unit, nullptr), "wait_reduce"));
  all.add(want(MXS_OK, unit->attach(), "attach"));
  all.add(refused(MXS_HELD, unit->attach(), "optimizer"));
  all.add(refused(MXS_HELD, mxs_unit_destroy(&unit), "optimizer"));
  unit->detach();
  if (unit != kept) all.add("a refused destroy has taken the handle");
  mxs_comm *same = comm;
  all.add(want(MXS_HELD, mxs_comm_destroy(&same), "destroying the comm of units"));
  all.add(want(MXS_OK, mxs_comm_barrier(comm, nullptr), "barrier"));
  all.add(want(MXS_OK, mxs_unit_destroy(&unit), "destroying a pinned unit"));
  if (unit) all.add("destroy leaves its handle");
  all.add(want(MXS_OK, mxs_unit_destroy(&unit), "destroying a second time"));
  all.add(want(MXS_OK, mxs_unit_destroy(nullptr), "destroying NULL"));
  // The slot that the pinned unit had is free again.
  all.add(want(MXS_OK, mxs_unit_gather(units.units[1], nullptr), "gathering into the slot of a destroyed unit"));
  all.add(want(MXS_OK, mxs_unit_wait(units.units[1], nullptr), "wait"));
  all.add(want(MXS_OK, mxs_unit_release(units.units[1], MXS_FREE, nullptr), "release"));
  return all.text();
}

// A view from before a step, or of something else, is no good for a commit.
std::string refuses_stale_views(mxs_comm *comm) {
  Units units;
  Complaints all;
  all.add(units.make(comm, plain_model(2, MXS_BF16)));
  all.add(units.fill(1));
  if (!all.text().empty()) return all.text();
  for (const uint64_t number : units.inner().units[0].placements) {
    mxs_view view = MXS_VIEW_INIT;
    all.add(want(MXS_OK, mxs_unit_shard(units.units[0], number, &view), "shard"));
    mxs_view copy = view;
    copy.data = &copy;
    if (view.bytes) all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_commit(units.units[0], &copy), "mxs_unit_shard"));
    if (view.bytes) all.add(refused(MXS_INVALID_ARGUMENT, mxs_unit_commit(units.units[1], &view), "unit 0"));
    all.add(want(MXS_OK, mxs_unit_gather(units.units[0], nullptr), "gather"));
    if (view.bytes) all.add(refused(MXS_HELD, mxs_unit_commit(units.units[0], &view), "gathered"));
    all.add(want(MXS_OK, mxs_unit_release(units.units[0], MXS_FREE, nullptr), "release"));
    all.add(units.step(2));
    if (view.bytes) {
      static_cast<float *>(view.data)[0] = 77.0f;
      all.add(refused(MXS_STALE_VIEW, mxs_unit_commit(units.units[0], &view), "generation"));
      const uint64_t first = units.inner().placements[number].element_offset;
      static_cast<float *>(view.data)[0] = weight_value(view.tensor, first, 2);
    } else {
      all.add(want(MXS_OK, mxs_unit_commit(units.units[0], &view), "committing an empty view"));
    }
    all.add(want(MXS_OK, mxs_comm_barrier(comm, nullptr), "barrier"));
    all.add(units.gather_and_check(0, 2));
  }
  return all.text();
}

// ---- bytes ----

std::string has_the_bytes_that_were_predicted(mxs_comm *comm, const Model &model, int gather) {
  for (const int slots : {1, 3}) {
    Units units;
    mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
    options.gather = gather;
    options.slots = slots;
    options.gradient_slots = slots;
    const std::string complaint = units.make(comm, model, &options);
    if (!complaint.empty()) return complaint;
    mxs_memory_options predicting = MXS_MEMORY_OPTIONS_INIT;
    predicting.slots = slots;
    predicting.gradient_slots = slots;
    predicting.by_reference = gather == MXS_GATHER_BY_REFERENCE;
    mxs_memory predicted = MXS_MEMORY_INIT, sum = MXS_MEMORY_INIT;
    mxs_status status = mxs_plan_memory(units.plan, units.rank, &predicting, &predicted);
    if (status != MXS_OK) return failure("mxs_plan_memory", status);
    for (mxs_unit *unit : units.units) {
      mxs_memory memory = MXS_MEMORY_INIT;
      status = mxs_unit_memory(unit, &memory);
      if (status != MXS_OK) return failure("mxs_unit_memory", status);
      sum.weights += memory.weights;
      sum.masters += memory.masters;
      sum.gradients += memory.gradients;
      sum.slack += memory.slack;
      sum.slots = memory.slots;
      sum.gradient_slots = memory.gradient_slots;
    }
    const auto compare = [&](const char *what, uint64_t found, uint64_t wanted) {
      return found == wanted ? "" : std::string(what) + ": " + std::to_string(found) + " bytes, but " +
                                        std::to_string(wanted) + " were predicted";
    };
    Complaints all;
    all.add(compare("weights", sum.weights, predicted.weights));
    all.add(compare("masters", sum.masters, predicted.masters));
    all.add(compare("gradients", sum.gradients, predicted.gradients));
    all.add(compare("slack", sum.slack, predicted.slack));
    all.add(compare("slots", sum.slots, predicted.slots));
    all.add(compare("gradient slots", sum.gradient_slots, predicted.gradient_slots));
    if (!all.text().empty()) return all.text();
  }
  return "";
}

// Units keep what they need of the plan, in any order of destruction; a pool goes with its last unit.
std::string lives_without_its_plan(mxs_comm *comm) {
  for (const bool backwards : {false, true}) {
    Units units;
    std::string complaint = units.make(comm, plain_model(3));
    if (!complaint.empty()) return complaint;
    mxs_plan_destroy(&units.plan);
    complaint = units.fill(1);
    for (int unit = 0; unit < 3 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1);
    if (!complaint.empty()) return complaint;
    for (int turn = 0; turn < 3; turn++) {
      mxs_unit *&unit = units.units[static_cast<size_t>(backwards ? 2 - turn : turn)];
      if (mxs_unit_destroy(&unit) != MXS_OK) return failure("mxs_unit_destroy", MXS_INTERNAL);
    }
  }
  return "";
}

template <class Body>
bool in_worlds(Body &&body) {
  for (const int rank_count : {1, 2, 3})
    if (!good(run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm); }))) return false;
  return true;
}

void bad_options_are_refused(void **) { assert_true(in_worlds(refuses_bad_options)); }
void bad_calls_are_refused(void **) { assert_true(in_worlds(refuses_bad_calls)); }
void ranks_that_disagree_all_hear_about_what(void **) { assert_true(good(ranks_that_disagree())); }
void a_plan_for_other_ranks_is_refused(void **) { assert_true(in_worlds(refuses_a_plan_for_others)); }
void borders_inside_pages_are_refused(void **) {
  assert_true(good(run_world(3, [](int, mxs_comm *comm) { return refuses_borders_inside_pages(comm); })));
}
void masters_that_cannot_be_rounded_are_refused(void **) { assert_true(in_worlds(refuses_masters_it_cannot_round)); }
void what_is_held_is_not_destroyed(void **) { assert_true(in_worlds(destroys_nothing_that_is_held)); }
void stale_views_are_refused(void **) { assert_true(in_worlds(refuses_stale_views)); }
void memory_is_what_was_predicted(void **) {
  for (const int gather : {MXS_GATHER_BY_COPY, MXS_GATHER_BY_REFERENCE})
    assert_true(in_worlds([&](mxs_comm *comm) {
      std::string complaint = has_the_bytes_that_were_predicted(comm, odd_model(), gather);
      if (complaint.empty()) complaint = has_the_bytes_that_were_predicted(comm, plain_model(4, MXS_BF16), gather);
      return complaint;
    }));
}
void units_live_without_their_plan(void **) { assert_true(in_worlds(lives_without_its_plan)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_options_are_refused),
      cmocka_unit_test(bad_calls_are_refused),
      cmocka_unit_test(ranks_that_disagree_all_hear_about_what),
      cmocka_unit_test(a_plan_for_other_ranks_is_refused),
      cmocka_unit_test(borders_inside_pages_are_refused),
      cmocka_unit_test(masters_that_cannot_be_rounded_are_refused),
      cmocka_unit_test(what_is_held_is_not_destroyed),
      cmocka_unit_test(stale_views_are_refused),
      cmocka_unit_test(memory_is_what_was_predicted),
      cmocka_unit_test(units_live_without_their_plan),
  };
  return cmocka_run_group_tests_name("unit create", tests, nullptr, nullptr);
}
