// SPDX-License-Identifier: Apache-2.0
// What an optimizer's rule treats: a placement is one matrix, or its column blocks are several, which lie in it side by
// side as strided views.
//
//   block_columns 2, 1, 1        matrices of the placement: (r, 2), (r, 1), (r, 1)
//   | q q k v |                  first elements:            0,      2,      3
//   | q q k v |                  stride of their rows:      4
//
// Scaling by shape wants the whole matrix as (out, in). So a matrix's rows grow by whole_rows / rows of the tensor, its
// columns likewise, and both change places if it is stored transposed.
#include <utility>

#include "plan/stages.hpp"

namespace mxs {
namespace {

__extension__ using Wide = __int128;

// check.cpp has seen to it that this comes out whole.
int64_t scaled(int64_t length, int64_t local, int64_t whole) {
  if (whole == 0) return length;
  return local == 0 ? whole : static_cast<int64_t>(Wide{length} * whole / local);
}

void set_scale(const PlannedTensor &tensor, int64_t rows, int64_t columns, Matrix *matrix) {
  const size_t last = tensor.shape.size() - 1;
  matrix->scale_rows = scaled(rows, tensor.shape[last - 1], tensor.whole_rows);
  matrix->scale_columns = scaled(columns, tensor.shape[last], tensor.whole_columns);
  if (tensor.transposed) std::swap(matrix->scale_rows, matrix->scale_columns);
}

void list_piece(Plan *plan, uint64_t index, const PlannedTensor &tensor, int *block) {
  Placement &piece = plan->placements[index];
  const int64_t width = piece.shape[1];
  // A co-owner has some of the rows of a matrix that is scaled as a whole.
  const int64_t all_rows = piece.co_owner_count > 1 ? tensor.shape[0] : piece.shape[0];
  uint64_t offset = piece.element_offset;
  const auto add = [&](int64_t columns) {
    Matrix matrix;
    matrix.tensor = piece.tensor;
    matrix.block = piece.co_owner_count > 1 ? 0 : (*block)++;
    matrix.owner = piece.owner;
    matrix.placement = index;
    matrix.element_offset = offset;
    matrix.rows = piece.shape[0];
    matrix.columns = columns;
    matrix.row_stride = width;
    set_scale(tensor, all_rows, columns, &matrix);
    plan->matrices.push_back(matrix);
    offset += static_cast<uint64_t>(columns);
  };
  piece.matrix_index = plan->matrices.size();
  if (tensor.block_columns.empty()) add(width);
  for (const int64_t columns : tensor.block_columns) add(columns);
  piece.matrix_count = plan->matrices.size() - piece.matrix_index;
}

}  // namespace

void list_matrices(Plan *plan) {
  for (const PlannedTensor &tensor : plan->tensors) {
    int block = 0;
    for (uint64_t number = 0; tensor.has_matrices() && number < tensor.placement_count; ++number)
      list_piece(plan, tensor.placement_index + number, tensor, &block);
  }
}

}  // namespace mxs
