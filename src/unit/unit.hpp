// SPDX-License-Identifier: Apache-2.0
// Unit: tensors that are gathered together, at addresses that never change. See include/matrixshard/unit.h.
//
//   range     reserved once     |-- mine --|------- others' -------|-- mine --|
//                                    |               |
//   mapped onto            my weights file     a slot of the pool or my file again (by copy), or the owners' files (by
//                                              reference)
//
//   weights.cpp    gather, wait, release: the slot rules
//   gradients.cpp  gradient, reduce, skip: the gradient slots and the owner's sums
//   replicas.cpp   an owner's sums over the replicas of its shard group
//   shards.cpp     the owner's pieces: shard, commit, and what the optimizer needs
//   create.cpp     memory, maps and operations; destroy
//   streams.cpp    the same verbs in CUDA memory, where streams wait instead of callers
//   device_unit    CUDA memory of a unit, and what orders the work on it; nullptr: host memory
//   canaries.cpp   MXS_DEBUG_BUFFERS: who wrote where nobody may, or while it was read
//   compare.cpp    are all ranks about to create the same thing?
//   pool.cpp       slots that all units of a plan take turns in
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/buffer_watch.hpp"
#include "collective/device_collective.hpp"
#include "collective/engine.hpp"
#include "collective/node_collective.hpp"
#include "device/device.hpp"
#include "layout/layout.hpp"
#include "matrixshard/unit.h"
#include "memory/region.hpp"
#include "plan/plan.hpp"
#include "unit/canaries.hpp"

namespace mxs {

class Comm;
class Pool;

// One placement that this rank owns: what the owner reads and writes at a step. Pointers stay for the unit's life.
struct OwnedPlacement {
  uint64_t placement = 0;  // index within the plan
  int tensor = 0;
  mxs_dtype dtype = MXS_F32, master_dtype = MXS_F32;
  uint64_t element_count = 0;
  void *weights = nullptr;    // in dtype, in the unit's range; "copied" in CUDA memory: apart from it
  void *master = nullptr;     // in master_dtype; nullptr: weights are the master
  float *gradient = nullptr;  // the fp32 sum; nullptr: frozen
};

// A tensor's place in its unit: contiguous, whoever owns its pieces.
struct UnitTensor {
  int tensor = 0;
  uint64_t element_count = 0;
  uint64_t weight_offset = 0;
  uint64_t gradient_offset = UINT64_MAX;  // UINT64_MAX: frozen
  bool opened = false;                    // since the last reduce
  bool given = false;                     // opened and reduced since the sums were cleared
};

// The pieces of the gradient range that have one dtype: one operation sums them. Most units have one group.
struct GradientGroup {
  mxs_dtype dtype = MXS_F32;
  Layout layout;
  uint64_t sums_offset = 0;  // of this rank's packed sums, bytes within the unit's sums
  std::unique_ptr<NodeCollective> node;
  std::unique_ptr<MessageOperation> messages;
  std::unique_ptr<DeviceOperation> on_device;  // CUDA memory
  uint64_t bytes_out = 0, bytes_in = 0;  // of one reduce
  uint64_t request = 0;
  BufferWatch watch;                     // MXS_DEBUG_BUFFERS
};

class DeviceUnit;
class ReplicaSum;

class Unit {
 public:
  virtual ~Unit();

  Comm &comm() const { return *comm_; }
  const Plan &plan() const;  // the pool's copy: equal for all units of a plan on a comm
  Comm *replicas() const { return replicas_; }  // nullptr: none
  bool first_replica() const;                   // also without replicas
  int index() const { return index_; }
  int rank() const { return rank_; }
  bool rank_order() const { return rank_order_; }
  uint64_t generation() const { return generation_; }
  // Grows with each commit, step and load: whenever what this rank owns may have got other values.
  uint64_t changes() const { return changes_; }
  // In layout order. Empty pieces are left out.
  const std::vector<OwnedPlacement> &owned() const { return owned_; }

  // ---- the public calls; arguments are checked, outputs are set on success only ----
  mxs_status gather(const mxs_call &call);
  mxs_status wait(const mxs_call &call);
  mxs_status release(int mode, const mxs_call &call);
  mxs_status tensor(int tensor, mxs_view *view);
  mxs_status open_gradient(int tensor, int flags, mxs_view *view);
  mxs_status set_gradient(int tensor, const mxs_view &view);
  mxs_status reduce(const mxs_call &call);
  mxs_status reduce_zeros(const mxs_call &call);
  void discard();
  mxs_status wait_reduce(const mxs_call &call);
  mxs_status wait_reduce(uint64_t timeout_ns);  // the caller waits, also in CUDA memory
  mxs_status shard(uint64_t placement, mxs_view *view);
  mxs_status commit(const mxs_view &view);
  mxs_status shard_gradient(uint64_t placement, mxs_view *view);
  mxs_unit_info info() const;
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
  // The same for units in CUDA memory, put on a stream; nothing waits for the device. While `stream` is being captured
  // nothing outside the capture is waited for: whoever launches the graph orders it by mxs_unit_wait_reduce and
  // mxs_unit_gather with its stream.
  mxs_status wait_reduce_stream(DeviceStream stream);  // the stream waits for the sums
  mxs_status end_views_stream(DeviceStream stream);    // and for gathers and releases that are not over: it may write
  mxs_status finish_step(bool changed, DeviceStream stream);  // the next gather and reduce wait for what it has so far
  mxs_status clear_sums(DeviceStream stream);
  Device *device() const;  // nullptr: the unit is in host memory
  // The first tensor with a gradient that this rank has not given since, -1: none.
  int first_missing() const;
  // A unit is in one optimizer only, and can't be destroyed while it is. MXS_HELD: it is in one already.
  mxs_status attach();
  void detach();

 protected:
  Unit();

 private:
  friend class UnitBuilder;  // create.cpp
  friend mxs_status destroy_unit(Unit **unit);

  const PlannedUnit &planned() const;
  // Follows ties. MXS_NOT_FOUND: not in this unit.
  mxs_status find_tensor(int tensor, UnitTensor **found);
  mxs_status find_owned(uint64_t placement, const OwnedPlacement **found) const;  // *found nullptr: not owned here
  void fill_view(const std::vector<int64_t> &shape, mxs_dtype dtype, void *data, uint64_t elements, int tensor,
                 mxs_view *view) const;
  void count(int kind, uint64_t bytes_out, uint64_t bytes_in);

  // weights.cpp
  mxs_status take_slot();
  mxs_status map_slot(int slot);
  mxs_status start_gather(const mxs_call &call, uint64_t *request);
  mxs_status wait_gather(const mxs_call &call);
  mxs_status wait_gather(uint64_t timeout_ns);
  void note_reference();
  int missing_owner() const;
  void let_go();
  void protect(bool readable);
  bool pins(int mode) const;

  // gradients.cpp
  mxs_status take_gradient_slot(DeviceStream stream);
  void return_gradient_slot();
  void return_gradient_slot(DeviceStream stream);
  mxs_status end_reducing(DeviceStream stream);
  mxs_status start_reduce(const mxs_call &call);
  mxs_status start_group(GradientGroup *group, const mxs_call &call);
  bool reduce_complete() const;
  std::byte *gradients() const;
  std::byte *sums() const;

  // streams.cpp
  mxs_status zero(void *target, uint64_t bytes, DeviceStream stream);
  mxs_status start_gather_on_device(const mxs_call &call, uint64_t *request);
  mxs_status start_reduce_on_device(GradientGroup *group, const mxs_call &call);
  void note_discard(DeviceStream stream);
  mxs_status note_release(DeviceStream stream);
  mxs_status order_after_reduce(DeviceStream stream);
  mxs_status hand_over_gradient_slot(int slot, Unit *holder, DeviceStream stream);
  mxs_status copy_gradient(void *target, const mxs_view &view);
  mxs_status wait_for_device();
  mxs_status leave_device();
  mxs_status wait_for_sums();
  mxs_status round_masters(const OwnedPlacement &owned);

  // canaries.cpp
  mxs_status complain_of(const Canaries &canaries, std::byte *base, const char *place, const char *what) const;
  mxs_status look_at_shards(const char *what) const;
  mxs_status look_at_weights(const char *what) const;
  mxs_status look_at_gradients(const char *what) const;
  void watch_operations();
  void watch_gradients(GradientGroup *group);
  mxs_status complain_of_change(const BufferWatch &watch, const char *what, const char *operation,
                                const char *result) const;

  // replicas.cpp
  mxs_status start_replica_sum(int priority);

  // shards.cpp
  mxs_status check_not_held(const char *what) const;

  Comm *comm_ = nullptr, *replicas_ = nullptr;
  std::shared_ptr<Pool> pool_;
  int index_ = 0, rank_ = 0;
  bool rank_order_ = false, attached_ = false, debug_views_ = false;
  uint64_t generation_ = 1, changes_ = 0;
  std::vector<OwnedPlacement> owned_;
  std::vector<UnitTensor> tensors_;  // by tensor

  // The range and what is behind it.
  Mapping reserved_;            // empty if the caller gave a buffer
  std::byte *range_ = nullptr;
  uint64_t range_bytes_ = 0;
  std::vector<Extent> own_extents_, other_extents_;  // of the range, in pages
  SharedRegion region_;         // per rank: own segments at their place in the range (and others', with an own slot),
                                // then the sums
  uint64_t sums_offset_ = 0, sums_bytes_ = 0;
  Mapping masters_;
  std::unique_ptr<UnitCanaries> canaries_;  // nullptr: not asked for
  BufferWatch gather_watch_;                // nothing in it: not asked for
  std::unique_ptr<DeviceUnit> device_;  // instead of the three above, in CUDA memory
  DeviceStream stream_ = nullptr;       // the one that waited for the weights last; gradients are opened on it
  uint64_t masters_bytes_ = 0, own_slot_bytes_ = 0, huge_bytes_ = 0, touched_bytes_ = 0;

  // Weights.
  int weights_state_ = MXS_SHARDED, holders_ = 0;
  bool by_reference_ = false, takes_slot_ = false;
  bool own_slot_ = false;       // others' bytes lie in region_, too: the range shows all of it
  int slot_ = 0;                // the one the range is mapped onto
  uint64_t gather_request_ = 0, last_request_ = 0, gathers_ = 0;
  uint64_t reference_ = 0, reference_at_ = 0, reference_agreements_ = 0;  // of the latest gather by reference
  std::vector<int> owner_places_;  // by reference: local ranks, without this one, that own bytes
  std::unique_ptr<NodeCollective> node_gather_;
  std::unique_ptr<MessageOperation> message_gather_;
  uint64_t gather_bytes_out_ = 0, gather_bytes_in_ = 0;
  const char *gather_algorithm_ = "", *reduce_algorithm_ = "";

  // Gradients.
  int gradients_state_ = MXS_EMPTY, gradient_slot_ = -1;
  std::vector<GradientGroup> groups_;
  std::unique_ptr<ReplicaSum> replica_sum_;  // nullptr: no replicas, or no gradients
  uint64_t replica_request_ = 0;             // of comm_
};

// Collective. The fields of options have been checked. Always an mxs_unit, so that the handle is the object.
mxs_status create_unit(std::unique_ptr<Unit> *unit, Comm &comm, const Plan &plan, int index,
                       const mxs_unit_options &options);

// Collective, with the create_unit of other ranks: `own` is why this rank can't, which then all ranks are told. MXS_OK:
// this rank could, and so could all.
mxs_status refuse_unit(Comm &comm, mxs_status own, int index, Comm *replicas = nullptr);

// MXS_HELD: nothing is destroyed. Else *unit is deleted and nullptr.
mxs_status destroy_unit(Unit **unit);

}  // namespace mxs

// The public handle is the object.
struct mxs_unit : mxs::Unit {};
