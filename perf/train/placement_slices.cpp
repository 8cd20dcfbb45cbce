// SPDX-License-Identifier: Apache-2.0
// slices: what does Muon cost on FSDP2's slices?
//
// Per matrix: momentum on one's rows, all-gather, every rank orthogonalizes the whole, each applies its own rows.
#include <map>

#include "layers.hpp"
#include "slices.hpp"

namespace train {
namespace {

class GatheredSlices : public Slices {
 public:
  GatheredSlices(const Model &model, mxs_comm *comm, const PlacementOptions &options)
      : Slices(model, comm, options) {
    predicted_ = predict();
    take_common(options);
    const uint64_t wire_bytes = largest_whole() * mxs_dtype_bytes(wire_);
    update_ = static_cast<float *>(ledger_.take(Use::workspace, largest_part() * sizeof(float)));
    whole_ = static_cast<float *>(ledger_.take(Use::workspace, largest_whole() * sizeof(float)));
    gathered_ = static_cast<char *>(ledger_.take_shared(Use::workspace, wire_bytes, wire_bytes));
    ledger_.note(Use::workspace, stepper_.prepare_slices(matrix_shapes(model, whole_pieces(model))));
    for (const Piece *piece : muon_pieces()) make_gather(*piece);
  }

 protected:
  void step_matrices(const mxs_step &step) override {
    for (const Piece *piece : muon_pieces()) {
      stepper_.momentum(*piece, step, update_);
      const uint64_t begin = piece->count() * static_cast<uint64_t>(rank_);
      narrow(wire_, update_, piece->count(), gathered_ + begin * mxs_dtype_bytes(wire_));
      const CollectiveOwner &gather = gathers_.at(piece->count());
      check(mxs_collective_start(gather.get(), nullptr, gathered_, nullptr), "gather of a matrix");
      check(mxs_collective_wait(gather.get(), nullptr), "gather of a matrix");
      const Tensor &tensor = model_.tensors[piece->tensor];
      widen(wire_, gathered_, cuts_[piece->tensor].whole, whole_);
      orthogonalize_blocks(tensor);
      stepper_.apply(*piece, step, matrix_rows(tensor), whole_ + begin);
    }
  }

 private:
  // One collective per size of part serves all tensors of it, one after the other.
  void make_gather(const Piece &piece) {
    CollectiveOwner &gather = gathers_[piece.count()];
    if (gather) return;
    std::vector<Extent> extents;
    for (int rank = 0; rank < ranks_; ++rank) extents.push_back({rank, piece.count() * mxs_dtype_bytes(wire_)});
    gather = make_collective(comm_, MXS_GATHER, make_layout(extents, ranks_).get(), nullptr, 0, 0);
  }

  void orthogonalize_blocks(const Tensor &tensor) {
    float *block = whole_;
    const std::vector<int64_t> whole = {tensor.rows()};
    for (int64_t rows : tensor.block_rows.empty() ? whole : tensor.block_rows) {
      stepper_.orthogonalize(rows, tensor.columns(), block, block);
      block += rows * tensor.columns();
    }
  }

  // Blocks of this model's tensors are of one size, so all rows of a tensor have one scale.
  static int64_t matrix_rows(const Tensor &tensor) {
    return tensor.block_rows.empty() ? tensor.rows() : tensor.block_rows[0];
  }

  mxs_memory predict() const {
    mxs_memory memory = MXS_MEMORY_INIT;
    predict_common(&memory);
    const uint64_t wire = largest_whole() * mxs_dtype_bytes(wire_), whole = largest_whole() * sizeof(float);
    const uint64_t part = largest_part() * sizeof(float);
    const uint64_t products = Stepper(model_, nullptr, {}).prepare_slices(matrix_shapes(model_, whole_pieces(model_)));
    add_bytes(&memory, Use::workspace, wire + whole + part + products);
    memory.slack += page_slack(wire) + page_slack(whole) + page_slack(part);
    add_up(&memory);
    return memory;
  }

  std::map<uint64_t, CollectiveOwner> gathers_;  // by elements of a part
  float *update_ = nullptr, *whole_ = nullptr;
  char *gathered_ = nullptr;
};

}  // namespace

std::unique_ptr<Placement> make_slices(const Model &model, mxs_comm *comm, const PlacementOptions &options) {
  return std::make_unique<GatheredSlices>(model, comm, options);
}

}  // namespace train
