// SPDX-License-Identifier: Apache-2.0
// What every bootstrap can do once it has an all-gather of equal blobs.
#include "bootstrap/bootstrap.hpp"

#include <algorithm>
#include <cstring>

#include "base/status.hpp"

namespace mxs {

// One round for the sizes, then the longest blob in pieces: what a shorter blob lacks in a piece goes as zeros.
mxs_status Bootstrap::all_gather_blobs(const std::vector<std::byte> &blob,
                                       std::vector<std::vector<std::byte>> *blobs) {
  const size_t count = static_cast<size_t>(rank_count());
  const uint64_t own_bytes = blob.size();
  std::vector<uint64_t> sizes(count);
  mxs_status status = all_gather(&own_bytes, sizes.data(), sizeof own_bytes);
  if (status != MXS_OK) return status;
  uint64_t longest = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    if (sizes[rank] > blob_bytes_max)
      return set_error(MXS_INVALID_ARGUMENT, "rank %zu wants to exchange %llu bytes at create, more than %zu", rank,
                       static_cast<unsigned long long>(sizes[rank]), blob_bytes_max);
    longest = std::max(longest, sizes[rank]);
  }
  std::vector<std::vector<std::byte>> result(count);
  for (size_t rank = 0; rank < count; ++rank) result[rank].resize(sizes[rank]);
  // 64 KiB: with a thousand ranks a piece of all is 64 MiB.
  const size_t piece_max = std::min<size_t>(gather_bytes_max, size_t{64} << 10);
  std::vector<std::byte> piece, pieces;
  for (uint64_t offset = 0; offset < longest; offset += piece_max) {
    const size_t bytes = std::min<uint64_t>(piece_max, longest - offset);
    piece.assign(bytes, std::byte{0});
    if (offset < own_bytes)
      std::memcpy(piece.data(), blob.data() + offset, std::min<uint64_t>(bytes, own_bytes - offset));
    pieces.resize(bytes * count);
    status = all_gather(piece.data(), pieces.data(), bytes);
    if (status != MXS_OK) return status;
    for (size_t rank = 0; rank < count; ++rank)
      if (offset < sizes[rank])
        std::memcpy(result[rank].data() + offset, pieces.data() + rank * bytes,
                    std::min<uint64_t>(bytes, sizes[rank] - offset));
  }
  *blobs = std::move(result);
  return MXS_OK;
}

mxs_status Bootstrap::barrier() {
  const char here = 1;
  std::vector<char> all(static_cast<size_t>(rank_count()));
  return all_gather(&here, all.data(), sizeof here);
}

mxs_status Bootstrap::settle(mxs_status own) {
  struct Outcome {
    mxs_status status;
    char sentence[508];
  };
  Outcome outcome{};
  outcome.status = own;
  if (own != MXS_OK) {
    const size_t length = std::min(std::strlen(last_error_text()), sizeof outcome.sentence - 1);
    std::memcpy(outcome.sentence, last_error_text(), length);
  }
  std::vector<Outcome> outcomes(static_cast<size_t>(rank_count()));
  const mxs_status status = all_gather(&outcome, outcomes.data(), sizeof outcome);
  if (status != MXS_OK) return own != MXS_OK ? set_error(own, "%s", outcome.sentence) : status;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    Outcome &other = outcomes[rank];
    if (other.status == MXS_OK) continue;
    other.sentence[sizeof other.sentence - 1] = '\0';
    if (static_cast<int>(rank) == this->rank()) return set_error(own, "%s", other.sentence);
    return set_error(other.status, "rank %zu: %s", rank, other.sentence);
  }
  return MXS_OK;
}

}  // namespace mxs
