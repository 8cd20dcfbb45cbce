// SPDX-License-Identifier: Apache-2.0
// The list of algorithms: for each a name, what it serves, and the maker of its trees.
#include "schedule/trees.hpp"

namespace mxs {

const char *algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::flat: return "flat";
    case Algorithm::chain: return "chain";
    case Algorithm::spread: return "spread";
    case Algorithm::direct: return "direct";
  }
  return "unknown";
}

bool serves(Algorithm algorithm, Direction direction) {
  switch (algorithm) {
    case Algorithm::flat:
    case Algorithm::chain:
    case Algorithm::spread: return direction != Direction::reshard;
    case Algorithm::direct: return direction == Direction::reshard;
  }
  return false;
}

std::unique_ptr<Trees> make_trees(const ScheduleOptions &options) {
  return options.algorithm == Algorithm::chain ? make_chain_trees(options) : make_star_trees(options);
}

}  // namespace mxs
