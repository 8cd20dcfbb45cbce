// SPDX-License-Identifier: Apache-2.0
// A step of a FactorStepper: units over threads, refreshes and their failures, gradients in, weights out.
#include "optimizer/factors.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/dtype.hpp"
#include "base/status.hpp"

namespace mxs {

// ---- gradients in, weights out -------------------------------------------------------------------------------------

// As a momentum of 0 makes it: scaled, widened, with L2 decay.
void FactorStepper::take_gradient(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const {
  mxs_group_values values = *call.values;
  values.momentum = 0;
  MomentumPass pass = momentum_pass(MXS_MOMENTUM_SGD, false, options_.decay, values);
  pass.gradient_dtype = matrices_.gradient_dtype, pass.gradient_scale = call.gradient_scale;
  pass.form = form_;
  const size_t element_bytes = dtype_bytes(matrices_.gradient_dtype);
  const size_t matrix = static_cast<size_t>(unit.matrix) * static_cast<size_t>(matrices_.gradient_matrix);
  for_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    const size_t element = matrix + (unit.first_row + row) * static_cast<size_t>(matrices_.gradient_row) +
                           unit.first_column + column;
    MomentumRun run;
    run.gradient = static_cast<const std::byte *>(call.gradient) + element * element_bytes;
    run.momentum = run.update = lane.gradient + row * unit.columns + column;
    run.count = count;
    if (pass.l2 != 0) run.weights = weights_at(call, unit, row, column);
    std::memset(run.momentum, 0, count * sizeof(float));
    kernels().momentum(pass, run);
  });
}

void FactorStepper::apply_unit(const StepCall &call, const ApplyPass &pass, const FactorUnit &unit, const Rows &update,
                               Team *team) const {
  for_runs(unit, team, [&](size_t row, size_t column, size_t count) {
    ApplyRun run;
    run.weights = weights_at(call, unit, row, column);
    run.update = update.at(row, column);
    run.count = count;
    kernels().apply(pass, run);
  });
}

mxs_status FactorStepper::apply(const StepCall &call, const float *update) {
  if (!changes_weights(call)) return MXS_OK;
  const ApplyPass pass = weights_pass(call);
  const size_t rows = static_cast<size_t>(matrices_.rows), columns = static_cast<size_t>(matrices_.columns);
  const auto apply_one = [&](const FactorUnit &unit, Team *team) {
    const size_t first = (static_cast<size_t>(unit.matrix) * rows + unit.first_row) * columns + unit.first_column;
    apply_unit(call, pass, unit, {const_cast<float *>(update) + first, columns}, team);
  };
  if (rooms_.lane_count > 1) {
    team_->run(unit_count(), [&](size_t number, int) { apply_one(unit_at(number), nullptr); });
  } else {
    for (uint64_t number = 0; number < unit_count(); ++number) apply_one(unit_at(number), team_);
  }
  return MXS_OK;
}

// ---- the step ------------------------------------------------------------------------------------------------------

// update: nullptr for a whole step.
mxs_status FactorStepper::run(const StepCall &call, float *update) {
  const mxs_status status = try_where_no_more_may_fail(call);
  if (status != MXS_OK) return status;
  const ApplyPass pass = update ? ApplyPass() : weights_pass(call);
  for_units(call, [&](const FactorUnit &unit, const FactorLane &lane) { step_unit(call, unit, lane, pass, update); });
  return MXS_OK;
}

void FactorStepper::step_unit(const StepCall &call, const FactorUnit &unit, const FactorLane &lane,
                              const ApplyPass &pass, float *update) {
  take_gradient(call, unit, lane);
  const float *const direction = direct(call, unit, lane);
  if (!update) {
    if (changes_weights(call))
      apply_unit(call, pass, unit, {const_cast<float *>(direction), unit.columns}, lane.team);
  } else {
    const size_t rows = static_cast<size_t>(matrices_.rows), columns = static_cast<size_t>(matrices_.columns);
    const size_t first = (static_cast<size_t>(unit.matrix) * rows + unit.first_row) * columns + unit.first_column;
    for (size_t row = 0; row < unit.rows; ++row)
      std::memcpy(update + first + row * columns, direction + row * unit.columns, unit.columns * sizeof(float));
  }
  finish(call, unit, lane);
}

// ---- factors -------------------------------------------------------------------------------------------------------

// target, which holds the side's factor, becomes what the step makes of it.
void FactorStepper::update_factor(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, int side_number,
                                  float *target) const {
  const FactorScalars scalars = factor_scalars(call);
  LinearUpdate product;
  product.n = side_number == 0 ? unit.rows : unit.columns;
  product.inner = side_number == 0 ? unit.columns : unit.rows;
  product.factor = {lane.gradient, unit.columns, side_number == 1};
  product.target = target, product.target_stride = product.n;
  product.alpha = scalars.alpha, product.beta = scalars.beta;
  linear_->update(product, lane.team);
}

void FactorStepper::update_factors(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const {
  for (const int side_number : {0, 1})
    if (float *const factor = side(call, unit, side_number).factor)
      update_factor(call, unit, lane, side_number, factor);
}

float *FactorStepper::multiply(const TwoSides &sides, const FactorUnit &unit, Rows source, float *first, float *second,
                               Team *team) const {
  LinearProduct product;
  product.rows = unit.rows, product.columns = unit.columns;
  product.target_stride = unit.columns;
  const auto place = [&] { return source.data == first ? second : first; };
  if (sides.left) {
    product.inner = unit.rows;
    product.left = {sides.left, unit.rows, sides.left_turned};
    product.right = {source.data, source.stride, false};
    product.target = place();
    linear_->multiply(product, team);
    source = {product.target, unit.columns};
  }
  if (sides.right) {
    product.inner = unit.columns;
    product.left = {source.data, source.stride, false};
    product.right = {sides.right, unit.columns, sides.right_turned};
    product.target = place();
    linear_->multiply(product, team);
    source = {product.target, unit.columns};
  }
  return source.data;
}

// ---- refreshes -----------------------------------------------------------------------------------------------------

// What the side's factor will be, without changing it: in the room's rest, which a decomposition needs later only.
const float *FactorStepper::form_factor(const StepCall &call, const FactorUnit &unit, const FactorLane &lane,
                                        int side_number, const FactorRoom &room) const {
  const FactorSide at = side(call, unit, side_number);
  float *const formed = reinterpret_cast<float *>(room.rest);
  std::memcpy(formed, at.factor, at.n * at.n * sizeof(float));
  update_factor(call, unit, lane, side_number, formed);
  return formed;
}

// As many sides at a time as there are rooms.
FactorStepper::Outcome FactorStepper::refresh_sides(const StepCall &call, const FactorUnit &unit,
                                                    const FactorLane &lane, bool on_trial) {
  Outcome outcome;
  for (int begin = 0; begin < 2; begin += lane.room_count) {
    bool good[2] = {false, false};
    for (int i = 0; i < lane.room_count; ++i) {
      const FactorSide at = side(call, unit, begin + i);
      const FactorRoom room = room_of(lane, i);
      if (!at.factor) continue;
      prepare(call, at, on_trial ? form_factor(call, unit, lane, begin + i, room) : at.factor, room, lane.team);
    }
    run_parts(lane.room_count > 1 ? lane.team : nullptr, static_cast<size_t>(lane.room_count), [&](size_t i) {
      const FactorSide at = side(call, unit, begin + static_cast<int>(i));
      if (at.factor) good[i] = decompose(call, at, room_of(lane, static_cast<int>(i)));
    });
    for (int i = 0; i < lane.room_count; ++i) {
      const FactorSide at = side(call, unit, begin + i);
      if (!at.factor) continue;
      ++(good[i] ? outcome.done : outcome.failed);
      if (good[i] && !on_trial) commit(call, unit, begin + i, at, room_of(lane, i), lane);
    }
  }
  return outcome;
}

int FactorStepper::refresh(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) {
  const Outcome outcome = refresh_sides(call, unit, lane, false);
  Failures *const so_far = failures(call.state, unit);
  so_far->in_a_row = outcome.failed == 0 ? 0.0 : so_far->in_a_row + 1.0;
  so_far->in_all += outcome.failed;
  return outcome.done;
}

mxs_status FactorStepper::try_where_no_more_may_fail(const StepCall &call) {
  if (!refreshes(call.step_number)) return MXS_OK;
  const FactorLane lane = lane_of(call, 0);
  for (uint64_t number = 0; number < unit_count(); ++number) {
    const FactorUnit unit = unit_at(number);
    if (failures(call.state, unit)->in_a_row < options_.failures_max) continue;
    take_gradient(call, unit, lane);
    if (refresh_sides(call, unit, lane, true).failed == 0) continue;
    return set_error(MXS_INTERNAL,
                     "%s: the factors of block %zu of matrix %lld (%zu x %zu) could not be decomposed %d times in a "
                     "row, and no more than %d are allowed (options.failures_max); look for numbers in its factors "
                     "that are not finite, or for gradients above 1e19. Nothing has changed",
                     backend(), unit.block, static_cast<long long>(unit.matrix), unit.rows, unit.columns,
                     options_.failures_max + 1, options_.failures_max);
  }
  return MXS_OK;
}

}  // namespace mxs
