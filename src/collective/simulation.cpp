// SPDX-License-Identifier: Apache-2.0
#include "collective/simulation.hpp"

#include "base/status.hpp"
#include "collective/choice.hpp"
#include "schedule/cost.hpp"
#include "schedule/simulate.hpp"

namespace mxs {

namespace {

mxs_status check(const Topology &topology, const MessageOptions &options) {
  const mxs_status status = check_message_options(options, "the topology", topology.rank_count());
  if (status != MXS_OK || options.kind != MXS_RESHARD) return status;
  std::vector<LayoutMove> moves;  // the same bytes, no gaps, the same ranks?
  return layout_moves(*options.layout, *options.target_layout, &moves);
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
  found.time_ns = nanoseconds_of(simulated.seconds);
  found.bound_ns = nanoseconds_of(choice.bound_s);
  found.predicted_ns = nanoseconds_of(choice.predicted_s);
  found.message_count = simulated.message_count;
  found.rail_bytes_max = simulated.rail_bytes_max;
  found.chunk_bytes = choice.chunk_bytes;
  found.last_rank = simulated.last_rank;
  *result = found;
  return MXS_OK;
}

}  // namespace mxs
