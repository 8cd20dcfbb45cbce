// SPDX-License-Identifier: Apache-2.0
// Fetches: what ranges of arrays want, cut into reads of one buffer each. Pure.
//
//   range                     ..|=============|...
//   chunks of a piece     |-----------|-----------|--    whole, as their hashes are of all of them
//   fetch                 |########################      of one file, as many chunks as a buffer takes
//
// Chunks that follow each other closely share a fetch, so small arrays cost no read each. Ranges that follow each other
// within one chunk share the chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "checkpoint/io_file.hpp"

namespace mxs {

// Two whole chunks with the blocks at their ends, and some room for small arrays beside them.
constexpr uint64_t fetch_bytes_max = 2 * hash_chunk_bytes + (uint64_t{64} << 10);

struct FetchedChunk {
  size_t range;                // the first one that wants it
  uint64_t offset, bytes;      // of the file
  const uint64_t *hash;        // nullptr: none, or it isn't looked at
};

struct FetchedPart {
  size_t range, chunk;     // of the fetch's chunks
  uint64_t offset, bytes;  // of the file
};

struct Fetch {
  const ManifestFile *file = nullptr;
  uint64_t first = 0, end = 0;  // of the file; first is a border of blocks
  std::vector<FetchedChunk> chunks;
  std::vector<FetchedPart> parts;  // in the order of ranges
};

class FetchPlanner {
 public:
  FetchPlanner(const std::vector<ReadRange> &ranges, bool verified) : ranges_(ranges), verified_(verified) {}
  // false: there is none left. Reuses the fetch's memory.
  bool next(Fetch *fetch);
  bool at_end();

 private:
  FetchedChunk chunk_at(size_t range, uint64_t offset_in_array) const;
  bool take(Fetch *fetch);

  const std::vector<ReadRange> &ranges_;
  const bool verified_;
  size_t range_ = 0;
  uint64_t done_bytes_ = 0;  // of this range
};

}  // namespace mxs
