// SPDX-License-Identifier: Apache-2.0
// Agreement: an all-gather of at most 1 KiB per rank, with a latency path of its own.
//
//   in a domain   every rank has two slots in shared memory. The n-th agreement uses slot n mod 2: write, publish n,
//                 wait until all others have published n, read. Two are enough: whoever publishes n + 1 has read all of
//                 n, and a slot is written for n + 2 only after everybody has published n + 1.
//   else          one message to each other rank, as an operation in the comm's order, on a lane of its own
//
// The same shared pages carry a failure's sentence to local peers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/comm.hpp"
#include "collective/operation.hpp"
#include "collective/situation.hpp"

namespace mxs {

class MessageAgreement;

class Agreement {
 public:
  explicit Agreement(Comm &comm);
  ~Agreement();
  // Shares the boards if there are local peers. Collective over these.
  mxs_status open();

  // what: for the trace.
  mxs_status run(const void *source, void *target, size_t bytes, uint64_t timeout_ns, const char *what, Comm::Use use);

  // Room for one agreement of all ranks, for callers who must not allocate.
  std::byte *scratch() { return scratch_.data(); }

  // Leaves a failure for local peers to find; finds one that a peer has left: its status, or MXS_OK. Any thread.
  void leave_failure(mxs_status status, const char *sentence);
  mxs_status find_failure(const char **sentence) const;

  // Shows local peers what this rank is in; finds what one has shown. The caller holds the comm's progress.
  void tell(const Notice &notice);
  bool told_by(int local_rank, Notice *notice) const;
  // Fills in what concerns agreements in a domain, and the number of operations. Any thread.
  void report(Situation *situation) const;

 private:
  struct Board;
  Board &board(int local_rank) const;
  mxs_status run_in_memory(const void *source, void *target, size_t bytes, uint64_t timeout_ns, const char *what,
                           Comm::Use use);
  mxs_status run_in_messages(const void *source, void *target, size_t bytes, uint64_t timeout_ns, const char *what,
                             Comm::Use use);

  Comm &comm_;
  SharedRegion boards_;
  uint64_t number_ = 0;
  // Of the latest in memory: its number, the operations started before it, and whether this rank is in it. Read by
  // other threads that wait; `at` before `to`, so that they see an older number with a newer `at` at worst.
  std::atomic<uint64_t> come_to_{0}, come_at_{0};
  std::atomic<bool> inside_{false};
  std::unique_ptr<MessageAgreement> messages_;
  std::vector<std::byte> scratch_;
};

}  // namespace mxs
