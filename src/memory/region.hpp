// SPDX-License-Identifier: Apache-2.0
// Region: shared memory of one rank (a memfd) that local peers map, and mappings of it.
//
// The file may be sparse: only pages that are touched cost memory. All touching is done at create, because a first
// touch costs up to 13 microseconds a page on some virtual machines (facts: a fault is 40 times a copy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

// A mapping that is ours to unmap. Movable.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte *data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping &operator=(Mapping &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte *data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte *data_ = nullptr;
  size_t bytes_ = 0;
};

// A file descriptor that is ours to close. Movable.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File &operator=(File &&other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

struct Extent {
  uint64_t offset, bytes;
};

// An anonymous shared file, sealed against resizing. bytes is rounded up to a page. MADV_DONTFORK is for mappers.
mxs_status create_file(File *file, size_t bytes, const char *name);

// A 2 MiB-aligned linear map of the first `bytes` of a file (0: an empty mapping).
mxs_status map_file(Mapping *mapping, int descriptor, size_t bytes, bool writable);

// Address space without memory, 2 MiB-aligned, PROT_NONE.
mxs_status reserve(Mapping *mapping, size_t bytes);

// Replaces part of a mapping (as from reserve) by part of a file, at its place. All multiples of a page.
mxs_status map_over(std::byte *place, int descriptor, uint64_t file_offset, uint64_t bytes, bool writable);

// Makes the extents of a mapped region real: seeds and collapses whole 2 MiB blocks where it can, then touches every
// page; contents stay. *huge_bytes receives how much got 2 MiB pages.
mxs_status touch(std::byte *base, const std::vector<Extent> &extents, uint64_t *huge_bytes);

}  // namespace mxs
