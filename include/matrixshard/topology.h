/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Topology: which ranks share a node, which NICs a node has, and how fast
 * messages are.
 *
 * Made from words or a file before launch, or asked from a comm
 * (mxs_comm_topology), where it is the same on all ranks. A topology is
 * immutable. Plans depend on who shares a node and a rail with whom and on
 * nothing else of it: names and speeds of NICs don't matter.
 *
 *     node 0                              node 1
 *     NUMA 0: ranks 0 1, rail 0 mlx5_0    NUMA 0: ranks 4 5 6, rail 0 eth0
 *     NUMA 1: ranks 2 3, rail 1 mlx5_1
 *
 * A rail is a NIC with the ranks that are nearest to it.
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
  int32_t  numa;       /**< of its cores, counted from 0 on its node; -1: not known, or several */
  int32_t  rail;       /**< the NIC nearest to it, counted from 0 on its node */
} mxs_rank_info;
#define MXS_RANK_INFO_INIT \
  { sizeof(mxs_rank_info), 0, 0, 0, 0, 0 }

/** What one node has. */
typedef struct mxs_node_info {
  uint32_t size;
  int32_t  rank_count;
  int32_t  rail_count; /**< at least 1 */
  int32_t  numa_count; /**< at least 1 */
} mxs_node_info;
#define MXS_NODE_INFO_INIT \
  { sizeof(mxs_node_info), 0, 0, 0 }

/** One NIC. */
typedef struct mxs_rail_info {
  uint32_t    size;
  int32_t     numa;             /**< -1: near to none, or not known */
  const char *name;             /**< "mlx5_0", "eth0"; "" if the topology is made up. Lives as long as the topology */
  uint64_t    bytes_per_second; /**< in each direction; the network's if it doesn't tell its own */
} mxs_rail_info;
#define MXS_RAIL_INFO_INIT \
  { sizeof(mxs_rail_info), 0, 0, 0 }

/** What joins two ranks, and what a message between them costs: overhead at each end, latency, bytes over the rate. */
typedef struct mxs_link_info {
  uint32_t size;
  int32_t  same_node; /**< 1: by memory; 0: by the network */
  uint32_t latency_ns;
  uint32_t overhead_ns;
  uint64_t bytes_per_second; /**< in each direction; of the slower rail of the two */
} mxs_link_info;
#define MXS_LINK_INFO_INIT \
  { sizeof(mxs_link_info), 0, 0, 0, 0 }

/** How an algorithm's time compares with what the cost model says: 1,000 is equal, 1,250 a quarter slower. */
typedef struct mxs_algorithm_factor {
  uint32_t    size;
  uint32_t    per_mille; /**< 1 ... 1,000,000 */
  const char *algorithm; /**< 1 to 63 bytes */
} mxs_algorithm_factor;
#define MXS_ALGORITHM_FACTOR_INIT \
  { sizeof(mxs_algorithm_factor), 1000, 0 }

/**
 * What messages and sums cost on these machines. Measured by `mxs-perf tune`;
 * guesses stand for what nobody has measured.
 */
typedef struct mxs_speeds {
  uint32_t size;
  uint32_t local_latency_ns; /**< between ranks of a node */
  uint32_t local_overhead_ns;
  uint32_t network_latency_ns; /**< between nodes */
  uint32_t network_overhead_ns;
  uint32_t factor_count; /**< at most 64 */
  uint64_t local_bytes_per_second; /**< of one rank's copying */
  uint64_t network_bytes_per_second; /**< of one rail in each direction */
  uint64_t add_bytes_per_second; /**< of gradients that one rank adds to a sum */
  const mxs_algorithm_factor *factors;
} mxs_speeds;
#define MXS_SPEEDS_INIT \
  { sizeof(mxs_speeds), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Make a topology from `text`, words in any order:
 *
 *     ranks:4                    one node of 4 ranks
 *     nodes:2 ranks:4            4 ranks on each node; ranks are numbered node by node
 *     ranks:3+5                  uneven: two nodes
 *     rails:2                    NICs of each node; ranks are dealt to them in turns
 *     nic:25                     GB/s (10^9 bytes) of one NIC in each direction. Without rails: every rank has a NIC of
 *                                its own; without both a node has one
 *     local:200                  GB/s between two ranks of a node
 *     latency:10 overhead:1      microseconds of the network: on the way, and at each end
 *     local-latency:0.3          microseconds inside a node; local-overhead: likewise
 *     hwloc:PATH                 every node looks like this machine, saved by `lstopo PATH.xml`: its NUMA nodes, its
 *                                NICs; ranks are spread evenly over its cores. Last, for the path may hold blanks
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: the sentence shows the word that wasn't understood, or a world of 0 ranks or of
 *         more than 1,048,576. MXS_SYSTEM: the file can't be read. MXS_NOT_BUILT: hwloc: in a build without hwloc.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_create(mxs_topology **topology, const char *text);

/**
 * Read a file that mxs_topology_save wrote, or a machine that hwloc saved as XML: that is one node, with one rank for
 * each NUMA node that has cores (mxs_topology_create with hwloc: makes others of it).
 *
 * @return MXS_OK. MXS_SYSTEM: the file can't be read. MXS_INVALID_ARGUMENT: it isn't a topology; the sentence names the
 *         field. MXS_NOT_BUILT: XML in a build without hwloc.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_load(mxs_topology **topology, const char *path);

/**
 * Write everything, speeds too, as JSON. The file is complete or not there: it is written beside its place and renamed.
 * A device, a pipe or a folder is not replaced: MXS_SYSTEM.
 *
 * @return MXS_OK. MXS_SYSTEM: the file can't be written.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_save(const mxs_topology *topology, const char *path);

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

/** Threads: any. Since 0.1. @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a wrong size, or no such node. */
MXS_API mxs_status mxs_topology_node(const mxs_topology *topology, int32_t node, mxs_node_info *info);

/** Threads: any. Since 0.1. @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a wrong size, or no such node or rail. */
MXS_API mxs_status mxs_topology_rail(const mxs_topology *topology, int32_t node, int32_t rail, mxs_rail_info *info);

/**
 * What joins ranks a and b.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a wrong size, a rank outside the world, or a == b.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_link(const mxs_topology *topology, int32_t a, int32_t b, mxs_link_info *info);

/**
 * The speeds that stand in a topology, all of them, guesses too.
 *
 * @param speeds  Its factors live as long as the topology.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL or a wrong size.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_speeds(const mxs_topology *topology, mxs_speeds *speeds);

/**
 * A copy of a topology with other speeds.
 *
 * @param changed  The copy; the caller destroys it. May be the variable that holds `topology` only if that is kept
 *                 elsewhere: nothing is destroyed here.
 * @param speeds   0 keeps a speed; factors replace those of the same algorithm. A network_bytes_per_second stands for
 *                 every rail, whatever the NICs say of themselves.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a wrong size, a number out of range.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_with_speeds(mxs_topology **changed, const mxs_topology *topology,
                                            const mxs_speeds *speeds);

/**
 * The topology of some of its ranks, which are numbered anew in the order given: a shard group of replicas.
 *
 * @param ranks  Each once. Copied.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: none, a rank twice, or one outside the world.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_of_ranks(mxs_topology **part, const mxs_topology *whole, const int32_t *ranks,
                                         int32_t rank_count);

/**
 * Write the speeds alone, as JSON, where later comms find them: rank 0 reads the file at mxs_comm_create, and its
 * speeds stand for all ranks.
 *
 * @param path  NULL: where comms look: MXS_SPEEDS, else matrixshard/speeds.json under XDG_CACHE_HOME or ~/.cache;
 *              folders are made.
 *
 * @return MXS_OK. MXS_SYSTEM: the file can't be written. MXS_ENVIRONMENT: path is NULL and the environment says that
 *         there is no such file, or nothing.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_topology_save_speeds(const mxs_topology *topology, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_TOPOLOGY_H */
