// SPDX-License-Identifier: Apache-2.0
// Stepper: one rule for one batch of equal matrices, without comm, unit or plan: what mxs_stepper holds, and what an
// Optimizer has one of for each of its pieces' shapes. muon.cpp, adamw.cpp, shampoo.cpp and soap.cpp have one each.
//
// A stepper holds no state and no workspace: both come with each call, so that pieces of equal shape share it. Whoever
// calls has checked that all gradients are finite (Optimizer in its agreement, the C API in a pass of its own) and that
// the group's values are in their ranges (check_values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

// Of one block: its place in each matrix of the batch, as stored, and its size for scaling, as (out, in).
struct StepBlock {
  int64_t first_row = 0, rows = 0;
  int64_t first_column = 0, columns = 0;  // column blocks of a plan; the C API has row blocks only
  int64_t scale_rows = 0, scale_columns = 0;
};

// Where co-owners share a matrix: this rank has rows [first_row, first_row + rows) of whole_rows. `sum` adds up `count`
// numbers over the group, in place, with equal bits everywhere.
struct SharedMatrix {
  int64_t whole_rows = 0, first_row = 0;
  int member = 0, member_count = 1;
  mxs_status (*sum)(void *context, float *values, uint64_t count) = nullptr;  // nullptr: one owner
  void *context = nullptr;
};

// Blocks of all matrices of a batch that muon, shampoo and soap keep a list of. 2^26 would be 2 GiB of places and
// minutes of create.
constexpr uint64_t step_parts_max = uint64_t{1} << 20;

// mxs_matrices with every field decided.
struct StepMatrices {
  mxs_dtype dtype = MXS_F32, gradient_dtype = MXS_F32;
  mxs_weights weights = MXS_WEIGHTS_ALONE;  // never DEFAULT
  mxs_rounding rounding = MXS_ROUND_NEAREST;
  uint64_t seed = 0, tensor_id = 0;
  uint64_t first_element = 0;  // of this piece within its tensor, for stochastic rounding
  int64_t rows = 0, columns = 0, count = 1;
  int64_t weight_row = 0, weight_matrix = 0, gradient_row = 0, gradient_matrix = 0;  // strides in elements
  std::vector<StepBlock> blocks;  // at least one; muon, shampoo and soap treat each by itself
  bool transposed = false;        // stored as (in, out): NorMuon's rows are columns. Blocks' scale_rows knows already
  SharedMatrix shared;

  uint64_t elements() const {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * static_cast<uint64_t>(count);
  }
};

// What of a matrix a part of its state has numbers for. By element and by row they lie as the matrices' rows do, so
// that those of a tensor can be cut where its pieces are; others belong to one matrix as a whole.
enum class StateScope { element, row, matrix };

struct StatePart {
  std::string name;
  StateScope scope = StateScope::element;
  mxs_dtype dtype = MXS_F32;
  std::vector<int64_t> shape;  // count first, if it is not 1
  uint64_t offset = 0, bytes = 0;  // offset: at a 64-byte border
};

// One call's arrays and values. `state` and `workspace` lie at 64-byte borders.
struct StepCall {
  const mxs_group_values *values = nullptr;
  uint64_t step_number = 0;    // of this step, from 1
  float gradient_scale = 1;    // clip factor included
  const void *gradient = nullptr;
  void *weights = nullptr;
  void *master = nullptr;      // float, or uint16_t for MXS_WEIGHTS_REMAINDER; nullptr where there is none
  std::byte *state = nullptr, *workspace = nullptr;
};

class Stepper {
 public:
  virtual ~Stepper() = default;

  virtual mxs_rule rule() const = 0;
  virtual const std::vector<StatePart> &state_parts() const = 0;
  virtual uint64_t state_bytes() const = 0;      // a multiple of 64
  virtual uint64_t workspace_bytes() const = 0;  // of one call, a multiple of 64
  virtual void init(std::byte *state) const = 0;

  // Threads: one call at a time. No allocation. A failure leaves state and weights as they were, with two exceptions,
  // both muon's: a momentum that is not finite (the state was damaged before), and a sum over co-owners that fails (the
  // comm has failed, too). Blocks before it are then stepped, and state and weights are to be loaded again.
  virtual mxs_status step(const StepCall &call) = 0;
  // As mxs_stepper_update and mxs_stepper_apply: update is dense, fp32, before lr, scale and decay. apply gets neither
  // gradient nor workspace.
  virtual mxs_status update(const StepCall &call, float *update) = 0;
  virtual mxs_status apply(const StepCall &call, const float *update) = 0;

  virtual const char *backend() const = 0;  // of products; "" for adamw
  virtual mxs_dtype product_dtype() const = 0;
  virtual double flops() const = 0;
  // Options that give the numbers of a state another meaning, though its parts look alike (momentum as an average, or
  // as a sum): states whose meanings differ are refused.
  virtual uint64_t state_meaning() const { return 0; }
  // Are weights and masters there for `update`? L2 decay looks at them, and shampoo's decay that joins momentum.
  virtual bool update_reads_weights() const { return false; }
  // Decompositions that failed so far, by this state.
  virtual uint64_t failed_count(const std::byte *) const { return 0; }
};

// The team outlives the stepper. Options as the caller gave them: zeros take the preset's, and what is out of range is
// MXS_INVALID_ARGUMENT.
mxs_status make_muon_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                             const mxs_muon_options &options, Team *team);
mxs_status make_adamw_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                              const mxs_adamw_options &options, Team *team);
mxs_status make_shampoo_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                                const mxs_shampoo_options &options, Team *team);
mxs_status make_soap_stepper(std::unique_ptr<Stepper> *stepper, const StepMatrices &matrices,
                             const mxs_soap_options &options, Team *team);

}  // namespace mxs
