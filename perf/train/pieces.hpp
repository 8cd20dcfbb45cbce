// SPDX-License-Identifier: Apache-2.0
// Pieces: parts of tensors that one rank steps, with their masters and state, and the step itself by the library's
// stand-alone kernels. The placements that are not `owner` are made of these.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "ledger.hpp"
#include "model.hpp"
#include "placement.hpp"

namespace train {

// Rows of a matrix, or a run of a table or gain (then rows is 1).
struct Piece {
  int tensor = 0;
  uint64_t element_offset = 0;  // within the tensor
  int64_t rows = 0, columns = 0;
  void *weights = nullptr;      // in the model's dtype; at home in whatever buffer forward reads
  float *gradient = nullptr;    // the sum
  float *master = nullptr;      // nullptr if the model is fp32: the weights are the masters
  float *momentum = nullptr;    // muon
  float *exp_avg = nullptr, *exp_avg_sq = nullptr;  // adamw
  uint64_t count() const { return static_cast<uint64_t>(rows * columns); }
};

// All of the model, in matrices that Muon treats as wholes (blocks apart) and whole tables and gains.
std::vector<Piece> whole_pieces(const Model &model);

// Elements in all, under one rule or (AUTO) any.
uint64_t element_count(const Model &model, const std::vector<Piece> &pieces, mxs_rule rule);

// Masters and state are taken and the initial values written; `weights` must point somewhere already.
void furnish(const Model &model, uint64_t seed, Ledger *ledger, std::vector<Piece> *pieces);
// What furnish will take: masters and state.
void predict_furniture(const Model &model, const std::vector<Piece> &pieces, mxs_memory *memory);

void visit_pieces(const Model &model, const std::vector<Piece> &pieces, const MasterVisitor &visitor);

class Stepper {
 public:
  // `comm`: the ranks that share one model's gradients; nullptr if this rank has all of them.
  Stepper(const Model &model, mxs_comm *comm, int thread_count) : model_(model), comm_(comm), threads_(thread_count) {}

  // Norm, clip factor and found_inf, as mxs_optimizer_agree; counts the step if it is to be done. `pieces` of all
  // ranks together are the model, once.
  mxs_verdict agree(const std::vector<Piece> &pieces, const mxs_step &step);

  // One piece under the agreed clip factor. `update` has room for the piece.
  void adamw(const Piece &piece, const mxs_step &step);
  void momentum(const Piece &piece, const mxs_step &step, float *update);
  void apply(const Piece &piece, const mxs_step &step, int64_t matrix_rows, float *update);
  void orthogonalize(int64_t rows, int64_t columns, const float *source, float *target);

  // AdamW for what has it; whole matrices under Muon. `update` has room for the largest matrix.
  void step_whole(const std::vector<Piece> &pieces, const mxs_step &step, float *update);

  // Makes the orthogonalizers of these shapes; bytes of their workspaces.
  uint64_t prepare(const std::vector<std::pair<int64_t, int64_t>> &shapes);

 private:
  mxs_elements elements(const Piece &piece, const mxs_step &step) const;

  const Model &model_;
  mxs_comm *comm_;
  int threads_;
  uint64_t step_number_ = 0;
  float clip_factor_ = 1;
  std::map<std::pair<int64_t, int64_t>, OrthogonalizerOwner> orthogonalizers_;
};

// Shapes of the matrices among whole pieces, and the elements of the largest.
std::vector<std::pair<int64_t, int64_t>> matrix_shapes(const Model &model, const std::vector<Piece> &pieces);
uint64_t largest_matrix(const Model &model, const std::vector<Piece> &pieces);

}  // namespace train
