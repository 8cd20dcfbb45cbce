// SPDX-License-Identifier: Apache-2.0
// Many collectives in flight: 64 of all kinds on all layouts, with priorities that differ from rank to rank, waited for
// in an order that differs too; every byte is looked at. And the one with the higher priority is complete first.
#include <algorithm>
#include <memory>
#include <random>

#include "cases.hpp"
#include "collective/comm.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr int flight_count = mxs::OperationQueue::capacity;

// Small whole numbers, whose sums are exact in any order.
float number_at(int rank, uint64_t element, uint64_t salt) {
  return static_cast<float>(static_cast<int>(hashed(element, salt * 64 + static_cast<uint64_t>(rank)) % 17) - 8);
}

// All ranks make the same ones.
struct Flight {
  int32_t kind = MXS_GATHER;
  TestLayout layout{"", 1}, target_layout{"", 1};
  OwnedCollective collective;
  std::vector<std::byte> source, target;
  uint64_t salt = 0;
  mxs_request request = 0;
};

// As many bytes, cut otherwise and given to others.
TestLayout dealt_anew(const TestLayout &from, int rank_count) {
  TestLayout to("dealt anew", 1);
  const uint64_t first = from.bytes / 3;
  to.add(rank_count - 1, first);
  to.add(0, from.bytes - first);
  return to;
}

mxs_status create(Flight *flight, mxs_comm *comm, int rank_count, const char *algorithm) {
  OwnedLayout layout, target_layout;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  mxs_status status = make(&layout, flight->layout, rank_count);
  if (status == MXS_OK && flight->kind == MXS_RESHARD) status = make(&target_layout, flight->target_layout, rank_count);
  if (status != MXS_OK) return status;
  options.kind = flight->kind;
  options.layout = layout.value;
  options.target_layout = target_layout.value;
  options.dtype = flight->kind == MXS_REDUCE ? MXS_F32 : 0;
  options.algorithm = flight->kind == MXS_RESHARD ? nullptr : algorithm;
  options.chunk_bytes = 4096;
  return mxs_collective_create(&flight->collective.value, comm, &options);
}

void fill(Flight *flight, int rank) {
  const TestLayout &layout = flight->layout;
  std::vector<std::byte> &source = flight->source;
  if (flight->kind == MXS_REDUCE) {
    source.resize(layout.bytes);
    for (uint64_t element = 0; element < layout.bytes / 4; ++element) {
      const float value = number_at(rank, element, flight->salt);
      std::memcpy(source.data() + element * 4, &value, 4);
    }
  } else {
    for (const TestSegment &segment : layout.segments)
      for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
        source.push_back(std::byte{byte_at(segment.offset + i, flight->salt)});
  }
  uint64_t target_bytes = layout.bytes;
  if (flight->kind != MXS_GATHER) {
    target_bytes = 0;
    for (const TestSegment &segment : (flight->kind == MXS_REDUCE ? layout : flight->target_layout).segments)
      if (segment.owner == rank) target_bytes += segment.bytes;
  }
  flight->target.assign(target_bytes + 64, std::byte{poison});
}

std::string verify(const Flight &flight, int rank, int rank_count) {
  const std::string name = "operation " + std::to_string(flight.request) + " on layout '" + flight.layout.name + "': ";
  uint64_t packed = 0;
  const TestLayout &layout = flight.kind == MXS_RESHARD ? flight.target_layout : flight.layout;
  for (const TestSegment &segment : layout.segments) {
    if (flight.kind != MXS_GATHER && segment.owner != rank) continue;
    if (flight.kind == MXS_GATHER) packed = segment.offset;
    if (flight.kind == MXS_REDUCE) {
      for (uint64_t offset = segment.offset; offset < segment.offset + segment.bytes; offset += 4, packed += 4) {
        float expected = 0, found = 0;
        for (int other = 0; other < rank_count; ++other) expected += number_at(other, offset / 4, flight.salt);
        std::memcpy(&found, flight.target.data() + packed, 4);
        if (found != expected) return name + "a sum is wrong at " + std::to_string(offset);
      }
      continue;
    }
    for (uint64_t i = 0; i < segment.bytes; ++i, ++packed)
      if (flight.target[packed] != std::byte{byte_at(segment.offset + i, flight.salt)})
        return name + "byte " + std::to_string(segment.offset + i) + " is wrong";
  }
  for (size_t i = flight.target.size() - 64; i < flight.target.size(); ++i)
    if (flight.target[i] != std::byte{poison}) return name + "written beyond the end";
  return "";
}

std::string fly(int rank, int rank_count, mxs_comm *comm, unsigned seed) {
  const std::vector<TestLayout> layouts = test_layouts(rank_count, 4, 2001);
  std::mt19937 common(seed), own(seed * 100 + static_cast<unsigned>(rank));
  std::vector<std::unique_ptr<Flight>> flights;
  for (int i = 0; i < flight_count; ++i) {
    auto flight = std::make_unique<Flight>();
    flight->kind = static_cast<int32_t>(common() % 3);
    flight->layout = layouts[common() % layouts.size()];
    flight->salt = common() % 1000;
    if (flight->kind == MXS_RESHARD) {
      while (flight->layout.alignment != 1) flight->layout = layouts[common() % layouts.size()];
      flight->target_layout = dealt_anew(flight->layout, rank_count);
    }
    const char *const algorithms[] = {"flat", "chain", "spread"};
    if (create(flight.get(), comm, rank_count, algorithms[common() % 3]) != MXS_OK) return error_of("create");
    fill(flight.get(), rank);
    flights.push_back(std::move(flight));
  }
  for (const auto &flight : flights) {
    mxs_call call = MXS_CALL_INIT;
    call.priority = static_cast<int32_t>(own() % 5) - 2;
    call.request_out = &flight->request;
    if (mxs_collective_start(flight->collective.value, flight->source.data(), flight->target.data(), &call) != MXS_OK)
      return error_of("start");
  }
  std::shuffle(flights.begin(), flights.end(), own);
  for (const auto &flight : flights) {
    if (mxs_comm_wait(comm, flight->request, nullptr) != MXS_OK) return error_of("wait");
    const std::string complaint = verify(*flight, rank, rank_count);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

bool processes_fly(const char *transport) {
  if (!has_transport(transport)) return true;
  ProcessOptions options;
  options.transport = transport;
  for (const int rank_count : {2, 3})
    if (!good(run_processes(rank_count, [=](int rank, mxs_comm *comm) { return fly(rank, rank_count, comm, 7); },
                            options)))
      return false;
  return true;
}

bool threads_fly() {
  for (const int rank_count : {1, 2, 3, 4, 8})
    for (unsigned seed = 1; seed <= 3; ++seed)
      if (!good(run_world(rank_count, [=](int rank, mxs_comm *comm) { return fly(rank, rank_count, comm, seed); })))
        return false;
  return true;
}

// A reduce of 2,000 chunks is in flight; a gather of 8 chunks starts after it, with a higher priority. The reduce moves
// by one message a round, so it can't be through when the gather is. The queue is asked, because a call would go on.
std::string overtakes(int rank, int rank_count, mxs_comm *comm) {
  TestLayout large("large", 1), small("small", 1);
  large.add(0, 2000 * 4096);
  for (int owner = 0; owner < rank_count; ++owner) small.add(owner, 2 * 4096);
  Flight low, high;
  low.kind = MXS_REDUCE;
  low.layout = large;
  high.layout = small;
  if (create(&low, comm, rank_count, "flat") != MXS_OK || create(&high, comm, rank_count, "flat") != MXS_OK)
    return error_of("create");
  fill(&low, rank);
  fill(&high, rank);
  mxs_call call = MXS_CALL_INIT;
  call.request_out = &low.request;
  if (mxs_collective_start(low.collective.value, low.source.data(), low.target.data(), &call) != MXS_OK)
    return error_of("start");
  call.request_out = &high.request;
  call.priority = 1;
  if (mxs_collective_start(high.collective.value, high.source.data(), high.target.data(), &call) != MXS_OK)
    return error_of("start");
  if (mxs_comm_wait(comm, high.request, nullptr) != MXS_OK) return error_of("wait");
  // Of leaves the reduce may be complete, if the owner has been slow; at the owner it can't be.
  const bool too_early = rank == 0 && comm->queue.complete(low.request);
  const std::string complaint = verify(high, rank, rank_count);
  if (mxs_comm_wait(comm, low.request, nullptr) != MXS_OK) return error_of("wait");
  if (too_early) return "the low one was complete before the high one";
  return complaint.empty() ? verify(low, rank, rank_count) : complaint;
}

bool high_overtakes_low() {
  for (const int rank_count : {2, 3, 4, 8})
    if (!good(run_world(rank_count, [=](int rank, mxs_comm *comm) { return overtakes(rank, rank_count, comm); })))
      return false;
  return true;
}

// Processes first: a fork copies no threads.
void processes_have_many_in_flight_over_shm(void **) { assert_true(processes_fly("shm")); }
void processes_have_many_in_flight_over_ucx(void **) { assert_true(processes_fly("ucx")); }
void threads_have_many_in_flight(void **) { assert_true(threads_fly()); }
void a_high_priority_overtakes_a_low_one(void **) { assert_true(high_overtakes_low()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_have_many_in_flight_over_shm),
      cmocka_unit_test(processes_have_many_in_flight_over_ucx),
      cmocka_unit_test(threads_have_many_in_flight),
      cmocka_unit_test(a_high_priority_overtakes_a_low_one),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
