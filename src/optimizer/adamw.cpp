// SPDX-License-Identifier: Apache-2.0
// AdamW: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md. Every element is on its
// own, so blocks are of no consequence, and there is no workspace. A step is one pass; its halves are two, with the
// same bits.
#include <algorithm>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/passes.hpp"
#include "kernels/presets.hpp"
#include "optimizer/state_layout.hpp"
#include "optimizer/step_matrices.hpp"
#include "optimizer/step_weights.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

namespace {

// Of one element: scale 1, exp_avg 3, exp_avg_sq 4, update 4, weights 3.
constexpr double element_flops = 15;

// Where a run of elements lies in each array, in elements. state: also in a dense update, and within the tensor.
struct Place {
  size_t gradient, weights, state;
};

class AdamwStepper final : public Stepper {
 public:
  AdamwStepper(const StepMatrices &matrices, const mxs_adamw_options &options, WeightForm form, Team *team)
      : matrices_(matrices), options_(options), form_(form), team_(team) {
    for (const char *name : {"exp_avg", "exp_avg_sq"})
      layout_.add(StateScope::element, name, matrices_.count, {matrices_.rows, matrices_.columns});
  }

  mxs_rule rule() const override { return MXS_RULE_ADAMW; }
  const std::vector<StatePart> &state_parts() const override { return layout_.parts(); }
  uint64_t state_bytes() const override { return layout_.bytes(); }
  uint64_t workspace_bytes() const override { return 0; }
  void init(std::byte *state) const override { std::fill_n(state, layout_.bytes(), std::byte{0}); }
  const char *backend() const override { return ""; }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override { return element_flops * static_cast<double>(matrices_.elements()); }
  bool update_reads_weights() const override { return options_.decay == MXS_DECAY_L2; }

  mxs_status step(const StepCall &call) override {
    const AdamwPass pass = pass_of(call);
    over_elements([&](const Place &place, size_t count) {
      kernels().adamw(pass, run_at(call, place, count));
    });
    return MXS_OK;
  }

  mxs_status update(const StepCall &call, float *update) override {
    const AdamwPass pass = pass_of(call);
    over_elements([&](const Place &place, size_t count) {
      AdamwRun run = run_at(call, place, count);
      run.update = update + place.state;
      kernels().direction(pass, run);
    });
    return MXS_OK;
  }

  mxs_status apply(const StepCall &call, const float *update) override {
    const ApplyPass pass = pass_of(call).apply;
    over_elements([&](const Place &place, size_t count) {
      ApplyRun run;
      run.weights = weights_at(call, place);
      run.update = update + place.state;
      run.count = count;
      kernels().apply(pass, run);
    });
    return MXS_OK;
  }

 private:
  AdamwPass pass_of(const StepCall &call) const {
    const WeightForm form = form_of(form_, matrices_, call);
    AdamwPass pass = adamw_pass(apply_pass(form, options_.decay, 1.0, *call.values), options_.decay,
                                options_.epsilon_before == MXS_ON, call.step_number, *call.values);
    pass.gradient_dtype = matrices_.gradient_dtype;
    pass.gradient_scale = call.gradient_scale;
    return pass;
  }

  WeightRun weights_at(const StepCall &call, const Place &place) const {
    return weights_of(form_, matrices_, call, place.weights, place.state);
  }

  AdamwRun run_at(const StepCall &call, const Place &place, size_t count) const {
    AdamwRun run;
    run.gradient =
        static_cast<const std::byte *>(call.gradient) + place.gradient * dtype_bytes(matrices_.gradient_dtype);
    run.exp_avg = reinterpret_cast<float *>(call.state + layout_.parts()[0].offset) + place.state;
    run.exp_avg_sq = reinterpret_cast<float *>(call.state + layout_.parts()[1].offset) + place.state;
    run.weights = weights_at(call, place);
    run.count = count;
    return run;
  }

  // body(place, count) for runs that lie side by side in every array: of rows or, where nothing has gaps, of the whole
  // batch.
  template <class Body>
  void over_elements(Body &&body) {
    const size_t rows = static_cast<size_t>(matrices_.rows), columns = static_cast<size_t>(matrices_.columns);
    const bool dense = is_dense(matrices_, matrices_.gradient_row, matrices_.gradient_matrix) &&
                       is_dense(matrices_, matrices_.weight_row, matrices_.weight_matrix);
    if (dense) {
      over_runs(team_, MatrixRuns(1, matrices_.elements()), 1, [&](size_t, size_t, size_t first, size_t count) {
        body(Place{first, first, first}, count);
      });
      return;
    }
    const auto at = [](size_t matrix, int64_t matrix_stride, size_t row, int64_t row_stride) {
      return matrix * static_cast<size_t>(matrix_stride) + row * static_cast<size_t>(row_stride);
    };
    over_runs(team_, MatrixRuns(rows, columns), static_cast<size_t>(matrices_.count),
              [&](size_t matrix, size_t row, size_t column, size_t count) {
                const Place place = {
                    at(matrix, matrices_.gradient_matrix, row, matrices_.gradient_row) + column,
                    at(matrix, matrices_.weight_matrix, row, matrices_.weight_row) + column,
                    (matrix * rows + row) * columns + column,
                };
                body(place, count);
              });
  }

  const StepMatrices matrices_;
  const mxs_adamw_options options_;
  const WeightForm form_;
  Team *const team_;
  StateLayout layout_;
};

}  // namespace

mxs_status make_adamw_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                              const mxs_adamw_options &given, Team *team) {
  if (matrices.shared.sum)
    return set_error(MXS_NOT_BUILT, "adamw for matrices that several ranks share is not in this release");
  mxs_adamw_options options = given;
  WeightForm form;
  mxs_status status = complete(&options);
  if (status == MXS_OK) status = weight_form(&form, matrices.dtype, matrices.weights, matrices.rounding);
  if (status == MXS_OK) *stepper = std::make_unique<AdamwStepper>(matrices, options, form, team);
  return status;
}

}  // namespace mxs
