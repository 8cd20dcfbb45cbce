// SPDX-License-Identifier: Apache-2.0
// Reduce inside a domain: a rank that claims a chunk adds all ranks' gradients of it, in rank order, to the owner's
// accumulator, in one pass. The order of addition is that of MXS_REDUCE_RANK_ORDER, whoever claims what:
// ((accumulator + g0) + g1) + ... in fp32.
#include <algorithm>
#include <cassert>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/node_collective.hpp"
#include "collective/node_operation.hpp"
#include "kernels/kernels.hpp"

namespace mxs {

namespace {

uint64_t signature_of(const NodeReduceOptions &options) {
  return Fingerprint()
      .add("node reduce")
      .add(options.layout->hash())
      .add(static_cast<uint64_t>(options.dtype))
      .add(options.accumulate ? 1 : 0)
      .value();
}

// A chunk is read p times over, so it is smaller than a gather's; see chunk_bytes_for there.
uint64_t chunk_bytes_for(const Layout &layout, int rank_count) {
  const uint64_t share = align_up(layout.bytes / (4 * static_cast<uint64_t>(rank_count)), 4096);
  return std::clamp<uint64_t>(share, uint64_t{32} << 10, uint64_t{512} << 10);
}

class SharedReduce final : public ChunkedCollective {
 public:
  SharedReduce(Domain &domain, const NodeReduceOptions &options)
      : ChunkedCollective(domain, "reduce", signature_of(options), options.source, options.target,
                          cut_work(*options.layout, domain, chunk_bytes_for(*options.layout, domain.local_count()))),
        dtype_(options.dtype),
        accumulate_(options.accumulate),
        sources_(domain.local_count()) {}

  mxs_status begin(uint64_t sequence) override {
    const size_t element_bytes = dtype_bytes(dtype_);
    for (const NodePiece &piece : work_.pieces)
      if (piece.offset % element_bytes || piece.bytes % element_bytes || source_offset_ % element_bytes)
        return set_error(MXS_INVALID_ARGUMENT, "reduce: %llu bytes at %llu of the layout are not whole elements of %zu",
                         static_cast<unsigned long long>(piece.bytes), static_cast<unsigned long long>(piece.offset),
                         element_bytes);
    operation_.enter(sequence, source_offset_, target_offset_, NodeOperation::Wake::last);
    return MXS_OK;
  }

  mxs_status advance(Turn *turn) override { return do_a_chunk(turn); }
  int kind() const override { return MXS_REDUCE; }

 private:
  void carry_out(const NodeChunk &chunk) override;

  const mxs_dtype dtype_;
  const bool accumulate_;
  std::vector<const void *> sources_;
};

void SharedReduce::carry_out(const NodeChunk &chunk) {
  const int local_count = operation_.domain().local_count();
  const size_t element_bytes = dtype_bytes(dtype_);
  for (uint32_t i = chunk.first; i < chunk.last; i++) {
    const NodePiece &piece = work_.pieces[i];
    for (int local = 0; local < local_count; local++)
      sources_[local] = source_->at(local) + operation_.source_offset(local) + piece.offset;
    auto *accumulator = reinterpret_cast<float *>(target_->at(piece.owner) + operation_.target_offset(piece.owner) +
                                                  piece.packed_offset / element_bytes * sizeof(float));
    kernels().sum_in_order(accumulator, accumulate_ ? accumulator : nullptr, sources_.data(), local_count, dtype_,
                           piece.bytes / element_bytes);
  }
}

}  // namespace

std::unique_ptr<NodeCollective> make_node_reduce(Domain &domain, const NodeReduceOptions &options) {
  return std::make_unique<SharedReduce>(domain, options);
}

std::unique_ptr<NodeCollective> make_node_reduce(Comm &comm, const NodeReduceOptions &options) {
  assert(comm.domain);
  return make_node_reduce(*comm.domain, options);
}

}  // namespace mxs
