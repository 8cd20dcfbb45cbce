// SPDX-License-Identifier: Apache-2.0
// Slices: rows of every tensor on every rank, as FSDP2 cuts them; what slices and alltoall have in common.
//
//   a tensor of R rows: each rank has ceil(R / p) of them; the last ranks' may lie beyond the end (padding, zero)
//
// At rest a rank has its rows of weights, masters, sums and state. A unit's rows are gathered for forward and backward
// and its gradients reduced to rows. How the optimizer gets whole matrices is what the two differ in.
#pragma once

#include <memory>
#include <vector>

#include "pieces.hpp"
#include "placement.hpp"
#include "slots.hpp"

namespace train {

class Slices : public Placement {
 public:
  Slices(const Model &model, mxs_comm *comm, const PlacementOptions &options);

  void gather(int unit) override { weight_slots_->gather(unit, units_[unit].weights); }
  void wait(int unit) override { weight_slots_->wait(unit); }
  void release(int unit, bool) override { weight_slots_->release(unit); }
  const void *weights(int tensor) override;
  void *gradient(int tensor, bool add) override;
  void reduce(int unit) override { gradient_slots_->reduce(unit, units_[unit].sums); }
  void finish_gradients() override { gradient_slots_->finish(); }
  mxs_verdict step(const mxs_step &step) override;
  void visit_masters(const MasterVisitor &visitor) override { visit_pieces(model_, pieces_, visitor); }
  mxs_memory counted() override { return ledger_.counted(); }
  mxs_memory predicted() override { return predicted_; }

 protected:
  // A tensor's rows on one rank, in elements; `whole` with padding.
  struct Cut {
    int64_t columns = 0;
    uint64_t part = 0, whole = 0;
    uint64_t unit_offset = 0;  // of the whole, in the unit's buffer
  };

  // The matrices' step: momentum is a matter of elements, orthogonalizing is not.
  virtual void step_matrices(const mxs_step &step) = 0;
  // What all slices have: rows at rest, slots of units. Called by the placement's own constructor.
  void predict_common(mxs_memory *memory) const;
  void take_common(const PlacementOptions &options);

  std::vector<const Piece *> muon_pieces() const;
  // Elements of the largest part, and of the largest whole tensor, under Muon.
  uint64_t largest_part() const;
  uint64_t largest_whole() const;

  const Model &model_;
  mxs_comm *comm_;
  const int rank_, ranks_;
  // Updates travel in the weights' dtype, as dion sends them: half the bytes of fp32, and the products round to it.
  const mxs_dtype wire_;
  Ledger ledger_;
  Stepper stepper_;
  std::vector<Cut> cuts_;      // by tensor
  std::vector<Piece> pieces_;  // this rank's rows, one per tensor
  mxs_memory predicted_ = MXS_MEMORY_INIT;

 private:
  struct Unit {
    char *weights = nullptr;  // this rank's rows, packed
    float *sums = nullptr;
    uint64_t part = 0;  // elements of all its tensors
  };

  void cut_tensors();
  std::vector<LayoutOwner> unit_layouts(uint64_t element_bytes) const;
  uint64_t sum_count() const;

  std::vector<Unit> units_;
  void *workspace_ = nullptr;  // of the steppers
  std::unique_ptr<GradientSlots> gradient_slots_;
  std::unique_ptr<WeightSlots> weight_slots_;
};

}  // namespace train
