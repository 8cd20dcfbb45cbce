// SPDX-License-Identifier: Apache-2.0
// How is a part of a tensor stepped without an optimizer object?
#include "pieces.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "layers.hpp"

namespace train {
namespace {

// Runs are dealt from one pool per use, from one cache line to the next.
uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

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

uint64_t element_count(const std::vector<Piece> &pieces) {
  uint64_t total = 0;
  for (const Piece &piece : pieces) total += piece.count();
  return total;
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

Stepper::Key Stepper::key_of(const Piece &piece) const {
  const mxs_rule rule = model_.tensors[piece.tensor].rule;
  if (rule == MXS_RULE_ADAMW) return {rule, 1, piece.rows * piece.columns};
  return {rule, piece.rows, piece.columns};
}

StepperOwner Stepper::make(const Key &key) const {
  const mxs_rule rule = std::get<0>(key);
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.dtype = model_.shape.dtype;
  matrices.rows = std::get<1>(key);
  matrices.columns = std::get<2>(key);
  mxs_muon_options muon = MXS_MUON_OPTIONS_INIT;
  mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
  mxs_adamw_options adamw = MXS_ADAMW_OPTIONS_INIT;
  muon.preset = shampoo.preset = soap.preset = options_.preset;
  muon.thread_count = shampoo.thread_count = soap.thread_count = adamw.thread_count = options_.thread_count;
  mxs_stepper *made = nullptr;
  switch (rule) {
    case MXS_RULE_SHAMPOO: check(mxs_shampoo_create(&made, &matrices, &shampoo), "mxs_shampoo_create"); break;
    case MXS_RULE_SOAP: check(mxs_soap_create(&made, &matrices, &soap), "mxs_soap_create"); break;
    case MXS_RULE_ADAMW: check(mxs_adamw_create(&made, &matrices, &adamw), "mxs_adamw_create"); break;
    default: check(mxs_muon_create(&made, &matrices, &muon), "mxs_muon_create");
  }
  return StepperOwner(made);
}

void Stepper::prepare(const std::vector<Piece> &pieces) {
  for (const Piece &piece : pieces) {
    if (piece.slice || piece.count() == 0) continue;
    StepperOwner &owner = steppers_[key_of(piece)];
    if (!owner) owner = make(key_of(piece));
  }
}

uint64_t Stepper::workspace_bytes() const {
  uint64_t most = 0;
  for (const auto &[key, stepper] : steppers_) most = std::max(most, mxs_stepper_workspace_bytes(stepper.get()));
  return most;
}

uint64_t Stepper::state_bytes(const Piece &piece) const {
  if (piece.count() == 0) return 0;
  return padded(piece.slice ? piece.count() * sizeof(float)
                            : mxs_stepper_state_bytes(steppers_.at(key_of(piece)).get()));
}

uint64_t Stepper::master_bytes(const std::vector<Piece> &pieces) const {
  uint64_t total = 0;
  for (const Piece &piece : pieces) total += padded(piece.count() * sizeof(float));
  return model_.shape.dtype == MXS_F32 ? 0 : total;
}

void Stepper::furnish(uint64_t seed, Ledger *ledger, std::vector<Piece> *pieces) {
  mxs_memory bytes = MXS_MEMORY_INIT;
  predict_furniture(*pieces, &bytes);
  auto *masters = static_cast<char *>(ledger->take(Use::masters, bytes.masters));
  auto *state = static_cast<char *>(ledger->take(Use::state, bytes.state));
  for (Piece &piece : *pieces) {
    if (masters) {
      piece.master = reinterpret_cast<float *>(masters);
      masters += padded(piece.count() * sizeof(float));
    }
    piece.state = state;
    state += state_bytes(piece);
    if (!piece.slice && piece.count() > 0)
      check(mxs_stepper_init(steppers_.at(key_of(piece)).get(), piece.state), "mxs_stepper_init");
    float *values = masters ? piece.master : static_cast<float *>(piece.weights);
    initial_weights(model_.tensors[piece.tensor], seed, piece.element_offset, piece.count(), values);
    if (masters) narrow(model_.shape.dtype, piece.master, piece.count(), piece.weights);
  }
}

void Stepper::predict_furniture(const std::vector<Piece> &pieces, mxs_memory *memory) const {
  uint64_t state = 0;
  for (const Piece &piece : pieces) state += state_bytes(piece);
  const uint64_t masters = master_bytes(pieces);
  add_bytes(memory, Use::masters, masters);
  add_bytes(memory, Use::state, state);
  memory->slack += page_slack(masters) + page_slack(state);
}

void Stepper::step_whole(const std::vector<Piece> &pieces, const mxs_step &step, void *workspace) {
  mxs_step_call call = MXS_STEP_CALL_INIT;
  call.workspace = workspace;
  call.workspace_bytes = workspace_bytes();
  call.gradient_scale = step.gradient_scale;
  call.clip_factor = clip_factor_;
  for (const Piece &piece : pieces) {
    if (piece.slice || piece.count() == 0) continue;
    call.values = &step.groups[model_.tensors[piece.tensor].group()];
    call.gradient = piece.gradient;
    call.weights = piece.weights;
    call.master = piece.master;
    call.state = piece.state;
    check(mxs_stepper_step(steppers_.at(key_of(piece)).get(), &call, nullptr), "mxs_stepper_step");
  }
}

mxs_elements Stepper::elements(const Piece &piece, const mxs_step &step) const {
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = model_.shape.dtype;
  elements.count = piece.count();
  elements.gradient = piece.gradient;
  elements.gradient_scale = step.gradient_scale * clip_factor_;
  elements.momentum = static_cast<float *>(piece.state);
  elements.master = piece.master;
  elements.weights = piece.weights;
  return elements;
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
  part.update_scale = mxs_muon_scale(options_.preset, matrix_rows, piece.columns);
  check(mxs_muon_apply(&part, &step.groups[model_.tensors[piece.tensor].group()]), "mxs_muon_apply");
}

void Stepper::orthogonalize(int64_t rows, int64_t columns, const float *source, float *target) {
  check(mxs_orthogonalize(orthogonalizers_.at({rows, columns}).get(), source, target), "mxs_orthogonalize");
}

uint64_t Stepper::prepare_slices(const std::vector<std::pair<int64_t, int64_t>> &shapes) {
  uint64_t bytes = 0;
  for (const auto &[rows, columns] : shapes) {
    OrthogonalizerOwner &owner = orthogonalizers_[{rows, columns}];
    if (owner) continue;
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    options.preset = options_.preset;
    options.thread_count = options_.thread_count;
    mxs_orthogonalizer *made = nullptr;
    check(mxs_orthogonalizer_create(&made, rows, columns, &options), "mxs_orthogonalizer_create");
    owner.reset(made);
    bytes += mxs_orthogonalizer_workspace_bytes(made);
  }
  return bytes;
}

int Stepper::newton_schulz_steps() const {
  int steps = 0;
  for (const auto &[shape, orthogonalizer] : orthogonalizers_) {
    const double longer = static_cast<double>(std::max(shape.first, shape.second));
    const double shorter = static_cast<double>(std::min(shape.first, shape.second));
    const double step_flops = 4 * longer * shorter * shorter + 2 * shorter * shorter * shorter;
    const int found = static_cast<int>(std::lround(mxs_orthogonalizer_flops(orthogonalizer.get()) / step_flops));
    if (steps != 0 && found != steps) throw std::logic_error("matrices have different numbers of Newton-Schulz steps");
    steps = found;
  }
  return steps;
}

std::vector<std::pair<int64_t, int64_t>> matrix_shapes(const Model &model, const std::vector<Piece> &pieces) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const Piece &piece : pieces)
    if (model.tensors[piece.tensor].is_matrix()) shapes.emplace_back(piece.rows, piece.columns);
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

}  // namespace train
