// SPDX-License-Identifier: Apache-2.0
// SOAP, as nikhilvyas/SOAP has it. For each block, at step n; t = n - 1:
//
//   n = 1: GG = (1 - b) G G^T for both sides, Q = eigenvectors of GG + 1e-30 I, the largest eigenvalue's first.
//          Weights don't change
//   n > 1: g = Q_L^T G Q_R
//          m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//          weights -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * Q_L (m / (sqrt(v) + epsilon)) Q_R^T
//          weights *= 1 - lr * decay
//          GG = b GG + (1 - b) G G^T
//          t a multiple of `interval`: P = GG Q, estimates of eigenvalues = diag(Q^T P); columns of P are sorted by
//          them, v goes along with its axis, Q = the Q of P's QR, and m is turned into the new basis
//
// m stays in the eigenbasis. The original turns it there and back at every step, which changes nothing but roundings,
// so bits differ from it. A side that is longer than side_max, or is the longer one if one-sided, has Q = I.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/presets.hpp"
#include "optimizer/factors.hpp"

namespace mxs {

namespace {

class SoapStepper : public FactorStepper {
 public:
  mxs_status create(const StepMatrices &matrices, const FactorOptions &options, float factor_beta, Team *team) {
    factor_beta_ = factor_beta;
    return lay_out(matrices, options, {"exp_avg", "exp_avg_sq"}, "basis", team);
  }

 protected:
  bool refreshes(uint64_t step_number) const override {
    return (step_number - 1) % static_cast<uint64_t>(options_.interval) == 0;
  }
  bool changes_weights(const StepCall &call) const override { return call.step_number > 1; }
  const float *direct(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) override;
  void finish(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) override;
  ApplyPass weights_pass(const StepCall &call) const override;
  double unit_flops(const FactorBlock &block) const override;
  FactorScalars factor_scalars(const StepCall &call) const override;
  void prepare(const StepCall &call, const FactorSide &side, const float *factor, const FactorRoom &room,
               Team *team) override;
  bool decompose(const StepCall &call, const FactorSide &side, const FactorRoom &room) override;
  void commit(const StepCall &call, const FactorUnit &unit, int side_number, const FactorSide &side,
              const FactorRoom &room, const FactorLane &lane) override;

 private:
  TwoSides into_basis(const StepCall &call, const FactorUnit &unit) const {
    return {side(call, unit, 0).kept, side(call, unit, 1).kept, true, false};
  }
  TwoSides out_of_basis(const StepCall &call, const FactorUnit &unit) const {
    return {side(call, unit, 0).kept, side(call, unit, 1).kept, false, true};
  }
  void permute(const StepCall &call, const FactorUnit &unit, int side_number, const FactorRoom &room,
               const FactorLane &lane) const;

  float factor_beta_ = 0;  // 0: beta2
};

FactorStepper::FactorScalars SoapStepper::factor_scalars(const StepCall &call) const {
  const float beta = factor_beta_ == 0 ? call.values->beta2 : factor_beta_;
  return {static_cast<float>(1 - static_cast<double>(beta)), beta};
}

// ---- the direction -------------------------------------------------------------------------------------------------

const float *SoapStepper::direct(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) {
  if (call.step_number == 1) {
    std::memset(lane.first, 0, unit.rows * unit.columns * sizeof(float));
    return lane.first;
  }
  // Where no side has a factor the gradient is its own projection, and is not needed afterwards.
  float *const projected =
      multiply(into_basis(call, unit), unit, {lane.gradient, unit.columns}, lane.first, lane.second, lane.team);
  const AdamwPass pass = adamw_pass(ApplyPass(), MXS_DECAY_DECOUPLED, true, call.step_number - 1, *call.values);
  const Rows average = array(call, 0, unit), squares = array(call, 1, unit);
  for_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    AdamwRun run;
    run.gradient = run.update = projected + row * unit.columns + column;
    run.exp_avg = average.at(row, column), run.exp_avg_sq = squares.at(row, column);
    run.count = count;
    kernels().direction(pass, run);
  });
  return multiply(out_of_basis(call, unit), unit, {projected, unit.columns}, lane.first, lane.second, lane.team);
}

ApplyPass SoapStepper::weights_pass(const StepCall &call) const {
  ApplyPass pass = apply_pass(form_at(call), options_.decay, 1.0, *call.values);
  pass.decay_last = true;
  return pass;
}

// ---- bases ---------------------------------------------------------------------------------------------------------

void SoapStepper::finish(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) {
  update_factors(call, unit, lane);
  if (!refreshes(call.step_number)) return;
  if (call.step_number == 1) {
    refresh(call, unit, lane);
    return;
  }
  const Rows average = array(call, 0, unit);
  float *const turned_back = multiply(out_of_basis(call, unit), unit, average, lane.first, lane.second, lane.team);
  if (refresh(call, unit, lane) == 0) return;
  const float *const turned =
      multiply(into_basis(call, unit), unit, {turned_back, unit.columns}, lane.first, lane.second, lane.team);
  for (size_t row = 0; row < unit.rows; ++row)
    std::memcpy(average.at(row, 0), turned + row * unit.columns, unit.columns * sizeof(float));
}

// What is decomposed: at the first step the factor, later its product with the basis.
void SoapStepper::prepare(const StepCall &call, const FactorSide &side, const float *factor, const FactorRoom &room,
                          Team *team) {
  const size_t n = side.n;
  if (call.step_number == 1) {
    std::memcpy(room.matrix, factor, n * n * sizeof(float));
    for (size_t i = 0; i < n; ++i) room.matrix[i * (n + 1)] += 1e-30f;
    return;
  }
  LinearProduct product;
  product.rows = product.columns = product.inner = n;
  product.left = {factor, n, false}, product.right = {side.kept, n, false};
  product.target = room.matrix, product.target_stride = n;
  linear().multiply(product, team);
}

bool SoapStepper::decompose(const StepCall &call, const FactorSide &side, const FactorRoom &room) {
  const size_t n = side.n;
  if (call.step_number == 1)
    return linear().eigh(n, room.matrix, n, reinterpret_cast<float *>(room.values), room.rest) == MXS_OK;
  std::fill_n(room.values, n, 0.0);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column)
      room.values[column] += static_cast<double>(side.kept[row * n + column]) *
                             static_cast<double>(room.matrix[row * n + column]);
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(room.values[i])) return false;
  std::iota(room.order, room.order + n, uint32_t{0});
  // The number decides between equal ones: no allocation, as std::stable_sort has, and the same order everywhere.
  std::sort(room.order, room.order + n, [&](uint32_t a, uint32_t b) {
    return room.values[a] != room.values[b] ? room.values[a] > room.values[b] : a < b;
  });
  float *const sorted = reinterpret_cast<float *>(room.rest);
  for (size_t row = 0; row < n; ++row) {
    float *const place = room.matrix + row * n;
    for (size_t column = 0; column < n; ++column) sorted[column] = place[room.order[column]];
    std::memcpy(place, sorted, n * sizeof(float));
  }
  return linear().qr(n, room.matrix, n, room.rest) == MXS_OK;
}

void SoapStepper::commit(const StepCall &call, const FactorUnit &unit, int side_number, const FactorSide &side,
                         const FactorRoom &room, const FactorLane &lane) {
  const size_t n = side.n;
  if (call.step_number > 1) {
    std::memcpy(side.kept, room.matrix, n * n * sizeof(float));
    permute(call, unit, side_number, room, lane);
    return;
  }
  for (size_t row = 0; row < n; ++row)
    std::reverse_copy(room.matrix + row * n, room.matrix + (row + 1) * n, side.kept + row * n);
}

// v along the side's axis, by way of the gradient, which is done with.
void SoapStepper::permute(const StepCall &call, const FactorUnit &unit, int side_number, const FactorRoom &room,
                          const FactorLane &lane) const {
  const Rows squares = array(call, 1, unit);
  const size_t columns = unit.columns;
  for (size_t row = 0; row < unit.rows; ++row) {
    float *const target = lane.gradient + row * columns;
    if (side_number == 0) {
      std::memcpy(target, squares.at(room.order[row], 0), columns * sizeof(float));
    } else {
      for (size_t column = 0; column < columns; ++column) target[column] = *squares.at(row, room.order[column]);
    }
  }
  for (size_t row = 0; row < unit.rows; ++row)
    std::memcpy(squares.at(row, 0), lane.gradient + row * columns, columns * sizeof(float));
}

// Project, project back, both factors; a refresh is a product, a QR and its Q, and m there and back.
double SoapStepper::unit_flops(const FactorBlock &block) const {
  const double rows = static_cast<double>(block.rows), columns = static_cast<double>(block.columns);
  double flops = 0;
  const auto add_side = [&](double n) {
    flops += 6 * rows * columns * n + (14.0 / 3 * n * n * n + 4 * rows * columns * n) / options_.interval;
  };
  if (has_left_factor(block, options_.rules)) add_side(rows);
  if (has_right_factor(block, options_.rules)) add_side(columns);
  return flops;
}

}  // namespace

mxs_status make_soap_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                             const mxs_soap_options &given, Team *team) {
  mxs_soap_options options = given;
  mxs_status status = complete(&options);
  if (status != MXS_OK) return status;
  FactorOptions decided;
  decided.rules = default_factor_rules(MXS_RULE_SOAP);
  decided.rules.side_max = options.side_max;
  decided.rules.one_sided = options.one_sided == MXS_ON;
  decided.decay = options.decay, decided.backend = options.backend;
  decided.interval = options.interval, decided.failures_max = options.failures_max;
  auto made = std::make_unique<SoapStepper>();
  status = made->create(matrices, decided, options.factor_beta, team);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
