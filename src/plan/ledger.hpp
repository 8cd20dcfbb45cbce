// SPDX-License-Identifier: Apache-2.0
// What ranks carry while owners are being chosen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {

// Pieces that go to one owner together.
struct Item {
  uint64_t cost = 0, bytes = 0;
  bool light = false;
  std::vector<Placement *> pieces;
  int owner = -1;
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
  int rank_count() const { return static_cast<int>(loads_.size()); }
  uint64_t worst_cost() const { return worst_cost_; }
  int rank_of_most_bytes() const {
    const auto less = [](const Load &a, const Load &b) { return a.bytes < b.bytes; };
    return static_cast<int>(std::max_element(loads_.begin(), loads_.end(), less) - loads_.begin());
  }
  void lift_budget() { budget_ = 0; }

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
mxs_status own_together(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger);

}  // namespace mxs
