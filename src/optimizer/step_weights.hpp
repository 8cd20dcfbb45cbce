// SPDX-License-Identifier: Apache-2.0
// The weights of a call, as element passes take them.
#pragma once

#include "kernels/passes.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

// With the random bits of this step, where they are wanted.
inline WeightForm form_of(const WeightForm &form, const StepMatrices &matrices, const StepCall &call) {
  WeightForm result = form;
  if (form.kind == WeightKind::bf16_stochastic)
    result.random = random_bits(matrices.seed, matrices.tensor_id, call.step_number);
  return result;
}

// place: in the weights' array, in elements. element: of the batch as if it were dense. A call without weights gives a
// run without any.
inline WeightRun weights_of(const WeightForm &form, const StepMatrices &matrices, const StepCall &call, size_t place,
                            uint64_t element) {
  WeightRun run;
  if (!call.weights) return run;
  run.weights = call.weights;
  run.master = call.master;
  run = later(form, run, place);
  run.first_element = matrices.first_element + element;
  return run;
}

}  // namespace mxs
