// SPDX-License-Identifier: Apache-2.0
// Bootstrap: how ranks find each other and exchange small blobs, before and beside the transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/comm.h"
#include "matrixshard/status.h"

namespace mxs {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  virtual const char *name() const = 0;  // "torchrun", "slurm", "openmpi", "callbacks"

  // Every rank gives `bytes` bytes, equal on all ranks, and gets all of them in rank order. Blocks, with a deadline; a
  // rank that doesn't come is named. bytes <= 1 MiB.
  virtual mxs_status all_gather(const void *source, void *target, size_t bytes) = 0;

  // Blobs of any size up to 16 MiB each, by two rounds of the above or better.
  mxs_status all_gather_blobs(const std::vector<std::byte> &blob, std::vector<std::vector<std::byte>> *blobs);

  mxs_status barrier();

  // Tells others that this rank has failed, if there is a way; never blocks.
  virtual void announce_failure(const char *) {}
  // Has anybody announced one, or hung up? Cheap, never blocks. MXS_PEER_FAILED or MXS_ABORTED with a sentence,
  // else MXS_OK.
  virtual mxs_status check() { return MXS_OK; }
};

// What the environment says, before anybody connects. Pure but for reading variables; see docs/environment.md.
struct JobEnvironment {
  const char *launcher = "";  // "torchrun", "slurm", "openmpi"
  int rank = 0, rank_count = 1, local_rank = 0;
  std::string address;
  int port = 0;
};
mxs_status read_job_environment(JobEnvironment *job);

// Rank 0 listens, the others connect. MXS_SYSTEM: port in use. MXS_TIMED_OUT names ranks that never came.
mxs_status create_store_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const JobEnvironment &job,
                                  uint64_t timeout_ns);
mxs_status create_callback_bootstrap(std::unique_ptr<Bootstrap> *bootstrap, const mxs_bootstrap &callbacks,
                                     uint64_t timeout_ns);

}  // namespace mxs
