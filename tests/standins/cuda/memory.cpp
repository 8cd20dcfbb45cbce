// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace standin {

namespace {

constexpr uint64_t page_bytes = 4096;
constexpr uint64_t alignment_bytes = 256;  // of allocations
constexpr int fresh = 0xCD, around = 0xAB;
// Freed addresses that are kept without access; then the oldest go back to the system.
constexpr size_t retired_max = 4096;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }
std::byte *pointer(uintptr_t address) { return reinterpret_cast<std::byte *>(address); }

uintptr_t map_nothing(uint64_t bytes) {
  void *const made = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return made == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(made);
}

// A file of fresh memory.
bool fill(int file, uint64_t bytes) {
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return false;
  void *const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) return false;
  std::memset(map, fresh, bytes);
  munmap(map, bytes);
  return true;
}

bool is_guarded(RangeKind kind) { return kind == RangeKind::device || kind == RangeKind::reserved; }

}  // namespace

// ---- allocations -------------------------------------------------------------------------------------------------

uintptr_t Memory::allocate(RangeKind kind, int device, uint64_t bytes, unsigned flags) {
  Range range;
  range.kind = kind;
  range.device = device;
  range.bytes = bytes;
  range.flags = flags;
  range.number = next_number_++;
  const uint64_t inner_bytes = round_up(round_up(bytes, alignment_bytes), page_bytes);
  range.page_bytes = inner_bytes + 2 * page_bytes;
  range.pages = map_nothing(range.page_bytes);
  if (!range.pages) return 0;
  const uintptr_t inner = range.pages + page_bytes;
  if (mprotect(pointer(inner), inner_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(pointer(range.pages), range.page_bytes);
    return 0;
  }
  const uintptr_t begin = inner + inner_bytes - round_up(bytes, alignment_bytes);
  std::memset(pointer(inner), around, begin - inner);
  std::memset(pointer(begin), fresh, bytes);
  std::memset(pointer(begin + bytes), around, inner + inner_bytes - begin - bytes);
  ranges_[begin] = range;
  protect(ranges_[begin]);
  if (kind == RangeKind::device || kind == RangeKind::managed) used_[device] += bytes;
  return begin;
}

Range *Memory::range_beginning(uintptr_t address, RangeKind kind) {
  const auto found = ranges_.find(address);
  return found != ranges_.end() && found->second.kind == kind ? &found->second : nullptr;
}

bool Memory::begins(uintptr_t address, RangeKind kind) const {
  const auto found = ranges_.find(address);
  return found != ranges_.end() && found->second.kind == kind;
}

bool Memory::overran(uintptr_t address) const {
  const Range &range = ranges_.at(address);
  const uintptr_t inner = range.pages + page_bytes, inner_end = range.pages + range.page_bytes - page_bytes;
  mprotect(pointer(inner), inner_end - inner, PROT_READ | PROT_WRITE);
  bool is_hurt = false;
  for (uintptr_t at = inner; at < address; ++at) is_hurt |= *pointer(at) != std::byte{around};
  for (uintptr_t at = address + range.bytes; at < inner_end; ++at) is_hurt |= *pointer(at) != std::byte{around};
  return is_hurt;
}

bool Memory::free(uintptr_t address, RangeKind kind) {
  Range *const range = range_beginning(address, kind);
  if (!range) return false;
  if (kind == RangeKind::device || kind == RangeKind::managed) used_[range->device] -= range->bytes;
  // New pages without access: the old ones are given back.
  mmap(pointer(range->pages), range->page_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  retire(address);
  return true;
}

void Memory::retire(uintptr_t begin) {
  ranges_[begin].kind = RangeKind::freed;
  retired_.push_back(begin);
  if (retired_.size() <= retired_max) return;
  const uintptr_t oldest = retired_.front();
  retired_.pop_front();
  munmap(pointer(ranges_[oldest].pages), ranges_[oldest].page_bytes);
  ranges_.erase(oldest);
}

bool Memory::enter_registered(uintptr_t address, uint64_t bytes, unsigned flags) {
  const auto next = ranges_.lower_bound(address + bytes);
  if (next != ranges_.begin())
    if (const auto &[begin, range] = *std::prev(next); begin + range.bytes > address) return false;
  Range range;
  range.kind = RangeKind::registered;
  range.bytes = bytes;
  range.flags = flags;
  range.number = next_number_++;
  ranges_[address] = range;
  return true;
}

bool Memory::leave_registered(uintptr_t address) {
  if (!range_beginning(address, RangeKind::registered)) return false;
  ranges_.erase(address);
  return true;
}

// ---- reserved addresses and blocks -------------------------------------------------------------------------------

uintptr_t Memory::reserve(uint64_t bytes, uint64_t alignment, uintptr_t wanted) {
  alignment = alignment < granule_bytes ? granule_bytes : alignment;
  Range range;
  range.kind = RangeKind::reserved;
  range.bytes = bytes;
  range.number = next_number_++;
  range.page_bytes = bytes + alignment;
  range.pages = map_nothing(range.page_bytes);
  if (!range.pages) return 0;
  static_cast<void>(wanted);  // a wish, says the driver
  const uintptr_t begin = round_up(range.pages, alignment);
  ranges_[begin] = range;
  return begin;
}

CUresult Memory::free_reserved(uintptr_t address, uint64_t bytes) {
  Range *const range = range_beginning(address, RangeKind::reserved);
  if (!range || range->bytes != bytes || !range->maps.empty()) return CUDA_ERROR_INVALID_VALUE;
  retire(address);
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle Memory::create_block(int device, uint64_t bytes) {
  Block block;
  block.device = device;
  block.bytes = bytes;
  block.file = memfd_create("standin_cuda_block", MFD_CLOEXEC);
  if (block.file < 0) return 0;
  if (!fill(block.file, bytes)) {
    ::close(block.file);
    return 0;
  }
  used_[device] += bytes;
  blocks_[next_block_] = block;
  return next_block_++;
}

void Memory::forget_block(CUmemGenericAllocationHandle handle) {
  const Block &block = blocks_.at(handle);
  if (block.reference_count > 0 || block.map_count > 0) return;
  ::close(block.file);
  used_[block.device] -= block.bytes;
  blocks_.erase(handle);
}

CUresult Memory::release_block(CUmemGenericAllocationHandle handle) {
  const auto found = blocks_.find(handle);
  if (found == blocks_.end() || found->second.reference_count == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.reference_count;
  forget_block(handle);
  return CUDA_SUCCESS;
}

CUresult Memory::map(uintptr_t address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  uintptr_t begin = 0;
  const Range *const range = range_at(address, &begin);
  const auto block = blocks_.find(handle);
  if (!range || range->kind != RangeKind::reserved || bytes > range->bytes - (address - begin))
    return CUDA_ERROR_INVALID_VALUE;
  if (block == blocks_.end() || block->second.reference_count == 0 || bytes > block->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  auto &maps = ranges_[begin].maps;
  const auto next = maps.lower_bound(address + bytes);
  if (next != maps.begin())
    if (const auto &[at, other] = *std::prev(next); at + other.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, block->second.file, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  maps[address] = {bytes, handle, false};
  ++block->second.map_count;
  return CUDA_SUCCESS;
}

// One map or several that follow each other, whole.
CUresult Memory::unmap(uintptr_t address, uint64_t bytes) {
  uintptr_t begin = 0;
  const Range *const range = range_at(address, &begin);
  if (!range || range->kind != RangeKind::reserved) return CUDA_ERROR_INVALID_VALUE;
  auto &maps = ranges_[begin].maps;
  for (uintptr_t at = address; at != address + bytes;) {
    const auto found = maps.find(at);
    if (found == maps.end() || at + found->second.bytes > address + bytes) return CUDA_ERROR_INVALID_VALUE;
    at += found->second.bytes;
  }
  mmap(pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (uintptr_t at = address; at != address + bytes;) {
    const Map gone = maps.at(at);
    maps.erase(at);
    --blocks_.at(gone.block).map_count;
    forget_block(gone.block);
    at += gone.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult Memory::set_access(uintptr_t address, uint64_t bytes, bool is_accessible) {
  uintptr_t begin = 0;
  const Range *const range = range_at(address, &begin);
  if (!range || range->kind != RangeKind::reserved) return CUDA_ERROR_INVALID_VALUE;
  auto &maps = ranges_[begin].maps;
  for (uintptr_t at = address; at < address + bytes;) {
    const auto found = maps.find(at);
    if (found == maps.end() || at + found->second.bytes > address + bytes) return CUDA_ERROR_INVALID_VALUE;
    at += found->second.bytes;
  }
  for (auto map = maps.find(address); map != maps.end() && map->first < address + bytes; ++map)
    map->second.is_accessible = is_accessible;
  protect(*range);
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle Memory::retain_block_at(uintptr_t address) {
  uintptr_t begin = 0;
  const Range *const range = range_at(address, &begin);
  if (!range || range->kind != RangeKind::reserved) return 0;
  const auto next = range->maps.upper_bound(address);
  if (next == range->maps.begin()) return 0;
  const auto &[at, map] = *std::prev(next);
  if (at + map.bytes <= address) return 0;
  ++blocks_.at(map.block).reference_count;
  return map.block;
}

// ---- questions ---------------------------------------------------------------------------------------------------

const Range *Memory::range_at(uintptr_t address, uintptr_t *begin) const {
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  const auto &[at, range] = *std::prev(next);
  *begin = at;
  return address - at < range.bytes ? &range : nullptr;
}

Place Memory::find(uintptr_t address, uint64_t bytes) const {
  Place place;
  uintptr_t begin = 0;
  const Range *const range = range_at(address, &begin);
  if (!range) {
    // The host's, unless it runs into something that is known.
    const auto next = ranges_.lower_bound(address);
    if (next == ranges_.end() || next->first >= address + bytes || next->second.kind == RangeKind::registered)
      place.kind = PlaceKind::host;
    return place;
  }
  place.is_range = range->kind != RangeKind::freed;
  place.device = range->device;
  place.begin = begin;
  place.bytes = range->bytes;
  place.number = range->number;
  if (range->kind == RangeKind::freed || bytes > range->bytes - (address - begin)) return place;
  if (range->kind == RangeKind::device) place.kind = PlaceKind::device;
  if (range->kind == RangeKind::managed) place.kind = PlaceKind::managed;
  if (range->kind == RangeKind::pinned || range->kind == RangeKind::registered) place.kind = PlaceKind::pinned;
  if (range->kind != RangeKind::reserved) return place;
  const uintptr_t end = address + (bytes ? bytes : 1);
  for (uintptr_t at = address; at < end;) {
    auto next = range->maps.upper_bound(at);
    if (next == range->maps.begin()) return place;
    --next;
    if (next->first + next->second.bytes <= at || !next->second.is_accessible) return place;
    place.device = blocks_.at(next->second.block).device;
    at = next->first + next->second.bytes;
  }
  place.kind = PlaceKind::device;
  return place;
}

uint64_t Memory::used_bytes(int device) const {
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

// With a context its allocations go. Reserved addresses and blocks are of no context.
void Memory::free_all(int device) {
  std::deque<std::pair<uintptr_t, RangeKind>> gone;
  for (const auto &[begin, range] : ranges_)
    if (range.device == device && (range.kind == RangeKind::device || range.kind == RangeKind::managed))
      gone.push_back({begin, range.kind});
  for (const auto &[begin, kind] : gone) free(begin, kind);
}

// ---- the guard ---------------------------------------------------------------------------------------------------

void Memory::protect(const Range &range) const {
  if (!is_guarded(range.kind)) return;
  const int access = is_open() ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (range.kind == RangeKind::device)
    mprotect(pointer(range.pages + page_bytes), range.page_bytes - 2 * page_bytes, access);
  for (const auto &[at, map] : range.maps) mprotect(pointer(at), map.bytes, map.is_accessible ? access : PROT_NONE);
}

void Memory::protect_all() const {
  for (const auto &[begin, range] : ranges_) protect(range);
}

void Memory::open() {
  if (open_count_++ == 0 && guards_) protect_all();
}

void Memory::close() {
  if (--open_count_ == 0 && guards_) protect_all();
}

void Memory::set_guard(bool guards) {
  guards_ = guards;
  protect_all();
}

}  // namespace standin
