// SPDX-License-Identifier: Apache-2.0
// Comm: bootstrap, topology, one link per transport, the domain of local ranks, and the queue of operations.
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
#include "matrixshard/comm.h"
#include "memory/domain.hpp"
#include "topology/topology.hpp"
#include "transport/transport.hpp"

namespace mxs {

class Pool;  // unit/

struct Route {
  const Transport *transport = nullptr;  // nullptr: this rank itself
  Link *link = nullptr;
};

// Memory of mxs_comm_allocate.
struct SharedBuffer {
  uint64_t bytes = 0;
  SharedRegion region;
};

class Comm {
 public:
  ~Comm();

  int rank = 0, rank_count = 1, thread_count = 1;
  uint64_t session = 0, timeout_ns = 0;
  std::unique_ptr<Bootstrap> bootstrap;
  Topology topology;
  std::vector<Route> routes;                 // by rank
  std::vector<std::pair<const Transport *, Link *>> links;
  std::unique_ptr<Domain> local;             // this rank's node, nullptr without local peers
  Domain *domain = nullptr;                  // `local` if all ranks of the comm are in it
  std::string transports;                    // names in use, for people
  OperationQueue queue;
  std::vector<std::unique_ptr<SharedBuffer>> buffers;
  std::vector<std::weak_ptr<Pool>> pools;    // kept by units
  std::atomic<int> children{0};              // units, collectives, optimizers that are alive

  // Statistics; written by the family's thread, read by any.
  struct Counter {
    std::atomic<uint64_t> calls{0}, bytes_out{0}, bytes_in{0}, wait_ns{0};
  };
  std::array<std::array<Counter, MXS_PHASE_COUNT>, MXS_COLLECTIVE_COUNT> counters;
  std::atomic<uint64_t> slot_remaps{0};
  std::atomic<int> phase{MXS_PHASE_OTHER};

  // MXS_FORKED in a child, the failure's status once failed, else MXS_OK. First line of every call on the family.
  mxs_status check() const;
  // Keeps the first reason, tells the others, returns its status.
  mxs_status fail(mxs_status status);  // sentence: this thread's last error
  bool failed() const { return failure_.load(std::memory_order_acquire) != MXS_OK; }

  // The region that holds this memory, if it came from mxs_comm_allocate.
  const SharedBuffer *buffer_of(const void *memory, uint64_t bytes) const;

  // Makes progress on all links and operations once. Any failure fails the comm.
  mxs_status progress();
  // Until the operation with this number is complete. timeout_ns 0: the comm's. Counts the time to the kind given.
  mxs_status wait(uint64_t request, uint64_t timeout_ns, int kind);

  // Small all-gather for agreements: `bytes` <= agreement_bytes_max from every rank to every rank, in rank order.
  // No allocation. Over messages, or over shared memory when there is a domain.
  static constexpr size_t agreement_bytes_max = 1024;
  mxs_status agree(const void *source, void *target, size_t bytes, uint64_t timeout_ns);

 private:
  friend mxs_status create_comm(std::unique_ptr<Comm> *, const mxs_comm_options &);
  std::atomic<mxs_status> failure_{MXS_OK};
  mutable std::mutex failure_mutex_;
  std::string failure_text_;
  int process_ = 0;
  struct Agreement;
  std::unique_ptr<Agreement> agreement_;
};

mxs_status create_comm(std::unique_ptr<Comm> *comm, const mxs_comm_options &options);

// All ranks give a hash of what they are about to create; MXS_MISMATCH on all if one differs, naming the rank and
// `what`.
mxs_status compare_over_ranks(Comm &comm, uint64_t hash, const char *what);

}  // namespace mxs

// The public handle is the object.
struct mxs_comm : mxs::Comm {};
