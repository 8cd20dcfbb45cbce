// SPDX-License-Identifier: Apache-2.0
// Shampoo, as facebookresearch/optimizers has it. For each block, at step t:
//
//   L = beta2 L + (1 - beta2) G G^T, R likewise; beta2 = 1: sums
//   v = 0.999 v + 0.001 G^2                                      (grafting Adam)
//   at step `start`, and later at multiples of `interval`:       roots of L / (1 - beta2^t) and R / (1 - beta2^t)
//   m = beta1 m + (1 - beta1) G,  F = m / (1 - beta1^t)
//   graft = F / (sqrt(v / (1 - 0.999^t)) + 1e-10), or F
//   before `start`: P = graft
//   else P = root(L) F root(R), with grafting times |graft| / (|P| + 1e-16)
//   with momentum: P += decay * weights; buffer = momentum * buffer + P; P = buffer, or P + momentum * buffer
//   weights -= lr * (P + decay * weights), or lr * P with momentum
//
// Meta adds decoupled decay to P before momentum; without momentum that is the decay of every other rule.
//
// A root: of A + epsilon I, eigenvalues l; where the least is below epsilon, all are moved by as much as makes it 0 and
// then by epsilon; Q diag(l^-exponent) Q^T, as the product of Q diag(l^(-exponent / 2)) with itself, which is symmetric
// to the last bit and half the work.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/hash.hpp"
#include "kernels/presets.hpp"
#include "optimizer/factors.hpp"

namespace mxs {

namespace {

struct ShampooOptions {
  int32_t start = 10;
  mxs_grafting grafting = MXS_GRAFTING_ADAM;
  bool nesterov = false;
  float momentum = 0;
  double exponent = 0.25;
};

constexpr float graft_beta2 = 0.999f, graft_epsilon = 1e-10f;

// Roots of larger eigenvalues would have products that are no fp32 numbers: two roots times a filtered gradient.
constexpr double root_max = 0x1p63;

class ShampooStepper : public FactorStepper {
 public:
  mxs_status create(const StepMatrices &matrices, const FactorOptions &options, const ShampooOptions &own,
                    Team *team) {
    own_ = own;
    std::vector<std::string> arrays = {"exp_avg"};
    if (own.grafting == MXS_GRAFTING_ADAM) arrays.push_back("graft_sq");
    if (own.momentum != 0) arrays.push_back("momentum");
    return lay_out(matrices, options, arrays, "root", team);
  }

  uint64_t state_meaning() const override {
    return Fingerprint().add(std::bit_cast<uint64_t>(own_.exponent)).value();
  }
  bool update_reads_weights() const override {
    return FactorStepper::update_reads_weights() || decays_within_momentum();
  }

 protected:
  bool refreshes(uint64_t step_number) const override {
    const uint64_t start = static_cast<uint64_t>(own_.start), interval = static_cast<uint64_t>(options_.interval);
    return step_number == start || (step_number > start && step_number % interval == 0);
  }
  const float *direct(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) override;
  ApplyPass weights_pass(const StepCall &call) const override;
  double unit_flops(const FactorBlock &block) const override;
  FactorScalars factor_scalars(const StepCall &call) const override;
  void prepare(const StepCall &call, const FactorSide &side, const float *factor, const FactorRoom &room,
               Team *team) override;
  bool decompose(const StepCall &call, const FactorSide &side, const FactorRoom &room) override;
  void commit(const StepCall &call, const FactorUnit &unit, int side_number, const FactorSide &side,
              const FactorRoom &room, const FactorLane &lane) override;

 private:
  bool decays_within_momentum() const { return own_.momentum != 0 && options_.decay == MXS_DECAY_DECOUPLED; }
  void filter(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const;
  double graft(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const;
  float *precondition(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, double graft_squares) const;
  void add_momentum(const StepCall &call, const FactorUnit &unit, const FactorLane &lane, float *direction) const;

  ShampooOptions own_;
};

FactorStepper::FactorScalars ShampooStepper::factor_scalars(const StepCall &call) const {
  const double beta2 = static_cast<double>(call.values->beta2);
  return {beta2 == 1 ? 1.0f : static_cast<float>(1 - beta2), call.values->beta2};
}

// ---- the direction -------------------------------------------------------------------------------------------------

const float *ShampooStepper::direct(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) {
  update_factors(call, unit, lane);
  filter(call, unit, lane);
  const double graft_squares = graft(call, unit, lane);
  if (refreshes(call.step_number)) refresh(call, unit, lane);
  float *direction = own_.grafting == MXS_GRAFTING_ADAM ? lane.gradient : lane.first;
  if (call.step_number >= static_cast<uint64_t>(own_.start)) direction = precondition(call, unit, lane, graft_squares);
  if (own_.momentum != 0) add_momentum(call, unit, lane, direction);
  return direction;
}

// lane.first = F
void ShampooStepper::filter(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const {
  const double beta1 = static_cast<double>(call.values->beta1);
  const float factor = static_cast<float>(1 / (1 - std::pow(beta1, static_cast<double>(call.step_number))));
  mxs_group_values values = *call.values;
  values.momentum = call.values->beta1;
  const MomentumPass pass = momentum_pass(MXS_MOMENTUM_EMA, false, MXS_DECAY_DECOUPLED, values);
  const Rows average = array(call, 0, unit);
  for_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    MomentumRun run;
    run.gradient = lane.gradient + row * unit.columns + column;
    run.momentum = average.at(row, column);
    run.update = lane.first + row * unit.columns + column;
    run.count = count;
    kernels().momentum(pass, run);
    kernels().scale(run.update, factor, count);
  });
}

// Adam: lane.gradient becomes the grafted direction. Returns the sum of its squares; sgd: of F's.
double ShampooStepper::graft(const StepCall &call, const FactorUnit &unit, const FactorLane &lane) const {
  if (own_.grafting == MXS_GRAFTING_NONE) return 0;
  const bool is_adam = own_.grafting == MXS_GRAFTING_ADAM;
  mxs_group_values values = *call.values;
  values.beta1 = 0, values.beta2 = graft_beta2, values.epsilon = graft_epsilon;
  const AdamwPass pass = adamw_pass(ApplyPass(), MXS_DECAY_DECOUPLED, false, call.step_number, values);
  const Rows squares = is_adam ? array(call, 1, unit) : Rows();
  return sum_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    const size_t place = row * unit.columns + column;
    if (!is_adam) {
      bool ignored = false;
      return kernels().sum_of_squares(lane.first + place, MXS_F32, 1.0f, count, &ignored);
    }
    AdamwRun run;
    run.gradient = run.update = lane.gradient + place;
    run.exp_avg_sq = squares.at(row, column);
    run.filtered = lane.first + place;
    run.count = count;
    return kernels().direction(pass, run);
  });
}

float *ShampooStepper::precondition(const StepCall &call, const FactorUnit &unit, const FactorLane &lane,
                                    double graft_squares) const {
  TwoSides roots;
  roots.left = side(call, unit, 0).kept, roots.right = side(call, unit, 1).kept;
  float *const direction = multiply(roots, unit, {lane.first, unit.columns}, lane.first, lane.second, lane.team);
  if (own_.grafting == MXS_GRAFTING_NONE) return direction;
  const double squares = sum_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    bool ignored = false;
    return kernels().sum_of_squares(direction + row * unit.columns + column, MXS_F32, 1.0f, count, &ignored);
  });
  const float factor = static_cast<float>(std::sqrt(graft_squares) / (std::sqrt(squares) + 1e-16));
  for_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    kernels().scale(direction + row * unit.columns + column, factor, count);
  });
  return direction;
}

void ShampooStepper::add_momentum(const StepCall &call, const FactorUnit &unit, const FactorLane &lane,
                                  float *direction) const {
  mxs_group_values values = *call.values;
  values.momentum = own_.momentum;
  // Decoupled decay goes the way of L2 here, only later: it joins P before momentum.
  const mxs_decay decay = decays_within_momentum() ? MXS_DECAY_L2 : MXS_DECAY_DECOUPLED;
  MomentumPass pass = momentum_pass(MXS_MOMENTUM_SGD, own_.nesterov, decay, values);
  pass.form = form_at(call);
  const Rows buffer = array(call, own_.grafting == MXS_GRAFTING_ADAM ? 2 : 1, unit);
  for_runs(unit, lane.team, [&](size_t row, size_t column, size_t count) {
    MomentumRun run;
    run.gradient = run.update = direction + row * unit.columns + column;
    run.momentum = buffer.at(row, column);
    run.count = count;
    if (pass.l2 != 0) run.weights = weights_at(call, unit, row, column);
    kernels().momentum(pass, run);
  });
}

ApplyPass ShampooStepper::weights_pass(const StepCall &call) const {
  mxs_group_values values = *call.values;
  if (decays_within_momentum()) values.weight_decay = 0;
  return apply_pass(form_at(call), options_.decay, 1.0, values);
}

// ---- roots ---------------------------------------------------------------------------------------------------------

void ShampooStepper::prepare(const StepCall &call, const FactorSide &side, const float *factor, const FactorRoom &room,
                             Team *team) {
  const double beta2 = static_cast<double>(call.values->beta2);
  const double correction = beta2 == 1 ? 1.0 : 1 - std::pow(beta2, static_cast<double>(call.step_number));
  const float scale = static_cast<float>(1 / correction);
  const size_t n = side.n;
  run_parts(team, (n + 63) / 64, [&](size_t part) {
    for (size_t row = part * 64; row < std::min(n, part * 64 + 64); ++row) {
      for (size_t column = 0; column < n; ++column) room.matrix[row * n + column] = factor[row * n + column] * scale;
      room.matrix[row * (n + 1)] += call.values->epsilon;
    }
  });
}

bool ShampooStepper::decompose(const StepCall &call, const FactorSide &side, const FactorRoom &room) {
  const size_t n = side.n;
  const double epsilon = static_cast<double>(call.values->epsilon);
  float *const values = reinterpret_cast<float *>(room.order);
  if (linear().eigh(n, room.matrix, n, values, room.rest) != MXS_OK) return false;
  const double least = static_cast<double>(values[0]);
  const double shift = least < epsilon ? -least : 0.0, lift = least < epsilon ? epsilon : 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(values[i]) + shift + lift;
    room.values[i] = std::pow(value, -own_.exponent / 2);
    // Singular, and no epsilon or one that is too small for the exponent.
    if (!(value > 0) || !(room.values[i] * room.values[i] <= root_max)) return false;
  }
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column)
      room.matrix[row * n + column] = static_cast<float>(static_cast<double>(room.matrix[row * n + column]) *
                                                         room.values[column]);
  return true;
}

void ShampooStepper::commit(const StepCall &, const FactorUnit &, int, const FactorSide &side, const FactorRoom &room,
                            const FactorLane &lane) {
  LinearUpdate product;
  product.n = product.inner = side.n;
  product.factor = {room.matrix, side.n, false};
  product.target = side.kept, product.target_stride = side.n;
  linear().update(product, lane.team);
}

// Factors and their use; a root is eigenvectors, some 22 n^3, and a product.
double ShampooStepper::unit_flops(const FactorBlock &block) const {
  const double rows = static_cast<double>(block.rows), columns = static_cast<double>(block.columns);
  const double roots = 24 * (rows * rows * rows + columns * columns * columns) / options_.interval;
  return 4 * rows * columns * (rows + columns) + roots;
}

}  // namespace

mxs_status make_shampoo_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                                const mxs_shampoo_options &given, Team *team) {
  mxs_shampoo_options options = given;
  mxs_status status = complete(&options);
  if (status != MXS_OK) return status;
  FactorOptions decided;
  decided.rules = default_factor_rules(MXS_RULE_SHAMPOO);
  decided.rules.side_max = options.block_max;
  decided.rules.array_count = 1 + (options.grafting == MXS_GRAFTING_ADAM) + (options.momentum != 0);
  decided.decay = options.decay, decided.backend = options.backend;
  decided.interval = options.interval, decided.failures_max = options.failures_max;
  const ShampooOptions own = {options.start, options.grafting, options.nesterov == MXS_ON, options.momentum,
                              options.exponent};
  auto made = std::make_unique<ShampooStepper>();
  status = made->create(matrices, decided, own, team);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
