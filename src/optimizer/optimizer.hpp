// SPDX-License-Identifier: Apache-2.0
// Optimizer: a step over the pieces that this rank owns. See include/matrixshard/optimizer.h.
//
//   create.cpp     pieces, state, a stepper for each shape; everything that allocates
//   settings.cpp   options of the rules: comparing them, and steppers from them
//   compare.cpp    are units, options and arithmetic those of all ranks?
//   agreement.cpp  one small exchange: norm, found_inf, step number, equal values; nothing has changed when it fails
//   step.cpp       the update, and listing of state
//   backup*.cpp    what this rank owns on another rank as well; recover*.cpp: filling a new optimizer from that
//   device_*.cpp   the same for units in CUDA memory: put on a stream, with numbers that stay on the device
//
// Order of a step: all units idle -> their reduces complete -> this rank's views end -> agreement -> update -> sums
// cleared. The agreement proves that no rank still reads the weights that are updated after it.
//
// A piece's update can fail after the agreement: a decomposition that didn't converge too often, which leaves the piece
// as it was, or a momentum that isn't finite, which leaves it damaged, as it was before. All others are stepped, on all
// ranks, and the step counts. The rank says so at once, all others in the next agreement, before anything changes:
// nobody waits for it, and all ranks know the one tensor that is to be loaded again.
//
// Communication is a pair of functions, given by the caller of make_optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "matrixshard/optimizer.h"
#include "optimizer/backup.hpp"
#include "optimizer/device_step.hpp"
#include "optimizer/device_stepper.hpp"
#include "optimizer/settings.hpp"
#include "trace/tracer.hpp"
#include "unit/unit.hpp"

namespace mxs {

// All-gather of at most 1,024 bytes in rank order, or a sum of words; exactly one of the two is set.
struct OptimizerComm {
  int rank = 0, rank_count = 1, thread_count = 1;
  std::function<mxs_status(const void *source, void *target, size_t bytes)> gather;
  std::function<mxs_status(int64_t *words, uint64_t count)> sum;
  // With gather: how making it went here; a failure anywhere is a failure everywhere.
  std::function<mxs_status(mxs_status own)> settle;
  // With replicas of the units' shard group: all-gather over them, this rank's number among them, and settle. A step is
  // the same on all of them, so with `gather` they only confirm what the shard group has agreed on.
  std::function<mxs_status(const void *source, void *target, size_t bytes)> gather_replicas;
  std::function<mxs_status(mxs_status own)> settle_replicas;
  int replica_count = 1;
  // A number that grows with every gather and reduce that is started, the same on all ranks.
  std::function<uint64_t()> operations;
  // Sums over ranks of the unit's comm (members: ascending), of at most values_max numbers. Collective over that comm.
  // *sum stays empty where this rank is no member; it must not be called after the comm's end.
  std::function<mxs_status(Unit &unit, const std::vector<int> &members, uint64_t values_max,
                           std::function<mxs_status(float *values, uint64_t count)> *sum)>
      make_sum;
  // CUDA memory. Words of device memory, summed over all ranks in place and in the stream's order: what NCCL does where
  // it joins all ranks. Not set: the host carries the agreement, and waits for the device before it.
  std::function<mxs_status(int64_t *words, uint64_t count, DeviceStream stream)> sum_on_device;
  // Until the event is over; looks after peers meanwhile.
  std::function<mxs_status(Device &device, DeviceEvent event)> wait_on_device;
  Tracer *tracer = nullptr;  // nullptr: nobody wants to know when this rank steps
  // Backups, with `gather` and without replicas: of packed bytes between ranks.
  MakeExchange make_exchange;
  std::function<mxs_status(mxs_status own)> settle_recovery;
  uint64_t session = 0;  // tells comms apart
  std::function<bool()> has_failed;
};

// Ranks that share matrices. Steppers hold its address; `sum` comes last, when all ranks are known to be well.
struct CoOwners {
  Unit *unit = nullptr;  // one of the comm
  std::vector<int> members;
  uint64_t values_max = 0;
  std::function<mxs_status(float *values, uint64_t count)> sum;

  static mxs_status call(void *context, float *values, uint64_t count) {
    return static_cast<CoOwners *>(context)->sum(values, count);
  }
};

// Are they values that a step can take? `whose` begins the sentence, such as "step.groups[3]". beta2 of 1 is for
// shampoo, whose factors then are sums.
mxs_status check_values(const char *whose, const mxs_group_values &values, bool beta2_may_be_one = false);

struct FreeBytes {
  void operator()(std::byte *memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte, FreeBytes>;

// One owned placement. Rules without a step here (external) have gradients that count in the norm, and no stepper.
struct OptimizedPiece {
  Unit *unit = nullptr;
  const OwnedPlacement *owned = nullptr;
  mxs_rule rule = MXS_RULE_ADAMW;
  int group = 0;
  Stepper *stepper = nullptr;  // of units in CUDA memory it describes the state, and device_stepper steps it
  DeviceStepper *device_stepper = nullptr;
  std::byte *state = nullptr;  // where the units' memory is
  int64_t number = 0;          // of its tensor in agreements: the unit's place in the optimizer << 32 | tensor
};

struct AgreementPart;
struct ReplicaWord;

class Optimizer {
 public:
  Optimizer();
  ~Optimizer();

  mxs_status agree(const mxs_step &step, mxs_verdict *verdict);
  mxs_status step(const mxs_step &step, mxs_verdict *verdict);  // verdict may be nullptr
  mxs_status clear();
  mxs_status set_values(const mxs_step &step);
  mxs_status latest_verdict(mxs_verdict *verdict);
  // In CUDA memory it waits for the steps that were put on streams; if that fails, what was known before.
  uint64_t step_number() const;
  uint64_t known_step_number() const { return step_number_; }  // asks no device: for forked children
  mxs_status set_step_number(uint64_t step_number);

  uint64_t state_count() const { return state_count_; }
  mxs_status state(uint64_t index, mxs_state_info *info) const;
  mxs_status kernel(uint64_t placement, mxs_kernel_info *info) const;
  uint64_t state_bytes() const { return state_bytes_; }
  uint64_t workspace_bytes() const { return workspace_bytes_; }
  Device *device() const { return device_; }  // nullptr: host memory
  // As before the first step. In CUDA memory, too, it is complete on return.
  mxs_status init_state(const OptimizedPiece &piece);

  // ---- for checkpoints ----
  const std::vector<Unit *> &units() const { return units_; }
  const std::vector<OptimizedPiece> &pieces() const { return pieces_; }
  mxs_status check_idle(const char *what) const;
  // What a rule keeps for a tensor, also one of which this rank has no piece: parts of a matrix of one element.
  const std::vector<StatePart> &parts_of(mxs_rule rule) const;
  const OptionHashes &options() const { return options_; }
  mxs_preset preset_of(mxs_rule rule) const;
  // Of the latest step, by group number; those that no tensor is in are meaningless. Empty: there was none.
  const std::vector<mxs_group_values> &values() const { return values_; }
  bool has_values() const { return has_values_; }
  bool group_is_used(size_t group) const { return group_used_[group] != 0; }
  // What a step has left out on this rank, or why else state is in disorder, a sentence; "" if nothing.
  const std::string &left_out() const { return broken_; }
  // ---- backup ----
  uint64_t backup_bytes() const { return backup_ ? backup_->bytes() : 0; }
  bool can_recover() const { return backup_ != nullptr; }  // alike on all ranks
  // State may be written to from here on until the next step.
  void give_state() { state_given_ = true; }
  // Collective over this one's comm. own: why this rank can't take part, or MXS_OK; `failed` may then be nullptr.
  mxs_status recover(mxs_status own, const Optimizer *failed, mxs_recovery *recovery);
  // State has been replaced by other: what a step left out is mended, an agreement holds no more.
  mxs_status resume(uint64_t step_number);
  // Some of it has been replaced, and the rest never came: no step and no save until it is resumed. On all ranks.
  void stop_after_failed_load(
      const char *sentence = "a load failed when it had begun to replace weights and state");

 private:
  friend struct OptimizerBuilder;  // create.cpp
  friend class Recovery;           // recover.cpp

  // What a step says, checked and copied: group values by number, as far as tensors use them.
  mxs_status read(const mxs_step &step);
  // Fills verdict_ for the values read last.
  mxs_status reach_agreement();
  mxs_status exchange(const AgreementPart &mine, AgreementPart *total);
  mxs_status confirm(mxs_status own, const AgreementPart &total);
  mxs_status exchange_by_sum(const AgreementPart &mine, AgreementPart *total);
  mxs_status find_missing_by_sum(const AgreementPart &mine, AgreementPart *total);
  AgreementPart own_part() const;
  mxs_status update();
  mxs_status update_piece(const OptimizedPiece &piece);
  mxs_status stopped(const AgreementPart &total) const;
  mxs_status missing(const AgreementPart &total) const;
  uint64_t hash_of(int64_t tensor) const;
  bool agreement_holds() const;
  void conclude(const AgreementPart &total);
  mxs_status back_up(uint64_t step_number);
  mxs_status renew_backup();
  void forget_backups();
  bool changed_since_backup() const;
  mxs_status check_recover(const Optimizer *failed) const;

  // ---- units in CUDA memory: device_agreement.cpp, device_update.cpp ----
  mxs_status agree_on_device(DeviceStream stream);
  mxs_status step_on_device(const mxs_step &step, mxs_verdict *verdict);
  mxs_status verdict_on_device();
  mxs_status clear_on_device();
  mxs_status check_capture(DeviceStream stream, bool waits, bool *capturing) const;
  DeviceStepValues values_for_device() const;
  AgreementPart part_from_device() const;
  mxs_status put_agreement(DeviceStream stream, bool commits, bool waits, bool capturing);
  mxs_status exchange_for_device(DeviceStream stream, bool commits);
  mxs_status put_updates(DeviceStream stream);
  mxs_status put_update(const OptimizedPiece &piece, DeviceStream stream);
  mxs_status finish_on_device(bool changes, DeviceStream stream, bool capturing);
  mxs_status wait_for_report(mxs_status fetched) const;
  void heed_report();         // what failed on this rank
  mxs_status tell_refusal();  // of steps that nobody has been told of
  mxs_status refusal() const;
  mxs_verdict verdict_of_report() const;
  mxs_status put_step_number(uint64_t step_number, bool mends);
  mxs_status kernel_on_device(const OptimizedPiece &piece, mxs_kernel_info *info) const;

  OptimizerComm comm_;
  std::vector<Unit *> units_;
  std::vector<char> unit_changes_;   // by unit: has tensors that are stepped, on whatever rank
  std::vector<OptimizedPiece> pieces_;
  std::unique_ptr<Team> team_;
  std::vector<std::unique_ptr<CoOwners>> co_owners_;  // of all ranks, in the same order on all
  std::vector<std::unique_ptr<Stepper>> steppers_;    // pieces that are alike share one
  AlignedBytes state_, workspace_;
  // Units in CUDA memory.
  Device *device_ = nullptr;
  bool decomposes_ = false;  // some rank's steps wait for the agreement: shampoo, soap
  std::vector<std::unique_ptr<DeviceStepper>> device_steppers_;
  DeviceMemory device_state_, device_workspace_;
  std::unique_ptr<DeviceStep> device_step_;
  uint64_t refusals_told_ = 0, failures_told_ = 0;
  uint64_t state_bytes_ = 0, workspace_bytes_ = 0, state_count_ = 0;
  std::vector<std::byte> gathered_;  // room for all ranks' parts
  std::vector<ReplicaWord> replica_words_;
  std::vector<int64_t> summed_;      // room for exchange_by_sum

  std::unique_ptr<Backup> backup_;  // nullptr: not asked for
  uint64_t changes_backed_up_ = 0;  // of all units, when the latest backup was made
  bool backs_up_step_ = false;      // the latest backup is of the step number, and not forgotten
  bool state_given_ = false;        // a writable view of it, since
  bool backup_is_old_ = false;      // some rank's, as the agreement says

  uint64_t step_number_ = 0;
  // The step that was read last.
  std::vector<mxs_group_values> values_;  // by group number
  std::vector<char> group_used_, group_wants_beta2_;  // by something whose beta2 is below 1
  bool has_values_ = false;
  uint64_t options_hash_ = 0;
  OptionHashes options_;
  struct RuleParts {
    mxs_rule rule;
    mxs_preset preset;
    std::vector<StatePart> parts;
  };
  std::vector<RuleParts> rule_parts_;
  float gradient_scale_ = 1, clip_norm_ = 0;
  bool missing_is_error_ = false;
  uint64_t values_hash_ = 0;
  // The agreement, while it holds.
  bool agreed_ = false;
  uint64_t agreed_hash_ = 0, agreed_operations_ = 0;
  mxs_verdict verdict_ = MXS_VERDICT_INIT, latest_verdict_ = MXS_VERDICT_INIT;
  bool has_stepped_ = false;
  std::string broken_;  // which piece a step could not update, "" if none
  int64_t broken_tensor_ = -1;  // its unit's place among units_ << 32 | tensor
};

// Collective if comm.gather is set.
mxs_status make_optimizer(std::unique_ptr<Optimizer> *optimizer, const std::vector<Unit *> &units, OptimizerComm comm,
                          const OptimizerSettings &settings);

}  // namespace mxs
