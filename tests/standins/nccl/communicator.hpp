// SPDX-License-Identifier: Apache-2.0
// A communicator of the stand-in: joined ranks, and the jobs that it has put on streams.
//
// A job is what one group of calls lists. On its stream:
//
//   | copies to pinned memory | hands it to a thread | waits for a flag | copies from pinned memory | event |
//
//   the communicator's thread:   carries the bytes, adds .... sets the flag
//
// The stream waits for the peers, as it does with NCCL's kernels, until all have come or the communicator is aborted.
// What hands over is a function of the host, which returns at once: a driver may run those of all streams in one
// thread, where they must not wait for each other. (They do where a device can't wait for flags: ranks are to be
// processes then.) Jobs of one communicator run in the order of their calls, also over several streams.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "channels.hpp"
#include "driver.hpp"

namespace standin {

// The environment when the communicator was made.
struct Settings {
  int in_progress_ms = 0;      // MXS_STANDIN_NCCL_IN_PROGRESS_MS: what is not blocking goes on that long
  long error_after = -1;       // MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER: so many calls succeed, the next fails and hangs
  int error_rank = -1;         // MXS_STANDIN_NCCL_ASYNC_ERROR_RANK: on this rank only
  bool checks = false;         // MXS_STANDIN_NCCL_CHECK: calls that don't fit each other are told on stderr
  int ranks_per_device = 1;    // MXS_STANDIN_NCCL_SHARE_GPU
};
Settings read_settings();

int claimed_version();  // MXS_STANDIN_NCCL_VERSION, else the one that this file is built as

enum class Call : uint64_t { broadcast = 1, reduce, all_reduce, all_gather, reduce_scatter, message };
const char *name_of(Call call);

struct Operation {
  Call call = Call::broadcast;
  bool is_send = false;  // of a message
  const void *source = nullptr;
  void *target = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t operation = ncclSum;
  int root = 0;  // or the peer of a message
  CUstream stream = nullptr;
};

struct Job;

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank, int rank_count, bool is_blocking);
  ~Communicator();

  // Takes the device of the current context, else device 0.
  ncclResult_t choose_device();
  // Begins in a thread of its own.
  void join_ranks(const std::string &name);
  void split(const std::shared_ptr<Communicator> &parent, int color, int key);
  ncclResult_t wait_for_worker();  // and its result

  // ncclSuccess: calls may come.
  ncclResult_t ready();
  ncclResult_t check(const Operation &operation);
  ncclResult_t launch(std::vector<Operation> operations);

  ncclResult_t finalize();
  void finish();  // waits for what it has put on streams
  void stop();    // from any thread: what is on streams ends, without results
  void close();   // after stop or finish

  ncclResult_t state() const { return static_cast<ncclResult_t>(state_.load()); }
  int rank() const { return rank_; }
  int rank_count() const { return rank_count_; }
  int device() const { return device_; }
  bool is_blocking() const { return is_blocking_; }
  bool is_stopped() const { return stopped_.load(); }
  CUcontext context() const { return context_; }
  void hand_over(Job &job);  // by the driver's thread

 private:
  ncclResult_t join_now(const std::string &name);
  ncclResult_t exchange_split(Communicator &parent, int color, int key, std::string *name);
  ncclResult_t launch_now(const std::vector<Operation> &operations);
  ncclResult_t enqueue(const std::shared_ptr<Job> &job, const std::vector<CUstream> &streams);
  ncclResult_t order_streams(const std::vector<CUstream> &streams, bool is_captured);
  void work(const std::function<ncclResult_t()> &body);
  void reap();
  void run(Job &job);
  void run_jobs();
  bool fails_now(size_t operations);
  void hang();

  int rank_, rank_count_;
  const bool is_blocking_;
  const Settings settings_;
  int device_ = 0;
  CUcontext context_ = nullptr;
  std::string device_name_, name_;
  uint32_t split_count_ = 0;
  void *memory_ = nullptr;
  Channels channels_;

  std::atomic<bool> stopped_{false};
  std::atomic<int> state_{ncclSuccess};
  std::thread worker_;
  bool waits_values_ = false;
  std::thread runner_;  // begins with the first job
  std::mutex running_;  // guards the queue; or, without a runner, lets one job run at a time
  std::condition_variable has_work_;
  std::deque<Job *> queue_;
  long operations_run_ = 0;
  std::vector<std::shared_ptr<Job>> jobs_;
};

// What ncclGetLastError says.
void set_last_error(const std::string &sentence);
std::string last_error();

}  // namespace standin
