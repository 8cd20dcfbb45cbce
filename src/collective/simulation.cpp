// SPDX-License-Identifier: Apache-2.0
#include "collective/simulation.hpp"

#include <cmath>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/choice.hpp"
#include "schedule/simulate.hpp"

namespace mxs {

namespace {

constexpr int window_max = 1024;

uint64_t nanoseconds(double seconds) { return static_cast<uint64_t>(std::llround(1e9 * seconds)); }

mxs_status check(const Topology &topology, const MessageOptions &options) {
  if (options.layout->rank_count != topology.rank_count())
    return set_error(MXS_INVALID_ARGUMENT, "the layout is for %d ranks, the topology has %d",
                     options.layout->rank_count, topology.rank_count());
  if (options.window < 0 || options.window > window_max)
    return set_error(MXS_INVALID_ARGUMENT, "window is %d, not from 1 to %d (0: chosen)", options.window, window_max);
  if (options.kind == MXS_RESHARD) {  // the same bytes, no gaps, the same ranks?
    std::vector<LayoutMove> moves;
    return layout_moves(*options.layout, *options.target_layout, &moves);
  }
  if (options.kind != MXS_REDUCE) return MXS_OK;
  if (options.dtype != MXS_F32 && options.dtype != MXS_BF16 && options.dtype != MXS_F16)
    return set_error(MXS_INVALID_ARGUMENT, "dtype is %d, but a reduce takes MXS_F32, MXS_BF16 or MXS_F16",
                     options.dtype);
  return check_elements(*options.layout, static_cast<uint32_t>(dtype_bytes(options.dtype)));
}

}  // namespace

mxs_status simulate_collective(const Topology &topology, const MessageOptions &options, const char *name,
                               mxs_simulation *result) {
  mxs_status status = check(topology, options);
  Choice choice;
  if (status == MXS_OK) status = choose_messages(topology, options, name, &choice);
  if (status != MXS_OK) return status;
  MessageOptions chosen = options;
  apply(choice, &chosen);
  Simulated simulated;
  status = simulate(schedule_options(topology, chosen), chosen.window, &simulated);
  if (status != MXS_OK) return status;
  mxs_simulation found = MXS_SIMULATION_INIT;
  found.window = choice.window;
  found.algorithm = algorithm_name(choice.algorithm);
  found.time_ns = nanoseconds(simulated.seconds);
  found.bound_ns = nanoseconds(choice.bound_s);
  found.predicted_ns = nanoseconds(choice.predicted_s);
  found.message_count = simulated.message_count;
  found.rail_bytes_max = simulated.rail_bytes_max;
  found.chunk_bytes = choice.chunk_bytes;
  found.last_rank = simulated.last_rank;
  *result = found;
  return MXS_OK;
}

}  // namespace mxs
