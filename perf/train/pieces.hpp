// SPDX-License-Identifier: Apache-2.0
// Pieces: parts of tensors that one rank steps, with their masters and state, and the step itself by the library's
// steppers, which know no comm. The placements that are not `owner` are made of these.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "check.hpp"
#include "ledger.hpp"
#include "model.hpp"
#include "placement.hpp"

namespace train {

// A matrix, or a run of a table or gain (then rows is 1).
struct Piece {
  int tensor = 0;
  uint64_t element_offset = 0;  // within the tensor
  int64_t rows = 0, columns = 0;
  bool slice = false;           // rows of a matrix that is stepped as a whole: its state is its momentum (muon)
  void *weights = nullptr;      // in the model's dtype; at home in whatever buffer forward reads
  float *gradient = nullptr;    // the sum
  float *master = nullptr;      // nullptr if the model is fp32: the weights are the masters
  void *state = nullptr;        // of its stepper
  uint64_t count() const { return static_cast<uint64_t>(rows * columns); }
};

// All of the model, in matrices that are stepped as wholes (blocks apart) and whole tables and gains.
std::vector<Piece> whole_pieces(const Model &model);

uint64_t element_count(const std::vector<Piece> &pieces);

void visit_pieces(const Model &model, const std::vector<Piece> &pieces, const MasterVisitor &visitor);

class Stepper {
 public:
  // `comm`: the ranks that share one model's gradients; nullptr if this rank has all of them.
  Stepper(const Model &model, mxs_comm *comm, const PlacementOptions &options)
      : model_(model), comm_(comm), options_(options) {}

  // Makes the steppers of these pieces, but of slices.
  void prepare(const std::vector<Piece> &pieces);
  // Makes the orthogonalizers of these shapes; bytes of their workspaces.
  uint64_t prepare_slices(const std::vector<std::pair<int64_t, int64_t>> &shapes);
  // Of those orthogonalizers, by the flops that they have; 0: there are none.
  int newton_schulz_steps() const;
  // Of the largest step of a whole piece.
  uint64_t workspace_bytes() const;

  // Masters and state are taken and the initial values written; `weights` must point somewhere already.
  void furnish(uint64_t seed, Ledger *ledger, std::vector<Piece> *pieces);
  // What furnish will take: masters and state.
  void predict_furniture(const std::vector<Piece> &pieces, mxs_memory *memory) const;

  // Norm, clip factor and found_inf, as mxs_optimizer_agree; counts the step if it is to be done. `pieces` of all
  // ranks together are the model, once.
  mxs_verdict agree(const std::vector<Piece> &pieces, const mxs_step &step);

  // Under the agreed clip factor, each piece as a whole. `workspace` has workspace_bytes().
  void step_whole(const std::vector<Piece> &pieces, const mxs_step &step, void *workspace);

  // Muon of slices, part by part. `update` has room for the piece.
  void momentum(const Piece &piece, const mxs_step &step, float *update);
  void apply(const Piece &piece, const mxs_step &step, int64_t matrix_rows, float *update);
  void orthogonalize(int64_t rows, int64_t columns, const float *source, float *target);

 private:
  using Key = std::tuple<mxs_rule, int64_t, int64_t>;  // rule, rows, columns
  Key key_of(const Piece &piece) const;
  StepperOwner make(const Key &key) const;
  uint64_t state_bytes(const Piece &piece) const;
  uint64_t master_bytes(const std::vector<Piece> &pieces) const;
  mxs_elements elements(const Piece &piece, const mxs_step &step) const;

  const Model &model_;
  mxs_comm *comm_;
  const PlacementOptions options_;
  uint64_t step_number_ = 0;
  float clip_factor_ = 1;
  std::map<Key, StepperOwner> steppers_;
  std::map<std::pair<int64_t, int64_t>, OrthogonalizerOwner> orthogonalizers_;
};

// Shapes of the matrices among whole pieces.
std::vector<std::pair<int64_t, int64_t>> matrix_shapes(const Model &model, const std::vector<Piece> &pieces);

}  // namespace train
