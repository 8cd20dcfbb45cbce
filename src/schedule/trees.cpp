// SPDX-License-Identifier: Apache-2.0
// The list of algorithms: a name and the maker of its trees for each.
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

std::unique_ptr<Trees> make_trees(const ScheduleOptions &options) {
  return options.algorithm == Algorithm::chain ? make_chain_trees(options) : make_star_trees(options);
}

}  // namespace mxs
