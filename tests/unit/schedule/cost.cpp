// SPDX-License-Identifier: Apache-2.0
// The cost model against the simulator: does it choose well, and is it cheap?
#include "schedule/cost.hpp"

#include <algorithm>
#include <cstdlib>

#include "schedule/bounds.hpp"
#include "schedule/simulate.hpp"
#include "support/thinned.hpp"
#include "worlds.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr uint64_t kib = 1024, mib = uint64_t{1} << 20;

struct World {
  const char *name;
  Topology topology;
};

std::vector<World> worlds() {
  return {{"8 x 1 at 200 Mbit/s", made_topology(8, 1, slow_network, host_memory)},
          {"4 x 2 at 200 Mbit/s", made_topology(4, 2, slow_network, host_memory)},
          {"one node of 8", made_topology(1, 8, slow_network, host_memory)},
          {"8 x 8 GPUs", made_topology(8, 8, fast_network, gpu_links)}};
}

struct Tally {
  int count = 0, off = 0;
  double worst_regret = 1, worst_error = 1;
  bool good = true;
};

// Chosen, and each by itself.
void compare(const World &world, const Layout &layout, const char *shape, Direction direction, uint32_t element_bytes,
             Tally *tally) {
  ScheduleOptions options;
  options.direction = direction;
  options.element_bytes = element_bytes;
  options.layout = &layout;
  options.topology = &world.topology;
  double chosen = 0, best = 0;
  std::string line;
  for (const Prediction &prediction : predict_all(options, 0)) {
    options.algorithm = prediction.algorithm;
    options.chunk_bytes = prediction.chunk_bytes;
    if (message_estimate(options) > 400'000) continue;  // none of these is anywhere near the best
    Simulated simulated;
    if (simulate(options, prediction.window, &simulated) != MXS_OK) {
      print_error("%s: %s\n", world.name, last_error_text());
      tally->good = false;
      return;
    }
    if (chosen == 0) chosen = best = simulated.seconds;
    best = std::min(best, simulated.seconds);
    const double error = std::max(prediction.seconds / simulated.seconds, simulated.seconds / prediction.seconds);
    ++tally->count;
    tally->off += error > 1.3;
    tally->worst_error = std::max(tally->worst_error, error);
    char part[120];
    std::snprintf(part, sizeof part, "  %s %.0f us (predicted %.0f, %lluK)", algorithm_name(prediction.algorithm),
                  1e6 * simulated.seconds, 1e6 * prediction.seconds,
                  static_cast<unsigned long long>(prediction.chunk_bytes / kib));
    line += part;
  }
  const double regret = chosen / best;
  tally->worst_regret = std::max(tally->worst_regret, regret);
  if (regret > 1.25) tally->good = false;
  if (regret > 1.25 || std::getenv("MXS_TEST_SHOW"))
    print_error("%s, %llu KiB, %s, direction %d, elements of %u: regret %.2f, bound %.0f us;%s\n", world.name,
                static_cast<unsigned long long>(layout.bytes / kib), shape, static_cast<int>(direction), element_bytes,
                regret, 1e6 * lower_bound(options).seconds(), line.c_str());
}

bool chooses_well() {
  Tally tally;
  for (const World &world : worlds()) {
    const int ranks = world.topology.rank_count();
    for (const uint64_t bytes : test::thinned<uint64_t>({4 * kib, mib, 16 * mib})) {
      const Layout one = owners_layout(ranks, 1, bytes), seven = owners_layout(ranks, 7, bytes, bytes / 32),
                   even = owners_layout(ranks, ranks, bytes);
      for (const auto &[layout, shape] : {std::pair{&one, "k = 1"}, {&seven, "k = 7 + tail"}, {&even, "even"}})
        for (const auto &[direction, element_bytes] :
             {std::pair{Direction::gather, 4u}, {Direction::reduce, 4u}, {Direction::reduce, 2u},
              {Direction::ordered_reduce, 4u}})
          compare(world, *layout, shape, direction, element_bytes, &tally);
    }
  }
  print_message("# %d simulated, %d predicted off by more than 1.3, the worst by %.2f; worst regret %.2f\n",
                tally.count, tally.off, tally.worst_error, tally.worst_regret);
  return tally.good && tally.off <= tally.count / 4;
}

void the_cheapest_by_the_model_is_nearly_the_fastest_simulated(void **) { assert_true(chooses_well()); }

// A layer of Qwen3-32B in bf16: gate, up and down, q and output, k and v.
Layout layer_layout(int rank_count) {
  std::vector<Segment> segments;
  uint64_t offset = 0;
  for (const uint64_t matrix_mib : {250, 250, 250, 80, 80, 10, 10}) {
    segments.push_back({static_cast<int32_t>(segments.size()), offset, matrix_mib * mib});
    offset += matrix_mib * mib;
  }
  Layout layout;
  make_layout(segments, rank_count, 1, &layout);
  return layout;
}

double simulated_seconds(const ScheduleOptions &options, int window) {
  Simulated simulated;
  if (simulate(options, window, &simulated) == MXS_OK) return simulated.seconds;
  print_error("%s\n", last_error_text());
  return 0;
}

// With chunks of 96 KiB a chain's windows are empty most of the time from 2 us on: 7.6 ms then, 15.4 ms at 5 us.
bool prices_windows(uint32_t latency_ns) {
  const Topology topology = made_topology(1, 8, slow_network, {latency_ns, 200, 200'000'000'000});
  const Layout layout = layer_layout(topology.rank_count());
  ScheduleOptions options;
  options.layout = &layout;
  options.topology = &topology;
  bool good = true;
  const auto simulated = [&](const Prediction &prediction, double within) {
    options.algorithm = prediction.algorithm;
    options.chunk_bytes = prediction.chunk_bytes;
    const double found = simulated_seconds(options, prediction.window);
    if (found > 0 && std::max(prediction.seconds / found, found / prediction.seconds) <= within) return found;
    print_error("%u ns, %s in chunks of %llu KiB: predicted %.0f us, simulated %.0f us\n", latency_ns,
                algorithm_name(prediction.algorithm), static_cast<unsigned long long>(prediction.chunk_bytes / kib),
                1e6 * prediction.seconds, 1e6 * found);
    good = false;
    return found;
  };
  if (simulated(predict_all(options, 0).front(), 1.1) > 1.1 * lower_bound(options).seconds()) good = false;
  for (const Algorithm algorithm : all_algorithms) {  // two levels on one node among them
    if (algorithm == Algorithm::direct) continue;
    options.algorithm = algorithm;
    options.chunk_bytes = 0;
    simulated(predict(options, 0), 1.4);
  }
  options.algorithm = Algorithm::chain;
  options.chunk_bytes = 96 * kib;
  simulated(predict(options, 0), 1.1);
  return good;
}

void a_channels_window_is_priced_by_the_way_of_a_message(void **) {
  for (const uint32_t latency_ns : {300u, 2000u, 5000u}) assert_true(prices_windows(latency_ns));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_cheapest_by_the_model_is_nearly_the_fastest_simulated),
      cmocka_unit_test(a_channels_window_is_priced_by_the_way_of_a_message),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
