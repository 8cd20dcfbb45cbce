// SPDX-License-Identifier: Apache-2.0
// Topology: a small graph of nodes, ranks, rails and speeds. A pure value, equal on all ranks; see
// include/matrixshard/topology.h.
//
//   node 0                          node 1
//   ranks 0 1 2 3   local speed     ranks 4 5 6 7
//      rail 0  rail 1  ===========  rail 0  rail 1      network speed: of one rail, in each direction
//
//   words.cpp     from words
//   views.cpp     from what every rank sees of its node
//   json.cpp      to and from texts that are saved
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

struct RankPlace {
  int node = 0;
  int local_rank = 0;
  int numa = -1;  // of its cores, counted from 0 on its node; -1: not known, or several
  int rail = 0;   // index in its node's rails: the NIC nearest to it
  bool operator==(const RankPlace &) const = default;
};

// A NIC.
struct Rail {
  std::string name;               // "mlx5_0", "eth0"; "" if the topology is made up
  int numa = -1;
  uint64_t bytes_per_second = 0;  // in each direction; 0: not known, the network's speed stands for it
  bool operator==(const Rail &) const = default;
};

struct Node {
  std::vector<int> ranks;    // in rank order: the index is the local rank
  std::vector<Rail> rails;   // at least one
  int numa_count = 1;
  int rank_count() const { return static_cast<int>(ranks.size()); }
  bool operator==(const Node &) const = default;
};

// What a message between two ranks costs: overhead at each end, latency on the way, bytes over the rate.
struct LinkSpeed {
  uint32_t latency_ns = 0, overhead_ns = 0;
  uint64_t bytes_per_second = 0;
  bool operator==(const LinkSpeed &) const = default;
};

// Defaults stand for what nobody has measured (`mxs-perf tune` does).
struct Speeds {
  LinkSpeed local = {300, 200, 5'000'000'000};        // between two ranks of a node, of one rank's copying
  LinkSpeed network = {30'000, 20'000, 1'250'000'000};  // between nodes, of one rail
  uint64_t add_bytes_per_second = 8'000'000'000;      // of gradients that one rank adds to a sum
  // Of an algorithm's predicted time, in thousandths; ordered by name. One that isn't here has 1,000.
  std::vector<std::pair<std::string, uint32_t>> factors;

  uint32_t factor_per_mille(std::string_view algorithm) const;
  void set_factor(std::string_view algorithm, uint32_t per_mille);
  bool operator==(const Speeds &) const = default;
};

struct Topology : Speeds {
  std::vector<RankPlace> ranks;
  std::vector<Node> nodes;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int node_count() const { return static_cast<int>(nodes.size()); }
  int node_of(int rank) const { return ranks[static_cast<size_t>(rank)].node; }
  const Node &node(int index) const { return nodes[static_cast<size_t>(index)]; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  uint64_t rail_bytes_per_second(int node_index, int rail) const {
    const uint64_t own = node(node_index).rails[static_cast<size_t>(rail)].bytes_per_second;
    return own ? own : network.bytes_per_second;
  }
  // Of who is where; of speeds only with_speeds, since a plan does not depend on them.
  uint64_t hash(bool with_speeds = false) const;
  bool operator==(const Topology &) const = default;
};

// The network's rate that somebody measured stands for every rail, whatever the NICs say of themselves.
void set_speeds(Topology *topology, const Speeds &speeds, bool network_is_measured);

// What one rank sees of its node. Ranks with equal labels share a node.
struct RankView {
  uint64_t node_label = 0;
  int numa = -1;  // of the cores that it may use; -1: several, or not known
  int numa_count = 1;
  std::vector<Rail> rails;  // may be empty
  bool operator==(const RankView &) const = default;
};

// The same on every rank that has the same views, in rank order. A node's rails are those that any of its ranks sees,
// ordered by name, one without a name if there are none. Each rank gets one in its own NUMA node, or if there is none
// any; ranks to which the same rails are near take these in turns.
Topology topology_from_views(const std::vector<RankView> &views);

// Of some of its ranks, numbered anew as given. A node's are dealt rails anew if that puts fewer of them on one rail.
Topology topology_of_ranks(const Topology &whole, const std::vector<int> &ranks);

// Rank numbers and rails of nodes that know who lives there: fills RankPlace::rail and nothing else.
void deal_rails(Topology *topology);

// Bytes between ranks of one version; unpack trusts nobody: MXS_INVALID_ARGUMENT.
constexpr size_t rails_per_node_max = 64;
constexpr size_t rail_name_bytes_max = 63;
constexpr size_t factor_count_max = 64;
std::vector<std::byte> pack_view(const RankView &view);
mxs_status unpack_view(const std::byte *bytes, size_t byte_count, RankView *view);

// As many ranks of one node as asked for, of a machine that hwloc has saved. Reads a file, so a caller brings it along:
// machine/machine.hpp has it.
using ReadMachine = std::function<mxs_status(const std::string &path, int rank_count, std::vector<RankView> *views)>;

// Speeds that the words don't tell are those that *topology has.
mxs_status parse_topology(std::string_view text, Topology *topology, const ReadMachine &read_machine = {});

// Do these look like words, rather than like the path of a file?
bool looks_like_words(std::string_view text);

// Saved texts. They are strict: a field that is not known or has a wrong kind is MXS_INVALID_ARGUMENT, with its name.
// Speeds that are missing are left alone.
std::string topology_to_json(const Topology &topology);
mxs_status topology_from_json(std::string_view text, Topology *topology);
std::string speeds_to_json(const Speeds &speeds);
mxs_status speeds_from_json(std::string_view text, Speeds *speeds, bool *has_network);

// node_of_rank holds any labels; equal labels are one node. Nodes are numbered by their lowest rank. One rail each.
Topology topology_from_nodes(const std::vector<uint64_t> &node_of_rank);

}  // namespace mxs
