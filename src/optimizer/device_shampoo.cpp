// SPDX-License-Identifier: Apache-2.0
// Shampoo in CUDA memory: formulas and the order of things are those of shampoo.cpp.
#include <cmath>

#include "kernels/presets.hpp"
#include "optimizer/device_factors.hpp"

namespace mxs {

namespace {

// As shampoo.cpp: roots of larger eigenvalues would have products that are no fp32 numbers.
constexpr double root_max = 0x1p63;

class DeviceShampoo final : public DeviceFactors {
 public:
  using DeviceFactors::DeviceFactors;

  mxs_status create(mxs_shampoo_options options) {
    const mxs_status status = complete(&options);
    if (status != MXS_OK) return status;
    own_ = options;
    FactorOptions decided;
    decided.decay = options.decay, decided.backend = options.backend;
    decided.interval = options.interval, decided.failures_max = options.failures_max;
    return prepare(decided);
  }

 private:
  bool is_adam() const { return own_.grafting == MXS_GRAFTING_ADAM; }
  bool decays_within_momentum() const { return own_.momentum != 0 && options_.decay == MXS_DECAY_DECOUPLED; }

  bool refreshes(uint64_t step_number) const override {
    const uint64_t start = static_cast<uint64_t>(own_.start), interval = static_cast<uint64_t>(options_.interval);
    return step_number == start || (step_number > start && step_number % interval == 0);
  }

  void factor_scalars(const DeviceStepCall &call, float *alpha, float *beta) const override {
    const double beta2 = static_cast<double>(call.host_values->beta2);
    *alpha = beta2 == 1 ? 1.0f : static_cast<float>(1 - beta2);
    *beta = call.host_values->beta2;
  }

  FactorApplyArguments apply_arguments() const override {
    FactorApplyArguments apply;
    apply.no_decay = decays_within_momentum();
    return apply;
  }

  mxs_status direct(const Work &work, float **direction) override {
    mxs_status status = update_factors(work);
    if (status == MXS_OK) status = filter(work);
    if (status == MXS_OK) status = graft(work);
    int done = 0;
    if (status == MXS_OK && refreshes(work.call->step_number)) status = refresh(work, &done);
    *direction = is_adam() ? work.gradient : work.first;
    if (status == MXS_OK && work.call->step_number >= static_cast<uint64_t>(own_.start))
      status = precondition(work, direction);
    return status == MXS_OK && own_.momentum != 0 ? add_momentum(work, *direction) : status;
  }

  mxs_status filter(const Work &work) {
    FactorFilterArguments arguments;
    arguments.step = pass_step(*work.call);
    arguments.place = place(work);
    arguments.gradient = work.gradient;
    arguments.average = array(work, 0);
    arguments.target = work.first;
    return launch(work, "mxs_factor_filter", arguments, work.elements());
  }

  // Its squares become sums[0].
  mxs_status graft(const Work &work) {
    if (own_.grafting == MXS_GRAFTING_NONE) return MXS_OK;
    if (!is_adam()) return sum_squares(work, work.first, work.sums);
    FactorDirectionArguments arguments;
    arguments.step = pass_step(*work.call);
    arguments.place = place(work);
    arguments.grafts = 1;
    arguments.filtered = work.first;
    arguments.average_squares = array(work, 1);
    arguments.update = work.gradient;
    arguments.run_squares = work.run_squares;
    const mxs_status status = launch(work, "mxs_factor_direction", arguments, run_threads(work));
    return status == MXS_OK ? sum_squares(work, nullptr, work.sums) : status;
  }

  mxs_status precondition(const Work &work, float **direction) {
    TwoSides roots;
    roots.left = side(work, 0).kept, roots.right = side(work, 1).kept;
    mxs_status status = multiply(work, roots, work.first, work.unit.columns, direction);
    if (status != MXS_OK || own_.grafting == MXS_GRAFTING_NONE) return status;
    status = sum_squares(work, *direction, work.sums + 1);
    if (status != MXS_OK) return status;
    FactorRescaleArguments arguments;
    arguments.step = pass_step(*work.call);
    arguments.elements = work.elements();
    arguments.wanted = work.sums, arguments.found = work.sums + 1;
    arguments.numbers = *direction;
    return launch(work, "mxs_factor_rescale", arguments, work.elements());
  }

  mxs_status add_momentum(const Work &work, float *direction) {
    FactorBufferArguments arguments;
    arguments.step = pass_step(*work.call);
    arguments.weights = weights(work);
    arguments.weights.decay = decays_within_momentum() ? MXS_DECAY_L2 : MXS_DECAY_DECOUPLED;
    arguments.place = place(work);
    arguments.momentum = own_.momentum;
    arguments.nesterov = own_.nesterov == MXS_ON;
    arguments.buffer = array(work, is_adam() ? 2 : 1);
    arguments.update = direction;
    return launch(work, "mxs_factor_buffer", arguments, work.elements());
  }

  mxs_status decompose(const Work &work, const FactorSide &side, const float *factor, bool *good) override {
    const mxs_group_values &values = *work.call->host_values;
    const double beta2 = static_cast<double>(values.beta2);
    const double correction =
        beta2 == 1 ? 1.0 : 1 - std::pow(beta2, static_cast<double>(work.call->step_number));
    mxs_status status = input(work, side, factor, static_cast<float>(1 / correction), values.epsilon);
    if (status == MXS_OK)
      status = linear_->eigh(side.n, work.matrix, side.n, work.values, work.rest, work.failed, work.stream);
    FactorPowersArguments powers;
    powers.n = side.n;
    powers.epsilon = static_cast<double>(values.epsilon), powers.exponent = own_.exponent, powers.largest = root_max;
    powers.values = work.values, powers.powers = work.powers, powers.failed = work.failed;
    if (status == MXS_OK) status = launch(work, "mxs_factor_powers", powers, 32);
    FactorColumnsArguments columns;
    columns.n = side.n;
    columns.powers = work.powers, columns.matrix = work.matrix;
    if (status == MXS_OK) status = launch(work, "mxs_factor_columns", columns, side.n * side.n);
    return status == MXS_OK ? read_failed(work, good) : status;
  }

  mxs_status commit(const Work &work, int, const FactorSide &side) override {
    LinearUpdate product;
    product.n = product.inner = side.n;
    product.factor = {work.matrix, side.n, false};
    product.target = side.kept, product.target_stride = side.n;
    return linear_->update(product, work.stream);
  }

  mxs_shampoo_options own_ = MXS_SHAMPOO_OPTIONS_INIT;
};

}  // namespace

mxs_status make_device_shampoo(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                               const OptimizerSettings &settings, const Stepper &host) {
  auto made = std::make_unique<DeviceShampoo>(device, static_cast<const FactorStepper &>(host), matrices);
  const mxs_status status = made->create(settings.shampoo);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
