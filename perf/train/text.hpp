// SPDX-License-Identifier: Apache-2.0
// Text: what the model reads. Tokens are bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train {

// The bytes of a file, or, for an empty path, the licence texts that every Debian carries, sorted by name.
// Throws if there are fewer than `bytes_min`.
std::vector<uint8_t> read_text(const std::string &path, size_t bytes_min);

// One micro-batch: sequences * context tokens, and for each the token that follows. A function of (seed, step,
// micro_batch) alone, so it doesn't matter which rank asks.
struct Batch {
  std::vector<uint8_t> inputs, targets;
};
void take_batch(const std::vector<uint8_t> &text, uint64_t seed, uint64_t step, uint64_t micro_batch,
                int64_t sequences, int64_t context, Batch *batch);

}  // namespace train
