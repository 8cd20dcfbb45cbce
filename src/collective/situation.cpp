// SPDX-License-Identifier: Apache-2.0
#include "collective/situation.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "matrixshard/comm.h"

namespace mxs {

namespace {

constexpr int signature_bits = 62;
constexpr uint64_t signature_mask = (uint64_t{1} << signature_bits) - 1;
constexpr int head_words = 4;
constexpr int reference_word = head_words + 2 * Situation::entries_max;
static_assert(reference_word + 5 <= Notice::word_count);

constexpr char advice[] = ": all ranks must start the same collectives in the same order";

std::string named(int rank, const OperationQueue::Record &record) {
  return std::string(collective_name(record.kind)) + " on rank " + std::to_string(rank);
}

// mine has come to an agreement that theirs hasn't, but theirs has gone on to operations that mine has not started.
std::string ahead_of_agreement(int rank, const Situation &mine, int other, const Situation &theirs) {
  if (!mine.in_agreement || theirs.agreements >= mine.agreements || theirs.last <= mine.agreement_at) return "";
  return "rank " + std::to_string(rank) + " is in an agreement (a barrier, a sum, a step) after " +
         std::to_string(mine.agreement_at) + " operations, but rank " + std::to_string(other) +
         " has started operation " + std::to_string(theirs.last) + " before it" + advice;
}

// mine waits in a gather by reference that theirs hasn't begun, but theirs has gone on to what mine has not come to.
std::string ahead_of_reference(int rank, const Situation &mine, int other, const Situation &theirs) {
  if (mine.reference == 0 || theirs.references >= mine.reference) return "";
  const bool by_operation = theirs.last > mine.reference_at;
  if (!by_operation && theirs.agreements <= mine.reference_agreements) return "";
  return "rank " + std::to_string(rank) + " is in a gather by reference of unit " +
         std::to_string(mine.reference_unit) + ", but rank " + std::to_string(other) + " has gone on without it to " +
         (by_operation ? "operation " + std::to_string(theirs.last) : "an agreement (a barrier, a sum, a step)") +
         advice;
}

}  // namespace

const char *collective_name(int kind) {
  switch (kind) {
    case MXS_GATHER: return "gather";
    case MXS_REDUCE: return "reduce";
    case MXS_RESHARD: return "reshard";
    default: return "agreement";
  }
}

Notice Situation::pack() const {
  Notice notice{};
  notice.words[0] = last;
  notice.words[1] = agreements;
  notice.words[2] = agreement_at;
  notice.words[3] = static_cast<uint64_t>(count) | static_cast<uint64_t>(in_agreement) << 8 |
                    static_cast<uint64_t>(question) << 9 |
                    static_cast<uint64_t>(static_cast<uint32_t>(silent + 1)) << 16 |
                    static_cast<uint64_t>(beat) << 48;
  for (int i = 0; i < count; ++i) {
    notice.words[head_words + 2 * i] = entries[i].sequence;
    notice.words[head_words + 2 * i + 1] =
        static_cast<uint64_t>(entries[i].kind) << signature_bits | (entries[i].signature & signature_mask);
  }
  const uint64_t unit = static_cast<uint32_t>(reference_unit);
  const uint64_t words[] = {references, reference, reference_at, reference_agreements, unit};
  std::copy(std::begin(words), std::end(words), notice.words + reference_word);
  return notice;
}

Situation Situation::unpack(const Notice &notice) {
  Situation result;
  result.last = notice.words[0];
  result.agreements = notice.words[1];
  result.agreement_at = notice.words[2];
  result.in_agreement = notice.words[3] >> 8 & 1;
  result.question = notice.words[3] >> 9 & 1;
  result.silent = static_cast<int>(std::min<uint64_t>(notice.words[3] >> 16 & UINT32_MAX, INT32_MAX)) - 1;
  result.beat = static_cast<uint16_t>(notice.words[3] >> 48);
  result.count = static_cast<int>(std::min<uint64_t>(notice.words[3] & 0xff, entries_max));
  for (int i = 0; i < result.count; ++i) {
    const uint64_t word = notice.words[head_words + 2 * i + 1];
    result.entries[i] = {notice.words[head_words + 2 * i], static_cast<int>(word >> signature_bits),
                         word & signature_mask};
  }
  const uint64_t *const word = notice.words + reference_word;
  result.references = word[0];
  result.reference = word[1];
  result.reference_at = word[2];
  result.reference_agreements = word[3];
  result.reference_unit = static_cast<int>(std::min<uint64_t>(word[4], INT32_MAX));
  return result;
}

void Situation::add(const OperationQueue::Record &record) {
  if (count == entries_max || record.sequence == 0) return;
  for (int i = 0; i < count; ++i)
    if (entries[i].sequence == record.sequence) return;
  entries[count++] = record;
}

std::string Situation::text() const {
  if (in_agreement) return "in an agreement after operation " + std::to_string(agreement_at);
  if (reference) return "in a gather by reference of unit " + std::to_string(reference_unit);
  if (count == 0) return "in no operation after " + std::to_string(last);
  return "in operation " + std::to_string(entries[0].sequence) + " (" + collective_name(entries[0].kind) + ")";
}

std::string compare_records(int rank, const OperationQueue::Record &mine, int other,
                            const OperationQueue::Record &theirs) {
  if (mine.sequence != theirs.sequence) return "";
  const std::string number = "operation " + std::to_string(mine.sequence);
  if (mine.kind != theirs.kind)
    return number + " is a " + named(rank, mine) + ", but a " + named(other, theirs) + advice;
  if ((mine.signature & signature_mask) == (theirs.signature & signature_mask)) return "";
  return number + " is a " + named(rank, mine) + ", but another one, or one with another layout, dtype, "
         "algorithm, memory or flags, on rank " + std::to_string(other) + advice;
}

std::string compare_agreements(int rank, const Situation &mine, int other, const Situation &theirs) {
  const std::string complaint = ahead_of_agreement(rank, mine, other, theirs);
  return complaint.empty() ? ahead_of_agreement(other, theirs, rank, mine) : complaint;
}

std::string compare_references(int rank, const Situation &mine, int unit, int other, const Situation &theirs) {
  if (theirs.reference && unit >= 0 && unit != theirs.reference_unit)
    return "gather by reference " + std::to_string(theirs.reference) + " is of unit " + std::to_string(unit) +
           " on rank " + std::to_string(rank) + ", but of unit " + std::to_string(theirs.reference_unit) + " on rank " +
           std::to_string(other) + advice;
  const std::string complaint = ahead_of_reference(rank, mine, other, theirs);
  return complaint.empty() ? ahead_of_reference(other, theirs, rank, mine) : complaint;
}

}  // namespace mxs
