// SPDX-License-Identifier: Apache-2.0
// Chain: owner -> next -> next ... around one ring, in which ranks of a node are neighbours, so that each byte crosses
// each node's border once.
#include "schedule/trees.hpp"

namespace mxs {

namespace {

class ChainTrees final : public Trees {
 public:
  explicit ChainTrees(std::vector<int> ring) : ring_(std::move(ring)), place_(places_on(ring_)) {}

  int parent(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return -1;
    const uint32_t place = place_of(rank);
    return ring_[place == 0 ? ring_.size() - 1 : place - 1];
  }

  void children(const Piece &piece, int rank, std::vector<int> *children) const override {
    children->clear();
    const int next = ring_[(place_of(rank) + 1) % ring_.size()];
    if (next != piece.owner) children->push_back(next);
  }

  uint32_t depth(const Piece &piece, int rank) const override {
    const uint32_t from = place_of(piece.owner), to = place_of(rank);
    return from <= to ? to - from : to + static_cast<uint32_t>(ring_.size()) - from;
  }
  uint32_t gather_time(const Piece &piece, int rank) const override { return piece.round + depth(piece, rank) - 1; }
  uint32_t reduce_time(const Piece &piece, int rank) const override {
    return piece.round + static_cast<uint32_t>(ring_.size()) - 1 - depth(piece, rank);
  }

 private:
  uint32_t place_of(int rank) const { return place_[static_cast<size_t>(rank)]; }

  const std::vector<int> ring_;        // by place
  const std::vector<uint32_t> place_;  // by rank
};

}  // namespace

std::unique_ptr<Trees> make_chain_trees(std::vector<int> ring) { return std::make_unique<ChainTrees>(std::move(ring)); }

}  // namespace mxs
