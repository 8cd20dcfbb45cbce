// SPDX-License-Identifier: Apache-2.0
// Sums over some ranks of a comm: in rank order, with equal bits, whatever else these ranks and the others do.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "collective/group_sum.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// A term that no other order of addition sums to the same bits.
float term(int member, uint64_t index, uint64_t turn) {
  const uint64_t mixed = (index * 2654435761u + static_cast<uint64_t>(member) * 40503u + turn * 97u) % 100003u;
  return static_cast<float>(mixed) * 1e-3f - 50.0f + static_cast<float>(member) * 1e4f;
}

std::string sums_are_right(GroupSum &sum, uint64_t count, uint64_t turn) {
  constexpr float guard = -12345.5f;
  std::vector<float> values(count + 2, guard);
  for (uint64_t i = 0; i < count; i++) values[i + 1] = term(sum.member(), i, turn);
  if (sum.sum(values.data() + 1, count) != MXS_OK) return std::string("the sum: ") + mxs_last_error();
  if (values.front() != guard || values.back() != guard) return "it wrote past the ends";
  for (uint64_t i = 0; i < count; i++) {
    float wanted = 0;
    for (int member = 0; member < sum.member_count(); member++) wanted += term(member, i, turn);
    if (values[i + 1] != wanted)
      return std::to_string(count) + " numbers, number " + std::to_string(i) + " is " + std::to_string(values[i + 1]) +
             ", not " + std::to_string(wanted);
  }
  return "";
}

// Groups overlap and are made by all ranks in one order; their sums come in the same order everywhere.
std::string sums_in_groups(mxs_comm *comm) {
  const int ranks = comm->rank_count;
  std::vector<std::vector<int>> groups = {{0, 1}};
  if (ranks > 2) groups.push_back({1, 2});
  if (ranks > 3) groups.push_back({0, 2, 3});
  groups.emplace_back();
  for (int rank = 0; rank < ranks; rank++) groups.back().push_back(rank);
  std::vector<std::unique_ptr<GroupSum>> sums(groups.size());
  for (size_t group = 0; group < groups.size(); group++) {
    if (GroupSum::create(&sums[group], *comm, groups[group], group % 2 ? 300000 : 2000) != MXS_OK)
      return std::string("create: ") + mxs_last_error();
    const bool member = std::count(groups[group].begin(), groups[group].end(), comm->rank) > 0;
    if (member != static_cast<bool>(sums[group])) return "a group has another member";
  }
  uint64_t turn = 0;
  for (const uint64_t count : {1u, 0u, 1023u, 1024u, 1025u, 5000u, 262144u, 600001u, 3u})
    for (const std::unique_ptr<GroupSum> &sum : sums) {
      ++turn;
      const std::string complaint = sum ? sums_are_right(*sum, count, turn) : "";
      if (!complaint.empty()) return complaint;
    }
  return comm->barrier(0) == MXS_OK ? "" : "the barrier";
}

std::string in_threads() {
  for (const int rank_count : {2, 3, 4, 8}) {
    const std::string complaint = run_world(rank_count, [](int, mxs_comm *comm) { return sums_in_groups(comm); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

std::string in_processes() {
  for (const int rank_count : {2, 4}) {
    const std::string complaint = run_processes(rank_count, [](int, mxs_comm *comm) { return sums_in_groups(comm); });
    if (!complaint.empty()) return std::to_string(rank_count) + " ranks, " + complaint;
  }
  return "";
}

bool is_well(const std::string &complaint) {
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void groups_of_threads_sum_in_rank_order(void **) { assert_true(is_well(in_threads())); }
void groups_of_processes_sum_in_rank_order(void **) { assert_true(is_well(in_processes())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(groups_of_threads_sum_in_rank_order),
      cmocka_unit_test(groups_of_processes_sum_in_rank_order),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
