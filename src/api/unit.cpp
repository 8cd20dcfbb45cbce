// SPDX-License-Identifier: Apache-2.0
// The door of unit.h.
#include "matrixshard/unit.h"

#include "api/door.hpp"
#include "api/values.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "matrixshard/collective.h"
#include "unit/unit.hpp"

using namespace mxs;

namespace {

constexpr int32_t slots_max = 65536;

mxs_status check_unit(const mxs_unit *unit) {
  return unit ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "unit is NULL");
}

mxs_status check_slots(int32_t slots, const char *name) {
  if (slots >= 0 && slots <= slots_max) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "options.%s is %d, not from 0 to %d", name, slots, slots_max);
}

mxs_status read_options(const mxs_unit_options *given, mxs_unit_options *options) {
  mxs_status status = read_struct(given, offsetof(mxs_unit_options, own_slot), "options", options);
  if (status != MXS_OK) return status;
  if (options->gather < MXS_GATHER_AUTO || options->gather > MXS_GATHER_BY_REFERENCE)
    return set_error(MXS_INVALID_ARGUMENT, "options.gather is %d, which is no MXS_GATHER_...", options->gather);
  status = check_slots(options->slots, "slots");
  if (status != MXS_OK) return status;
  status = check_slots(options->gradient_slots, "gradient_slots");
  if (status != MXS_OK) return status;
  if (options->flags & ~MXS_RANK_ORDER)
    return set_error(MXS_INVALID_ARGUMENT, "options.flags is %d; only MXS_RANK_ORDER (%d) is known", options->flags,
                     MXS_RANK_ORDER);
  if (options->memory != MXS_HOST && options->memory != MXS_CUDA)
    return set_error(MXS_INVALID_ARGUMENT, "options.memory is %d, not MXS_HOST or MXS_CUDA", options->memory);
  if (options->own_slot != 0 && options->own_slot != 1)
    return set_error(MXS_INVALID_ARGUMENT, "options.own_slot is %d, not 0 or 1", options->own_slot);
  return MXS_OK;
}

// Calls of a forked child end here: the unit's memory is not in it.
mxs_status enter(const mxs_unit *unit) {
  const mxs_status status = check_unit(unit);
  return status == MXS_OK ? unit->comm().check_process() : status;
}

// Runs body(call) of a function that ends in a call.
template <class Body>
mxs_status with_call(const mxs_unit *unit, const mxs_call *given, Body &&body) {
  return fenced([&] {
    mxs_call call = MXS_CALL_INIT;
    mxs_status status = enter(unit);
    if (status == MXS_OK) status = read_call(given, &call, unit->device() != nullptr);
    return status == MXS_OK ? body(call) : status;
  });
}

// Runs body(view), and gives the view to the caller if all went well.
template <class Body>
mxs_status with_view_out(const mxs_unit *unit, mxs_view *out, Body &&body) {
  return fenced([&] {
    mxs_view view = MXS_VIEW_INIT;
    mxs_status status = enter(unit);
    if (status == MXS_OK) status = check_out_struct(out, sizeof(mxs_view), "view");
    if (status == MXS_OK) status = body(&view);
    if (status == MXS_OK) write_struct(view, out);
    return status;
  });
}

// Runs body(view) of a function that takes one back.
template <class Body>
mxs_status with_view_in(const mxs_unit *unit, const mxs_view *given, Body &&body) {
  return fenced([&] {
    mxs_view view = MXS_VIEW_INIT;
    mxs_status status = enter(unit);
    if (status == MXS_OK && !given) status = set_error(MXS_INVALID_ARGUMENT, "view is NULL");
    if (status == MXS_OK) status = read_struct(given, sizeof(mxs_view), "view", &view);
    return status == MXS_OK ? body(view) : status;
  });
}

}  // namespace

extern "C" mxs_status mxs_unit_create(mxs_unit **unit, mxs_comm *comm, const mxs_plan *plan, int32_t index,
                                      const mxs_unit_options *options) {
  return fenced([&] {
    if (!unit) return set_error(MXS_INVALID_ARGUMENT, "unit is NULL");
    if (!comm) return set_error(MXS_INVALID_ARGUMENT, "comm is NULL");
    mxs_unit_options known = MXS_UNIT_OPTIONS_INIT;
    mxs_status status = read_options(options, &known);
    if (!plan) status = set_error(MXS_INVALID_ARGUMENT, "plan is NULL");
    if (known.replicas == comm) {
      known.replicas = nullptr;
      status = set_error(MXS_INVALID_ARGUMENT, "options.replicas is the unit's own comm; it must be one of ranks that "
                         "have the same place in other shard groups");
    }
    if (status != MXS_OK) return refuse_unit(*comm, status, index, known.replicas);
    std::unique_ptr<Unit> created;
    status = create_unit(&created, *comm, plan->value, index, known);
    if (status == MXS_OK) *unit = static_cast<mxs_unit *>(created.release());
    return status;
  });
}

extern "C" mxs_status mxs_unit_destroy(mxs_unit **unit) {
  return fenced([&] {
    if (!unit || !*unit) return MXS_OK;
    Unit *inner = *unit;
    const mxs_status status = destroy_unit(&inner);
    if (status == MXS_OK) *unit = nullptr;
    return status;
  });
}

extern "C" mxs_status mxs_unit_gather(mxs_unit *unit, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) { return unit->gather(call); });
}

extern "C" mxs_status mxs_unit_wait(mxs_unit *unit, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) { return unit->wait(call); });
}

extern "C" mxs_status mxs_unit_tensor(mxs_unit *unit, int32_t tensor, mxs_view *out) {
  return with_view_out(unit, out, [&](mxs_view *view) { return unit->tensor(tensor, view); });
}

extern "C" mxs_status mxs_unit_release(mxs_unit *unit, int32_t mode, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) {
    if (mode < MXS_FREE || mode > MXS_AUTO)
      return set_error(MXS_INVALID_ARGUMENT, "mode is %d, not MXS_FREE, MXS_PIN or MXS_AUTO", mode);
    return unit->release(mode, call);
  });
}

extern "C" mxs_status mxs_unit_gradient(mxs_unit *unit, int32_t tensor, int32_t flags, mxs_view *out) {
  return with_view_out(unit, out, [&](mxs_view *view) {
    if (flags != MXS_WRITE && flags != MXS_ADD)
      return set_error(MXS_INVALID_ARGUMENT, "flags is %d, not MXS_WRITE or MXS_ADD", flags);
    return unit->open_gradient(tensor, flags, view);
  });
}

extern "C" mxs_status mxs_unit_gradient_set(mxs_unit *unit, int32_t tensor, const mxs_view *given) {
  return with_view_in(unit, given, [&](const mxs_view &view) { return unit->set_gradient(tensor, view); });
}

extern "C" mxs_status mxs_unit_reduce(mxs_unit *unit, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) { return unit->reduce(call); });
}

extern "C" mxs_status mxs_unit_skip(mxs_unit *unit, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) { return unit->reduce_zeros(call); });
}

extern "C" mxs_status mxs_unit_discard(mxs_unit *unit) {
  return fenced([&] {
    const mxs_status status = enter(unit);
    if (status == MXS_OK) unit->discard();
    return status;
  });
}

extern "C" mxs_status mxs_unit_wait_reduce(mxs_unit *unit, const mxs_call *given) {
  return with_call(unit, given, [&](const mxs_call &call) { return unit->wait_reduce(call); });
}

extern "C" mxs_status mxs_unit_shard(mxs_unit *unit, uint64_t placement, mxs_view *out) {
  return with_view_out(unit, out, [&](mxs_view *view) { return unit->shard(placement, view); });
}

extern "C" mxs_status mxs_unit_commit(mxs_unit *unit, const mxs_view *given) {
  return with_view_in(unit, given, [&](const mxs_view &view) { return unit->commit(view); });
}

extern "C" mxs_status mxs_unit_shard_gradient(mxs_unit *unit, uint64_t placement, mxs_view *out) {
  return with_view_out(unit, out, [&](mxs_view *view) { return unit->shard_gradient(placement, view); });
}

extern "C" mxs_status mxs_unit_query(const mxs_unit *unit, mxs_unit_info *info) {
  return fenced([&] {
    mxs_status status = check_unit(unit);
    if (status != MXS_OK) return status;
    status = check_out_struct(info, sizeof(mxs_unit_info), "info");
    if (status != MXS_OK) return status;
    write_struct(unit->info(), info);
    return MXS_OK;
  });
}

extern "C" mxs_status mxs_unit_memory(const mxs_unit *unit, mxs_memory *memory) {
  return fenced([&] {
    mxs_status status = check_unit(unit);
    if (status != MXS_OK) return status;
    status = check_out_struct(memory, offsetof(mxs_memory, own_slots), "memory");
    if (status != MXS_OK) return status;
    write_struct(unit->memory(), memory);
    return MXS_OK;
  });
}
