// SPDX-License-Identifier: Apache-2.0
// The list of algorithms: for each a name, what it serves, and the maker of its trees.
#include "schedule/trees.hpp"

#include "schedule/blocks.hpp"

namespace mxs {

const char *algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::flat: return "flat";
    case Algorithm::chain: return "chain";
    case Algorithm::spread: return "spread";
    case Algorithm::circulant: return "circulant";
    case Algorithm::two_level_flat: return "two-level-flat";
    case Algorithm::two_level_chain: return "two-level-chain";
    case Algorithm::two_level_circulant: return "two-level-circulant";
    case Algorithm::direct: return "direct";
  }
  return "unknown";
}

bool serves(Algorithm algorithm, Direction direction) {
  switch (algorithm) {
    case Algorithm::flat:
    case Algorithm::chain:
    case Algorithm::spread: return direction != Direction::reshard;
    case Algorithm::circulant:
    case Algorithm::two_level_flat:
    case Algorithm::two_level_chain:
    case Algorithm::two_level_circulant: return direction == Direction::gather || direction == Direction::reduce;
    case Algorithm::direct: return direction == Direction::reshard;
  }
  return false;
}

std::unique_ptr<Trees> make_trees(const ScheduleOptions &options) {
  switch (options.algorithm) {
    case Algorithm::flat:
    case Algorithm::spread:
    case Algorithm::direct: return make_star_trees(options.layout->rank_count);
    case Algorithm::chain: return make_chain_trees(ring_of(options));
    case Algorithm::circulant: return make_circulant_trees(ring_of(options), Blocks(options).block_count());
    case Algorithm::two_level_flat:
    case Algorithm::two_level_chain:
    case Algorithm::two_level_circulant: return make_two_level_trees(options);
  }
  return nullptr;
}

std::vector<int> ring_of(const ScheduleOptions &options) {
  std::vector<int> ring;
  if (options.topology)
    for (const Node &node : options.topology->nodes) ring.insert(ring.end(), node.ranks.begin(), node.ranks.end());
  else
    for (int rank = 0; rank < options.layout->rank_count; ++rank) ring.push_back(rank);
  return ring;
}

std::vector<uint32_t> places_on(const std::vector<int> &ring) {
  std::vector<uint32_t> places(ring.size());
  for (size_t place = 0; place < ring.size(); ++place)
    places[static_cast<size_t>(ring[place])] = static_cast<uint32_t>(place);
  return places;
}

}  // namespace mxs
