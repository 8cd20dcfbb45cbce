// SPDX-License-Identifier: Apache-2.0
// Unit: tensors that are gathered together, at addresses that never change. See include/matrixshard/unit.h.
//
//   range     reserved once     |-- mine --|------- others' -------|-- mine --|
//                                    |               |
//   mapped onto            my weights file     a slot of the pool (by copy), or the owners' files (by reference)
//
//   weights.cpp    gather, wait, release: the slot rules
//   gradients.cpp  gradient, reduce, skip: the gradient slots and the owner's sums
//   shards.cpp     the owner's pieces: shard, commit, and what the optimizer needs
//   create.cpp     comparing over ranks, memory, operations; destroy
//   pool.cpp       slots that all units of a plan take turns in
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/engine.hpp"
#include "collective/node_collective.hpp"
#include "layout/layout.hpp"
#include "matrixshard/unit.h"
#include "memory/region.hpp"
#include "plan/plan.hpp"

namespace mxs {

class Comm;
class Pool;

// One placement that this rank owns: what the owner reads and writes at a step. Pointers stay for the unit's life.
struct OwnedPlacement {
  uint64_t placement = 0;  // index within the plan
  int tensor = 0;
  mxs_dtype dtype = MXS_F32, master_dtype = MXS_F32;
  uint64_t element_count = 0;
  void *weights = nullptr;    // in dtype, in the unit's range
  void *master = nullptr;     // in master_dtype; nullptr: weights are the master
  float *gradient = nullptr;  // the fp32 sum; nullptr: frozen
};

class Unit {
 public:
  ~Unit();

  Comm &comm() const { return *comm_; }
  const Plan &plan() const;  // the pool's copy: equal for all units of a plan on a comm
  int index() const { return index_; }
  int rank() const { return rank_; }
  bool rank_order() const { return rank_order_; }
  uint64_t generation() const { return generation_; }
  // In layout order. Empty pieces are left out.
  const std::vector<OwnedPlacement> &owned() const { return owned_; }

  // ---- the public calls; arguments are checked, outputs are set on success only ----
  mxs_status gather(const mxs_call &call);
  mxs_status wait(uint64_t timeout_ns);
  mxs_status release(int mode);
  mxs_status tensor(int tensor, mxs_view *view);
  mxs_status open_gradient(int tensor, int flags, mxs_view *view);
  mxs_status set_gradient(int tensor, const mxs_view &view);
  mxs_status reduce(const mxs_call &call);
  mxs_status reduce_zeros(const mxs_call &call);
  mxs_status wait_reduce(uint64_t timeout_ns);
  mxs_status shard(uint64_t placement, mxs_view *view);
  mxs_status commit(const mxs_view &view);
  mxs_status shard_gradient(uint64_t placement, mxs_view *view);
  mxs_status query(mxs_unit_info *info) const;
  mxs_memory memory() const;

  // ---- for the optimizer, in the order of a step: check_idle of all units, wait_reduce, end_views, agreement,
  //      update of owned(), finish_step ----
  // MXS_HELD if a gather is not released or a gradient is open; `what` is the caller's name in the sentence.
  mxs_status check_idle(const char *what) const;
  // Ends pins. From here until the next gather nobody on this rank reads the unit; the agreement proves it for all.
  void end_views();
  // Clears the sums; changed: the generation grows, so that views from before are stale.
  void finish_step(bool changed);
  void clear_sums();  // after wait_reduce
  // A unit is in one optimizer only, and can't be destroyed while it is. MXS_HELD: it is in one already.
  mxs_status attach();
  void detach();

 private:
  friend struct UnitBuilder;  // create.cpp
  Unit() = default;

  Comm *comm_ = nullptr;
  std::shared_ptr<Pool> pool_;
  int index_ = 0, rank_ = 0;
  bool rank_order_ = false, attached_ = false;
  uint64_t generation_ = 1;
  std::vector<OwnedPlacement> owned_;
};

// Collective. buffer and flags are in the options; their fields have been checked by the caller.
mxs_status create_unit(std::unique_ptr<Unit> *unit, Comm &comm, const Plan &plan, int index,
                       const mxs_unit_options &options);

// MXS_HELD: nothing is destroyed. Else *unit is deleted and nullptr.
mxs_status destroy_unit(Unit **unit);

}  // namespace mxs

// The public handle is the object.
struct mxs_unit : mxs::Unit {};
