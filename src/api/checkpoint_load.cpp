// SPDX-License-Identifier: Apache-2.0
// The door of mxs_checkpoint_load.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "api/checkpoint.hpp"
#include "api/door.hpp"
#include "api/optimizer.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/load.hpp"
#include "collective/comm.hpp"

using namespace mxs;

namespace {

constexpr int all_flags = MXS_LOAD_WEIGHTS_ONLY | MXS_LOAD_OTHER_DTYPES | MXS_LOAD_OTHER_OPTIMIZER |
                          MXS_LOAD_ALLOW_MISSING | MXS_LOAD_ALLOW_EXTRA | MXS_LOAD_UNVERIFIED;

mxs_status check_units(const std::vector<Unit *> &units) {
  const Unit &first = *units[0];
  std::unordered_set<int> known;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit &unit = *units[i];
    if (&unit.comm() != &first.comm() || unit.replicas() != first.replicas())
      return set_error(MXS_NOT_BUILT, "units[0] and units[%zu] are of different comms or replicas; load those of each "
                       "comm by a call of its own", i);
    if (unit.plan().fingerprint != first.plan().fingerprint)  // pools have a copy each
      return set_error(MXS_NOT_BUILT, "units[0] and units[%zu] are of different plans; load those of each plan by a "
                       "call of its own", i);
    if (!known.insert(unit.index()).second)
      return set_error(MXS_INVALID_ARGUMENT, "units[%zu] is unit %d, which is there twice", i, unit.index());
  }
  return MXS_OK;
}

// A unit's state comes with its weights, or both stay as they are: old averages over new weights would be neither.
mxs_status check_stepped(const Unit &unit) {
  const Plan &plan = unit.plan();
  for (const int tensor : plan.units[static_cast<size_t>(unit.index())].tensors)
    if (has_state(plan.tensors[static_cast<size_t>(tensor)]))
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\" (unit %d) is not stepped by the optimizer that is "
                       "given; load the units of each optimizer by a call of its own",
                       plan.tensors[static_cast<size_t>(tensor)].name.c_str(), unit.index());
  return MXS_OK;
}

// Its step number would be that of units which keep what they have.
mxs_status check_optimizer(const mxs_optimizer *optimizer, const std::vector<Unit *> &units, int flags) {
  if (!optimizer) return MXS_OK;
  mxs_status status = optimizer->comms[0]->check_process();
  if (status == MXS_OK) status = optimizer->check();
  if (status != MXS_OK) return status;
  const std::unordered_set<const Unit *> loaded(units.begin(), units.end());
  for (const Unit *unit : optimizer->inner->units())
    if (!loaded.count(unit))
      return set_error(MXS_INVALID_ARGUMENT, "the optimizer has unit %d, which is not among the units to load",
                       unit->index());
  if (flags & MXS_LOAD_WEIGHTS_ONLY) return MXS_OK;
  const std::vector<Unit *> &own = optimizer->inner->units();
  const std::unordered_set<const Unit *> stepped(own.begin(), own.end());
  for (size_t i = 0; i < units.size() && status == MXS_OK; ++i)
    if (!stepped.count(units[i])) status = check_stepped(*units[i]);
  return status;
}

mxs_status read_options(const mxs_load_options *given, mxs_load_options *options) {
  const mxs_status status = read_struct(given, sizeof *options, "options", options);
  if (status == MXS_OK && (options->flags & ~all_flags))
    return set_error(MXS_INVALID_ARGUMENT, "options.flags is %#x; MXS_LOAD_... are %#x", options->flags, all_flags);
  return status;
}

}  // namespace

mxs_status mxs_checkpoint_load(const mxs_checkpoint *checkpoint, mxs_unit *const *units, uint64_t unit_count,
                               mxs_optimizer *optimizer, const mxs_load_options *given) {
  return fenced([&]() -> mxs_status {
    if (!units || unit_count == 0 || std::count(units, units + unit_count, nullptr) > 0)
      return set_error(MXS_INVALID_ARGUMENT, "a load needs units: units is %p with %llu, or one of them is NULL",
                       static_cast<const void *>(units), static_cast<unsigned long long>(unit_count));
    const std::vector<Unit *> inner_units(units, units + unit_count);
    for (const Unit *unit : inner_units) {
      const mxs_status failed = unit->comm().check();
      if (failed != MXS_OK) return failed;
    }
    mxs_load_options options = MXS_LOAD_OPTIONS_INIT;
    mxs_status status = check_units(inner_units);
    if (status == MXS_OK && !checkpoint) status = set_error(MXS_INVALID_ARGUMENT, "checkpoint is NULL");
    if (status == MXS_OK) status = read_options(given, &options);
    if (status == MXS_OK) status = check_optimizer(optimizer, inner_units, options.flags);
    // Others, whose arguments are good, must not wait for this one.
    if (status != MXS_OK) return refuse_load(inner_units, status);
    return load_checkpoint(checkpoint->opened, inner_units, optimizer ? optimizer->inner.get() : nullptr, options);
  });
}
