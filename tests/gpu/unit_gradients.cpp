// SPDX-License-Identifier: Apache-2.0
// Gradients of units in CUDA memory: the owner's sums have the bits of one process adding rank by rank; micro-batches,
// gradients that were never opened, ranks that skip, slots that go from unit to unit while they are being reduced, the
// caller's own gradients from host and device memory, steps on a stream.
#include <string>
#include <vector>

#include "gpu/gpu.hpp"
#include "gpu/unit_cases.hpp"
#include "support/complaints.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

mxs_unit_options ordered(int gradient_slots = 2) {
  mxs_unit_options options = cuda_options(2, MXS_RANK_ORDER);
  options.gradient_slots = gradient_slots;
  return options;
}

std::string reduce(DeviceUnits &units, int index) {
  const bool open = info_of(units.unit(index)).gradients_state == MXS_OPEN;
  return want(open ? MXS_OK : MXS_NOT_OPEN, units.reduce(index), "mxs_unit_reduce");
}

// A stream that the unit's gradients are ordered by: the one that waited for its weights last.
std::string open_on_main(DeviceUnits &units, int only = -1) {
  std::string complaint;
  for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); ++unit) {
    if (only >= 0 && unit != only) continue;
    complaint = want(MXS_OK, units.gather(unit), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, units.wait(unit), "wait");
    if (complaint.empty()) complaint = want(MXS_OK, units.release(unit), "release");
  }
  return complaint;
}

std::string sums(mxs_comm *comm, const Model &model, bool by_streams, int round_count, int gradient_slots = 2) {
  DeviceUnits units;
  std::string complaint = units.make(comm, model, Memory::copied, ordered(gradient_slots));
  if (!complaint.empty()) return complaint;
  if (by_streams) units.use_streams();
  const int unit_count = static_cast<int>(units.units.size());
  for (int step = 0; step < 2 && complaint.empty(); step++) {
    complaint = open_on_main(units);
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

std::string sums_in_every_world() {
  for (const int rank_count : world_sizes)
    for (const bool by_streams : {false, true}) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        return sums(comm, odd_model(), by_streams, rank_count > 4 ? 1 : 3);
      });
      if (!complaint.empty())
        return std::to_string(rank_count) + " ranks" + (by_streams ? ", streams, " : ", ") + complaint;
    }
  return "";
}

std::string sums_on_slow_streams() {
  if (!on_standin()) return "";
  for (const char *seed : {"1", "2"})
    for (const int gradient_slots : {1, 2}) {
      set_standin("MXS_STANDIN_SLOW", "300");
      set_standin("MXS_STANDIN_SLOW_SEED", seed);
      const std::string complaint = run_world(
          3, [&](int, mxs_comm *comm) { return sums(comm, plain_model(3, MXS_BF16), true, 2, gradient_slots); });
      set_standin("MXS_STANDIN_SLOW", nullptr);
      set_standin("MXS_STANDIN_SLOW_SEED", nullptr);
      if (!complaint.empty()) return std::string("seed ") + seed + ", " + complaint;
    }
  return "";
}

// Two openings with ADD add up, WRITE begins anew, and what was discarded isn't in the sum.
std::string accumulates_and_discards(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::copied, ordered(1));
  if (!complaint.empty()) return complaint;
  complaint = units.write_gradients(0, 7, MXS_WRITE);
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty())
    complaint = want(MXS_OVER_BUDGET, mxs_unit_gradient(units.unit(1), 4, MXS_WRITE, &view), "a second open unit");
  if (complaint.empty()) complaint = want(MXS_HELD, mxs_unit_skip(units.unit(0), nullptr), "skipping what is open");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(units.unit(0)), "discard");
  if (complaint.empty() && info_of(units.unit(0)).gradients_state != MXS_EMPTY) complaint = "discard leaves it open";
  if (complaint.empty()) complaint = units.write_gradients(1, 0, MXS_ADD);
  if (complaint.empty()) complaint = reduce(units, 1);
  if (complaint.empty()) complaint = units.write_gradients(0, 0, MXS_ADD);
  for (const int tensor : {0, 1}) {  // once more: what is there stays
    mxs_view again = MXS_VIEW_INIT;
    if (complaint.empty())
      complaint = want(MXS_OK, mxs_unit_gradient(units.unit(0), tensor, MXS_ADD, &again), "a second opening");
  }
  if (complaint.empty()) complaint = reduce(units, 0);
  for (const int unit : {0, 1})
    if (complaint.empty()) complaint = units.check_sums(unit, 1);
  return complaint;
}

// A unit's late writes into a slot that it has discarded don't spoil the next unit's, which are on another stream.
std::string discards_late_writes(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::copied, ordered(1));
  if (!complaint.empty()) return complaint;
  units.use_streams();
  const CUstream main = units.main, late = units.side;
  complaint = open_on_main(units);
  units.main = late;
  if (complaint.empty()) complaint = open_on_main(units, 0);
  if (complaint.empty()) complaint = units.synchronize(late);
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_gradient(units.unit(0), 0, MXS_WRITE, &view), "gradient");
  std::byte *place = nullptr;
  if (complaint.empty()) complaint = units.put(std::vector<std::byte>(view.bytes, std::byte{0x3f}), &place);
  for (int turn = 0; turn < 100; ++turn)
    if (complaint.empty()) complaint = units.copy(view.data, place, view.bytes, late);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(units.unit(0)), "discard");
  units.main = main;
  if (complaint.empty()) complaint = units.write_gradients(1, 0, MXS_WRITE);
  if (complaint.empty()) complaint = reduce(units, 1);
  return complaint.empty() ? units.check_sums(1, 1) : complaint;
}

std::string discards_on_slow_streams() {
  set_standin("MXS_STANDIN_SLOW", "1000");
  const std::string complaint = run_world(2, [](int, mxs_comm *comm) { return discards_late_writes(comm); });
  set_standin("MXS_STANDIN_SLOW", nullptr);
  return complaint;
}

// From host and from device memory.
std::string takes_callers_gradient(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(1, MXS_BF16), Memory::copied, ordered());
  for (const int tensor : {0, 1, 2}) {
    if (!complaint.empty()) return complaint;
    const PlannedTensor &planned = units.inner().tensors[static_cast<size_t>(tensor)];
    std::vector<uint16_t> mine(planned.element_count);
    for (uint64_t i = 0; i < mine.size(); i++) mine[i] = bf16_from_float(gradient_value(tensor, i, units.rank, 0));
    mxs_view view = MXS_VIEW_INIT;
    view.dtype = MXS_BF16;
    view.data = mine.data();
    view.bytes = mine.size() * 2;
    const OwnMemory there(view.bytes);
    if (tensor % 2) {
      complaint = units.copy(there.data(), mine.data(), view.bytes, nullptr);
      view.data = there.data();
    }
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_gradient_set(units.unit(0), tensor, &view), "set");
    std::fill(mine.begin(), mine.end(), uint16_t{0x7fff});  // it is the caller's again
    if (complaint.empty()) complaint = units.synchronize(units.main);
    view.bytes -= 2;
    if (complaint.empty())
      complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(units.unit(0), tensor, &view), "short bytes");
    view.bytes += 2;
    view.dtype = MXS_F16;
    if (complaint.empty())
      complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_gradient_set(units.unit(0), tensor, &view), "another dtype");
  }
  if (complaint.empty()) complaint = reduce(units, 0);
  return complaint.empty() ? units.check_sums(0, 1) : complaint;
}

std::string skips(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, odd_model(), Memory::copied, ordered());
  if (!complaint.empty()) return complaint;
  units.use_streams();
  complaint = open_on_main(units);
  const mxs_call call = DeviceUnits::on(units.main);
  const int skipping = units.rank_count - 1;
  for (int round = 0; round < 2 && complaint.empty(); round++)
    for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); unit++) {
      if (round == 1 && units.rank == skipping) {
        complaint = want(MXS_OK, mxs_unit_skip(units.unit(unit), &call), "mxs_unit_skip");
        continue;
      }
      complaint = units.write_gradients(unit, round, MXS_WRITE);
      if (complaint.empty()) complaint = reduce(units, unit);
    }
  for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); unit++)
    complaint = units.check_sums(unit, 2, skipping);
  for (int unit = 0; unit < static_cast<int>(units.units.size()) && complaint.empty(); unit++)
    complaint = want(MXS_OK, mxs_unit_wait_reduce(units.unit(unit), &call), "a stream's wait");
  return complaint;
}

// The sums go out on a stream: what it gets after mxs_unit_wait_reduce sees them, also while gradients are open again.
std::string waits_by_a_stream(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(1), Memory::copied, ordered());
  if (!complaint.empty()) return complaint;
  const OwnStream other;
  units.use_streams();
  complaint = open_on_main(units);
  if (complaint.empty()) complaint = units.write_gradients(0, 0, MXS_WRITE);
  if (complaint.empty()) complaint = reduce(units, 0);
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty())
    complaint = want(MXS_OK, mxs_unit_gradient(units.unit(0), 0, MXS_WRITE, &view), "the next opening");
  const mxs_call call = DeviceUnits::on(other.handle());
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(units.unit(0), &call), "a stream's wait");
  for (const OwnedPlacement &owned : units.unit(0)->owned()) {
    std::vector<float> found(owned.element_count);
    if (complaint.empty()) complaint = units.copy(found.data(), owned.gradient, found.size() * 4, other.handle());
    if (complaint.empty()) complaint = units.synchronize(other.handle());
    const uint64_t first = units.inner().placements[owned.placement].element_offset;
    const PlannedTensor &planned = units.inner().tensors[static_cast<size_t>(owned.tensor)];
    for (uint64_t i = 0; i < found.size() && complaint.empty(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < units.rank_count; ++rank)
        sum += Units::rounded_gradient(planned, owned.tensor, first + i, rank, 0);
      if (found[i] != sum) complaint = planned.name + ", element " + std::to_string(i) + " is too early";
    }
  }
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_discard(units.unit(0)), "discard");
  return complaint;
}

std::string waits_on_slow_streams() {
  set_standin("MXS_STANDIN_SLOW", "2000");
  const std::string complaint = run_world(2, [](int, mxs_comm *comm) { return waits_by_a_stream(comm); });
  set_standin("MXS_STANDIN_SLOW", nullptr);
  return complaint;
}

// A reduce that only a stream waits for is still under way when its unit is destroyed, which waits for it.
std::string ends_behind_a_stream(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::copied, ordered(2));
  if (!complaint.empty()) return complaint;
  units.use_streams();
  for (const int unit : {1, 0}) {
    if (complaint.empty()) complaint = units.write_gradients(unit, 0, MXS_WRITE);
    if (complaint.empty()) complaint = want(MXS_OK, units.reduce(unit), "reduce");
  }
  if (complaint.empty()) complaint = units.step(1);
  for (mxs_unit *&unit : units.units)
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_destroy(&unit), "destroying behind a stream");
  return complaint;
}

std::string ends_on_slow_streams() {
  for (const char *route : {"nccl", "messages"}) {
    setenv("MXS_ROUTE", route, 1);
    set_standin("MXS_STANDIN_SLOW", "3000");
    const std::string complaint = run_world(3, [](int, mxs_comm *comm) { return ends_behind_a_stream(comm); });
    set_standin("MXS_STANDIN_SLOW", nullptr);
    unsetenv("MXS_ROUTE");
    if (!complaint.empty()) return std::string(route) + ": " + complaint;
  }
  return "";
}

template <class Body>
std::string for_worlds(Body &&body) {
  for (const int rank_count : {1, 2, 3}) {
    const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

void sums_have_the_bits_of_rank_order_in_every_world(void **) { assert_true(good(sums_in_every_world())); }
void sums_on_slow_streams_have_them_too(void **) { assert_true(good(sums_on_slow_streams())); }
void openings_accumulate_and_are_discarded(void **) { assert_true(good(for_worlds(accumulates_and_discards))); }
void late_writes_that_were_discarded_spoil_nothing(void **) { assert_true(good(discards_on_slow_streams())); }
void gradients_come_from_host_and_device_memory(void **) { assert_true(good(for_worlds(takes_callers_gradient))); }
void ranks_that_skip_count_as_zero(void **) { assert_true(good(for_worlds(skips))); }
void a_stream_waits_for_the_sums(void **) { assert_true(good(waits_on_slow_streams())); }
void units_end_behind_a_stream_that_waits_for_sums(void **) { assert_true(good(ends_on_slow_streams())); }

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_have_the_bits_of_rank_order_in_every_world),
      cmocka_unit_test(sums_on_slow_streams_have_them_too),
      cmocka_unit_test(openings_accumulate_and_are_discarded),
      cmocka_unit_test(late_writes_that_were_discarded_spoil_nothing),
      cmocka_unit_test(gradients_come_from_host_and_device_memory),
      cmocka_unit_test(ranks_that_skip_count_as_zero),
      cmocka_unit_test(a_stream_waits_for_the_sums),
      cmocka_unit_test(units_end_behind_a_stream_that_waits_for_sums),
  };
  return cmocka_run_group_tests_name("gradients of units in CUDA memory", tests, nullptr, nullptr);
}
