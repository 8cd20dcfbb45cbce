// SPDX-License-Identifier: Apache-2.0
// Collectives in CUDA memory, ranks as threads that share the GPUs, by each of the routes.
#include <cstdlib>

#include "gpu/collective_matrix.hpp"
#include "gpu/gpu.hpp"
#include "support/transports.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr Expected by_nccl = {"nccl broadcasts", "nccl reduces", "rank order", "nccl sends"};
constexpr Expected by_messages = {"staged", "staged", "staged", "staged"};
constexpr Expected by_levels = {"two-level", "two-level", "staged", "staged"};

bool in_worlds(const std::vector<int> &worlds, const char *route, const char *topology, bool by_stream, uint64_t scale,
               const Expected &expected, const char *described) {
  if (route) setenv("MXS_ROUTE", route, 1);
  if (topology) setenv("MXS_TOPOLOGY", topology, 1);
  bool fine = true;
  for (const int rank_count : worlds) {
    const bool alone = rank_count == 1;
    fine = fine && good(run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
      const std::string wrong = whole_matrix(rank, rank_count, comm, by_stream, scale, alone ? Expected{} : expected);
      if (!wrong.empty()) return wrong;
      mxs_comm_info info = MXS_COMM_INFO_INIT;
      mxs_comm_query(comm, &info);
      if (info.progress != MXS_PROGRESS_THREAD) return "no thread makes progress";
      if (!alone && std::string(info.cuda).find(described) == std::string::npos) return info.cuda;
      return "";
    }));
  }
  unsetenv("MXS_ROUTE");
  unsetenv("MXS_TOPOLOGY");
  return fine;
}

void nccl_joins_all_ranks_of_a_node(void **) {
  assert_true(in_worlds(world_sizes, nullptr, nullptr, false, 101, by_nccl, "nccl "));
}

void streams_order_collectives_by_nccl(void **) {
  assert_true(in_worlds({1, 2, 4}, nullptr, nullptr, true, 101, by_nccl, "nccl "));
}

void messages_go_without_nccl(void **) {
  assert_true(in_worlds({1, 2, 3, 7}, "messages", nullptr, false, 101, by_messages, "staged over loopback"));
}

void streams_order_messages(void **) {
  assert_true(in_worlds({2, 4}, "messages", nullptr, true, 101, by_messages, "staged over loopback"));
}

void nodes_are_joined_by_messages(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(in_worlds({4}, nullptr, "nodes:2 ranks:2", false, 501, by_levels, "in nodes, ucx between"));
  assert_true(in_worlds({4}, nullptr, "nodes:2 ranks:2", true, 101, by_levels, "in nodes, ucx between"));
  assert_true(in_worlds({2}, "levels", "nodes:2 ranks:1", false, 101, by_levels, "in nodes, ucx between"));
  assert_true(in_worlds({8}, "levels", "nodes:4 ranks:2", false, 101, by_levels, "in nodes, ucx between"));
}

void nodes_of_different_sizes_are_joined_by_nccl(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(in_worlds({3}, nullptr, "ranks:1+2", false, 101, by_nccl, "nccl "));
}

void nccl_may_carry_everything_between_nodes(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(in_worlds({4}, "nccl", "nodes:2 ranks:2", false, 101, by_nccl, "nccl "));
}

// ---- parts and rounds ----

// Large enough for several parts of messages, and a slot that is used again.
std::string large(int rank, int rank_count, mxs_comm *comm) {
  std::string complaint = open_device_of(comm);
  TestLayout layout("large", 64);
  for (int owner = 0; owner < rank_count; ++owner)
    layout.add(owner, (uint64_t{5} << 20) + 4096 * static_cast<uint64_t>(owner));
  layout.add(0, 4444);
  const FrameworkStream stream(device_of_comm(comm));
  for (const bool by_stream : {false, true}) {
    DeviceCase each;
    each.layout = &layout;
    each.stream = by_stream ? &stream : nullptr;
    if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
    each.kind = MXS_REDUCE;
    each.dtype = by_stream ? MXS_BF16 : MXS_F32;
    each.flags = by_stream ? MXS_ACCUMULATE : 0;
    if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
  }
  return complaint;
}

bool large_by(const char *route, const char *topology, int rank_count) {
  if (route) setenv("MXS_ROUTE", route, 1);
  if (topology) setenv("MXS_TOPOLOGY", topology, 1);
  const std::string complaint =
      run_world(rank_count, [&](int rank, mxs_comm *comm) { return large(rank, rank_count, comm); });
  unsetenv("MXS_ROUTE");
  unsetenv("MXS_TOPOLOGY");
  return good(complaint);
}

void large_buffers_go_in_parts(void **) {
  assert_true(large_by(nullptr, nullptr, 2));
  assert_true(large_by("messages", nullptr, 2));
  if (has_transport("ucx")) assert_true(large_by("levels", "nodes:2 ranks:1", 2));
}

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments)) return 0;
  setenv("MXS_SPEEDS", "none", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(nccl_joins_all_ranks_of_a_node),
      cmocka_unit_test(streams_order_collectives_by_nccl),
      cmocka_unit_test(messages_go_without_nccl),
      cmocka_unit_test(streams_order_messages),
      cmocka_unit_test(nodes_are_joined_by_messages),
      cmocka_unit_test(nodes_of_different_sizes_are_joined_by_nccl),
      cmocka_unit_test(nccl_may_carry_everything_between_nodes),
      cmocka_unit_test(large_buffers_go_in_parts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
