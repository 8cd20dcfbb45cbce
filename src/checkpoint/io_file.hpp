// SPDX-License-Identifier: Apache-2.0
// One file, open twice: direct (O_DIRECT), for whole blocks of 4 KiB, and through the page cache for all else. A block
// goes one way only, so that neither sees what the other hasn't written yet.
//
//   |..ab|cdef|ghij|kl..|     bytes a to l: ab and kl through the page cache, c to j direct. The dots may be another
//   0    4096               process's: nothing reads a block to write it back.
//
// File systems without O_DIRECT (tmpfs) take all through the page cache. So that neither memory fills with dirty pages
// nor the last fsync has all the work, they are pushed out as we go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "checkpoint/descriptor.hpp"
#include "matrixshard/status.h"

namespace mxs {

constexpr uint64_t io_block_bytes = 4096;

constexpr uint64_t block_floor(uint64_t offset) { return offset / io_block_bytes * io_block_bytes; }
constexpr uint64_t block_ceiling(uint64_t offset) { return block_floor(offset + io_block_bytes - 1); }

struct Unmap {
  uint64_t bytes = 0;
  void operator()(std::byte *memory) const;
};
using IoMemory = std::unique_ptr<std::byte[], Unmap>;
// Aligned for direct reads and writes; huge pages where the system gives them. Mapped, so that none of it stays with
// the process: malloc keeps what is freed below a threshold that such blocks raise to 32 MiB. Throws bad_alloc.
IoMemory io_memory(uint64_t bytes);

class IoFile {
 public:
  // Made if it isn't there; what is there stays.
  mxs_status open_to_write(const std::string &path);
  // MXS_DAMAGED: it isn't there or hasn't this length; the sentence names the array for whose sake it was opened.
  mxs_status open_to_read(const std::string &path, uint64_t bytes, const std::string &array);
  bool is_open() const { return static_cast<bool>(cached_); }

  // data stands to borders of blocks as offset does.
  mxs_status write(uint64_t offset, const std::byte *data, uint64_t bytes);
  // From a border of blocks on, at least up to end; room for whole blocks.
  mxs_status read(uint64_t first, uint64_t end, std::byte *target);
  // fsync, close.
  mxs_status finish();
  void close();

 private:
  struct Extent {
    uint64_t offset, bytes;
  };
  mxs_status wrong(const char *what, uint64_t offset, int error) const;
  mxs_status write_direct(uint64_t offset, const std::byte *data, uint64_t bytes);
  mxs_status write_cached(uint64_t offset, const std::byte *data, uint64_t bytes);
  mxs_status push_out(Extent extent);

  std::string path_;
  Descriptor cached_, direct_;
  Extent pushed_[4] = {};  // on their way to the disk
  unsigned push_count_ = 0;
};

}  // namespace mxs
