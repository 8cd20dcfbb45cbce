// SPDX-License-Identifier: Apache-2.0
// Bootstrap: how ranks find each other and exchange small blobs, before and beside the transports.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/comm.h"
#include "matrixshard/status.h"

namespace mxs {

// A comm's own way to tell its ranks of a failure, once the exchange that made it is over: for a comm that was split
// off, whose failures are no business of its parent's. Any thread.
class FailureLine {
 public:
  virtual ~FailureLine() = default;
  // Tells the line's other ranks; never blocks for long.
  virtual void announce(mxs_status status, const char *sentence) = 0;
  // Has one of them announced a failure, or hung up? Cheap, never blocks.
  virtual mxs_status check() = 0;
  // A line for some of this one's ranks, given by their numbers here.
  virtual std::unique_ptr<FailureLine> open_line(uint64_t number, const std::vector<int> &ranks) = 0;
};

class Secret;  // secret.hpp

class Bootstrap {
 public:
  static constexpr size_t gather_bytes_max = size_t{1} << 20;  // from each rank, in one all_gather
  static constexpr size_t blob_bytes_max = size_t{16} << 20;   // from each rank, in one all_gather_blobs

  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  virtual const char *name() const = 0;  // "torchrun", "slurm", "openmpi", "callbacks"

  // Every rank gives `bytes` bytes, equal on all ranks, and gets all of them in rank order. Blocks, with a deadline; a
  // rank that doesn't come is named. bytes <= gather_bytes_max.
  virtual mxs_status all_gather(const void *source, void *target, size_t bytes) = 0;

  // Blobs of any size up to 16 MiB each, in rounds of the above.
  mxs_status all_gather_blobs(const std::vector<std::byte> &blob, std::vector<std::vector<std::byte>> *blobs);

  mxs_status barrier();

  // Every rank says how a step of its own went. If it failed anywhere it has failed everywhere: the lowest such rank's
  // status and sentence on all ranks. So nobody waits for one that has given up.
  mxs_status settle(mxs_status own);

  // Tells others that this rank has failed, if there is a way, and makes a waiting all_gather return; never blocks.
  // Any thread.
  virtual void announce_failure(mxs_status, const char *) { interrupted_.store(true, std::memory_order_release); }
  // Has anybody announced one, or hung up? Cheap, never blocks. A failure with a sentence, else MXS_OK. Any thread.
  virtual mxs_status check() { return MXS_OK; }

  // This rank's address, in numbers, at which the others reach it; empty: not known.
  virtual std::string own_address() const { return ""; }

  // A line for some of its ranks, in the order of their numbers in the comm to be made. number: not 0, equal on these
  // ranks and on no others. It may outlive this object. nullptr: this bootstrap has no way to tell of failures.
  virtual std::unique_ptr<FailureLine> open_line(uint64_t, const std::vector<int> &) { return nullptr; }
  // Its comm has several nodes or is being split: from here on this rank passes on what others announce, also on lines,
  // even while it makes no call.
  virtual void watch() {}

 protected:
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }
  std::atomic<bool> interrupted_{false};
};

// What the environment says, before anybody connects. Pure but for reading variables; see docs/environment.md.
struct JobEnvironment {
  const char *launcher = "";  // "torchrun", "slurm", "openmpi"
  int rank = 0, rank_count = 1, local_rank = 0;
  std::string address;    // where rank 0 is looked for, and listens; not used by a world of 1
  std::string interface;  // on whose address alone rank 0 listens; empty: on the one above
  int port = 0;
  uint64_t job = 0;  // a hash of what the launcher calls this job: strangers of another job are told apart by it
  std::shared_ptr<const Secret> secret;  // of the job; nullptr: none. Not read here: see read_secret
};
mxs_status read_job_environment(JobEnvironment *job);

// The first name of a Slurm node list: "node[03-07,9],b" gives "node03". Empty if it makes no sense.
std::string first_host(const std::string &node_list);

// Rank 0 listens, the others connect. MXS_SYSTEM: port in use. MXS_TIMED_OUT names ranks that never came.
mxs_status create_store_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const JobEnvironment &job,
                                  uint64_t timeout_ns);
mxs_status create_callback_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const mxs_bootstrap &callbacks,
                                     uint64_t timeout_ns);

}  // namespace mxs
