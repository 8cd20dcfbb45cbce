// SPDX-License-Identifier: Apache-2.0
// The circulant broadcast: n blocks from one root to p ranks in n - 1 + ceil(log2 p) rounds, the fewest possible, for
// any p. After J. L. Traff, "Round-optimal n-Block Broadcast Schedules in Logarithmic Time", arXiv 2312.11236.
//
//   p = 9: skips 1 2 3 5    round t + x uses skip k = (t + x) mod q:
//
//      0 -> 1 -> 2 -> 3 -> 4 ...       rank v receives from v - skip k and sends to v + skip k, all modulo p;
//      0 ------> 2 ------> 4 ...       v is the distance from the root, x shifts so that the last round has k = q - 1
//
// In q successive rounds a rank receives q different blocks, one of them the newest that has reached it (its base
// block, which comes along a path of growing skips), the others from the last q; and all that it sends it has had
// before. So each block has a tree: the parent of v is the rank from which v receives it. The trees of block j and
// j + q are the same, q rounds later. Every rank may be root of its own blocks at the same time with the same rounds
// and peers: an all-gather, irregular or not, by messages that carry a block of each owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mxs {

class CirculantTable {
 public:
  explicit CirculantTable(int rank_count);

  // How a rank gets the blocks of a class: from `skip` ranks before it, `lag` rounds after its first round, `depth`
  // hops from the root. Block j of the root is sent from round j on.
  struct Arrival {
    uint8_t skip_index = 0, lag = 0, depth = 0;
  };

  int rank_count() const { return static_cast<int>(rank_count_); }
  uint32_t skip_count() const { return static_cast<uint32_t>(skips_.size()) - 1; }  // q
  uint32_t skip_of(uint32_t index) const { return skips_[index]; }                     // ascending; skip_of(q) is p
  uint32_t round_count(uint32_t block_count) const { return block_count - 1 + skip_count(); }
  // Classes 0 to q - 1 are blocks that are equal modulo q; class q is the last block, which goes out on the heels of
  // the others, along the path of growing skips. Not for one rank.
  uint32_t class_of(uint32_t block, uint32_t block_count) const;
  // distance: from the root, 1 to p - 1.
  const Arrival &arrival(uint32_t distance, uint32_t block_class) const {
    return arrivals_[distance * skips_.size() + block_class];
  }

  // What a rank receives in q successive rounds, by skip: blocks relative to the newest phase, -q to q - 1.
  std::vector<int> receive_schedule(uint32_t distance) const;
  // The block by which a rank is reached first: index of the smallest skip in the sum of falling skips that is
  // `distance`. q for the root.
  uint32_t base_block(uint32_t distance) const;

 private:
  Arrival &at(uint32_t distance, uint32_t block_class) { return arrivals_[distance * skips_.size() + block_class]; }
  void fill(uint32_t distance);
  uint8_t measure_depth(uint32_t distance, uint32_t block_class);

  const uint32_t rank_count_;
  std::vector<uint32_t> skips_;
  std::vector<Arrival> arrivals_;  // by distance and class: 3 (q + 1) bytes per rank
};

}  // namespace mxs
