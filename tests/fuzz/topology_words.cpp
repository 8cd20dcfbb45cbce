// SPDX-License-Identifier: Apache-2.0
// Topologies in words: what is understood has ranks and nodes that know of each other, and is saved and read again as
// the same.
#include "fuzz.hpp"
#include "topology/topology.hpp"

using namespace mxs;

namespace {

// Worlds of a million ranks are good, but each takes the time of thousands of small ones.
bool is_large(std::string_view text) {
  uint64_t number = 0;
  for (const char letter : text) {
    number = letter >= '0' && letter <= '9' ? number * 10 + static_cast<uint64_t>(letter - '0') : 0;
    if (number > 9 && number <= 2'000'000) return true;
    if (number > 2'000'000) number = 2'000'001;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  looks_like_words(text);
  Topology topology;
  if (size > 512 || is_large(text) || parse_topology(text, &topology) != MXS_OK) return 0;
  fuzz::promise(topology.rank_count() > 0 && topology.node_count() > 0);
  for (int rank = 0; rank < topology.rank_count(); ++rank) {
    const Node &node = topology.node(topology.node_of(rank));
    const RankPlace &place = topology.ranks[static_cast<size_t>(rank)];
    fuzz::promise(node.ranks[static_cast<size_t>(place.local_rank)] == rank);
    fuzz::promise(static_cast<size_t>(place.rail) < node.rails.size());
  }
  Topology again;
  fuzz::promise(topology_from_json(topology_to_json(topology), &again) == MXS_OK && again.hash() == topology.hash());
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"nodes:2 ranks:4", "ranks:3+5", "nodes:8 ranks:8 nic:2.5 local:200", "nodes:2 ranks:8 rails:2 numa:2",
          "ranks:1 latency:30 add:8", "nodes:99999999999999999999 ranks:2", "/path/to/file.json", "hwloc:machine.xml"};
}
