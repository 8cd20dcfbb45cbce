// SPDX-License-Identifier: Apache-2.0
#include "optimizer/device_factors.hpp"

#include <algorithm>
#include <cstring>

#include "base/status.hpp"

namespace mxs {

namespace {
constexpr uint64_t border = 256;
}  // namespace

mxs_status DeviceFactors::prepare(const FactorOptions &options) {
  options_ = options;
  mxs_status status = weights_for_passes(&weights_, matrices_, options.decay);
  if (status == MXS_OK) status = device_.make_linear(&linear_, options.backend);
  if (status != MXS_OK) return status;
  const uint64_t n = std::max<uint64_t>(static_cast<uint64_t>(host_.rooms_.side), 1);
  uint64_t runs = 1, elements = 1, decomposition = 0;
  for (uint64_t number = 0; number < host_.unit_count(); ++number) {
    const FactorUnit unit = host_.unit_at(number);
    runs = std::max<uint64_t>(runs, MatrixRuns(unit.rows, unit.columns).run_count());
    elements = std::max<uint64_t>(elements, unit.rows * unit.columns);
  }
  if (host_.rooms_.side > 0) status = linear_->workspace_bytes(n, &decomposition);
  if (status != MXS_OK) return status;
  array_bytes_ = align_up(elements * sizeof(float), border);
  run_bytes_ = align_up(runs * sizeof(double), border);
  matrix_bytes_ = align_up(n * n * sizeof(float), border);
  side_bytes_ = align_up(n * sizeof(double), border);
  workspace_bytes_ = 3 * array_bytes_ + run_bytes_ + 2 * matrix_bytes_ + 3 * side_bytes_ + 2 * border +
                     align_up(decomposition, border);
  return device_.allocate_pinned(2 * side_bytes_ + border, &pinned_);
}

DeviceFactors::Work DeviceFactors::work_of(const DeviceStepCall &call, uint64_t number, DeviceStream stream) const {
  Work work;
  work.call = &call;
  work.places.state = call.state;
  work.unit = host_.unit_at(number);
  work.stream = stream;
  std::byte *next = call.workspace;
  const auto take = [&](uint64_t bytes) {
    std::byte *const place = next;
    next += bytes;
    return place;
  };
  for (float **array : {&work.gradient, &work.first, &work.second})
    *array = reinterpret_cast<float *>(take(array_bytes_));
  work.run_squares = reinterpret_cast<double *>(take(run_bytes_));
  work.matrix = reinterpret_cast<float *>(take(matrix_bytes_));
  work.formed = reinterpret_cast<float *>(take(matrix_bytes_));
  work.values = reinterpret_cast<float *>(take(side_bytes_));
  work.powers = reinterpret_cast<double *>(take(side_bytes_));
  work.order = reinterpret_cast<uint32_t *>(take(side_bytes_));
  work.sums = reinterpret_cast<double *>(take(border));
  work.failed = reinterpret_cast<int32_t *>(take(border));
  work.rest = next;
  return work;
}

// ---- the step ------------------------------------------------------------------------------------------------------

mxs_status DeviceFactors::enqueue(const DeviceStepCall &call, DeviceStream stream) {
  mxs_status status = try_where_no_more_may_fail(call, stream);
  for (uint64_t number = 0; number < host_.unit_count() && status == MXS_OK; ++number)
    status = step_unit(work_of(call, number, stream));
  return status;
}

mxs_status DeviceFactors::take_gradient(const Work &work) {
  FactorGradientArguments gradient;
  gradient.step = pass_step(*work.call);
  gradient.weights = weights(work);
  gradient.place = place(work);
  gradient.gradient = static_cast<const float *>(work.call->gradient);
  gradient.target = work.gradient;
  return launch(work, "mxs_factor_gradient", gradient, work.elements());
}

mxs_status DeviceFactors::step_unit(const Work &work) {
  float *direction = nullptr;
  mxs_status status = take_gradient(work);
  if (status == MXS_OK) status = direct(work, &direction);
  if (status == MXS_OK && changes_weights(*work.call)) {
    FactorApplyArguments apply = apply_arguments();
    apply.step = pass_step(*work.call);
    apply.weights = weights(work);
    apply.place = place(work);
    apply.update = direction;
    status = launch(work, "mxs_factor_apply", apply, work.elements());
  }
  return status == MXS_OK ? finish(work) : status;
}

FactorPlace DeviceFactors::place(const Work &work) const {
  const uint64_t columns = static_cast<uint64_t>(matrices_.columns);
  return {work.unit.first_row * columns + work.unit.first_column, columns, work.unit.rows, work.unit.columns};
}

float *DeviceFactors::array(const Work &work, size_t number) const {
  return reinterpret_cast<float *>(work.call->state + host_.array_places_[number]);
}

FactorSide DeviceFactors::side(const Work &work, int side_number) const {
  return host_.side(work.places, work.unit, side_number);
}

// ---- factors -------------------------------------------------------------------------------------------------------

mxs_status DeviceFactors::update_factor(const Work &work, int side_number, float *target) {
  LinearUpdate product;
  product.n = side_number == 0 ? work.unit.rows : work.unit.columns;
  product.inner = side_number == 0 ? work.unit.columns : work.unit.rows;
  product.factor = {work.gradient, work.unit.columns, side_number == 1};
  product.target = target, product.target_stride = product.n;
  factor_scalars(*work.call, &product.alpha, &product.beta);
  return linear_->update(product, work.stream);
}

mxs_status DeviceFactors::update_factors(const Work &work) {
  mxs_status status = MXS_OK;
  for (const int side_number : {0, 1})
    if (float *const factor = side(work, side_number).factor; factor && status == MXS_OK)
      status = update_factor(work, side_number, factor);
  return status;
}

mxs_status DeviceFactors::multiply(const Work &work, const TwoSides &sides, float *source, uint64_t source_stride,
                                   float **result) {
  LinearProduct product;
  product.rows = work.unit.rows, product.columns = work.unit.columns;
  product.target_stride = work.unit.columns;
  mxs_status status = MXS_OK;
  const auto place = [&] { return source == work.first ? work.second : work.first; };
  if (sides.left) {
    product.inner = work.unit.rows;
    product.left = {sides.left, work.unit.rows, sides.left_turned};
    product.right = {source, source_stride, false};
    product.target = place();
    status = linear_->multiply(product, work.stream);
    source = product.target, source_stride = work.unit.columns;
  }
  if (sides.right && status == MXS_OK) {
    product.inner = work.unit.columns;
    product.left = {source, source_stride, false};
    product.right = {sides.right, work.unit.columns, sides.right_turned};
    product.target = place();
    status = linear_->multiply(product, work.stream);
    source = product.target;
  }
  *result = source;
  return status;
}

mxs_status DeviceFactors::sum_squares(const Work &work, const float *numbers, double *sum) {
  mxs_status status = MXS_OK;
  if (numbers) {
    FactorSquaresArguments squares;
    squares.step = pass_step(*work.call);
    squares.rows = work.unit.rows, squares.columns = work.unit.columns;
    squares.numbers = numbers;
    squares.run_squares = work.run_squares;
    status = launch(work, "mxs_factor_squares", squares, run_threads(work));
  }
  if (status != MXS_OK) return status;
  BlockSquaresArguments total;
  total.step = pass_step(*work.call);
  total.notes_failures = 0;
  total.rows = work.unit.rows, total.columns = work.unit.columns;
  total.count = 1;
  total.run_squares = work.run_squares;
  total.squares = sum;
  return launch(work, "mxs_pass_squares", total, pass_threads);
}

mxs_status DeviceFactors::input(const Work &work, const FactorSide &side, const float *factor, float scale,
                                float lift) {
  FactorInputArguments arguments;
  arguments.n = side.n;
  arguments.scale = scale, arguments.lift = lift;
  arguments.factor = factor;
  arguments.matrix = work.matrix;
  return launch(work, "mxs_factor_input", arguments, side.n * side.n);
}

mxs_status DeviceFactors::permute(const Work &work, const FactorPermuteArguments &arguments) {
  return launch(work, "mxs_factor_permute", arguments, arguments.rows * arguments.columns);
}

// ---- refreshes -----------------------------------------------------------------------------------------------------

mxs_status DeviceFactors::read_failed(const Work &work, bool *good) {
  mxs_status status = device_.copy(pinned_.data(), work.failed, sizeof(int32_t), work.stream);
  if (status == MXS_OK) status = device_.synchronize(work.stream);
  int32_t failed = 1;
  if (status == MXS_OK) std::memcpy(&failed, pinned_.data(), sizeof failed);
  *good = failed == 0;
  return status;
}

// One side after the other.
mxs_status DeviceFactors::refresh_sides(const Work &work, bool on_trial, int *done, int *failed) {
  *done = *failed = 0;
  mxs_status status = MXS_OK;
  for (int number = 0; number < 2 && status == MXS_OK; ++number) {
    const FactorSide at = side(work, number);
    if (!at.factor) continue;
    if (on_trial) {
      status = device_.copy(work.formed, at.factor, at.n * at.n * sizeof(float), work.stream);
      if (status == MXS_OK) status = update_factor(work, number, work.formed);
    }
    bool good = false;
    if (status == MXS_OK) status = decompose(work, at, on_trial ? work.formed : at.factor, &good);
    if (status != MXS_OK) return status;
    ++*(good ? done : failed);
    if (good && !on_trial) status = commit(work, number, at);
  }
  return status;
}

mxs_status DeviceFactors::read_failures(const Work &work, FactorStepper::Failures *failures) {
  std::byte *const there = reinterpret_cast<std::byte *>(host_.failures(work.call->state, work.unit));
  mxs_status status = device_.copy(pinned_.data(), there, sizeof *failures, work.stream);
  if (status == MXS_OK) status = device_.synchronize(work.stream);
  if (status == MXS_OK) std::memcpy(failures, pinned_.data(), sizeof *failures);
  return status;
}

mxs_status DeviceFactors::write_failures(const Work &work, const FactorStepper::Failures &failures) {
  std::memcpy(pinned_.data(), &failures, sizeof failures);
  std::byte *const there = reinterpret_cast<std::byte *>(host_.failures(work.call->state, work.unit));
  const mxs_status status = device_.copy(there, pinned_.data(), sizeof failures, work.stream);
  return status == MXS_OK ? device_.synchronize(work.stream) : status;
}

mxs_status DeviceFactors::refresh(const Work &work, int *done) {
  FactorStepper::Failures so_far;
  int failed = 0;
  mxs_status status = refresh_sides(work, false, done, &failed);
  if (status == MXS_OK) status = read_failures(work, &so_far);
  if (status != MXS_OK) return status;
  so_far.in_a_row = failed == 0 ? 0.0 : so_far.in_a_row + 1.0;
  so_far.in_all += failed;
  return write_failures(work, so_far);
}

mxs_status DeviceFactors::try_where_no_more_may_fail(const DeviceStepCall &call, DeviceStream stream) {
  if (!refreshes(call.step_number)) return MXS_OK;
  for (uint64_t number = 0; number < host_.unit_count(); ++number) {
    const Work work = work_of(call, number, stream);
    FactorStepper::Failures so_far;
    int done = 0, failed = 0;
    mxs_status status = read_failures(work, &so_far);
    if (status == MXS_OK && so_far.in_a_row < options_.failures_max) continue;
    if (status == MXS_OK) status = take_gradient(work);
    if (status == MXS_OK) status = refresh_sides(work, true, &done, &failed);
    if (status != MXS_OK) return status;
    if (failed == 0) continue;
    return set_error(MXS_INTERNAL,
                     "%s: the factors of block %zu (%zu x %zu) could not be decomposed %d times in a row, and no more "
                     "than %d are allowed (options.failures_max); look for numbers in its factors that are not finite, "
                     "or for gradients above 1e19. Nothing has changed", backend(), work.unit.block, work.unit.rows,
                     work.unit.columns, options_.failures_max + 1, options_.failures_max);
  }
  return MXS_OK;
}

}  // namespace mxs
