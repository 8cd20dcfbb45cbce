// SPDX-License-Identifier: Apache-2.0
// What a rank does when its wait has made no progress for a while: it tells those it waits for what it is in, and hears
// what they are in. Ranks that call different things get an error within a second, also where they share no memory;
// ranks that are merely late are remembered for the deadline's sentence.
//
//   rank 0   waits in operation 7, a gather   --question-->   rank 1   has started a reduce as operation 7: answers,
//            hears the answer, fails          <--answer----            fails
//
// Over links that have notices (ucx) they go by these; local peers show them to each other in shared memory. Nothing of
// this is on the way of a collective that moves.
//
// Of a rank that is stopped nothing is heard. Who waits for one that waits for it would name the wrong one at its
// deadline, so each tells as well of whom nothing is heard, itself or those it waits for:
//
//   rank 2 --asks--> rank 1 --asks--> rank 0, stopped
//   "1 waits; nothing is heard of 0" <-- "nothing is heard of 0"
//
// One that is stopped while it writes to a neighbour through UCX's shared memory stops all of that one's mail: each
// sender takes the next slot of the receiver's one queue, and slots are read in order. Then nothing is heard of anyone.
// So at a deadline the system is asked which processes of this machine are stopped.
#include <string>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "collective/agreement.hpp"
#include "collective/comm.hpp"
#include "collective/situation.hpp"

namespace mxs {

namespace {

constexpr uint64_t still_ns = 200'000'000;  // without a move: ask
constexpr uint64_t silent_ns = 3 * still_ns;  // who waits or makes progress answers sooner
constexpr int flush_rounds = 1000;          // of progress, for the answer that goes before a failure

mxs_status mismatch(const std::string &sentence) { return set_error(MXS_MISMATCH, "%s", sentence.c_str()); }

}  // namespace

Situation Comm::situation() const {
  Situation result;
  agreement_->report(&result);
  queue.each_in_flight([&](const OperationQueue::Record &record, int) { result.add(record); });
  result.silent = silent_;
  result.beat = beat_;
  result.references = references.count.load(std::memory_order_acquire);
  result.reference = references.number.load(std::memory_order_acquire);
  result.reference_at = references.at.load(std::memory_order_relaxed);
  result.reference_agreements = references.agreements.load(std::memory_order_relaxed);
  result.reference_unit = references.unit.load(std::memory_order_relaxed);
  return result;
}

uint64_t Comm::agreements_come_to() const {
  Situation result;
  agreement_->report(&result);
  return result.agreements;
}

std::string Comm::compare(int other, const Situation &theirs) const {
  return compare_situations(rank, situation(), other, theirs,
                            [this](uint64_t sequence) { return queue.record(sequence); },
                            [this](uint64_t number) {
                              const uint64_t count = references.count.load(std::memory_order_acquire);
                              const bool known = number > 0 && number <= count && count - number < References::kept;
                              return known ? references.units[number % References::kept].load() : -1;
                            });
}

// Called with progress_mutex_ held.
mxs_status Comm::hear() {
  for (auto [transport, link] : links) {
    int other = -1;
    const Notice *notice = nullptr;
    while (transport->noticed && (notice = transport->noticed(link, &other)) != nullptr) {
      const Situation theirs = Situation::unpack(*notice);
      remember(other, theirs, now_ns(), true);
      const std::string complaint = compare(other, theirs);
      if (theirs.question || !complaint.empty()) answer(other, theirs);
      if (complaint.empty()) continue;
      // The other is to know as well, and nobody may look after this link any more.
      for (int i = 0; i < flush_rounds; ++i)
        if (transport->progress(link) != MXS_OK) break;
      return mismatch(complaint);
    }
  }
  return MXS_OK;
}

// What this rank has started under the numbers that were asked about comes first.
void Comm::answer(int other, const Situation &theirs) {
  Situation mine;
  for (int i = 0; i < theirs.count; ++i) mine.add(queue.record(theirs.entries[i].sequence));
  const Situation now = situation();
  for (int i = 0; i < now.count; ++i) mine.add(now.entries[i]);
  const int count = mine.count;
  Situation told = now;
  told.count = count;
  for (int i = 0; i < count; ++i) told.entries[i] = mine.entries[i];
  const Route &route = routes[static_cast<size_t>(other)];
  route.transport->notify(route.link, other, told.pack());
}

// Tells whom this rank waits for, and looks at what local peers have shown.
mxs_status Comm::ask(int waits_for) {
  const std::lock_guard lock(progress_mutex_);
  const uint64_t now = now_ns();
  look_for_silence(waits_for, now);
  ++beat_;
  Situation mine = situation();
  agreement_->tell(mine.pack());
  for (int local_rank = 0; local && local_rank < local->local_count(); ++local_rank) {
    Notice notice{};
    if (local_rank == local->local_rank() || !agreement_->told_by(local_rank, &notice)) continue;
    const int other = local->ranks()[static_cast<size_t>(local_rank)];
    remember(other, Situation::unpack(notice), now, false);
    const std::string complaint = compare(other, heard_[static_cast<size_t>(other)]);
    if (!complaint.empty()) return mismatch(complaint);
  }
  mine.question = true;
  const Notice notice = mine.pack();
  const auto tell = [&](int other) {
    if (other < 0 || !routes[static_cast<size_t>(other)].link) return;
    const Route &route = routes[static_cast<size_t>(other)];
    if (route.transport->notify) route.transport->notify(route.link, other, notice);
  };
  tell(waits_for);
  queue.each_in_flight([&](const OperationQueue::Record &, int other) {
    if (other != waits_for) tell(other);
  });
  return MXS_OK;
}

// What lies in shared memory stays there: only another beat is news.
void Comm::remember(int other, const Situation &theirs, uint64_t now, bool is_news) {
  Situation &latest = heard_[static_cast<size_t>(other)];
  uint64_t &when_ns = heard_ns_[static_cast<size_t>(other)];
  if (is_news || theirs.beat != latest.beat) when_ns = now;
  latest = theirs;
}

// Of another rank: itself, or whom it tells of.
bool Comm::is_silent(int other, uint64_t now, int *who) const {
  if (other < 0 || other == rank || heard_.empty()) return false;
  const uint64_t since_ns = std::max(heard_ns_[static_cast<size_t>(other)], quiet_since_ns_);
  *who = now - since_ns > silent_ns ? other : heard_[static_cast<size_t>(other)].silent;
  return *who >= 0 && *who < rank_count && *who != rank;
}

void Comm::look_for_silence(int waits_for, uint64_t now) {
  const uint64_t moves = queue.moves();
  if (moves != quiet_moves_ || quiet_since_ns_ == 0) quiet_since_ns_ = now;
  quiet_moves_ = moves;
  int who = -1;
  bool found = is_silent(waits_for, now, &who);
  queue.each_in_flight([&](const OperationQueue::Record &, int other) {
    if (!found && other != waits_for) found = is_silent(other, now, &who);
  });
  // An operation may wait for several, and names one of them. What local ranks show costs nothing to look at.
  for (int i = 0; !found && local && i < local->local_count(); ++i)
    found = is_silent(local->ranks()[static_cast<size_t>(i)], now, &who);
  silent_ = found ? who : -1;
}

mxs_status Comm::suspect(Wait *wait, int waits_for, uint64_t now) {
  const uint64_t moves = queue.moves();
  if (moves != wait->moves) {
    wait->moves = moves;
    wait->still_since_ns = now;
    return MXS_OK;
  }
  if (now - wait->still_since_ns < still_ns) return MXS_OK;
  wait->still_since_ns = now;
  const mxs_status status = ask(waits_for);
  return status == MXS_OK ? MXS_OK : fail(status);
}

// "; the process of rank 1 (4242) is stopped, by a signal or a debugger"
std::string Comm::stopped_ranks() const {
  std::string sentence;
  for (size_t other = 0; other < processes.size(); ++other) {
    const KnownProcess &process = processes[other];
    if (process.id == processes[static_cast<size_t>(rank)].id || !look_at_process(process).stopped) continue;
    sentence += "; the process of rank " + std::to_string(other) + " (" + std::to_string(process.id) +
                ") is stopped, by a signal or a debugger";
  }
  return sentence;
}

std::string Comm::whereabouts(int other) {
  if (other < 0 || heard_.empty()) return "";
  const std::lock_guard lock(progress_mutex_);
  const Situation &theirs = heard_[static_cast<size_t>(other)];
  const std::string cause = silent_ < 0 || silent_ == other
                                ? ""
                                : "; rank " + std::to_string(other) + " itself may wait for rank " +
                                      std::to_string(silent_) + ", of which nothing is heard";
  if (theirs.last == 0 && theirs.agreements == 0) return cause;
  return cause + "; when last heard of, rank " + std::to_string(other) + " was " + theirs.text() + "; rank " +
         std::to_string(rank) + " is " + situation().text();
}

}  // namespace mxs
