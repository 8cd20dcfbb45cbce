// SPDX-License-Identifier: Apache-2.0
// Order by streams: each job of a stream sleeps first, so that what isn't ordered by events comes out wrong. And a
// program that forgets an order is seen to come out wrong, which shows that the others could.
#include <cstdlib>

#include "gpu/collective_matrix.hpp"
#include "gpu/gpu.hpp"
#include "support/transports.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

TestLayout uneven(int rank_count) {
  TestLayout layout("uneven", 256);
  for (int rank = rank_count - 1; rank >= 0; --rank) layout.add(rank, 4096 * static_cast<uint64_t>(1 + rank));
  layout.add(0, 12);
  return layout;
}

std::string all_kinds(int rank, int rank_count, mxs_comm *comm) {
  std::string complaint = open_device_of(comm);
  const TestLayout layout = uneven(rank_count);
  const FrameworkStream stream(device_of_comm(comm));
  for (const int32_t flags : {-1, 0, MXS_ACCUMULATE, MXS_RANK_ORDER | MXS_ACCUMULATE}) {
    DeviceCase each;
    each.layout = &layout;
    each.stream = &stream;
    each.packed = true;
    if (flags >= 0) {
      each.kind = MXS_REDUCE;
      each.dtype = flags == 0 ? MXS_F32 : MXS_BF16;
      each.flags = flags;
    }
    if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
  }
  return complaint;
}

bool slow(int rank_count, const char *route, const char *topology, const char *which) {
  if (route) setenv("MXS_ROUTE", route, 1);
  if (topology) setenv("MXS_TOPOLOGY", topology, 1);
  set_standin("MXS_STANDIN_SLOW", "300");
  set_standin("MXS_STANDIN_SLOW_STREAMS", which);
  const bool fine =
      good(run_world(rank_count, [&](int rank, mxs_comm *comm) { return all_kinds(rank, rank_count, comm); }));
  set_standin("MXS_STANDIN_SLOW", nullptr);
  set_standin("MXS_STANDIN_SLOW_STREAMS", nullptr);
  unsetenv("MXS_ROUTE");
  unsetenv("MXS_TOPOLOGY");
  return fine;
}

void slow_streams_stay_in_order_by_nccl(void **) {
  for (const char *which : {static_cast<const char *>(nullptr), "odd", "even"})
    assert_true(slow(3, nullptr, nullptr, which));
}

void slow_streams_stay_in_order_by_messages(void **) {
  for (const char *which : {"odd", "even"}) assert_true(slow(2, "messages", nullptr, which));
}

void slow_streams_stay_in_order_by_levels(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  for (const char *which : {"odd", "even"}) assert_true(slow(4, "levels", "nodes:2 ranks:2", which));
}

// Writes by one stream what it tells the library to read by another.
std::string forgets(int rank, mxs_comm *comm) {
  std::string complaint = open_device_of(comm);
  if (!complaint.empty()) return complaint;
  const TestLayout layout = uneven(2);
  const FrameworkStream writer(device_of_comm(comm)), teller(device_of_comm(comm));
  DeviceCase each;
  each.layout = &layout;
  OwnedCollective collective;
  if (make(&collective, comm, each, 2) != MXS_OK) return error_of("create");
  Twin target(device_of_comm(comm), layout.bytes), written(device_of_comm(comm), layout.bytes);
  if (!target.up(nullptr)) return error_of("copy");
  for (const TestSegment &segment : layout.segments)
    for (uint64_t i = 0; segment.owner == rank && i < segment.bytes; ++i)
      written.host[segment.offset + i] = std::byte{byte_at(segment.offset + i, 1)};
  if (!written.up(nullptr)) return error_of("copy");
  // Between two buffers of the device: the caller does not wait for it. As often as it takes to be late.
  for (int turn = 0; turn < 40; ++turn)
    if (!copy_to(target.at(), written.at(), layout.bytes, writer.handle())) return error_of("copy");
  complaint = start_and_wait(collective.value, nullptr, target.at(), teller.handle());
  if (complaint.empty()) complaint = finish_stream(&teller);
  if (complaint.empty() && mxs_collective_wait(collective.value, nullptr) != MXS_OK) complaint = error_of("wait");
  if (complaint.empty()) complaint = finish_stream(&writer);
  if (!complaint.empty()) return complaint;
  if (!target.down(nullptr)) return error_of("copy");
  return check_gathered(layout, target.host, 1).empty() ? "the missing order was not seen" : "";
}

void a_missing_order_is_seen(void **) {
  set_standin("MXS_STANDIN_SLOW", "20000");
  // All streams are as slow, but the writer has most to do.
  const bool fine = good(run_world(2, forgets));
  set_standin("MXS_STANDIN_SLOW", nullptr);
  assert_true(fine);
}

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  if (!on_standin()) {
    std::printf("1..0 # SKIP a real GPU's streams can't be slowed down\n");
    return 0;
  }
  setenv("MXS_SPEEDS", "none", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(slow_streams_stay_in_order_by_nccl),
      cmocka_unit_test(slow_streams_stay_in_order_by_messages),
      cmocka_unit_test(slow_streams_stay_in_order_by_levels),
      cmocka_unit_test(a_missing_order_is_seen),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
