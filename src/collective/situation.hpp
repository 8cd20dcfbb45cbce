// SPDX-License-Identifier: Apache-2.0
// Situation: what a rank is in, as it tells its peers when it has waited for long. Two of them tell whether the ranks
// call different things, or one is merely late.
//
//   in messages      operations have numbers, agreements among them: the same number must be the same thing
//   in a domain      agreements have numbers of their own. A rank that is in agreement a, come to after n operations,
//                    and another that has started operation n + 1 but not come to a, call them in another order
//   by reference     gathers of units that move no bytes have numbers of their own, too: the same number must be the
//                    same unit, and come after as many operations and agreements
#pragma once

#include <cstdint>
#include <string>

#include "collective/operation.hpp"
#include "transport/transport.hpp"

namespace mxs {

struct Situation {
  static constexpr int entries_max = 5;

  uint64_t last = 0;          // operations started
  uint64_t agreements = 0;    // come to, in a domain
  uint64_t agreement_at = 0;  // `last` when the latest of them was come to
  bool in_agreement = false;  // in a domain
  bool question = false;      // an answer is wanted
  uint16_t beat = 0;          // differs from the latest that was told: it is alive
  int silent = -1;            // of whom nothing is heard, though this rank waits for it, or for one that does
  uint64_t references = 0;    // gathers by reference begun
  // The one that it waits for: its number (0: none), its unit, operations and agreements before it.
  uint64_t reference = 0, reference_at = 0, reference_agreements = 0;
  int reference_unit = 0;
  int count = 0;
  OperationQueue::Record entries[entries_max];  // in flight, the oldest first; of an answer, what was asked for first

  Notice pack() const;
  static Situation unpack(const Notice &notice);
  void add(const OperationQueue::Record &record);
  std::string text() const;  // "in operation 12 (gather)"
};

const char *collective_name(int kind);  // "gather", ...; "agreement"

std::string compare_records(int rank, const OperationQueue::Record &mine, int other,
                            const OperationQueue::Record &theirs);
std::string compare_agreements(int rank, const Situation &mine, int other, const Situation &theirs);
// unit: what this rank has gathered under the number that the other waits for; -1: it doesn't know, or hasn't yet.
std::string compare_references(int rank, const Situation &mine, int unit, int other, const Situation &theirs);

// "" or a sentence that names both. `own_record` gives what this rank has started under a number, as far as it
// remembers (sequence 0: it doesn't, or hasn't yet); `own_reference` likewise the unit of a gather by reference (-1).
template <class OwnRecord, class OwnReference>
std::string compare_situations(int rank, const Situation &mine, int other, const Situation &theirs,
                               OwnRecord &&own_record, OwnReference &&own_reference) {
  for (int i = 0; i < theirs.count; ++i) {
    const OperationQueue::Record own = own_record(theirs.entries[i].sequence);
    const std::string complaint = own.sequence ? compare_records(rank, own, other, theirs.entries[i]) : "";
    if (!complaint.empty()) return complaint;
  }
  const std::string complaint = compare_agreements(rank, mine, other, theirs);
  if (!complaint.empty()) return complaint;
  return compare_references(rank, mine, own_reference(theirs.reference), other, theirs);
}

}  // namespace mxs
