// SPDX-License-Identifier: Apache-2.0
// Circulant: every owner broadcasts its blocks over the same rounds and skips (circulant_table.hpp). A piece's round is
// its block's index. In a reduce rounds run backwards: the last block comes first.
#include "schedule/blocks.hpp"
#include "schedule/circulant_table.hpp"
#include "schedule/trees.hpp"

namespace mxs {

namespace {

class CirculantTrees final : public Trees {
 public:
  CirculantTrees(std::vector<int> ring, uint32_t block_count)
      : table_(static_cast<int>(ring.size())), block_count_(block_count), ring_(std::move(ring)),
        places_(places_on(ring_)) {}

  int parent(const Piece &piece, int rank) const override {
    if (rank == piece.owner) return -1;
    const uint32_t skip = table_.skip_of(arrival(piece, rank).skip_index);
    const uint32_t place = place_of(rank);
    return ring_[place >= skip ? place - skip : place + size() - skip];
  }

  void children(const Piece &piece, int rank, std::vector<int> *children) const override {
    children->clear();
    if (size() == 1) return;
    const uint32_t from = distance(piece, rank), block_class = table_.class_of(piece.round, block_count_);
    for (uint32_t index = 0; index < table_.skip_count(); ++index) {
      const uint32_t to = (from + table_.skip_of(index)) % size();
      if (to == 0 || table_.arrival(to, block_class).skip_index != index) continue;
      children->push_back(ring_[(place_of(piece.owner) + to) % size()]);
    }
  }

  uint32_t depth(const Piece &piece, int rank) const override {
    return rank == piece.owner ? 0 : arrival(piece, rank).depth;
  }
  uint32_t gather_time(const Piece &piece, int rank) const override {
    return piece.round + arrival(piece, rank).lag;
  }
  uint32_t reduce_time(const Piece &piece, int rank) const override {
    return table_.round_count(block_count_) - 1 - gather_time(piece, rank);
  }

 private:
  uint32_t size() const { return static_cast<uint32_t>(ring_.size()); }
  uint32_t place_of(int rank) const { return places_[static_cast<size_t>(rank)]; }
  uint32_t distance(const Piece &piece, int rank) const {
    const uint32_t from = place_of(piece.owner), to = place_of(rank);
    return from <= to ? to - from : to + size() - from;
  }
  const CirculantTable::Arrival &arrival(const Piece &piece, int rank) const {
    return table_.arrival(distance(piece, rank), table_.class_of(piece.round, block_count_));
  }

  const CirculantTable table_;
  const uint32_t block_count_;
  const std::vector<int> ring_;
  const std::vector<uint32_t> places_;
};

}  // namespace

std::unique_ptr<Trees> make_circulant_trees(std::vector<int> ring, uint32_t block_count) {
  return std::make_unique<CirculantTrees>(std::move(ring), block_count);
}

}  // namespace mxs
