// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lone_stepper.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.hpp"
#include "base/sole_call.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "kernels/kernels.hpp"
#include "optimizer/optimizer.hpp"
#include "optimizer/step_matrices.hpp"
#include "optimizer/taken_arrays.hpp"

namespace mxs {

namespace {

constexpr uint64_t border_bytes = 64;

// Zeros stand for 1.
float scale_of(const mxs_step_call &call) { return call.gradient_scale == 0 ? 1.0f : call.gradient_scale; }
float clip_factor_of(const mxs_step_call &call) { return call.clip_factor == 0 ? 1.0f : call.clip_factor; }
float gradient_factor(const mxs_step_call &call) { return scale_of(call) * clip_factor_of(call); }

mxs_status check_factor(float factor, const char *name) {
  if (std::isfinite(factor)) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is %g, which is not finite", name, static_cast<double>(factor));
}

}  // namespace

mxs_status LoneStepper::create(std::unique_ptr<LoneStepper> *stepper, StepMatrices matrices, mxs_preset preset,
                               int thread_count, const Make &make) {
  const int team_size = std::max(thread_count, 1);
  std::unique_ptr<LoneStepper> made(new LoneStepper(std::move(matrices), preset, team_size));
  mxs_status status = check_kernels();
  if (status == MXS_OK) status = Team::create(&made->team_, team_size);
  if (status == MXS_OK) status = make(&made->stepper_, made->matrices_, made->team_.get());
  if (status != MXS_OK) return status;
  made->first_ = first_header(made->matrices_, *made->stepper_, preset);
  *stepper = std::move(made);
  return MXS_OK;
}

mxs_stepper_info LoneStepper::info() const {
  mxs_stepper_info info = MXS_STEPPER_INFO_INIT;
  info.rule = stepper_->rule();
  info.preset = preset_;
  info.thread_count = team_->size();
  info.backend = stepper_->backend();
  info.passes = kernels().name;
  info.product_dtype = stepper_->product_dtype();
  info.flops = stepper_->flops();
  return info;
}

mxs_status LoneStepper::init(void *state) const {
  const mxs_status status = check_array(state, "state", border_bytes);
  if (status != MXS_OK) return status;
  std::byte *const bytes = static_cast<std::byte *>(state);
  std::memset(bytes, 0, first_.bytes);
  stepper_->init(bytes + sizeof(StateHeader));
  std::memcpy(bytes, &first_, sizeof first_);
  return MXS_OK;
}

mxs_status LoneStepper::read_header(const void *state, StateHeader *header) const {
  std::memcpy(header, state, sizeof *header);
  return compare_headers(first_, *header);
}

mxs_status LoneStepper::check_state(const void *state, uint64_t bytes) const {
  if (!state) return set_error(MXS_INVALID_ARGUMENT, "state is NULL");
  if (bytes < sizeof(StateHeader))
    return set_error(MXS_MISMATCH, "%llu bytes are no state of a stepper: its header has %zu",
                     static_cast<unsigned long long>(bytes), sizeof(StateHeader));
  StateHeader header;
  const mxs_status status = read_header(state, &header);
  if (status != MXS_OK) return status;
  if (bytes < first_.bytes)
    return set_error(MXS_MISMATCH, "the state is cut off: %llu bytes of %llu", static_cast<unsigned long long>(bytes),
                     static_cast<unsigned long long>(first_.bytes));
  return check_parts(*stepper_, static_cast<const std::byte *>(state) + sizeof(StateHeader));
}

mxs_status LoneStepper::check_apart(const mxs_step_call &call, const float *update, bool reads_gradient) const {
  const uint64_t weights = weight_extent(matrices_);
  const TakenArray arrays[] = {
      {"gradient", reads_gradient ? call.gradient : nullptr,
       gradient_extent(matrices_) * dtype_bytes(matrices_.gradient_dtype)},
      {"weights", call.weights, weights * dtype_bytes(matrices_.dtype)},
      {"master", call.master, weights * master_width(matrices_)},
      {"state", call.state, first_.bytes},
      {"workspace", reads_gradient ? call.workspace : nullptr, stepper_->workspace_bytes()},
      {"update", update, matrices_.elements() * sizeof(float)},
  };
  return check_taken_apart(arrays, std::size(arrays));
}

// reads_gradient: step and update; then a workspace is needed as well.
mxs_status LoneStepper::check_call(const mxs_step_call &call, const float *update, bool reads_gradient,
                                   bool has_weights) const {
  mxs_status status = check_values("values", *call.values, stepper_->rule() == MXS_RULE_SHAMPOO);
  if (status == MXS_OK) status = check_factor(call.gradient_scale, "call.gradient_scale");
  if (status == MXS_OK) status = check_factor(call.clip_factor, "call.clip_factor");
  // Each may be finite and both together not: then even gradients of zero would become NaN.
  if (status == MXS_OK) status = check_factor(gradient_factor(call), "call.gradient_scale * call.clip_factor");
  const uint64_t width = dtype_bytes(matrices_.dtype), master = master_width(matrices_);
  if (status == MXS_OK && reads_gradient)
    status = check_array(call.gradient, "call.gradient", dtype_bytes(matrices_.gradient_dtype));
  if (status == MXS_OK && has_weights) status = check_array(call.weights, "call.weights", width);
  if (status == MXS_OK && has_weights && master != 0) status = check_array(call.master, "call.master", master);
  if (status == MXS_OK && call.master && master == 0)
    status = set_error(MXS_INVALID_ARGUMENT, "call.master is set, but these weights have none (mxs_matrices.weights)");
  if (status == MXS_OK) status = check_array(call.state, "call.state", border_bytes);
  if (status == MXS_OK && reads_gradient && stepper_->workspace_bytes() > 0) {
    status = check_array(call.workspace, "call.workspace", border_bytes);
    if (status == MXS_OK && call.workspace_bytes < stepper_->workspace_bytes())
      status = set_error(MXS_INVALID_ARGUMENT, "call.workspace has %llu bytes, this stepper needs %llu",
                         static_cast<unsigned long long>(call.workspace_bytes),
                         static_cast<unsigned long long>(stepper_->workspace_bytes()));
  }
  return status == MXS_OK ? check_apart(call, update, reads_gradient) : status;
}

// A gradient may be finite and still too large to be stepped: its momentum, or its square, would not be finite.
bool LoneStepper::is_stepped_by(double norm, float clip_factor) const {
  const double largest = stepper_->rule() == MXS_RULE_MUON ? std::ldexp(1.0, 100) : std::ldexp(1.0, 63);
  return norm * std::max(1.0, std::fabs(static_cast<double>(clip_factor))) <= largest;
}

mxs_status LoneStepper::step(const mxs_step_call &call, Extent extent, float *update, mxs_step_result *result) {
  const SoleCall sole(&busy_);
  const mxs_status status = sole.status("stepper");
  return status == MXS_OK ? step_alone(call, extent, update, result) : status;
}

mxs_status LoneStepper::apply(const mxs_step_call &call, const float *update) {
  const SoleCall sole(&busy_);
  const mxs_status status = sole.status("stepper");
  return status == MXS_OK ? apply_alone(call, update) : status;
}

mxs_status LoneStepper::step_alone(const mxs_step_call &call, Extent extent, float *update, mxs_step_result *result) {
  const bool whole = extent == Extent::step;
  const bool has_weights = whole || stepper_->update_reads_weights();
  mxs_status status = whole ? MXS_OK : check_array(update, "update", sizeof(float));
  if (status == MXS_OK) status = check_call(call, update, true, has_weights);
  StateHeader header;
  if (status == MXS_OK) status = read_header(call.state, &header);
  if (status != MXS_OK) return status;

  std::byte *const parts = static_cast<std::byte *>(call.state) + sizeof header;
  double norm = INFINITY;
  const bool finite = norm_.find(matrices_, call.gradient, scale_of(call), team_.get(), &norm);
  const bool skipped = !finite || !is_stepped_by(norm, clip_factor_of(call));
  if (!skipped) {
    StepCall inner;
    inner.values = call.values;
    inner.step_number = header.step_number + 1;
    inner.gradient_scale = gradient_factor(call);
    inner.gradient = call.gradient;
    inner.weights = has_weights ? call.weights : nullptr;
    inner.master = has_weights ? call.master : nullptr;
    inner.state = parts;
    inner.workspace = static_cast<std::byte *>(call.workspace);
    status = whole ? stepper_->step(inner) : stepper_->update(inner, update);
    if (status != MXS_OK) return status;
  }
  ++(skipped ? header.skipped_count : header.step_number);
  std::memcpy(call.state, &header, sizeof header);
  result->skipped = skipped;
  result->step_number = header.step_number;
  result->skipped_count = header.skipped_count;
  result->failed_count = stepper_->failed_count(parts);
  result->gradient_norm = norm;
  return MXS_OK;
}

mxs_status LoneStepper::apply_alone(const mxs_step_call &call, const float *update) {
  mxs_status status = check_array(update, "update", sizeof(float));
  if (status == MXS_OK) status = check_call(call, update, false, true);
  StateHeader header;
  if (status == MXS_OK) status = read_header(call.state, &header);
  if (status != MXS_OK) return status;
  if (header.step_number == 0)
    return set_error(MXS_INVALID_ARGUMENT, "the state has made no step: mxs_stepper_update comes before "
                     "mxs_stepper_apply");
  StepCall inner;
  inner.values = call.values;
  inner.step_number = header.step_number;  // update has advanced it
  inner.weights = call.weights;
  inner.master = call.master;
  inner.state = static_cast<std::byte *>(call.state) + sizeof header;
  return stepper_->apply(inner, update);
}

}  // namespace mxs
