// SPDX-License-Identifier: Apache-2.0
// The step itself, and what can be asked about it.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/dtype.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "optimizer/optimizer.hpp"

namespace mxs {

// Signs as torch.optim wants them.
mxs_status check_values(const char *whose, const mxs_group_values &values) {
  const struct {
    const char *name;
    float value;
    bool good;
  } fields[] = {
      {"lr", values.lr, values.lr >= 0 && std::isfinite(values.lr)},
      {"weight_decay", values.weight_decay, values.weight_decay >= 0 && std::isfinite(values.weight_decay)},
      {"momentum", values.momentum, values.momentum >= 0 && values.momentum < 1},
      {"beta1", values.beta1, values.beta1 >= 0 && values.beta1 < 1},
      {"beta2", values.beta2, values.beta2 >= 0 && values.beta2 < 1},
      {"epsilon", values.epsilon, values.epsilon >= 0 && std::isfinite(values.epsilon)},
  };
  for (const auto &field : fields)
    if (!field.good)
      return set_error(MXS_INVALID_ARGUMENT, "%s.%s is %g, which is no value for it", whose, field.name,
                       static_cast<double>(field.value));
  return MXS_OK;
}

namespace {

uint64_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

mxs_status Optimizer::read(const mxs_step &step) {
  if (!std::isfinite(step.gradient_scale))
    return set_error(MXS_INVALID_ARGUMENT, "step.gradient_scale is %g", static_cast<double>(step.gradient_scale));
  if (!(step.clip_norm >= 0) || !std::isfinite(step.clip_norm))
    return set_error(MXS_INVALID_ARGUMENT, "step.clip_norm is %g, not 0 or a positive number",
                     static_cast<double>(step.clip_norm));
  if (step.group_count < 0 || (step.group_count > 0 && !step.groups))
    return set_error(MXS_INVALID_ARGUMENT, "step has %d groups at %p", step.group_count,
                     static_cast<const void *>(step.groups));
  const size_t stride = step.group_count > 0 ? step.groups[0].size : 0;
  if (step.group_count > 0 && (stride < sizeof(mxs_group_values) || stride > 4096))
    return set_error(MXS_INVALID_ARGUMENT, "step.groups[0].size is %zu; set it by its INIT macro", stride);
  Fingerprint hash;
  for (size_t group = 0; group < group_used_.size(); ++group) {
    if (!group_used_[group]) continue;
    const int number = static_cast<int>(group);
    if (number >= step.group_count)
      return set_error(MXS_INVALID_ARGUMENT, "tensors are in group %d, but the step has values for %d groups only",
                       number, step.group_count);
    mxs_group_values values;
    std::memcpy(&values, reinterpret_cast<const char *>(step.groups) + group * stride, sizeof values);
    if (values.size != stride)
      return set_error(MXS_INVALID_ARGUMENT, "step.groups[%d].size is %u, but that of group 0 is %zu", number,
                       values.size, stride);
    char whose[32];
    std::snprintf(whose, sizeof whose, "step.groups[%d]", number);
    const mxs_status status = check_values(whose, values);
    if (status != MXS_OK) return status;
    for (float value : {values.lr, values.weight_decay, values.momentum, values.beta1, values.beta2, values.epsilon})
      hash.add(bits_of(value));
    values_[group] = values;
  }
  gradient_scale_ = step.gradient_scale == 0 ? 1.0f : step.gradient_scale;
  clip_norm_ = step.clip_norm;
  values_hash_ = hash.add(bits_of(gradient_scale_)).add(bits_of(clip_norm_)).value();
  return MXS_OK;
}

mxs_status Optimizer::check_idle(const char *what) const {
  if (!broken_.empty())
    return set_error(MXS_INTERNAL, "%s; load weights and state again into new units", broken_.c_str());
  for (const Unit *unit : units_) {
    const mxs_status status = unit->check_idle(what);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status Optimizer::agree(const mxs_step &step, mxs_verdict *verdict) {
  mxs_status status = check_idle("mxs_optimizer_agree");
  if (status == MXS_OK) status = read(step);
  if (status == MXS_OK) status = reach_agreement();
  if (status == MXS_OK) *verdict = verdict_;
  return status;
}

mxs_status Optimizer::step(const mxs_step &step, mxs_verdict *verdict) {
  mxs_status status = check_idle("mxs_optimizer_step");
  if (status == MXS_OK) status = read(step);
  // An agreement serves one step, with equal values, and as long as nothing was gathered or reduced after it.
  if (status == MXS_OK && !agreement_holds()) status = reach_agreement();
  if (status != MXS_OK) return status;
  agreed_ = false;
  const bool changes = verdict_.skipped == 0;
  if (changes) {
    status = update();
    if (status != MXS_OK) return status;
    ++step_number_;
  }
  for (size_t i = 0; i < units_.size(); ++i) units_[i]->finish_step(changes && unit_changes_[i]);
  if (verdict) *verdict = verdict_;
  return MXS_OK;
}

mxs_status Optimizer::update() {
  for (const OptimizedPiece &piece : pieces_) {
    const mxs_status status = update_piece(piece);
    if (status == MXS_OK) continue;
    // Only a momentum that isn't finite comes here: gradients have been checked.
    const PlannedTensor &tensor = piece.unit->plan().tensors[static_cast<size_t>(piece.owned->tensor)];
    broken_ = "step " + std::to_string(step_number_ + 1) + " stopped at tensor \"" + tensor.name.substr(0, 200) +
              "\" of rank " + std::to_string(comm_.rank) + ": " + last_error_text();
    return set_error(MXS_INTERNAL, "%s", broken_.c_str());
  }
  return MXS_OK;
}

mxs_status Optimizer::update_piece(const OptimizedPiece &piece) {
  if (!piece.first) return MXS_OK;  // external: the caller steps it
  const mxs_group_values &values = values_[static_cast<size_t>(piece.group)];
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = piece.owned->dtype;
  elements.count = piece.owned->element_count;
  elements.gradient = piece.owned->gradient;
  elements.gradient_scale = gradient_scale_ * verdict_.clip_factor;
  elements.master = static_cast<float *>(piece.owned->master);
  elements.weights = piece.owned->weights;
  elements.step_number = step_number_ + 1;
  if (piece.rule == MXS_RULE_ADAMW) {
    elements.exp_avg = piece.first;
    elements.exp_avg_sq = piece.second;
    adamw(elements, values);
    return MXS_OK;
  }
  elements.momentum = piece.first;
  elements.update = update_;
  muon_momentum(elements, values);
  if (piece.matrices.size() == 1) {
    const OptimizedMatrix &matrix = piece.matrices[0];
    elements.update_scale = matrix.update_scale;
    const size_t stride = static_cast<size_t>(matrix.row_stride);
    const MatrixSource source = {update_, stride};
    const MatrixTarget target = {update_, stride};
    const mxs_status status = matrix.orthogonalizer->run(&source, &target, 1, nullptr);
    if (status == MXS_OK) muon_apply(elements, values);
    return status;
  }
  for (const OptimizedMatrix &matrix : piece.matrices) {
    const mxs_status status = update_column_block(matrix, elements, values);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// Gathered out of the placement's update, orthogonalised, and applied row by row: the update isn't written back, and
// the bits are those of a tensor of its own.
mxs_status Optimizer::update_column_block(const OptimizedMatrix &matrix, const mxs_elements &whole,
                                          const mxs_group_values &values) {
  const size_t rows = static_cast<size_t>(matrix.rows), columns = static_cast<size_t>(matrix.columns);
  const size_t stride = static_cast<size_t>(matrix.row_stride), width = dtype_bytes(whole.dtype);
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(block_ + row * columns, update_ + matrix.offset + row * stride, columns * sizeof(float));
  const MatrixSource source = {block_, columns};
  const MatrixTarget target = {block_, columns};
  const mxs_status status = matrix.orthogonalizer->run(&source, &target, 1, nullptr);
  if (status != MXS_OK) return status;
  mxs_elements elements = whole;
  elements.count = columns;
  elements.update_scale = matrix.update_scale;
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = matrix.offset + row * stride;
    elements.update = block_ + row * columns;
    elements.master = whole.master ? whole.master + first : nullptr;
    elements.weights = static_cast<std::byte *>(whole.weights) + first * width;
    muon_apply(elements, values);
  }
  return MXS_OK;
}

mxs_status Optimizer::clear() {
  agreed_ = false;
  for (Unit *unit : units_) {
    const mxs_status status = unit->wait_reduce(0);
    if (status != MXS_OK) return status;
  }
  for (Unit *unit : units_) unit->clear_sums();
  return MXS_OK;
}

void Optimizer::set_step_number(uint64_t step_number) {
  step_number_ = step_number;
  agreed_ = false;
}

namespace {

mxs_view view_of(const OptimizedPiece &piece, float *data) {
  const Placement &placement = piece.unit->plan().placements[piece.owned->placement];
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = MXS_F32;
  view.dimension_count = static_cast<int32_t>(placement.shape.size());
  view.data = data;
  view.bytes = piece.owned->element_count * sizeof(float);
  int64_t stride = 1;
  for (size_t i = placement.shape.size(); i-- > 0;) {
    view.shape[i] = placement.shape[i];
    view.strides[i] = stride;
    stride *= placement.shape[i];
  }
  view.generation = piece.unit->generation();
  view.unit = piece.unit->index();
  view.tensor = piece.owned->tensor;
  return view;
}

}  // namespace

mxs_status Optimizer::state(uint64_t index, mxs_state_info *info) const {
  uint64_t seen = 0;
  for (const OptimizedPiece &piece : pieces_)
    for (float *data : {piece.first, piece.second}) {
      if (!data || seen++ != index) continue;
      info->tensor = piece.owned->tensor;
      info->placement = piece.owned->placement;
      info->name = piece.rule == MXS_RULE_MUON ? "momentum" : data == piece.first ? "exp_avg" : "exp_avg_sq";
      info->view = view_of(piece, data);
      return MXS_OK;
    }
  return set_error(MXS_NOT_FOUND, "piece of state %llu, but this rank has %llu",
                   static_cast<unsigned long long>(index), static_cast<unsigned long long>(state_count_));
}

mxs_status Optimizer::kernel(uint64_t placement, mxs_kernel_info *info) const {
  for (const OptimizedPiece &piece : pieces_) {
    if (piece.owned->placement != placement) continue;
    info->rule = piece.rule;
    info->backend = !piece.matrices.empty() ? piece.backends.c_str() : piece.first ? kernels().name : "";
    const Plan &plan = piece.unit->plan();
    info->flops = piece_flops(plan.tensors[static_cast<size_t>(piece.owned->tensor)], plan.placements[placement]);
    return MXS_OK;
  }
  return set_error(MXS_NOT_FOUND, "placement %llu is not stepped by rank %d",
                   static_cast<unsigned long long>(placement), comm_.rank);
}

}  // namespace mxs
