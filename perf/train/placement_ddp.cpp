// SPDX-License-Identifier: Apache-2.0
// ddp: what if every rank has everything?
//
//   all-reduce of a unit = reduce to an even layout, then gather of the sums, in place
//
// Then every rank steps the whole model, with equal results. The reference for correctness.
#include <algorithm>
#include <vector>

#include "pieces.hpp"
#include "placement.hpp"
#include "slots.hpp"

namespace train {
namespace {

class Ddp : public Placement {
 public:
  Ddp(const Model &model, mxs_comm *comm, const PlacementOptions &options)
      : model_(model), comm_(comm), ledger_(comm), stepper_(model, nullptr, options),
        pieces_(whole_pieces(model)), places_(model.tensors.size()) {
    make_layouts();
    stepper_.prepare(pieces_);
    predicted_ = predict();
    take_buffers();
    slots_ = std::make_unique<GradientSlots>(model, comm, &ledger_, gradient_layouts_, options.rank_order);
    for (const LayoutOwner &layout : sum_layouts_)
      gathers_.push_back(make_collective(comm, MXS_GATHER, layout.get(), nullptr, 0, 0));
    stepper_.furnish(options.seed, &ledger_, &pieces_);
    workspace_ = ledger_.take(Use::workspace, stepper_.workspace_bytes());
  }

  const void *weights(int tensor) override { return places_[tensor].weights; }
  void *gradient(int tensor, bool) override {
    return slots_->open(model_.tensors[tensor].unit) +
           places_[tensor].unit_offset * mxs_dtype_bytes(model_.shape.gradient_dtype);
  }
  void reduce(int unit) override { slots_->reduce(unit, units_[unit].sums + units_[unit].own_offset); }

  void finish_gradients() override {
    slots_->finish();
    for (size_t unit = 0; unit < units_.size(); ++unit)
      check(mxs_collective_start(gathers_[unit].get(), nullptr, units_[unit].sums, nullptr), "gather of the sums");
    for (const CollectiveOwner &gather : gathers_)
      check(mxs_collective_wait(gather.get(), nullptr), "gather of the sums");
  }

  mxs_verdict step(const mxs_step &step) override {
    const mxs_verdict verdict = stepper_.agree(pieces_, step);
    if (!verdict.skipped) stepper_.step_whole(pieces_, step, workspace_);
    // Of the others' parts the next gather brings all.
    for (const Unit &unit : units_) std::fill_n(unit.sums + unit.own_offset, unit.own_count, 0.0f);
    return verdict;
  }

  // Every rank has all masters: rank 0 shows them.
  void visit_masters(const MasterVisitor &visitor) override {
    if (rank_of(comm_) == 0) visit_pieces(model_, pieces_, visitor);
  }
  mxs_memory counted() override { return ledger_.counted(); }
  mxs_memory predicted() override { return predicted_; }

 private:
  struct Unit {
    uint64_t count = 0;                     // elements
    uint64_t own_offset = 0, own_count = 0;  // this rank's part of the sums
    float *sums = nullptr;
  };
  struct Place {
    uint64_t unit_offset = 0;  // in elements
    char *weights = nullptr;
  };

  static uint64_t padded(uint64_t count) { return (count + 15) / 16 * 16; }

  void make_layouts() {
    const int ranks = rank_count_of(comm_), rank = rank_of(comm_);
    units_.resize(static_cast<size_t>(model_.unit_count));
    for (int u = 0; u < model_.unit_count; ++u) {
      Unit &unit = units_[u];
      for (int t : model_.unit_tensors(u)) {
        places_[t].unit_offset = unit.count;
        unit.count += model_.tensors[t].count();
      }
      gradient_layouts_.push_back(even(unit.count, mxs_dtype_bytes(model_.shape.gradient_dtype), ranks));
      sum_layouts_.push_back(even(unit.count, sizeof(float), ranks));
      unit.own_count = mxs_layout_owned_bytes(sum_layouts_.back().get(), rank) / sizeof(float);
      for (int before = 0; before < rank; ++before)
        unit.own_offset += mxs_layout_owned_bytes(sum_layouts_.back().get(), before) / sizeof(float);
    }
  }

  static LayoutOwner even(uint64_t count, uint64_t element_bytes, int ranks) {
    mxs_layout *made = nullptr;
    check(mxs_layout_create_even(&made, count * element_bytes, element_bytes, ranks), "mxs_layout_create_even");
    return LayoutOwner(made);
  }

  uint64_t sums_count() const {
    uint64_t total = 0;
    for (const Unit &unit : units_) total += padded(unit.count);
    return total;
  }

  void take_buffers() {
    const uint64_t weight_bytes = mxs_dtype_bytes(model_.shape.dtype);
    auto *weights = static_cast<char *>(
        ledger_.take(Use::weights, element_count(pieces_) * weight_bytes));
    const uint64_t sum_bytes = sums_count() * sizeof(float);
    auto *sums = static_cast<float *>(ledger_.take_shared(Use::gradients, sum_bytes, sum_bytes));
    for (Unit &unit : units_) {
      unit.sums = sums;
      sums += padded(unit.count);
    }
    for (Piece &piece : pieces_) {
      if (piece.element_offset == 0) places_[piece.tensor].weights = weights;
      piece.weights = weights;
      piece.gradient = units_[model_.tensors[piece.tensor].unit].sums + places_[piece.tensor].unit_offset +
                       piece.element_offset;
      weights += piece.count() * weight_bytes;
    }
  }

  mxs_memory predict() const {
    mxs_memory memory = MXS_MEMORY_INIT;
    const uint64_t weights = element_count(pieces_) * mxs_dtype_bytes(model_.shape.dtype);
    const uint64_t sums = sums_count() * sizeof(float), workspace = stepper_.workspace_bytes();
    const uint64_t slots = static_cast<uint64_t>(gradient_slot_count(model_)) * slot_bytes(gradient_layouts_);
    add_bytes(&memory, Use::weights, weights);
    add_bytes(&memory, Use::gradients, sums);
    add_bytes(&memory, Use::gradient_slots, slots);
    add_bytes(&memory, Use::workspace, workspace);
    memory.slack = page_slack(weights) + page_slack(sums) + page_slack(slots) + page_slack(workspace);
    stepper_.predict_furniture(pieces_, &memory);
    add_up(&memory);
    return memory;
  }

  const Model &model_;
  mxs_comm *comm_;
  Ledger ledger_;
  Stepper stepper_;
  std::vector<Piece> pieces_;
  std::vector<Place> places_;
  std::vector<Unit> units_;
  std::vector<LayoutOwner> gradient_layouts_, sum_layouts_;
  std::unique_ptr<GradientSlots> slots_;
  std::vector<CollectiveOwner> gathers_;
  void *workspace_ = nullptr;
  mxs_memory predicted_ = MXS_MEMORY_INIT;
};

}  // namespace

std::unique_ptr<Placement> make_ddp(const Model &model, mxs_comm *comm, const PlacementOptions &options) {
  return std::make_unique<Ddp>(model, comm, options);
}

}  // namespace train
