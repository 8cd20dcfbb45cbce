// SPDX-License-Identifier: Apache-2.0
// Gathering units: every byte on every rank, by copy, by reference and by messages, as threads and as processes; fixed
// addresses; prefetch; pins; slots that are held; the order of commit and first read.
#include <csetjmp>
#include <csignal>
#include <cstdlib>
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

// Some steps of a training run, with prefetch one unit ahead: forward, backward, new weights.
std::string train(mxs_comm *comm, const Model &model, const mxs_unit_options &options, int step_count) {
  Units units;
  std::string complaint = units.make(comm, model, &options);
  if (complaint.empty()) complaint = units.fill(0);
  const int unit_count = static_cast<int>(units.units.size());
  std::vector<const void *> addresses;
  for (int step = 0; step < step_count && complaint.empty(); step++) {
    const auto version = static_cast<uint64_t>(step);
    std::vector<int> order;
    for (int unit = 0; unit < unit_count; unit++) order.push_back(unit);
    for (int unit = unit_count - 1; unit >= 0; unit--) order.push_back(unit);
    if (mxs_unit_gather(units.units[0], nullptr) != MXS_OK) return failure("the first gather", MXS_INTERNAL);
    for (size_t turn = 0; turn < order.size() && complaint.empty(); turn++) {
      mxs_unit *unit = units.units[static_cast<size_t>(order[turn])];
      if (turn + 1 < order.size()) {
        const mxs_status status = mxs_unit_gather(units.units[static_cast<size_t>(order[turn + 1])], nullptr);
        if (status != MXS_OK) return failure("the prefetch of unit " + std::to_string(order[turn + 1]), status);
      }
      mxs_status status = mxs_unit_wait(unit, nullptr);
      if (status != MXS_OK) return failure("mxs_unit_wait", status);
      complaint = units.check(order[turn], version);
      status = mxs_unit_release(unit, MXS_FREE, nullptr);
      if (status != MXS_OK) return failure("mxs_unit_release", status);
    }
    if (complaint.empty()) complaint = units.step(version + 1);
    for (size_t unit = 0; unit < units.units.size(); unit++) {
      mxs_unit_info info = MXS_UNIT_INFO_INIT;
      if (mxs_unit_query(units.units[unit], &info) != MXS_OK) return "mxs_unit_query";
      if (info.generation != 2 + version) return "the generation is " + std::to_string(info.generation);
      if (step == 0) addresses.push_back(info.address);
      if (info.address != addresses[unit]) return "the address of a unit has changed";
    }
    if (!complaint.empty()) complaint = "step " + std::to_string(step) + ": " + complaint;
  }
  return complaint;
}

std::string trains_in_every_world() {
  for (const int rank_count : world_sizes)
    for (const Way &way : ways) {
      // Without peers there is no node to share.
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        return train(comm, odd_model(), options_of(way), rank_count > 4 ? 2 : 4);
      });
      if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + way.name + ", " + complaint;
    }
  return "";
}

std::string trains_as_processes() {
  for (const int rank_count : {2, 3})
    for (const Way &way : ways) {
      const std::string complaint = run_processes(rank_count, [&](int, mxs_comm *comm) {
        return train(comm, odd_model(), options_of(way), 3);
      });
      if (!complaint.empty()) return std::to_string(rank_count) + " processes, " + way.name + ", " + complaint;
    }
  return "";
}

uint64_t remaps(mxs_comm *comm) {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  return stats.slot_remaps;
}

// 50 steps with two slots, one unit ahead: nobody finds his slot held.
std::string keeps_addresses(mxs_comm *comm) {
  mxs_unit_options options = options_of(ways[0]);
  const std::string complaint = train(comm, plain_model(5), options, 50);
  if (!complaint.empty()) return complaint;
  return remaps(comm) == 0 ? "" : std::to_string(remaps(comm)) + " remaps in the ordinary order";
}

// Every rank's pieces, megabytes of them, so that there are 2 MiB pages and many chunks.
std::string gathers_large_units(mxs_comm *comm) {
  return train(comm, plain_model(3, MXS_BF16, 512, 1024), options_of(ways[0]), 2);
}

// Gathers of a unit that is gathering or whole count up and send nothing; each wants its release.
std::string counts_gathers(mxs_comm *comm, const Way &way) {
  Units units;
  const mxs_unit_options options = options_of(way);
  std::string complaint = units.make(comm, plain_model(2), &options);
  if (complaint.empty()) complaint = units.fill(3);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[1];
  for (int turn = 0; turn < 3; turn++)
    if (mxs_unit_gather(unit, nullptr) != MXS_OK) return failure("gather", MXS_INTERNAL);
  if (info_of(unit).weights_state != MXS_GATHERING || info_of(unit).holders != 3) return "three gathers aren't counted";
  mxs_view view = MXS_VIEW_INIT;
  complaint = want(MXS_NOT_GATHERED, mxs_unit_tensor(unit, 4, &view), "a view before the wait");
  if (!complaint.empty()) return complaint;
  if (mxs_unit_wait(unit, nullptr) != MXS_OK) return failure("wait", MXS_INTERNAL);
  if (mxs_unit_gather(unit, nullptr) != MXS_OK) return failure("gather when whole", MXS_INTERNAL);
  for (int holders = 4; holders > 0; holders--) {
    if (info_of(unit).holders != holders || info_of(unit).weights_state != MXS_WHOLE) return "holders are miscounted";
    complaint = units.check(1, 3);
    if (!complaint.empty()) return complaint;
    if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("release", MXS_INTERNAL);
  }
  if (info_of(unit).weights_state != MXS_SHARDED) return "the last release doesn't end it";
  complaint = want(MXS_NOT_GATHERED, mxs_unit_release(unit, MXS_FREE, nullptr), "one release too many");
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, mxs_unit_wait(unit, nullptr), "a wait without a gather");
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, mxs_unit_tensor(unit, 4, &view), "a view after release");
  if (!complaint.empty()) return complaint;
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  const uint64_t calls = stats.counters[MXS_GATHER][MXS_PHASE_OTHER].calls;
  return calls == 1 ? "" : std::to_string(calls) + " gathers were counted, not 1";
}

// A pinned unit is revived at its address without traffic; a release with MXS_FREE or a step ends the pin.
std::string revives_pins(mxs_comm *comm, const Way &way) {
  Units units;
  const mxs_unit_options options = options_of(way);
  std::string complaint = units.make(comm, plain_model(3), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (complaint.empty()) complaint = units.gather_and_check(1, 1, MXS_PIN);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[1];
  if (info_of(unit).weights_state != MXS_PINNED || info_of(unit).holders != 0) return "it isn't pinned";
  mxs_comm_stats before = MXS_COMM_STATS_INIT, after = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &before);
  mxs_view view = MXS_VIEW_INIT;
  complaint = want(MXS_NOT_GATHERED, mxs_unit_tensor(unit, 4, &view), "a view of what is only pinned");
  if (complaint.empty()) complaint = want(MXS_HELD, mxs_unit_shard(unit, 4, &view), "a shard of what is pinned");
  if (complaint.empty()) complaint = units.gather_and_check(1, 1, MXS_PIN);
  mxs_comm_query_stats(comm, &after);
  if (!complaint.empty()) return complaint;
  if (after.counters[MXS_GATHER][0].calls != before.counters[MXS_GATHER][0].calls) return "a revival sends";
  if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return failure("ending a pin", MXS_INTERNAL);
  if (info_of(unit).weights_state != MXS_SHARDED) return "MXS_FREE doesn't end the pin";
  complaint = want(MXS_NOT_GATHERED, mxs_unit_release(unit, MXS_FREE, nullptr), "ending it twice");
  if (complaint.empty()) complaint = units.gather_and_check(1, 1, MXS_PIN);
  if (complaint.empty()) complaint = units.step(2);
  if (!complaint.empty()) return complaint;
  if (info_of(unit).weights_state != MXS_SHARDED) return "a step doesn't end the pin";
  return units.gather_and_check(1, 2);
}

// AUTO pins the last units of the plan, as many as there are slots beyond two.
std::string pins_the_last_units(mxs_comm *comm) {
  Units units;
  const mxs_unit_options options = options_of(ways[0], 4);
  std::string complaint = units.make(comm, plain_model(6), &options);
  if (complaint.empty()) complaint = units.fill(1);
  for (int unit = 0; unit < 6 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1, MXS_AUTO);
  for (int unit = 0; unit < 6 && complaint.empty(); unit++) {
    const int wanted = unit >= 4 ? MXS_PINNED : MXS_SHARDED;
    if (info_of(units.units[static_cast<size_t>(unit)]).weights_state != wanted) complaint = "AUTO pins wrong units";
  }
  for (int unit = 5; unit >= 0 && complaint.empty(); unit--) complaint = units.gather_and_check(unit, 1, MXS_FREE);
  if (complaint.empty() && remaps(comm) != 0) complaint = "AUTO causes remaps";
  return complaint;
}

// Units 0 and 2 have the same slot of two: the second takes the spare one; a third finds none.
std::string takes_spare_slots(mxs_comm *comm, const Way &way) {
  Units units;
  const mxs_unit_options options = options_of(way);
  std::string complaint = units.make(comm, plain_model(5), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  const auto &unit = units.units;
  const void *address = info_of(unit[2]).address;
  if (mxs_unit_gather(unit[0], nullptr) != MXS_OK) return failure("gather 0", MXS_INTERNAL);
  if (mxs_unit_gather(unit[2], nullptr) != MXS_OK) return failure("gather 2", MXS_INTERNAL);
  if (remaps(comm) != 1) return "the remap isn't counted";
  for (const int third : {1, 3, 4}) {
    complaint = want(MXS_OVER_BUDGET, mxs_unit_gather(unit[static_cast<size_t>(third)], nullptr), "a third unit");
    if (complaint.empty() && info_of(unit[static_cast<size_t>(third)]).weights_state != MXS_SHARDED)
      complaint = "a refused gather changes the state";
    if (!complaint.empty()) return complaint;
  }
  for (const int held : {0, 2}) {
    if (mxs_unit_wait(unit[static_cast<size_t>(held)], nullptr) != MXS_OK) return failure("wait", MXS_INTERNAL);
    complaint = units.check(held, 1);
    if (!complaint.empty()) return complaint;
  }
  if (info_of(unit[2]).address != address) return "a remap changes the address";
  for (const int held : {0, 2})
    if (mxs_unit_release(unit[static_cast<size_t>(held)], MXS_FREE, nullptr) != MXS_OK) return "release";
  // It stays where it is: no further remap.
  complaint = units.gather_and_check(2, 1);
  if (complaint.empty()) complaint = units.gather_and_check(4, 1);
  if (complaint.empty() && remaps(comm) != 1) complaint = "a unit doesn't stay on the slot it was given";
  return complaint;
}

// Released without a wait: the gather must still end before the slot is taken again.
std::string releases_without_a_wait(mxs_comm *comm, const Way &way) {
  Units units;
  const mxs_unit_options options = options_of(way, 1);
  std::string complaint = units.make(comm, plain_model(3), &options);
  if (complaint.empty()) complaint = units.fill(1);
  for (int turn = 0; turn < 20 && complaint.empty(); turn++) {
    const int other = turn % 3;
    if (mxs_unit_gather(units.units[static_cast<size_t>(other)], nullptr) != MXS_OK) return "gather";
    if (mxs_unit_release(units.units[static_cast<size_t>(other)], MXS_FREE, nullptr) != MXS_OK) return "release";
    complaint = units.gather_and_check((turn + 1) % 3, 1);
  }
  return complaint;
}

// A range in the caller's memory takes no slot.
std::string gathers_into_callers_memory(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, plain_model(2));  // for the layout's bytes
  if (!complaint.empty()) return complaint;
  const uint64_t bytes = info_of(units.units[0]).bytes;
  for (mxs_unit *&unit : units.units)
    if (mxs_unit_destroy(&unit) != MXS_OK) return failure("mxs_unit_destroy", MXS_INTERNAL);
  units.units.clear();
  void *memory[2] = {std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096),
                     std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096)};
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  for (int index = 0; index < 2 && complaint.empty(); index++) {
    std::memset(memory[index], 0xee, bytes);
    mxs_unit *unit = nullptr;
    options.buffer = memory[index];
    options.slots = 1;
    const mxs_status status = mxs_unit_create(&unit, comm, units.plan, index, &options);
    if (status != MXS_OK) complaint = failure("mxs_unit_create", status);
    else units.units.push_back(unit);
  }
  if (complaint.empty()) complaint = units.fill(5);
  for (int index = 0; index < 2 && complaint.empty(); index++) {
    mxs_unit *unit = units.units[static_cast<size_t>(index)];
    if (info_of(unit).address != memory[index]) complaint = "the range is not the caller's buffer";
    else if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK)
      complaint = failure("gather", MXS_INTERNAL);
    else
      complaint = units.check(index, 5);
  }
  for (size_t index = 0; index < units.units.size(); index++) mxs_unit_release(units.units[index], MXS_FREE, nullptr);
  for (mxs_unit *&unit : units.units) mxs_unit_destroy(&unit);
  units.units.clear();
  std::free(memory[0]);
  std::free(memory[1]);
  return complaint;
}

// ---- MXS_DEBUG_VIEWS=1 ----

sigjmp_buf before_read;

void jump_back(int) { siglongjmp(before_read, 1); }

// Does reading one byte fault?
bool faults(const void *place) {
  struct sigaction action {}, old {};
  action.sa_handler = jump_back;
  sigaction(SIGSEGV, &action, &old);
  volatile bool faulted = true;
  if (sigsetjmp(before_read, 1) == 0) {
    static_cast<void>(*static_cast<const volatile char *>(place));
    faulted = false;
  }
  sigaction(SIGSEGV, &old, nullptr);
  return faulted;
}

// A view of another rank's bytes faults before gather and after release, and is whole in between; one's own stays.
std::string stale_reads_fault(mxs_comm *comm, const Way &way, int own_slot) {
  Units units;
  mxs_unit_options options = options_of(way);
  options.own_slot = own_slot;
  std::string complaint = units.make(comm, plain_model(3), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[1];
  const auto *range = static_cast<const char *>(info_of(unit).address);
  for (int turn = 0; turn < 3; turn++) {
    for (const uint64_t number : units.inner().units[1].placements) {
      const Placement &piece = units.inner().placements[number];
      if (faults(range + piece.weight_offset) != (piece.owner != units.rank)) return "a released view doesn't fault";
    }
    complaint = units.gather_and_check(1, 1, turn == 1 ? MXS_PIN : MXS_FREE);
    if (!complaint.empty()) return complaint;
    if (turn == 1) complaint = units.gather_and_check(1, 1);
    if (!complaint.empty()) return complaint;
  }
  return complaint;
}

std::string debugs_views() {
  ProcessOptions options;
  options.environment = {"MXS_DEBUG_VIEWS=1"};
  for (const Way &way : ways)
    for (const int own_slot : {0, 1}) {
      const std::string complaint =
          run_processes(2, [&](int, mxs_comm *comm) { return stale_reads_fault(comm, way, own_slot); }, options);
      if (!complaint.empty()) return std::string(way.name) + ", " + complaint;
    }
  return "";
}

template <class Body>
std::string for_every_way(Body &&body) {
  for (const int rank_count : {1, 2, 4})
    for (const Way &way : ways) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm, way); });
      if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + way.name + ", " + complaint;
    }
  return "";
}

// Slots are a matter of copies; by reference there are none.
template <class Body>
std::string for_every_copy(Body &&body) {
  return for_every_way([&](mxs_comm *comm, const Way &way) {
    return way.gather == MXS_GATHER_BY_REFERENCE ? "" : body(comm, way);
  });
}

void every_rank_sees_every_byte_in_every_world(void **) { assert_true(good(trains_in_every_world())); }
void every_process_sees_every_byte(void **) { assert_true(good(trains_as_processes())); }
void addresses_never_change_over_50_steps(void **) {
  assert_true(good(run_world(3, [](int, mxs_comm *comm) { return keeps_addresses(comm); })));
}
void large_units_are_gathered(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return gathers_large_units(comm); })));
}
void gathers_are_counted_and_paired(void **) { assert_true(good(for_every_way(counts_gathers))); }
void pins_are_revived_and_end(void **) { assert_true(good(for_every_way(revives_pins))); }
void auto_pins_the_last_units(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return pins_the_last_units(comm); })));
}
void a_held_slot_is_replaced_by_a_spare_one(void **) { assert_true(good(for_every_copy(takes_spare_slots))); }
void a_release_without_a_wait_is_safe(void **) { assert_true(good(for_every_way(releases_without_a_wait))); }
void units_live_in_callers_memory(void **) {
  for (const int rank_count : {1, 2, 3})
    assert_true(good(run_world(rank_count, [](int, mxs_comm *comm) { return gathers_into_callers_memory(comm); })));
}

void released_views_fault_when_asked_for(void **) { assert_true(good(debugs_views())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_sees_every_byte_in_every_world),
      cmocka_unit_test(every_process_sees_every_byte),
      cmocka_unit_test(addresses_never_change_over_50_steps),
      cmocka_unit_test(large_units_are_gathered),
      cmocka_unit_test(gathers_are_counted_and_paired),
      cmocka_unit_test(pins_are_revived_and_end),
      cmocka_unit_test(auto_pins_the_last_units),
      cmocka_unit_test(a_held_slot_is_replaced_by_a_spare_one),
      cmocka_unit_test(a_release_without_a_wait_is_safe),
      cmocka_unit_test(units_live_in_callers_memory),
      cmocka_unit_test(released_views_fault_when_asked_for),
  };
  return cmocka_run_group_tests_name("unit gather", tests, nullptr, nullptr);
}
