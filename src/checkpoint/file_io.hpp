// SPDX-License-Identifier: Apache-2.0
// Large, aligned, direct reads and writes, and their hashes, beside each other: while one buffer is on its way from or
// to the disk another is copied and hashed. Memory: file_io_bytes_max, whatever the files' size.
//
// Direct (O_DIRECT) where the file system has it; else through the page cache, whose dirty pages are pushed out as we
// go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "matrixshard/status.h"

namespace mxs {

constexpr uint64_t file_io_bytes_max = uint64_t{32} << 20;

// How far, and whether to stop. Called by the thread that called write or read, about each 16 MiB.
struct IoProgress {
  std::function<bool(uint64_t done_bytes)> go_on;  // false: stop, MXS_CANCELLED; may be empty
  uint64_t done_bytes = 0;
};

// Writes of one process into files of one folder, one file at a time.
class FilesWriter {
 public:
  // progress: may be nullptr; outlives it.
  explicit FilesWriter(std::string folder, IoProgress *progress);
  ~FilesWriter();  // what isn't finished is closed as it is

  // The file is made if it isn't there; what is there stays (other ranks write into it, too).
  mxs_status begin(const std::string &name);
  // Offsets ascend within a file. The bytes are copied before it returns. hashes: of the piece of an array that these
  // bytes go on with, may be nullptr; finish_piece ends it.
  mxs_status write(uint64_t offset, const void *data, uint64_t bytes, std::vector<uint64_t> *hashes = nullptr);
  mxs_status finish_piece();
  // All bytes on disk: fsync, close.
  mxs_status finish();

 private:
  struct Inner;
  std::unique_ptr<Inner> inner_;
};

// Takes bytes in order as they come in.
using ByteSink = std::function<mxs_status(const std::byte *data, uint64_t bytes)>;

// What is to be read of an array: bytes [offset, offset + bytes).
struct ReadRange {
  const ManifestFile *file = nullptr;
  const ManifestArray *array = nullptr;
  uint64_t offset = 0, bytes = 0;
  ByteSink sink;  // called by the thread that called read_ranges
};

// Ranges in their order (by file and offset is fastest). verified: hashes of all chunks that they touch are compared,
// as far as the array has pieces; MXS_DAMAGED names file and array. A chunk goes to the sink when its hash has been
// found good, never before.
mxs_status read_ranges(const std::string &folder, const std::vector<ReadRange> &ranges, bool verified,
                       IoProgress *progress);

}  // namespace mxs
