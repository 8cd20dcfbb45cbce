// SPDX-License-Identifier: Apache-2.0
// A unit's memory on a device, and what orders the work on it.
#include "unit/device_unit.hpp"

#include <algorithm>
#include <set>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"
#include "matrixshard/collective.h"

namespace mxs {

namespace {

constexpr uint64_t memory_alignment = 256;  // as Device::allocate gives

template <class Take>
PageRanges granules(const Layout &layout, uint64_t granule_bytes, Take &&take) {
  PageRanges result;
  for (const Segment &segment : layout.segments) {
    if (segment.bytes == 0 || !take(segment)) continue;
    const uint64_t begin = align_down(segment.offset, granule_bytes);
    result = united(result, {{begin, align_up(segment.offset + segment.bytes, granule_bytes) - begin}});
  }
  return result;
}

}  // namespace

PageRanges granules_of(const Layout &layout, int rank, uint64_t granule_bytes) {
  return granules(layout, granule_bytes, [&](const Segment &segment) { return segment.owner == rank; });
}

PageRanges granules_of_others(const Layout &layout, int rank, uint64_t granule_bytes) {
  return granules(layout, granule_bytes, [&](const Segment &segment) { return segment.owner != rank; });
}

std::vector<uint64_t> borders_of(const Plan &plan, int rank, uint64_t granule_bytes) {
  std::set<uint64_t> borders;
  for (const PlannedUnit &unit : plan.units)
    for (const PageRange &range : granules_of_others(unit.weights, rank, granule_bytes)) {
      borders.insert(range.offset);
      borders.insert(range.offset + range.bytes);
    }
  return {borders.begin(), borders.end()};
}

bool lies_on_granules(const Layout &layout, uint64_t granule_bytes) {
  int owner = -1;
  for (const Segment &segment : layout.segments) {
    if (segment.owner != owner && segment.offset % granule_bytes) return false;
    owner = segment.owner;
  }
  return true;
}

// ---- memory ----

mxs_status DeviceUnit::make(const Options &options) {
  mxs_status status = MXS_OK;
  for (StreamPoint *point : {&released_, &written_, &begun_})
    if (status == MXS_OK) status = point->make(device());
  range_bytes_ = options.weights->bytes;
  if (status == MXS_OK && options.buffer) range_ = static_cast<std::byte *>(options.buffer);
  else if (status == MXS_OK && range_bytes_)
    status = slots_.mapped() ? make_maps(options) : make_copied(options);
  if (status == MXS_OK) status = device().allocate(options.masters_bytes, &masters_);
  if (status == MXS_OK) status = device().allocate(options.sums_bytes, &sums_);
  bytes_ += options.masters_bytes + options.sums_bytes;
  return status == MXS_OK ? zero_all(options) : status;
}

mxs_status DeviceUnit::make_maps(const Options &options) {
  const uint64_t granule_bytes = device().info().granule_bytes;
  own_granules_ = granules_of(*options.weights, options.rank, granule_bytes);
  other_granules_ = granules_of_others(*options.weights, options.rank, granule_bytes);
  mxs_status status = device().reserve(align_up(range_bytes_, granule_bytes), &range_map_);
  if (status != MXS_OK) return status;
  range_ = range_map_->data();
  status = make_blocks(own_granules_, &own_blocks_);
  for (size_t i = 0; i < own_granules_.size() && status == MXS_OK; ++i)
    status = range_map_->map(own_granules_[i].offset, *own_blocks_[i], 0, own_granules_[i].bytes);
  if (status == MXS_OK && options.own_slot) {
    own_slot_bytes_ = bytes_of(other_granules_);
    status = make_blocks(other_granules_, &own_slot_blocks_);
  }
  return status == MXS_OK ? show(options.slot) : status;
}

mxs_status DeviceUnit::make_blocks(const PageRanges &granules, std::vector<std::unique_ptr<DeviceBlock>> *blocks) {
  for (const PageRange &range : granules) {
    const mxs_status status = device().create_block(range.bytes, &blocks->emplace_back());
    if (status != MXS_OK) return status;
    bytes_ += range.bytes;
  }
  return MXS_OK;
}

// An own slot has this rank's bytes inside it; else they lie apart, each segment as aligned as memory is.
mxs_status DeviceUnit::make_copied(const Options &options) {
  const uint64_t own_bytes = options.weights->owned_bytes(options.rank);
  shown_ = options.slot;
  if (!options.takes_slot) {
    const mxs_status status = device().allocate(range_bytes_, &weights_);
    range_ = weights_.data();
    own_slot_bytes_ = range_bytes_ - own_bytes;
    bytes_ += range_bytes_;
    return status;
  }
  copies_ = true;
  range_ = slots_.memory(options.slot, range_bytes_);
  uint64_t place = 0;
  for (const Segment &segment : options.weights->segments) {
    if (segment.owner != options.rank || segment.bytes == 0) continue;
    own_places_.push_back({segment.offset, segment.bytes, place});
    place = align_up(place + segment.bytes, memory_alignment);
  }
  bytes_ += place;
  return device().allocate(place, &weights_);
}

// But slots, which another unit may hold.
mxs_status DeviceUnit::zero_all(const Options &options) {
  const DeviceStream stream = slots_.stream();
  mxs_status status = MXS_OK;
  const auto zero = [&](std::byte *place, uint64_t bytes) {
    if (status == MXS_OK && bytes) status = device().zero(place, bytes, stream);
  };
  if (range_map_) {
    for (const PageRange &range : own_granules_) zero(range_ + range.offset, range.bytes);
    if (options.own_slot)
      for (const PageRange &range : maps_) zero(range_ + range.offset, range.bytes);
  }
  for (const DeviceMemory *memory : {&weights_, &masters_, &sums_}) zero(memory->data(), memory->bytes());
  return status == MXS_OK ? device().synchronize(stream) : status;
}

std::byte *DeviceUnit::own(uint64_t offset) const {
  for (const OwnPlace &place : own_places_)
    if (offset >= place.offset && offset < place.offset + place.bytes)
      return weights_.data() + place.place + (offset - place.offset);
  return range_ + offset;
}

mxs_status DeviceUnit::show(int slot) {
  if (shown_ == slot || !range_map_) return MXS_OK;
  mxs_status status = hide();
  if (status != MXS_OK) return status;
  if (!own_slot_blocks_.empty()) {
    for (size_t i = 0; i < other_granules_.size() && status == MXS_OK; ++i) {
      const PageRange &range = other_granules_[i];
      status = range_map_->map(range.offset, *own_slot_blocks_[i], 0, range.bytes);
      if (status == MXS_OK) maps_.push_back(range);
    }
  } else {
    status = slots_.map(slot, other_granules_, range_map_.get(), &maps_);
  }
  if (status == MXS_OK) {
    shown_ = slot;
    return MXS_OK;
  }
  const std::string why = last_error_text();
  hide();
  return set_error(status, "%s", why.c_str());
}

mxs_status DeviceUnit::hide() {
  shown_ = -1;
  while (!maps_.empty()) {
    const mxs_status status = range_map_->unmap(maps_.back().offset, maps_.back().bytes);
    if (status != MXS_OK) return status;
    maps_.pop_back();
  }
  return MXS_OK;
}

// ---- order ----

DeviceStream DeviceUnit::comm_stream() const { return slots_.comm().stream(); }

mxs_status DeviceUnit::make_gather(Comm &comm, const Layout &weights, uint64_t identity, int unit) {
  DeviceCollectiveOptions options;
  options.unit = unit;
  options.kind = MXS_GATHER;
  options.layout = &weights;
  options.identity = identity;
  return make_device_operation(&gather_, comm, options);
}

mxs_status DeviceUnit::prepare_gather(DeviceStream stream, DeviceUnit *last_reader) {
  const DeviceStream own_stream = comm_stream();
  bool captured = false;
  mxs_status status = device().is_capturing(stream, &captured);
  if (status != MXS_OK || captured) return status;  // which the start refuses
  status = last_reader ? last_reader->released_.hold_back(own_stream) : MXS_OK;
  if (status == MXS_OK) status = written_.hold_back(own_stream);
  if (status == MXS_OK && copies()) {
    status = begun_.record(stream);
    if (status == MXS_OK) status = begun_.hold_back(own_stream);
    for (const OwnPlace &place : own_places_)
      if (status == MXS_OK)
        status = device().copy(range_ + place.offset, weights_.data() + place.place, place.bytes, own_stream);
  }
  return status;
}

mxs_status DeviceUnit::order_after_gather(DeviceStream stream) {
  return gathered_ ? gather_->wait_stream(stream) : MXS_OK;
}

// Several holders may read on several streams: the latest stands for all of them. What is captured reads when the graph
// is launched, whose stream orders it.
mxs_status DeviceUnit::release(DeviceStream stream) {
  bool captured = false;
  mxs_status status = device().is_capturing(stream, &captured);
  if (status != MXS_OK || captured) return status;
  if (released_this_time_ && released_by_ != stream) status = released_.hold_back(stream);
  if (status == MXS_OK) status = released_.record(stream);
  if (status != MXS_OK) return status;
  released_this_time_ = true;
  released_by_ = stream;
  return MXS_OK;
}

mxs_status DeviceUnit::order_after_readers(DeviceStream stream) {
  const mxs_status status = order_after_gather(stream);
  return status == MXS_OK ? released_.hold_back(stream) : status;
}

mxs_status DeviceUnit::wait_for_readers() { return slots_.wait_for(&released_); }

}  // namespace mxs
