// SPDX-License-Identifier: Apache-2.0
// Saved plans: what a plan was made of and whom it gave what, between a text and the stages that make it a plan again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace mxs {

// Who has the pieces of a tensor, in their order.
struct SavedOwners {
  std::vector<int> ranks;
  std::vector<uint64_t> elements;  // of each share of a flat tensor; empty: the pieces are as described
};

struct SavedTensor {
  std::string name, tied_to;  // "": not tied
  std::vector<int64_t> shape;
  int unit = 0;
  GivenTensor given;
  SavedOwners owners;
};

struct SavedPlan {
  Topology topology;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  uint64_t previous_fingerprint = 0;
  std::vector<SavedTensor> tensors;
  uint64_t fingerprint = 0;
};

// ---- json.cpp ----
// MXS_INVALID_ARGUMENT: a name is not UTF-8, which JSON can't hold.
mxs_status plan_to_json(const Plan &plan, std::string *text);
// What the text says, field by field; whether that is a plan is seen next.
mxs_status saved_plan_from_json(std::string_view text, SavedPlan *saved);

// ---- saved.cpp ----
// What the caller said of a tensor; all is borrowed.
mxs_tensor tensor_as_given(const std::string &name, const char *tied_to, int unit, const std::vector<int64_t> &shape,
                           const GivenTensor &given);
// Describes the tensors anew, gives the pieces to the owners that the file names, lays out and seals. The fingerprint
// must come out as the file has it.
mxs_status restore_plan(const SavedPlan &saved, Plan *plan);

}  // namespace mxs
