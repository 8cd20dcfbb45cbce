// SPDX-License-Identifier: Apache-2.0
// mxs_simulate, from outside: results, and what it refuses.
#include <string>

#include "matrixshard/matrixshard.h"

#include "support/cmocka_all.h"

namespace {

struct World {
  mxs_topology *topology = nullptr;
  mxs_layout *layout = nullptr;

  World(const char *words, int32_t rank_count) {
    mxs_topology_create(&topology, words);
    mxs_layout_create_even(&layout, 1 << 20, 4, rank_count);
  }
  World(const World &) = delete;
  ~World() {
    mxs_topology_destroy(&topology);
    mxs_layout_destroy(&layout);
  }
  mxs_collective_options options(int32_t kind) const {
    mxs_collective_options result = MXS_COLLECTIVE_OPTIONS_INIT;
    result.kind = kind;
    result.layout = layout;
    result.dtype = MXS_F32;
    return result;
  }
};

const char *const words = "nodes:4 ranks:2 nic:1 local:10 latency:20 overhead:5";

bool gives_a_result(int32_t kind, int32_t flags, const char *algorithm) {
  const World world(words, 8);
  mxs_collective_options options = world.options(kind);
  options.flags = flags;
  options.algorithm = algorithm;
  mxs_simulation result = MXS_SIMULATION_INIT, again = MXS_SIMULATION_INIT;
  if (mxs_simulate(world.topology, &options, &result) != MXS_OK) {
    print_error("%s\n", mxs_last_error());
    return false;
  }
  if (mxs_simulate(world.topology, &options, &again) != MXS_OK || again.time_ns != result.time_ns) return false;
  const bool named = result.algorithm && (!algorithm || std::string(result.algorithm) == algorithm);
  return named && result.time_ns >= result.bound_ns && result.bound_ns > 0 && result.predicted_ns > 0 &&
         result.message_count >= 8 && result.chunk_bytes > 0 && result.window > 0 && result.rail_bytes_max > 0 &&
         result.last_rank >= 0 && result.last_rank < 8;
}

bool results_hold() {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat", "chain", "spread"})
    if (!gives_a_result(MXS_GATHER, 0, algorithm) || !gives_a_result(MXS_REDUCE, 0, algorithm) ||
        !gives_a_result(MXS_REDUCE, MXS_RANK_ORDER | MXS_ACCUMULATE, algorithm)) {
      print_error("with %s\n", algorithm ? algorithm : "the chosen one");
      return false;
    }
  return true;
}

bool reshards() {
  const World world(words, 8);
  mxs_layout *target = nullptr;
  mxs_segment segment = MXS_SEGMENT_INIT;
  segment.owner = 3;
  segment.bytes = 1 << 20;
  mxs_layout_create(&target, &segment, 1, 8, 1);
  mxs_collective_options options = world.options(MXS_RESHARD);
  options.target_layout = target;
  mxs_simulation result = MXS_SIMULATION_INIT;
  const bool good = mxs_simulate(world.topology, &options, &result) == MXS_OK && result.time_ns >= result.bound_ns &&
                    std::string(result.algorithm) == "direct";
  mxs_layout_destroy(&target);
  return good;
}

bool refuses(const World &world, const mxs_collective_options &options, mxs_status wanted, const char *part) {
  mxs_simulation result = MXS_SIMULATION_INIT;
  result.time_ns = 77;
  const mxs_status status = mxs_simulate(world.topology, &options, &result);
  const std::string sentence = mxs_last_error();
  if (status == wanted && result.time_ns == 77 && sentence.find(part) != std::string::npos) return true;
  print_error("status %d, '%s', not %d with '%s'\n", status, sentence.c_str(), wanted, part);
  return false;
}

bool bad_input_is_refused() {
  const World world(words, 8), other("ranks:4", 8);
  const mxs_collective_options gather = world.options(MXS_GATHER), reduce = world.options(MXS_REDUCE);
  mxs_collective_options options = gather;
  mxs_simulation result = MXS_SIMULATION_INIT;
  if (mxs_simulate(nullptr, &gather, &result) != MXS_INVALID_ARGUMENT) return false;
  if (mxs_simulate(world.topology, nullptr, &result) != MXS_INVALID_ARGUMENT) return false;
  if (mxs_simulate(world.topology, &gather, nullptr) != MXS_INVALID_ARGUMENT) return false;
  result.size = 3;
  if (mxs_simulate(world.topology, &gather, &result) != MXS_INVALID_ARGUMENT) return false;
  options.layout = nullptr;
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "layout is NULL")) return false;
  options = gather;
  options.size = 1;
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "size is 1")) return false;
  options = gather;
  options.algorithm = "bogus";
  if (!refuses(world, options, MXS_NOT_FOUND, "chain")) return false;
  options.algorithm = "fanout";
  if (!refuses(world, options, MXS_NOT_FOUND, "in messages")) return false;
  options = gather;
  options.chunk_bytes = 100;
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "chunk_bytes is 100")) return false;
  options = gather;
  options.window = -1;
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "window is -1")) return false;
  options.window = 65;  // mxs_collective_create refuses it, too
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "window is 65")) return false;
  options = reduce;
  options.dtype = 99;
  if (!refuses(world, options, MXS_INVALID_ARGUMENT, "dtype is 99")) return false;
  return refuses(other, gather, MXS_INVALID_ARGUMENT, "the topology has 4");
}

// 2^50 bytes at 1 KB/s take 36,000 years: neither a chunk that the next check refuses nor a time that wraps around.
bool enormous_payloads_hold() {
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, "ranks:1+1 nic:0.000001 latency:4000000 overhead:4000000") != MXS_OK) return false;
  mxs_layout *layout = nullptr;
  mxs_segment segment = MXS_SEGMENT_INIT;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  mxs_simulation result = MXS_SIMULATION_INIT;
  bool good = true;
  for (const uint64_t bytes : {uint64_t{1} << 47, uint64_t{1} << 50}) {
    segment.bytes = bytes;
    good = good && mxs_layout_create(&layout, &segment, 1, 2, 1) == MXS_OK;
    options.layout = layout;
    good = good && mxs_simulate(topology, &options, &result) == MXS_OK && result.chunk_bytes <= uint64_t{1} << 30 &&
           result.time_ns > uint64_t{9'000'000'000'000'000'000} && result.time_ns < uint64_t{1} << 63 &&
           result.bound_ns <= result.time_ns;
    mxs_layout_destroy(&layout);
  }
  if (!good) print_error("chunk %llu, %llu ns, %s\n", static_cast<unsigned long long>(result.chunk_bytes),
                         static_cast<unsigned long long>(result.time_ns), mxs_last_error());
  mxs_topology_destroy(&topology);
  return good;
}

void enormous_payloads_take_enormous_time(void **) { assert_true(enormous_payloads_hold()); }
void every_kind_and_algorithm_gives_a_result(void **) { assert_true(results_hold()); }
void a_reshard_is_simulated_as_well(void **) { assert_true(reshards()); }
void bad_input_gives_a_sentence_and_no_result(void **) { assert_true(bad_input_is_refused()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_and_algorithm_gives_a_result),
      cmocka_unit_test(enormous_payloads_take_enormous_time),
      cmocka_unit_test(a_reshard_is_simulated_as_well),
      cmocka_unit_test(bad_input_gives_a_sentence_and_no_result),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
