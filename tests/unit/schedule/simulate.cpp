// SPDX-License-Identifier: Apache-2.0
// The simulator against closed forms, and its refusals.
#include "schedule/simulate.hpp"

#include "schedule/bounds.hpp"
#include "schedule/cost.hpp"
#include "worlds.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

ScheduleOptions options_of(const Layout &layout, const Topology &topology, Algorithm algorithm, uint64_t chunk_bytes,
                           Direction direction = Direction::gather, uint32_t element_bytes = 1) {
  ScheduleOptions options;
  options.layout = &layout;
  options.topology = &topology;
  options.algorithm = algorithm;
  options.chunk_bytes = chunk_bytes;
  options.direction = direction;
  options.element_bytes = element_bytes;
  return options;
}

bool takes(const ScheduleOptions &options, int window, double wanted_s, double tolerance, const char *what) {
  Simulated simulated;
  if (simulate(options, window, &simulated) != MXS_OK) {
    print_error("%s: %s\n", what, last_error_text());
    return false;
  }
  if (near(simulated.seconds, wanted_s, tolerance)) return true;
  print_error("%s: %.6f s, not %.6f\n", what, simulated.seconds, wanted_s);
  return false;
}

// One owner's port carries everything (p - 1) times; a pipeline's carries it once, and the last chunk passes p - 1
// hops.
bool closed_forms_hold() {
  const Topology topology = made_topology(8, 1, slow_network, host_memory);
  const Layout one = owners_layout(8, 1, 16 * mib);
  const double once = 16.0 * mib / 25e6, hop = 140e-6, chunk = 65536 / 25e6;
  return takes(options_of(one, topology, Algorithm::flat, 65536), 4, 7 * once + hop, 1e-6, "flat") &&
         takes(options_of(one, topology, Algorithm::chain, 65536), 4, once + 7 * hop + 6 * chunk, 1e-6, "chain") &&
         takes(options_of(one, topology, Algorithm::flat, 65536, Direction::reduce, 4), 4, 7 * once + hop, 0.2,
               "flat reduce, contended");
}

bool small_things_hold() {
  const Topology two = made_topology(2, 1, slow_network, host_memory);
  const Topology alone = made_topology(1, 1, slow_network, host_memory);
  const Layout byte = owners_layout(2, 1, 64), nothing = owners_layout(2, 1, 0), own = owners_layout(1, 1, mib);
  return takes(options_of(byte, two, Algorithm::flat, 4096), 1, 140e-6 + 64 / 25e6, 1e-9, "64 bytes") &&
         takes(options_of(nothing, two, Algorithm::flat, 4096), 1, 0, 0, "nothing") &&
         takes(options_of(own, alone, Algorithm::flat, 4096), 1, 0, 0, "alone");
}

// No schedule is faster than its bound, whatever the world.
bool bounds_hold() {
  bool good = true;
  for (const int nodes : {1, 3, 8})
    for (const int local : {1, 4}) {
      const Topology topology = made_topology(nodes, local, slow_network, host_memory);
      for (const int owners : {1, 2, nodes * local})
        for (const Direction direction : {Direction::gather, Direction::reduce, Direction::ordered_reduce})
          for (const uint32_t element_bytes : {2u, 4u}) {
            if (owners > nodes * local) continue;
            const Layout layout = owners_layout(nodes * local, owners, mib + 192);
            ScheduleOptions options = options_of(layout, topology, Algorithm::flat, 0, direction, element_bytes);
            const double bound = lower_bound(options).bandwidth_s;
            for (const Prediction &prediction : predict_all(options, 0)) {
              options.algorithm = prediction.algorithm;
              options.chunk_bytes = prediction.chunk_bytes;
              Simulated simulated;
              const mxs_status status = simulate(options, prediction.window, &simulated);
              if (status == MXS_OK && simulated.seconds >= bound * 0.999999) continue;
              print_error("%d x %d, %d owners, direction %d, elements of %u, %s: %.6f s, bound %.6f %s\n", nodes,
                          local, owners, static_cast<int>(direction), element_bytes,
                          algorithm_name(prediction.algorithm), simulated.seconds, bound,
                          status == MXS_OK ? "" : last_error_text());
              good = false;
            }
          }
    }
  return good;
}

bool equal_runs_are_equal() {
  const Topology topology = made_topology(8, 2, slow_network, host_memory);
  const Layout layout = owners_layout(16, 7, 4 * mib, 4096);
  for (const Algorithm algorithm : {Algorithm::flat, Algorithm::chain, Algorithm::spread}) {
    Simulated first, second;
    const ScheduleOptions options = options_of(layout, topology, algorithm, 65536, Direction::reduce, 2);
    if (simulate(options, 2, &first) != MXS_OK || simulate(options, 2, &second) != MXS_OK) return false;
    if (first.seconds != second.seconds || first.last_rank != second.last_rank || first.seconds <= 0) return false;
  }
  return true;
}

// A rail that two ranks share carries both their bytes.
bool shared_rails_hold() {
  Topology topology = made_topology(2, 2, slow_network, host_memory);
  for (RankPlace &place : topology.ranks) place.rail = 0;
  const Layout layout = owners_layout(4, 4, 4 * mib);
  Simulated simulated;
  if (simulate(options_of(layout, topology, Algorithm::flat, 65536), 4, &simulated) != MXS_OK) return false;
  return simulated.rail_bytes_max == 4 * mib && simulated.seconds > 4.0 * mib / 25e6;
}

bool too_much_is_refused() {
  const Topology topology = made_topology(16384, 1, fast_network, gpu_links);
  const Layout layout = owners_layout(16384, 16384, 512 * mib);
  Simulated simulated;
  simulated.seconds = -1;
  const mxs_status status = simulate(options_of(layout, topology, Algorithm::flat, 65536), 4, &simulated);
  const std::string sentence = last_error_text();
  return status == MXS_OVER_BUDGET && simulated.seconds < 0 && sentence.find("16384 ranks") != std::string::npos &&
         sentence.find("messages") != std::string::npos;
}

void times_are_those_of_closed_forms(void **) { assert_true(closed_forms_hold()); }
void little_or_nothing_takes_little_or_nothing(void **) { assert_true(small_things_hold()); }
void no_schedule_is_faster_than_the_bound(void **) { assert_true(bounds_hold()); }
void equal_runs_give_equal_times(void **) { assert_true(equal_runs_are_equal()); }
void a_rail_is_shared_by_its_ranks(void **) { assert_true(shared_rails_hold()); }
void a_square_of_messages_is_refused_before_it_is_built(void **) { assert_true(too_much_is_refused()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(times_are_those_of_closed_forms),
      cmocka_unit_test(little_or_nothing_takes_little_or_nothing),
      cmocka_unit_test(no_schedule_is_faster_than_the_bound),
      cmocka_unit_test(equal_runs_give_equal_times),
      cmocka_unit_test(a_rail_is_shared_by_its_ranks),
      cmocka_unit_test(a_square_of_messages_is_refused_before_it_is_built),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
