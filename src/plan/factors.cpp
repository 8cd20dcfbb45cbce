// SPDX-License-Identifier: Apache-2.0
// The counts of factors.hpp. Closed forms: a planned matrix may have a million blocks.
#include "plan/factors.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 64;
constexpr int64_t small_side_max = 1024;  // of blocks that go one to a thread

uint64_t array_bytes(uint64_t count, uint64_t elements) { return align_up(count * elements * sizeof(float), border); }

bool cuts(const FactorRules &rules) { return rules.rule == MXS_RULE_SHAMPOO; }

// One side of a given block: full_count pieces of full_side, and a rest, which may be 0.
struct CutSide {
  uint64_t full_count = 0, full_side = 0, rest = 0;

  CutSide(int64_t side, const FactorRules &rules) {
    full_side = static_cast<uint64_t>(cuts(rules) ? std::min(side, rules.side_max) : side);
    full_count = static_cast<uint64_t>(side) / full_side;
    rest = static_cast<uint64_t>(side) % full_side;
  }
  uint64_t count() const { return full_count + (rest != 0); }
  // One pair of factor and root for each piece.
  uint64_t pair_bytes(uint64_t matrix_count) const {
    return 2 * (full_count * array_bytes(matrix_count, full_side * full_side) + array_bytes(matrix_count, rest * rest));
  }
};

}  // namespace

FactorRules default_factor_rules(mxs_rule rule) {
  FactorRules rules;
  rules.rule = rule;
  rules.side_max = rule == MXS_RULE_SOAP ? 10'000 : 1'024;
  return rules;
}

bool has_left_factor(const FactorBlock &block, const FactorRules &rules) {
  if (cuts(rules)) return true;
  return block.rows <= rules.side_max && !(rules.one_sided && block.rows > block.columns);
}

bool has_right_factor(const FactorBlock &block, const FactorRules &rules) {
  if (cuts(rules)) return true;
  return block.columns <= rules.side_max && !(rules.one_sided && block.columns >= block.rows);
}

uint64_t factor_block_count(const std::vector<FactorBlock> &given, const FactorRules &rules) {
  uint64_t count = 0;
  for (const FactorBlock &block : given)
    count += CutSide(block.rows, rules).count() * CutSide(block.columns, rules).count();
  return count;
}

std::vector<FactorBlock> cut_factor_blocks(const std::vector<FactorBlock> &given, const FactorRules &rules) {
  if (!cuts(rules)) return given;
  std::vector<FactorBlock> blocks;
  for (const FactorBlock &whole : given)
    for (int64_t row = 0; row < whole.rows; row += rules.side_max)
      for (int64_t column = 0; column < whole.columns; column += rules.side_max)
        blocks.push_back({whole.first_row + row, std::min(rules.side_max, whole.rows - row),
                          whole.first_column + column, std::min(rules.side_max, whole.columns - column)});
  return blocks;
}

uint64_t factor_state_bytes(const std::vector<FactorBlock> &given, int64_t count, const FactorRules &rules) {
  const uint64_t matrix_count = static_cast<uint64_t>(count);
  uint64_t elements = 0, block_count = 0, bytes = 0;
  for (const FactorBlock &block : given) {
    const CutSide rows(block.rows, rules), columns(block.columns, rules);
    elements += block.elements();
    block_count += rows.count() * columns.count();
    if (has_left_factor(block, rules)) bytes += columns.count() * rows.pair_bytes(matrix_count);
    if (has_right_factor(block, rules)) bytes += rows.count() * columns.pair_bytes(matrix_count);
  }
  bytes += static_cast<uint64_t>(rules.array_count) * array_bytes(matrix_count, elements);
  return bytes + align_up(matrix_count * block_count * 2 * sizeof(double), border);
}

FactorRooms factor_rooms(const std::vector<FactorBlock> &given, int64_t count, const FactorRules &rules,
                         int thread_count) {
  FactorRooms rooms;
  uint64_t block_count = 0;
  int64_t longest = 0;
  for (const FactorBlock &block : given) {
    const CutSide rows(block.rows, rules), columns(block.columns, rules);
    rooms.block_elements = std::max(rooms.block_elements, rows.full_side * columns.full_side);
    block_count += rows.count() * columns.count() * static_cast<uint64_t>(count);
    const int64_t sides[] = {static_cast<int64_t>(rows.full_side), static_cast<int64_t>(columns.full_side)};
    longest = std::max({longest, sides[0], sides[1]});
    if (has_left_factor(block, rules)) rooms.side = std::max(rooms.side, sides[0]);
    if (has_right_factor(block, rules)) rooms.side = std::max(rooms.side, sides[1]);
  }
  const bool one_to_a_thread = longest <= small_side_max && block_count >= static_cast<uint64_t>(thread_count);
  rooms.lane_count = one_to_a_thread ? thread_count : 1;
  rooms.room_count = one_to_a_thread ? thread_count : std::min(thread_count, 2);
  return rooms;
}

uint64_t factor_lane_bytes(const FactorRooms &rooms) { return 3 * array_bytes(1, rooms.block_elements); }

uint64_t decomposition_bytes(int64_t side) {
  const uint64_t n = static_cast<uint64_t>(side);
  return n == 0 ? 0 : align_up(24 * n * n + 512 * n + 4096, border);
}

uint64_t factor_room_bytes(const FactorRooms &rooms) {
  const uint64_t n = static_cast<uint64_t>(rooms.side);
  return array_bytes(1, n * n) + array_bytes(1, 2 * n) + array_bytes(1, n) + decomposition_bytes(rooms.side);
}

uint64_t factor_workspace_bytes(const FactorRooms &rooms) {
  return static_cast<uint64_t>(rooms.lane_count) * factor_lane_bytes(rooms) +
         static_cast<uint64_t>(rooms.room_count) * factor_room_bytes(rooms);
}

}  // namespace mxs
