// SPDX-License-Identifier: Apache-2.0
// Ranks of one machine for tests, as threads or as forked processes, with a bootstrap that needs no network.
//
// A body returns "" or a complaint; run_threads and run_processes return the first complaint, with its rank.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"

namespace mxs::testing {

constexpr int world_ranks_max = 16;
constexpr size_t world_blob_max = 8192;

// Lies in anonymous shared memory, so that forked ranks see it too.
struct WorldBoard {
  std::atomic<uint64_t> written[world_ranks_max];
  std::atomic<uint64_t> read[world_ranks_max];
  std::byte blobs[world_ranks_max][world_blob_max];
  char complaints[world_ranks_max][1024];
  std::atomic<uint64_t> flags[world_ranks_max];  // for tests to use
};

class BoardBootstrap final : public Bootstrap {
 public:
  BoardBootstrap(WorldBoard *board, int rank, int rank_count) : board_(board), rank_(rank), rank_count_(rank_count) {}
  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  const char *name() const override { return "board"; }

  mxs_status all_gather(const void *source, void *target, size_t bytes) override {
    if (bytes > world_blob_max) return set_error(MXS_INVALID_ARGUMENT, "%zu bytes are too many for a test", bytes);
    turn_++;
    // Nobody overwrites what a slower rank has yet to read.
    mxs_status status = wait_for_all(board_->read, turn_ - 1);
    if (status != MXS_OK) return status;
    std::memcpy(board_->blobs[rank_], source, bytes);
    board_->written[rank_].store(turn_, std::memory_order_release);
    status = wait_for_all(board_->written, turn_);
    if (status != MXS_OK) return status;
    for (int rank = 0; rank < rank_count_; rank++)
      std::memcpy(static_cast<std::byte *>(target) + bytes * rank, board_->blobs[rank], bytes);
    board_->read[rank_].store(turn_, std::memory_order_release);
    return MXS_OK;
  }

 private:
  mxs_status wait_for_all(std::atomic<uint64_t> *words, uint64_t value) {
    const uint64_t deadline = now_ns() + 60'000'000'000;
    for (int rank = 0; rank < rank_count_; rank++)
      while (words[rank].load(std::memory_order_acquire) < value) {
        if (now_ns() > deadline) return set_error(MXS_TIMED_OUT, "rank %d never came", rank);
        sched_yield();
      }
    return MXS_OK;
  }

  WorldBoard *board_;
  int rank_, rank_count_;
  uint64_t turn_ = 0;
};

class World {
 public:
  explicit World(int rank_count) : rank_count_(rank_count) {
    void *memory = mmap(nullptr, sizeof(WorldBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = static_cast<WorldBoard *>(memory);
  }
  ~World() { munmap(board_, sizeof(WorldBoard)); }
  World(const World &) = delete;

  using Body = std::function<std::string(int rank, Bootstrap &bootstrap)>;
  WorldBoard &board() { return *board_; }
  pid_t process(int rank) const { return processes_[rank]; }

  std::string run_threads(const Body &body) {
    std::vector<std::string> complaints(rank_count_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rank_count_; rank++)
      threads.emplace_back([&, rank] {
        BoardBootstrap bootstrap(board_, rank, rank_count_);
        complaints[rank] = body(rank, bootstrap);
      });
    for (std::thread &thread : threads) thread.join();
    for (int rank = 0; rank < rank_count_; rank++)
      if (!complaints[rank].empty()) return "rank " + std::to_string(rank) + ": " + complaints[rank];
    return "";
  }

  // meanwhile: what the parent does while they run, such as killing one; ranks in `may_die` need not return.
  std::string run_processes(const Body &body, const std::function<void()> &meanwhile = {}, int may_die = -1) {
    processes_.assign(rank_count_, -1);
    for (int rank = 0; rank < rank_count_; rank++) {
      processes_[rank] = fork();
      if (processes_[rank] == 0) run_child(rank, body);
    }
    if (meanwhile) meanwhile();
    std::string first;
    for (int rank = 0; rank < rank_count_; rank++) {
      int result = 0;
      if (rank == may_die) {
        // Not before the others are done: they must notice by themselves.
        continue;
      }
      waitpid(processes_[rank], &result, 0);
      if (first.empty() && board_->complaints[rank][0])
        first = "rank " + std::to_string(rank) + ": " + board_->complaints[rank];
      if (first.empty() && (!WIFEXITED(result) || WEXITSTATUS(result) != 0))
        first = "rank " + std::to_string(rank) + " ended with wait status " + std::to_string(result);
    }
    if (may_die >= 0) {
      kill(processes_[may_die], SIGKILL);
      waitpid(processes_[may_die], nullptr, 0);
    }
    return first;
  }

 private:
  [[noreturn]] void run_child(int rank, const Body &body) {
    alarm(400);  // a hanging rank ends, and so does the test
    BoardBootstrap bootstrap(board_, rank, rank_count_);
    const std::string complaint = body(rank, bootstrap);
    std::snprintf(board_->complaints[rank], sizeof board_->complaints[rank], "%s", complaint.c_str());
    _exit(0);
  }

  int rank_count_;
  WorldBoard *board_;
  std::vector<pid_t> processes_;
};

}  // namespace mxs::testing
