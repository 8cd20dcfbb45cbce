// SPDX-License-Identifier: Apache-2.0
// Every algorithm on every layout with 64 and with 1,024 ranks. The program's arguments are the direction and which
// part: each takes 1 to 20 s of CPU time.
//
// With 1,024 owners there are a million (rank, piece) pairs however few messages an algorithm makes of them, so there
// every algorithm sees one topology, and only reduces that accumulate.
#include <cstring>

#include "schedules.hpp"
#include "support/sanitized.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

Direction direction = Direction::gather;

bool holds(const ScheduleOptions &options, const TestLayout &layout, const NamedTopology &topology, int rank_count) {
  Set set;
  make_set(&set, options, layout, layout, rank_count);
  const std::string complaint = set.check(1);
  if (complaint.empty()) return true;
  print_error("%s, %s, %d ranks, topology '%s', layout '%s': %s\n", direction_name(options.direction),
              algorithm_name(options.algorithm), rank_count, topology.name.c_str(), layout.name.c_str(),
              complaint.c_str());
  return false;
}

bool all_hold(int rank_count, const NamedTopology &topology, const std::vector<TestLayout> &layouts,
              uint64_t chunk_bytes) {
  for (const Algorithm algorithm : all_algorithms) {
    if (!serves(algorithm, direction)) continue;
    ScheduleOptions options;
    options.direction = direction;
    options.algorithm = algorithm;
    options.topology = &topology.topology;
    options.element_bytes = direction == Direction::gather ? 1 : 4;
    options.accumulate = direction != Direction::gather;
    options.chunk_bytes = chunk_bytes;
    for (const TestLayout &layout : layouts)
      if (!holds(options, layout, topology, rank_count)) return false;
  }
  return true;
}

bool holds_with_64_ranks() {
  for (const NamedTopology &topology : schedule_topologies(64))
    for (const uint64_t chunk_bytes : {256u, 4096u})
      if (!all_hold(64, topology, schedule_layouts(64, 4, 61), chunk_bytes)) return false;
  return true;
}

std::vector<TestLayout> layouts_of_1024(bool all_own) {
  constexpr int rank_count = 1024;
  TestLayout even("even", 1), odd("odd sizes, one empty", 1), one("one owner", 1), two("two owners", 1);
  TestLayout seven("seven owners", 64), zipf("zipf", 1), byte("one element", 1), nothing("nothing", 1);
  for (int rank = 0; rank < rank_count; ++rank) {
    even.add(rank, 256);
    odd.add(rank, rank == 511 ? 0 : 4 * (1 + static_cast<uint64_t>(rank * 7 % 60)));
    zipf.add((rank + 300) % rank_count, 4 * (1 + 3000 / (static_cast<uint64_t>(rank) + 1)));
    nothing.add(rank, 0);
  }
  one.add(77, 4 * 3000);
  for (int owner = 0; owner < 2; ++owner) two.add(owner * 1023, 4 * 1500);
  for (int owner = 0; owner < 7; ++owner) seven.add(owner * rank_count / 7, 4 * (300 + static_cast<uint64_t>(owner)));
  byte.add(512, 4);
  return all_own ? std::vector<TestLayout>{even, odd}
                 : std::vector<TestLayout>{one, two, seven, zipf, byte, nothing};
}

bool holds_with_1024_ranks(bool all_own) {
  return all_hold(1024, topology_of("nodes of 8", 1024, {8}, false, 2), layouts_of_1024(all_own), 1024);
}

void with_64_ranks(void **) { assert_true(holds_with_64_ranks()); }
void with_1024_owners(void **) { assert_true(holds_with_1024_ranks(true)); }
void with_1024_ranks_and_some_owners(void **) { assert_true(holds_with_1024_ranks(false)); }

}  // namespace

int main(int argc, char **argv) {
  if (test::under_valgrind()) {
    std::printf("1..0 # SKIP they take hours under valgrind; schedule_matrix and schedule_nodes run the same code\n");
    return 0;
  }
  for (const Direction each : all_directions)
    if (argc > 1 && std::strcmp(argv[1], direction_name(each)) == 0) direction = each;
  const CMUnitTest few[] = {cmocka_unit_test(with_64_ranks)}, owners[] = {cmocka_unit_test(with_1024_owners)},
                   many[] = {cmocka_unit_test(with_1024_ranks_and_some_owners)};
  const std::string part = argc > 2 ? argv[2] : "";
  if (part == "64 ranks") return cmocka_run_group_tests(few, nullptr, nullptr);
  if (part == "1024 owners") return cmocka_run_group_tests(owners, nullptr, nullptr);
  return cmocka_run_group_tests(many, nullptr, nullptr);
}
