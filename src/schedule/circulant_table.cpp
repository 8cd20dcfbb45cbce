// SPDX-License-Identifier: Apache-2.0
// The receive schedules of the circulant broadcast, O(log p) steps per rank.
//
// A rank v receives in round k the base block of some r, on the way from r to v, with
//
//   v - skip[k + 1]  <=  r  <=  v - skip[k]        unrolled: v stands for p + v, so that r is never negative
//
// and its q blocks are right if all of these differ, and differ from its own. The search takes, for k = 0, 1, ..., the
// largest such r whose base block is not used yet. Ranks are tried as sums of falling skips, largest first: the last
// skip of a sum is its base block. A skip that has been used leaves the list for good, hence the few steps.
#include "schedule/circulant_table.hpp"

#include <algorithm>
#include <cassert>

namespace mxs {

namespace {

constexpr int none = -1;

class Search {
 public:
  Search(const std::vector<uint32_t> &skips, uint32_t distance, int base_block)
      : skips_(skips), count_(static_cast<int>(skips.size()) - 1), distance_(skips.back() + distance),
        limit_(2 * skips.back()), blocks_(skips.size() - 1), next_(skips.size()), previous_(skips.size()) {
    for (int index = 0; index <= count_; ++index) {
      next_[at(index)] = index - 1;
      previous_[at(index)] = index == count_ ? none : index + 1;
    }
    unlink(base_block);
    descend(0, count_);
    assert(round_ == count_);
  }

  // Of those that were used, p itself (skip q) stands for the base block of the newest phase.
  std::vector<int> take() && { return std::move(blocks_); }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }
  uint32_t skip(int index) const { return skips_[at(index)]; }

  void unlink(int index) {
    if (previous_[at(index)] != none) next_[at(previous_[at(index)])] = next_[at(index)];
    if (next_[at(index)] != none) previous_[at(next_[at(index)])] = previous_[at(index)];
  }

  // Tries `sum` plus each skip from `index` downwards; deeper sums first, since they are larger.
  void descend(uint32_t sum, int index) {
    for (; index != none && round_ < count_; index = next_[at(index)]) {
      const uint32_t longer = sum + skip(index);
      if (longer > distance_ - skip(round_) || longer >= limit_) continue;
      if (longer <= distance_ - skip(round_ + 1)) {
        descend(longer, index);
        if (round_ == count_) return;
      }
      if (sum > distance_ - skip(round_ + 1)) return;  // `sum` itself is the next to be tried, one level up
      limit_ = longer;
      blocks_[at(round_++)] = index;
      unlink(index);
    }
  }

  const std::vector<uint32_t> &skips_;
  const int count_;
  const uint32_t distance_;
  uint32_t limit_;  // what was taken last: sums fall from round to round
  int round_ = 0;
  std::vector<int> blocks_, next_, previous_;
};

}  // namespace

CirculantTable::CirculantTable(int rank_count) : rank_count_(static_cast<uint32_t>(rank_count)) {
  skips_.push_back(rank_count_);
  while (skips_.back() > 1) skips_.push_back((skips_.back() + 1) / 2);
  std::reverse(skips_.begin(), skips_.end());
  arrivals_.resize(rank_count_ * skips_.size());
  for (uint32_t distance = 1; distance < rank_count_; ++distance) fill(distance);
  for (uint32_t distance = 1; distance < rank_count_; ++distance)
    for (uint32_t block_class = 0; block_class <= skip_count(); ++block_class) measure_depth(distance, block_class);
}

uint32_t CirculantTable::base_block(uint32_t distance) const {
  for (uint32_t index = skip_count(); index-- > 0 && distance > 0;) {
    if (skips_[index] == distance) return index;
    if (skips_[index] < distance) distance -= skips_[index];
  }
  return skip_count();
}

std::vector<int> CirculantTable::receive_schedule(uint32_t distance) const {
  const int count = static_cast<int>(skip_count()), base = static_cast<int>(base_block(distance));
  std::vector<int> blocks = Search(skips_, distance, base).take();
  for (int &block : blocks) block = block == count ? base : block - count;
  return blocks;
}

uint32_t CirculantTable::class_of(uint32_t block, uint32_t block_count) const {
  if (block + 1 == block_count) return skip_count();
  // x: rounds left out before the first, so that the last has k = q - 1.
  const uint32_t shift = (skip_count() - (block_count - 1) % skip_count()) % skip_count();
  return (block + shift) % skip_count();
}

// A block of relative number b arrives in a round k of some phase: absolute numbers and rounds differ from these by
// the same multiple of q, so its lag is k - b, whatever the phase.
void CirculantTable::fill(uint32_t distance) {
  const int count = static_cast<int>(skip_count());
  const std::vector<int> blocks = receive_schedule(distance);
  for (int k = 0; k < count; ++k) {
    const int block = blocks[static_cast<size_t>(k)];
    Arrival &arrival = at(distance, static_cast<uint32_t>((block + count) % count));
    arrival.skip_index = static_cast<uint8_t>(k);
    arrival.lag = static_cast<uint8_t>(k - block);
    if (block < 0) continue;
    Arrival &last = at(distance, skip_count());  // the phase would bring a block beyond the last: it is the last
    last.skip_index = last.lag = static_cast<uint8_t>(k);
  }
}

uint8_t CirculantTable::measure_depth(uint32_t distance, uint32_t block_class) {
  if (distance == 0) return 0;
  Arrival &arrival = at(distance, block_class);
  if (arrival.depth == 0) {
    const uint32_t skip = skips_[arrival.skip_index];
    const uint32_t parent = distance >= skip ? distance - skip : distance + rank_count_ - skip;
    arrival.depth = static_cast<uint8_t>(1 + measure_depth(parent, block_class));
  }
  return arrival.depth;
}

}  // namespace mxs
