// SPDX-License-Identifier: Apache-2.0
// Reducing units: the owner's sum is bit for bit that of one process adding rank by rank; micro-batches; gradients that
// were never opened; ranks that skip; slots that are open or still being reduced.
#include <string>
#include <vector>

#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/unit_model.hpp"
#include "support/unit_ways.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

mxs_unit_options rank_order(const char *algorithm, int gradient_slots = 2) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.flags = MXS_RANK_ORDER;
  options.algorithm = algorithm;
  options.gradient_slots = gradient_slots;
  return options;
}

std::string reduce(Units &units, int index) {
  mxs_unit *unit = units.units[static_cast<size_t>(index)];
  // A unit without gradients has nothing to open, so it has nothing to reduce.
  if (info_of(unit).gradients_state != MXS_OPEN) return want(MXS_NOT_OPEN, mxs_unit_reduce(unit, nullptr), "reduce");
  return want(MXS_OK, mxs_unit_reduce(unit, nullptr), "mxs_unit_reduce");
}

// Backward passes of several micro-batches over all units; sums gather at the owners, and a step clears them.
std::string sums(mxs_comm *comm, const Model &model, const mxs_unit_options &options, int round_count) {
  Units units;
  std::string complaint = units.make(comm, model, &options);
  const int unit_count = static_cast<int>(units.units.size());
  for (int step = 0; step < 2 && complaint.empty(); step++) {
    for (int round = 0; round < round_count && complaint.empty(); round++)
      for (int unit = unit_count - 1; unit >= 0 && complaint.empty(); unit--) {
        complaint = units.write_gradients(unit, round, (round + unit) % 2 ? MXS_ADD : MXS_WRITE);
        if (complaint.empty()) complaint = reduce(units, unit);
      }
    for (int unit = 0; unit < unit_count && complaint.empty(); unit++) complaint = units.check_sums(unit, round_count);
    if (complaint.empty()) complaint = units.step(static_cast<uint64_t>(step) + 1);
  }
  return complaint;
}

std::string sums_in_every_world(const char *algorithm) {
  for (const int rank_count : world_sizes)
    for (const int round_count : {1, 3}) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        return sums(comm, odd_model(), rank_order(algorithm), round_count);
      });
      if (!complaint.empty())
        return std::to_string(rank_count) + " ranks, " + std::to_string(round_count) + " rounds, " + complaint;
    }
  return "";
}

std::string sums_in_every_dtype() {
  for (const mxs_dtype dtype : {MXS_F32, MXS_BF16, MXS_F16})
    for (const char *algorithm : {static_cast<const char *>(nullptr), "flat"}) {
      const std::string complaint = run_world(3, [&](int, mxs_comm *comm) {
        return sums(comm, plain_model(3, dtype), rank_order(algorithm), 2);
      });
      if (!complaint.empty()) return std::string(mxs_dtype_name(dtype)) + ", " + complaint;
    }
  return "";
}

std::string sums_as_processes() {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat"}) {
    const std::string complaint = run_processes(3, [&](int, mxs_comm *comm) {
      return sums(comm, odd_model(), rank_order(algorithm), 2);
    });
    if (!complaint.empty()) return std::string(algorithm ? algorithm : "cooperative") + ", " + complaint;
  }
  return "";
}

// Small whole numbers have one sum in any order, so the default order is right whatever it is.
std::string sums_in_default_order(mxs_comm *comm, const char *algorithm) {
  Units units;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.algorithm = algorithm;
  std::string complaint = units.make(comm, plain_model(2, MXS_BF16), &options);
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
    for (const int tensor : units.inner().units[static_cast<size_t>(unit)].tensors) {
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_gradient(units.units[static_cast<size_t>(unit)], tensor, MXS_WRITE, &view);
      if (status != MXS_OK) return failure("mxs_unit_gradient", status);
      for (uint64_t i = 0; i < view.bytes / 2; i++)
        write_value(view.data, view.dtype, i, static_cast<float>(units.rank + 1) + static_cast<float>(i % 8));
    }
    complaint = reduce(units, unit);
  }
  const int ranks = units.rank_count;
  for (mxs_unit *unit : units.units) {
    if (!complaint.empty()) return complaint;
    if (mxs_unit_wait_reduce(unit, nullptr) != MXS_OK) return failure("mxs_unit_wait_reduce", MXS_INTERNAL);
    for (const OwnedPlacement &owned : unit->owned())
      for (uint64_t i = 0; i < owned.element_count; i++)
        if (owned.gradient[i] != static_cast<float>(ranks * (ranks + 1) / 2) + static_cast<float>(ranks) * (i % 8))
          return "element " + std::to_string(i) + " is " + std::to_string(owned.gradient[i]);
  }
  return complaint;
}

// ADD keeps and adds until reduce; WRITE after ADD gives the same memory.
std::string accumulates_until_reduce(mxs_comm *comm) {
  Units units;
  const mxs_unit_options options = rank_order(nullptr, 1);
  std::string complaint = units.make(comm, plain_model(1), &options);
  for (int step = 0; step < 2 && complaint.empty(); step++) {
    for (int addend = 1; addend <= 3; addend++) {
      mxs_view view = MXS_VIEW_INIT;
      const mxs_status status = mxs_unit_gradient(units.units[0], 0, MXS_ADD, &view);
      if (status != MXS_OK) return failure("mxs_unit_gradient", status);
      for (uint64_t i = 0; i < view.bytes / 4; i++) static_cast<float *>(view.data)[i] += static_cast<float>(addend);
    }
    if (complaint.empty()) complaint = reduce(units, 0);
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(units.units[0], nullptr), "wait_reduce");
    if (!complaint.empty()) return complaint;
    for (const OwnedPlacement &owned : units.units[0]->owned())
      for (uint64_t i = 0; i < owned.element_count; i++)
        if (owned.gradient[i] != (owned.tensor == 0 ? 6.0f * static_cast<float>(units.rank_count) : 0.0f))
          return "tensor " + std::to_string(owned.tensor) + " sums to " + std::to_string(owned.gradient[i]);
    complaint = units.step(1);
  }
  return complaint;
}

std::string takes_callers_gradient(mxs_comm *comm) {
  Units units;
  const mxs_unit_options options = rank_order(nullptr);
  std::string complaint = units.make(comm, plain_model(1, MXS_BF16), &options);
  if (!complaint.empty()) return complaint;
  for (const int tensor : units.inner().units[0].tensors) {
    if (tensor % 5 == 3) continue;
    const PlannedTensor &planned = units.inner().tensors[static_cast<size_t>(tensor)];
    std::vector<uint16_t> mine(planned.element_count);
    for (uint64_t i = 0; i < mine.size(); i++) mine[i] = bf16_from_float(gradient_value(tensor, i, units.rank, 0));
    mxs_view view = MXS_VIEW_INIT;
    view.dtype = MXS_BF16;
    view.data = mine.data();
    view.bytes = mine.size() * 2;
    const mxs_status status = mxs_unit_gradient_set(units.units[0], tensor, &view);
    if (status != MXS_OK) return failure("mxs_unit_gradient_set", status);
    view.bytes -= 2;
    complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(units.units[0], tensor, &view), "short bytes");
    if (!complaint.empty()) return complaint;
    view.bytes += 2;
    view.dtype = MXS_F16;
    complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(units.units[0], tensor, &view), "another dtype");
    if (!complaint.empty()) return complaint;
  }
  complaint = reduce(units, 0);
  return complaint.empty() ? units.check_sums(0, 1) : complaint;
}

// The last rank takes no part in the last round.
std::string skips(mxs_comm *comm, const char *algorithm) {
  Units units;
  const mxs_unit_options options = rank_order(algorithm);
  std::string complaint = units.make(comm, odd_model(), &options);
  const int skipping = units.rank_count - 1;
  for (int round = 0; round < 2 && complaint.empty(); round++)
    for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); unit++) {
      mxs_unit *its = units.units[static_cast<size_t>(unit)];
      if (round == 1 && units.rank == skipping) {
        complaint = want(MXS_OK, mxs_unit_skip(its, nullptr), "mxs_unit_skip");
        continue;
      }
      complaint = units.write_gradients(unit, round, MXS_WRITE);
      if (complaint.empty() && info_of(its).gradients_state == MXS_OPEN)
        complaint = want(MXS_HELD, mxs_unit_skip(its, nullptr), "skipping what is open");
      if (complaint.empty()) complaint = reduce(units, unit);
    }
  for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); unit++)
    complaint = units.check_sums(unit, 2, skipping);
  return complaint;
}

// Two gradient slots: a third unit can't open before one is reduced, and then waits for that.
std::string keeps_within_gradient_slots(mxs_comm *comm) {
  Units units;
  const mxs_unit_options options = rank_order(nullptr, 2);
  std::string complaint = units.make(comm, plain_model(4), &options);
  if (complaint.empty()) complaint = units.write_gradients(0, 0, MXS_WRITE);
  if (complaint.empty()) complaint = units.write_gradients(2, 0, MXS_WRITE);  // its slot is open: takes the other
  if (!complaint.empty()) return complaint;
  mxs_view view = MXS_VIEW_INIT;
  complaint = want(MXS_OVER_BUDGET, mxs_unit_gradient(units.units[1], 4, MXS_WRITE, &view), "a third open unit");
  if (!complaint.empty()) return complaint;
  if (info_of(units.units[1]).gradients_state != MXS_EMPTY) return "a refused opening changes the state";
  complaint = reduce(units, 2);
  if (complaint.empty()) complaint = units.write_gradients(1, 0, MXS_WRITE);
  for (const int unit : {1, 0})
    if (complaint.empty()) complaint = reduce(units, unit);
  for (const int unit : {0, 1, 2})
    if (complaint.empty()) complaint = units.check_sums(unit, 1);
  return complaint;
}

std::string refuses_reduce_of_nothing(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, odd_model());
  if (!complaint.empty()) return complaint;
  for (mxs_unit *unit : units.units) {
    complaint = want(MXS_NOT_OPEN, mxs_unit_reduce(unit, nullptr), "reduce of nothing");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(unit, nullptr), "waiting for no reduce");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_skip(unit, nullptr), "skip");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(unit, nullptr), "waiting for a skip");
    if (complaint.empty()) complaint = want(MXS_NOT_OPEN, mxs_unit_reduce(unit, nullptr), "reduce after skip");
    if (!complaint.empty()) return complaint;
  }
  mxs_view view = MXS_VIEW_INIT;
  int32_t table = 0, tied = 0, head = 0;
  mxs_plan_find(units.plan, "table", &table);
  mxs_plan_find(units.plan, "tied", &tied);
  mxs_plan_find(units.plan, "head", &head);
  complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_gradient(units.units[3], table, MXS_WRITE, &view), "frozen");
  if (complaint.empty()) complaint = want(MXS_NOT_FOUND, mxs_unit_gradient(units.units[0], head, MXS_WRITE, &view), "");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_gradient(units.units[4], head, MXS_WRITE, &view), "head");
  void *data = view.data;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_gradient(units.units[4], tied, MXS_ADD, &view), "tied");
  if (complaint.empty() && view.data != data) complaint = "a tied tensor has a gradient of its own";
  if (complaint.empty()) complaint = reduce(units, 4);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(units.units[4], nullptr), "wait");
  return complaint;
}

template <class Body>
bool in_worlds(Body &&body) {
  for (const int rank_count : {1, 2, 3, 4})
    if (!good(run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm); }))) return false;
  return true;
}

void sums_are_bit_equal_in_every_world(void **) { assert_true(good(sums_in_every_world(nullptr))); }
void sums_by_messages_are_bit_equal_in_every_world(void **) { assert_true(good(sums_in_every_world("flat"))); }
void sums_are_bit_equal_in_every_dtype(void **) { assert_true(good(sums_in_every_dtype())); }
void sums_of_processes_are_bit_equal(void **) { assert_true(good(sums_as_processes())); }
void sums_are_right_in_the_default_order(void **) {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat", "chain"})
    assert_true(in_worlds([&](mxs_comm *comm) { return sums_in_default_order(comm, algorithm); }));
}
void add_accumulates_until_reduce(void **) { assert_true(in_worlds(accumulates_until_reduce)); }
void a_gradient_is_taken_from_callers_memory(void **) { assert_true(in_worlds(takes_callers_gradient)); }
void a_rank_that_skips_counts_as_zeros(void **) {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat"})
    assert_true(in_worlds([&](mxs_comm *comm) { return skips(comm, algorithm); }));
}
void open_units_keep_within_gradient_slots(void **) { assert_true(in_worlds(keeps_within_gradient_slots)); }
void a_reduce_of_nothing_is_refused(void **) { assert_true(in_worlds(refuses_reduce_of_nothing)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_bit_equal_in_every_world),
      cmocka_unit_test(sums_by_messages_are_bit_equal_in_every_world),
      cmocka_unit_test(sums_are_bit_equal_in_every_dtype),
      cmocka_unit_test(sums_of_processes_are_bit_equal),
      cmocka_unit_test(sums_are_right_in_the_default_order),
      cmocka_unit_test(add_accumulates_until_reduce),
      cmocka_unit_test(a_gradient_is_taken_from_callers_memory),
      cmocka_unit_test(a_rank_that_skips_counts_as_zeros),
      cmocka_unit_test(open_units_keep_within_gradient_slots),
      cmocka_unit_test(a_reduce_of_nothing_is_refused),
  };
  return cmocka_run_group_tests_name("unit reduce", tests, nullptr, nullptr);
}
