// SPDX-License-Identifier: Apache-2.0
// zero1: what if weights stay everywhere, and only masters and state have owners?
//
// Gradients are reduced to the plan's owners, who step; then the updated weights are gathered, in place.
#include <algorithm>
#include <vector>

#include "pieces.hpp"
#include "placement.hpp"
#include "slots.hpp"

namespace train {
namespace {

class Zero1 : public Placement {
 public:
  Zero1(const Model &model, mxs_comm *comm, const PlacementOptions &options)
      : model_(model), comm_(comm), rank_(rank_of(comm)), ledger_(comm), stepper_(model, comm, options),
        units_(static_cast<size_t>(model.unit_count)), places_(model.tensors.size()) {
    make_plan();
    stepper_.prepare(pieces_);
    predicted_ = predict();
    take_buffers();
    slots_ = std::make_unique<GradientSlots>(model, comm, &ledger_, gradient_layouts_, options.rank_order);
    for (const LayoutOwner &layout : weight_layouts_)
      gathers_.push_back(make_collective(comm, MXS_GATHER, layout.get(), nullptr, 0, 0));
    stepper_.furnish(options.seed, &ledger_, &pieces_);
    workspace_ = ledger_.take(Use::workspace, stepper_.workspace_bytes());
    gather_weights(MXS_PHASE_OTHER);
  }

  const void *weights(int tensor) override {
    return units_[model_.tensors[tensor].unit].weights + places_[tensor].weight_offset;
  }
  void *gradient(int tensor, bool) override {
    return slots_->open(model_.tensors[tensor].unit) + places_[tensor].gradient_offset;
  }
  void reduce(int unit) override { slots_->reduce(unit, units_[unit].sums); }
  void finish_gradients() override { slots_->finish(); }

  mxs_verdict step(const mxs_step &step) override {
    const mxs_verdict verdict = stepper_.agree(pieces_, step);
    if (!verdict.skipped) {
      stepper_.step_whole(pieces_, step, workspace_);
      gather_weights(MXS_PHASE_STEP);
    }
    for (const Piece &piece : pieces_) std::fill_n(piece.gradient, piece.count(), 0.0f);
    return verdict;
  }

  void visit_masters(const MasterVisitor &visitor) override { visit_pieces(model_, pieces_, visitor); }
  mxs_memory counted() override { return ledger_.counted(); }
  mxs_memory predicted() override { return predicted_; }

 private:
  struct Unit {
    char *weights = nullptr;   // whole
    float *sums = nullptr;     // this rank's, packed
  };
  struct Place {
    uint64_t weight_offset = 0, gradient_offset = 0;  // bytes, in the unit
  };

  static uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  void make_plan() {
    plan_ = model_.plan(comm_);
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      weight_layouts_.push_back(plan_layout(unit, MXS_WEIGHTS));
      gradient_layouts_.push_back(plan_layout(unit, MXS_GRADIENTS));
    }
    for (uint64_t p = 0; p < mxs_plan_placement_count(plan_.get()); ++p) add_placement(p);
  }

  LayoutOwner plan_layout(int unit, int which) const {
    mxs_layout *layout = nullptr;
    check(mxs_plan_layout(plan_.get(), unit, which, &layout), "mxs_plan_layout");
    return LayoutOwner(layout);
  }

  void add_placement(uint64_t index) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    check(mxs_plan_placement(plan_.get(), index, &placement), "mxs_plan_placement");
    if (placement.element_offset == 0)
      places_[placement.tensor] = {placement.weight_offset, placement.gradient_offset};
    if (placement.owner != rank_) return;
    Piece piece;
    piece.tensor = placement.tensor;
    piece.element_offset = placement.element_offset;
    piece.rows = placement.dimension_count == 2 ? placement.shape[0] : 1;
    piece.columns = static_cast<int64_t>(placement.element_count) / std::max<int64_t>(piece.rows, 1);
    pieces_.push_back(piece);
    placements_.push_back(placement);
  }

  // How far into a rank's packed sums, in elements, a byte of the unit's gradient layout is.
  uint64_t packed_offset(int unit, uint64_t offset) const {
    uint64_t before = 0;
    const mxs_layout *layout = gradient_layouts_[unit].get();
    for (uint64_t s = 0; s < mxs_layout_segment_count(layout); ++s) {
      mxs_segment segment = MXS_SEGMENT_INIT;
      check(mxs_layout_segment(layout, s, &segment), "mxs_layout_segment");
      if (segment.owner != rank_ || segment.offset > offset) continue;
      before += std::min(segment.bytes, offset - segment.offset);
    }
    return before / mxs_dtype_bytes(model_.shape.gradient_dtype);
  }

  uint64_t sum_bytes(int unit, int rank) const {
    return mxs_layout_owned_bytes(gradient_layouts_[unit].get(), rank) /
           mxs_dtype_bytes(model_.shape.gradient_dtype) * sizeof(float);
  }
  uint64_t all_sum_bytes(int rank) const {
    uint64_t total = 0;
    for (int unit = 0; unit < model_.unit_count; ++unit) total += padded(sum_bytes(unit, rank));
    return total;
  }
  // Shared memory is equal on all ranks, so the one with most sums sets it.
  uint64_t most_sum_bytes() const {
    uint64_t most = 0;
    for (int rank = 0; rank < rank_count_of(comm_); ++rank) most = std::max(most, all_sum_bytes(rank));
    return most;
  }
  uint64_t whole_weight_bytes() const {
    uint64_t total = 0;
    for (const LayoutOwner &layout : weight_layouts_) total += padded(mxs_layout_bytes(layout.get()));
    return total;
  }

  void take_buffers() {
    auto *weights = static_cast<char *>(
        ledger_.take_shared(Use::weights, whole_weight_bytes(), whole_weight_bytes()));
    auto *sums = static_cast<char *>(ledger_.take_shared(Use::gradients, most_sum_bytes(), all_sum_bytes(rank_)));
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      units_[unit] = {weights, reinterpret_cast<float *>(sums)};
      weights += padded(mxs_layout_bytes(weight_layouts_[unit].get()));
      sums += padded(sum_bytes(unit, rank_));
    }
    for (size_t p = 0; p < pieces_.size(); ++p) {
      const mxs_placement &placement = placements_[p];
      pieces_[p].weights = units_[placement.unit].weights + placement.weight_offset;
      pieces_[p].gradient = units_[placement.unit].sums + packed_offset(placement.unit, placement.gradient_offset);
    }
  }

  // Only the blocks' units have matrices: the others' bytes are counted elsewhere than those of the matrices.
  void gather_weights(int phase) {
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      const bool matrices = unit >= 1 && unit <= model_.shape.layers;
      check(mxs_comm_phase(comm_, matrices ? phase : MXS_PHASE_OTHER), "mxs_comm_phase");
      check(mxs_collective_start(gathers_[unit].get(), nullptr, units_[unit].weights, nullptr), "gather of weights");
      check(mxs_collective_wait(gathers_[unit].get(), nullptr), "gather of weights");
    }
    check(mxs_comm_phase(comm_, phase), "mxs_comm_phase");
  }

  mxs_memory predict() const {
    mxs_memory memory = MXS_MEMORY_INIT;
    const uint64_t workspace = stepper_.workspace_bytes();
    const uint64_t slots = static_cast<uint64_t>(gradient_slot_count(model_)) * slot_bytes(gradient_layouts_);
    add_bytes(&memory, Use::weights, whole_weight_bytes());
    add_bytes(&memory, Use::gradients, all_sum_bytes(rank_));
    add_bytes(&memory, Use::gradient_slots, slots);
    add_bytes(&memory, Use::workspace, workspace);
    memory.slack = page_slack(whole_weight_bytes()) + page_slack(most_sum_bytes()) +
                   (most_sum_bytes() - all_sum_bytes(rank_)) + page_slack(slots) + page_slack(workspace);
    stepper_.predict_furniture(pieces_, &memory);
    add_up(&memory);
    return memory;
  }

  const Model &model_;
  mxs_comm *comm_;
  int rank_;
  Ledger ledger_;
  Stepper stepper_;
  PlanOwner plan_;
  std::vector<Unit> units_;
  std::vector<Place> places_;
  std::vector<Piece> pieces_;  // this rank's
  std::vector<mxs_placement> placements_;  // theirs
  std::vector<LayoutOwner> weight_layouts_, gradient_layouts_;
  std::unique_ptr<GradientSlots> slots_;
  std::vector<CollectiveOwner> gathers_;
  void *workspace_ = nullptr;
  mxs_memory predicted_ = MXS_MEMORY_INIT;
};

}  // namespace

std::unique_ptr<Placement> make_zero1(const Model &model, mxs_comm *comm, const PlacementOptions &options) {
  return std::make_unique<Zero1>(model, comm, options);
}

}  // namespace train
