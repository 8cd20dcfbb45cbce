// SPDX-License-Identifier: Apache-2.0
// Optimizer: a step over the pieces that this rank owns. See include/matrixshard/optimizer.h.
//
//   create.cpp     pieces, state, kernels for each shape; everything that allocates
//   agreement.cpp  one small exchange: norm, found_inf, step number, equal values; nothing has changed when it fails
//   step.cpp       the update, and listing of state
//
// Order of a step: all units idle -> their reduces complete -> this rank's views end -> agreement -> update -> sums
// cleared. The agreement proves that no rank still reads the weights that are updated after it.
//
// Communication is a pair of functions, given by the caller of make_optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "matrixshard/optimizer.h"
#include "unit/unit.hpp"

namespace mxs {

// All-gather of at most 1,024 bytes in rank order, or a sum of words; exactly one of the two is set.
struct OptimizerComm {
  int rank = 0, rank_count = 1, thread_count = 1;
  std::function<mxs_status(const void *source, void *target, size_t bytes)> gather;
  std::function<mxs_status(int64_t *words, uint64_t count)> sum;
  // With gather: how making it went here; a failure anywhere is a failure everywhere.
  std::function<mxs_status(mxs_status own)> settle;
  // With replicas of the units' shard group: all-gather over them, this rank's number among them, and settle. A step is
  // the same on all of them, so with `gather` they only confirm what the shard group has agreed on.
  std::function<mxs_status(const void *source, void *target, size_t bytes)> gather_replicas;
  std::function<mxs_status(mxs_status own)> settle_replicas;
  int replica_count = 1;
  // A number that grows with every gather and reduce that is started, the same on all ranks.
  std::function<uint64_t()> operations;
};

// Are they values that a step can take? `whose` begins the sentence, such as "step.groups[3]".
mxs_status check_values(const char *whose, const mxs_group_values &values);

struct OptimizerSettings {
  mxs_preset preset = MXS_PRESET_DEFAULT;
  mxs_backend backend = MXS_BACKEND_AUTO;
};

struct FreeBytes {
  void operator()(std::byte *memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte, FreeBytes>;

// One matrix of a muon placement.
struct OptimizedMatrix {
  int64_t rows = 0, columns = 0, row_stride = 0;
  uint64_t offset = 0;                // of its first element, within the placement
  float update_scale = 0;
  Orthogonalizer *orthogonalizer = nullptr;
};

// One owned placement. Rules without a step here (external) have gradients that count in the norm, and no state.
struct OptimizedPiece {
  Unit *unit = nullptr;
  const OwnedPlacement *owned = nullptr;
  mxs_rule rule = MXS_RULE_ADAMW;
  int group = 0;
  std::vector<OptimizedMatrix> matrices;  // muon: one that is the whole placement, or its column blocks
  std::string backends;               // muon: of all its matrices
  float *first = nullptr;             // momentum or exp_avg
  float *second = nullptr;            // exp_avg_sq
};

struct AgreementPart;
struct ReplicaWord;

class Optimizer {
 public:
  Optimizer();
  ~Optimizer();

  mxs_status agree(const mxs_step &step, mxs_verdict *verdict);
  mxs_status step(const mxs_step &step, mxs_verdict *verdict);
  mxs_status clear();
  uint64_t step_number() const { return step_number_; }
  void set_step_number(uint64_t step_number);

  uint64_t state_count() const { return state_count_; }
  mxs_status state(uint64_t index, mxs_state_info *info) const;
  mxs_status kernel(uint64_t placement, mxs_kernel_info *info) const;
  uint64_t state_bytes() const { return state_bytes_; }
  uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend struct OptimizerBuilder;  // create.cpp

  // What a step says, checked and copied: group values by number, as far as tensors use them.
  mxs_status read(const mxs_step &step);
  mxs_status check_idle(const char *what) const;
  // Fills verdict_ for the values read last.
  mxs_status reach_agreement();
  mxs_status exchange(const AgreementPart &mine, AgreementPart *total);
  mxs_status confirm(mxs_status own, const AgreementPart &total);
  mxs_status exchange_by_sum(const AgreementPart &mine, AgreementPart *total);
  AgreementPart own_part() const;
  mxs_status update();
  mxs_status update_piece(const OptimizedPiece &piece);
  mxs_status update_column_block(const OptimizedMatrix &matrix, const mxs_elements &whole,
                                 const mxs_group_values &values);
  bool agreement_holds() const;

  OptimizerComm comm_;
  OptimizerSettings settings_;
  std::vector<Unit *> units_;
  std::vector<char> unit_changes_;   // by unit: has tensors that are stepped, on whatever rank
  std::vector<OptimizedPiece> pieces_;
  std::unique_ptr<Team> team_;
  std::vector<std::unique_ptr<Orthogonalizer>> orthogonalizers_;  // one per shape
  AlignedBytes state_, workspace_;
  uint64_t state_bytes_ = 0, workspace_bytes_ = 0, state_count_ = 0;
  float *update_ = nullptr;          // in the workspace
  float *block_ = nullptr;           // there too: one column block, its columns side by side
  std::vector<std::byte> gathered_;  // room for all ranks' parts
  std::vector<ReplicaWord> replica_words_;
  std::vector<int64_t> summed_;      // room for exchange_by_sum

  uint64_t step_number_ = 0;
  // The step that was read last.
  std::vector<mxs_group_values> values_;  // by group number
  std::vector<char> group_used_;
  float gradient_scale_ = 1, clip_norm_ = 0;
  uint64_t values_hash_ = 0;
  // The agreement, while it holds.
  bool agreed_ = false;
  uint64_t agreed_hash_ = 0, agreed_operations_ = 0;
  mxs_verdict verdict_ = MXS_VERDICT_INIT;
  std::string broken_;  // why a step stopped half-way, "" if none did
};

// Collective if comm.gather is set.
mxs_status make_optimizer(std::unique_ptr<Optimizer> *optimizer, const std::vector<Unit *> &units, OptimizerComm comm,
                          OptimizerSettings settings);

}  // namespace mxs
