// SPDX-License-Identifier: Apache-2.0
// Many views of nodes become one topology.
//
//   rank 0 sees   eth0 (NUMA 0)               node: eth0, eth1, ordered by name
//   rank 1 sees   eth0 (NUMA 0), eth1 (1)     rank 0 on NUMA 0 -> eth0, rank 1 on NUMA 1 -> eth1
//
// A pure function of the views in rank order, so every rank comes to the same bytes.
#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "base/status.hpp"
#include "topology/topology.hpp"

namespace mxs {

namespace {

// The lowest rank that knows something of a rail is believed.
void add_rail(std::vector<Rail> *rails, const Rail &seen) {
  const auto place = std::lower_bound(rails->begin(), rails->end(), seen,
                                      [](const Rail &a, const Rail &b) { return a.name < b.name; });
  if (place == rails->end() || place->name != seen.name) {
    if (rails->size() < rails_per_node_max) rails->insert(place, seen);
    return;
  }
  if (place->numa < 0) place->numa = seen.numa;
  if (place->bytes_per_second == 0) place->bytes_per_second = seen.bytes_per_second;
}

std::vector<int> near_rails(const Node &node, int numa) {
  std::vector<int> near, all;
  for (int rail = 0; rail < static_cast<int>(node.rails.size()); ++rail) {
    all.push_back(rail);
    if (numa >= 0 && node.rails[static_cast<size_t>(rail)].numa == numa) near.push_back(rail);
  }
  return near.empty() ? all : near;
}

// Numbers in the machine's own order; both ends are of one version and, since hashes are compared, one byte order.
void put(std::vector<std::byte> *bytes, const void *value, size_t count) {
  const size_t place = bytes->size();
  bytes->resize(place + count);
  if (count) std::memcpy(bytes->data() + place, value, count);
}
template <class Number>
void put(std::vector<std::byte> *bytes, Number value) {
  put(bytes, &value, sizeof value);
}

struct Reader {
  const std::byte *bytes;
  size_t left;
  bool good = true;

  bool take(void *value, size_t count) {
    if (!good || count > left) return good = false;
    if (count == 0) return true;
    std::memcpy(value, bytes, count);
    bytes += count;
    left -= count;
    return true;
  }
  template <class Number>
  Number number() {
    Number value{};
    take(&value, sizeof value);
    return value;
  }
  std::string text(size_t bytes_max) {
    const auto length = number<uint16_t>();
    if (length > bytes_max || length > left) good = false;
    std::string value(good ? length : 0, '\0');
    take(value.data(), value.size());
    return value;
  }
};

}  // namespace

void deal_rails(Topology *topology) {
  struct Turn {
    std::vector<int> rails;
    size_t next = 0;
  };
  for (const Node &node : topology->nodes) {
    std::vector<Turn> turns;  // ranks of all NUMA nodes to which the same rails are near share one
    std::map<int, size_t> turn_of_numa;
    for (const int rank : node.ranks) {
      RankPlace &place = topology->ranks[static_cast<size_t>(rank)];
      const auto [entry, is_new] = turn_of_numa.emplace(place.numa, 0);
      if (is_new) {
        Turn turn{near_rails(node, place.numa)};
        const auto same = std::find_if(turns.begin(), turns.end(),
                                       [&](const Turn &other) { return other.rails == turn.rails; });
        entry->second = static_cast<size_t>(same - turns.begin());
        if (same == turns.end()) turns.push_back(std::move(turn));
      }
      Turn &turn = turns[entry->second];
      place.rail = turn.rails[turn.next++ % turn.rails.size()];
    }
  }
}

Topology topology_from_views(const std::vector<RankView> &views) {
  Topology result;
  result.ranks.reserve(views.size());
  std::unordered_map<uint64_t, int> number_of_label;
  for (size_t rank = 0; rank < views.size(); ++rank) {
    const RankView &view = views[rank];
    const auto [entry, is_new] = number_of_label.emplace(view.node_label, result.node_count());
    if (is_new) result.nodes.emplace_back();
    Node &node = result.nodes[static_cast<size_t>(entry->second)];
    RankPlace place;
    place.node = entry->second;
    place.local_rank = node.rank_count();
    place.numa = view.numa;
    result.ranks.push_back(place);
    node.ranks.push_back(static_cast<int>(rank));
    node.numa_count = std::max({node.numa_count, view.numa_count, view.numa + 1});
    for (const Rail &rail : view.rails) add_rail(&node.rails, rail);
  }
  for (Node &node : result.nodes) {
    if (node.rails.empty()) node.rails.resize(1);
    for (const Rail &rail : node.rails) node.numa_count = std::max(node.numa_count, rail.numa + 1);
  }
  deal_rails(&result);
  return result;
}

Topology topology_from_nodes(const std::vector<uint64_t> &node_of_rank) {
  std::vector<RankView> views(node_of_rank.size());
  for (size_t rank = 0; rank < views.size(); ++rank) views[rank].node_label = node_of_rank[rank];
  return topology_from_views(views);
}

std::vector<std::byte> pack_view(const RankView &view) {
  std::vector<std::byte> bytes;
  put(&bytes, view.node_label);
  put(&bytes, int32_t{view.numa});
  put(&bytes, int32_t{view.numa_count});
  const size_t count = std::min(view.rails.size(), rails_per_node_max);
  put(&bytes, static_cast<uint16_t>(count));
  for (size_t i = 0; i < count; ++i) {
    const Rail &rail = view.rails[i];
    const auto length = static_cast<uint16_t>(std::min(rail.name.size(), rail_name_bytes_max));
    put(&bytes, length);
    put(&bytes, rail.name.data(), length);
    put(&bytes, int32_t{rail.numa});
    put(&bytes, rail.bytes_per_second);
  }
  return bytes;
}

mxs_status unpack_view(const std::byte *bytes, size_t byte_count, RankView *view) {
  constexpr int numa_max = 1 << 16;
  Reader reader{bytes, byte_count};
  RankView read;
  read.node_label = reader.number<uint64_t>();
  read.numa = reader.number<int32_t>();
  read.numa_count = reader.number<int32_t>();
  bool sound = read.numa >= -1 && read.numa < numa_max && read.numa_count >= 1 && read.numa_count <= numa_max;
  const auto count = reader.number<uint16_t>();
  sound = sound && count <= rails_per_node_max;
  for (unsigned i = 0; sound && reader.good && i < count; ++i) {
    Rail rail;
    rail.name = reader.text(rail_name_bytes_max);
    rail.numa = reader.number<int32_t>();
    rail.bytes_per_second = reader.number<uint64_t>();
    sound = rail.numa >= -1 && rail.numa < numa_max;
    read.rails.push_back(std::move(rail));
  }
  if (!sound || !reader.good || reader.left != 0)
    return set_error(MXS_INVALID_ARGUMENT, "what it says of its node (%zu bytes) makes no sense", byte_count);
  *view = std::move(read);
  return MXS_OK;
}

}  // namespace mxs
