// SPDX-License-Identifier: Apache-2.0
#include "support/world.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "support/complaints.hpp"

namespace mxs::test {

// ---- the all-gather ----

mxs_bootstrap ThreadBootstrap::of(int rank) {
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  bootstrap.rank = rank;
  bootstrap.rank_count = rank_count_;
  bootstrap.context = &ends_[static_cast<size_t>(rank)];
  bootstrap.all_gather = all_gather;
  bootstrap.test = test;
  bootstrap.free_request = free_request;
  return bootstrap;
}

int ThreadBootstrap::all_gather(void *context, const void *source, void *target, size_t bytes, void **request) {
  End &end = *static_cast<End *>(context);
  ThreadBootstrap &world = *end.world;
  const std::lock_guard lock(world.mutex_);
  Round &round = world.rounds_[end.round];
  if (round.come == 0) {
    round.bytes = bytes;
    round.all.resize(bytes * static_cast<size_t>(world.rank_count_));
  }
  if (round.bytes != bytes) return -1;
  std::memcpy(round.all.data() + static_cast<size_t>(end.rank) * bytes, source, bytes);
  ++round.come;
  *request = new Request{end.round, target, false};
  ++end.round;
  ++world.requests_alive_;
  return 0;
}

int ThreadBootstrap::test(void *context, void *request_pointer) {
  End &end = *static_cast<End *>(context);
  ThreadBootstrap &world = *end.world;
  Request &request = *static_cast<Request *>(request_pointer);
  if (request.taken) return 0;
  const std::lock_guard lock(world.mutex_);
  Round &round = world.rounds_[request.round];
  if (round.come < world.rank_count_) return 1;
  std::memcpy(request.target, round.all.data(), round.all.size());
  request.taken = true;
  if (++round.taken == world.rank_count_) world.rounds_.erase(request.round);
  return 0;
}

int ThreadBootstrap::free_request(void *context, void *request) {
  ThreadBootstrap &world = *static_cast<End *>(context)->world;
  const std::lock_guard lock(world.mutex_);
  delete static_cast<Request *>(request);
  --world.requests_alive_;
  return 0;
}

// ---- the world ----

namespace {

struct Seat {
  mxs_comm *comm = nullptr;
  std::string complaint;
  bool done = false;
};

struct Hall {
  explicit Hall(int rank_count) : bootstrap(rank_count), seats(static_cast<size_t>(rank_count)) {}
  ThreadBootstrap bootstrap;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Seat> seats;
};

std::string live(Hall &hall, int rank, const Body &body, const WorldOptions &options) {
  const mxs_bootstrap bootstrap = hall.bootstrap.of(rank);
  mxs_comm_options comm_options = MXS_COMM_OPTIONS_INIT;
  comm_options.bootstrap = &bootstrap;
  comm_options.transport = options.transport;
  comm_options.thread_count = options.thread_count;
  comm_options.timeout_ns = static_cast<uint64_t>(options.comm_timeout_seconds * 1e9);
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &comm_options) != MXS_OK) return std::string("mxs_comm_create: ") + mxs_last_error();
  {
    const std::lock_guard lock(hall.mutex);
    hall.seats[static_cast<size_t>(rank)].comm = comm;
  }
  std::string complaint;
  try {
    complaint = body(rank, comm);
  } catch (const std::exception &error) {
    complaint = std::string("exception: ") + error.what();
  }
  // Others may be waiting for this rank; they need not wait for their deadline.
  if (!complaint.empty()) mxs_comm_abort(comm, complaint.c_str());
  {
    const std::lock_guard lock(hall.mutex);
    hall.seats[static_cast<size_t>(rank)].comm = nullptr;
  }
  if (mxs_comm_destroy(&comm) != MXS_OK && complaint.empty())
    complaint = std::string("mxs_comm_destroy: ") + mxs_last_error();
  return complaint;
}

bool all_done(const Hall &hall) {
  for (const Seat &seat : hall.seats)
    if (!seat.done) return false;
  return true;
}

// False if even aborting doesn't bring all threads back.
bool wait_for_all(Hall &hall, double seconds, bool *timed_out) {
  std::unique_lock lock(hall.mutex);
  const auto done = [&] { return all_done(hall); };
  if (hall.changed.wait_for(lock, std::chrono::duration<double>(seconds), done)) return true;
  *timed_out = true;
  for (Seat &seat : hall.seats)
    if (seat.comm) mxs_comm_abort(seat.comm, "the test's time is over");
  return hall.changed.wait_for(lock, std::chrono::seconds(20), done);
}

}  // namespace

std::string run_world(int rank_count, const Body &body, const WorldOptions &options) {
  Hall hall(rank_count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank)
    threads.emplace_back([&, rank] {
      std::string complaint = live(hall, rank, body, options);
      const std::lock_guard lock(hall.mutex);
      hall.seats[static_cast<size_t>(rank)].complaint = std::move(complaint);
      hall.seats[static_cast<size_t>(rank)].done = true;
      hall.changed.notify_all();
    });
  bool timed_out = false;
  if (!wait_for_all(hall, options.timeout_seconds, &timed_out)) {
    // A thread can't be killed, and it uses what lies on this stack.
    for (int rank = 0; rank < rank_count; ++rank)
      if (!hall.seats[static_cast<size_t>(rank)].done) std::fprintf(stderr, "rank %d hangs\n", rank);
    _exit(70);
  }
  for (std::thread &thread : threads) thread.join();
  std::vector<std::string> complaints;
  for (Seat &seat : hall.seats) complaints.push_back(std::move(seat.complaint));
  const std::string complaint = complaint_of_ranks(complaints);
  return complaint.empty() && timed_out ? "timed out" : complaint;
}

}  // namespace mxs::test
