// SPDX-License-Identifier: Apache-2.0
// Trees: for every piece of a schedule set, who hands it to whom, and when.
//
// An algorithm is a way to cut pieces (pieces.cpp) and their trees. Everything else, gather or reduce, messages, keys,
// slots, dependencies, is made from them in one way for all (moves.cpp):
//
//   gather   edges go down: parent -> child at gather_time(child)
//   reduce   the same edges go up: child -> parent at reduce_time(child)
//
// Times are counts, not seconds. They must grow strictly along every path in the direction that the bytes travel; that
// alone makes schedules free of deadlock. Pieces whose edges of one channel have equal times travel in one message.
// Beyond that they are the order in which a busy port serves: a gather should serve first what has farthest to go, a
// reduce what is nearly there, which frees its slot.
//
// Pure, and equal on all ranks. Threads: any, read only.
#pragma once

#include <memory>
#include <vector>

#include "schedule/schedule.hpp"

namespace mxs {

class Trees {
 public:
  virtual ~Trees() = default;
  virtual int parent(const Piece &piece, int rank) const = 0;  // -1: the owner has none
  // Replaces what `children` holds. Empty: a leaf.
  virtual void children(const Piece &piece, int rank, std::vector<int> *children) const = 0;
  virtual uint32_t depth(const Piece &piece, int rank) const = 0;  // hops from the owner
  // Of the edge above `rank`, which is not the owner.
  virtual uint32_t gather_time(const Piece &piece, int rank) const = 0;
  virtual uint32_t reduce_time(const Piece &piece, int rank) const = 0;
};

// options.layout and .topology are followed for as long as the trees live.
std::unique_ptr<Trees> make_trees(const ScheduleOptions &options);

// As in schedule.hpp, with trees that several ranks share.
Schedule make_schedule(const ScheduleOptions &options, const Trees &trees, const std::vector<Piece> &pieces, int rank);

// All ranks, node by node: neighbours share a node, so that few steps around the ring cross a node's border.
std::vector<int> ring_of(const ScheduleOptions &options);
std::vector<uint32_t> places_on(const std::vector<int> &ring);  // of each rank

// One file per algorithm. Those of two-level use the others over nodes in place of ranks.
std::unique_ptr<Trees> make_star_trees(int rank_count);  // flat, spread
std::unique_ptr<Trees> make_chain_trees(std::vector<int> ring);
std::unique_ptr<Trees> make_circulant_trees(std::vector<int> ring, uint32_t block_count);
std::unique_ptr<Trees> make_two_level_trees(const ScheduleOptions &options);

}  // namespace mxs
