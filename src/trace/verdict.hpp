// SPDX-License-Identifier: Apache-2.0
// Who is to blame: the part of the report that draws conclusions.
//
//   waits     a rank with a call that is not over
//   missed    by it: those that have not started the operation, or not come to the agreement, that it waits in; if all
//             have, the rank that it names itself
//   culprit   is missed, and waits for nobody itself; or can't go on: ended, stopped, without a life sign. Never one
//             that has failed, which left because of something else
//
// Ranks that all wait for each other have no culprit: then all that is said is who waits for whom.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "trace/reader.hpp"

namespace mxs {

struct Waiting {
  const RingEvent *event = nullptr;
  std::set<int> missed;
  uint64_t since_ns = 0;  // how long
};

// Ranks, of which only the first are known: a ring may say that it is of a comm of a million ranks.
class FirstRanks {
 public:
  static constexpr size_t known_max = 64;
  void add(int rank) {
    if (++count_ <= known_max) known_.push_back(rank);
  }
  void add_unknown(size_t count) { count_ += count; }
  bool full() const { return count_ >= known_max; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  auto begin() const { return known_.begin(); }
  auto end() const { return known_.end(); }

 private:
  size_t count_ = 0;
  std::vector<int> known_;
};

struct Verdict {
  std::map<int, Waiting> waiting;  // by rank: those that have waited for long
  std::set<int> culprits;
  std::set<int> silent;            // in a wait, but without a life sign
  std::vector<int> dead;           // ended without destroying the comm; who showed life last comes last
  std::vector<int> failed;         // by time; those it happened to before those that were told
  FirstRanks missing;              // no ring
};

Verdict judge(const Trace &trace);

// The latest of a rank's events that are not over, nullptr: there is none. waits: of those that wait for others.
const RingEvent *latest_open(const Ring &ring, bool waits);

}  // namespace mxs
