// SPDX-License-Identifier: Apache-2.0
// What a rank tells of its node over the bootstrap. What is taken is packed and read again as the same, and a topology
// is made of it.
#include "fuzz.hpp"
#include "topology/topology.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  RankView view;
  if (unpack_view(reinterpret_cast<const std::byte *>(data), size, &view) != MXS_OK) return 0;
  fuzz::promise(view.rails.size() <= rails_per_node_max);
  for (const Rail &rail : view.rails) fuzz::promise(rail.name.size() <= rail_name_bytes_max);
  const std::vector<std::byte> packed = pack_view(view);
  RankView again;
  fuzz::promise(unpack_view(packed.data(), packed.size(), &again) == MXS_OK && again == view);
  const Topology topology = topology_from_views({view, again});
  fuzz::promise(topology.rank_count() == 2 && topology.node_count() == 1);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&seeds](const RankView &view) {
    const std::vector<std::byte> packed = pack_view(view);
    seeds.emplace_back(reinterpret_cast<const char *>(packed.data()), packed.size());
  };
  RankView view;
  view.node_label = 77;
  add(view);
  view.numa = 1;
  view.numa_count = 2;
  view.rails = {{"eth0", 1, 1'250'000'000}, {"mlx5_0", -1, 0}};
  add(view);
  return seeds;
}
