// SPDX-License-Identifier: Apache-2.0
// Situation: what a rank is in, as it tells its peers when it has waited for long. Two of them tell whether the ranks
// call different things, or one is merely late.
//
//   in messages      operations have numbers, agreements among them: the same number must be the same thing
//   in a domain      agreements have numbers of their own. A rank that is in agreement a, come to after n operations,
//                    and another that has started operation n + 1 but not come to a, call them in another order
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
  int count = 0;
  OperationQueue::Record entries[entries_max];  // in flight, the oldest first; of an answer, what was asked for first

  Notice pack() const;
  static Situation unpack(const Notice &notice);
  void add(const OperationQueue::Record &record);
  std::string text() const;  // "in operation 12 (gather)"
};

const char *collective_name(int kind);  // "gather", ...; "agreement"

// "" or a sentence that names both. `own_record` gives what this rank has started under a number, as far as it
// remembers (sequence 0: it doesn't, or hasn't yet).
template <class OwnRecord>
std::string compare_situations(int rank, const Situation &mine, int other, const Situation &theirs,
                               OwnRecord &&own_record);

std::string compare_records(int rank, const OperationQueue::Record &mine, int other,
                            const OperationQueue::Record &theirs);
std::string compare_agreements(int rank, const Situation &mine, int other, const Situation &theirs);

template <class OwnRecord>
std::string compare_situations(int rank, const Situation &mine, int other, const Situation &theirs,
                               OwnRecord &&own_record) {
  for (int i = 0; i < theirs.count; ++i) {
    const OperationQueue::Record own = own_record(theirs.entries[i].sequence);
    const std::string complaint = own.sequence ? compare_records(rank, own, other, theirs.entries[i]) : "";
    if (!complaint.empty()) return complaint;
  }
  return compare_agreements(rank, mine, other, theirs);
}

}  // namespace mxs
