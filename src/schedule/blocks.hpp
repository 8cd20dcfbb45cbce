// SPDX-License-Identifier: Apache-2.0
// Blocks: how circulant and two-level cut what an owner has.
//
//   owner's packed segments   |------------- lane 2 -------------|------------- lane 0 -------------| two-level only
//   blocks                    |--- 0 ---|--- 1 ---|---- 2 ---|---|--- 0 ---|--- 1 ---|--- 2 ---|----|
//   segment borders           |------------------|-----------------------------------------|--------|
//   pieces                    |---------|--------||----------|---|---------|---------|-----|---|----|
//
// The pieces of one block have equal rounds, so that they travel in one message.
//
// Circulant cuts every owner's bytes (two-level: of a lane) in the same number n of blocks, such that what all owners
// have in one round is about one chunk. Owners too small for that have fewer blocks, spread over the n positions.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/lanes.hpp"
#include "schedule/schedule.hpp"

namespace mxs {

bool cuts_blocks(Algorithm algorithm);

class Blocks {
 public:
  explicit Blocks(const ScheduleOptions &options);

  uint32_t block_count() const { return block_count_; }  // n of circulant, else 0
  // Of all owners. MXS_INVALID_ARGUMENT: more pieces than `piece_count_max`.
  mxs_status cut(uint64_t piece_count_max, std::vector<Piece> *pieces) const;

 private:
  struct Share {
    int lane = 0;
    uint64_t bytes = 0;
  };
  struct Cursor;

  std::vector<Share> shares_of(int owner) const;
  uint32_t blocks_of(const Share &share) const;
  uint32_t round_of(uint32_t block, uint32_t blocks, int owner) const;
  void count_blocks();
  bool next_block(Cursor *cursor, int owner) const;

  const Layout &layout_;
  const uint64_t chunk_bytes_;
  const bool two_level_, circulant_;
  const Lanes lanes_;            // two-level
  std::vector<uint64_t> owned_;  // bytes, by rank
  uint32_t block_count_ = 0;
};

}  // namespace mxs
