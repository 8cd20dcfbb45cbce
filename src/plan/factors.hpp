// SPDX-License-Identifier: Apache-2.0
// Factors of shampoo and soap: how matrices are cut into blocks that have factors of their own, and how many bytes
// their state and one step's workspace take. The planner predicts by it and steppers take exactly this, so that memory
// depends neither on the CPU nor on who multiplies.
//
//   state, each part at a 64-byte border
//     exp_avg, then exp_avg_sq or graft_sq, then momentum   fp32, as many as there are, as large as all matrices
//     of each block, of each side of n that has a factor    two n x n in fp32: the factor, and its root or basis
//     failures                                              fp64: for each matrix and block, in a row and in all
//
//   workspace
//     of each lane, a block under way                       three arrays as large as the largest block, fp32
//     of each room, a side under refresh                    n x n in fp32, n numbers in fp64 and their order, and what
//                                                           the decomposition needs, 24 n^2 and a little
//
// Small blocks (sides to 1,024) go one to a thread, each with a lane and a room; others go one by one, their two sides
// in two rooms where there are two threads.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/types.h"

namespace mxs {

// What shapes them.
struct FactorRules {
  mxs_rule rule = MXS_RULE_SHAMPOO;
  int64_t side_max = 1024;  // shampoo: longer sides are cut; soap: they get no factor
  bool one_sided = false;   // soap: only the shorter side gets a factor; columns if both are equal
  int array_count = 2;      // fp32 numbers of state for each element
};
// Of options left zero.
FactorRules default_factor_rules(mxs_rule rule);

// A part of each matrix, within it.
struct FactorBlock {
  int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;

  uint64_t elements() const { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns); }
};

bool has_left_factor(const FactorBlock &block, const FactorRules &rules);
bool has_right_factor(const FactorBlock &block, const FactorRules &rules);

// shampoo: blocks no side of which is longer than side_max, each given block's from left to right, then down. soap: as
// given.
std::vector<FactorBlock> cut_factor_blocks(const std::vector<FactorBlock> &given, const FactorRules &rules);
// How many they are.
uint64_t factor_block_count(const std::vector<FactorBlock> &given, const FactorRules &rules);

// Of `count` equal matrices, each of which is exactly its given blocks, whose places are not looked at.
uint64_t factor_state_bytes(const std::vector<FactorBlock> &given, int64_t count, const FactorRules &rules);

struct FactorRooms {
  int lane_count = 1, room_count = 1;  // a room for each lane, or one or two for the only lane
  uint64_t block_elements = 0;         // of the largest block
  int64_t side = 0;                    // the longest that has a factor; 0: there is none
};
FactorRooms factor_rooms(const std::vector<FactorBlock> &given, int64_t count, const FactorRules &rules,
                         int thread_count);

uint64_t factor_lane_bytes(const FactorRooms &rooms);
uint64_t decomposition_bytes(int64_t side);  // enough for any eigh and qr of such a side
uint64_t factor_room_bytes(const FactorRooms &rooms);
uint64_t factor_workspace_bytes(const FactorRooms &rooms);

}  // namespace mxs
