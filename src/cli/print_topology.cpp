// SPDX-License-Identifier: Apache-2.0
// A topology as a tree: node, NUMA node, then ranks and NICs.
//
//   topology     2 nodes, 8 ranks
//     local      5 GB/s, latency 0.3 us, overhead 0.2 us
//     network    25 GB/s a rail, latency 10 us, overhead 1 us
//     node 0
//       NUMA 0   ranks 0-1
//         mlx5_0 25 GB/s, of ranks 0-1
//       NUMA 1   ranks 2-3
//         mlx5_1 25 GB/s, of ranks 2-3
//     node 1     like node 0, from rank 4
//
// Nodes that look like the one before are one line: a thousand of them fit on the screen.
#include "cli/print_topology.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "cli/json_text.hpp"
#include "cli/plan_text.hpp"

namespace mxs_cli {

namespace {

__attribute__((format(printf, 1, 2))) std::string text(const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

struct RankOfNode {
  int rank;
  mxs_rank_info info;
};

// All queries are within bounds, so none can fail.
struct NodeOfTree {
  mxs_node_info info = MXS_NODE_INFO_INIT;
  std::vector<RankOfNode> ranks;
  std::vector<mxs_rail_info> rails;
};

std::vector<NodeOfTree> nodes_of(const mxs_topology *topology) {
  std::vector<NodeOfTree> nodes(static_cast<size_t>(mxs_topology_node_count(topology)));
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
    NodeOfTree &filled = nodes[static_cast<size_t>(node)];
    mxs_topology_node(topology, node, &filled.info);
    filled.rails.assign(static_cast<size_t>(filled.info.rail_count), mxs_rail_info MXS_RAIL_INFO_INIT);
    for (int rail = 0; rail < filled.info.rail_count; ++rail)
      mxs_topology_rail(topology, node, rail, &filled.rails[static_cast<size_t>(rail)]);
  }
  for (int rank = 0; rank < mxs_topology_rank_count(topology); ++rank) {
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    mxs_topology_rank(topology, rank, &info);
    nodes[static_cast<size_t>(info.node)].ranks.push_back({rank, info});
  }
  return nodes;
}

// "0-3 6": ranks in order, counted from `base`.
std::string ranges(const std::vector<int> &ranks, int base) {
  std::string result;
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    result += text(result.empty() ? "%d" : " %d", ranks[begin] - base);
    if (end > begin) result += text("-%d", ranks[end] - base);
    begin = end + 1;
  }
  return result;
}

std::string ranks_line(const std::string &ranges) {
  if (ranges.empty()) return "no rank";
  std::string line = ranges.find_first_of(" -") == std::string::npos ? "rank " : "ranks ";
  return line.append(ranges);  // any length, so no buffer of text's
}

std::string branches(const NodeOfTree &node, int base) {
  std::map<int, std::vector<int>> ranks_of_numa, ranks_of_rail;
  for (const RankOfNode &each : node.ranks) {
    ranks_of_numa[each.info.numa].push_back(each.rank);
    ranks_of_rail[each.info.rail].push_back(each.rank);
  }
  std::map<int, std::string> rails_of_numa;
  for (int rail = 0; rail < node.info.rail_count; ++rail) {
    const mxs_rail_info &nic = node.rails[static_cast<size_t>(rail)];
    const std::string name = *nic.name ? printable(nic.name) : text("rail %d", rail);
    std::string &lines = rails_of_numa[nic.numa];
    lines += text("      %-8s %g GB/s, of ", name.c_str(), static_cast<double>(nic.bytes_per_second) * 1e-9);
    lines += ranks_line(ranges(ranks_of_rail[rail], base)) + "\n";
  }
  std::string result;
  for (int numa = -1; numa < node.info.numa_count; ++numa) {
    const std::string here = ranges(ranks_of_numa[numa], base), &rails = rails_of_numa[numa];
    if ((numa < 0 || node.info.numa_count == 1) && here.empty() && rails.empty()) continue;
    result += text("    %-10s ", numa < 0 ? "any NUMA" : text("NUMA %d", numa).c_str());
    result += ranks_line(here) + "\n" + rails;
  }
  return result;
}

std::string link_line(const char *name, uint64_t rate, const char *unit, uint32_t latency, uint32_t overhead) {
  return text("  %-12s %g GB/s%s, latency %g us, overhead %g us\n", name, static_cast<double>(rate) * 1e-9, unit,
              latency * 1e-3, overhead * 1e-3);
}

std::string link_json(const char *name, uint64_t rate, uint32_t latency, uint32_t overhead) {
  return text("\"%s\": {\"latency_ns\": %u, \"overhead_ns\": %u, \"bytes_per_second\": %llu}", name, latency, overhead,
              static_cast<unsigned long long>(rate));
}

}  // namespace

std::string topology_tree(const mxs_topology *topology) {
  const std::vector<NodeOfTree> nodes = nodes_of(topology);
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  mxs_topology_speeds(topology, &speeds);
  const int rank_count = mxs_topology_rank_count(topology);
  std::string tree = text("%-12s %zu node%s, %d rank%s\n", "topology", nodes.size(), nodes.size() == 1 ? "" : "s",
                          rank_count, rank_count == 1 ? "" : "s");
  tree += link_line("local", speeds.local_bytes_per_second, "", speeds.local_latency_ns, speeds.local_overhead_ns);
  tree += link_line("network", speeds.network_bytes_per_second, " a rail", speeds.network_latency_ns,
                    speeds.network_overhead_ns);
  tree += text("  %-12s %g GB/s\n", "adding", static_cast<double>(speeds.add_bytes_per_second) * 1e-9);
  for (uint32_t i = 0; i < speeds.factor_count; ++i) {
    const bool of_ports = std::strcmp(speeds.factors[i].algorithm, "contention") == 0;
    tree += text("  %-12s %s takes %g of the predicted time\n", i ? "" : "factors",
                 of_ports ? "a port that many send to" : speeds.factors[i].algorithm,
                 speeds.factors[i].per_mille * 1e-3);
  }
  std::string shown;  // branches of the node that was shown last, its ranks counted from 0
  size_t shown_node = 0;
  for (size_t node = 0; node < nodes.size(); ++node) {
    const int base = nodes[node].ranks.front().rank;
    const std::string relative = branches(nodes[node], base);
    if (node > 0 && relative == shown) {
      size_t last = node;
      while (last + 1 < nodes.size() && branches(nodes[last + 1], nodes[last + 1].ranks.front().rank) == shown) ++last;
      const std::string name = last == node ? text("node %zu", node) : text("nodes %zu-%zu", node, last);
      tree += text("  %-12s like node %zu, from rank %d\n", name.c_str(), shown_node, base);
      node = last;
      continue;
    }
    tree += text("  node %zu\n", node) + branches(nodes[node], 0);
    shown = relative;
    shown_node = node;
  }
  return tree;
}

std::string topology_json(const mxs_topology *topology) {
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  mxs_topology_speeds(topology, &speeds);
  std::string json = "{\"matrixshard_topology\": 1,\n   ";
  json += link_json("local", speeds.local_bytes_per_second, speeds.local_latency_ns, speeds.local_overhead_ns);
  json += ",\n   ";
  json += link_json("network", speeds.network_bytes_per_second, speeds.network_latency_ns, speeds.network_overhead_ns);
  json += text(",\n   \"add_bytes_per_second\": %llu,\n   \"factors\": {",
               static_cast<unsigned long long>(speeds.add_bytes_per_second));
  for (uint32_t i = 0; i < speeds.factor_count; ++i)
    json += text("%s%s: %g", i ? ", " : "", quoted(speeds.factors[i].algorithm).c_str(),
                 speeds.factors[i].per_mille * 1e-3);
  json += "},\n   \"nodes\": [";
  const char *between_nodes = "\n    ";
  for (const NodeOfTree &node : nodes_of(topology)) {
    json += text("%s{\"numa_count\": %d, \"rails\": [", between_nodes, node.info.numa_count);
    const char *between = "";
    for (const mxs_rail_info &rail : node.rails) {
      json += text("%s{\"name\": %s, \"numa\": %d, \"bytes_per_second\": %llu}", between, quoted(rail.name).c_str(),
                   rail.numa, static_cast<unsigned long long>(rail.bytes_per_second));
      between = ", ";
    }
    json += "],\n     \"ranks\": [";
    between = "";
    for (const RankOfNode &each : node.ranks) {
      json += text("%s{\"rank\": %d, \"numa\": %d, \"rail\": %d}", between, each.rank, each.info.numa, each.info.rail);
      between = ", ";
    }
    json += "]}";
    between_nodes = ",\n    ";
  }
  return json + "]}";
}

}  // namespace mxs_cli
