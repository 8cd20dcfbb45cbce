// SPDX-License-Identifier: Apache-2.0
// A drawn model on a comm: its plan, units and optimizer. Two of the same model, one on all ranks and one on a comm of
// this process alone, are given the same gradients; after every step all their bytes must be equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "soak/drawn.hpp"
#include "soak/group.hpp"

namespace soak {

struct Model {
  std::vector<std::string> names;
  std::vector<mxs_tensor> tensors;
  int unit_count = 0;

  // Of a unit, those that have a gradient of their own.
  std::vector<int> trained(int unit) const;
  uint64_t element_count(int tensor) const;
};

Model draw_model(Choices *choices, uint64_t elements_max);
// With exact sums in its gradients, whatever the other's gradient dtype.
Model with_fp32_gradients(Model model);

class Trainee {
 public:
  Trainee(mxs_comm *comm, const Model &model, const mxs_unit_options &unit_options,
          const mxs_plan_options *plan_options = nullptr, bool backup = false);

  // Drawn weights, in every piece that this rank owns.
  void fill(uint64_t salt);
  mxs_verdict step(const mxs_step &step);
  mxs_unit *unit(int index) const { return units_[static_cast<size_t>(index)].get(); }
  std::vector<mxs_unit *> handles() const;
  mxs_optimizer *optimizer() const { return optimizer_.get(); }
  const mxs::plan &plan() const { return plan_; }
  const Model &model() const { return model_; }

 private:
  const Model &model_;
  mxs::plan plan_;
  std::vector<mxs::unit> units_;
  mxs::optimizer optimizer_;
};

// Gathered on both sides: every byte of the unit is compared. `mode`: how it is released.
uint64_t compare_unit(const Trainee &trainee, const Trainee &reference, int unit, int32_t mode);

// One round of gradients for a unit: small whole numbers, so that every order of addition gives the same bits.
void give_gradients(const Group &group, const Trainee &trainee, int unit, uint64_t salt, bool add);
// The exact sums of all ranks', where ranks skip and leave out as above.
void give_sums(const Group &group, const Trainee &reference, int unit, uint64_t salt, bool add);

}  // namespace soak
