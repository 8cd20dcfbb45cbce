// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/topology.h"

#include <memory>
#include <utility>

#include "api/door.hpp"
#include "api/values.hpp"

using namespace mxs;

static_assert(sizeof(mxs_rank_info) == 16, "part of the ABI");

mxs_status mxs_topology_create(mxs_topology **topology, const char *text) {
  return fenced([&]() -> mxs_status {
    if (!topology) return set_error(MXS_INVALID_ARGUMENT, "topology is NULL");
    if (!text) return set_error(MXS_INVALID_ARGUMENT, "text is NULL; give it as \"ranks:4\" or \"nodes:2 ranks:4\"");
    Topology value;
    const mxs_status status = parse_topology(text, &value);
    if (status != MXS_OK) return status;
    *topology = std::make_unique<mxs_topology>(mxs_topology{std::move(value)}).release();
    return MXS_OK;
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
  if (!topology) return set_error(MXS_INVALID_ARGUMENT, "topology is NULL");
  const mxs_status status = check_out_struct(info, sizeof(mxs_rank_info), "info");
  if (status != MXS_OK) return status;
  const Topology &value = topology->value;
  if (rank < 0 || rank >= value.rank_count())
    return set_error(MXS_INVALID_ARGUMENT, "rank is %d, outside a world of %d ranks", rank, value.rank_count());
  const RankPlace &place = value.ranks[static_cast<size_t>(rank)];
  write_struct(mxs_rank_info{sizeof(mxs_rank_info), place.node, place.local_rank,
                             value.node(place.node).rank_count()},
               info);
  return MXS_OK;
}
