// SPDX-License-Identifier: Apache-2.0
// The tables of the circulant broadcast meet the conditions of their paper for every number of ranks, and so does the
// broadcast that is made from them, round by round.
#include <algorithm>
#include <set>

#include "schedule/circulant_table.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

bool complain(uint32_t rank_count, uint32_t distance, const char *what) {
  print_error("%u ranks, %u from the root: %s\n", rank_count, distance, what);
  return false;
}

// In q successive rounds: q different blocks, all of the last q but the base block of the previous phase, and the base
// block. What a rank is sent, its sender has had in an earlier round, or as its base block in the phase before.
bool meets_conditions(uint32_t rank_count) {
  const CirculantTable table(static_cast<int>(rank_count));
  const int count = static_cast<int>(table.skip_count());
  if ((uint32_t{1} << count) < rank_count || (rank_count > 1 && (uint32_t{1} << (count - 1)) >= rank_count))
    return complain(rank_count, 0, "not log2 p rounds");
  std::vector<std::vector<int>> schedules(rank_count);
  for (uint32_t distance = 1; distance < rank_count; ++distance)
    schedules[distance] = table.receive_schedule(distance);
  for (uint32_t distance = 1; distance < rank_count; ++distance) {
    const int base = static_cast<int>(table.base_block(distance));
    std::set<int> expected = {base};
    for (int block = -count; block < 0; ++block)
      if (block != base - count) expected.insert(block);
    const std::vector<int> &blocks = schedules[distance];
    if (std::set<int>(blocks.begin(), blocks.end()) != expected || blocks.size() != static_cast<size_t>(count))
      return complain(rank_count, distance, "not the q blocks that are due");
    for (int k = 0; k < count; ++k) {
      const uint32_t skip = table.skip_of(static_cast<uint32_t>(k));
      const uint32_t from = (distance + rank_count - skip) % rank_count;
      const int block = blocks[static_cast<size_t>(k)];
      if (from == 0 ? block >= 0 && block != k
                    : block != static_cast<int>(table.base_block(from)) - count &&
                          std::find(schedules[from].begin(), schedules[from].begin() + k, block) ==
                              schedules[from].begin() + k)
        return complain(rank_count, distance, "is sent what its sender does not have");
    }
  }
  return true;
}

// Runs the broadcast of n blocks: each rank receives each block once, one per round at most, from a rank that has it,
// and everything is there after n - 1 + q rounds.
bool broadcasts(uint32_t rank_count, uint32_t block_count) {
  const CirculantTable table(static_cast<int>(rank_count));
  const uint32_t round_count = table.round_count(block_count);
  for (uint32_t distance = 1; distance < rank_count; ++distance) {
    std::vector<int> skip_in_round(round_count, -1);
    for (uint32_t block = 0; block < block_count; ++block) {
      const uint32_t block_class = table.class_of(block, block_count);
      const CirculantTable::Arrival &arrival = table.arrival(distance, block_class);
      const uint32_t round = block + arrival.lag, skip = table.skip_of(arrival.skip_index);
      if (round >= round_count) return complain(rank_count, distance, "a block comes after the last round");
      if (skip_in_round[round] >= 0) return complain(rank_count, distance, "two blocks in one round");
      skip_in_round[round] = static_cast<int>(arrival.skip_index);
      const uint32_t from = (distance + rank_count - skip) % rank_count;
      if (from == 0 && arrival.depth != 1) return complain(rank_count, distance, "a hop from the root is not one");
      if (from == 0) continue;
      const CirculantTable::Arrival &before = table.arrival(from, block_class);
      if (before.lag >= arrival.lag) return complain(rank_count, distance, "is sent a block that has not arrived");
      if (before.depth + 1 != arrival.depth) return complain(rank_count, distance, "has a wrong depth");
    }
    // All ranks use the same skip in a round, which makes them one-ported: its number follows from the round.
    const uint32_t count = table.skip_count(), shift = (count - (block_count - 1) % count) % count;
    for (uint32_t round = 0; round < round_count; ++round)
      if (skip_in_round[round] >= 0 && static_cast<uint32_t>(skip_in_round[round]) != (round + shift) % count)
        return complain(rank_count, distance, "a round uses another skip");
  }
  return true;
}

bool all_meet_conditions() {
  for (uint32_t rank_count = 1; rank_count <= 1100; ++rank_count)
    if (!meets_conditions(rank_count)) return false;
  for (const uint32_t rank_count : {4095u, 4096u, 4097u, 6007u, 16383u, 16384u, 16385u, 65537u})
    if (!meets_conditions(rank_count)) return false;
  return true;
}

bool all_broadcast() {
  for (uint32_t rank_count = 2; rank_count <= 70; ++rank_count)
    for (const uint32_t block_count : {1u, 2u, 3u, 5u, 6u, 7u, 12u, 30u})
      if (!broadcasts(rank_count, block_count)) return false;
  for (const uint32_t rank_count : {1000u, 1024u, 5000u, 16384u})
    for (const uint32_t block_count : {1u, 4u, 17u})
      if (!broadcasts(rank_count, block_count)) return false;
  return true;
}

void tables_meet_the_four_conditions(void **) { assert_true(all_meet_conditions()); }
void broadcasts_end_in_the_fewest_rounds(void **) { assert_true(all_broadcast()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tables_meet_the_four_conditions),
      cmocka_unit_test(broadcasts_end_in_the_fewest_rounds),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
