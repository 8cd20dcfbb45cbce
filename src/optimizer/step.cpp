// SPDX-License-Identifier: Apache-2.0
// The step itself, and what can be asked about it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "optimizer/optimizer.hpp"

namespace mxs {

// Signs as torch.optim wants them.
mxs_status check_values(const char *whose, const mxs_group_values &values, bool beta2_may_be_one) {
  constexpr const char *from_zero = "0 or more, and finite", *below_one = "0 or more, and below 1";
  const struct {
    const char *name;
    float value;
    bool good;
    const char *wanted;
  } fields[] = {
      {"lr", values.lr, values.lr >= 0 && std::isfinite(values.lr), from_zero},
      {"weight_decay", values.weight_decay, values.weight_decay >= 0 && std::isfinite(values.weight_decay), from_zero},
      {"momentum", values.momentum, values.momentum >= 0 && values.momentum < 1, below_one},
      {"beta1", values.beta1, values.beta1 >= 0 && values.beta1 < 1, below_one},
      {"beta2", values.beta2, values.beta2 >= 0 && (values.beta2 < 1 || (beta2_may_be_one && values.beta2 == 1)),
       beta2_may_be_one ? "0 or more, and at most 1" : below_one},
      {"epsilon", values.epsilon, values.epsilon >= 0 && std::isfinite(values.epsilon), from_zero},
  };
  for (const auto &field : fields)
    if (!field.good)
      return set_error(MXS_INVALID_ARGUMENT, "%s.%s is %g; it must be %s", whose, field.name,
                       static_cast<double>(field.value), field.wanted);
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
  if (step.missing != MXS_MISSING_ZERO && step.missing != MXS_MISSING_ERROR)
    return set_error(MXS_INVALID_ARGUMENT, "step.missing is %d, not MXS_MISSING_ZERO or MXS_MISSING_ERROR",
                     step.missing);
  const size_t stride = step.group_count > 0 ? step.groups[0].size : 0;
  if (step.group_count > 0 && (stride < sizeof(mxs_group_values) || stride > 4096))
    return set_error(MXS_INVALID_ARGUMENT, "step.groups[0].size is %zu; set it by its INIT macro", stride);
  Fingerprint hash;
  hash.add(options_hash_);
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
    const mxs_status status = check_values(whose, values, !group_wants_beta2_[group]);
    if (status != MXS_OK) return status;
    for (float value : {values.lr, values.weight_decay, values.momentum, values.beta1, values.beta2, values.epsilon})
      hash.add(bits_of(value));
    values_[group] = values;
  }
  gradient_scale_ = step.gradient_scale == 0 ? 1.0f : step.gradient_scale;
  clip_norm_ = step.clip_norm;
  missing_is_error_ = step.missing == MXS_MISSING_ERROR;
  hash.add(bits_of(gradient_scale_)).add(bits_of(clip_norm_));
  values_hash_ = hash.add(static_cast<uint64_t>(step.missing)).value();
  has_values_ = true;
  return MXS_OK;
}

mxs_status Optimizer::check_idle(const char *what) const {
  for (const Unit *unit : units_) {
    const mxs_status status = unit->check_idle(what);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status Optimizer::agree(const mxs_step &step, mxs_verdict *verdict) {
  mxs_status status = check_idle("mxs_optimizer_agree");
  if (status == MXS_OK) status = read(step);
  if (status == MXS_OK) status = device_ ? agree_on_device(step.stream) : reach_agreement();
  if (status == MXS_OK) *verdict = verdict_;
  return status;
}

mxs_status Optimizer::step(const mxs_step &step, mxs_verdict *verdict) {
  mxs_status status = check_idle("mxs_optimizer_step");
  if (status == MXS_OK) status = read(step);
  if (status == MXS_OK && device_) {
    device_->push_range("step");
    status = step_on_device(step, verdict);
    device_->pop_range();
    return status;
  }
  // An agreement serves one step, with equal values, and as long as nothing was gathered or reduced after it.
  if (status == MXS_OK && !agreement_holds()) status = reach_agreement();
  if (status != MXS_OK) return status;
  agreed_ = false;
  const bool changes = verdict_.skipped == 0;
  if (changes && backup_is_old_) status = renew_backup();
  if (status != MXS_OK) return status;  // nothing has changed
  if (changes) {
    status = update();
    ++step_number_;
  }
  for (size_t i = 0; i < units_.size(); ++i) units_[i]->finish_step(changes && unit_changes_[i]);
  if (changes && backup_) {
    const std::string sentence = status == MXS_OK ? "" : last_error_text();
    const mxs_status set_off = back_up(step_number_);
    status = status == MXS_OK ? set_off : set_error(status, "%s", sentence.c_str());
  }
  has_stepped_ = true;
  latest_verdict_ = verdict_;
  if (status == MXS_OK && verdict) *verdict = verdict_;
  return status;
}

// Of one rank alone nobody keeps anything.
bool Optimizer::changed_since_backup() const {
  if (!backup_ || backup_->alone()) return false;
  uint64_t changes = 0;
  for (const Unit *unit : units_) changes += unit->changes();
  return !backs_up_step_ || state_given_ || changes != changes_backed_up_;
}

mxs_status Optimizer::back_up(uint64_t step_number) {
  changes_backed_up_ = 0;
  for (const Unit *unit : units_) changes_backed_up_ += unit->changes();
  backs_up_step_ = true;
  state_given_ = false;
  backup_is_old_ = false;
  return backup_->begin(step_number, !broken_.empty());
}

// Of the step that was done last, as its bytes are now. When it is here it may not be everywhere; when all have said so
// it is.
mxs_status Optimizer::renew_backup() {
  mxs_status status = back_up(step_number_);
  if (status == MXS_OK) status = backup_->finish();
  if (status != MXS_OK || backup_->alone()) return status;
  const uint64_t kept = backup_->kept();
  return comm_.gather(&kept, gathered_.data(), sizeof kept);
}

mxs_status Optimizer::latest_verdict(mxs_verdict *verdict) {
  mxs_status status = MXS_OK;
  if (device_) status = verdict_on_device();
  if (status != MXS_OK) return status;
  if (!has_stepped_) return set_error(MXS_NOT_FOUND, "there was no step yet that could have a verdict");
  *verdict = latest_verdict_;
  return MXS_OK;
}

// A piece that fails stays as it was; the others are stepped, as they are on other ranks, which hear of it in the next
// agreement.
mxs_status Optimizer::update() {
  const TracedStep traced(comm_.tracer, step_number_ + 1);
  mxs_status first = MXS_OK;
  for (const OptimizedPiece &piece : pieces_) {
    const mxs_status status = update_piece(piece);
    if (status == MXS_OK || first != MXS_OK) continue;
    first = status;  // a co-owner that is no more is no fault of ours
    const PlannedTensor &tensor = piece.unit->plan().tensors[static_cast<size_t>(piece.owned->tensor)];
    broken_ = "tensor \"" + tensor.name.substr(0, 200) + "\" of rank " + std::to_string(comm_.rank) +
              " was left out of step " + std::to_string(step_number_ + 1) + ": " + last_error_text();
    const auto at = std::find(units_.begin(), units_.end(), piece.unit) - units_.begin();
    broken_tensor_ = static_cast<int64_t>(at) << 32 | piece.owned->tensor;
  }
  return first == MXS_OK ? MXS_OK : set_error(first, "%s", broken_.c_str());
}

mxs_status Optimizer::update_piece(const OptimizedPiece &piece) {
  if (!piece.stepper) return MXS_OK;  // external: the caller steps it
  StepCall call;
  call.values = &values_[static_cast<size_t>(piece.group)];
  call.step_number = step_number_ + 1;
  call.gradient_scale = gradient_scale_ * verdict_.clip_factor;
  call.gradient = piece.owned->gradient;
  call.weights = piece.owned->weights;
  call.master = piece.owned->master;
  call.state = piece.state;
  call.workspace = workspace_.get();
  return piece.stepper->step(call);
}

mxs_status Optimizer::clear() {
  agreed_ = false;
  if (device_) return clear_on_device();
  for (Unit *unit : units_) {
    const mxs_status status = unit->wait_reduce(0);
    if (status != MXS_OK) return status;
  }
  for (Unit *unit : units_) unit->clear_sums();
  return MXS_OK;
}

mxs_status Optimizer::set_step_number(uint64_t step_number) {
  const mxs_status status = device_ ? put_step_number(step_number, false) : MXS_OK;
  if (status != MXS_OK) return status;
  step_number_ = step_number;
  agreed_ = false;
  forget_backups();
  return MXS_OK;
}

// Nobody is to go back to before what was just loaded.
void Optimizer::forget_backups() {
  if (backup_) backup_->forget();
  backs_up_step_ = false;
}

mxs_status Optimizer::resume(uint64_t step_number) {
  const mxs_status status = device_ ? put_step_number(step_number, true) : MXS_OK;
  if (status != MXS_OK) return status;
  step_number_ = step_number;
  agreed_ = false;
  forget_backups();
  broken_.clear();
  broken_tensor_ = -1;
  return MXS_OK;
}

void Optimizer::stop_after_failed_load(const char *sentence) {
  broken_ = sentence;
  broken_tensor_ = -1;
}

const std::vector<StatePart> &Optimizer::parts_of(mxs_rule rule) const {
  static const std::vector<StatePart> none;
  for (const RuleParts &each : rule_parts_)
    if (each.rule == rule) return each.parts;
  return none;
}

mxs_preset Optimizer::preset_of(mxs_rule rule) const {
  for (const RuleParts &each : rule_parts_)
    if (each.rule == rule) return each.preset;
  return MXS_PRESET_DEFAULT;
}

namespace {

// adamw steps a placement as a run of elements, whatever its shape.
const std::vector<int64_t> &shape_of(const OptimizedPiece &piece, const StatePart &part) {
  return piece.rule == MXS_RULE_ADAMW ? piece.unit->plan().placements[piece.owned->placement].shape : part.shape;
}

mxs_view view_of(const OptimizedPiece &piece, const StatePart &part) {
  const std::vector<int64_t> &shape = shape_of(piece, part);
  mxs_view view = MXS_VIEW_INIT;
  view.dtype = part.dtype;
  view.dimension_count = static_cast<int32_t>(shape.size());
  view.data = piece.state + part.offset;
  view.bytes = part.bytes;
  if (piece.device_stepper) view.memory = MXS_CUDA;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.shape[i] = shape[i];
    view.strides[i] = stride;
    stride *= shape[i];
  }
  view.generation = piece.unit->generation();
  view.unit = piece.unit->index();
  view.tensor = piece.owned->tensor;
  return view;
}

}  // namespace

mxs_status Optimizer::state(uint64_t index, mxs_state_info *info) const {
  uint64_t left = index;
  for (const OptimizedPiece &piece : pieces_) {
    if (!piece.stepper) continue;
    const std::vector<StatePart> &parts = piece.stepper->state_parts();
    if (left >= parts.size()) {
      left -= parts.size();
      continue;
    }
    info->tensor = piece.owned->tensor;
    info->placement = piece.owned->placement;
    info->name = parts[left].name.c_str();
    info->view = view_of(piece, parts[left]);
    return MXS_OK;
  }
  return set_error(MXS_NOT_FOUND, "piece of state %llu, but this rank has %llu",
                   static_cast<unsigned long long>(index), static_cast<unsigned long long>(state_count_));
}

mxs_status Optimizer::kernel(uint64_t placement, mxs_kernel_info *info) const {
  for (const OptimizedPiece &piece : pieces_) {
    if (piece.owned->placement != placement) continue;
    info->rule = piece.rule;
    info->backend = "";
    if (!piece.stepper) return MXS_OK;
    info->backend = piece.rule == MXS_RULE_ADAMW ? kernels().name : piece.stepper->backend();
    info->flops = piece.stepper->flops();
    info->product_dtype = piece.stepper->product_dtype();
    if (device_) return kernel_on_device(piece, info);
    info->failed_count = piece.stepper->failed_count(piece.state);
    return MXS_OK;
  }
  return set_error(MXS_NOT_FOUND, "placement %llu is not stepped by rank %d",
                   static_cast<unsigned long long>(placement), comm_.rank);
}

}  // namespace mxs
