// SPDX-License-Identifier: Apache-2.0
// Kernels: the numeric table. reference/ is the oracle, for ever; cpu/ has the same loops compiled for wider vectors
// and must agree bit for bit (no contraction, no reassociation); onednn/ multiplies matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/passes.hpp"
#include "matrixshard/kernels.h"
#include "matrixshard/status.h"
#include "matrixshard/types.h"

namespace mxs {

// target (rows x columns) = left (rows x inner) times right (inner x columns), row-major, in fp32. Each element is
// summed in blocks of product_block terms: within a block in order from zero, then the blocks in order.
constexpr size_t product_block = 256;
struct Product {
  float *target = nullptr;
  const float *left = nullptr, *right = nullptr;
  size_t rows = 0, columns = 0, inner = 0;
  size_t target_stride = 0, left_stride = 0, right_stride = 0;  // elements from row to row
  bool right_turned = false;  // right is given as columns x inner
  bool lower = false;         // elements above the diagonal are not needed, and may be left alone
};

struct Kernels {
  const char *name;  // "reference", "x86-64-v3", "x86-64-v4"

  // ---- bytes and sums, for collectives ----
  // Copies once from source into count targets, none of which overlaps it; streams past the cache from 1 MiB on.
  void (*copy_to_many)(std::byte *const *targets, int count, const std::byte *source, size_t bytes);
  // target = ((base + sources[0]) + sources[1]) + ... in fp32; base nullptr: begins from zero (0 + sources[0]).
  // base may be target. sources have `dtype`.
  void (*sum_in_order)(float *target, const float *base, const void *const *sources, int count, mxs_dtype dtype,
                       size_t elements);
  // target += source
  void (*add)(float *target, const void *source, mxs_dtype dtype, size_t elements);
  // fp32 -> dtype (to nearest even), and back
  void (*narrow)(void *target, mxs_dtype dtype, const float *source, size_t elements);
  void (*widen)(float *target, const void *source, mxs_dtype dtype, size_t elements);

  // ---- element passes of optimizers: passes.hpp ----
  // Sums of squares are in fp64, in an order that doesn't depend on the table: chunks of norm_chunk elements one after
  // the other; in a chunk norm_lanes lanes, of which lane i takes elements i, i + norm_lanes, ...; then lane i gets
  // lane i + 16 added, then i + 8, 4, 2, 1.
  //
  // Of scale * gradient. Not finite: *not_finite = true, else it is left.
  double (*sum_of_squares)(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite);
  double (*momentum)(const MomentumPass &pass, const MomentumRun &run);  // of the update
  double (*direction)(const AdamwPass &pass, const AdamwRun &run);       // of the update
  void (*apply)(const ApplyPass &pass, const ApplyRun &run);
  void (*adamw)(const AdamwPass &pass, const AdamwRun &run);
  void (*scale_weights)(const WeightForm &form, const WeightRun &run, float factor, size_t count);
  void (*scale)(float *values, float factor, size_t count);

  // target overlaps neither factor. For Newton-Schulz in fp32.
  void (*multiply)(const Product &product);
};

// The best table for this CPU; MXS_KERNELS=reference|x86-64-v3|x86-64-v4 forces one.
const Kernels &kernels();
// MXS_ENVIRONMENT if MXS_KERNELS names a table that this CPU can't run: for every create.
mxs_status check_kernels();
const Kernels &reference_kernels();
// Every table that this CPU can run, reference first; for tests.
const Kernels *const *all_kernels(int *count);

class Team;                 // base/team.hpp
struct NewtonSchulzRecipe;  // recipe.hpp

// Matrices of a batch are given one by one, dense or with a stride, so that column blocks and experts need no copy.
struct MatrixSource {
  const float *data;
  size_t row_stride;  // elements
};
struct MatrixTarget {
  float *data;
  size_t row_stride;
};

// Newton-Schulz for one shape.
class Orthogonalizer {
 public:
  virtual ~Orthogonalizer() = default;
  // Before the first run: workspace_bytes() bytes at a 64-byte border, which may serve several that take turns.
  virtual void bind(std::byte *workspace) = 0;
  // Threads: one call at a time. No allocation. targets[i] may be sources[i]. Bits depend neither on the count nor on
  // the size of the team.
  //
  // squares: of each matrix the sum of its elements' squares in fp64, where a pass before has formed it and has found
  // all elements finite; nullptr: formed here, in the same order (see find_squares).
  virtual mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                         const double *squares) = 0;
  // Such as "tiles amx_bf16 standard", "openblas gram", "reference standard".
  virtual const char *backend() const = 0;
  virtual mxs_dtype product_dtype() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
  virtual double flops() const = 0;  // as commonly counted, of one matrix
};

struct OrthogonalizerChoice {
  mxs_backend backend = MXS_BACKEND_AUTO;
  mxs_algorithm algorithm = MXS_ALGORITHM_AUTO;
};

// Chooses backend and algorithm: see backends.cpp. The team outlives the orthogonalizer.
mxs_status make_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, int64_t rows, int64_t columns,
                               const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team);

// What decides this rank's bits beside thread count: "x86-64-v4", "x86-64-v4 onednn 2.6.3 ...".
std::string arithmetic_name(mxs_backend backend);

// Exact sums of fp64 numbers that are sums of squares of fp32 numbers: an integer accumulator wide enough for all of
// them, so that the order of additions, and over how many ranks they are spread, is of no consequence. Words of several
// sums are added word by word.
struct ExactSum {
  int64_t words[MXS_NORM_WORDS] = {};
  void add(double value);       // 0 <= value < 2^760, a multiple of 2^-512
  double value() const;         // rounded once
};

// Adds the squares of scale * gradient in chunks of norm_chunk elements, counted from gradient. False: something is not
// finite, and its chunk was left out.
bool add_squares(const void *gradient, mxs_dtype dtype, size_t elements, float scale, ExactSum *sum);

}  // namespace mxs
