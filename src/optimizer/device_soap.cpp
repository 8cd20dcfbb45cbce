// SPDX-License-Identifier: Apache-2.0
// SOAP in CUDA memory: formulas and the order of things are those of soap.cpp. Estimates of eigenvalues are sorted by
// the host, some thousand numbers at a refresh.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/presets.hpp"
#include "optimizer/device_factors.hpp"

namespace mxs {

namespace {

class DeviceSoap final : public DeviceFactors {
 public:
  using DeviceFactors::DeviceFactors;

  mxs_status create(mxs_soap_options options) {
    const mxs_status status = complete(&options);
    if (status != MXS_OK) return status;
    factor_beta_ = options.factor_beta;
    FactorOptions decided;
    decided.decay = options.decay, decided.backend = options.backend;
    decided.interval = options.interval, decided.failures_max = options.failures_max;
    return prepare(decided);
  }

 private:
  bool refreshes(uint64_t step_number) const override {
    return (step_number - 1) % static_cast<uint64_t>(options_.interval) == 0;
  }
  bool changes_weights(const DeviceStepCall &call) const override { return call.step_number > 1; }

  void factor_scalars(const DeviceStepCall &call, float *alpha, float *beta) const override {
    *beta = factor_beta_ == 0 ? call.host_values->beta2 : factor_beta_;
    *alpha = static_cast<float>(1 - static_cast<double>(*beta));
  }

  FactorApplyArguments apply_arguments() const override {
    FactorApplyArguments apply;
    apply.decay_last = 1;
    return apply;
  }

  TwoSides into_basis(const Work &work) const { return {side(work, 0).kept, side(work, 1).kept, true, false}; }
  TwoSides out_of_basis(const Work &work) const { return {side(work, 0).kept, side(work, 1).kept, false, true}; }

  mxs_status direct(const Work &work, float **direction) override {
    if (work.call->step_number == 1) return MXS_OK;  // weights don't change
    float *projected = nullptr;
    const mxs_status status = multiply(work, into_basis(work), work.gradient, work.unit.columns, &projected);
    if (status != MXS_OK) return status;
    FactorDirectionArguments arguments;
    arguments.step = pass_step(*work.call);
    arguments.place = place(work);
    arguments.average = array(work, 0), arguments.average_squares = array(work, 1);
    arguments.update = projected;
    arguments.run_squares = work.run_squares;
    const mxs_status launched = launch(work, "mxs_factor_direction", arguments, run_threads(work));
    if (launched != MXS_OK) return launched;
    return multiply(work, out_of_basis(work), projected, work.unit.columns, direction);
  }

  // ---- bases ----

  mxs_status finish(const Work &work) override {
    mxs_status status = update_factors(work);
    if (status != MXS_OK || !refreshes(work.call->step_number)) return status;
    int done = 0;
    if (work.call->step_number == 1) return refresh(work, &done);
    const FactorPlace at = place(work);
    float *const average = array(work, 0) + at.first;
    float *turned_back = nullptr, *turned = nullptr;
    status = multiply(work, out_of_basis(work), average, at.stride, &turned_back);
    if (status == MXS_OK) status = refresh(work, &done);
    if (status != MXS_OK || done == 0) return status;
    const uint64_t stride = turned_back == average ? at.stride : work.unit.columns;
    status = multiply(work, into_basis(work), turned_back, stride, &turned);
    if (status != MXS_OK || turned == average) return status;
    FactorPermuteArguments copy;
    copy.rows = at.rows, copy.columns = at.columns;
    copy.source = turned, copy.source_stride = work.unit.columns;
    copy.target = average, copy.target_stride = at.stride;
    return permute(work, copy);
  }

  mxs_status decompose(const Work &work, const FactorSide &side, const float *factor, bool *good) override {
    if (work.call->step_number == 1) {
      mxs_status status = input(work, side, factor, 1.0f, 1e-30f);
      if (status == MXS_OK)
        status = linear_->eigh(side.n, work.matrix, side.n, work.values, work.rest, work.failed, work.stream);
      return status == MXS_OK ? read_failed(work, good) : status;
    }
    // P, which is sorted into matrix: the place of a factor on trial is done with by then.
    float *const product_place = factor == work.formed ? work.matrix : work.formed;
    LinearProduct product;
    product.rows = product.columns = product.inner = side.n;
    product.left = {factor, side.n, false}, product.right = {side.kept, side.n, false};
    product.target = product_place, product.target_stride = side.n;
    mxs_status status = linear_->multiply(product, work.stream);
    if (status == MXS_OK) status = sort(work, side, product_place, good);
    if (status != MXS_OK || !*good) return status;
    FactorPermuteArguments columns;
    columns.rows = columns.columns = columns.source_stride = columns.target_stride = side.n;
    columns.source = product_place;
    columns.target = product_place == work.matrix ? work.formed : work.matrix;
    columns.order = work.order, columns.by_columns = 1;
    status = permute(work, columns);
    if (status == MXS_OK)
      status = linear_->qr(side.n, columns.target, side.n, work.rest, work.failed, work.stream);
    return status == MXS_OK ? read_failed(work, good) : status;
  }

  // By estimates of eigenvalues, the largest first; the number decides between equal ones.
  mxs_status sort(const Work &work, const FactorSide &side, const float *product, bool *good) {
    FactorEstimatesArguments estimates;
    estimates.n = side.n;
    estimates.left = side.kept, estimates.right = product;
    estimates.values = work.powers;
    mxs_status status = launch(work, "mxs_factor_estimates", estimates, side.n);
    double *const values = reinterpret_cast<double *>(pinned_.data());
    if (status == MXS_OK) status = device_.copy(values, work.powers, side.n * sizeof(double), work.stream);
    if (status == MXS_OK) status = device_.synchronize(work.stream);
    *good = status == MXS_OK &&
            std::all_of(values, values + side.n, [](double value) { return std::isfinite(value); });
    if (!*good) return status;
    uint32_t *const order = reinterpret_cast<uint32_t *>(values + side.n);
    std::iota(order, order + side.n, uint32_t{0});
    std::sort(order, order + side.n, [&](uint32_t a, uint32_t b) {
      return values[a] != values[b] ? values[a] > values[b] : a < b;
    });
    return put_order(work, order, side.n);
  }

  mxs_status put_order(const Work &work, const uint32_t *order, size_t n) {
    const mxs_status status = device_.copy(work.order, order, n * sizeof(uint32_t), work.stream);
    return status == MXS_OK ? device_.synchronize(work.stream) : status;  // the room is used again
  }

  mxs_status commit(const Work &work, int side_number, const FactorSide &side) override {
    FactorPermuteArguments columns;
    columns.rows = columns.columns = columns.source_stride = columns.target_stride = side.n;
    columns.source = work.matrix, columns.target = side.kept;
    if (work.call->step_number > 1) {
      const mxs_status status = permute(work, columns);
      return status == MXS_OK ? permute_squares(work, side_number) : status;
    }
    uint32_t *const order = reinterpret_cast<uint32_t *>(pinned_.data());
    for (size_t i = 0; i < side.n; ++i) order[i] = static_cast<uint32_t>(side.n - 1 - i);
    const mxs_status status = put_order(work, order, side.n);
    columns.order = work.order, columns.by_columns = 1;
    return status == MXS_OK ? permute(work, columns) : status;
  }

  // v along the side's axis, by way of the gradient, which is done with.
  mxs_status permute_squares(const Work &work, int side_number) {
    const FactorPlace at = place(work);
    float *const squares = array(work, 1) + at.first;
    FactorPermuteArguments there, back;
    there.rows = back.rows = at.rows, there.columns = back.columns = at.columns;
    there.source = squares, there.source_stride = at.stride;
    there.target = work.gradient, there.target_stride = at.columns;
    there.order = work.order, there.by_columns = side_number == 1;
    back.source = work.gradient, back.source_stride = at.columns;
    back.target = squares, back.target_stride = at.stride;
    const mxs_status status = permute(work, there);
    return status == MXS_OK ? permute(work, back) : status;
  }

  float factor_beta_ = 0;  // 0: beta2
};

}  // namespace

mxs_status make_device_soap(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                            const OptimizerSettings &settings, const Stepper &host) {
  auto made = std::make_unique<DeviceSoap>(device, static_cast<const FactorStepper &>(host), matrices);
  const mxs_status status = made->create(settings.soap);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
