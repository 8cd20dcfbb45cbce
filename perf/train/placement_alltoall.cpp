// SPDX-License-Identifier: Apache-2.0
// alltoall: what does it cost to bring slices together only where they are orthogonalized?
//
//   rows of all matrices' momentum --reshard--> whole matrices, each at one rank --reshard--> rows of the updates
//
// The strong baseline: packed, one collective there and one back, owners balanced by the library's own planner.
#include <algorithm>

#include "layers.hpp"
#include "slices.hpp"

namespace train {
namespace {

class ReshardedSlices : public Slices {
 public:
  ReshardedSlices(const Model &model, mxs_comm *comm, const PlacementOptions &options)
      : Slices(model, comm, options) {
    find_owners();
    const LayoutOwner rows = row_layout(), matrices = matrix_layout();
    predicted_ = predict();
    take_common(options);
    update_ = static_cast<float *>(ledger_.take(Use::workspace, scratch_count() * sizeof(float)));
    rows_ = static_cast<char *>(ledger_.take_shared(Use::workspace, row_bytes(), row_bytes()));
    matrices_ = static_cast<char *>(
        ledger_.take_shared(Use::workspace, most_matrix_bytes(), matrix_bytes(rank_)));
    ledger_.note(Use::workspace, stepper_.prepare_slices(own_shapes()));
    there_ = make_collective(comm, MXS_RESHARD, rows.get(), matrices.get(), 0, 0);
    back_ = make_collective(comm, MXS_RESHARD, matrices.get(), rows.get(), 0, 0);
  }

 protected:
  void step_matrices(const mxs_step &step) override {
    const uint64_t wire_bytes = mxs_dtype_bytes(wire_);
    char *row = rows_;
    for (const Piece *piece : muon_pieces()) {
      stepper_.momentum(*piece, step, update_);
      narrow(wire_, update_, piece->count(), row);
      row += piece->count() * wire_bytes;
    }
    move(there_.get(), rows_, matrices_);
    orthogonalize_own();
    move(back_.get(), matrices_, rows_);
    row = rows_;
    for (const Piece *piece : muon_pieces()) {
      widen(wire_, row, piece->count(), update_);
      row += piece->count() * wire_bytes;
      stepper_.apply(*piece, step, matrix_rows_[piece->tensor], update_);
    }
  }

 private:
  // A matrix, or one block of a tensor; `extent` runs to the next one, over padding.
  struct Matrix {
    int owner = 0;
    int64_t rows = 0, columns = 0;
    uint64_t count = 0, extent = 0;  // elements
  };

  static void move(mxs_collective *reshard, const void *source, void *target) {
    check(mxs_collective_start(reshard, source, target, nullptr), "reshard of the matrices");
    check(mxs_collective_wait(reshard, nullptr), "reshard of the matrices");
  }

  void orthogonalize_own() {
    const uint64_t wire_bytes = mxs_dtype_bytes(wire_);
    char *at = matrices_;
    for (const Matrix &matrix : all_) {
      if (matrix.owner != rank_) continue;
      widen(wire_, at, matrix.count, update_);
      stepper_.orthogonalize(matrix.rows, matrix.columns, update_, update_);
      narrow(wire_, update_, matrix.count, at);
      at += matrix.extent * wire_bytes;
    }
  }

  void find_owners() {
    const PlanOwner plan = model_.plan(comm_);
    matrix_rows_.resize(model_.tensors.size());
    for (const Piece *piece : muon_pieces()) add_matrices(plan.get(), piece->tensor);
  }

  void add_matrices(const mxs_plan *plan, int tensor) {
    mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
    check(mxs_plan_tensor(plan, tensor, &info), "mxs_plan_tensor");
    for (uint64_t p = 0; p < info.placement_count; ++p) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      check(mxs_plan_placement(plan, info.placement_index + p, &placement), "mxs_plan_placement");
      Matrix matrix{placement.owner, placement.shape[0], placement.shape[1], placement.element_count,
                    placement.element_count};
      if (p + 1 == info.placement_count) matrix.extent += cuts_[tensor].whole - model_.tensors[tensor].count();
      all_.push_back(matrix);
      matrix_rows_[tensor] = matrix.rows;
    }
  }

  LayoutOwner row_layout() const {
    std::vector<Extent> extents;
    for (const Piece *piece : muon_pieces())
      for (int rank = 0; rank < ranks_; ++rank) extents.push_back({rank, piece->count() * mxs_dtype_bytes(wire_)});
    return make_layout(extents, ranks_);
  }
  LayoutOwner matrix_layout() const {
    std::vector<Extent> extents;
    for (const Matrix &matrix : all_) extents.push_back({matrix.owner, matrix.extent * mxs_dtype_bytes(wire_)});
    return make_layout(extents, ranks_);
  }

  uint64_t row_bytes() const {
    uint64_t total = 0;
    for (const Piece *piece : muon_pieces()) total += piece->count() * mxs_dtype_bytes(wire_);
    return total;
  }
  uint64_t matrix_bytes(int rank) const {
    uint64_t total = 0;
    for (const Matrix &matrix : all_)
      if (matrix.owner == rank) total += matrix.extent * mxs_dtype_bytes(wire_);
    return total;
  }
  uint64_t most_matrix_bytes() const {
    uint64_t most = 0;
    for (int rank = 0; rank < ranks_; ++rank) most = std::max(most, matrix_bytes(rank));
    return most;
  }
  // One part or one whole matrix at a time, in fp32.
  uint64_t scratch_count() const {
    uint64_t most = largest_part();
    for (const Matrix &matrix : all_)
      if (matrix.owner == rank_) most = std::max(most, matrix.count);
    return most;
  }
  std::vector<std::pair<int64_t, int64_t>> own_shapes() const {
    std::vector<std::pair<int64_t, int64_t>> shapes;
    for (const Matrix &matrix : all_)
      if (matrix.owner == rank_) shapes.emplace_back(matrix.rows, matrix.columns);
    return shapes;
  }

  mxs_memory predict() const {
    mxs_memory memory = MXS_MEMORY_INIT;
    predict_common(&memory);
    const uint64_t scratch = scratch_count() * sizeof(float);
    add_bytes(&memory, Use::workspace,
              scratch + row_bytes() + matrix_bytes(rank_) + Stepper(model_, nullptr, {}).prepare_slices(own_shapes()));
    memory.slack += page_slack(scratch) + page_slack(row_bytes()) + page_slack(most_matrix_bytes()) +
                    (most_matrix_bytes() - matrix_bytes(rank_));
    add_up(&memory);
    return memory;
  }

  std::vector<Matrix> all_;
  std::vector<int64_t> matrix_rows_;  // by tensor
  CollectiveOwner there_, back_;
  float *update_ = nullptr;
  char *rows_ = nullptr, *matrices_ = nullptr;
};

}  // namespace

std::unique_ptr<Placement> make_alltoall(const Model &model, mxs_comm *comm, const PlacementOptions &options) {
  return std::make_unique<ReshardedSlices>(model, comm, options);
}

}  // namespace train
