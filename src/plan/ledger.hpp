// SPDX-License-Identifier: Apache-2.0
// What ranks carry while owners are being chosen, and the steps of choosing:
//
//   own_fixed, own_flat     owners that are given, or even by nature, go into the ledger            owners, flat
//   own_together            and those of matrices that ranks of a node share                        co_owners
//   collect_items           what is open, as items: pieces that go to one owner together            owners
//   start_by_cost, _bytes   longest processing time first                                           start
//   search_loads            moves and swaps, until step time and bytes are near their lower bounds  search
//   spread_units            like items change places, so that no unit piles up on one rank or node  spread
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/bounds.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {

// Pieces that go to one owner together.
struct Item {
  uint64_t cost = 0;    // picoseconds of a step
  uint64_t bytes = 0;   // owned: weights, masters, gradient sums, state
  uint64_t weight = 0;  // bytes of its weights, which the owner sends out of the unit
  int unit = 0;
  int owner = -1;
  int previous_owner = -1;  // under options.previous; -1: nobody who is still there
  bool light = false;   // placed last, where others leave room: tails, and what costs no step
  std::vector<Placement *> pieces;
};

struct Load {
  uint64_t cost = 0, bytes = 0;
};

class Ledger {
 public:
  Ledger(int rank_count, uint64_t budget) : loads_(static_cast<size_t>(rank_count)), budget_(budget) {}
  void add(int rank, uint64_t cost, uint64_t bytes) {
    Load &load = loads_[static_cast<size_t>(rank)];
    load.cost = saturating_add(load.cost, cost);
    load.bytes += bytes;
    worst_cost_ = std::max(worst_cost_, load.cost);
  }
  bool fits(int rank, uint64_t bytes) const { return budget_ == 0 || of(rank).bytes + bytes <= budget_; }
  const Load &of(int rank) const { return loads_[static_cast<size_t>(rank)]; }
  const std::vector<Load> &loads() const { return loads_; }
  int rank_count() const { return static_cast<int>(loads_.size()); }
  uint64_t worst_cost() const { return worst_cost_; }
  uint64_t worst_bytes() const { return of(rank_of_most_bytes()).bytes; }
  int rank_of_most_bytes() const {
    const auto less = [](const Load &a, const Load &b) { return a.bytes < b.bytes; };
    return static_cast<int>(std::max_element(loads_.begin(), loads_.end(), less) - loads_.begin());
  }
  void set_budget(uint64_t budget) { budget_ = budget; }

 private:
  std::vector<Load> loads_;
  uint64_t budget_ = 0;
  uint64_t worst_cost_ = 0;
};

// Picoseconds of one step on a piece by its owner.
inline uint64_t piece_cost(const PlanSettings &settings, const PlannedTensor &tensor, const Placement &piece) {
  return step_ps(piece_work(tensor, piece), settings);
}

// ---- flat.cpp ----
void own_flat(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger);

// ---- co_owners.cpp ----
// Cuts the matrices that ranks are to share, gives the shares their owners and adds them to the ledger.
// If that can't be within the budget, *least_bytes is one that at least would be needed.
mxs_status own_together(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger,
                        uint64_t *least_bytes);

// ---- owners.cpp ----
void own_fixed(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger);
// Of tensors that aren't flat, tied or fixed, the pieces without an owner; or all of them. Matrices and runs of blocks
// one by one, the tails of a unit together.
enum class Collect { open, owned_too };
std::vector<Item> collect_items(const PlanSettings &settings, std::vector<Draft> *drafts, Collect which);

// ---- start.cpp ----
// Ranks in an order in which neighbours are of different nodes: first ranks of all nodes, then the second ones. Owners
// are chosen as if they were numbered so, since what is large goes to the first ones.
std::vector<int> ranks_across_nodes(const Topology &topology);
// False: something fits nowhere. Then *ledger and owners are half done.
bool start_by_cost(std::vector<Item *> items, Ledger *ledger);
bool start_by_bytes(std::vector<Item *> items, Ledger *ledger);

// ---- search.cpp ----
// What search_loads wants to come near to.
struct SearchGoal {
  uint64_t cost_bound = 0, bytes_bound = 0;     // what the worst rank can't go below
  uint32_t cost_weight = 0, bytes_weight = 0;   // of the excess over them
  uint64_t budget = 0;                          // bytes that no rank may exceed by a move; 0: none
  uint64_t moves_max = 0;                       // to be evaluated
};
// Changes owners of items, all of which have one. given: what ranks carry besides. Returns the moves evaluated.
uint64_t search_loads(const SearchGoal &goal, const std::vector<Item *> &items, const Ledger &given);

// ---- spread.cpp ----
// Changes owners of items, so that single units come near their bounds. drafts: pieces that have owners are taken into
// account. ledger: with the items in it.
void spread_units(const PlanSettings &settings, const std::vector<Draft> &drafts, const std::vector<UnitBound> &bounds,
                  const std::vector<Item *> &items, const Ledger &ledger, uint64_t moves_max);

}  // namespace mxs
