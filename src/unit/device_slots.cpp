// SPDX-License-Identifier: Apache-2.0
#include "unit/device_slots.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/status.hpp"
#include "collective/device_comm.hpp"

namespace mxs {

// After a failure in create it may still be zeroing what goes now.
DeviceSlots::~DeviceSlots() {
  if (!stream_) return;
  device().synchronize(stream_);
  device().destroy_stream(stream_);
}

Device &DeviceSlots::device() const { return comm_.device(); }

mxs_status DeviceSlots::make(int slot_count, int gradient_slot_count, uint64_t gradient_slot_bytes) {
  mxs_status status = device().create_stream(&stream_);
  slots_.resize(static_cast<size_t>(slot_count));
  gradient_slots_.resize(static_cast<size_t>(gradient_slot_count));
  for (GradientSlot &slot : gradient_slots_) {
    if (status == MXS_OK) status = slot.discarded.make(device());
    if (status == MXS_OK) status = device().allocate(gradient_slot_bytes, &slot.memory);
    if (status == MXS_OK && gradient_slot_bytes)
      status = device().zero(slot.memory.data(), gradient_slot_bytes, stream_);
  }
  return status == MXS_OK ? device().synchronize(stream_) : status;
}

// All slots or none.
mxs_status DeviceSlots::grow(const PageRanges &pages, uint64_t range_bytes) {
  return mapped_ ? grow_blocks(without(pages, pages_)) : grow_memory(range_bytes);
}

PageRanges DeviceSlots::cut(const PageRanges &pages) const {
  PageRanges pieces;
  for (const PageRange &page : pages) {
    const uint64_t end = page.offset + page.bytes;
    for (uint64_t at = page.offset; at < end;) {
      const auto border = std::upper_bound(borders_.begin(), borders_.end(), at);
      const uint64_t next = border == borders_.end() ? end : std::min(*border, end);
      pieces.push_back({at, next - at});
      at = next;
    }
  }
  return pieces;
}

mxs_status DeviceSlots::grow_blocks(const PageRanges &fresh) {
  std::vector<std::vector<Piece>> pieces(slots_.size());
  for (std::vector<Piece> &of_slot : pieces)
    for (const PageRange &range : cut(fresh)) {
      std::unique_ptr<DeviceBlock> block;
      const mxs_status status = device().create_block(range.bytes, &block);
      if (status != MXS_OK) return status;
      of_slot.push_back({range, std::move(block)});
    }
  for (size_t slot = 0; slot < slots_.size(); ++slot)
    std::move(pieces[slot].begin(), pieces[slot].end(), std::back_inserter(slots_[slot].pieces));
  bytes_ += bytes_of(fresh) * slots_.size();
  pages_ = united(pages_, fresh);
  return MXS_OK;
}

mxs_status DeviceSlots::grow_memory(uint64_t range_bytes) {
  if (range_bytes == 0 || memory(0, range_bytes)) return MXS_OK;
  std::vector<DeviceMemory> made(slots_.size());
  for (DeviceMemory &memory : made) {
    mxs_status status = device().allocate(range_bytes, &memory);
    if (status == MXS_OK) status = device().zero(memory.data(), range_bytes, stream_);
    if (status != MXS_OK) return status;
  }
  const mxs_status status = device().synchronize(stream_);
  if (status != MXS_OK) return status;
  for (size_t slot = 0; slot < slots_.size(); ++slot) slots_[slot].memory.push_back(std::move(made[slot]));
  bytes_ += range_bytes * slots_.size();
  return MXS_OK;
}

mxs_status DeviceSlots::map(int slot, const PageRanges &pages, DeviceRange *range, PageRanges *maps) {
  for (const Piece &piece : slots_[static_cast<size_t>(slot)].pieces)
    for (const PageRange &page : pages) {
      const uint64_t begin = piece.range.offset;
      if (begin < page.offset || begin >= page.offset + page.bytes) continue;
      assert(begin + piece.range.bytes <= page.offset + page.bytes && "blocks are cut where pages end");
      const mxs_status status = range->map(begin, *piece.block, 0, piece.range.bytes);
      if (status != MXS_OK) return status;
      maps->push_back(piece.range);
    }
  return MXS_OK;
}

std::byte *DeviceSlots::memory(int slot, uint64_t range_bytes) const {
  for (const DeviceMemory &memory : slots_[static_cast<size_t>(slot)].memory)
    if (memory.bytes() >= range_bytes) return memory.data();
  return nullptr;
}

void DeviceSlots::forget(const DeviceUnit *unit) {
  for (Slot &slot : slots_)
    if (slot.reader == unit) slot.reader = nullptr;
}

mxs_status DeviceSlots::wait_for(StreamPoint *point) {
  if (!point->set()) return MXS_OK;
  mxs_status status = point->hold_back(stream_);
  if (status == MXS_OK) status = device().synchronize(stream_);
  if (status == MXS_OK) point->clear();
  return status;
}

}  // namespace mxs
