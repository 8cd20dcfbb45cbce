// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz of a matrix whose rows are dealt over co-owners. All that they exchange are sums over the group:
//
//   squares   each puts its own into a place of its own, among zeros: four numbers a rank, no bit is lost
//   tall      rows are the long side: parts are as they lie; the Gram matrices are summed
//   wide      rows are the short side: first rows are exchanged for columns, at the end columns for rows. What goes to
//             one rank is a sum to which every rank gives its own rows among zeros
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/shared.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

// rows: of this rank. An orthogonalizer of one matrix, dense, whose squares are those of this rank's rows. What is not
// finite on one rank all ranks refuse, after the same sums.
mxs_status make_shared_newton_schulz(std::unique_ptr<Orthogonalizer> *orthogonalizer, const SharedMatrix &shared,
                                     int64_t rows, int64_t columns, const NewtonSchulzRecipe &recipe,
                                     OrthogonalizerChoice choice, Team *team);

}  // namespace mxs
