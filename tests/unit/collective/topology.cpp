// SPDX-License-Identifier: Apache-2.0
// The exchange of topologies: one comes out on all ranks, and if it were not so all would hear of it.
#include <string>
#include <vector>

#include "collective/comm_topology.hpp"
#include "support/complaints.hpp"
#include "support/local_world.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::testing::World;
using mxs::test::good;

namespace {

std::string all_ranks_come_to_one() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8}) {
    std::vector<uint64_t> hashes(static_cast<size_t>(rank_count));
    const std::string wrong = World(rank_count).run_threads([&](int rank, Bootstrap &bootstrap) -> std::string {
      OwnPicture own;
      if (rank == 0) own.topology.set_factor("chain", 1100);
      std::vector<uint64_t> labels;
      for (int each = 0; each < rank_count; ++each) labels.push_back(static_cast<uint64_t>(each / 3));
      Topology topology;
      if (exchange_topology(bootstrap, own, labels, &topology) != MXS_OK) return last_error_text();
      hashes[static_cast<size_t>(rank)] = topology.hash(true);
      if (topology.node_count() != (rank_count + 2) / 3) return "wrong nodes";
      return topology.factor_per_mille("chain") == 1100 ? "" : "rank 0's speeds are lost";
    });
    if (!wrong.empty()) return wrong;
    for (const uint64_t hash : hashes)
      if (hash != hashes[0]) return "hashes differ";
  }
  return "";
}

// A fault that is planted: rank 2 counts itself to another node than the others do.
std::string a_difference_is_told_to_all() {
  return World(3).run_threads([](int rank, Bootstrap &bootstrap) -> std::string {
    Topology topology;
    const std::vector<uint64_t> labels = {7, 7, rank == 2 ? 8u : 7u};
    const std::string wrong = mxs::test::expect(exchange_topology(bootstrap, OwnPicture(), labels, &topology),
                                                MXS_MISMATCH, {"ranks 0 and 2"});
    return !wrong.empty() ? wrong : topology.rank_count() == 0 ? "" : "the result was touched";
  });
}

void one_topology_comes_out_on_all_ranks(void **) { assert_true(good(all_ranks_come_to_one())); }
void ranks_that_differ_hear_of_it(void **) { assert_true(good(a_difference_is_told_to_all())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_topology_comes_out_on_all_ranks),
      cmocka_unit_test(ranks_that_differ_hear_of_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
