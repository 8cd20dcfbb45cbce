// SPDX-License-Identifier: Apache-2.0
#include "trace/verdict.hpp"

#include <algorithm>
#include <iterator>

namespace mxs {

namespace {

constexpr uint64_t long_ns = 1'000'000'000u;      // a wait that is worth a word
constexpr uint64_t silence_ns = 2'000'000'000u;   // waits show life every 50 ms, or more often

bool is_dead(const Ring &ring) { return ring.alive == 0 && !ring.finished(); }

uint64_t life_of(const Ring &ring) { return ring.latest_ns; }

// How long something has lasted that is not over. Of a rank that has ended: until its last sign of life, or that of
// anybody.
uint64_t since(const Trace &trace, uint64_t begin_ns) {
  const uint64_t end_ns = trace.end_ns();
  return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

std::set<int> missed_by(const Trace &trace, int rank, const RingEvent &event) {
  std::set<int> missed;
  const bool agrees = event.kind == MXS_EVENT_AGREEMENT;
  if (event.sequence != 0)
    for (const auto &[other, ring] : trace.rings) {
      const uint64_t reached = agrees ? ring.last_agreement : ring.last_operation;
      if (other != rank && reached < event.sequence) missed.insert(other);
    }
  if (missed.empty() && event.peer >= 0 && event.peer != rank) missed.insert(event.peer);
  if (missed.empty() && !agrees && event.sequence != 0)
    for (const auto &[other, ring] : trace.rings)
      if (other != rank && ring.last_complete < event.sequence) missed.insert(other);
  return missed;
}

// In as many steps as there are rings, not ranks.
void find_missing(const Trace &trace, Verdict *verdict) {
  int rank = 0;
  for (; rank < trace.rank_count && !verdict->missing.full(); ++rank)
    if (!trace.rings.count(rank)) verdict->missing.add(rank);
  const auto further = std::distance(trace.rings.lower_bound(rank), trace.rings.end());
  verdict->missing.add_unknown(static_cast<size_t>(trace.rank_count - rank - further));
}

void find_waiting(const Trace &trace, Verdict *verdict) {
  for (const auto &[rank, ring] : trace.rings) {
    if (ring.finished() || ring.failed()) continue;
    const RingEvent *const event = latest_open(ring, true);
    if (!event) continue;
    const uint64_t since_ns = since(trace, event->begin_ns);
    // What died in a wait is a witness however short it was.
    if (since_ns < long_ns && ring.alive != 0) continue;
    verdict->waiting[rank] = {event, missed_by(trace, rank, *event), since_ns};
  }
}

// Of ranks in a wait, which show life while they are; the others may compute for as long as they like.
void find_silent(const Trace &trace, Verdict *verdict) {
  const auto seen = [&](int rank, const Waiting &waiting) {
    return std::max(trace.rings.at(rank).seen_ns, waiting.event->begin_ns);
  };
  uint64_t newest = trace.read_ns;
  for (const auto &[rank, waiting] : verdict->waiting) newest = std::max(newest, seen(rank, waiting));
  for (const auto &[rank, waiting] : verdict->waiting)
    if (trace.rings.at(rank).alive != 0 && newest - seen(rank, waiting) > silence_ns) verdict->silent.insert(rank);
}

bool cannot_go_on(const Trace &trace, const Verdict &verdict, int rank) {
  const auto ring = trace.rings.find(rank);
  return ring == trace.rings.end() || ring->second.stopped || is_dead(ring->second) || verdict.silent.count(rank);
}

// Those that live are the witnesses; where nobody does, those that died in a wait. Who has failed and left was in the
// way of nobody: it was told, or ran into what another did.
void find_culprits(const Trace &trace, Verdict *verdict) {
  const auto lives = [&](const auto &entry) { return !cannot_go_on(trace, *verdict, entry.first); };
  const bool any_lives = std::any_of(verdict->waiting.begin(), verdict->waiting.end(), lives);
  for (const auto &entry : verdict->waiting) {
    if (any_lives && !lives(entry)) continue;
    for (const int other : entry.second.missed) {
      const auto ring = trace.rings.find(other);
      if (ring != trace.rings.end() && ring->second.failed()) continue;
      if ((any_lives && cannot_go_on(trace, *verdict, other)) || !verdict->waiting.count(other))
        verdict->culprits.insert(other);
    }
  }
}

}  // namespace

const RingEvent *latest_open(const Ring &ring, bool waits) {
  const RingEvent *latest = nullptr;
  for (const RingEvent &event : ring.events) {
    const bool is_wait = event.kind == MXS_EVENT_WAIT || event.kind == MXS_EVENT_AGREEMENT;
    if (event.open() && is_wait == waits) latest = &event;
  }
  return latest;
}

Verdict judge(const Trace &trace) {
  Verdict verdict;
  find_missing(trace, &verdict);
  for (const auto &[rank, ring] : trace.rings) {
    if (is_dead(ring)) verdict.dead.push_back(rank);
    if (ring.failed()) verdict.failed.push_back(rank);
  }
  const auto ring_of = [&](int rank) -> const Ring & { return trace.rings.at(rank); };
  std::stable_sort(verdict.dead.begin(), verdict.dead.end(),
                   [&](int a, int b) { return life_of(ring_of(a)) < life_of(ring_of(b)); });
  std::stable_sort(verdict.failed.begin(), verdict.failed.end(), [&](int a, int b) {
    const Ring &left = ring_of(a), &right = ring_of(b);
    if (left.failure_own != right.failure_own) return left.failure_own;
    return left.failure_ns < right.failure_ns;
  });
  find_waiting(trace, &verdict);
  find_silent(trace, &verdict);
  find_culprits(trace, &verdict);
  return verdict;
}

}  // namespace mxs
