// SPDX-License-Identifier: Apache-2.0
// What no placement can go below: see bounds.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stages.hpp"

namespace mxs {

struct Item;

// The least worst load of ranks that carry `fixed` already and get items of these sizes whole. found_worst: the worst
// load of some placement; the bound is at most that. part_count_max: see bounds.cpp; more of them find more, and take
// time by their square.
constexpr size_t plan_part_count_max = 128;  // DeepSeek-V3 on 512 ranks, 91.4 experts each, wants 92
constexpr size_t unit_part_count_max = 32;   // of its units on 64 ranks, 12.25 experts each: 13
uint64_t load_bound(std::vector<uint64_t> sizes, std::vector<uint64_t> fixed, uint64_t found_worst,
                    size_t part_count_max = plan_part_count_max);

// Of the bytes that one rank, and one node over its NICs, sends out of one unit.
struct UnitBound {
  uint64_t rank = 0, nic = 0;
};

struct PlanBounds {
  uint64_t bytes = 0, step_ps = 0;
  std::vector<UnitBound> units;
};
// Of drafts whose pieces have owners: fixed owners and flat shares are taken as given, all else could be anywhere.
PlanBounds plan_bounds(const PlanSettings &settings, std::vector<Draft> *drafts);

// Of single units. items: those that may go anywhere; the others' bytes lie where they are.
std::vector<UnitBound> unit_bounds(const PlanSettings &settings, const std::vector<Draft> &drafts,
                                   const std::vector<Item> &items);

}  // namespace mxs
