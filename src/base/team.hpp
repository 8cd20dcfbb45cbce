// SPDX-License-Identifier: Apache-2.0
// Team: worker threads that share the parts of one job. For numeric loops: results must not depend on which thread
// takes which part.
//
// Workers are started at create and sleep between jobs (a futex under std::atomic::wait, after a short spin). A job
// allocates nothing and takes no lock. The calling thread works too, so a team of one has no threads at all. In a
// forked child there are no workers: the caller then does every part itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

class Team {
 public:
  // MXS_OUT_OF_MEMORY: the system gives no more threads.
  static mxs_status create(std::unique_ptr<Team> *team, int size);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  int size() const { return size_; }

  // body(part, member) for every part from 0 to part_count - 1, each once, on whatever member of the team (0 is the
  // caller) is free. Returns when all are done. body must not throw. One job at a time, not from within a job.
  template <class Body>
  void run(size_t part_count, Body &&body) {
    using Plain = std::remove_reference_t<Body>;
    const Work work = [](void *context, size_t part, int member) { (*static_cast<Plain *>(context))(part, member); };
    run_work(part_count, work, const_cast<void *>(static_cast<const void *>(std::addressof(body))));
  }

 private:
  using Work = void (*)(void *context, size_t part, int member);

  explicit Team(int size) : size_(size) {}
  void run_work(size_t part_count, Work work, void *context);
  void serve(int member);
  void take_parts(int member);

  const int size_;
  long creator_ = 0;  // process id: a forked child has no workers
  std::vector<std::thread> workers_;
  // The job. Written before `job_number_` is raised, read after.
  Work work_ = nullptr;
  void *context_ = nullptr;
  size_t part_count_ = 0;
  alignas(64) std::atomic<uint32_t> job_number_{0};
  alignas(64) std::atomic<size_t> next_part_{0};
  alignas(64) std::atomic<uint32_t> busy_{0};  // workers that may still touch the job
  bool ends_ = false;
};

}  // namespace mxs
