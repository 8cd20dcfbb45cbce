// SPDX-License-Identifier: Apache-2.0
// Kernels: the numeric table. reference/ is the oracle, for ever; cpu/ has the same loops compiled for wider vectors
// and must agree bit for bit (no contraction, no reassociation); onednn/ multiplies matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "matrixshard/optimizer.h"
#include "matrixshard/status.h"
#include "matrixshard/types.h"

namespace mxs {

// Of sum_of_squares: four chains of eight fp64 numbers keep a wide adder busy.
constexpr size_t norm_lanes = 32;

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

  // ---- element passes of optimizers; see mxs_elements in optimizer.h ----
  void (*muon_momentum)(const mxs_elements &elements, const mxs_group_values &values);
  void (*muon_apply)(const mxs_elements &elements, const mxs_group_values &values);
  void (*adamw)(const mxs_elements &elements, const mxs_group_values &values);
  // Sum of squares of scale * gradient in fp64, in an order that doesn't depend on the table: norm_lanes lanes, lane i
  // takes elements i, i + norm_lanes, ...; lanes are added 0 to the last. Not finite: *not_finite = true.
  double (*sum_of_squares)(const float *gradient, float scale, size_t elements, bool *not_finite);
};

// The best table for this CPU; MXS_KERNELS=reference|x86-64-v3|x86-64-v4 forces one.
const Kernels &kernels();
// MXS_ENVIRONMENT if MXS_KERNELS names a table that this CPU can't run: for every create.
mxs_status check_kernels();
const Kernels &reference_kernels();
// Every table that this CPU can run, reference first; for tests.
const Kernels *const *all_kernels(int *count);

// Newton-Schulz for one shape.
class Orthogonalizer {
 public:
  virtual ~Orthogonalizer() = default;
  // Threads: one call at a time. No allocation.
  virtual mxs_status run(const float *source, float *target) = 0;
  virtual const char *backend() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
  virtual double flops() const = 0;
};

mxs_status make_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, int64_t rows, int64_t columns,
                               mxs_muon_preset preset, mxs_backend backend, int thread_count);

// Exact sums of fp64 numbers that are sums of squares of fp32 numbers: an integer accumulator wide enough for all of
// them, so that the order of additions, and over how many ranks they are spread, is of no consequence. Words of several
// sums are added word by word.
struct ExactSum {
  int64_t words[MXS_NORM_WORDS] = {};
  void add(double value);       // 0 <= value < 2^760, a multiple of 2^-512
  double value() const;         // rounded once
};

}  // namespace mxs
