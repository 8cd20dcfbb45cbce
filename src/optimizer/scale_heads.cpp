// SPDX-License-Identifier: Apache-2.0
#include "optimizer/scale_heads.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"
#include "optimizer/step_matrices.hpp"
#include "optimizer/taken_arrays.hpp"

namespace mxs {

namespace {

mxs_status check_arrays(const StepMatrices &matrices, const void *weights, const void *master, const float *factors) {
  const uint64_t width = dtype_bytes(matrices.dtype), beside = master_width(matrices);
  mxs_status status = check_array(weights, "weights", width);
  if (status == MXS_OK && beside != 0) status = check_array(master, "master", beside);
  if (status == MXS_OK && beside == 0 && master)
    status = set_error(MXS_INVALID_ARGUMENT, "master is set, but these weights have none (mxs_matrices.weights)");
  if (status == MXS_OK) status = check_array(factors, "factors", sizeof(float));
  if (status != MXS_OK) return status;
  const uint64_t extent = weight_extent(matrices);
  const TakenArray arrays[] = {{"weights", weights, extent * width},
                               {"master", master, extent * beside},
                               {"factors", factors, matrices.blocks.size() * sizeof(float)}};
  status = check_taken_apart(arrays, std::size(arrays));
  for (size_t head = 0; status == MXS_OK && head < matrices.blocks.size(); ++head)
    if (!std::isfinite(factors[head]) || factors[head] < 0)
      status = set_error(MXS_INVALID_ARGUMENT, "factors[%zu] is %g, not finite or negative", head,
                         static_cast<double>(factors[head]));
  return status;
}

}  // namespace

mxs_status scale_heads(const StepMatrices &matrices, void *weights, void *master, const float *factors,
                       uint64_t step_number) {
  WeightForm form;
  mxs_status status = weight_form(&form, matrices.dtype, matrices.weights, matrices.rounding);
  if (status == MXS_OK) status = check_arrays(matrices, weights, master, factors);
  if (status != MXS_OK) return status;
  form.random = random_bits(matrices.seed, matrices.tensor_id, step_number);
  const size_t columns = static_cast<size_t>(matrices.columns);
  for (size_t head = 0; head < matrices.blocks.size(); ++head) {
    if (factors[head] == 1.0f) continue;  // most heads, most of the time
    const StepBlock &block = matrices.blocks[head];
    for (int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
      WeightRun run;
      run.weights = weights;
      run.master = master;
      run = later(form, run, static_cast<size_t>(row * matrices.weight_row));
      run.first_element = matrices.first_element + static_cast<uint64_t>(row) * columns;
      kernels().scale_weights(form, run, factors[head], columns);
    }
  }
  return MXS_OK;
}

}  // namespace mxs
