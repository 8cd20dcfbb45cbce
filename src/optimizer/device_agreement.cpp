// SPDX-License-Identifier: Apache-2.0
// The agreement of a step over CUDA memory. Squares are formed on the device in every case; the rest goes one of two
// ways, the same on all ranks:
//
//   by NCCL      words of all ranks are summed on the stream, and a kernel makes the verdict of them: nobody waits
//                but who wants to know it
//   by the host  the words come here, go through the exchange that steps in host memory have, and the verdict goes
//                back: replicas, units of several comms, and comms that NCCL doesn't join
//
// Both give the bits that the host's agreement gives. A refusal on the device skips the step on all ranks. Whoever
// waits returns it, with the sums kept; else a later call tells it, and the sums are cleared, as the host could not
// know.
#include <cmath>
#include <cstring>

#include "base/status.hpp"
#include "optimizer/agreement.hpp"
#include "optimizer/optimizer.hpp"

namespace mxs {

DeviceStepValues Optimizer::values_for_device() const {
  DeviceStepValues values;
  values.hash = values_hash_;
  values.gradient_scale = gradient_scale_;
  values.clip_norm = clip_norm_;
  if (!broken_.empty()) values.failed_tensor = broken_tensor_ + 2;
  for (size_t at = 0; missing_is_error_ && at < units_.size() && values.missing_tensor == 0; ++at) {
    const int tensor = units_[at]->first_missing();
    if (tensor >= 0) values.missing_tensor = (static_cast<int64_t>(at) << 32 | tensor) + 1;
  }
  return values;
}

// The stream then has the verdict for what comes after it. waits: verdict_ is it, and what was refused is returned.
mxs_status Optimizer::put_agreement(DeviceStream stream, bool commits, bool waits, bool capturing) {
  agreed_ = false;
  mxs_status status = capturing ? MXS_OK : device_step_->enter(stream);
  for (Unit *unit : units_) {
    if (status == MXS_OK) status = unit->wait_reduce_stream(stream);
    if (status == MXS_OK) status = unit->end_views_stream(stream);
  }
  if (status == MXS_OK && !capturing) status = device_step_->put_values(values_for_device(), values_, stream);
  if (status == MXS_OK) status = device_step_->begin(stream);
  if (status != MXS_OK) return status;
  if (!comm_.sum_on_device) return exchange_for_device(stream, commits);
  status = comm_.sum_on_device(device_step_->words(), device_step_->word_count(), stream);
  if (status == MXS_OK) status = device_step_->conclude(commits, stream);
  if (status != MXS_OK || !waits) return status;
  status = wait_for_report(device_step_->fetch(stream));
  if (status != MXS_OK) return status;
  heed_report();
  if (device_step_->report().verdict.refusal != StepRefusal::none) {
    refusals_told_ = device_step_->report().verdict.refused_count;
    return refusal();
  }
  verdict_ = verdict_of_report();
  return MXS_OK;
}

AgreementPart Optimizer::part_from_device() const {
  const StepWords words = device_step_->squares();
  const StepRankWords own = device_step_->own_words();
  AgreementPart part;
  std::memcpy(part.squares.words, words.squares, sizeof words.squares);
  part.step_number = static_cast<uint64_t>(own.steps);
  part.values_hash = static_cast<uint64_t>(own.hash);
  if (own.found_inf) part.found_inf_rank = comm_.rank;
  if (own.failed_tensor) {
    part.broken_rank = comm_.rank;
    part.broken_tensor = own.failed_tensor - 2;
  }
  if (own.missing_tensor) {
    part.missing_rank = comm_.rank;
    part.missing_tensor = own.missing_tensor - 1;
  }
  return part;
}

mxs_status Optimizer::exchange_for_device(DeviceStream stream, bool commits) {
  mxs_status status = wait_for_report(device_step_->fetch(stream));
  if (status != MXS_OK) return status;
  heed_report();
  const AgreementPart mine = part_from_device();
  step_number_ = mine.step_number;
  AgreementPart total;
  status = comm_.gather ? exchange(mine, &total) : exchange_by_sum(mine, &total);
  if (comm_.gather && comm_.gather_replicas) status = confirm(status, total);
  if (status != MXS_OK) return status;
  conclude(total);
  DeviceStepReport report = device_step_->report();
  report.state.skip = verdict_.skipped;
  report.state.step_number = step_number_ + (verdict_.skipped ? 0 : 1);
  report.state.gradient_scale = gradient_scale_ * verdict_.clip_factor;
  if (commits) report.state.steps_done = report.state.step_number;
  ++report.verdict.concluded;
  report.verdict.step_number = report.state.step_number;
  report.verdict.norm = verdict_.norm;
  report.verdict.clip_factor = verdict_.clip_factor;
  report.verdict.skipped = verdict_.skipped;
  report.verdict.found_inf_rank = verdict_.found_inf_rank;
  report.verdict.refusal = StepRefusal::none;
  return device_step_->put_report(report, stream);
}

mxs_status Optimizer::agree_on_device(DeviceStream stream) {
  bool capturing = false;
  mxs_status status = check_capture(stream, true, &capturing);
  if (status == MXS_OK) status = put_agreement(stream, false, true, false);
  if (status == MXS_OK) status = device_step_->leave(stream);
  if (status != MXS_OK) return status;
  step_number_ = device_step_->report().state.steps_done;
  agreed_ = true;
  agreed_hash_ = values_hash_;
  agreed_operations_ = comm_.operations();
  return MXS_OK;
}

// ---- what the device tells -----------------------------------------------------------------------------------------

mxs_status Optimizer::wait_for_report(mxs_status fetched) const {
  mxs_status status = fetched;
  if (status == MXS_OK) status = comm_.wait_on_device(*device_, device_step_->mirrored());
  return status == MXS_OK ? device_step_->poll() : status;
}

void Optimizer::heed_report() {
  const DeviceStepState &state = device_step_->report().state;
  if (state.failed <= failures_told_) return;
  failures_told_ = state.failed;
  const size_t at = static_cast<size_t>(state.failed_piece >> 32);
  const size_t tensor = static_cast<size_t>(state.failed_piece & 0xffffffff);
  const bool known = state.failed_piece >= 0 && at < units_.size() && tensor < units_[at]->plan().tensors.size();
  broken_ = "tensor \"" + (known ? units_[at]->plan().tensors[tensor].name.substr(0, 200) : std::string("?")) +
            "\" of rank " + std::to_string(comm_.rank) + " was left out of a step: its momentum was not finite, though "
            "its gradient was, or its matrices could not be decomposed";
  broken_tensor_ = known ? state.failed_piece : -1;
}

// As the host's exchange says it; `refused` is of the latest step that was.
mxs_status Optimizer::refusal() const {
  const DeviceVerdict &verdict = device_step_->report().verdict;
  const int rank = verdict.refused_rank;
  AgreementPart total;
  switch (verdict.refused) {
    case StepRefusal::steps:
      return set_error(MXS_MISMATCH, "rank %d has done %llu steps, but rank 0 %llu; nothing changed", rank,
                       static_cast<unsigned long long>(verdict.refused_steps),
                       static_cast<unsigned long long>(verdict.first_steps));
    case StepRefusal::values:
      return set_error(MXS_MISMATCH,
                       "rank %d gives other group values, gradient_scale, clip_norm or missing than rank 0; nothing "
                       "changed", rank);
    case StepRefusal::failed:
      total.broken_rank = rank;
      total.broken_tensor = verdict.refused_tensor;
      return stopped(total);
    case StepRefusal::missing:
      total.missing_rank = rank;
      total.missing_tensor = verdict.refused_tensor;
      return missing(total);
    case StepRefusal::none: break;
  }
  return MXS_OK;
}

// Of the steps that have come to the host so far.
mxs_status Optimizer::tell_refusal() {
  const uint64_t count = device_step_->report().verdict.refused_count;
  if (count == refusals_told_) return MXS_OK;
  refusals_told_ = count;
  return refusal();
}

mxs_verdict Optimizer::verdict_of_report() const {
  const DeviceStepReport &report = device_step_->report();
  mxs_verdict verdict = MXS_VERDICT_INIT;
  verdict.skipped = report.verdict.skipped;
  verdict.step_number = report.verdict.step_number;
  verdict.norm = report.verdict.norm;
  verdict.clip_factor = report.verdict.clip_factor;
  verdict.found_inf_rank = report.verdict.found_inf_rank;
  return verdict;
}

mxs_status Optimizer::verdict_on_device() {
  if (!has_stepped_) return MXS_OK;
  const mxs_status status = wait_for_report(device_step_->fetch_latest());
  if (status != MXS_OK) return status;
  heed_report();
  const DeviceVerdict &verdict = device_step_->report().verdict;
  refusals_told_ = verdict.refused_count;
  if (verdict.refusal != StepRefusal::none) return refusal();
  if (verdict.concluded == 0)
    return set_error(MXS_NOT_FOUND, "a step was captured, but its graph has not been launched yet");
  latest_verdict_ = verdict_of_report();
  return MXS_OK;
}

uint64_t Optimizer::step_number() const {
  if (!device_) return step_number_;
  wait_for_report(device_step_->fetch_latest());
  return device_step_->report().state.steps_done;
}

// mends: what failed before is of no consequence any more.
mxs_status Optimizer::put_step_number(uint64_t step_number, bool mends) {
  mxs_status status = wait_for_report(device_step_->fetch_latest());
  if (status != MXS_OK) return status;
  DeviceStepReport report = device_step_->report();
  report.state.step_number = report.state.steps_done = step_number;
  if (mends) {
    report.state.failed = 0;
    report.state.failed_piece = -1;
    failures_told_ = 0;
  }
  status = device_step_->put_report(report, device_step_->own_stream());
  if (status == MXS_OK) status = device_step_->leave(device_step_->own_stream());
  return status == MXS_OK ? wait_for_report(device_step_->fetch(device_step_->own_stream())) : status;
}

}  // namespace mxs
