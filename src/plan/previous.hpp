// SPDX-License-Identifier: Apache-2.0
// Re-planning: what stays with whom when a plan takes the place of another (mxs_plan_options.previous).
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/ledger.hpp"
#include "plan/stages.hpp"

namespace mxs {

// Elements of a tensor that one rank has under the previous plan. owner -1: nobody who is still there.
struct PreviousRun {
  uint64_t begin = 0, end = 0;
  int owner = -1;
};

// Who owned what.
class PreviousOwners {
 public:
  explicit PreviousOwners(const PlanSettings &settings);
  // From the first element of a tensor to its last. One run of nobody, if no tensor has its name and shape.
  std::vector<PreviousRun> runs_of(const PlannedTensor &tensor) const;
  // Who had most of these elements.
  int owner_of(const PlannedTensor &tensor, uint64_t offset, uint64_t element_count) const;
  // Are the ranks those that there were, by whatever numbers?
  bool same_world() const;

 private:
  const PlannedTensor *find(const PlannedTensor &tensor) const;

  const Plan &previous_;
  const std::vector<int> &rank_now_;
  int rank_count_;
  std::unordered_map<std::string_view, const PlannedTensor *> tensor_of_name_;
};

// Flat tensors of one unit, all stepped or all frozen: each rank keeps what it has up to an even share; what is above,
// and what nobody has, goes to those with the least. Cuts the drafts and charges the ledger.
void recut_flat(const PlanSettings &settings, const PreviousOwners &previous, const std::vector<Draft *> &drafts,
                uint64_t share_count, Ledger *ledger);

// Fills Item::previous_owner.
void note_previous(const PlanSettings &settings, std::vector<Draft> *drafts, const std::vector<Item *> &items);

// Gives items to their previous owners as far as the budget allows, and the rest as start_by_cost does, or else
// start_by_bytes. False: something fits nowhere.
bool start_from_previous(const std::vector<Item *> &items, const Ledger &given);

}  // namespace mxs
