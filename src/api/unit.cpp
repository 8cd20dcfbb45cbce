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
  mxs_status status = read_struct(given, sizeof(mxs_unit_options), "options", options);
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
  if (options->memory == MXS_CUDA)
    return set_error(MXS_NOT_BUILT, "options.memory is MXS_CUDA, but this release has no CUDA part; use MXS_HOST");
  if (options->memory != MXS_HOST)
    return set_error(MXS_INVALID_ARGUMENT, "options.memory is %d, not MXS_HOST", options->memory);
  if (options->replicas)
    return set_error(MXS_NOT_BUILT,
                     "options.replicas is set, but this release can't sum over replicas (HSDP); pass NULL");
  return MXS_OK;
}

// What every call on weights and gradients begins with.
mxs_status enter(const mxs_unit *unit, const mxs_call *given, mxs_call *call) {
  const mxs_status status = check_unit(unit);
  return status == MXS_OK ? read_call(given, call) : status;
}

mxs_status enter(const mxs_unit *unit, const mxs_view *view) {
  const mxs_status status = check_unit(unit);
  return status == MXS_OK ? check_out_struct(view, sizeof(mxs_view), "view") : status;
}

// Runs a body that fills a view, and gives it to the caller if all went well.
template <class Body>
mxs_status give_view(mxs_view *out, Body &&body) {
  mxs_view view = MXS_VIEW_INIT;
  const mxs_status status = body(&view);
  if (status == MXS_OK) write_struct(view, out);
  return status;
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
    if (status != MXS_OK) return refuse_unit(*comm, status, index);
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

extern "C" mxs_status mxs_unit_gather(mxs_unit *unit, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    return status == MXS_OK ? unit->gather(known) : status;
  });
}

extern "C" mxs_status mxs_unit_wait(mxs_unit *unit, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    return status == MXS_OK ? unit->wait(known.timeout_ns) : status;
  });
}

extern "C" mxs_status mxs_unit_tensor(mxs_unit *unit, int32_t tensor, mxs_view *view) {
  return fenced([&] {
    const mxs_status status = enter(unit, view);
    if (status != MXS_OK) return status;
    return give_view(view, [&](mxs_view *filled) { return unit->tensor(tensor, filled); });
  });
}

extern "C" mxs_status mxs_unit_release(mxs_unit *unit, int32_t mode, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    if (status != MXS_OK) return status;
    if (mode < MXS_FREE || mode > MXS_AUTO)
      return set_error(MXS_INVALID_ARGUMENT, "mode is %d, not MXS_FREE, MXS_PIN or MXS_AUTO", mode);
    return unit->release(mode);
  });
}

extern "C" mxs_status mxs_unit_gradient(mxs_unit *unit, int32_t tensor, int32_t flags, mxs_view *view) {
  return fenced([&] {
    const mxs_status status = enter(unit, view);
    if (status != MXS_OK) return status;
    if (flags != MXS_WRITE && flags != MXS_ADD)
      return set_error(MXS_INVALID_ARGUMENT, "flags is %d, not MXS_WRITE or MXS_ADD", flags);
    return give_view(view, [&](mxs_view *filled) { return unit->open_gradient(tensor, flags, filled); });
  });
}

extern "C" mxs_status mxs_unit_gradient_set(mxs_unit *unit, int32_t tensor, const mxs_view *view) {
  return fenced([&] {
    mxs_status status = check_unit(unit);
    if (status != MXS_OK) return status;
    if (!view) return set_error(MXS_INVALID_ARGUMENT, "view is NULL");
    mxs_view known = MXS_VIEW_INIT;
    status = read_struct(view, sizeof(mxs_view), "view", &known);
    return status == MXS_OK ? unit->set_gradient(tensor, known) : status;
  });
}

extern "C" mxs_status mxs_unit_reduce(mxs_unit *unit, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    return status == MXS_OK ? unit->reduce(known) : status;
  });
}

extern "C" mxs_status mxs_unit_skip(mxs_unit *unit, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    return status == MXS_OK ? unit->reduce_zeros(known) : status;
  });
}

extern "C" mxs_status mxs_unit_wait_reduce(mxs_unit *unit, const mxs_call *call) {
  return fenced([&] {
    mxs_call known = MXS_CALL_INIT;
    const mxs_status status = enter(unit, call, &known);
    return status == MXS_OK ? unit->wait_reduce(known.timeout_ns) : status;
  });
}

extern "C" mxs_status mxs_unit_shard(mxs_unit *unit, uint64_t placement, mxs_view *view) {
  return fenced([&] {
    const mxs_status status = enter(unit, view);
    if (status != MXS_OK) return status;
    return give_view(view, [&](mxs_view *filled) { return unit->shard(placement, filled); });
  });
}

extern "C" mxs_status mxs_unit_commit(mxs_unit *unit, const mxs_view *view) {
  return fenced([&] {
    mxs_status status = check_unit(unit);
    if (status != MXS_OK) return status;
    if (!view) return set_error(MXS_INVALID_ARGUMENT, "view is NULL");
    mxs_view known = MXS_VIEW_INIT;
    status = read_struct(view, sizeof(mxs_view), "view", &known);
    return status == MXS_OK ? unit->commit(known) : status;
  });
}

extern "C" mxs_status mxs_unit_shard_gradient(mxs_unit *unit, uint64_t placement, mxs_view *view) {
  return fenced([&] {
    const mxs_status status = enter(unit, view);
    if (status != MXS_OK) return status;
    return give_view(view, [&](mxs_view *filled) { return unit->shard_gradient(placement, filled); });
  });
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
    status = check_out_struct(memory, sizeof(mxs_memory), "memory");
    if (status != MXS_OK) return status;
    write_struct(unit->memory(), memory);
    return MXS_OK;
  });
}
