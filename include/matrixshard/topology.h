/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Topology: which ranks share a node.
 *
 * Made from a string before launch, or asked from a comm (mxs_comm_topology),
 * where it is the same on all ranks. A topology is immutable.
 */
#ifndef MATRIXSHARD_TOPOLOGY_H
#define MATRIXSHARD_TOPOLOGY_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_topology mxs_topology;

/** Where one rank lives. */
typedef struct mxs_rank_info {
  uint32_t size;
  int32_t  node;       /**< counted from 0 in the order of each node's lowest rank */
  int32_t  local_rank; /**< counted from 0 on its node, in rank order */
  int32_t  local_rank_count;
} mxs_rank_info;
#define MXS_RANK_INFO_INIT \
  { sizeof(mxs_rank_info), 0, 0, 0 }

/**
 * Make a topology from words: "ranks:4" (one node), "nodes:2 ranks:4" (ranks
 * per node; ranks are numbered node by node).
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: the sentence shows the word that wasn't understood,
 *         or a world of 0 ranks or of more than 1,048,576.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_create(mxs_topology **topology, const char *text);

/** Accepts NULL and a pointer to NULL. Threads: no other call on it at the same time. Since 0.1. */
MXS_API void mxs_topology_destroy(mxs_topology **topology);

/** @return 0 if topology is NULL. Threads: any. Since 0.1. */
MXS_API int32_t mxs_topology_rank_count(const mxs_topology *topology);

/** @return 0 if topology is NULL. Threads: any. Since 0.1. */
MXS_API int32_t mxs_topology_node_count(const mxs_topology *topology);

/**
 * Where a rank lives.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a wrong size, or a rank outside the world.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_rank(const mxs_topology *topology, int32_t rank, mxs_rank_info *info);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_TOPOLOGY_H */
