// SPDX-License-Identifier: Apache-2.0
// A unit in CUDA memory: what is refused, the device that all ranks open, memory and operations.
#include <algorithm>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/device_comm.hpp"
#include "matrixshard/collective.h"
#include "unit/builder.hpp"
#include "unit/device_unit.hpp"

namespace mxs {

mxs_status UnitBuilder::check_device_options() const {
  if (pool_options_.by_reference)
    return set_error(MXS_INVALID_ARGUMENT, "unit %d: gather by reference maps owners' pages, which host memory has; "
                     "units in CUDA memory are gathered by copy", index_);
  if (options_.replicas)
    return set_error(MXS_NOT_BUILT, "unit %d: options.replicas with units in CUDA memory is not in this release: an "
                     "owner's sums go over the replicas in host memory only", index_);
  if (options_.algorithm && *options_.algorithm)
    return set_error(MXS_INVALID_ARGUMENT, "unit %d: options.algorithm is \"%.100s\", but algorithms are of host "
                     "memory; CUDA memory goes the comm's route (MXS_ROUTE)", index_, options_.algorithm);
  DeviceLibrary *library = nullptr;
  return device_library(&library);
}

// Collective. Ranks agree on maps: where one's device has none, or other granules, all copy, so that they refuse alike.
mxs_status UnitBuilder::open_on_device() {
  mxs_status status = open_device(comm_);
  if (status != MXS_OK) return status;
  const DeviceInfo &info = device_of(comm_)->device().info();
  const auto &units = given_plan_.units;
  uint64_t maps = info.maps_memory && std::all_of(units.begin(), units.end(), [&](const PlannedUnit &unit) {
    return lies_on_granules(unit.weights, info.granule_bytes);
  });
  std::vector<uint64_t> all(static_cast<size_t>(comm_.rank_count));
  status = comm_.agree(&maps, all.data(), sizeof maps, 0);
  if (status != MXS_OK) return status;
  mapped_ = std::all_of(all.begin(), all.end(), [](uint64_t one) { return one != 0; });
  return settle(fenced([&] { return check_buffer(); }));
}

mxs_status UnitBuilder::check_buffer() const {
  if (debug_views_ && !mapped_ && !options_.buffer)
    return set_error(MXS_NOT_BUILT, "unit %d: MXS_DEBUG_VIEWS takes maps away, but this unit's CUDA memory is not "
                     "mapped (unit.h: \"copied\")", index_);
  if (!options_.buffer) return MXS_OK;
  constexpr uintptr_t alignment = 256;
  if (reinterpret_cast<uintptr_t>(options_.buffer) % alignment)
    return set_error(MXS_INVALID_ARGUMENT, "unit %d: buffer is at %p, which is no multiple of %d bytes", index_,
                     options_.buffer, static_cast<int>(alignment));
  const PlannedUnit &unit = given_plan_.units[static_cast<size_t>(index_)];
  return check_device_buffer(comm_, "buffer", options_.buffer, unit.weights.bytes);
}

mxs_status UnitBuilder::build_on_device() {
  mxs_status status = make_device_memory();
  if (status != MXS_OK) return status;
  list_owned();
  return make_device_operations();
}

mxs_status UnitBuilder::make_device_memory() {
  DeviceSlots &slots = *unit_->pool_->device_slots();
  const Layout &weights = planned().weights;
  const uint64_t granule_bytes = slots.device().info().granule_bytes;
  mxs_status status = MXS_OK;
  if (unit_->takes_slot_)
    status = slots.grow(slots.mapped() ? granules_of_others(weights, comm_.rank, granule_bytes) : PageRanges(),
                        weights.bytes);
  if (status != MXS_OK) return status;
  count_masters();
  unit_->device_ = std::make_unique<DeviceUnit>(slots);
  DeviceUnit::Options options;
  options.weights = &weights;
  options.rank = comm_.rank;
  options.slot = unit_->slot_;
  options.own_slot = unit_->own_slot_;
  options.takes_slot = unit_->takes_slot_;
  options.buffer = options_.buffer;
  options.masters_bytes = unit_->masters_bytes_;
  options.sums_bytes = unit_->sums_bytes_;
  status = unit_->device_->make(options);
  if (status != MXS_OK) return status;
  unit_->range_ = unit_->device_->range();
  unit_->range_bytes_ = weights.bytes;
  unit_->own_slot_bytes_ = unit_->device_->own_slot_bytes();
  unit_->touched_bytes_ = unit_->device_->bytes();
  if (!options_.buffer && weights.owned_bytes(comm_.rank)) unit_->own_extents_ = {{0, weights.bytes}};
  return MXS_OK;
}

mxs_status UnitBuilder::make_device_operations() {
  unit_->gather_algorithm_ = unit_->reduce_algorithm_ = "none";
  mxs_status status = MXS_OK;
  if (planned().weights.bytes) {
    status = unit_->device_->make_gather(comm_, planned().weights, identity(), index_);
    if (status != MXS_OK) return status;
    const DeviceOperation &gather = *unit_->device_->gather();
    unit_->gather_algorithm_ = gather.algorithm();
    unit_->gather_bytes_out_ = gather.bytes_out();
    unit_->gather_bytes_in_ = gather.bytes_in();
  }
  for (GradientGroup &group : unit_->groups_) {
    DeviceCollectiveOptions options;
    options.kind = MXS_REDUCE;
    options.layout = &group.layout;
    options.dtype = group.dtype;
    options.rank_order = unit_->rank_order_;
    options.accumulate = true;
    options.identity = identity();
    options.unit = index_;
    status = make_device_operation(&group.on_device, comm_, options);
    if (status != MXS_OK) return status;
    unit_->reduce_algorithm_ = group.on_device->algorithm();
    group.bytes_out = group.on_device->bytes_out();
    group.bytes_in = group.on_device->bytes_in();
  }
  return MXS_OK;
}

}  // namespace mxs
