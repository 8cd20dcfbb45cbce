// SPDX-License-Identifier: Apache-2.0
// The pool's memory, and which slots are free.
#include "unit/pool.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"
#include "plan/memory.hpp"
#include "unit/device_unit.hpp"

namespace mxs {

namespace {

constexpr uint64_t huge_page_bytes = uint64_t{2} << 20;

static_assert(sizeof(SharedCounter) == reference_counter_bytes, "as predicted by plan/memory");

}  // namespace

// What is touched of a rank's file beside its slots: gradient slots whole, counters, scratch.
std::vector<Extent> Pool::extents(int rank) const {
  std::vector<Extent> result;
  for (int slot = 0; slot < options.gradient_slots; slot++)
    result.push_back({gradient_slot_offset(slot), gradient_slot_bytes_});
  if (counter_bytes_) result.push_back({counters_offset_, counter_bytes_});
  const uint64_t scratch = options.replicas ? replica_scratch_bytes(plan, rank) : 0;
  if (scratch) result.push_back({scratch_offset_, scratch * static_cast<uint64_t>(options.gradient_slots)});
  return result;
}

mxs_status Pool::open(Comm &comm) {
  rank_ = comm.rank;
  place_ = comm.local_place();
  const PoolSizes sizes = pool_sizes(plan);
  slot_stride_ = options.by_reference ? 0 : align_up(sizes.slot, huge_page_bytes);
  gradient_slot_bytes_ = sizes.gradient_slot;
  gradient_stride_ = align_up(gradient_slot_bytes_, huge_page_bytes);
  counter_bytes_ = options.by_reference ? reference_counters_bytes(plan) : 0;
  scratch_bytes_ = options.replicas ? replica_scratch_bytes(plan, rank_) : 0;
  const auto slot_count = static_cast<uint64_t>(options.slots);
  const auto gradient_slot_count = static_cast<uint64_t>(options.gradient_slots);
  uint64_t total_bytes = 0;
  if (!checked_multiply(slot_stride_, slot_count, &gradients_offset_) ||
      !checked_multiply(gradient_stride_, gradient_slot_count, &total_bytes) ||
      !checked_add(gradients_offset_, total_bytes, &counters_offset_) ||
      !checked_add(counters_offset_, counter_bytes_, &scratch_offset_) ||
      !checked_multiply(scratch_bytes_, gradient_slot_count, &total_bytes) ||
      !checked_add(scratch_offset_, total_bytes, &total_bytes))
    return set_error(MXS_OUT_OF_MEMORY, "%d slots of %llu bytes and %d gradient slots of %llu bytes are too many",
                     options.slots, static_cast<unsigned long long>(sizes.slot), options.gradient_slots,
                     static_cast<unsigned long long>(gradient_slot_bytes_));
  holders_.assign(slot_count, nullptr);
  gradient_holders_.assign(gradient_slot_count, nullptr);
  slot_pages_.resize(comm.domain ? static_cast<size_t>(comm.domain->local_count()) : 1);
  const mxs_status status = comm.share(total_bytes, "slots", &region_);
  if (status != MXS_OK) return status;
  // Of the files only our own is needed after this, to map a range anew. Peers' maps stay.
  for (size_t place = 0; place < region_.files.size(); place++)
    if (static_cast<int>(place) != place_) File(std::move(region_.files[place]));
  return MXS_OK;
}

mxs_status Pool::open(DeviceComm &comm, int rank, bool mapped) {
  gradient_slot_bytes_ = pool_sizes(plan).gradient_slot;
  holders_.assign(static_cast<size_t>(options.slots), nullptr);
  gradient_holders_.assign(static_cast<size_t>(options.gradient_slots), nullptr);
  std::vector<uint64_t> borders;
  if (mapped) borders = borders_of(plan, rank, comm.device().info().granule_bytes);
  device_slots_ = std::make_unique<DeviceSlots>(comm, mapped, std::move(borders));
  return device_slots_->make(options.slots, options.gradient_slots, gradient_slot_bytes_);
}

mxs_status Pool::touch_own() { return touch(memory(), extents(rank_), &huge_bytes_); }

mxs_status Pool::touch_peers(const Comm &comm) {
  if (!comm.domain) return MXS_OK;
  for (int place = 0; place < comm.domain->local_count(); place++) {
    if (place == place_) continue;
    const int rank = comm.domain->ranks()[static_cast<size_t>(place)];
    const mxs_status status = touch(region_.at(place), extents(rank), nullptr);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status Pool::touch_slots(int place, int rank, int unit, uint64_t *huge_bytes) {
  PageRanges &known = slot_pages_[static_cast<size_t>(place)];
  const PageRanges fresh = without(foreign_pages(plan.units[static_cast<size_t>(unit)], rank), known);
  std::vector<Extent> extents;
  for (int slot = 0; slot < options.slots; slot++)
    for (const PageRange &range : fresh) extents.push_back({slot_offset(slot) + range.offset, range.bytes});
  const mxs_status status = touch(region_.at(place), extents, huge_bytes);
  if (status == MXS_OK) known = united(known, fresh);
  return status;
}

mxs_status Pool::touch_own_slots(int unit) {
  uint64_t huge_bytes = 0;
  const mxs_status status = touch_slots(place_, rank_, unit, &huge_bytes);
  huge_bytes_ += huge_bytes;
  return status;
}

mxs_status Pool::touch_peers_slots(const Comm &comm, int unit) {
  if (!comm.domain) return MXS_OK;
  for (int place = 0; place < comm.domain->local_count(); place++) {
    if (place == place_) continue;
    const mxs_status status =
        touch_slots(place, comm.domain->ranks()[static_cast<size_t>(place)], unit, nullptr);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

uint64_t Pool::touched_bytes() const {
  if (device_slots_) return device_slots_->bytes() + gradient_slots_bytes();
  uint64_t bytes = bytes_of(slot_pages_[static_cast<size_t>(place_)]) * static_cast<uint64_t>(options.slots);
  for (const Extent &extent : extents(rank_)) bytes += extent.bytes;
  return bytes;
}

SharedCounter &Pool::gathers(int local_rank, int unit) const {
  return reinterpret_cast<SharedCounter *>(region_.at(local_rank) + counters_offset_)[unit];
}

int Pool::free_slot(int preferred) const {
  for (int turn = 0; turn < options.slots; turn++) {
    const int slot = (preferred + turn) % options.slots;
    if (!holders_[static_cast<size_t>(slot)]) return slot;
  }
  return -1;
}

std::shared_ptr<Pool> find_pool(Comm &comm, const Plan &plan, const PoolOptions &options) {
  std::erase_if(comm.pools, [](const std::weak_ptr<Pool> &known) { return known.expired(); });
  for (const std::weak_ptr<Pool> &known : comm.pools) {
    std::shared_ptr<Pool> pool = known.lock();
    if (pool && pool->plan.fingerprint == plan.fingerprint && pool->options == options) return pool;
  }
  return nullptr;
}

}  // namespace mxs
