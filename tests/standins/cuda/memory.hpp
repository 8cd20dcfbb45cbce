/* SPDX-License-Identifier: Apache-2.0 */
// Memory of the stand-in: who owns which addresses.
//
//   cuMemAlloc       |no access| ... bytes |no access|   the end lies at a page's end (in steps of 256 bytes), so that
//                                                        what runs over it faults; the rest is looked at by cuMemFree
//   cuMemHostAlloc   the same
//   reserved         |no access .......|map of a block|  a block is a memfd, so several maps are one memory
//   freed            |no access|                         its addresses don't come back for a long time
//
// Fresh memory is full of 0xCD. The guard: device memory has no access at all except while a job of kind `device` runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "driver_api.hpp"

namespace standin {

constexpr uint64_t granule_bytes = uint64_t{2} << 20;  // of maps

enum class RangeKind { device, pinned, registered, managed, reserved, freed };

struct Block {
  int device = 0;
  int file = -1;
  uint64_t bytes = 0;
  int map_count = 0;
  int reference_count = 1;  // handles that were given out
};

struct Map {
  uint64_t bytes = 0;
  CUmemGenericAllocationHandle block = 0;
  bool is_accessible = false;
};

struct Range {
  RangeKind kind = RangeKind::device;
  int device = 0;
  uint64_t bytes = 0;
  uintptr_t pages = 0;  // with what lies before and behind
  uint64_t page_bytes = 0;
  unsigned long long number = 0;  // buffer id
  unsigned flags = 0;
  std::map<uintptr_t, Map> maps;  // of reserved addresses
};

enum class PlaceKind { host, pinned, managed, device, nothing };  // nothing: freed, unmapped or beyond the end

// What lies at an address.
struct Place {
  PlaceKind kind = PlaceKind::nothing;
  int device = -1;
  uintptr_t begin = 0;
  uint64_t bytes = 0;
  unsigned long long number = 0;
  bool is_range = false;
};

class Memory {
 public:
  // 0: there is no memory. Device memory counts for its device.
  uintptr_t allocate(RangeKind kind, int device, uint64_t bytes, unsigned flags);
  // False: nothing of that kind begins there.
  bool free(uintptr_t address, RangeKind kind);
  bool begins(uintptr_t address, RangeKind kind) const;  // an allocation of that kind
  bool overran(uintptr_t address) const;  // bytes behind the end were written
  bool enter_registered(uintptr_t address, uint64_t bytes, unsigned flags);
  bool leave_registered(uintptr_t address);

  uintptr_t reserve(uint64_t bytes, uint64_t alignment, uintptr_t wanted);
  CUresult free_reserved(uintptr_t address, uint64_t bytes);
  CUmemGenericAllocationHandle create_block(int device, uint64_t bytes);  // 0: no memory
  CUresult release_block(CUmemGenericAllocationHandle handle);
  CUresult map(uintptr_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
  CUresult unmap(uintptr_t address, uint64_t bytes);
  CUresult set_access(uintptr_t address, uint64_t bytes, bool is_accessible);
  CUmemGenericAllocationHandle retain_block_at(uintptr_t address);  // 0: none is mapped there

  // All of [address, address + bytes) in one place; bytes 0 is one address.
  Place find(uintptr_t address, uint64_t bytes = 0) const;
  uint64_t used_bytes(int device) const;
  void free_all(int device);

  void open();   // device memory becomes accessible; counted
  void close();

  void set_guard(bool guards);

 private:
  const Range *range_at(uintptr_t address, uintptr_t *begin) const;
  Range *range_beginning(uintptr_t address, RangeKind kind);
  void protect(const Range &range) const;
  void protect_all() const;
  bool is_open() const { return !guards_ || open_count_ > 0; }
  void forget_block(CUmemGenericAllocationHandle handle);
  void retire(uintptr_t begin);

  std::map<uintptr_t, Range> ranges_;
  std::deque<uintptr_t> retired_;
  std::map<CUmemGenericAllocationHandle, Block> blocks_;
  std::map<int, uint64_t> used_;
  unsigned long long next_number_ = 1;
  CUmemGenericAllocationHandle next_block_ = 0x4d00;
  int open_count_ = 0;
  bool guards_ = true;
};

}  // namespace standin
