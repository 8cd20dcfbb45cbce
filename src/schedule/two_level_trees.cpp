// SPDX-License-Identifier: Apache-2.0
// Two-level: between nodes one copy per node, along a tree over nodes; inside a node local hops.
//
//   owner -> relay ===> relay of node b ===> relay of node d          === network, along star, chain or circulant
//              |           |   ===> relay of node c   |               --> local
//              v           v          |               v
//            others      others       v             others
//                                   others
//
// Each piece has a lane, and each node a relay for each lane (lanes.hpp): what an owner has leaves its node by all
// rails, and every byte enters every other node once.
//
// If the owner is the relay of a lane itself, it sends to other nodes only, and a helper, another rank with each round,
// gets one copy and hands it to the others of the node. Otherwise its port inside the node would carry 1.75 times the
// bytes of 8 ranks with 8 lanes, and not once.
//
// Times, with t the round in which the tree over nodes brings block b to a node, t >= b:
//
//   2b + 1   owner -> relay, or owner -> helper      2b + 3   these -> others of the node
//   2t + 2   relay ===> relay                        2t + 3   relay -> others of the node
//
// A reduce turns them round but leaves the order of blocks, so that a node's sum is made just before it goes on: keys
// that had made the last hop to the owner the least urgent took 1.84 times the bound, these 1.29 (simulated, 8 nodes of
// 8 ranks, one owner, 512 MiB). Only circulant also sends its blocks backwards: its rounds have a peer each.
#include <algorithm>

#include "schedule/blocks.hpp"
#include "schedule/circulant_table.hpp"
#include "schedule/lanes.hpp"
#include "schedule/trees.hpp"

namespace mxs {

namespace {

std::vector<int> all_of(int count) {
  std::vector<int> numbers;
  for (int number = 0; number < count; ++number) numbers.push_back(number);
  return numbers;
}

class TwoLevelTrees final : public Trees {
 public:
  explicit TwoLevelTrees(const ScheduleOptions &options) : lanes_(options) {
    const int node_count = lanes_.node_count();
    const uint32_t nodes = static_cast<uint32_t>(node_count);
    if (options.algorithm == Algorithm::two_level_circulant) {
      const uint32_t block_count = Blocks(options).block_count();
      uint32_t rounds = block_count;
      for (uint32_t reached = 1; reached < nodes; reached *= 2) ++rounds;
      between_ = make_circulant_trees(all_of(node_count), block_count);
      backwards_ = true;
      last_ = 2 * rounds + 1;
    } else if (options.algorithm == Algorithm::two_level_chain) {
      between_ = make_chain_trees(all_of(node_count));
      last_ = 2 * std::max(nodes, 2u) - 1;
    } else {
      between_ = make_star_trees(node_count);
      last_ = 3;
    }
  }

  int parent(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return -1;
    const int node = lanes_.node_of(rank), hub = hub_of(piece, node);
    if (rank != hub) return hub;
    if (node == lanes_.node_of(piece.owner)) return piece.owner;
    const Piece above = over_nodes(piece);
    return gate_of(piece, between_->parent(above, node));
  }

  void children(const Piece &piece, int rank, std::vector<int> *children) const override {
    children->clear();
    const int node = lanes_.node_of(rank);
    if (rank == gate_of(piece, node)) {
      between_->children(over_nodes(piece), node, children);
      for (int &child : *children) child = gate_of(piece, child);
    }
    const int hub = hub_of(piece, node);
    if (rank == piece.owner) {
      if (hub != rank) children->push_back(hub);
    } else if (rank == hub) {
      for (const int other : lanes_.ranks(node))
        if (other != rank && other != piece.owner) children->push_back(other);
    }
  }

  uint32_t depth(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return 0;
    const int node = lanes_.node_of(rank), home = lanes_.node_of(piece.owner);
    const uint32_t from_hub = rank != hub_of(piece, node);
    if (node == home) return 1 + from_hub;
    return (gate_of(piece, home) != piece.owner) + between_->depth(over_nodes(piece), node) + from_hub;
  }

  uint32_t gather_time(const Piece &piece, int rank) const override {
    const int node = lanes_.node_of(rank);
    const uint32_t from_hub = rank != hub_of(piece, node);
    if (node == lanes_.node_of(piece.owner)) return 2 * piece.round + 1 + 2 * from_hub;
    return 2 * between_->gather_time(over_nodes(piece), node) + 2 + from_hub;
  }
  uint32_t reduce_time(const Piece &piece, int rank) const override {
    return last_ + (backwards_ ? 0 : 4 * piece.round) - gather_time(piece, rank);
  }

 private:
  Piece over_nodes(const Piece &piece) const {
    Piece above;
    above.owner = above.helper = lanes_.node_of(piece.owner);
    above.round = piece.round;
    return above;
  }

  // Through whom a piece enters a node, or leaves its own.
  int gate_of(const Piece &piece, int node) const { return lanes_.relay(node, piece.helper); }

  // Who hands a piece to the others of a node: its gate, or a helper of an owner that is the gate. An owner that is
  // alone: itself.
  int hub_of(const Piece &piece, int node) const {
    const int gate = gate_of(piece, node);
    if (gate != piece.owner) return gate;
    const std::vector<int> &ranks = lanes_.ranks(node);
    const size_t others = ranks.size() - 1;
    if (others == 0) return gate;
    const size_t turn = (piece.round + static_cast<size_t>(piece.helper)) % others;
    return ranks[(static_cast<size_t>(lanes_.place_of(gate)) + 1 + turn) % ranks.size()];
  }

  const Lanes lanes_;
  std::unique_ptr<Trees> between_;  // nodes stand for ranks
  bool backwards_ = false;
  uint32_t last_ = 0;  // the latest time of a gather; of its first round, if blocks keep their order in a reduce
};

}  // namespace

std::unique_ptr<Trees> make_two_level_trees(const ScheduleOptions &options) {
  return std::make_unique<TwoLevelTrees>(options);
}

}  // namespace mxs
