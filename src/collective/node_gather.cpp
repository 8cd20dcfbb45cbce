// SPDX-License-Identifier: Apache-2.0
// Gather inside a domain. Two ways, chosen by size when it is made (all ranks alike):
//
//   fan-out   a rank that claims a chunk reads it once and streams it to all others: S reads + (p-1) S writes
//   pull      each rank copies for itself what others own: no claims, and nobody is waited for but owners.
//             (p-1) S reads + (p-1) S writes, which matters only when S is larger than the caches
#include <algorithm>
#include <cassert>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/node_collective.hpp"
#include "collective/node_operation.hpp"
#include "kernels/kernels.hpp"

namespace mxs {

namespace {

// Of the bytes that the busiest rank would pull. Measured with one owner, 4 ranks on 2 cores, medians of two runs,
// microseconds: pull 61, fan-out 69 at 512 KiB; 182 and 173 at 1 MiB; 560 and 330 at 2 MiB; 2,300 and 790 at 4 MiB.
// Two ranks on 2 cores, busbw in GB/s (mxs-perf gather --form in-place): even, half of it pulled, 42 and 34 at 1 MiB,
// 27 and 17 at 2 MiB; one owner, all of it pulled, 12 and 30 at 1 MiB.
constexpr uint64_t fanout_bytes_least = uint64_t{1} << 20;

uint64_t pulled_bytes_most(const NodeWork &work, int rank_count) {
  std::vector<uint64_t> owned(rank_count, 0);
  for (const NodePiece &piece : work.pieces) owned[piece.owner] += piece.bytes;
  return work.bytes - *std::min_element(owned.begin(), owned.end());
}

uint64_t signature_of(const Layout &layout) {
  return Fingerprint().add("node gather").add(layout.hash()).value();
}

// Four chunks a rank even out a rank that comes late or loses its core. Below 512 KiB claims and short streams cost
// more than that gains; above 1 MiB the end of the operation waits for one rank's last chunk.
uint64_t chunk_bytes_for(const Layout &layout, int rank_count) {
  const uint64_t share = align_up(layout.bytes / (4 * static_cast<uint64_t>(rank_count)), 4096);
  return std::clamp<uint64_t>(share, uint64_t{512} << 10, uint64_t{1} << 20);
}

class SharedGather final : public ChunkedCollective {
 public:
  SharedGather(Domain &domain, const NodeGatherOptions &options)
      : ChunkedCollective(domain, "gather", signature_of(*options.layout), options.source, options.target,
                          cut_work(*options.layout, domain, chunk_bytes_for(*options.layout, domain.local_count()))),
        pulls_(pulled_bytes_most(work_, domain.local_count()) < fanout_bytes_least),
        targets_(domain.local_count()) {
    owners_.resize(domain.local_count());
    for (const NodePiece &piece : work_.pieces) owners_[piece.owner] = true;
  }

  mxs_status begin(uint64_t sequence) override {
    next_piece_ = 0;
    // Who pulls waits for each owner to enter, and for nobody else.
    const bool is_owner = owners_[operation_.domain().local_rank()];
    operation_.enter(sequence, source_offset_, target_offset_,
                     pulls_ && is_owner ? NodeOperation::Wake::each : NodeOperation::Wake::last);
    return MXS_OK;
  }
  mxs_status advance(Turn *turn) override { return pulls_ ? pull(&turn->complete) : do_a_chunk(turn); }
  int kind() const override { return MXS_GATHER; }

 private:
  mxs_status pull(bool *complete);
  void carry_out(const NodeChunk &chunk) override;

  const bool pulls_;
  std::vector<std::byte *> targets_;
  std::vector<bool> owners_;  // by local rank: has bytes
  size_t next_piece_ = 0;     // pull: those before it are here
};

// The owner's own bytes are where they are: in place, or mapped there.
void SharedGather::carry_out(const NodeChunk &chunk) {
  for (uint32_t i = chunk.first; i < chunk.last; i++) {
    const NodePiece &piece = work_.pieces[i];
    const std::byte *source = source_->at(piece.owner) + operation_.source_offset(piece.owner) + piece.offset;
    int count = 0;
    for (int local = 0; local < operation_.domain().local_count(); local++)
      if (local != piece.owner)
        targets_[count++] = target_->at(local) + operation_.target_offset(local) + piece.offset;
    kernels().copy_to_many(targets_.data(), count, source, piece.bytes);
  }
}

mxs_status SharedGather::pull(bool *complete) {
  const int self = operation_.domain().local_rank();
  const int local_count = operation_.domain().local_count();
  for (; next_piece_ < work_.pieces.size(); next_piece_++) {
    const NodePiece &piece = work_.pieces[next_piece_];
    if (piece.owner == self) continue;
    bool is_in = false;
    const mxs_status status = operation_.entered(piece.owner, &is_in);
    if (status != MXS_OK || !is_in) return status;
    std::byte *target = target_->at(self) + target_offset_ + piece.offset;
    kernels().copy_to_many(&target, 1, source_->at(piece.owner) + operation_.source_offset(piece.owner) + piece.offset,
                           piece.bytes);
  }
  operation_.set_idle();
  // An owner's bytes are its own again once everybody has read them. Others are done.
  for (int local = 0; owners_[self] && local < local_count; local++) {
    bool is_in = false;
    const mxs_status status = operation_.entered(local, &is_in);
    if (status != MXS_OK || !is_in || !operation_.is_idle(local)) return status;
  }
  *complete = true;
  return MXS_OK;
}

}  // namespace

std::unique_ptr<NodeCollective> make_node_gather(Domain &domain, const NodeGatherOptions &options) {
  return std::make_unique<SharedGather>(domain, options);
}

std::unique_ptr<NodeCollective> make_node_gather(Comm &comm, const NodeGatherOptions &options) {
  assert(comm.domain);
  return make_node_gather(*comm.domain, options);
}

}  // namespace mxs
