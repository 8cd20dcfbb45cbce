// SPDX-License-Identifier: Apache-2.0
// Comm: bootstrap, topology, one link per transport, the domain of local ranks, and the queue of operations.
//
//   comm_create.cpp   who is where, which transport joins whom, links
//   comm_split.cpp    comms of some of a comm's ranks
//   comm_shrink.cpp   of the living ranks of one that has failed
//   comm.cpp          failure, progress, waiting
//   progress_thread   progress while callers compute
//   suspicion.cpp     what ranks tell each other that have waited for long
//   agreement.cpp     the small all-gather with a latency path of its own
//   buffers.cpp       memory of mxs_comm_allocate
//   device_comm.cpp   what it has for CUDA memory
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "collective/operation.hpp"
#include "collective/situation.hpp"
#include "matrixshard/comm.h"
#include "memory/domain.hpp"
#include "topology/topology.hpp"
#include "trace/process_state.hpp"
#include "trace/tracer.hpp"
#include "transport/transport.hpp"

namespace mxs {

class Pool;  // unit/

struct Route {
  const Transport *transport = nullptr;  // nullptr: this rank itself
  Link *link = nullptr;
};

// Memory of mxs_comm_allocate.
struct SharedBuffer {
  uint64_t number = 0;  // counts the comm's allocations, so it is the same on all ranks
  uint64_t bytes = 0;
  int local_rank = 0;  // whose mapping of the region is this rank's memory; without a domain there is only this one
  SharedRegion region;
};

class Agreement;
class DeviceComm;
class ProgressThread;
class Rendezvous;  // bootstrap/
class Secret;      // bootstrap/

class Comm {
 public:
  Comm();
  virtual ~Comm();

  int rank = 0, rank_count = 1, thread_count = 1;
  uint64_t session = 0, timeout_ns = 0;
  uint64_t job = 0;  // in names of traces: equal for all comms that were made from one
  std::unique_ptr<Bootstrap> bootstrap;
  Topology topology;
  std::vector<Route> routes;                 // by rank
  std::vector<std::pair<const Transport *, Link *>> links;
  std::unique_ptr<Domain> local;             // this rank's node, nullptr without local peers
  Domain *domain = nullptr;                  // `local` if all ranks of the comm are in it
  std::string transports;                    // names in use, for people
  std::vector<KnownProcess> processes;       // by rank
  std::vector<int> origins;                  // by rank: its number in the comm this was made from; empty: the same
  std::shared_ptr<const Secret> secret;      // of the job; nullptr: none
  std::unique_ptr<Rendezvous> rendezvous;    // where the living meet after a failure; nullptr: one rank
  std::unique_ptr<Tracer> tracer;            // nullptr: nothing is recorded
  std::string whose_ranks;                   // before sentences that go to comms with other numbers for these ranks
  std::string forced_transport;              // asked for; empty: chosen per pair
  bool debug_buffers = false;                 // MXS_DEBUG_BUFFERS
  int forced_progress = MXS_PROGRESS_CHOSEN;  // asked for
  int asked_device = 0;                      // MXS_DEVICE(index); 0: none
  void *given_nccl = nullptr;                // the caller's, of these ranks
  OperationQueue queue;
  std::vector<std::unique_ptr<SharedBuffer>> buffers;
  uint64_t buffers_made = 0, collectives_made = 0;  // so far, the same on all ranks
  std::vector<std::weak_ptr<Pool>> pools;    // kept by units
  std::atomic<int> children{0};              // units, collectives, optimizers that are alive

  // Gathers by reference are no operations: they are counted apart, so that ranks which make others are found.
  struct References {
    static constexpr uint64_t kept = 64;
    std::atomic<uint64_t> count{0};
    std::array<std::atomic<int>, kept> units;  // by number mod kept
    // The one that is waited for; number 0: none.
    std::atomic<uint64_t> number{0}, at{0}, agreements{0};
    std::atomic<int> unit{0};
  } references;
  uint64_t agreements_come_to() const;  // in a domain

  // Statistics; written and read by any thread.
  struct Counter {
    std::atomic<uint64_t> calls{0}, bytes_out{0}, bytes_in{0}, wait_ns{0};
  };
  std::array<std::array<Counter, MXS_PHASE_COUNT>, MXS_COLLECTIVE_COUNT> counters;
  std::atomic<uint64_t> slot_remaps{0};
  std::atomic<int> phase{MXS_PHASE_OTHER};
  Counter &counter(int kind) {
    return counters[static_cast<size_t>(kind)][static_cast<size_t>(phase.load(std::memory_order_relaxed))];
  }

  // MXS_FORKED in a child, the failure's status once failed, else MXS_OK. First line of every call on the family.
  mxs_status check() const;
  // The first half: for calls that touch memory or destroy, which are good after a failure, too.
  mxs_status check_process() const;
  // Keeps the first reason, tells the others, wakes who waits here, returns the first reason's status. Any thread.
  mxs_status fail(mxs_status status);  // sentence: this thread's last error
  bool failed() const { return failure_.load(std::memory_order_acquire) != MXS_OK; }

  // From here on a failure of one is one of the other: units sum over both. Undone as often as it was done.
  void tie_to(Comm &other);
  void untie_from(Comm &other);
  // A look at peers that nobody waits for by this comm. A failure fails the comm.
  mxs_status look_at_peers() { return check_peers(-1); }

  // check, and has a local peer failed? A load per peer.
  mxs_status heed();

  // The region that holds this memory, if it came from mxs_comm_allocate.
  const SharedBuffer *buffer_of(const void *memory, uint64_t bytes) const;
  // Collective: a file per local rank that is mapped by all of them, or without a domain one of this rank alone.
  mxs_status share(uint64_t bytes, const char *name, SharedRegion *region);
  // This rank's place in such a region.
  int local_place() const { return domain ? domain->local_rank() : 0; }
  // Collective. Touched, zero, 2 MiB-aligned.
  mxs_status allocate(uint64_t bytes, mxs_memory_kind kind, void **memory);
  mxs_status free(void *memory);

  // Makes progress on all links and operations once. Any failure fails the comm. Any thread: does nothing if another
  // thread is at it.
  // *more: there was more to do, so that this is no time to sleep.
  mxs_status progress(bool *more = nullptr);
  // Now and then, is anybody gone, or has anybody failed? For callers that never wait.
  mxs_status look_now_and_then();
  // After an enqueue: what can be sent is sent now, and the comm's thread, if it has one, goes on with the rest. A
  // failure shows in the wait.
  void set_off();
  // Are operations in flight? Exact, where queue.idle() may be late while another thread makes progress.
  mxs_status look_for_operations(bool *in_flight);
  bool has_thread() const { return running_.load(std::memory_order_acquire) != nullptr; }
  std::string own_nic() const;  // empty: any, on one node
  // Makes one if there is none yet. In a call on the family.
  mxs_status start_thread();

  // What it has for CUDA memory; nullptr before (device_comm.hpp).
  DeviceComm *device() const { return device_.load(std::memory_order_acquire); }
  void adopt(std::unique_ptr<DeviceComm> device);
  // The thread's part: is there work for it, and carrying it out until there is none.
  bool wants_progress() const {
    return !queue.idle() && callers_.load(std::memory_order_acquire) == 0 && !failed();
  }
  mxs_status carry(ProgressThread *self);
  // Until the operation with this number is complete. timeout_ns 0: the comm's. Counts the time to the kind given.
  // ticket: of an event of the trace that this wait is part of; 0: it is one itself.
  mxs_status wait(uint64_t request, uint64_t timeout_ns, int kind, uint64_t ticket = 0);

  // Small all-gather for agreements: `bytes` <= agreement_bytes_max from every rank to every rank, in rank order.
  // No allocation. Over messages, or over shared memory when there is a domain.
  static constexpr size_t agreement_bytes_max = 1024;
  // what: for the trace. use: what for, so that ranks which come together by mistake don't take each other's bytes for
  // an answer.
  enum class Use : uint64_t { call, barrier, sum, sum_words, compare, settle, step };
  mxs_status agree(const void *source, void *target, size_t bytes, uint64_t timeout_ns, const char *what = "agreement",
                   Use use = Use::call);

  // Uses of it. sum: count <= 64 numbers, in rank order, in place; integers wrap around.
  mxs_status barrier(uint64_t timeout_ns);
  mxs_status sum(double *values, uint64_t count, uint64_t timeout_ns);
  mxs_status sum(int64_t *words, uint64_t count, uint64_t timeout_ns);

  // Longer ones are cut to it, so that no deadline wraps around: 116 days, the most that MXS_TIMEOUT takes.
  static constexpr uint64_t timeout_max_ns = uint64_t{10'000'000} * 1'000'000'000u;

  // Whoever waits in a call makes progress itself; the comm's thread rests meanwhile.
  class Inside {
   public:
    explicit Inside(Comm &comm);
    ~Inside();
    Inside(const Inside &) = delete;

   private:
    Comm &comm_;
    ProgressThread *const thread_;  // one that has come since is not counted with
  };

  // One turn of a wait, within an Inside, to be called in a loop: sleeps until something may have changed, looks after
  // peers now and then, and fails the comm once the deadline has passed. `waits_for` (a rank, or -1) and `what` are for
  // the sentence.
  struct Wait {
    uint64_t begin_ns = 0, deadline_ns = 0, event = 0, peers_checked_ns = 0;
    uint64_t moves = 0, still_since_ns = 0;  // of the queue, and when it was seen to move
    uint64_t moves_slept = 0;                // of the queue, at the latest sleep
    int turns = 0;
    bool in_memory = false;  // peers post to the domain, whatever messages are in flight
    bool more = false;       // from progress: no time to sleep
    bool suspicion = false;  // it is time to look at peers and clock
    // For the trace.
    uint64_t sequence = 0;
    int unit = -1;
    TracedWait traced;
  };
  Wait begin_wait(uint64_t timeout_ns) const;
  void look(Wait *wait) const;  // before the condition is tested
  mxs_status pause(Wait *wait, int waits_for, const char *what);

  // In the trace: what it is to say of an operation's starts; a mark; does nothing without a tracer.
  Operation::Label label(const char *algorithm, uint64_t bytes_out, uint64_t bytes_in, int unit = -1) const;
  void mark(const char *text, uint64_t number = 0) const;

 private:
  friend class CommBuilder;
  class Hold;
  void note_wait(Wait *wait, int waits_for, const char *what, uint64_t now) const;
  void sleep(Wait *wait, int waits_for, ProgressThread *self = nullptr);
  void sleep_on(const Route &route, uint64_t at_most_ns, ProgressThread *self);
  void let_progress_end() const;
  mxs_status check_peers(int waits_for);
  Situation situation() const;
  std::string compare(int other, const Situation &theirs) const;
  mxs_status hear();
  void answer(int other, const Situation &theirs);
  mxs_status ask(int waits_for);
  mxs_status suspect(Wait *wait, int waits_for, uint64_t now);
  std::string whereabouts(int other);
  std::string stopped_ranks() const;
  void remember(int other, const Situation &theirs, uint64_t now, bool is_news);
  bool is_silent(int other, uint64_t now, int *who) const;
  void look_for_silence(int waits_for, uint64_t now);
  mxs_status fail_because(mxs_status status, const char *sentence, bool own);
  mxs_status fail_for_cause();
  void note_failure(mxs_status status, const char *sentence, bool own);

  std::atomic<mxs_status> failure_{MXS_OK};
  mutable std::mutex failure_mutex_;
  std::string failure_text_;
  std::vector<Comm *> tied_;  // guarded by a mutex of all comms
  uint64_t process_generation_ = 0;

  // Held by whoever makes progress: links, the agreement's board and heard_ are touched under it alone. Nobody sleeps
  // with it. Calls of a family come one at a time, and the comm's thread rests while one waits, so it is taken at once
  // nearly always.
  mutable std::mutex progress_mutex_;
  std::atomic<const void *> holder_{nullptr};  // the thread that has it
  std::atomic<uint64_t> looked_ns_{0};         // the latest look_now_and_then
  std::atomic<int> callers_{0};                // Insides
  std::unique_ptr<ProgressThread> thread_;     // nullptr: progress is made inside calls only
  std::atomic<ProgressThread *> running_{nullptr};  // the same, for any thread
  std::unique_ptr<DeviceComm> own_device_;
  std::atomic<DeviceComm *> device_{nullptr};  // the same, for any thread
  std::unique_ptr<Agreement> agreement_;
  // Under progress_mutex_, by rank: the latest that it told, and when.
  std::vector<Situation> heard_;
  std::vector<uint64_t> heard_ns_;
  int silent_ = -1;  // Situation::silent, and since when this rank looks for it, with what moves
  uint64_t quiet_since_ns_ = 0, quiet_moves_ = 0;
  uint16_t beat_ = 0;
};

// Always an mxs_comm, so that the handle is the object.
mxs_status create_comm(std::unique_ptr<Comm> *comm, const mxs_comm_options &options);

// The same once the ranks have come together and know where they are; the comm keeps the bootstrap. job: of the comm
// that it is made from; traced: it has a ring of its own where the environment asks for rings.
mxs_status create_comm_over(std::unique_ptr<Comm> *comm, std::unique_ptr<Bootstrap> bootstrap,
                            const Topology &topology, const mxs_comm_options &options, uint64_t job = 0,
                            bool traced = true);
// What can be refused by looking at the options alone.
mxs_status check_comm_options(const mxs_comm_options &options);

// Collective over the parent, whatever the colour; MXS_NO_COLOR: *comm stays as it is. What is refused on one rank is
// refused on all; what fails in making one group's comm fails there only. traced false: of comms that the library makes
// for itself, whose rings would only be in the way of the user's.
mxs_status split_comm(std::unique_ptr<Comm> *comm, Comm &parent, int32_t color, int32_t key,
                      const mxs_comm_options &options, bool traced = true);
// Of the living ranks of a comm that has failed; see mxs_comm_shrink.
mxs_status shrink_comm(std::unique_ptr<Comm> *comm, Comm &failed, const mxs_comm_options &options);
// What the caller of a split or a shrink left open is as in the comm that the new one is made from.
mxs_comm_options inherit_options(const Comm &parent, mxs_comm_options options);
// Takes part in the split of other ranks with a refusal, so that they are told instead of waiting.
mxs_status refuse_split(Comm &parent, mxs_status own);

// All ranks give a hash of what they are about to create; MXS_MISMATCH on all if one differs, naming the rank and
// `what`. The comm stays usable. Makes progress on operations in flight meanwhile.
mxs_status compare_over_ranks(Comm &comm, uint64_t hash, const char *what);

// All ranks tell how a part of a creating call went. If it failed anywhere it has failed everywhere, so that nobody
// waits for a rank that has given up: the own sentence where it did, the lowest such rank's elsewhere. The comm stays
// usable. timeout_ns 0: the comm's.
mxs_status settle_over_ranks(Comm &comm, mxs_status own, const char *what, uint64_t timeout_ns = 0);

// Blobs of any size from every rank to every rank, in agreements of 1 KiB: for sentences, not for speed. The comm stays
// usable.
mxs_status gather_over_ranks(Comm &comm, const std::vector<std::byte> &blob,
                             std::vector<std::vector<std::byte>> *blobs);

}  // namespace mxs

// The public handle is the object.
struct mxs_comm : mxs::Comm {};
