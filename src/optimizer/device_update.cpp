// SPDX-License-Identifier: Apache-2.0
// A step over CUDA memory, put on a stream: agreement, updates of this rank's pieces, cleared sums.
//
//   in a call     values | words | sum, verdict | updates, which look whether they are to do nothing | sums = 0
//   captured      the same without values, which mxs_optimizer_set_values puts before each launch
//
// A step that nobody waited for may have been skipped: then its views are taken as stale though nothing changed, and
// how many steps were done is known to the device alone until somebody asks.
#include <algorithm>
#include <string>

#include "base/status.hpp"
#include "optimizer/optimizer.hpp"

namespace mxs {

namespace {

// For profilers.
class NamedRange {
 public:
  NamedRange(Device &device, const char *name) : device_(device) { device_.push_range(name); }
  ~NamedRange() { device_.pop_range(); }
  NamedRange(const NamedRange &) = delete;

 private:
  Device &device_;
};

}  // namespace

mxs_status Optimizer::check_capture(DeviceStream stream, bool waits, bool *capturing) const {
  const mxs_status status = device_->is_capturing(stream, capturing);
  if (status != MXS_OK || !*capturing) return status;
  if (!comm_.sum_on_device)
    return set_error(MXS_NOT_BUILT, "the step's stream is being captured, but here the host carries the agreement: a "
                     "captured step wants NCCL to join all ranks of one comm, without replicas and without "
                     "options.agree");
  if (decomposes_)
    return set_error(MXS_NOT_BUILT, "the step's stream is being captured, but steps of shampoo and soap wait for the "
                     "device: their refreshes hang on the step number");
  if (missing_is_error_)
    return set_error(MXS_NOT_BUILT, "the step's stream is being captured, but MXS_MISSING_ERROR waits for the device; "
                     "capture with MXS_MISSING_ZERO");
  if (waits)
    return set_error(MXS_NOT_BUILT, "the step's stream is being captured, but who wants a verdict waits for the "
                     "device; capture without one, and ask mxs_optimizer_verdict after a launch");
  return MXS_OK;
}

mxs_status Optimizer::step_on_device(const mxs_step &step, mxs_verdict *verdict) {
  const DeviceStream stream = step.stream;
  const bool waits = verdict || missing_is_error_ || decomposes_ || !comm_.sum_on_device;
  bool capturing = false;
  mxs_status status = check_capture(stream, verdict != nullptr, &capturing);
  if (status != MXS_OK) return status;
  const NamedRange range(*device_, "optimizer step");
  // All ranks take part in this step whatever is to be told of those before: else they would part.
  mxs_status earlier = capturing ? MXS_OK : device_step_->poll();
  if (earlier == MXS_OK) {
    heed_report();
    earlier = tell_refusal();
  }
  const std::string sentence = earlier == MXS_OK ? "" : last_error_text();
  const bool holds = !capturing && agreement_holds();
  if (!holds) status = put_agreement(stream, true, waits, capturing);
  else if (status = device_step_->enter(stream); status == MXS_OK)
    status = device_step_->put_steps_done(verdict_.step_number, stream);
  if (status != MXS_OK) return status;
  agreed_ = false;
  const bool changes = !(waits || holds) || verdict_.skipped == 0;
  const mxs_status updated = changes ? put_updates(stream) : MXS_OK;
  const std::string why = updated == MXS_OK ? "" : last_error_text();
  status = finish_on_device(changes, stream, capturing);
  has_stepped_ = true;
  if (updated != MXS_OK) return set_error(updated, "%s", why.c_str());
  if (status != MXS_OK) return status;
  if (waits || holds) step_number_ = verdict_.step_number;
  if (earlier != MXS_OK)
    return set_error(earlier, "a step before this one was refused on all ranks: %s. This one was put on the stream",
                     sentence.c_str());
  if (verdict) *verdict = verdict_;
  return MXS_OK;
}

mxs_status Optimizer::finish_on_device(bool changes, DeviceStream stream, bool capturing) {
  mxs_status status = MXS_OK;
  for (size_t i = 0; i < units_.size() && status == MXS_OK; ++i)
    status = units_[i]->finish_step(changes && unit_changes_[i], stream);
  if (status != MXS_OK) return status;
  if (capturing) {
    device_step_->expect_launches(stream);
    return MXS_OK;
  }
  status = device_step_->mirror(stream);
  return status == MXS_OK ? device_step_->leave(stream) : status;
}

// A piece that can't be launched is left out, and the next agreement says so: as on the host.
mxs_status Optimizer::put_updates(DeviceStream stream) {
  const TracedStep traced(comm_.tracer, step_number_ + 1);  // of putting it on the stream
  mxs_status first = MXS_OK;
  for (const OptimizedPiece &piece : pieces_) {
    const mxs_status status = put_update(piece, stream);
    if (status == MXS_OK || first != MXS_OK) continue;
    first = status;
    const PlannedTensor &tensor = piece.unit->plan().tensors[static_cast<size_t>(piece.owned->tensor)];
    broken_ = "tensor \"" + tensor.name.substr(0, 200) + "\" of rank " + std::to_string(comm_.rank) +
              " was left out of a step: " + last_error_text();
    broken_tensor_ = piece.number;
  }
  return first == MXS_OK ? MXS_OK : set_error(first, "%s", broken_.c_str());
}

mxs_status Optimizer::put_update(const OptimizedPiece &piece, DeviceStream stream) {
  if (!piece.device_stepper) return MXS_OK;  // external: the caller steps it
  DeviceStepCall call;
  call.state_of_step = device_step_->state();
  call.values = device_step_->values(piece.group);
  call.piece = piece.number;
  call.gradient = piece.owned->gradient;
  call.weights = piece.owned->weights;
  call.master = piece.owned->master;
  call.state = piece.state;
  call.workspace = device_workspace_.data();
  call.step_number = verdict_.step_number;
  call.host_values = &values_[static_cast<size_t>(piece.group)];
  return piece.device_stepper->enqueue(call, stream);
}

mxs_status Optimizer::set_values(const mxs_step &step) {
  if (!device_)
    return set_error(MXS_INVALID_ARGUMENT, "the units are in host memory, whose steps take their values when they are "
                     "called; mxs_optimizer_set_values is for CUDA memory");
  mxs_status status = read(step);
  if (status != MXS_OK) return status;
  if (missing_is_error_)
    return set_error(MXS_INVALID_ARGUMENT, "step.missing is MXS_MISSING_ERROR, which waits for the device: a captured "
                     "step, which these values are for, can't");
  bool capturing = false;
  status = device_->is_capturing(step.stream, &capturing);
  if (status == MXS_OK && capturing)
    return set_error(MXS_INVALID_ARGUMENT, "the stream is being captured: every launch would put the same values; call "
                     "mxs_optimizer_set_values before each launch");
  agreed_ = false;
  if (status == MXS_OK) status = device_step_->poll();
  if (status == MXS_OK) status = device_step_->enter(step.stream);
  // What the launches before made of it, as far as that is over when it is looked at.
  if (status == MXS_OK) status = device_step_->mirror(step.stream);
  if (status == MXS_OK) status = device_step_->put_values(values_for_device(), values_, step.stream);
  if (status == MXS_OK) status = device_step_->leave(step.stream);
  if (status != MXS_OK) return status;
  heed_report();
  return tell_refusal();
}

// Without a stream: the legacy default one orders it.
mxs_status Optimizer::clear_on_device() {
  mxs_status status = device_step_->enter(nullptr);
  for (Unit *unit : units_) {
    if (status == MXS_OK) status = unit->wait_reduce_stream(nullptr);
    if (status == MXS_OK) status = unit->clear_sums(DeviceStream{});
  }
  if (status == MXS_OK) status = device_step_->leave(nullptr);
  if (status == MXS_OK) status = device_step_->poll();
  if (status != MXS_OK) return status;
  heed_report();
  return tell_refusal();
}

mxs_status Optimizer::kernel_on_device(const OptimizedPiece &piece, mxs_kernel_info *info) const {
  info->backend = piece.device_stepper->backend();
  info->flops = piece.device_stepper->flops();
  info->product_dtype = piece.device_stepper->product_dtype();
  std::vector<std::byte> state(piece.stepper->state_bytes());
  const DeviceStream stream = device_step_->own_stream();
  mxs_status status = wait_for_report(device_step_->fetch_latest());
  if (status == MXS_OK) status = device_->copy(state.data(), piece.state, state.size(), stream);
  if (status == MXS_OK) status = device_->synchronize(stream);
  if (status == MXS_OK) info->failed_count = piece.stepper->failed_count(state.data());
  return status;
}

}  // namespace mxs
