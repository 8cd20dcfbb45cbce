// SPDX-License-Identifier: Apache-2.0
// Topologies and speeds in JSON: what is read must be written and read again as the same.
#include "fuzz.hpp"
#include "topology/topology.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  Topology topology;
  if (topology_from_json(text, &topology) == MXS_OK) {
    Topology again;
    fuzz::promise(topology_from_json(topology_to_json(topology), &again) == MXS_OK && again == topology);
  }
  Speeds speeds;
  bool has_network = false;
  if (speeds_from_json(text, &speeds, &has_network) == MXS_OK) {
    Speeds again;
    fuzz::promise(speeds_from_json(speeds_to_json(speeds), &again, &has_network) == MXS_OK);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {R"({"matrixshard_topology": 1,
            "local": {"latency_ns": 300, "overhead_ns": 200, "bytes_per_second": 5000000000},
            "network": {"latency_ns": 9}, "add_bytes_per_second": 8000000000, "factors": {"chain": 1.08},
            "nodes": [{"numa_count": 2, "rails": [{"name": "eth0", "numa": 1, "bytes_per_second": 0}, {"name": "b"}],
                       "ranks": [{"rank": 0, "numa": 0, "rail": 1}, {"rank": 2}]}, {"ranks": [{"rank": 1}]}]})",
          R"({"matrixshard_topology": 1, "nodes": [{"ranks": [{"rank": 0}]}]})",
          R"({"matrixshard_speeds": 1, "local": {"latency_ns": 1}, "network": {"bytes_per_second": 7},
            "add_bytes_per_second": 3, "factors": {"spread": 0.5, "flat": 2}})"};
}
