// SPDX-License-Identifier: Apache-2.0
// Shared: Newton-Schulz of one matrix by several ranks. The long side is cut: each rank has a part of X, the Gram
// matrix is the sum of theirs, and everything else is local.
//
//   A = sum over ranks of X_part X_part^T     M = bA + cA^2, by each rank     X_part' = a X_part + M X_part
//
// The sum is asked for once at each step, over the lower half of A. It must give equal bits on all ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/kernels.hpp"
#include "kernels/recipe.hpp"

namespace mxs {

// Adds up `count` numbers over the ranks that share a matrix, in place.
struct GramSum {
  mxs_status (*sum)(void *context, float *values, uint64_t count) = nullptr;
  void *context = nullptr;
};

struct SharedShape {
  int64_t n = 0;        // the short side, of the Gram matrix
  int64_t part = 0;     // of the long side, this rank's; may be less than n
  bool turned = false;  // the part is given as part x n, else as n x part

  int64_t rows() const { return turned ? part : n; }
  int64_t columns() const { return turned ? n : part; }
};

// AUTO: tiles where alone they would be taken, too, else the fp32 products of linear.hpp. run wants one matrix, and its
// sum of squares over all ranks.
mxs_status make_shared_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                      const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team,
                                      GramSum sum);

// ---- one backend each ----

// sum empty: a matrix of one owner.
mxs_status make_shared_tiles_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                            const NewtonSchulzRecipe &recipe, Team *team, GramSum sum);
mxs_status make_shared_linear_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                             const NewtonSchulzRecipe &recipe, mxs_backend backend, Team *team,
                                             GramSum sum);

}  // namespace mxs
