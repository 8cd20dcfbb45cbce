// SPDX-License-Identifier: Apache-2.0
// LoneStepper: what mxs_stepper is. A Stepper with its team, and what a caller's arrays are checked for at each call:
// that they are there, at their borders, apart from each other, and that the state is this stepper's.
//
//   state    | header, 64 bytes | parts ... |
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/team.hpp"
#include "optimizer/gradient_norm.hpp"
#include "optimizer/state_header.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

class LoneStepper {
 public:
  using Make = std::function<mxs_status(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices, Team *team)>;
  static mxs_status create(std::unique_ptr<LoneStepper> *stepper, StepMatrices matrices, mxs_preset preset,
                           int thread_count, const Make &make);

  uint64_t state_bytes() const { return first_.bytes; }
  uint64_t workspace_bytes() const { return stepper_->workspace_bytes(); }
  const std::vector<StatePart> &state_parts() const { return stepper_->state_parts(); }
  mxs_stepper_info info() const;

  mxs_status init(void *state) const;
  mxs_status check_state(const void *state, uint64_t bytes) const;
  // Both halves, or the first: update is filled then.
  enum class Extent { step, update };
  // call and its values: in this release's form. MXS_HELD: another thread is in a call of this stepper.
  mxs_status step(const mxs_step_call &call, Extent extent, float *update, mxs_step_result *result);
  mxs_status apply(const mxs_step_call &call, const float *update);

 private:
  LoneStepper(StepMatrices matrices, mxs_preset preset, int thread_count)
      : matrices_(std::move(matrices)), preset_(preset), norm_(thread_count) {}
  mxs_status check_call(const mxs_step_call &call, const float *update, bool reads_gradient, bool has_weights) const;
  mxs_status check_apart(const mxs_step_call &call, const float *update, bool reads_gradient) const;
  mxs_status read_header(const void *state, StateHeader *header) const;
  bool is_stepped_by(double norm, float clip_factor) const;
  mxs_status step_alone(const mxs_step_call &call, Extent extent, float *update, mxs_step_result *result);
  mxs_status apply_alone(const mxs_step_call &call, const float *update);

  const StepMatrices matrices_;
  const mxs_preset preset_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Stepper> stepper_;
  StateHeader first_;
  GradientNorm norm_;
  std::atomic<bool> busy_{false};  // two calls at once would step with each other's numbers
};

}  // namespace mxs
