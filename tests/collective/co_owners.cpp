// SPDX-License-Identifier: Apache-2.0
// Units with matrices that ranks of a node share: gathered and reduced as any others, stepped by hand through their
// shards; the library's own step says alike on all ranks that it isn't built.
#include <string>
#include <vector>

#include "support/processes.hpp"
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
  for (const int rank_count : {2, 3, 4, 8}) {
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

std::string refuses_to_step(mxs_comm *comm, int rank_count) {
  Units units;
  std::string complaint = units.make(comm, shared_model(rank_count), nullptr);
  if (!complaint.empty()) return complaint;
  mxs_optimizer *optimizer = nullptr;
  complaint = want(MXS_NOT_BUILT, mxs_optimizer_create(&optimizer, units.units.data(), 2, nullptr), "the optimizer");
  const std::string said = mxs_last_error();
  if (complaint.empty() && (optimizer || said.find("\"tall\" is shared by") == std::string::npos))
    complaint = "it says: " + said;
  // Nothing is left behind: the units work.
  if (complaint.empty()) complaint = units.fill(1);
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1);
  return complaint;
}

std::string every_rank_refuses() {
  for (const int rank_count : {2, 3, 8}) {
    const std::string complaint =
        run_world(rank_count, [&](int, mxs_comm *comm) { return refuses_to_step(comm, rank_count); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

bool is_well(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void shared_matrices_are_gathered_and_reduced_in_every_world(void **) { assert_true(is_well(trains_in_every_world())); }
void shared_matrices_are_gathered_and_reduced_by_processes(void **) { assert_true(is_well(trains_as_processes())); }
void the_step_of_a_shared_matrix_is_refused_on_all_ranks(void **) { assert_true(is_well(every_rank_refuses())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(shared_matrices_are_gathered_and_reduced_in_every_world),
      cmocka_unit_test(shared_matrices_are_gathered_and_reduced_by_processes),
      cmocka_unit_test(the_step_of_a_shared_matrix_is_refused_on_all_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
