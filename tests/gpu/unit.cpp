// SPDX-License-Identifier: Apache-2.0
// Units in CUDA memory: every byte on every rank, mapped and copied, by the legacy default stream and by streams of the
// caller's with prefetch on a side stream; sums with the bits of host units; states, pins, slots, own slots, buffers.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu.hpp"
#include "gpu/unit_cases.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr Memory memories[] = {Memory::mapped, Memory::copied};
const char *name_of(Memory memory) { return memory == Memory::mapped ? "mapped" : "copied"; }

// ---- training ----

// Forward and backward over all units, one ahead on the side stream; what the stream sees is compared after the step.
std::string forward_and_backward(DeviceUnits &units, uint64_t version, std::vector<DeviceUnits::Seen> *seen) {
  const int unit_count = static_cast<int>(units.units.size());
  std::vector<int> order;
  for (int unit = 0; unit < unit_count; unit++) order.push_back(unit);
  for (int unit = unit_count - 1; unit >= 0; unit--) order.push_back(unit);
  std::string complaint = want(MXS_OK, units.gather(0), "the first gather");
  for (size_t turn = 0; turn < order.size() && complaint.empty(); turn++) {
    if (turn + 1 < order.size()) complaint = want(MXS_OK, units.gather(order[turn + 1]), "a prefetch");
    if (complaint.empty()) complaint = want(MXS_OK, units.wait(order[turn]), "wait");
    if (complaint.empty()) complaint = units.look(order[turn], version, units.main, &seen->emplace_back());
    if (complaint.empty()) complaint = want(MXS_OK, units.release(order[turn]), "release");
  }
  return complaint;
}

// The host goes through all steps, and looks at what the stream has seen at the end.
std::string train(DeviceUnits &units, int step_count) {
  std::vector<const void *> addresses;
  std::vector<DeviceUnits::Seen> seen;
  seen.reserve(static_cast<size_t>(2 * step_count) * units.units.size());
  std::string complaint = units.fill(0);
  for (int step = 0; step < step_count && complaint.empty(); step++) {
    const auto version = static_cast<uint64_t>(step);
    complaint = forward_and_backward(units, version, &seen);
    // A step on the stream that has read is in order without us, so every other one is on the other.
    if (step % 2 == 0 && units.main) std::swap(units.main, units.side);
    if (complaint.empty()) complaint = units.step(version + 1);
    if (step % 2 == 0 && units.main) std::swap(units.main, units.side);
    for (size_t unit = 0; unit < units.units.size() && complaint.empty(); unit++) {
      const mxs_unit_info info = info_of(units.units[unit]);
      if (info.generation != 2 + version) complaint = "the generation is " + std::to_string(info.generation);
      if (step == 0) addresses.push_back(info.address);
      if (info.address != addresses[unit]) complaint = "the address of a unit has changed";
    }
    if (!complaint.empty()) complaint = "step " + std::to_string(step) + ": " + complaint;
  }
  for (const CUstream stream : {units.main, units.side})
    if (complaint.empty()) complaint = units.synchronize(stream);
  for (const DeviceUnits::Seen &each : seen)
    if (complaint.empty()) complaint = units.compare(each);
  return complaint;
}

std::string train(mxs_comm *comm, const Model &model, Memory memory, bool by_streams, int step_count) {
  DeviceUnits units;
  std::string complaint = units.make(comm, model, memory, cuda_options());
  if (!complaint.empty()) return complaint;
  if (by_streams) units.use_streams();
  complaint = train(units, step_count);
  if (complaint.empty() && remaps_of(comm) != 0) complaint = "there were remaps";
  return complaint;
}

std::string trains_in_every_world() {
  for (const int rank_count : world_sizes)
    for (const Memory memory : memories)
      for (const bool by_streams : {false, true}) {
        if (!by_streams && rank_count > 3) continue;
        const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
          return train(comm, odd_model(), memory, by_streams, rank_count > 4 ? 2 : 3);
        });
        if (!complaint.empty())
          return std::to_string(rank_count) + " ranks, " + name_of(memory) + (by_streams ? ", streams, " : ", ") +
                 complaint;
      }
  return "";
}

// As processes, by each route; and a forked child is told that the unit is its parent's.
std::string trains_and_forks(mxs_comm *comm) {
  std::string complaint = train(comm, odd_model(), Memory::mapped, true, 2);
  if (complaint.empty()) complaint = train(comm, odd_model(), Memory::copied, true, 2);
  DeviceUnits units;
  if (complaint.empty()) complaint = units.make(comm, plain_model(1), Memory::copied, cuda_options());
  if (!complaint.empty()) return complaint;
  const pid_t child = fork();
  if (child == 0) _exit(mxs_unit_gather(units.unit(0), nullptr) == MXS_FORKED ? 0 : 1);
  int result = 0;
  waitpid(child, &result, 0);
  return result == 0 ? "" : "a forked child isn't told";
}

std::string trains_by_every_route() {
  const struct {
    const char *route;
    std::vector<int> nodes;
  } routes[] = {{"nccl", {}}, {"messages", {}}, {"levels", {0, 0, 1, 1}}};
  for (const auto &[route, nodes] : routes) {
    ProcessOptions options;
    options.environment = {std::string("MXS_ROUTE=") + route};
    options.nodes = nodes;
    const std::string complaint = run_processes(
        nodes.empty() ? 2 : 4, [](int, mxs_comm *comm) { return trains_and_forks(comm); }, options);
    if (!complaint.empty()) return std::string(route) + ", " + complaint;
  }
  return "";
}

// The same where every job on a stream sleeps first, so that work that isn't ordered comes in another order.
std::string trains_on_slow_streams() {
  if (!on_standin()) return "";
  for (const char *seed : {"1", "2"})
    for (const Memory memory : memories) {
      set_standin("MXS_STANDIN_SLOW", "300");
      set_standin("MXS_STANDIN_SLOW_SEED", seed);
      const std::string complaint =
          run_world(2, [&](int, mxs_comm *comm) { return train(comm, plain_model(4), memory, true, 3); });
      set_standin("MXS_STANDIN_SLOW", nullptr);
      set_standin("MXS_STANDIN_SLOW_SEED", nullptr);
      if (!complaint.empty()) return std::string("seed ") + seed + ", " + name_of(memory) + ", " + complaint;
    }
  return "";
}

// The mistake that the above would show: a stream that reads without having waited sees something else.
std::string sees_a_missing_wait(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::mapped, cuda_options());
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  const OwnStream other;
  DeviceUnits::Seen seen;
  complaint = want(MXS_OK, units.gather(0), "gather");
  if (complaint.empty()) complaint = want(MXS_OK, units.wait(0), "wait");  // by main alone
  if (complaint.empty()) complaint = units.look(0, 1, other.handle(), &seen);
  if (complaint.empty()) complaint = units.synchronize(other.handle());
  if (complaint.empty() && units.compare(seen).empty()) complaint = "a stream that hasn't waited sees the weights";
  DeviceUnits::Seen ordered;
  const mxs_call call = DeviceUnits::on(other.handle());
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait(units.unit(0), &call), "a second stream's wait");
  if (complaint.empty()) complaint = units.look(0, 1, other.handle(), &ordered);
  if (complaint.empty()) complaint = units.synchronize(other.handle());
  if (complaint.empty()) complaint = units.compare(ordered);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_release(units.unit(0), MXS_FREE, &call), "release");
  return complaint;
}

std::string shows_mistakes() {
  if (!on_standin()) return "";
  set_standin("MXS_STANDIN_SLOW", "3000");
  set_standin("MXS_STANDIN_SLOW_STREAMS", nullptr);
  const std::string complaint = run_world(2, [](int, mxs_comm *comm) { return sees_a_missing_wait(comm); });
  set_standin("MXS_STANDIN_SLOW", nullptr);
  return complaint;
}

// What a stream has written into a shard before it gathers is what others see, also where it is copied first.
std::string gathers_what_the_stream_wrote(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(1), memory, cuda_options());
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  for (const OwnedPlacement &owned : units.unit(0)->owned()) {
    const uint64_t first = units.inner().placements[owned.placement].element_offset;
    const auto bytes = units.weights_of(owned.tensor, owned.dtype, first, owned.element_count, 2);
    std::byte *place = nullptr;
    if (complaint.empty()) complaint = units.put(bytes, &place);
    for (int turn = 0; turn < 4; ++turn)
      if (complaint.empty()) complaint = units.copy(owned.weights, place, bytes.size(), units.side);
  }
  return complaint.empty() ? units.gather_and_check(0, 2) : complaint;
}

std::string gathers_late_writes() {
  set_standin("MXS_STANDIN_SLOW", "1000");
  std::string complaint;
  for (const Memory memory : memories)
    if (complaint.empty())
      complaint = run_world(2, [&](int, mxs_comm *comm) { return gathers_what_the_stream_wrote(comm, memory); });
  set_standin("MXS_STANDIN_SLOW", nullptr);
  return complaint;
}

// ---- states ----

std::string counts_gathers(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), memory, cuda_options());
  if (complaint.empty()) complaint = units.fill(3);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  mxs_unit *unit = units.unit(1);
  for (int turn = 0; turn < 3 && complaint.empty(); turn++) complaint = want(MXS_OK, units.gather(1), "gather");
  if (complaint.empty() && (info_of(unit).weights_state != MXS_GATHERING || info_of(unit).holders != 3))
    complaint = "three gathers aren't counted";
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, mxs_unit_tensor(unit, 4, &view), "a view before the wait");
  if (complaint.empty()) complaint = want(MXS_OK, units.wait(1), "wait");
  for (int holders = 3; holders > 0 && complaint.empty(); holders--) {
    if (info_of(unit).holders != holders || info_of(unit).weights_state != MXS_WHOLE) return "holders are miscounted";
    complaint = want(MXS_HELD, mxs_unit_shard(unit, 4, &view), "a shard of what is gathered");
    if (complaint.empty()) complaint = units.check(1, 3);
    mxs_unit *handle = unit;
    if (complaint.empty()) complaint = want(MXS_HELD, mxs_unit_destroy(&handle), "destroying what is held");
    if (complaint.empty()) complaint = want(MXS_OK, units.release(1), "release");
  }
  if (complaint.empty() && info_of(unit).weights_state != MXS_SHARDED) complaint = "the last release doesn't end it";
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, units.release(1), "one release too many");
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, units.wait(1), "a wait without a gather");
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, mxs_unit_tensor(unit, 4, &view), "a view after release");
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  const uint64_t calls = stats.counters[MXS_GATHER][MXS_PHASE_OTHER].calls;
  return complaint.empty() && calls != 1 ? std::to_string(calls) + " gathers were counted, not 1" : complaint;
}

std::string revives_pins(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(6), memory, cuda_options(4));
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  complaint = units.gather_and_check(1, 1, MXS_PIN);
  if (complaint.empty() && info_of(units.unit(1)).weights_state != MXS_PINNED) complaint = "it isn't pinned";
  if (complaint.empty()) complaint = units.gather_and_check(1, 1, MXS_PIN);
  if (complaint.empty()) complaint = units.step(2);
  if (complaint.empty() && info_of(units.unit(1)).weights_state != MXS_SHARDED) complaint = "a step keeps the pin";
  for (int unit = 0; unit < 6 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 2, MXS_AUTO);
  for (int unit = 0; unit < 6 && complaint.empty(); unit++)
    if (info_of(units.unit(unit)).weights_state != (unit >= 4 ? MXS_PINNED : MXS_SHARDED))
      complaint = "AUTO pins wrong units";
  if (complaint.empty()) complaint = want(MXS_OK, units.release(5), "ending a pin");
  if (complaint.empty()) complaint = want(MXS_NOT_GATHERED, units.release(5), "ending it twice");
  for (int unit = 4; unit < 6 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 2);
  return complaint.empty() && remaps_of(comm) != 0 ? "there were remaps" : complaint;
}

// Units 0 and 2 have the same slot of two. Mapped: the second takes the spare one. Copied: it has no other address.
std::string finds_slots_held(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(5), memory, cuda_options());
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  const void *const address = info_of(units.unit(2)).address;
  complaint = want(MXS_OK, units.gather(0), "gather 0");
  const bool spare = info_of(units.unit(2)).pages == std::string("mapped");
  if (complaint.empty()) complaint = want(spare ? MXS_OK : MXS_OVER_BUDGET, units.gather(2), "gather 2");
  if (complaint.empty() && remaps_of(comm) != (spare ? 1u : 0u)) complaint = "the remap isn't counted";
  if (spare && complaint.empty()) complaint = want(MXS_OVER_BUDGET, units.gather(1), "a third unit");
  if (complaint.empty() && info_of(units.unit(1)).weights_state != MXS_SHARDED) complaint = "a refusal changes a state";
  for (const int held : spare ? std::vector<int>{0, 2} : std::vector<int>{0}) {
    if (complaint.empty()) complaint = want(MXS_OK, units.wait(held), "wait");
    if (complaint.empty()) complaint = units.check(held, 1);
  }
  if (complaint.empty() && info_of(units.unit(2)).address != address) complaint = "a remap changes the address";
  if (complaint.empty()) complaint = want(MXS_OK, units.release(0), "release");
  if (complaint.empty() && spare) complaint = want(MXS_OK, units.release(2), "release");
  for (const int turn : {2, 4, 2, 0})
    if (complaint.empty()) complaint = units.gather_and_check(turn, 1);
  if (complaint.empty() && remaps_of(comm) != (spare ? 1u : 0u)) complaint = "a unit doesn't stay where it was put";
  return complaint;
}

std::string releases_without_a_wait(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(3), memory, cuda_options(1));
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  for (int turn = 0; turn < 100 && complaint.empty(); turn++) {  // more than the comm has in flight
    complaint = want(MXS_OK, units.gather(turn % 3), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, units.release(turn % 3), "release");
    if (complaint.empty() && turn % 10 == 0) complaint = units.gather_and_check((turn + 1) % 3, 1);
  }
  return complaint;
}

// The first is held all the time, in memory of its own; it is the largest, and slots are no larger for it.
std::string has_own_slots(mxs_comm *comm, Memory memory) {
  Model model;
  model.add("embedding", 0, {1200, 40}).rule = MXS_RULE_ADAMW;
  for (int unit = 1; unit < 5; ++unit)
    for (const char *name : {"qkv", "out"}) model.add(("block" + std::to_string(unit) + name).c_str(), unit, {72, 41});
  model.finish();
  DeviceUnits units;
  units.own_slot_units = {0};
  std::string complaint = units.make(comm, model, memory, cuda_options());
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  for (uint64_t step = 1; step < 3 && complaint.empty(); ++step) {
    complaint = want(MXS_OK, units.gather(0), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, units.wait(0), "wait");
    for (const int turn : {1, 2, 3, 4, 4, 3, 2, 1}) {
      if (complaint.empty()) complaint = units.gather_and_check(turn, step);
      if (complaint.empty()) complaint = units.check(0, step);
    }
    if (complaint.empty()) complaint = want(MXS_OK, units.release(0), "release");
    if (complaint.empty()) complaint = units.step(step + 1);
  }
  return complaint.empty() && remaps_of(comm) != 0 ? "there were remaps" : complaint;
}

std::string lives_in_callers_memory(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::copied, cuda_options());  // for the bytes
  if (!complaint.empty()) return complaint;
  const uint64_t bytes = info_of(units.unit(0)).bytes;
  for (mxs_unit *&unit : units.units)
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_destroy(&unit), "mxs_unit_destroy");
  units.units.clear();
  const OwnMemory memory[2] = {OwnMemory(bytes + 512), OwnMemory(bytes + 512)};
  mxs_unit_options options = cuda_options(1);
  mxs_unit *unit = nullptr;
  std::vector<std::byte> host(bytes + 4096);
  options.buffer = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(host.data()) + 4095) / 4096 * 4096);
  if (complaint.empty())
    complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, units.plan, 0, &options), "host memory");
  options.buffer = memory[0].data() + 8;
  if (complaint.empty())
    complaint = want(MXS_INVALID_ARGUMENT, mxs_unit_create(&unit, comm, units.plan, 0, &options), "a crooked buffer");
  for (int index = 0; index < 2 && complaint.empty(); index++) {
    options.buffer = memory[index].data();
    complaint = want(MXS_OK, mxs_unit_create(&unit, comm, units.plan, index, &options), "mxs_unit_create");
    if (complaint.empty()) units.units.push_back(unit);
  }
  if (complaint.empty()) complaint = units.fill(5);
  units.use_streams();
  for (int index = 0; index < 2 && complaint.empty(); index++) {
    if (info_of(units.unit(index)).address != memory[index].data()) return "the range is not the caller's buffer";
    complaint = want(MXS_OK, units.gather(index), "gather");
    if (complaint.empty()) complaint = want(MXS_OK, units.wait(index), "wait");
    if (complaint.empty()) complaint = units.check(index, 5);
  }
  for (const int index : {0, 1})
    if (complaint.empty()) complaint = want(MXS_OK, units.release(index), "release");
  for (mxs_unit *&each : units.units)
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_destroy(&each), "mxs_unit_destroy");
  return complaint;
}

template <class Body>
std::string for_every_memory(Body &&body) {
  for (const int rank_count : {1, 2, 4})
    for (const Memory memory : memories) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm, memory); });
      if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + name_of(memory) + ", " + complaint;
    }
  return "";
}

void processes_see_every_byte_by_every_route(void **) { assert_true(good(trains_by_every_route())); }
void every_rank_sees_every_byte_in_every_world(void **) { assert_true(good(trains_in_every_world())); }
void slow_streams_see_every_byte(void **) { assert_true(good(trains_on_slow_streams())); }
void a_stream_that_does_not_wait_sees_something_else(void **) { assert_true(good(shows_mistakes())); }
void a_gather_comes_after_what_its_stream_wrote(void **) { assert_true(good(gathers_late_writes())); }
void gathers_are_counted_and_paired(void **) { assert_true(good(for_every_memory(counts_gathers))); }
void pins_are_revived_and_end(void **) { assert_true(good(for_every_memory(revives_pins))); }
void a_held_slot_is_replaced_or_refused(void **) { assert_true(good(for_every_memory(finds_slots_held))); }
void a_release_without_a_wait_is_safe(void **) { assert_true(good(for_every_memory(releases_without_a_wait))); }
void own_slots_are_held_while_others_take_turns(void **) { assert_true(good(for_every_memory(has_own_slots))); }
void units_live_in_callers_memory(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return lives_in_callers_memory(comm); })));
}

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_see_every_byte_by_every_route),  // forks, so it comes first
      cmocka_unit_test(every_rank_sees_every_byte_in_every_world),
      cmocka_unit_test(slow_streams_see_every_byte),
      cmocka_unit_test(a_stream_that_does_not_wait_sees_something_else),
      cmocka_unit_test(a_gather_comes_after_what_its_stream_wrote),
      cmocka_unit_test(gathers_are_counted_and_paired),
      cmocka_unit_test(pins_are_revived_and_end),
      cmocka_unit_test(a_held_slot_is_replaced_or_refused),
      cmocka_unit_test(a_release_without_a_wait_is_safe),
      cmocka_unit_test(own_slots_are_held_while_others_take_turns),
      cmocka_unit_test(units_live_in_callers_memory),
  };
  return cmocka_run_group_tests_name("units in CUDA memory", tests, nullptr, nullptr);
}
