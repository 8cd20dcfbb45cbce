/* SPDX-License-Identifier: Apache-2.0 */
// Ranks as threads of this process, joined by a comm over loopback. Uses the public interface only.
//
//   const std::string complaint = run_world(4, [](int rank, mxs_comm *comm) -> std::string {
//     if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return mxs_last_error();
//     return "";
//   });
//
// No asserts inside a body: cmocka's would end the program without a word. It returns what is wrong instead.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "matrixshard/comm.h"
#include "support/sanitized.hpp"

namespace mxs::test {

using Body = std::function<std::string(int rank, mxs_comm *comm)>;

struct WorldOptions {
  const char *transport = nullptr;
  double comm_timeout_seconds = 60;  // of the comm
  double timeout_seconds = 400;      // of the whole world: past it the comms are aborted, and if that doesn't help the
                                     // program ends with a word on stderr
  int thread_count = 1;              // of the comm
};

// Creates the comm on each rank, runs the body, destroys the comm. Text: complaints, with their ranks; "": good.
// A comm that the body has failed on purpose may be destroyed all the same.
std::string run_world(int rank_count, const Body &body, const WorldOptions &options = {});

// The worlds that every collective is tested in.
inline const std::vector<int> world_sizes = under_valgrind() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 4, 7, 8};

// An all-gather between threads for mxs_comm_options.bootstrap, for tests that make comms themselves. Non-blocking.
class ThreadBootstrap {
 public:
  explicit ThreadBootstrap(int rank_count) : rank_count_(rank_count), ends_(static_cast<size_t>(rank_count)) {
    for (int rank = 0; rank < rank_count; ++rank) ends_[static_cast<size_t>(rank)] = {this, rank, 0};
  }
  mxs_bootstrap of(int rank);
  int requests_alive() const { return requests_alive_; }

 private:
  struct End {
    ThreadBootstrap *world;
    int rank;
    uint64_t round;
  };
  struct Round {
    size_t bytes = 0;
    int come = 0, taken = 0;
    std::vector<std::byte> all;
  };
  struct Request {
    uint64_t round;
    void *target;
    bool taken;
  };
  static int all_gather(void *context, const void *source, void *target, size_t bytes, void **request);
  static int test(void *context, void *request);
  static int free_request(void *context, void *request);

  int rank_count_;
  std::vector<End> ends_;
  std::mutex mutex_;
  std::map<uint64_t, Round> rounds_;
  int requests_alive_ = 0;
};

}  // namespace mxs::test
