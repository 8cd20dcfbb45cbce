// SPDX-License-Identifier: Apache-2.0
// Making and ending units in CUDA memory: what is refused, ranks that disagree, bytes as predicted, devices that map no
// memory, a device that is full, views of what was released, and nothing allocated or mapped after create.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/arithmetic.hpp"
#include "gpu/gpu.hpp"
#include "gpu/unit_cases.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr uint64_t granule_bytes = uint64_t{2} << 20;

std::string refused(mxs_status wanted, mxs_status status, const std::string &word) {
  const std::string complaint = want(wanted, status, "a call that is to say \"" + word + "\"");
  if (!complaint.empty()) return complaint;
  const std::string sentence = mxs_last_error();
  return sentence.find(word) == std::string::npos ? "\"" + sentence + "\" doesn't say \"" + word + "\"" : "";
}

// ---- refusals ----

std::string refuses_options(mxs_comm *comm) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(2), Memory::copied, cuda_options());
  mxs_unit *unit = nullptr;
  const auto create = [&](const mxs_unit_options &options) {
    return mxs_unit_create(&unit, comm, units.plan, 0, &options);
  };
  mxs_unit_options options = cuda_options();
  options.gather = MXS_GATHER_BY_REFERENCE;
  if (complaint.empty()) complaint = refused(MXS_INVALID_ARGUMENT, create(options), "by reference");
  options = cuda_options();
  options.algorithm = "chain";
  if (complaint.empty()) complaint = refused(MXS_INVALID_ARGUMENT, create(options), "algorithm");
  mxs_comm *replicas = nullptr;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_split(&replicas, comm, units.rank, 0, nullptr), "split");
  options = cuda_options();
  options.replicas = replicas;
  if (complaint.empty()) complaint = refused(MXS_NOT_BUILT, create(options), "replicas");
  mxs_comm_destroy(&replicas);
  if (unit) return "a failed create has set its output";
  mxs_view view = MXS_VIEW_INIT;
  if (complaint.empty())
    complaint = refused(MXS_NOT_FOUND, mxs_unit_tensor(units.unit(0), 99, &view), "tensor is 99");
  return complaint;
}

// One rank asks for host memory: told on all.
std::string memory_kinds_differ() {
  return run_world(3, [](int rank, mxs_comm *comm) {
    Units units;
    const mxs_unit_options options = rank == 1 ? mxs_unit_options(MXS_UNIT_OPTIONS_INIT) : cuda_options();
    const std::string complaint = units.make(comm, plain_model(1), &options);
    if (complaint.find("MISMATCH") == std::string::npos || complaint.find("memory") == std::string::npos)
      return "all ranks should be told: " + complaint;
    return std::string();
  });
}

// Host units take no stream, CUDA units stand beside them on one comm.
std::string stand_beside_host_units(mxs_comm *comm) {
  Units host;
  std::string complaint = host.make(comm, plain_model(2, MXS_BF16));
  DeviceUnits units;
  if (complaint.empty()) complaint = units.make(comm, plain_model(2, MXS_BF16), Memory::copied, cuda_options());
  if (complaint.empty()) complaint = host.fill(4);
  if (complaint.empty()) complaint = units.fill(5);
  mxs_call call = MXS_CALL_INIT;
  call.stream = &call;
  if (complaint.empty()) complaint = refused(MXS_INVALID_ARGUMENT, mxs_unit_gather(host.units[0], &call), "stream");
  for (const int unit : {0, 1}) {
    if (complaint.empty()) complaint = host.gather_and_check(unit, 4);
    if (complaint.empty()) complaint = units.gather_and_check(unit, 5);
  }
  return complaint;
}

// ---- bytes ----

// Predicted in pages of 4,096 bytes; a device rounds to granules where it maps.
std::string has_the_bytes(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  std::string complaint = units.make(comm, odd_model(), memory, cuda_options(3));
  if (!complaint.empty()) return complaint;
  mxs_memory_options asked = MXS_MEMORY_OPTIONS_INIT;
  asked.slots = 3;
  mxs_memory predicted = MXS_MEMORY_INIT, sum = MXS_MEMORY_INIT;
  complaint = want(MXS_OK, mxs_plan_memory(units.plan, units.rank, &asked, &predicted), "mxs_plan_memory");
  for (mxs_unit *unit : units.units) {
    mxs_memory memory_of = MXS_MEMORY_INIT;
    mxs_unit_memory(unit, &memory_of);
    if (memory_of.peak != memory_of.rest + memory_of.slots + memory_of.gradient_slots + memory_of.own_slots)
      return "peak is no sum";
    sum.weights += memory_of.weights;
    sum.masters += memory_of.masters;
    sum.gradients += memory_of.gradients;
    sum.slack += memory_of.slack;
    sum.slots = memory_of.slots;
    sum.gradient_slots = memory_of.gradient_slots;
  }
  const auto unit_count = static_cast<uint64_t>(units.units.size());
  uint64_t range = 0, borders = 2;
  for (mxs_unit *unit : units.units) {
    range = std::max(range, info_of(unit).bytes);
    borders += 2 * unit->plan().units[static_cast<size_t>(unit->index())].weights.segments.size();
  }
  const bool mapped = memory == Memory::mapped || units.rank_count == 1;
  // Copied: a slot is a whole range, not in pages, and units that come later and are larger take another.
  const uint64_t slots_most = mapped ? predicted.slots + 3 * borders * granule_bytes : 3 * unit_count * range;
  const uint64_t slots_least = mapped ? predicted.slots : 3 * range;
  const struct {
    const char *name;
    uint64_t found, least, most;
  } fields[] = {{"weights", sum.weights, predicted.weights, predicted.weights},
                {"masters", sum.masters, predicted.masters, predicted.masters},
                {"gradients", sum.gradients, predicted.gradients, predicted.gradients},
                {"slack", sum.slack, 0, mapped ? borders * granule_bytes : borders * 256},
                {"slots", sum.slots, slots_least, slots_most},
                {"gradient slots", sum.gradient_slots, predicted.gradient_slots, predicted.gradient_slots}};
  for (const auto &field : fields)
    if (complaint.empty() && (field.found < field.least || field.found > field.most))
      complaint = words("%s: %llu bytes, but %llu to %llu were predicted", field.name,
                        static_cast<unsigned long long>(field.found), static_cast<unsigned long long>(field.least),
                        static_cast<unsigned long long>(field.most));
  return complaint;
}

// ---- a device without virtual memory management ----

std::string works_without_maps(mxs_comm *comm) {
  for (const int own_slot : {0, 1}) {
    DeviceUnits units;
    units.plan_options = plan_for(Memory::mapped);
    mxs_unit_options options = cuda_options();
    options.own_slot = own_slot;
    std::string complaint = units.Units::make(comm, plain_model(3), &options);
    if (complaint.empty()) complaint = units.open_arena();
    if (complaint.empty() && !own_slot && info_of(units.unit(0)).pages != std::string("copied"))
      complaint = "without maps a unit is mapped";
    if (complaint.empty()) complaint = units.fill(1);
    for (const int unit : {0, 1, 2, 2, 0})
      if (complaint.empty()) complaint = units.gather_and_check(unit, 1);
    if (complaint.empty()) complaint = units.step(2);
    if (complaint.empty()) complaint = units.gather_and_check(2, 2);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string without_maps() {
  if (!on_standin()) return "";
  ProcessOptions options;
  options.environment = {"MXS_STANDIN_NO_VMM=1"};
  return run_processes(2, [](int, mxs_comm *comm) { return works_without_maps(comm); }, options);
}

// ---- a full device ----

// After so many allocations the device is full on both ranks: one sentence, nothing kept, and the comm goes on.
std::string fails_at_every_allocation(mxs_comm *comm, Memory memory) {
  DeviceUnits first;
  std::string complaint = first.make(comm, plain_model(1), memory, cuda_options());  // the comm's own are made here
  int failures = 0;
  for (int allocations = 0; allocations < 40 && complaint.empty(); ++allocations) {
    mxs_comm_barrier(comm, nullptr);
    if (first.rank == 0) set_standin("MXS_STANDIN_FAIL_ALLOCATION_AFTER", std::to_string(allocations).c_str());
    mxs_comm_barrier(comm, nullptr);
    DeviceUnits units;
    units.plan_options = plan_for(memory);
    const mxs_unit_options options = cuda_options();
    const std::string made = units.Units::make(comm, odd_model(), &options);
    mxs_comm_barrier(comm, nullptr);
    if (first.rank == 0) set_standin("MXS_STANDIN_FAIL_ALLOCATION_AFTER", nullptr);
    mxs_comm_barrier(comm, nullptr);
    if (made.empty()) break;
    ++failures;
    if (made.find("OUT_OF_MEMORY") == std::string::npos) complaint = "not out of memory: " + made;
  }
  if (complaint.empty() && failures < 5) complaint = std::to_string(failures) + " failures only";
  DeviceUnits again;
  if (complaint.empty()) complaint = again.make(comm, odd_model(), memory, cuda_options());
  if (complaint.empty()) complaint = again.fill(2);
  if (complaint.empty()) complaint = again.gather_and_check(1, 2);
  return complaint;
}

std::string full_devices() {
  if (!on_standin()) return "";
  for (const Memory memory : {Memory::mapped, Memory::copied}) {
    const std::string complaint =
        run_world(2, [&](int, mxs_comm *comm) { return fails_at_every_allocation(comm, memory); });
    if (!complaint.empty()) return (memory == Memory::mapped ? "mapped, " : "copied, ") + complaint;
  }
  return "";
}

// ---- nothing after create ----

// Calls of the driver that the stand-in has noted, which take or give memory. (Events are NCCL's stand-in's.)
std::string memory_calls(const std::string &path) {
  std::ifstream trace(path);
  for (std::string line; std::getline(trace, line);)
    for (const char *name : {"cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
                             "cuMemHostAlloc", "cuMemSetAccess", "cuMemAddress"})
      if (line.find(name) != std::string::npos) return "after create: " + line;
  return "";
}

std::string steps_without_allocations(mxs_comm *comm, Memory memory, const std::string &path) {
  DeviceUnits units;
  std::string complaint = units.make(comm, plain_model(4), memory, cuda_options(2, MXS_RANK_ORDER));
  if (complaint.empty()) complaint = units.fill(0);
  if (!complaint.empty()) return complaint;
  units.use_streams();
  mxs_comm_barrier(comm, nullptr);
  if (units.rank == 0) set_standin("MXS_STANDIN_TRACE", path.c_str());
  mxs_comm_barrier(comm, nullptr);
  for (uint64_t step = 0; step < 3 && complaint.empty(); ++step) {
    for (const int unit : {0, 1, 2, 3, 3, 2, 1, 0})
      if (complaint.empty()) complaint = units.gather_and_check(unit, step);
    for (const int unit : {3, 2, 1, 0}) {
      if (complaint.empty()) complaint = units.write_gradients(unit, 0, MXS_WRITE);
      if (complaint.empty()) complaint = want(MXS_OK, units.reduce(unit), "reduce");
    }
    if (complaint.empty()) complaint = units.step(step + 1);
  }
  mxs_comm_barrier(comm, nullptr);
  if (units.rank == 0) set_standin("MXS_STANDIN_TRACE", nullptr);
  mxs_comm_barrier(comm, nullptr);
  return complaint;
}

std::string nothing_after_create() {
  if (!on_standin()) return "";
  for (const Memory memory : {Memory::mapped, Memory::copied}) {
    char path[] = "unit_trace_XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) return "mkstemp";
    close(file);
    std::string complaint =
        run_world(2, [&](int, mxs_comm *comm) { return steps_without_allocations(comm, memory, path); });
    std::ifstream trace(path);
    if (complaint.empty() && trace.peek() == EOF) complaint = "nothing was noted";
    if (complaint.empty()) complaint = memory_calls(path);
    std::remove(path);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// ---- MXS_DEBUG_VIEWS=1: what was released is not mapped any more, and comes back where it was ----

bool is_mapped(const void *address) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  unsigned long long flags = 0;
  const auto get = cuda_function<CUresult (*)(unsigned long long *, const CUmemLocation *, CUdeviceptr)>(
      "cuMemGetAccess");
  return get(&flags, &location, reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS && flags != 0;
}

std::string hides_views(mxs_comm *comm, Memory memory) {
  DeviceUnits units;
  units.plan_options = plan_for(memory);
  const mxs_unit_options options = cuda_options();
  std::string complaint = units.Units::make(comm, plain_model(3), &options);
  if (memory == Memory::copied)
    return complaint.find("MXS_DEBUG_VIEWS") != std::string::npos ? "" : "copied units can't hide: " + complaint;
  if (complaint.empty()) complaint = units.open_arena();
  if (complaint.empty()) complaint = units.fill(1);
  for (int turn = 0; turn < 2 && complaint.empty(); ++turn) {
    complaint = units.gather_and_check(1, 1);
    const auto *const range = static_cast<const std::byte *>(info_of(units.unit(1)).address);
    for (const uint64_t number : units.inner().units[1].placements) {
      const Placement &piece = units.inner().placements[number];
      if (complaint.empty() && is_mapped(range + piece.weight_offset) != (piece.owner == units.rank))
        complaint = "a view that was released can be read, or an own one can't";
    }
  }
  return complaint.empty() && remaps_of(comm) != 0 ? "it counts as remaps" : complaint;
}

std::string debugs_views() {
  if (!on_standin()) return "";
  ProcessOptions options;
  options.environment = {"MXS_DEBUG_VIEWS=1"};
  for (const Memory memory : {Memory::mapped, Memory::copied}) {
    const std::string complaint =
        run_processes(2, [&](int, mxs_comm *comm) { return hides_views(comm, memory); }, options);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

template <class Body>
std::string for_every_memory(Body &&body) {
  for (const int rank_count : {1, 2, 3})
    for (const Memory memory : {Memory::mapped, Memory::copied}) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) { return body(comm, memory); });
      if (!complaint.empty())
        return std::to_string(rank_count) + (memory == Memory::mapped ? " ranks, mapped, " : " ranks, copied, ") +
               complaint;
    }
  return "";
}

void devices_without_maps_copy(void **) { assert_true(good(without_maps())); }
void released_views_are_not_mapped_when_asked_for(void **) { assert_true(good(debugs_views())); }
void bad_options_are_refused_with_a_sentence(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return refuses_options(comm); })));
}
void ranks_that_want_other_memory_are_told(void **) { assert_true(good(memory_kinds_differ())); }
void host_units_stand_beside_them(void **) {
  assert_true(good(run_world(2, [](int, mxs_comm *comm) { return stand_beside_host_units(comm); })));
}
void bytes_are_as_predicted(void **) { assert_true(good(for_every_memory(has_the_bytes))); }
void a_full_device_is_told_on_all_ranks_and_nothing_stays(void **) { assert_true(good(full_devices())); }
void nothing_is_allocated_or_mapped_after_create(void **) { assert_true(good(nothing_after_create())); }

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {
      // These fork, so they come first.
      cmocka_unit_test(devices_without_maps_copy),
      cmocka_unit_test(released_views_are_not_mapped_when_asked_for),
      cmocka_unit_test(bad_options_are_refused_with_a_sentence),
      cmocka_unit_test(ranks_that_want_other_memory_are_told),
      cmocka_unit_test(host_units_stand_beside_them),
      cmocka_unit_test(bytes_are_as_predicted),
      cmocka_unit_test(a_full_device_is_told_on_all_ranks_and_nothing_stays),
      cmocka_unit_test(nothing_is_allocated_or_mapped_after_create),
  };
  return cmocka_run_group_tests_name("making units in CUDA memory", tests, nullptr, nullptr);
}
