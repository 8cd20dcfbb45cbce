// SPDX-License-Identifier: Apache-2.0
// Topologies and speeds as JSON.
//
//   {"matrixshard_topology": 1,
//    "local":   {"latency_ns": 300, "overhead_ns": 200, "bytes_per_second": 5000000000},
//    "network": {...}, "add_bytes_per_second": 8000000000, "factors": {"chain": 1.08},
//    "nodes": [{"numa_count": 1, "rails": [{"name": "eth0", "numa": 0, "bytes_per_second": 0}],
//               "ranks": [{"rank": 0, "numa": 0, "rail": 0}, ...]}, ...]}
//
//   {"matrixshard_speeds": 1, "local": ..., "network": ..., "add_bytes_per_second": ..., "factors": ...}
#include <cmath>

#include "base/arithmetic.hpp"
#include "base/json.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "topology/json.hpp"
#include "topology/topology.hpp"

namespace mxs {
namespace {

constexpr int64_t version = 1;
constexpr int64_t numa_count_max = 1 << 16;

void read_factors(const JsonField &field, Speeds *speeds) {
  if (!field.good()) return;
  if (!field.value().is_object() || field.size() > factor_count_max) {
    field.wrong("is not an object of at most 64 numbers");
    return;
  }
  field.for_each_member([&](const std::string &name, const JsonField &member) {
    const double factor = member.value().is_number() ? member.value().get<double>() : 0;
    if (name.empty() || name.size() > rail_name_bytes_max) member.wrong("has a name that is empty or too long");
    if (!(factor >= 0.001 && factor <= 1000)) member.wrong("is not a number from 0.001 to 1000");
    if (member.good()) speeds->set_factor(name, static_cast<uint32_t>(std::lround(factor * 1000)));
  });
}

void read_link(const JsonField &field, LinkSpeed *link, bool *has_rate) {
  if (!field.is_object({"latency_ns", "overhead_ns", "bytes_per_second"})) return;
  if (field.has("latency_ns")) field["latency_ns"].read(&link->latency_ns, 0, UINT32_MAX);
  if (field.has("overhead_ns")) field["overhead_ns"].read(&link->overhead_ns, 0, UINT32_MAX);
  if (field.has("bytes_per_second"))
    field["bytes_per_second"].read(&link->bytes_per_second, 1, static_cast<int64_t>(bytes_max));
  if (has_rate) *has_rate = field.has("bytes_per_second");
}

void read_speeds(const JsonField &root, Speeds *speeds, bool *has_network) {
  if (root.has("local")) read_link(root["local"], &speeds->local, nullptr);
  if (root.has("network")) read_link(root["network"], &speeds->network, has_network);
  if (root.has("add_bytes_per_second"))
    root["add_bytes_per_second"].read(&speeds->add_bytes_per_second, 1, static_cast<int64_t>(bytes_max));
  if (root.has("factors")) read_factors(root["factors"], speeds);
}

void read_rails(const JsonField &list, Node *node) {
  if (!list.is_list(1, rank_count_max)) return;
  node->rails.resize(list.size());
  for (size_t i = 0; list.good() && i < list.size(); ++i) {
    const JsonField rail = list[i];
    if (!rail.is_object({"name", "numa", "bytes_per_second"})) return;
    Rail &read = node->rails[i];
    if (rail.has("name")) rail["name"].read_text(&read.name, rail_name_bytes_max);
    if (rail.has("numa")) rail["numa"].read(&read.numa, -1, node->numa_count - 1);
    if (rail.has("bytes_per_second"))
      rail["bytes_per_second"].read(&read.bytes_per_second, 0, static_cast<int64_t>(bytes_max));
  }
}

void read_ranks(const JsonField &list, int node_index, Node *node, std::vector<RankPlace> *places) {
  if (!list.is_list(1, rank_count_max)) return;
  for (size_t i = 0; list.good() && i < list.size(); ++i) {
    const JsonField entry = list[i];
    if (!entry.is_object({"rank", "numa", "rail"})) return;
    int rank = 0;
    RankPlace place;
    place.node = node_index;
    place.local_rank = static_cast<int>(i);
    entry["rank"].read(&rank, 0, rank_count_max - 1);
    if (entry.has("numa")) entry["numa"].read(&place.numa, -1, node->numa_count - 1);
    if (entry.has("rail")) entry["rail"].read(&place.rail, 0, static_cast<int64_t>(node->rails.size()) - 1);
    if (!entry.good()) return;
    if (i > 0 && rank <= node->ranks.back()) {
      entry["rank"].wrong("is not greater than that before it");
      return;
    }
    node->ranks.push_back(rank);
    if (static_cast<size_t>(rank) >= places->size()) places->resize(static_cast<size_t>(rank) + 1, RankPlace{-1});
    if ((*places)[static_cast<size_t>(rank)].node >= 0) {
      entry["rank"].wrong("stands there twice");
      return;
    }
    (*places)[static_cast<size_t>(rank)] = place;
  }
}

void read_nodes(const JsonField &list, Topology *topology) {
  if (!list.is_list(1, rank_count_max)) return;
  topology->nodes.resize(list.size());
  for (size_t i = 0; list.good() && i < list.size(); ++i) {
    const JsonField entry = list[i];
    if (!entry.is_object({"numa_count", "rails", "ranks"})) return;
    Node &node = topology->nodes[i];
    if (entry.has("numa_count")) entry["numa_count"].read(&node.numa_count, 1, numa_count_max);
    if (!entry.good()) return;
    if (entry.has("rails"))
      read_rails(entry["rails"], &node);
    else
      node.rails.resize(1);
    if (!entry.good()) return;
    read_ranks(entry["ranks"], static_cast<int>(i), &node, &topology->ranks);
    if (entry.good() && i > 0 && node.ranks.front() < topology->nodes[i - 1].ranks.front())
      entry["ranks"].wrong("begins with a lower rank than those of the node before it");
  }
  for (size_t rank = 0; list.good() && rank < topology->ranks.size(); ++rank)
    if (topology->ranks[rank].node < 0)
      list.wrong(("has no rank " + std::to_string(rank) + " of " + std::to_string(topology->ranks.size())).c_str());
}

// One thing a line, so that a diff of two files shows what differs.
void write_speeds(const Speeds &speeds, std::string *text) {
  const auto link = [](const LinkSpeed &one) {
    return printed_json({{"latency_ns", one.latency_ns}, {"overhead_ns", one.overhead_ns},
                    {"bytes_per_second", one.bytes_per_second}});
  };
  Json factors = Json::object();
  for (const auto &[algorithm, per_mille] : speeds.factors) factors[algorithm] = per_mille / 1000.0;
  text->append(" \"local\": ").append(link(speeds.local));
  text->append(",\n \"network\": ").append(link(speeds.network));
  text->append(",\n \"add_bytes_per_second\": ").append(std::to_string(speeds.add_bytes_per_second));
  text->append(",\n \"factors\": ").append(printed_json(factors));
}

void write_node(const Topology &topology, const Node &node, std::string *text) {
  text->append("  {\"numa_count\": ").append(std::to_string(node.numa_count)).append(",\n   \"rails\": [");
  const char *separator = "\n    ";
  for (const Rail &rail : node.rails) {
    text->append(separator);
    text->append(printed_json({{"name", rail.name}, {"numa", rail.numa}, {"bytes_per_second", rail.bytes_per_second}}));
    separator = ",\n    ";
  }
  text->append("],\n   \"ranks\": [");
  separator = "\n    ";
  for (const int rank : node.ranks) {
    const RankPlace &place = topology.ranks[static_cast<size_t>(rank)];
    text->append(separator).append(printed_json({{"rank", rank}, {"numa", place.numa}, {"rail", place.rail}}));
    separator = ",\n    ";
  }
  text->append("]}");
}

}  // namespace

std::string speeds_to_json(const Speeds &speeds) {
  std::string text = "{\"matrixshard_speeds\": " + std::to_string(version) + ",\n";
  write_speeds(speeds, &text);
  return text + "}\n";
}

mxs_status speeds_from_json(std::string_view text, Speeds *speeds, bool *has_network) {
  Json json;
  mxs_status status = parse_json(text, &json);
  if (status != MXS_OK) return status;
  const JsonField root(&json, "", &status);
  Speeds read = *speeds;
  bool network = false;
  int known = 0;
  root.is_object({"matrixshard_speeds", "local", "network", "add_bytes_per_second", "factors"});
  root["matrixshard_speeds"].read(&known, version, version);
  read_speeds(root, &read, &network);
  if (status != MXS_OK) return status;
  *speeds = std::move(read);
  *has_network = network;
  return MXS_OK;
}

std::string topology_to_json(const Topology &topology) {
  std::string text = "{\"matrixshard_topology\": " + std::to_string(version) + ",\n";
  write_speeds(topology, &text);
  const char *separator = ",\n \"nodes\": [\n";
  for (const Node &node : topology.nodes) {
    text.append(separator);
    write_node(topology, node, &text);
    separator = ",\n";
  }
  return text + "]}\n";
}

mxs_status topology_from_json(std::string_view text, Topology *topology) {
  Json json;
  mxs_status status = parse_json(text, &json);
  if (status == MXS_OK) read_topology_field(JsonField(&json, "", &status), topology);
  return status;
}

void read_topology_field(const JsonField &root, Topology *topology) {
  Topology read;
  static_cast<Speeds &>(read) = *topology;
  bool has_network = false;
  int known = 0;
  root.is_object({"matrixshard_topology", "local", "network", "add_bytes_per_second", "factors", "nodes"});
  root["matrixshard_topology"].read(&known, version, version);
  read_speeds(root, &read, &has_network);
  read_nodes(root["nodes"], &read);
  if (root.good()) *topology = std::move(read);
}

}  // namespace mxs
