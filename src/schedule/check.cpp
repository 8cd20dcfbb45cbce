// SPDX-License-Identifier: Apache-2.0
// The checker: runs a whole world's schedules on paper and complains about the first thing that is wrong.
//
//   checked_world.cpp   the form of moves, their places, and both ends of messages
//   check_hazards.cpp   what two moves of a rank do to the same bytes
//   check_run.cpp       a run to the end, and what came of it
//
// What it proves is bytes, not pieces or messages: a wrong cut would pass a proof of pieces.
#include "schedule/checked_world.hpp"

namespace mxs {

std::string check_schedules(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules,
                            int window) {
  checker::World world(layout, target_layout, schedules, window);
  std::string complaint = world.build();
  if (complaint.empty()) complaint = checker::check_hazards(world);
  if (complaint.empty()) complaint = checker::check_run(world);
  return complaint;
}

}  // namespace mxs
