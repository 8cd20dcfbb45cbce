// SPDX-License-Identifier: Apache-2.0
// A comm while it lives: failure, progress, waiting.
//
// Progress is made by whoever waits or tests in a call, and by the comm's thread if it has one, one at a time.
//
// Failure: the first reason wins and is kept. It is told to local peers in shared memory, to others over the
// bootstrap's connections, and whoever waits here is woken.
#include "collective/comm.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "bootstrap/rendezvous.hpp"
#include "collective/agreement.hpp"
#include "collective/device_comm.hpp"
#include "collective/process.hpp"
#include "collective/progress_thread.hpp"
#include "machine/machine.hpp"

namespace mxs {

Comm::Comm() : process_generation_(process_generation()) {}

namespace {
// How long a comm that is destroyed waits for peers to have what it sent last. It is there at once but where a link is
// away: for 3 s, and as long again until TCP, which backs off, tries once more. (Or a peer makes no call.) Without it
// the others, who only wait for this rank's last message, lose it. After a failure they wait for nothing more.
constexpr uint64_t farewell_ns = 10'000'000'000, farewell_failed_ns = 1'000'000'000;
}  // namespace

// The thread first, which uses the links and the device; then these: after it no peer touches memory that this comm
// still holds.
Comm::~Comm() {
  thread_.reset();
  own_device_.reset();
  const uint64_t patience_ns = failed() ? farewell_failed_ns : std::min(farewell_ns, timeout_ns);
  for (auto [transport, link] : links) transport->close(link, patience_ns);
}

mxs_status Comm::check_process() const {
  if (process_generation() == process_generation_) return MXS_OK;
  return set_error(MXS_FORKED, "this comm was made before the process was forked; only the parent (rank %d) can use it",
                   rank);
}

mxs_status Comm::check() const {
  if (const mxs_status forked = check_process(); forked != MXS_OK) return forked;
  const mxs_status status = failure_.load(std::memory_order_acquire);
  if (status == MXS_OK) return MXS_OK;
  let_progress_end();
  const std::lock_guard lock(failure_mutex_);
  return set_error(status, "%s", failure_text_.c_str());
}

// ---- failure ----

namespace {
// Recursive: a failure goes from comm to comm, and comes back once.
std::recursive_mutex ties_mutex;
}  // namespace

void Comm::tie_to(Comm &other) {
  const std::lock_guard lock(ties_mutex);
  tied_.push_back(&other);
  other.tied_.push_back(this);
}

void Comm::untie_from(Comm &other) {
  const std::lock_guard lock(ties_mutex);
  const auto forget = [](std::vector<Comm *> *ties, Comm *which) {
    const auto found = std::find(ties->begin(), ties->end(), which);
    if (found != ties->end()) ties->erase(found);
  };
  forget(&tied_, &other);
  forget(&other.tied_, this);
}

mxs_status Comm::fail(mxs_status status) {
  const std::string sentence = whose_ranks + last_error_text();
  return fail_because(status, sentence.c_str(), true);
}

// own: it happened here, so that others must be told where. Else the sentence tells already.
mxs_status Comm::fail_because(mxs_status status, const char *sentence, bool own) {
  note_failure(status, sentence, own);
  return check();
}

// Waits for no other thread, as check does: one may be about to tell this comm of the same failure.
void Comm::note_failure(mxs_status status, const char *sentence, bool own) {
  bool first = false;
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.load(std::memory_order_relaxed) == MXS_OK) {
      failure_text_ = sentence;
      failure_.store(status, std::memory_order_release);
      if (tracer) tracer->note_failure(status, sentence, own, phase.load(std::memory_order_relaxed));
      first = true;
    }
  }
  if (first) {
    // What only concerns this rank (memory, a system call) is to others the failure of a peer.
    const bool shared = status == MXS_MISMATCH || status == MXS_TIMED_OUT || status == MXS_ABORTED;
    const mxs_status told_status = shared ? status : MXS_PEER_FAILED;
    const std::string told = (own ? "rank " + std::to_string(rank) + ": " : std::string()) + sentence;
    if (agreement_) agreement_->leave_failure(told_status, told.c_str());
    if (local) {
      local->announce_failure(told.c_str());
      local->interrupt();
    }
    bootstrap->announce_failure(told_status, told.c_str());
    if (DeviceComm *const device = this->device()) device->abort();
    const std::lock_guard lock(ties_mutex);
    for (Comm *other : tied_)
      if (!other->failed()) other->note_failure(told_status, told.c_str(), false);
  }
}

mxs_status Comm::heed() {
  const char *sentence = nullptr;
  const mxs_status status = agreement_->find_failure(&sentence);
  return status == MXS_OK ? check() : fail_because(status, sentence, false);
}

mxs_status Comm::check_peers(int waits_for) {
  mxs_status status = heed();
  if (status != MXS_OK) return status;
  status = bootstrap->check();
  if (status == MXS_OK && local) status = local->check_peers(waits_for);
  if (status == MXS_OK) return MXS_OK;
  // A peer may have left its sentence, which says more, just before it ended.
  const std::string told = whose_ranks + last_error_text();
  const mxs_status left = heed();
  return left != MXS_OK ? left : fail_because(status, told.c_str(), false);
}

// ---- progress ----

namespace {

constexpr uint64_t cause_patience_ns = 200'000'000;  // between a link's end and its cause

// An address of each thread's own.
const void *this_thread() {
  static thread_local char own;
  return &own;
}

}  // namespace

class Comm::Hold {
 public:
  explicit Hold(Comm &comm) : comm_(comm), lock_(comm.progress_mutex_) { note(); }
  Hold(Comm &comm, std::try_to_lock_t) : comm_(comm), lock_(comm.progress_mutex_, std::try_to_lock) { note(); }
  ~Hold() {
    if (lock_) comm_.holder_.store(nullptr, std::memory_order_relaxed);
  }
  explicit operator bool() const { return lock_.owns_lock(); }

 private:
  void note() {
    if (lock_) comm_.holder_.store(this_thread(), std::memory_order_relaxed);
  }
  Comm &comm_;
  std::unique_lock<std::mutex> lock_;
};

// Once a call has told of a failure, its caller may give memory back that an operation in flight writes to. So another
// thread that is still at it is waited for; who comes later finds the failure.
void Comm::let_progress_end() const {
  if (holder_.load(std::memory_order_relaxed) == this_thread()) return;
  const std::lock_guard lock(progress_mutex_);
}

mxs_status Comm::progress(bool *more) {
  mxs_status status = check();
  if (status != MXS_OK) return status;
  const Hold hold(*this, std::try_to_lock);
  if (!hold) return MXS_OK;
  // Also of local peers: one that has failed gives memory back that its operations lent to this rank.
  status = heed();
  if (status != MXS_OK) return status;
  for (auto [transport, link] : links) {
    status = transport->progress(link);
    if (status != MXS_OK) break;
  }
  if (status == MXS_OK) status = queue.advance(more);
  if (status == MXS_OK) status = hear();
  if (status == MXS_OK) return MXS_OK;
  if (status == MXS_PEER_FAILED) return fail_for_cause();
  const std::string own = last_error_text();
  return fail_because(status, own.c_str(), true);
}

// A link has told that a peer hung up. It may have left because another died, which is heard of by other ways and maybe
// a moment later: a dying process closes one connection after the other, and the rank at the end of the first has
// failed and gone before the last is closed.
mxs_status Comm::fail_for_cause() {
  const std::string own = last_error_text();
  for (const uint64_t begin_ns = now_ns();;) {
    const char *sentence = nullptr;
    mxs_status cause = agreement_->find_failure(&sentence);
    if (cause != MXS_OK) return fail_because(cause, sentence, false);
    cause = bootstrap->check();
    if (cause == MXS_OK && local) cause = local->check_peers(-1);
    if (cause != MXS_OK) return fail_because(cause, (whose_ranks + last_error_text()).c_str(), false);
    if (now_ns() - begin_ns > cause_patience_ns) return fail_because(MXS_PEER_FAILED, own.c_str(), true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Comm::set_off() {
  progress();
  if (ProgressThread *const thread = running_.load(std::memory_order_acquire); thread && !queue.idle()) thread->ring();
}

mxs_status Comm::look_for_operations(bool *in_flight) {
  *in_flight = false;
  if (queue.idle()) return MXS_OK;
  { const Hold hold(*this); }  // a pass that is under way counts what it completed at its end
  const mxs_status status = queue.idle() ? MXS_OK : progress();
  *in_flight = !queue.idle();
  return status;
}

std::string Comm::own_nic() const {
  const RankPlace &own = topology.ranks[static_cast<size_t>(rank)];
  if (topology.node_count() <= 1) return "";
  return topology.node(own.node).rails[static_cast<size_t>(own.rail)].name;
}

mxs_status Comm::start_thread() {
  if (thread_) return MXS_OK;
  auto made = std::make_unique<ProgressThread>(*this);
  const mxs_status status = made->start(cores_near(own_nic()));
  if (status != MXS_OK) return status;
  thread_ = std::move(made);
  running_.store(thread_.get(), std::memory_order_release);
  return MXS_OK;
}

// A failure that came meanwhile has not found it.
void Comm::adopt(std::unique_ptr<DeviceComm> device) {
  own_device_ = std::move(device);
  device_.store(own_device_.get(), std::memory_order_seq_cst);
  if (failed()) own_device_->abort();
}

// ---- waiting ----

Comm::Inside::Inside(Comm &comm) : comm_(comm), thread_(comm.running_.load(std::memory_order_acquire)) {
  if (thread_) comm.callers_.fetch_add(1, std::memory_order_seq_cst);
}

Comm::Inside::~Inside() {
  if (!thread_) return;
  if (comm_.callers_.fetch_sub(1, std::memory_order_seq_cst) == 1 && !comm_.queue.idle()) thread_->ring();
}

namespace {

constexpr uint64_t peers_period_ns = 50'000'000;  // between two looks at peers
// Turns of progress before a sleep on a link; the first ones without giving the core away. Domain::pause has its own.
constexpr int busy_turns = 50, yielding_turns = 70, turns_counted = 1000;
// What another thread's progress has taken from the link doesn't end a sleep on it.
constexpr uint64_t link_sleep_ns = 2'000'000;
// With several links, or shared operations in flight as well: only one of them can end the sleep. So it begins short
// after each move, and doubles every eight sleeps up to the above; waiting for long costs no more than on one link.
constexpr uint64_t mixed_sleep_ns = 200'000;
constexpr int sleeps_to_double = 8, doublings_most = 4;
// Without local peers, between two looks at a device.
constexpr uint64_t polling_sleep_ns = 20'000;

}  // namespace

// For callers that never wait, but test again and again: else they would hear of nothing but what links tell.
mxs_status Comm::look_now_and_then() {
  const uint64_t now = now_ns();
  uint64_t before = looked_ns_.load(std::memory_order_relaxed);
  if (now - before < peers_period_ns || !looked_ns_.compare_exchange_strong(before, now)) return MXS_OK;
  return check_peers(-1);
}

Comm::Wait Comm::begin_wait(uint64_t timeout) const {
  Wait wait;
  wait.begin_ns = wait.peers_checked_ns = wait.still_since_ns = now_ns();
  wait.moves = queue.moves();
  wait.deadline_ns = wait.begin_ns + (timeout ? std::min(timeout, timeout_max_ns) : timeout_ns);
  return wait;
}

void Comm::look(Wait *wait) const {
  if (local) wait->event = local->event();
}

// Sleeps on a link only when messages are in flight; else peers post to the domain.
void Comm::sleep(Wait *wait, int waits_for, ProgressThread *self) {
  if (wait->more) {
    wait->more = false;
    wait->turns = 0;
    return;
  }
  if (wait->turns < turns_counted) ++wait->turns;
  if (!queue.messages_in_flight() || links.empty()) {
    // A start over a link doesn't end it: no matter to a wait, which is for what was started before.
    const uint64_t at_most_ns = queue.polls() ? mixed_sleep_ns : self && !links.empty() ? link_sleep_ns
                                                                                        : Domain::slice_ns;
    // Devices take their time, and nobody ends a sleep over them.
    if (local) local->pause(wait->event, at_most_ns);
    else if (!queue.polls() || wait->turns <= yielding_turns) sched_yield();
    else if (self) self->rest(-1, polling_sleep_ns, false);
    else std::this_thread::sleep_for(std::chrono::nanoseconds(polling_sleep_ns));
    return;
  }
  if (wait->turns <= busy_turns) return;
  if (wait->turns <= yielding_turns) {
    sched_yield();
    return;
  }
  Route route = {links.back().first, links.back().second};
  if (waits_for >= 0 && routes[static_cast<size_t>(waits_for)].link) route = routes[static_cast<size_t>(waits_for)];
  const uint64_t moves = queue.moves();
  if (moves != wait->moves_slept) wait->turns = yielding_turns + 1;
  wait->moves_slept = moves;
  const bool mixed = links.size() > 1 || wait->in_memory || !queue.only_messages();
  const int doublings = std::min((wait->turns - yielding_turns) / sleeps_to_double, doublings_most);
  sleep_on(route, mixed ? std::min(mixed_sleep_ns << doublings, link_sleep_ns) : link_sleep_ns, self);
}

void Comm::sleep_on(const Route &route, uint64_t at_most_ns, ProgressThread *self) {
  if (!route.transport->arm) return route.transport->sleep(route.link, at_most_ns);
  int file = -1;
  {
    const Hold hold(*this);
    file = route.transport->arm(route.link);
  }
  if (file < 0) return;
  if (self) return self->rest(file, at_most_ns, false);
  pollfd watched = {file, POLLIN, 0};
  const timespec timeout = {static_cast<time_t>(at_most_ns / 1'000'000'000u),
                            static_cast<long>(at_most_ns % 1'000'000'000u)};
  ppoll(&watched, 1, &timeout, nullptr);
}

// As a wait, but without a deadline, and it suspects nobody: those are the business of whoever waits. Peers that die
// are looked for when nothing has moved for a while.
mxs_status Comm::carry(ProgressThread *self) {
  Wait wait = begin_wait(0);
  while (!self->stopped() && wants_progress()) {
    if (queue.wanted()) sched_yield();
    look(&wait);
    mxs_status status = progress(&wait.more);
    if (status != MXS_OK || queue.idle()) return status;
    const uint64_t now = now_ns(), moves = queue.moves();
    if (moves != wait.moves || wait.more) {
      wait.moves = moves;
      wait.peers_checked_ns = now;
    } else if (now >= wait.peers_checked_ns + peers_period_ns) {
      wait.peers_checked_ns = now;
      status = check_peers(-1);
      if (status != MXS_OK) return status;
    }
    sleep(&wait, -1, self);
  }
  return MXS_OK;
}

// A peer may do what is waited for and leave in good order, or fail, just before it is looked at. So a suspicion fails
// the comm only in the next turn, after the caller has tested its condition once more.
mxs_status Comm::pause(Wait *wait, int waits_for, const char *what) {
  const uint64_t now = now_ns();
  if (tracer) note_wait(wait, waits_for, what, now);
  if (wait->suspicion) {
    wait->suspicion = false;
    mxs_status status = check_peers(waits_for);
    if (status == MXS_OK) status = suspect(wait, waits_for, now);
    if (status != MXS_OK) return status;
    if (now >= wait->deadline_ns) {
      const double seconds = static_cast<double>(now - wait->begin_ns) * 1e-9;
      const std::string stopped = stopped_ranks();
      if (waits_for < 0)
        return fail(set_error(MXS_TIMED_OUT, "%s: timed out after %.3g s%s", what, seconds, stopped.c_str()));
      return fail(set_error(MXS_TIMED_OUT, "%s: timed out after %.3g s waiting for rank %d, which has not come or "
                            "makes no progress%s%s", what, seconds, waits_for, stopped.c_str(),
                            whereabouts(waits_for).c_str()));
    }
  }
  sleep(wait, waits_for);
  const char *sentence = nullptr;
  if (now >= wait->peers_checked_ns + peers_period_ns || now >= wait->deadline_ns) {
    wait->peers_checked_ns = now;
    wait->suspicion = true;
  } else if (agreement_->find_failure(&sentence) != MXS_OK) {
    wait->suspicion = true;
  }
  return check();
}

mxs_status Comm::wait(uint64_t request, uint64_t timeout, int kind, uint64_t ticket) {
  if (const mxs_status forked = check_process(); forked != MXS_OK) return forked;
  if (queue.complete(request)) return check();
  const Inside inside(*this);
  Wait turn = begin_wait(timeout);
  turn.sequence = request;
  turn.traced.join(ticket);
  mxs_status status = MXS_OK;
  for (;;) {
    look(&turn);
    status = progress(&turn.more);
    if (queue.complete(request)) {
      status = MXS_OK;
      break;
    }
    if (status != MXS_OK) break;
    const OperationQueue::Description operation = queue.describe(request);
    turn.unit = operation.unit;
    status = pause(&turn, operation.waits_for, operation.name);
    if (status != MXS_OK) break;
  }
  counter(kind).wait_ns.fetch_add(now_ns() - turn.begin_ns, std::memory_order_relaxed);
  return status;
}

// ---- in the trace ----

void Comm::note_wait(Wait *wait, int waits_for, const char *what, uint64_t now) const {
  tracer->note_life(now);
  if (wait->traced.begun()) return wait->traced.go_on(*tracer, waits_for);
  TraceEvent event;
  event.kind = MXS_EVENT_WAIT;
  event.name = tracer->name(what);
  event.phase = phase.load(std::memory_order_relaxed);
  event.peer = waits_for;
  event.unit = wait->unit;
  event.sequence = wait->sequence;
  event.begin_ns = wait->begin_ns;
  wait->traced.begin(*tracer, event);
}

Operation::Label Comm::label(const char *algorithm, uint64_t bytes_out, uint64_t bytes_in, int unit) const {
  Operation::Label result;
  if (!tracer) return result;
  result.unit = unit;
  result.algorithm = tracer->name(algorithm);
  result.bytes_out = bytes_out;
  result.bytes_in = bytes_in;
  return result;
}

void Comm::mark(const char *text, uint64_t number) const {
  if (tracer) tracer->mark(text, number, phase.load(std::memory_order_relaxed));
}

}  // namespace mxs
