// SPDX-License-Identifier: Apache-2.0
// Units with matrices that ranks of a node share: gathered and reduced as any others, stepped by hand through their
// shards, and by the library as one owner would.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/processes.hpp"
#include "support/thinned.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// A cut every 32 rows of 128 columns. Shared tall, wide, unevenly and with a short last range, beside what isn't.
Model shared_model(int rank_count) {
  Model model;
  model.add("tall", 0, {611, 128}, MXS_BF16).co_owners = rank_count;
  model.add("norm", 0, {77}, MXS_F16).gradient_dtype = MXS_F32;
  model.add("plain", 0, {64, 33});
  model.add("wide", 1, {64, 1024}).co_owners = rank_count;
  model.add("two", 1, {300, 128}, MXS_F16).co_owners = 2;
  model.tensors.back().master_dtype = MXS_F16;
  model.add("table", 1, {333, 40}).rule = MXS_RULE_FROZEN;
  model.finish();
  return model;
}

// As an outside optimizer would: reads its rows' sums, writes its rows' masters, and commits them.
std::string step_by_hand(Units &units, uint64_t version) {
  for (uint64_t number = 0; number < mxs_plan_placement_count(units.plan); number++) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs_plan_placement(units.plan, number, &placement);
    mxs_view view = MXS_VIEW_INIT;
    const mxs_status status = mxs_unit_shard(units.units[static_cast<size_t>(placement.unit)], number, &view);
    if (status != MXS_OK) return failure("mxs_unit_shard", status);
    const uint64_t elements = placement.owner == units.rank ? placement.element_count : 0;
    if (view.bytes != elements * dtype_bytes(view.dtype)) return "a shard of wrong bytes";
    if (elements && placement.co_owner_count > 1 &&
        (view.dimension_count != 2 || view.shape[0] != placement.shape[0] || view.shape[1] != placement.shape[1]))
      return "a shard that isn't the co-owner's rows";
  }
  return units.fill(version);
}

std::string trains(mxs_comm *comm, int gather) {
  Units units;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return "mxs_comm_query";
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.flags = MXS_RANK_ORDER;
  options.gather = gather;
  std::string complaint = units.make(comm, shared_model(info.rank_count), &options);
  if (!complaint.empty()) return complaint;
  if (units.inner().tensors[0].placement_count != static_cast<uint64_t>(info.rank_count)) return "nothing is shared";
  if (complaint.empty()) complaint = units.fill(1);
  for (int step = 0; step < 2 && complaint.empty(); step++) {
    for (int unit = 0; unit < 2 && complaint.empty(); unit++)
      complaint = units.gather_and_check(unit, static_cast<uint64_t>(step) + 1);
    for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
      complaint = units.write_gradients(unit, 0, MXS_WRITE);
      if (complaint.empty())
        complaint = want(MXS_OK, mxs_unit_reduce(units.units[static_cast<size_t>(unit)], nullptr), "reduce");
      if (complaint.empty()) complaint = units.check_sums(unit, 1);
    }
    if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_barrier(comm, nullptr), "the barrier");
    if (complaint.empty()) complaint = step_by_hand(units, static_cast<uint64_t>(step) + 2);
    if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_barrier(comm, nullptr), "the barrier");
    for (mxs_unit *unit : units.units) unit->finish_step(true);
  }
  return complaint;
}

std::string trains_in_every_world() {
  for (const int rank_count : thinned<int>({2, 3, 4, 8})) {
    const std::string complaint =
        run_world(rank_count, [](int, mxs_comm *comm) { return trains(comm, MXS_GATHER_BY_COPY); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

// The pages of a co-owner's rows are its own.
std::string trains_as_processes() {
  for (const int gather : {MXS_GATHER_BY_COPY, MXS_GATHER_BY_REFERENCE}) {
    const std::string complaint = run_processes(3, [&](int, mxs_comm *comm) { return trains(comm, gather); });
    if (!complaint.empty()) return (gather == MXS_GATHER_BY_COPY ? "by copy, " : "by reference, ") + complaint;
  }
  return "";
}

// ---- the library's step ----

// shared: over all ranks, and one tensor over two of them; else the same tensors with one owner each.
Model stepped_model(int rank_count, bool shared) {
  Model model;
  model.add("tall", 0, {611, 128}).co_owners = shared ? rank_count : 1;
  model.add("norm", 0, {77});
  model.add("plain", 0, {64, 33}).co_owners = 1;
  model.add("wide", 1, {256, 1024}).co_owners = shared ? rank_count : 1;
  model.add("two", 1, {320, 128}, MXS_BF16).co_owners = shared ? 2 : 1;
  model.add("again", 1, {611, 128}).co_owners = shared ? rank_count : 1;
  // Groups that overlap, each rank in several of them.
  for (const char *name : {"pair", "pair more", "pair again", "pair at last"})
    model.add(name, name[4] == '\0' ? 0 : 1, {256, 128}).co_owners = shared ? 2 : 1;
  model.finish();
  return model;
}

// All weights of both units after three steps.
std::string train_and_read(mxs_comm *comm, bool shared, std::vector<float> *weights) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return "mxs_comm_query";
  Units units;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.flags = MXS_RANK_ORDER;
  std::string complaint = units.make(comm, stepped_model(info.rank_count, shared), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  if (shared && units.inner().tensors[0].placement_count != static_cast<uint64_t>(info.rank_count))
    return "nothing is shared";
  mxs_optimizer *made = nullptr;
  complaint = want(MXS_OK, mxs_optimizer_create(&made, units.units.data(), 2, nullptr), "the optimizer");
  if (!complaint.empty()) return complaint;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.groups = &values;
  step.group_count = 1;
  step.gradient_scale = 1e-3f;
  for (int number = 0; number < 3 && complaint.empty(); number++) {
    values.lr = 0.02f * static_cast<float>(number + 1);
    for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
      complaint = units.write_gradients(unit, number, MXS_WRITE);
      if (complaint.empty())
        complaint = want(MXS_OK, mxs_unit_reduce(units.units[static_cast<size_t>(unit)], nullptr), "reduce");
    }
    if (complaint.empty()) complaint = want(MXS_OK, mxs_optimizer_step(made, &step, nullptr), "the step");
  }
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
    mxs_unit *const handle = units.units[static_cast<size_t>(unit)];
    complaint = want(MXS_OK, mxs_unit_gather(handle, nullptr), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(handle, nullptr), "wait");
    // In the caller's order: in a unit tensors lie as the planner likes.
    std::vector<int> tensors = units.inner().units[static_cast<size_t>(unit)].tensors;
    std::sort(tensors.begin(), tensors.end());
    for (const int tensor : tensors) {
      mxs_view view = MXS_VIEW_INIT;
      if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_tensor(handle, tensor, &view), "a view");
      for (uint64_t i = 0; complaint.empty() && i < view.bytes / dtype_bytes(view.dtype); i++)
        weights->push_back(read_value(view.data, view.dtype, i));
    }
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_release(handle, MXS_FREE, nullptr), "release");
  }
  mxs_optimizer_destroy(&made);
  return complaint;
}

// What differs is compared with how far weights moved: 2e-2 in bf16.
std::string steps_as_one_owner_does(mxs_comm *comm) {
  std::vector<float> alone, shared, again, before;
  std::string complaint = train_and_read(comm, false, &alone);
  if (complaint.empty()) complaint = train_and_read(comm, true, &shared);
  if (complaint.empty()) complaint = train_and_read(comm, true, &again);
  if (!complaint.empty()) return complaint;
  if (shared != again) return "two runs differ";
  if (alone.size() != shared.size() || alone.empty()) return "other weights";
  // What they began with.
  const Model model = stepped_model(2, false);
  for (const int unit : {0, 1})
    for (size_t tensor = 0; tensor < model.tensors.size(); tensor++) {
      const mxs_tensor &given = model.tensors[tensor];
      if (given.unit != unit) continue;
      const uint64_t elements =
          static_cast<uint64_t>(given.shape[0] * (given.dimension_count > 1 ? given.shape[1] : 1));
      for (uint64_t i = 0; i < elements; i++)
        before.push_back(weight_value(static_cast<int>(tensor), i, 1));
    }
  double moved = 0, differs = 0;
  for (size_t i = 0; i < alone.size(); i++) {
    const double one = static_cast<double>(alone[i]), other = static_cast<double>(shared[i]);
    differs += (one - other) * (one - other);
    moved += (one - static_cast<double>(before[i])) * (one - static_cast<double>(before[i]));
  }
  if (moved == 0) return "nothing moved";
  if (differs <= 2e-2 * 2e-2 * moved) return "";
  return "shared weights differ by " + std::to_string(std::sqrt(differs / moved)) + " of the way";
}

std::string steps_in_every_world() {
  for (const int rank_count : thinned<int>({2, 3, 4, 8})) {
    const std::string complaint =
        run_world(rank_count, [](int, mxs_comm *comm) { return steps_as_one_owner_does(comm); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

std::string steps_as_processes() {
  return run_processes(3, [](int, mxs_comm *comm) { return steps_as_one_owner_does(comm); });
}

// A preset that can't be shared is refused by all, and nothing is left behind: the units work.
std::string refuses_what_cannot_be_shared(mxs_comm *comm, int rank_count) {
  Units units;
  std::string complaint = units.make(comm, shared_model(rank_count), nullptr);
  if (!complaint.empty()) return complaint;
  mxs_optimizer *optimizer = nullptr;
  mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
  options.preset = MXS_PRESET_NORMUON;
  complaint = want(MXS_NOT_BUILT, mxs_optimizer_create(&optimizer, units.units.data(), 2, &options), "the optimizer");
  const std::string said = mxs_last_error();
  if (complaint.empty() && (optimizer || said.find("\"tall\"") == std::string::npos)) complaint = "it says: " + said;
  if (complaint.empty()) complaint = units.fill(1);
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1);
  return complaint;
}

std::string every_rank_refuses() {
  for (const int rank_count : {2, 3, 8}) {
    const std::string complaint =
        run_world(rank_count, [&](int, mxs_comm *comm) { return refuses_what_cannot_be_shared(comm, rank_count); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

// ---- a co-owner that is no more ----

constexpr int victim = 1;

// The victim ends after 40 ms of steps, in an agreement or in a sum of Gram matrices; the others are told and can
// destroy everything.
std::string is_told_of_a_death(int rank, mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, stepped_model(3, true), nullptr);
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  mxs_optimizer *optimizer = nullptr;
  complaint = want(MXS_OK, mxs_optimizer_create(&optimizer, units.units.data(), 2, nullptr), "the optimizer");
  if (!complaint.empty()) return complaint;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.groups = &values;
  step.group_count = 1;
  step.gradient_scale = 1e-3f;
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
    complaint = units.write_gradients(unit, 0, MXS_WRITE);
    if (complaint.empty())
      complaint = want(MXS_OK, mxs_unit_reduce(units.units[static_cast<size_t>(unit)], nullptr), "reduce");
  }
  if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_barrier(comm, nullptr), "the barrier");
  if (!complaint.empty()) return complaint;
  if (rank == victim) ualarm(40'000, 0);  // nobody catches it
  mxs_status status = MXS_OK;
  for (int number = 0; number < 100'000 && status == MXS_OK; number++)
    status = mxs_optimizer_step(optimizer, &step, nullptr);
  const std::string sentence = mxs_last_error();
  if (status != MXS_PEER_FAILED) return std::string("the status is ") + mxs_status_name(status) + ": " + sentence;
  if (sentence.find("rank 1") == std::string::npos) return "rank 1 is not named: " + sentence;
  if (mxs_optimizer_step(optimizer, &step, nullptr) == MXS_OK) return "a failed comm goes on";
  complaint = want(MXS_OK, mxs_optimizer_destroy(&optimizer), "destroying the optimizer");
  for (mxs_unit *&unit : units.units)
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_destroy(&unit), "destroying a unit");
  return complaint;
}

std::string deaths_are_told() {
  for (int turn = 0; turn < 3; turn++) {
    ProcessOptions options;
    options.may_die = victim;
    options.comm_timeout_seconds = 30;  // a death is noticed long before
    options.timeout_seconds = 60;
    const std::string complaint = run_processes(3, is_told_of_a_death, options);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

bool is_well(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void shared_matrices_are_gathered_and_reduced_in_every_world(void **) { assert_true(is_well(trains_in_every_world())); }
void shared_matrices_are_gathered_and_reduced_by_processes(void **) { assert_true(is_well(trains_as_processes())); }
void co_owners_step_as_one_owner_in_every_world(void **) { assert_true(is_well(steps_in_every_world())); }
void co_owners_step_as_one_owner_by_processes(void **) { assert_true(is_well(steps_as_processes())); }
void a_co_owner_that_ends_in_the_middle_of_a_step_is_named(void **) { assert_true(is_well(deaths_are_told())); }
void what_cannot_be_shared_is_refused_on_all_ranks(void **) { assert_true(is_well(every_rank_refuses())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(shared_matrices_are_gathered_and_reduced_in_every_world),
      cmocka_unit_test(shared_matrices_are_gathered_and_reduced_by_processes),
      cmocka_unit_test(co_owners_step_as_one_owner_in_every_world),
      cmocka_unit_test(co_owners_step_as_one_owner_by_processes),
      cmocka_unit_test(a_co_owner_that_ends_in_the_middle_of_a_step_is_named),
      cmocka_unit_test(what_cannot_be_shared_is_refused_on_all_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
