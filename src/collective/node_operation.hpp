// SPDX-License-Identifier: Apache-2.0
// What gather and reduce inside a domain have in common: entering, claiming pieces of the work, knowing its end.
//
// Words that a rank publishes for an operation, in a ring by sequence (Domain::parameter):
//
//   offsets, signature   then, by a release store, `entered` = sequence: its buffers are ready
//   idle = sequence      nothing is left for this rank to do; says who is waited for, and ends a pull
//
// The ring's slot of a sequence is used again 64 operations later, by a rank for which this one is complete. For a rank
// that is still in it this is no danger: whoever gets a piece of the work by claim() knows that the operation is not
// complete, so all slots still hold its words; and a signature counts only if `entered` is the same before and after.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collective/node_collective.hpp"
#include "layout/layout.hpp"
#include "matrixshard/status.h"
#include "memory/domain.hpp"

namespace mxs {

// A run of bytes with one owner, and its place in the owner's packed segments.
struct NodePiece {
  int owner = 0;  // local rank
  uint64_t offset = 0, packed_offset = 0, bytes = 0;
};

// One thing to claim: pieces [first, last).
struct NodeChunk {
  uint32_t first = 0, last = 0;
};

struct NodeWork {
  std::vector<NodePiece> pieces;  // ascending; segments that touch and have one owner are joined
  std::vector<NodeChunk> chunks;
  uint64_t bytes = 0;
};

// Cuts a layout into chunks of about chunk_bytes. Cuts inside a segment are at multiples of 64 bytes of the buffer,
// so that streaming stores begin on a line. Small pieces are claimed several at a time.
NodeWork cut_work(const Layout &layout, const Domain &domain, uint64_t chunk_bytes);

class NodeOperation {
 public:
  NodeOperation(Domain &domain, const char *name, uint64_t signature)
      : domain_(domain), name_(name), signature_(signature) {}

  // Folded into the signature from the next enter on: what else must be equal on all ranks of a start.
  void set_variant(uint64_t variant) { variant_ = variant; }
  uint64_t signature() const { return signature_ ^ variant_; }

  // When sleepers are woken: each time, or by the last rank to enter, if nobody waits for less.
  enum class Wake { each, last };
  void enter(uint64_t sequence, uint64_t source_offset, uint64_t target_offset, Wake wake = Wake::each);

  // Has this rank entered? MXS_MISMATCH if it entered something else.
  mxs_status entered(int local, bool *is_in);
  mxs_status all_entered(bool *are_in);

  void set_idle();       // wakes sleepers if everybody is idle then
  void note_idle();      // for waits_for() only
  bool is_idle(int local) const;

  // The rank that is waited for, or -1: the first that hasn't entered, else the first that is still at work.
  int waits_for() const;

  uint64_t source_offset(int local) const { return domain_.parameter(local, sequence_, source_word).load(relaxed); }
  uint64_t target_offset(int local) const { return domain_.parameter(local, sequence_, target_word).load(relaxed); }
  uint64_t sequence() const { return sequence_; }
  Domain &domain() const { return domain_; }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  enum Word { source_word, target_word, signature_word, entered_word, idle_word };

  void wake_if_last(Word word);

  Domain &domain_;
  const char *name_;
  const uint64_t signature_;
  uint64_t variant_ = 0;
  uint64_t sequence_ = 0;
  int known_in_ = 0;  // local ranks below it have entered
};

// A collective whose chunks anybody may do, once all have entered.
class ChunkedCollective : public NodeCollective {
 public:
  ChunkedCollective(Domain &domain, const char *name, uint64_t signature, const SharedRegion *source,
                    const SharedRegion *target, NodeWork work)
      : operation_(domain, name, signature), name_(name), source_(source), target_(target), work_(std::move(work)) {}

  void use(const SharedRegion &source, const SharedRegion &target, uint64_t buffers) override;
  void prepare(uint64_t source_offset, uint64_t target_offset) override;
  void set_identity(uint64_t identity) override;
  bool uses_messages() const override { return false; }
  uint64_t signature() const override { return operation_.signature(); }
  int waits_for() const override { return operation_.waits_for(); }
  const char *name() const override { return name_; }

 protected:
  // An advance: does one chunk if there is one to claim.
  mxs_status do_a_chunk(Turn *turn);
  virtual void carry_out(const NodeChunk &chunk) = 0;

  NodeOperation operation_;
  const char *name_;
  const SharedRegion *source_, *target_;
  const NodeWork work_;
  uint64_t source_offset_ = 0, target_offset_ = 0;
  uint64_t identity_ = 0, buffers_ = 0;
};

}  // namespace mxs
