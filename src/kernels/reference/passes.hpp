// SPDX-License-Identifier: Apache-2.0
// The reference's element passes of optimizers, for its table.
#pragma once

#include "kernels/passes.hpp"

namespace mxs::reference {

double sum_of_squares(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite);
double momentum(const MomentumPass &pass, const MomentumRun &run);
double direction(const AdamwPass &pass, const AdamwRun &run);
void apply(const ApplyPass &pass, const ApplyRun &run);
void adamw(const AdamwPass &pass, const AdamwRun &run);
void scale_weights(const WeightForm &form, const WeightRun &run, float factor, size_t count);
void scale(float *values, float factor, size_t count);

}  // namespace mxs::reference
