// SPDX-License-Identifier: Apache-2.0
// Hashes of a piece's chunks while its bytes pass by in runs of any length.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace mxs {

class ChunkHasher {
 public:
  ChunkHasher();
  ~ChunkHasher();
  // Appends the hash of each chunk that these bytes complete.
  void add(const void *data, uint64_t bytes, std::vector<uint64_t> *hashes);
  // Appends the hash of the last chunk, if it is a short one; the next bytes are of another piece.
  void finish(std::vector<uint64_t> *hashes);

 private:
  struct State;
  std::unique_ptr<State> state_;
  uint64_t chunk_bytes_ = 0;  // of the chunk that is under way
};

}  // namespace mxs
