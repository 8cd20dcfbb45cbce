// SPDX-License-Identifier: Apache-2.0
// MXS_DEBUG_BUFFERS=1: who writes to what is read, or past the end of a tensor, is told so, with rank, unit and tensor;
// and who doesn't is never bothered, whichever way the bytes go.
#include <cstdlib>
#include <latch>

#include "cases.hpp"
#include "support/complaints.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int rank_count = 2;

// The one at fault, and the others.
mxs_status told_to(int rank) { return rank == 0 ? MXS_INVALID_ARGUMENT : MXS_PEER_FAILED; }

mxs_status first_failure(mxs_comm *comm, mxs_status status) {
  return status == MXS_OK ? mxs_comm_barrier(comm, nullptr) : status;
}

// ---- written to while in flight: rank 0 writes before rank 1 has begun ----

struct Flight {
  std::latch written{1};
  int kind = MXS_GATHER;
  const char *algorithm = nullptr;
  bool mapped = false, spoils = true;
};

std::string collective_in_flight(int rank, mxs_comm *comm, Flight *flight) {
  TestLayout layout("both own", 1);
  layout.add(0, 4096);
  layout.add(1, 4096);
  Case each;
  each.layout = &layout;
  each.kind = flight->kind;
  each.algorithm = flight->algorithm;
  OwnedCollective collective;
  std::vector<std::byte> source(8192, std::byte{0}), target(8192, std::byte{0});
  void *shared = nullptr;
  if (make(&collective, comm, each, rank_count) != MXS_OK) return error_of("create");
  if (mxs_comm_allocate(comm, 8192, MXS_HOST, &shared) != MXS_OK) return error_of("allocate");
  if (rank == 1) flight->written.wait();
  void *const read = flight->mapped ? shared : source.data();
  mxs_status status = mxs_collective_start(collective.value, flight->mapped ? nullptr : read,
                                           flight->mapped ? shared : target.data(), nullptr);
  if (rank == 0) {
    if (flight->spoils) static_cast<std::byte *>(read)[100] = std::byte{1};
    flight->written.count_down();
  }
  if (status == MXS_OK) status = mxs_collective_wait(collective.value, nullptr);
  status = first_failure(comm, status);
  const std::string complaint =
      flight->spoils ? expect(status, told_to(rank), {"rank 0: the source of a", "written to while"})
                     : expect(status, MXS_OK);
  mxs_comm_free(comm, shared);
  return complaint;
}

bool found_in_collectives(bool spoils) {
  for (const int kind : {MXS_GATHER, MXS_REDUCE})
    for (const char *algorithm : {static_cast<const char *>("flat"), static_cast<const char *>(nullptr)}) {
      if (kind == MXS_REDUCE && !algorithm) continue;
      Flight flight;
      flight.kind = kind;
      flight.algorithm = algorithm;
      flight.mapped = !algorithm;
      flight.spoils = spoils;
      if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) {
            return collective_in_flight(rank, comm, &flight);
          })))
        return false;
    }
  return true;
}

Model one_owner_model() {
  Model model;
  model.add("block.first", 0, {33, 7}).fixed_owner = MXS_FIXED_OWNER(0);
  model.add("block.second", 0, {5, 11}).fixed_owner = MXS_FIXED_OWNER(0);
  model.add("block.third", 0, {5, 13}).fixed_owner = MXS_FIXED_OWNER(1);
  model.finish();
  return model;
}

mxs_unit_options options_of(const char *algorithm, int gather = MXS_GATHER_BY_COPY) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.gather = gather;
  return options;
}

std::string weights_in_flight(int rank, mxs_comm *comm, Flight *flight) {
  Units units;
  const mxs_unit_options options = options_of(flight->algorithm);
  const std::string complaint = units.make(comm, one_owner_model(), &options);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[0];
  mxs_view view = MXS_VIEW_INIT;
  if (rank == 0 && mxs_unit_shard(unit, 0, &view) != MXS_OK) return error_of("shard");
  if (rank == 1) flight->written.wait();
  mxs_status status = mxs_unit_gather(unit, nullptr);
  if (rank == 0) {
    static_cast<float *>(view.data)[3] += 1;
    flight->written.count_down();
  }
  if (status == MXS_OK) status = mxs_unit_wait(unit, nullptr);
  return expect(first_failure(comm, status), told_to(rank),
                {"rank 0, unit 0", "block.first", "weights", "gather", "in flight"});
}

std::string gradients_in_flight(int rank, mxs_comm *comm, Flight *flight) {
  Units units;
  const mxs_unit_options options = options_of(flight->algorithm);
  const std::string complaint = units.make(comm, one_owner_model(), &options);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[0];
  mxs_view view = MXS_VIEW_INIT;
  if (mxs_unit_gradient(unit, 1, MXS_ADD, &view) != MXS_OK) return error_of("gradient");
  if (rank == 1) flight->written.wait();
  mxs_status status = mxs_unit_reduce(unit, nullptr);
  if (rank == 0) {
    static_cast<float *>(view.data)[3] += 1;
    flight->written.count_down();
  }
  if (status == MXS_OK) status = mxs_unit_wait_reduce(unit, nullptr);
  return expect(first_failure(comm, status), told_to(rank),
                {"rank 0, unit 0", "gradient of tensor block.second", "in flight"});
}

bool found_in_units(std::string (*body)(int, mxs_comm *, Flight *)) {
  for (const char *algorithm : {static_cast<const char *>("flat"), static_cast<const char *>(nullptr)}) {
    Flight flight;
    flight.algorithm = algorithm;
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) { return body(rank, comm, &flight); })))
      return false;
  }
  return true;
}

// ---- past the end: the call says so, and made again goes on ----

void spoil(const mxs_view &view) { static_cast<std::byte *>(view.data)[view.bytes + 2] ^= std::byte{0x55}; }

std::string past_the_end(int rank, mxs_comm *comm, const mxs_unit_options &options) {
  Units units;
  std::string complaint = units.make(comm, one_owner_model(), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  mxs_unit *&unit = units.units[0];
  mxs_view view = MXS_VIEW_INIT;
  std::vector<std::string> wrong;
  const std::vector<std::string> here = {"rank " + std::to_string(rank) + ", unit 0", "byte 2 behind"};
  const auto with = [&](const char *name) { return std::vector<std::string>{here[0], here[1], name}; };
  // Others' weights, in the slot. Of rank 1 that is the last of rank 0's, which ends before a page does.
  if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return error_of("gather");
  const int foreign = rank == 0 ? 2 : 1;
  if (mxs_unit_tensor(unit, foreign, &view) != MXS_OK) return error_of("tensor");
  if (options.gather == MXS_GATHER_BY_COPY) {
    spoil(view);
    wrong.push_back(expect(mxs_unit_release(unit, MXS_FREE, nullptr), MXS_INVALID_ARGUMENT,
                           with(foreign == 2 ? "block.third" : "block.second")));
  }
  wrong.push_back(expect(mxs_unit_release(unit, MXS_FREE, nullptr), MXS_OK));
  // Gradients.
  if (mxs_unit_gradient(unit, 1, MXS_ADD, &view) != MXS_OK) return error_of("gradient");
  spoil(view);
  wrong.push_back(expect(mxs_unit_reduce(unit, nullptr), MXS_INVALID_ARGUMENT, with("block.second")));
  wrong.push_back(expect(mxs_unit_reduce(unit, nullptr), MXS_OK));
  // This rank's own pieces, their sums.
  const uint64_t last = rank == 0 ? 1 : 2;
  const char *const name = rank == 0 ? "block.second" : "block.third";
  if (mxs_unit_shard_gradient(unit, last, &view) != MXS_OK) return error_of("shard_gradient");
  spoil(view);
  wrong.push_back(expect(unit->check_idle("a step"), MXS_INVALID_ARGUMENT, with(name)));
  wrong.push_back(expect(unit->check_idle("a step"), MXS_OK));
  if (mxs_unit_shard(unit, last, &view) != MXS_OK) return error_of("shard");
  spoil(view);
  wrong.push_back(expect(mxs_unit_destroy(&unit), MXS_INVALID_ARGUMENT, with(name)));
  for (const std::string &each : wrong)
    if (!each.empty()) complaint = each;
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  return complaint;
}

bool ends_are_watched() {
  for (const mxs_unit_options &options :
       {options_of(nullptr), options_of("flat"), options_of(nullptr, MXS_GATHER_BY_REFERENCE)})
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) { return past_the_end(rank, comm, options); })))
      return false;
  return true;
}

// ---- nothing is amiss ----

std::string steps(mxs_comm *comm, const mxs_unit_options &options, bool own_slots) {
  Units units;
  if (own_slots) units.own_slot_units = {0, 1};
  std::string complaint = units.make(comm, odd_model(), &options);
  if (complaint.empty()) complaint = units.fill(1);
  for (uint64_t version = 1; version < 4 && complaint.empty(); ++version) {
    for (int index = 0; index < 5 && complaint.empty(); ++index) complaint = units.gather_and_check(index, version);
    for (int index = 4; index >= 0 && complaint.empty(); --index) {
      if (index == 2 || index == 3) continue;
      complaint = units.write_gradients(index, 0, MXS_WRITE);
      mxs_unit *unit = units.units[static_cast<size_t>(index)];
      if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(unit, nullptr), "reduce");
    }
    if (complaint.empty()) complaint = units.step(version + 1);
  }
  return complaint;
}

bool good_programs_are_left_alone() {
  for (const int count : {1, 3, 4})
    for (const char *algorithm : {static_cast<const char *>(nullptr), "flat", "chain", "spread"})
      for (const bool own_slots : {false, true})
        if (!good(run_world(count, [&](int, mxs_comm *comm) {
              return steps(comm, options_of(algorithm), own_slots);
            })))
          return false;
  return good(run_world(3, [&](int, mxs_comm *comm) {
    return steps(comm, options_of(nullptr, MXS_GATHER_BY_REFERENCE), false);
  }));
}

bool other_values_are_refused() {
  setenv("MXS_DEBUG_BUFFERS", "yes", 1);
  ThreadBootstrap bootstrap(1);
  const mxs_bootstrap of_rank_0 = bootstrap.of(0);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &of_rank_0;
  mxs_comm *comm = nullptr;
  const std::string complaint = expect(mxs_comm_create(&comm, &options), MXS_ENVIRONMENT, {"MXS_DEBUG_BUFFERS"});
  setenv("MXS_DEBUG_BUFFERS", "1", 1);
  return good(complaint);
}

void a_source_that_is_written_to_is_found(void **) { assert_true(found_in_collectives(true)); }
void a_source_that_lies_still_is_good(void **) { assert_true(found_in_collectives(false)); }
void weights_that_are_written_to_are_found(void **) { assert_true(found_in_units(weights_in_flight)); }
void gradients_that_are_written_to_are_found(void **) { assert_true(found_in_units(gradients_in_flight)); }
void writes_past_an_end_are_found(void **) { assert_true(ends_are_watched()); }
void good_programs(void **) { assert_true(good_programs_are_left_alone()); }
void another_value_is_refused(void **) { assert_true(other_values_are_refused()); }

}  // namespace

int main() {
  setenv("MXS_DEBUG_BUFFERS", "1", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_source_that_is_written_to_is_found),
      cmocka_unit_test(a_source_that_lies_still_is_good),
      cmocka_unit_test(weights_that_are_written_to_are_found),
      cmocka_unit_test(gradients_that_are_written_to_are_found),
      cmocka_unit_test(writes_past_an_end_are_found),
      cmocka_unit_test(good_programs),
      cmocka_unit_test(another_value_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
