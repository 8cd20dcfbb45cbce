// SPDX-License-Identifier: Apache-2.0
// Placement: where weights, gradients, masters and optimizer state lie, and what a step must bring together.
//
//   single     one process, plain loops, no communicator
//   ddp        everything everywhere; sums are reduced and gathered, every rank steps everything
//   zero1      weights everywhere; owners have masters and state, step, and give the weights to all
//   slices     rows of every matrix on every rank (FSDP2); a step gathers each matrix everywhere
//   alltoall   slices at rest; a step brings each matrix to one rank and its update back (dion, DistMuon)
//   owner      this library: each matrix on one rank, whole
//
// The network sees this interface only, so that nothing but the placement differs between two runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "model.hpp"

namespace train {

struct PlacementOptions {
  uint64_t seed = 1;
  bool rank_order = false;
  int release = MXS_FREE;  // owner: after a unit's forward
  int gather = MXS_GATHER_AUTO;  // owner
  mxs_memory_kind memory = MXS_HOST;  // owner: of units and optimizer; the network computes on the host
  int thread_count = 1;
  mxs_preset preset = MXS_PRESET_DEFAULT;  // of the hidden matrices' rule
  bool backup = false;  // owner
};

// What a checkpoint is made of.
struct Trained {
  std::vector<mxs_unit *> units;
  mxs_optimizer *optimizer = nullptr;
};

// A run of one tensor's masters, fp32.
using MasterVisitor = std::function<void(int tensor, uint64_t element_offset, const float *masters, uint64_t count)>;

class Placement {
 public:
  virtual ~Placement() = default;

  // Weights of a unit come with gather (doesn't block) and wait, may be read until release.
  virtual void gather(int) {}
  virtual void wait(int) {}
  virtual void release(int, bool /*after_forward*/) {}
  virtual const void *weights(int tensor) = 0;

  // One micro-batch's gradient, to be overwritten whole, or, with `add`, what was written before, to be added to.
  virtual void *gradient(int tensor, bool add) = 0;
  // All gradients of the unit are written: they go where the step wants their sum. Doesn't block.
  virtual void reduce(int unit) = 0;

  // Whether the micro-batches to come count. One that doesn't goes through all units for the others' sake, whose
  // collectives want this rank. Owner only.
  virtual void count_gradients(bool) {}

  // After the last micro-batch: returns when this rank's sums are complete.
  virtual void finish_gradients() {}
  virtual mxs_verdict step(const mxs_step &step) = 0;

  // Calls the visitor with runs of masters such that all ranks together visit each element once.
  virtual void visit_masters(const MasterVisitor &visitor) = 0;

  // Owner only.
  virtual Trained trained() { return {}; }

  // Owner with a backup only: this one's comm has failed, and `comm` was shrunk from it. One on that, filled. was: by
  // rank of `comm`, its number here.
  virtual std::unique_ptr<Placement> go_on(mxs_comm * /*comm*/, const std::vector<int32_t> & /*was*/,
                                           mxs_recovery * /*recovery*/) {
    return nullptr;
  }

  // What this rank really took, and what shapes alone said before anything was taken.
  virtual mxs_memory counted() = 0;
  virtual mxs_memory predicted() = 0;
};

// `comm` is nullptr for single only. Throws for a name that is none.
std::unique_ptr<Placement> make_placement(const std::string &name, const Model &model, mxs_comm *comm,
                                          const PlacementOptions &options);

std::unique_ptr<Placement> make_single(const Model &model, const PlacementOptions &options);
std::unique_ptr<Placement> make_ddp(const Model &model, mxs_comm *comm, const PlacementOptions &options);
std::unique_ptr<Placement> make_zero1(const Model &model, mxs_comm *comm, const PlacementOptions &options);
std::unique_ptr<Placement> make_slices(const Model &model, mxs_comm *comm, const PlacementOptions &options);
std::unique_ptr<Placement> make_alltoall(const Model &model, mxs_comm *comm, const PlacementOptions &options);
// The placement, until it kills its process by SIGKILL: in the `moment` of the step that `arm` is called before.
enum class Moment { forward, backward, step };
class Mortal : public Placement {
 public:
  virtual void arm(Moment moment) = 0;
};
std::unique_ptr<Mortal> make_mortal(std::unique_ptr<Placement> placement);

std::unique_ptr<Placement> make_owner(const Model &model, mxs_comm *comm, const PlacementOptions &options);

}  // namespace train
