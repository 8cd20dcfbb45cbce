// SPDX-License-Identifier: Apache-2.0
// Flat and spread: an owner, perhaps a helper, then everybody else.
//
//   helper == owner   owner -> all others                     depth 1
//   else              owner -> helper -> all others           depth 2
#include "schedule/trees.hpp"

namespace mxs {

namespace {

class StarTrees final : public Trees {
 public:
  explicit StarTrees(int rank_count) : rank_count_(rank_count) {}

  int parent(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return -1;
    return rank == piece.helper ? piece.owner : piece.helper;
  }

  void children(const Piece &piece, int rank, std::vector<int> *children) const override {
    children->clear();
    if (rank == piece.owner && piece.helper != piece.owner) return children->push_back(piece.helper);
    if (rank != piece.helper) return;
    for (int child = 0; child < rank_count_; ++child)
      if (child != rank && child != piece.owner) children->push_back(child);
  }

  uint32_t depth(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return 0;
    return rank == piece.helper || piece.helper == piece.owner ? 1 : 2;
  }
  uint32_t gather_time(const Piece &piece, int rank) const override { return piece.round + depth(piece, rank) - 1; }
  uint32_t reduce_time(const Piece &piece, int rank) const override {
    const uint32_t height = piece.helper == piece.owner || rank_count_ == 2 ? 1 : 2;
    return piece.round + height - depth(piece, rank);
  }

 private:
  const int rank_count_;
};

}  // namespace

std::unique_ptr<Trees> make_star_trees(int rank_count) {
  return std::make_unique<StarTrees>(rank_count);
}

}  // namespace mxs
