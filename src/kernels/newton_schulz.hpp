// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz: what all backends share. A matrix with more rows than columns is turned, so that n <= m inside.
//
//   X = source * scale, of norm 1 at most, then for each (a, b, c):  A = X X^T,  X = (a I + b A + c A^2) X
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "kernels/norm_scale.hpp"
#include "kernels/recipe.hpp"

namespace mxs {

// The sum of squares of a matrix in fp64, in an order that is the same for every table and thread count: MatrixRuns of
// the shape as given. MXS_INVALID_ARGUMENT: an element is not finite.
mxs_status find_squares(MatrixSource source, size_t rows, size_t columns, double *squares);

NormScale norm_scale(double squares, const NewtonSchulzRecipe &recipe);

// target[i] = source[i] scaled.
void scale_to_norm(float *target, const float *source, size_t elements, const NormScale &scale);

// Of n x m matrices, n <= m. Plan's prediction uses the same: see newton_schulz_workspace_bytes there.
struct NewtonSchulzShape {
  int64_t rows, columns;  // as given
  bool turned() const { return rows > columns; }
  size_t n() const { return static_cast<size_t>(turned() ? columns : rows); }
  size_t m() const { return static_cast<size_t>(turned() ? rows : columns); }
  double flops(size_t steps) const {
    const double small = static_cast<double>(n()), large = static_cast<double>(m());
    return static_cast<double>(steps) * (4.0 * large * small * small + 2.0 * small * small * small);
  }
};

// ---- the choice: pure, by shape, algorithm and whether the CPU multiplies bf16 ----

struct BackendOrder {
  mxs_backend list[4] = {};
  int count = 0;
  void add(mxs_backend backend) { list[count++] = backend; }
  const mxs_backend *begin() const { return list; }
  const mxs_backend *end() const { return list + count; }
};

// What AUTO tries, one after the other until one is there (n: the shorter side, m: the longer):
//
//   CPU with AMX or avx512_bf16, n >= 32, not gram   tiles; where MXS_TILES forbids them, oneDNN
//   the same, or another CPU and n >= 16, or gram    OpenBLAS: gram from m = 2 n on, else standard
//   always                                           the reference: gram where n < 32 and m >= 3 n, else standard
//
// An algorithm that is asked for is taken. A CPU with bf16 doesn't load OpenBLAS for a few tiny matrices.
BackendOrder backends_in_order(const NewtonSchulzShape &shape, mxs_algorithm algorithm, bool cpu_has_bf16);

// ---- one backend each; what is refused is MXS_NOT_BUILT with a sentence ----

std::unique_ptr<Orthogonalizer> make_reference_orthogonalizer(NewtonSchulzShape shape, const NewtonSchulzRecipe &recipe,
                                                              Team *team);

// fp32, standard or on the Gram matrix, by a table of linear.hpp.
struct Linear;
std::unique_ptr<Orthogonalizer> make_linear_orthogonalizer(NewtonSchulzShape shape, const NewtonSchulzRecipe &recipe,
                                                           bool gram, const Linear &linear, Team *team);

// oneDNN has no fast path for bf16 on this CPU; the sentence says what it offered.
mxs_status make_onednn_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                      const NewtonSchulzRecipe &recipe, Team *team);

// Our own bf16 products, see tiles/. MXS_ENVIRONMENT: MXS_TILES names a kernel that doesn't run here.
mxs_status make_tiles_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, NewtonSchulzShape shape,
                                     const NewtonSchulzRecipe &recipe, Team *team);

// The kernel that tiles take here: "tiles amx_bf16", "no tiles".
std::string tiles_name();

// oneDNN's version and the instructions that it uses here, for comparing ranks.
std::string onednn_name();

}  // namespace mxs
