// SPDX-License-Identifier: Apache-2.0
// A save beside training: prepared and copied in the caller's thread, carried out by a thread of its own over a comm
// that is split off for it. It knows neither units nor their comm: both may go while it runs.
//
//   caller   prepare, copy, split, start the thread | all ranks could | go on training
//   thread                                 (waits)  | write, report, commit; gives back copy and comm
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/prepared_save.hpp"

namespace mxs {

class BackgroundSave {
 public:
  virtual ~BackgroundSave();  // finished, or never started

  // Collective over the units' comm.
  mxs_status start(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings);
  // Of a replica that doesn't write.
  void finish_at_once(const SaveSettings &settings, Optimizer *optimizer);

  // MXS_FORKED: the thread is the parent's.
  mxs_status check_process() const;
  // ---- any thread ----
  mxs_save_info info() const;
  mxs_status wait(uint64_t timeout_ns);  // MXS_TIMED_OUT: it goes on
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool finished() const;

 private:
  mxs_status prepare(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings);
  mxs_status split(Comm &comm);
  void run();
  void finish(mxs_status status) noexcept;

  PreparedSave save_;
  std::unique_ptr<Comm> comm_;
  std::string path_;
  uint64_t process_generation_ = 0, total_bytes_ = 0, snapshot_bytes_ = 0;
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<bool> cancelled_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  enum class State { waiting, running, finished } state_ = State::waiting;  // under the mutex, as all that follows
  mxs_status status_ = MXS_OK;
  std::string sentence_;
  std::thread thread_;
};

}  // namespace mxs

// The public handle is the object.
struct mxs_save : mxs::BackgroundSave {};
