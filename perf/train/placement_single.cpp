// SPDX-License-Identifier: Apache-2.0
// single: what would one process do, with plain loops and no communicator?
//
// The independent reference: sums are acc += g in the order of the micro-batches, so a fault of the engine can't hide
// here as it could in two placements that both run on it.
#include <vector>

#include "layers.hpp"
#include "pieces.hpp"
#include "placement.hpp"

namespace train {
namespace {

class Single : public Placement {
 public:
  Single(const Model &model, const PlacementOptions &options)
      : model_(model), ledger_(nullptr), stepper_(model, nullptr, options), pieces_(whole_pieces(model)),
        weights_(model.tensors.size()), gradients_(model.tensors.size()), sums_(model.tensors.size()) {
    stepper_.prepare(pieces_);
    predicted_ = predict();
    take_buffers();
    stepper_.furnish(options.seed, &ledger_, &pieces_);
    workspace_ = ledger_.take(Use::workspace, stepper_.workspace_bytes());
  }

  const void *weights(int tensor) override { return weights_[tensor]; }
  void *gradient(int tensor, bool) override { return gradients_[tensor]; }

  void reduce(int unit) override {
    std::vector<float> term;
    for (int t : model_.unit_tensors(unit)) {
      term.resize(model_.tensors[t].count());
      widen(model_.shape.gradient_dtype, gradients_[t], term.size(), term.data());
      add(term.data(), term.size(), sums_[t]);
    }
  }

  mxs_verdict step(const mxs_step &step) override {
    const mxs_verdict verdict = stepper_.agree(pieces_, step);
    if (!verdict.skipped) stepper_.step_whole(pieces_, step, workspace_);
    for (const Piece &piece : pieces_) std::fill_n(piece.gradient, piece.count(), 0.0f);
    return verdict;
  }

  void visit_masters(const MasterVisitor &visitor) override { visit_pieces(model_, pieces_, visitor); }
  mxs_memory counted() override { return ledger_.counted(); }
  mxs_memory predicted() override { return predicted_; }

 private:
  void take_buffers() {
    const uint64_t weight_bytes = mxs_dtype_bytes(model_.shape.dtype);
    const uint64_t gradient_bytes = mxs_dtype_bytes(model_.shape.gradient_dtype);
    const uint64_t elements = element_count(pieces_);
    auto *weights = static_cast<char *>(ledger_.take(Use::weights, elements * weight_bytes));
    auto *gradients = static_cast<char *>(ledger_.take(Use::gradient_slots, elements * gradient_bytes));
    auto *sums = static_cast<float *>(ledger_.take(Use::gradients, elements * sizeof(float)));
    for (Piece &piece : pieces_) {
      if (piece.element_offset == 0) {
        weights_[piece.tensor] = weights;
        gradients_[piece.tensor] = gradients;
        sums_[piece.tensor] = sums;
      }
      piece.weights = weights;
      piece.gradient = sums;
      weights += piece.count() * weight_bytes;
      gradients += piece.count() * gradient_bytes;
      sums += piece.count();
    }
  }

  mxs_memory predict() const {
    mxs_memory memory = MXS_MEMORY_INIT;
    const uint64_t elements = element_count(pieces_);
    const uint64_t weights = elements * mxs_dtype_bytes(model_.shape.dtype);
    const uint64_t gradients = elements * mxs_dtype_bytes(model_.shape.gradient_dtype);
    const uint64_t sums = elements * sizeof(float), workspace = stepper_.workspace_bytes();
    add_bytes(&memory, Use::weights, weights);
    add_bytes(&memory, Use::gradient_slots, gradients);
    add_bytes(&memory, Use::gradients, sums);
    add_bytes(&memory, Use::workspace, workspace);
    memory.slack = page_slack(weights) + page_slack(gradients) + page_slack(sums) + page_slack(workspace);
    stepper_.predict_furniture(pieces_, &memory);
    add_up(&memory);
    return memory;
  }

  const Model &model_;
  Ledger ledger_;
  Stepper stepper_;
  std::vector<Piece> pieces_;
  std::vector<char *> weights_, gradients_;
  std::vector<float *> sums_;
  void *workspace_ = nullptr;
  mxs_memory predicted_ = MXS_MEMORY_INIT;
};

}  // namespace

std::unique_ptr<Placement> make_single(const Model &model, const PlacementOptions &options) {
  return std::make_unique<Single>(model, options);
}

}  // namespace train
