// SPDX-License-Identifier: Apache-2.0
// The door of kernels.h's steppers.
#include "matrixshard/kernels.h"

#include <algorithm>
#include <memory>

#include "api/door.hpp"
#include "api/rule_options.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/presets.hpp"
#include "optimizer/lone_stepper.hpp"
#include "optimizer/scale_heads.hpp"
#include "optimizer/step_matrices.hpp"

using namespace mxs;

struct mxs_stepper {
  std::unique_ptr<mxs::LoneStepper> inner;
};

// ---- making --------------------------------------------------------------------------------------------------------

namespace {

// The matrices, and the options in this release's form; make(matrices) begins with the rule's own.
template <class Make>
mxs_status create(mxs_stepper **stepper, const mxs_matrices *given, mxs_preset preset, int32_t thread_count,
                  const Make &make) {
  if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
  if (!given) return set_error(MXS_INVALID_ARGUMENT, "matrices is NULL");
  mxs_matrices read = MXS_MATRICES_INIT;
  StepMatrices matrices;
  mxs_status status = read_struct(given, sizeof read, "matrices", &read);
  if (status == MXS_OK) status = decide_matrices(read, &matrices);
  if (status == MXS_OK) status = check_threads(thread_count);
  auto made = std::make_unique<mxs_stepper>();
  if (status == MXS_OK) status = LoneStepper::create(&made->inner, std::move(matrices), preset, thread_count, make);
  if (status == MXS_OK) *stepper = made.release();
  return status;
}

// The rules whose options hold no pointer.
template <class Options>
mxs_status create_plain(mxs_stepper **stepper, const mxs_matrices *matrices, const Options *given, Options options,
                        mxs_status (*make)(std::unique_ptr<Stepper> *, const StepMatrices &, const Options &, Team *)) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = read_struct(given, sizeof options, "options", &options);
    if (status != MXS_OK) return status;
    return create(stepper, matrices, options.preset, options.thread_count,
                  [&](std::unique_ptr<Stepper> *made, const StepMatrices &decided, Team *team) {
                    return make(made, decided, options, team);
                  });
  });
}

}  // namespace

mxs_status mxs_muon_create(mxs_stepper **stepper, const mxs_matrices *matrices, const mxs_muon_options *given) {
  return fenced([&]() -> mxs_status {
    mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
    mxs_newton_schulz newton_schulz = MXS_NEWTON_SCHULZ_INIT;
    const mxs_status status = read_muon_options(given, "options", &options, &newton_schulz);
    if (status != MXS_OK) return status;
    return create(stepper, matrices, options.preset, options.thread_count,
                  [&](std::unique_ptr<Stepper> *made, const StepMatrices &decided, Team *team) {
                    return make_muon_stepper(made, decided, options, team);
                  });
  });
}

mxs_status mxs_shampoo_create(mxs_stepper **stepper, const mxs_matrices *matrices, const mxs_shampoo_options *options) {
  return create_plain<mxs_shampoo_options>(stepper, matrices, options, MXS_SHAMPOO_OPTIONS_INIT, make_shampoo_stepper);
}

mxs_status mxs_soap_create(mxs_stepper **stepper, const mxs_matrices *matrices, const mxs_soap_options *options) {
  return create_plain<mxs_soap_options>(stepper, matrices, options, MXS_SOAP_OPTIONS_INIT, make_soap_stepper);
}

mxs_status mxs_adamw_create(mxs_stepper **stepper, const mxs_matrices *matrices, const mxs_adamw_options *options) {
  return create_plain<mxs_adamw_options>(stepper, matrices, options, MXS_ADAMW_OPTIONS_INIT, make_adamw_stepper);
}

void mxs_stepper_destroy(mxs_stepper **stepper) {
  if (!stepper) return;
  delete *stepper;
  *stepper = nullptr;
}

// ---- what it is ----------------------------------------------------------------------------------------------------

uint64_t mxs_stepper_state_bytes(const mxs_stepper *stepper) { return stepper ? stepper->inner->state_bytes() : 0; }

uint64_t mxs_stepper_workspace_bytes(const mxs_stepper *stepper) {
  return stepper ? stepper->inner->workspace_bytes() : 0;
}

mxs_status mxs_stepper_describe(const mxs_stepper *stepper, mxs_stepper_info *info) {
  return fenced([&]() -> mxs_status {
    if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
    const mxs_status status = check_out_struct(info, sizeof *info, "info");
    if (status == MXS_OK) write_struct(stepper->inner->info(), info);
    return status;
  });
}

// ---- state ---------------------------------------------------------------------------------------------------------

uint64_t mxs_stepper_state_count(const mxs_stepper *stepper) {
  return stepper ? stepper->inner->state_parts().size() : 0;
}

mxs_status mxs_stepper_state(const mxs_stepper *stepper, uint64_t index, mxs_state_part *out) {
  return fenced([&]() -> mxs_status {
    if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
    const mxs_status status = check_out_struct(out, sizeof *out, "part");
    if (status != MXS_OK) return status;
    const std::vector<StatePart> &parts = stepper->inner->state_parts();
    if (index >= parts.size())
      return set_error(MXS_NOT_FOUND, "part %llu of a state that has %zu", static_cast<unsigned long long>(index),
                       parts.size());
    const StatePart &found = parts[index];
    mxs_state_part part = MXS_STATE_PART_INIT;
    part.dtype = found.dtype;
    part.name = found.name.c_str();
    part.offset = sizeof(StateHeader) + found.offset;
    part.bytes = found.bytes;
    part.dimension_count = static_cast<int32_t>(found.shape.size());
    std::copy(found.shape.begin(), found.shape.end(), part.shape);
    write_struct(part, out);
    return MXS_OK;
  });
}

mxs_status mxs_stepper_init(const mxs_stepper *stepper, void *state) {
  return fenced([&]() -> mxs_status {
    if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
    return stepper->inner->init(state);
  });
}

mxs_status mxs_stepper_check_state(const mxs_stepper *stepper, const void *state, uint64_t bytes) {
  return fenced([&]() -> mxs_status {
    if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
    return stepper->inner->check_state(state, bytes);
  });
}

// ---- steps ---------------------------------------------------------------------------------------------------------

namespace {

// body(call): values and call in this release's form.
template <class Body>
mxs_status run_call(const mxs_stepper *stepper, const mxs_step_call *given, Body &&body) {
  return fenced([&]() -> mxs_status {
    if (!stepper) return set_error(MXS_INVALID_ARGUMENT, "stepper is NULL");
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "call is NULL");
    mxs_step_call call = MXS_STEP_CALL_INIT;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_status status = read_struct(given, sizeof call, "call", &call);
    if (status == MXS_OK && !call.values) status = set_error(MXS_INVALID_ARGUMENT, "call.values is NULL");
    if (status == MXS_OK) status = read_struct(call.values, sizeof values, "call.values", &values);
    call.values = &values;
    return status == MXS_OK ? body(call) : status;
  });
}

// update: nullptr for a whole step.
mxs_status run_step(const mxs_stepper *stepper, const mxs_step_call *given, LoneStepper::Extent extent, float *update,
                    mxs_step_result *out) {
  return run_call(stepper, given, [&](const mxs_step_call &call) {
    mxs_step_result result = MXS_STEP_RESULT_INIT;
    mxs_status status = out ? check_out_struct(out, sizeof *out, "result") : MXS_OK;
    if (status == MXS_OK) status = stepper->inner->step(call, extent, update, &result);
    if (status == MXS_OK && out) write_struct(result, out);
    return status;
  });
}

}  // namespace

mxs_status mxs_stepper_step(const mxs_stepper *stepper, const mxs_step_call *call, mxs_step_result *result) {
  return run_step(stepper, call, LoneStepper::Extent::step, nullptr, result);
}

mxs_status mxs_stepper_update(const mxs_stepper *stepper, const mxs_step_call *call, float *update,
                              mxs_step_result *result) {
  return run_step(stepper, call, LoneStepper::Extent::update, update, result);
}

mxs_status mxs_stepper_apply(const mxs_stepper *stepper, const mxs_step_call *given, const float *update) {
  return run_call(stepper, given, [&](const mxs_step_call &call) { return stepper->inner->apply(call, update); });
}

// ---- QK-clip -------------------------------------------------------------------------------------------------------

mxs_status mxs_scale_heads(const mxs_matrices *given, void *weights, void *master, const float *factors, int32_t heads,
                           uint64_t step_number) {
  return fenced([&]() -> mxs_status {
    if (!given) return set_error(MXS_INVALID_ARGUMENT, "matrices is NULL");
    mxs_matrices read = MXS_MATRICES_INIT;
    mxs_status status = read_struct(given, sizeof read, "matrices", &read);
    if (status == MXS_OK && (read.block_rows || read.block_count != 0 || read.count > 1))
      status = set_error(MXS_INVALID_ARGUMENT, "heads are scaled of one matrix without blocks: describe its block");
    read.heads = heads;
    read.scale_rows = read.scale_columns = 0;  // of updates
    StepMatrices matrices;
    if (status == MXS_OK && heads < 1) status = set_error(MXS_INVALID_ARGUMENT, "heads is %d, not at least 1", heads);
    if (status == MXS_OK) status = decide_matrices(read, &matrices);
    if (status == MXS_OK) status = check_kernels();
    return status == MXS_OK ? scale_heads(matrices, weights, master, factors, step_number) : status;
  });
}
