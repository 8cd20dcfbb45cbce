// SPDX-License-Identifier: Apache-2.0
// How is a part of a tensor stepped without an optimizer object?
#include "pieces.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "layers.hpp"

namespace train {
namespace {

bool muon(const Model &model, const Piece &piece) { return model.tensors[piece.tensor].rule == MXS_RULE_MUON; }

// Runs are dealt from one pool per use; 16 floats are a cache line.
uint64_t padded(uint64_t count) { return (count + 15) / 16 * 16; }

uint64_t padded_count(const std::vector<Piece> &pieces) {
  uint64_t total = 0;
  for (const Piece &piece : pieces) total += padded(piece.count());
  return total;
}

uint64_t state_count(const Model &model, const std::vector<Piece> &pieces) {
  uint64_t total = 0;
  for (const Piece &piece : pieces) total += padded(piece.count()) * (muon(model, piece) ? 1 : 2);
  return total;
}

}  // namespace

std::vector<Piece> whole_pieces(const Model &model) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    const Tensor &tensor = model.tensors[t];
    if (!tensor.tied_to.empty()) continue;
    uint64_t offset = 0;
    const std::vector<int64_t> whole = {tensor.rows()};
    for (int64_t rows : tensor.block_rows.empty() ? whole : tensor.block_rows) {
      Piece piece;
      piece.tensor = static_cast<int>(t);
      piece.element_offset = offset;
      piece.rows = rows;
      piece.columns = tensor.columns();
      offset += piece.count();
      pieces.push_back(piece);
    }
  }
  return pieces;
}

uint64_t element_count(const Model &model, const std::vector<Piece> &pieces, mxs_rule rule) {
  uint64_t total = 0;
  for (const Piece &piece : pieces)
    if (rule == MXS_RULE_AUTO || model.tensors[piece.tensor].rule == rule) total += piece.count();
  return total;
}

void furnish(const Model &model, uint64_t seed, Ledger *ledger, std::vector<Piece> *pieces) {
  const bool masters = model.shape.dtype != MXS_F32;
  float *master = nullptr;
  if (masters) master = static_cast<float *>(ledger->take(Use::masters, padded_count(*pieces) * sizeof(float)));
  auto *state = static_cast<float *>(ledger->take(Use::state, state_count(model, *pieces) * sizeof(float)));
  for (Piece &piece : *pieces) {
    const uint64_t room = padded(piece.count());
    if (masters) {
      piece.master = master;
      master += room;
    }
    (muon(model, piece) ? piece.momentum : piece.exp_avg) = state;
    state += room;
    if (!muon(model, piece)) {
      piece.exp_avg_sq = state;
      state += room;
    }
    float *values = masters ? piece.master : static_cast<float *>(piece.weights);
    initial_weights(model.tensors[piece.tensor], seed, piece.element_offset, piece.count(), values);
    if (masters) narrow(model.shape.dtype, piece.master, piece.count(), piece.weights);
  }
}

void predict_furniture(const Model &model, const std::vector<Piece> &pieces, mxs_memory *memory) {
  const uint64_t masters = model.shape.dtype == MXS_F32 ? 0 : padded_count(pieces) * sizeof(float);
  const uint64_t state = state_count(model, pieces) * sizeof(float);
  add_bytes(memory, Use::masters, masters);
  add_bytes(memory, Use::state, state);
  memory->slack += page_slack(masters) + page_slack(state);
}

void visit_pieces(const Model &model, const std::vector<Piece> &pieces, const MasterVisitor &visitor) {
  for (const Piece &piece : pieces) {
    const float *masters = piece.master != nullptr ? piece.master : static_cast<const float *>(piece.weights);
    // Padding of slices lies beyond the tensor's end.
    const uint64_t whole = model.tensors[piece.tensor].count();
    if (piece.element_offset < whole)
      visitor(piece.tensor, piece.element_offset, masters, std::min(piece.count(), whole - piece.element_offset));
  }
}

mxs_verdict Stepper::agree(const std::vector<Piece> &pieces, const mxs_step &step) {
  int64_t words[MXS_NORM_WORDS + 1] = {};  // the last: ranks that saw something that isn't finite
  int32_t not_finite = 0;
  // Blocks of one tensor are one tensor to the norm: its chunks are counted from the tensor's first element.
  for (size_t p = 0; p < pieces.size();) {
    uint64_t count = pieces[p].count();
    size_t next = p + 1;
    for (; next < pieces.size() && pieces[next].tensor == pieces[p].tensor &&
           pieces[next].gradient == pieces[p].gradient + count;
         ++next)
      count += pieces[next].count();
    check(mxs_norm_add(words, pieces[p].gradient, count, step.gradient_scale, &not_finite), "mxs_norm_add");
    p = next;
  }
  words[MXS_NORM_WORDS] = not_finite;
  if (comm_) check(mxs_comm_sum_words(comm_, words, MXS_NORM_WORDS + 1, nullptr), "sum of the norm");
  not_finite = words[MXS_NORM_WORDS] > 0;

  mxs_verdict verdict = MXS_VERDICT_INIT;
  verdict.skipped = not_finite;
  verdict.norm = not_finite ? std::numeric_limits<double>::infinity() : mxs_norm_value(words);
  verdict.clip_factor = not_finite ? 1 : mxs_clip_factor(verdict.norm, step.clip_norm);
  if (!not_finite) ++step_number_;
  verdict.step_number = step_number_;
  clip_factor_ = verdict.clip_factor;
  return verdict;
}

mxs_elements Stepper::elements(const Piece &piece, const mxs_step &step) const {
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = model_.shape.dtype;
  elements.count = piece.count();
  elements.gradient = piece.gradient;
  elements.gradient_scale = step.gradient_scale * clip_factor_;
  elements.momentum = piece.momentum;
  elements.exp_avg = piece.exp_avg;
  elements.exp_avg_sq = piece.exp_avg_sq;
  elements.master = piece.master;
  elements.weights = piece.weights;
  elements.step_number = step_number_;
  return elements;
}

void Stepper::adamw(const Piece &piece, const mxs_step &step) {
  if (piece.count() == 0) return;
  const mxs_elements part = elements(piece, step);
  check(mxs_adamw(&part, &step.groups[model_.tensors[piece.tensor].group()]), "mxs_adamw");
}

void Stepper::momentum(const Piece &piece, const mxs_step &step, float *update) {
  if (piece.count() == 0) return;
  mxs_elements part = elements(piece, step);
  part.update = update;
  check(mxs_muon_momentum(&part, &step.groups[model_.tensors[piece.tensor].group()]), "mxs_muon_momentum");
}

void Stepper::apply(const Piece &piece, const mxs_step &step, int64_t matrix_rows, float *update) {
  if (piece.count() == 0) return;
  mxs_elements part = elements(piece, step);
  part.update = update;
  part.update_scale = mxs_muon_scale(MXS_PRESET_DEFAULT, matrix_rows, piece.columns);
  check(mxs_muon_apply(&part, &step.groups[model_.tensors[piece.tensor].group()]), "mxs_muon_apply");
}

void Stepper::orthogonalize(int64_t rows, int64_t columns, const float *source, float *target) {
  check(mxs_orthogonalize(orthogonalizers_.at({rows, columns}).get(), source, target), "mxs_orthogonalize");
}

void Stepper::step_whole(const std::vector<Piece> &pieces, const mxs_step &step, float *update) {
  for (const Piece &piece : pieces) {
    if (!muon(model_, piece)) {
      adamw(piece, step);
      continue;
    }
    momentum(piece, step, update);
    orthogonalize(piece.rows, piece.columns, update, update);
    apply(piece, step, piece.rows, update);
  }
}

uint64_t Stepper::prepare(const std::vector<std::pair<int64_t, int64_t>> &shapes) {
  uint64_t bytes = 0;
  for (const auto &[rows, columns] : shapes) {
    OrthogonalizerOwner &owner = orthogonalizers_[{rows, columns}];
    if (owner) continue;
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    options.thread_count = threads_;
    mxs_orthogonalizer *made = nullptr;
    check(mxs_orthogonalizer_create(&made, rows, columns, &options), "mxs_orthogonalizer_create");
    owner.reset(made);
    bytes += mxs_orthogonalizer_workspace_bytes(made);
  }
  return bytes;
}

std::vector<std::pair<int64_t, int64_t>> matrix_shapes(const Model &model, const std::vector<Piece> &pieces) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const Piece &piece : pieces)
    if (muon(model, piece)) shapes.emplace_back(piece.rows, piece.columns);
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

uint64_t largest_matrix(const Model &model, const std::vector<Piece> &pieces) {
  uint64_t largest = 0;
  for (const Piece &piece : pieces)
    if (muon(model, piece)) largest = std::max(largest, piece.count());
  return largest;
}

}  // namespace train
