// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/topology.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "api/door.hpp"
#include "api/values.hpp"
#include "base/arithmetic.hpp"
#include "machine/machine.hpp"

using namespace mxs;

static_assert(sizeof(mxs_rank_info) == 24, "part of the ABI");
static_assert(sizeof(mxs_node_info) == 16, "part of the ABI");
static_assert(sizeof(mxs_rail_info) == 24, "part of the ABI");
static_assert(sizeof(mxs_link_info) == 24, "part of the ABI");
static_assert(sizeof(mxs_algorithm_factor) == 16, "part of the ABI");
static_assert(sizeof(mxs_speeds) == 56, "part of the ABI");

namespace {

constexpr size_t rank_info_least = 16;  // without numa and rail

mxs_status no_topology() { return set_error(MXS_INVALID_ARGUMENT, "topology is NULL"); }

void give(mxs_topology **out, Topology &&value) { *out = std::make_unique<mxs_topology>(std::move(value)).release(); }

// The query of a part: is everything there, and *out of a size that it ever had?
template <class Struct>
mxs_status open_query(const mxs_topology *topology, const Struct *out, size_t least, const char *name) {
  return topology ? check_out_struct(out, least, name) : no_topology();
}

mxs_status check_rank(const Topology &value, const char *name, int32_t rank) {
  if (rank >= 0 && rank < value.rank_count()) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is %d, outside a world of %d ranks", name, rank, value.rank_count());
}

// Of a part: each is one of the whole's, and there only once.
mxs_status check_parts(const Topology &whole, const std::vector<int> &ranks) {
  std::vector<size_t> place_of_rank(static_cast<size_t>(whole.rank_count()), SIZE_MAX);
  for (size_t place = 0; place < ranks.size(); ++place) {
    const int rank = ranks[place];
    if (rank < 0 || rank >= whole.rank_count())
      return set_error(MXS_INVALID_ARGUMENT, "ranks[%zu] is %d, outside a world of %d ranks", place, rank,
                       whole.rank_count());
    size_t &first = place_of_rank[static_cast<size_t>(rank)];
    if (first != SIZE_MAX)
      return set_error(MXS_INVALID_ARGUMENT, "ranks[%zu] is %d, and so is ranks[%zu]", place, rank, first);
    first = place;
  }
  return MXS_OK;
}

mxs_status check_node(const Topology &value, int32_t node) {
  if (node >= 0 && node < value.node_count()) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "node is %d, but there are %d nodes", node, value.node_count());
}

mxs_status read_factors(const mxs_speeds &given, Speeds *speeds) {
  mxs_status wrong = MXS_OK;
  const mxs_algorithm_factor defaults = MXS_ALGORITHM_FACTOR_INIT;
  const auto read = [&](const mxs_algorithm_factor &factor) {
    if (wrong != MXS_OK) return;
    const size_t bytes = factor.algorithm ? strnlen(factor.algorithm, 64) : 0;
    if (bytes == 0 || bytes > 63)
      wrong = set_error(MXS_INVALID_ARGUMENT, "speeds.factors: algorithm is NULL, empty or longer than 63 bytes");
    else if (factor.per_mille < 1 || factor.per_mille > 1'000'000)
      wrong = set_error(MXS_INVALID_ARGUMENT, "speeds.factors: per_mille of \"%s\" is %u, not from 1 to 1000000",
                        factor.algorithm, factor.per_mille);
    else
      speeds->set_factor(factor.algorithm, factor.per_mille);
  };
  const mxs_status status = read_array(given.factors, given.factor_count, factor_count_max, sizeof defaults,
                                       "speeds.factors", defaults, read);
  if (status != MXS_OK) return status;
  if (wrong == MXS_OK && speeds->factors.size() > factor_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "speeds.factors: the topology would have more than %zu", factor_count_max);
  return wrong;
}

mxs_status read_rate(const char *name, uint64_t given, uint64_t *rate) {
  if (given > bytes_max)
    return set_error(MXS_INVALID_ARGUMENT, "speeds.%s is %" PRIu64 ", more than 2^62", name, given);
  if (given) *rate = given;
  return MXS_OK;
}

// What is 0 stays.
mxs_status read_speeds(const mxs_speeds &given, Speeds *speeds) {
  mxs_status status = read_rate("local_bytes_per_second", given.local_bytes_per_second,
                                &speeds->local.bytes_per_second);
  if (status == MXS_OK)
    status = read_rate("network_bytes_per_second", given.network_bytes_per_second, &speeds->network.bytes_per_second);
  if (status == MXS_OK) status = read_rate("add_bytes_per_second", given.add_bytes_per_second,
                                           &speeds->add_bytes_per_second);
  if (status != MXS_OK) return status;
  const auto keep = [](uint32_t time, uint32_t *place) {
    if (time) *place = time;
  };
  keep(given.local_latency_ns, &speeds->local.latency_ns);
  keep(given.local_overhead_ns, &speeds->local.overhead_ns);
  keep(given.network_latency_ns, &speeds->network.latency_ns);
  keep(given.network_overhead_ns, &speeds->network.overhead_ns);
  return read_factors(given, speeds);
}

}  // namespace

mxs_status mxs_topology_create(mxs_topology **topology, const char *text) {
  return fenced([&]() -> mxs_status {
    if (!topology) return no_topology();
    if (!text) return set_error(MXS_INVALID_ARGUMENT, "text is NULL; give it as \"ranks:4\" or \"nodes:2 ranks:4\"");
    Topology value;
    const mxs_status status = parse_topology(text, &value, read_saved_machine);
    if (status == MXS_OK) give(topology, std::move(value));
    return status;
  });
}

mxs_status mxs_topology_load(mxs_topology **topology, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!topology) return no_topology();
    if (!path || !*path) return set_error(MXS_INVALID_ARGUMENT, "path is NULL or empty");
    Topology value;
    const mxs_status status = load_topology(path, &value);
    if (status == MXS_OK) give(topology, std::move(value));
    return status;
  });
}

mxs_status mxs_topology_save(const mxs_topology *topology, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!topology) return no_topology();
    if (!path || !*path) return set_error(MXS_INVALID_ARGUMENT, "path is NULL or empty");
    return save_topology(topology->value, path);
  });
}

void mxs_topology_destroy(mxs_topology **topology) {
  if (!topology) return;
  delete *topology;
  *topology = nullptr;
}

int32_t mxs_topology_rank_count(const mxs_topology *topology) { return topology ? topology->value.rank_count() : 0; }

int32_t mxs_topology_node_count(const mxs_topology *topology) { return topology ? topology->value.node_count() : 0; }

mxs_status mxs_topology_rank(const mxs_topology *topology, int32_t rank, mxs_rank_info *info) {
  mxs_status status = open_query(topology, info, rank_info_least, "info");
  if (status == MXS_OK) status = check_rank(topology->value, "rank", rank);
  if (status != MXS_OK) return status;
  const RankPlace &place = topology->value.ranks[static_cast<size_t>(rank)];
  write_struct(mxs_rank_info{sizeof(mxs_rank_info), place.node, place.local_rank,
                             topology->value.node(place.node).rank_count(), place.numa, place.rail},
               info);
  return MXS_OK;
}

mxs_status mxs_topology_node(const mxs_topology *topology, int32_t node, mxs_node_info *info) {
  mxs_status status = open_query(topology, info, sizeof(mxs_node_info), "info");
  if (status == MXS_OK) status = check_node(topology->value, node);
  if (status != MXS_OK) return status;
  const Node &value = topology->value.node(node);
  write_struct(mxs_node_info{sizeof(mxs_node_info), value.rank_count(), static_cast<int32_t>(value.rails.size()),
                             value.numa_count},
               info);
  return MXS_OK;
}

mxs_status mxs_topology_rail(const mxs_topology *topology, int32_t node, int32_t rail, mxs_rail_info *info) {
  mxs_status status = open_query(topology, info, sizeof(mxs_rail_info), "info");
  if (status == MXS_OK) status = check_node(topology->value, node);
  if (status != MXS_OK) return status;
  const std::vector<Rail> &rails = topology->value.node(node).rails;
  if (rail < 0 || rail >= static_cast<int32_t>(rails.size()))
    return set_error(MXS_INVALID_ARGUMENT, "rail is %d, but node %d has %zu", rail, node, rails.size());
  const Rail &value = rails[static_cast<size_t>(rail)];
  write_struct(mxs_rail_info{sizeof(mxs_rail_info), value.numa, value.name.c_str(),
                             topology->value.rail_bytes_per_second(node, rail)},
               info);
  return MXS_OK;
}

mxs_status mxs_topology_link(const mxs_topology *topology, int32_t a, int32_t b, mxs_link_info *info) {
  mxs_status status = open_query(topology, info, sizeof(mxs_link_info), "info");
  if (status == MXS_OK) status = check_rank(topology->value, "a", a);
  if (status == MXS_OK) status = check_rank(topology->value, "b", b);
  if (status != MXS_OK) return status;
  if (a == b) return set_error(MXS_INVALID_ARGUMENT, "a and b are both rank %d; a link joins two", a);
  const Topology &value = topology->value;
  const bool same_node = value.same_node(a, b);
  const auto rate_of = [&](int32_t rank) {
    return value.rail_bytes_per_second(value.node_of(rank), value.ranks[static_cast<size_t>(rank)].rail);
  };
  const LinkSpeed &speed = same_node ? value.local : value.network;
  write_struct(mxs_link_info{sizeof(mxs_link_info), same_node, speed.latency_ns, speed.overhead_ns,
                             same_node ? speed.bytes_per_second : std::min(rate_of(a), rate_of(b))},
               info);
  return MXS_OK;
}

mxs_status mxs_topology_speeds(const mxs_topology *topology, mxs_speeds *speeds) {
  const mxs_status status = open_query(topology, speeds, sizeof(mxs_speeds), "speeds");
  if (status != MXS_OK) return status;
  const Speeds &value = topology->value;
  mxs_speeds result = MXS_SPEEDS_INIT;
  result.local_latency_ns = value.local.latency_ns;
  result.local_overhead_ns = value.local.overhead_ns;
  result.network_latency_ns = value.network.latency_ns;
  result.network_overhead_ns = value.network.overhead_ns;
  result.local_bytes_per_second = value.local.bytes_per_second;
  result.network_bytes_per_second = value.network.bytes_per_second;
  result.add_bytes_per_second = value.add_bytes_per_second;
  result.factor_count = static_cast<uint32_t>(topology->factors.size());
  result.factors = topology->factors.empty() ? nullptr : topology->factors.data();
  write_struct(result, speeds);
  return MXS_OK;
}

mxs_status mxs_topology_with_speeds(mxs_topology **changed, const mxs_topology *topology, const mxs_speeds *speeds) {
  return fenced([&]() -> mxs_status {
    if (!changed) return set_error(MXS_INVALID_ARGUMENT, "changed is NULL");
    if (!topology) return no_topology();
    if (!speeds) return set_error(MXS_INVALID_ARGUMENT, "speeds is NULL");
    mxs_speeds given = MXS_SPEEDS_INIT;
    mxs_status status = read_struct(speeds, sizeof(mxs_speeds), "speeds", &given);
    if (status != MXS_OK) return status;
    Topology value = topology->value;
    Speeds read = value;
    status = read_speeds(given, &read);
    if (status != MXS_OK) return status;
    set_speeds(&value, read, given.network_bytes_per_second != 0);
    give(changed, std::move(value));
    return MXS_OK;
  });
}

mxs_status mxs_topology_save_speeds(const mxs_topology *topology, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!topology) return no_topology();
    if (path && !*path) return set_error(MXS_INVALID_ARGUMENT, "path is empty; NULL chooses");
    return save_speeds(topology->value, path ? path : "");
  });
}

mxs_status mxs_topology_of_ranks(mxs_topology **part, const mxs_topology *whole, const int32_t *ranks,
                                 int32_t rank_count) {
  return fenced([&]() -> mxs_status {
    if (!part) return set_error(MXS_INVALID_ARGUMENT, "part is NULL");
    if (!whole) return set_error(MXS_INVALID_ARGUMENT, "whole is NULL");
    if (rank_count < 1) return set_error(MXS_INVALID_ARGUMENT, "rank_count is %d, not at least 1", rank_count);
    if (!ranks) return set_error(MXS_INVALID_ARGUMENT, "ranks is NULL, but rank_count is %d", rank_count);
    const std::vector<int> chosen(ranks, ranks + rank_count);
    const mxs_status status = check_parts(whole->value, chosen);
    if (status == MXS_OK) give(part, topology_of_ranks(whole->value, chosen));
    return status;
  });
}
