// SPDX-License-Identifier: Apache-2.0
// Files, maps and touching: a rank's own pages are real before a peer touches them, so that each rank's memory is
// charged to itself.
#include <unistd.h>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/device_comm.hpp"
#include "device/host_memory.hpp"
#include "unit/builder.hpp"

namespace mxs {

namespace {

constexpr uint64_t huge_page_bytes = uint64_t{2} << 20;

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t total_bytes(const std::vector<Extent> &extents) {
  uint64_t bytes = 0;
  for (const Extent &extent : extents) bytes += extent.bytes;
  return bytes;
}

// A rank's segments as runs of whole pages.
std::vector<Extent> page_extents(const Layout &layout, int owner) {
  std::vector<Extent> extents;
  for (const Segment &segment : layout.segments) {
    if (segment.owner != owner || segment.bytes == 0) continue;
    const uint64_t end = align_up(segment.offset + segment.bytes, page_bytes());
    if (!extents.empty() && extents.back().offset + extents.back().bytes >= segment.offset)
      extents.back().bytes = end - extents.back().offset;
    else
      extents.push_back({segment.offset, end - segment.offset});
  }
  return extents;
}

std::vector<Extent> extents_of(const PageRanges &pages) {
  std::vector<Extent> extents;
  for (const PageRange &range : pages) extents.push_back({range.offset, range.bytes});
  return extents;
}

std::vector<Extent> complement(const std::vector<Extent> &extents, uint64_t bytes) {
  std::vector<Extent> result;
  uint64_t at = 0;
  for (const Extent &extent : extents) {
    if (extent.offset > at) result.push_back({at, extent.offset - at});
    at = extent.offset + extent.bytes;
  }
  if (at < bytes) result.push_back({at, bytes - at});
  return result;
}

// Makes read-only maps real, page by page.
void read_pages(const std::byte *base, const std::vector<Extent> &extents) {
  for (const Extent &extent : extents)
    for (uint64_t offset = 0; offset < extent.bytes; offset += page_bytes())
      static_cast<void>(*static_cast<const volatile std::byte *>(base + extent.offset + offset));
}

}  // namespace

// Owners' borders become borders of maps, which lie on pages.
mxs_status UnitBuilder::check_alignment() const {
  if (on_device()) return MXS_OK;
  if (options_.buffer) {
    if (reinterpret_cast<uintptr_t>(options_.buffer) % page_bytes())
      return set_error(MXS_INVALID_ARGUMENT, "unit %d: buffer is at %p, which is no multiple of the page, %llu bytes",
                       index_, options_.buffer, static_cast<unsigned long long>(page_bytes()));
    return check_host_memory("options.buffer", options_.buffer);
  }
  int owner = -1;
  for (const Segment &segment : given_plan_.units[static_cast<size_t>(index_)].weights.segments) {
    if (segment.owner != owner && segment.offset % page_bytes())
      return set_error(MXS_INVALID_ARGUMENT,
                       "unit %d: a segment begins at byte %llu, but segments are mapped and must begin on pages of "
                       "%llu bytes; make the plan with an alignment of at least that",
                       index_, static_cast<unsigned long long>(segment.offset),
                       static_cast<unsigned long long>(page_bytes()));
    owner = segment.owner;
  }
  return MXS_OK;
}

mxs_status UnitBuilder::share_pool() {
  if (!pool_is_new_) return MXS_OK;
  unit_->pool_ = std::make_shared<Pool>(given_plan_, pool_options_);
  return on_device() ? unit_->pool_->open(*device_of(comm_), comm_.rank, mapped_) : unit_->pool_->open(comm_);
}

mxs_status UnitBuilder::share() {
  list_tensors();
  list_groups();
  if (on_device()) return MXS_OK;
  unit_->range_bytes_ = align_up(planned().weights.bytes, page_bytes());
  if (!options_.buffer) {
    unit_->own_extents_ = page_extents(planned().weights, comm_.rank);
    unit_->other_extents_ = complement(unit_->own_extents_, unit_->range_bytes_);
    unit_->sums_offset_ = align_up(unit_->range_bytes_, huge_page_bytes);
  }
  return comm_.share(unit_->sums_offset_ + align_up(unit_->sums_bytes_, page_bytes()), "unit",
                     &unit_->region_);
}

// This rank's pages, at their place in the file, and the range over them.
mxs_status UnitBuilder::make_range() {
  const PageRanges foreign = foreign_pages(planned(), comm_.rank);
  std::vector<Extent> shown = unit_->own_extents_;  // of the file, in the range
  if (unit_->own_slot_) {
    PageRanges pages;
    for (const Extent &extent : shown) pages.push_back({extent.offset, extent.bytes});
    shown = extents_of(united(pages, foreign));
    unit_->own_slot_bytes_ = bytes_of(foreign);
  }
  std::vector<Extent> file_extents = shown;
  file_extents.push_back({unit_->sums_offset_, align_up(unit_->sums_bytes_, page_bytes())});
  unit_->touched_bytes_ = total_bytes(file_extents);
  mxs_status status = touch(file_memory(), file_extents, &unit_->huge_bytes_);
  if (status != MXS_OK) return status;
  if (options_.buffer) {
    unit_->range_ = static_cast<std::byte *>(options_.buffer);
    return MXS_OK;
  }
  status = reserve(&unit_->reserved_, unit_->range_bytes_);
  if (status != MXS_OK) return status;
  unit_->range_ = unit_->reserved_.data();
  const int file = unit_->region_.files[static_cast<size_t>(comm_.local_place())].get();
  for (const Extent &extent : shown) {
    status = map_over(unit_->range_ + extent.offset, file, extent.offset, extent.bytes, true);
    if (status != MXS_OK) return status;
  }
  status = touch(unit_->range_, shown, nullptr);
  if (status != MXS_OK || unit_->by_reference_ || unit_->own_slot_) return status;
  status = unit_->map_slot(unit_->slot_);
  if (status != MXS_OK) return status;
  return touch(unit_->range_, extents_of(foreign), nullptr);
}

void UnitBuilder::count_masters() {
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.owner == comm_.rank)
      unit_->masters_bytes_ += master_bytes(plan().tensors[static_cast<size_t>(piece.tensor)], piece.element_count);
  }
}

// Nobody else maps them, but a file gets large pages where plain memory may not.
mxs_status UnitBuilder::make_masters() {
  count_masters();
  if (unit_->masters_bytes_ == 0) return MXS_OK;
  File file;
  mxs_status status = create_file(&file, unit_->masters_bytes_, "masters");
  if (status != MXS_OK) return status;
  status = map_file(&unit_->masters_, file.get(), unit_->masters_bytes_, true);
  if (status != MXS_OK) return status;
  uint64_t huge_bytes = 0;
  status = touch(unit_->masters_.data(), {{0, unit_->masters_.bytes()}}, &huge_bytes);
  unit_->touched_bytes_ += unit_->masters_.bytes();
  unit_->huge_bytes_ += huge_bytes;
  return status;
}

// All of the peers' pages that this rank will read or write: their first use costs a trap.
mxs_status UnitBuilder::touch_peers() {
  if (!comm_.domain || on_device()) return MXS_OK;
  if (pool_is_new_) {
    const mxs_status status = unit_->pool_->touch_peers(comm_);
    if (status != MXS_OK) return status;
  }
  if (unit_->takes_slot_) {
    const mxs_status status = unit_->pool_->touch_peers_slots(comm_, index_);
    if (status != MXS_OK) return status;
  }
  for (int place = 0; place < comm_.domain->local_count(); place++) {
    const int rank = comm_.domain->ranks()[static_cast<size_t>(place)];
    if (rank == comm_.rank) continue;
    std::vector<Extent> extents;
    if (!options_.buffer) extents = page_extents(planned().weights, rank);
    mxs_status status = MXS_OK;
    if (unit_->by_reference_) {
      const int file = unit_->region_.files[static_cast<size_t>(place)].get();
      for (const Extent &extent : extents) {
        status = map_over(unit_->range_ + extent.offset, file, extent.offset, extent.bytes, false);
        if (status != MXS_OK) return status;
      }
      read_pages(unit_->range_, extents);
      if (!extents.empty()) unit_->owner_places_.push_back(place);
      extents.clear();
    }
    if (unit_->own_slot_ && unit_->node_gather_) {
      const std::vector<Extent> foreign = extents_of(foreign_pages(planned(), rank));
      extents.insert(extents.end(), foreign.begin(), foreign.end());
    }
    uint64_t sums_bytes = 0;
    for (const GradientGroup &group : unit_->groups_)
      sums_bytes += group.layout.owned_bytes(rank) / dtype_bytes(group.dtype) * sizeof(float);
    extents.push_back({unit_->sums_offset_, align_up(sums_bytes, page_bytes())});
    status = touch(unit_->region_.at(place), extents, nullptr);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

}  // namespace mxs
