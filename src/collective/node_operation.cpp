// SPDX-License-Identifier: Apache-2.0
#include "collective/node_operation.hpp"

#include <algorithm>
#include <cassert>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {
constexpr uint64_t line_bytes = 64;
}

NodeWork cut_work(const Layout &layout, const Domain &domain, uint64_t chunk_bytes) {
  assert(chunk_bytes % line_bytes == 0 && chunk_bytes > 0);
  NodeWork work;
  std::vector<NodePiece> runs;
  std::vector<uint64_t> packed(domain.local_count(), 0);
  for (const Segment &segment : layout.segments) {
    const int owner = domain.local_rank_of(segment.owner);
    assert(owner >= 0);
    if (segment.bytes == 0) continue;
    const bool touches = !runs.empty() && runs.back().owner == owner &&
                         runs.back().offset + runs.back().bytes == segment.offset;
    if (touches)
      runs.back().bytes += segment.bytes;
    else
      runs.push_back({owner, segment.offset, packed[owner], segment.bytes});
    packed[owner] += segment.bytes;
    work.bytes += segment.bytes;
  }

  uint64_t filled = 0;  // bytes in the chunk that is open
  for (const NodePiece &run : runs) {
    for (uint64_t done = 0; done < run.bytes;) {
      const uint64_t begin = run.offset + done, end = run.offset + run.bytes;
      const uint64_t cut = std::min(end, align_down(begin + chunk_bytes, line_bytes));
      if (filled == 0 || filled + (cut - begin) > chunk_bytes) {
        const auto first = static_cast<uint32_t>(work.pieces.size());
        work.chunks.push_back({first, first});
        filled = 0;
      }
      work.pieces.push_back({run.owner, begin, run.packed_offset + done, cut - begin});
      work.chunks.back().last++;
      filled += cut - begin;
      done += cut - begin;
    }
  }
  return work;
}

void NodeOperation::enter(uint64_t sequence, uint64_t source_offset, uint64_t target_offset, Wake wake) {
  sequence_ = sequence;
  known_in_ = 0;
  const int self = domain_.local_rank();
  domain_.parameter(self, sequence, source_word).store(source_offset, relaxed);
  domain_.parameter(self, sequence, target_word).store(target_offset, relaxed);
  domain_.parameter(self, sequence, signature_word).store(this->signature(), relaxed);
  domain_.parameter(self, sequence, entered_word).store(sequence, std::memory_order_release);
  if (wake == Wake::each) domain_.post();
  else wake_if_last(entered_word);
}

// A wake is a system call, and everybody who sleeps in the domain loses its sleep. Everybody changes the event word
// before looking at the others, so that the last of two who come at once sees both.
void NodeOperation::wake_if_last(Word word) {
  domain_.nudge();
  for (int local = 0; local < domain_.local_count(); local++)
    if (domain_.parameter(local, sequence_, word).load(std::memory_order_acquire) < sequence_) return;
  domain_.post();
}

mxs_status NodeOperation::entered(int local, bool *is_in) {
  const std::atomic<uint64_t> &word = domain_.parameter(local, sequence_, entered_word);
  const uint64_t before = word.load(std::memory_order_acquire);
  *is_in = before >= sequence_;
  if (before != sequence_) return MXS_OK;
  // Acquire: the word is read again after the signature. Not a fence, which TSan doesn't know.
  const uint64_t signature = domain_.parameter(local, sequence_, signature_word).load(std::memory_order_acquire);
  if (signature == this->signature() || word.load(relaxed) != before) return MXS_OK;
  return set_error(MXS_MISMATCH,
                   "operation %llu is this %s on rank %d, but another collective, unit, layout, dtype or buffer on "
                   "rank %d: all ranks must start the same collectives in the same order",
                   static_cast<unsigned long long>(sequence_), name_, domain_.ranks()[domain_.local_rank()],
                   domain_.ranks()[local]);
}

mxs_status NodeOperation::all_entered(bool *are_in) {
  while (known_in_ < domain_.local_count()) {
    bool is_in = false;
    const mxs_status status = entered(known_in_, &is_in);
    if (status != MXS_OK) return status;
    if (!is_in) break;
    known_in_++;
  }
  *are_in = known_in_ == domain_.local_count();
  return MXS_OK;
}

void NodeOperation::set_idle() {
  std::atomic<uint64_t> &word = domain_.parameter(domain_.local_rank(), sequence_, idle_word);
  if (word.load(relaxed) == sequence_) return;
  word.store(sequence_, std::memory_order_release);
  wake_if_last(idle_word);
}

void NodeOperation::note_idle() {
  domain_.parameter(domain_.local_rank(), sequence_, idle_word).store(sequence_, std::memory_order_release);
}

bool NodeOperation::is_idle(int local) const {
  return domain_.parameter(local, sequence_, idle_word).load(std::memory_order_acquire) >= sequence_;
}

int NodeOperation::waits_for() const {
  for (const int word : {static_cast<int>(entered_word), static_cast<int>(idle_word)})
    for (int local = 0; local < domain_.local_count(); local++)
      if (local != domain_.local_rank() && domain_.parameter(local, sequence_, word).load(relaxed) < sequence_)
        return domain_.ranks()[local];
  return -1;
}

// ---- chunks ----

void ChunkedCollective::use(const SharedRegion &source, const SharedRegion &target, uint64_t buffers) {
  source_ = &source;
  target_ = &target;
  buffers_ = buffers;
  operation_.set_variant(Fingerprint().add(identity_).add(buffers_).value());
}

void ChunkedCollective::set_identity(uint64_t identity) {
  identity_ = identity;
  operation_.set_variant(Fingerprint().add(identity_).add(buffers_).value());
}

void ChunkedCollective::prepare(uint64_t source_offset, uint64_t target_offset) {
  source_offset_ = source_offset;
  target_offset_ = target_offset;
}

mxs_status ChunkedCollective::do_a_chunk(Turn *turn) {
  Domain &domain = operation_.domain();
  const uint64_t sequence = operation_.sequence();
  const auto count = static_cast<uint32_t>(work_.chunks.size());
  bool are_in = false;
  const mxs_status status = operation_.all_entered(&are_in);
  if (status != MXS_OK || !are_in) return status;
  const uint32_t chunk = domain.claim(sequence, count);
  if (chunk < count) {
    carry_out(work_.chunks[chunk]);
    domain.finish(sequence, count);
    turn->moved = true;
    domain.nudge();  // there may be more to claim: this rank must not fall asleep over it
    return MXS_OK;
  }
  operation_.note_idle();  // the last finish wakes
  turn->complete = domain.finished(sequence, count);
  return MXS_OK;
}

}  // namespace mxs
