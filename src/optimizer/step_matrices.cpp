// SPDX-License-Identifier: Apache-2.0
// Reading mxs_matrices. Nothing is guessed: what doesn't fit together is refused with the field's name.
#include "optimizer/step_matrices.hpp"

#include "base/dtype.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// No tensor has more elements; sums and products of two such numbers stay far from int64_t's end.
constexpr int64_t elements_max = int64_t{1} << 40;
constexpr int64_t blocks_max = 1 << 16;

bool product_fits(int64_t a, int64_t b) { return a <= elements_max / b; }

mxs_status decide_dtype(mxs_dtype given, const char *name, mxs_dtype *dtype) {
  *dtype = given == 0 ? MXS_F32 : given;
  if (*dtype == MXS_F32 || *dtype == MXS_BF16 || *dtype == MXS_F16) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "matrices.%s is %d (%s); steppers take f32, bf16 and f16", name, given,
                   mxs_dtype_name(given));
}

mxs_status decide_weights(const mxs_matrices &given, StepMatrices *matrices) {
  const bool narrow = matrices->dtype != MXS_F32;
  mxs_weights kind = given.weights;
  if (kind < MXS_WEIGHTS_DEFAULT || kind > MXS_WEIGHTS_REMAINDER)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.weights is %d, which is none of MXS_WEIGHTS_...", kind);
  if (kind == MXS_WEIGHTS_DEFAULT) kind = narrow ? MXS_WEIGHTS_MASTER : MXS_WEIGHTS_ALONE;
  if (kind == MXS_WEIGHTS_MASTER && !narrow)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.weights is MXS_WEIGHTS_MASTER, but weights in f32 are their own "
                     "master; take MXS_WEIGHTS_ALONE");
  if (kind == MXS_WEIGHTS_REMAINDER && matrices->dtype != MXS_BF16)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.weights is MXS_WEIGHTS_REMAINDER, which is for bf16; dtype is %s",
                     mxs_dtype_name(matrices->dtype));
  if (given.rounding != MXS_ROUND_NEAREST && given.rounding != MXS_ROUND_STOCHASTIC)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.rounding is %d, which is none of MXS_ROUND_...", given.rounding);
  if (given.rounding == MXS_ROUND_STOCHASTIC && (matrices->dtype != MXS_BF16 || kind != MXS_WEIGHTS_ALONE))
    return set_error(MXS_INVALID_ARGUMENT, "matrices.rounding is MXS_ROUND_STOCHASTIC, which is for bf16 with "
                     "MXS_WEIGHTS_ALONE; weights are %s%s", mxs_dtype_name(matrices->dtype),
                     kind == MXS_WEIGHTS_ALONE ? "" : " and have a master");
  matrices->weights = kind;
  matrices->rounding = given.rounding;
  matrices->seed = given.seed;
  matrices->tensor_id = given.tensor_id;
  return MXS_OK;
}

mxs_status decide_shape(const mxs_matrices &given, StepMatrices *matrices) {
  const auto text = [](int64_t number) { return static_cast<long long>(number); };
  if (given.rows < 1 || given.columns < 1 || !product_fits(given.rows, given.columns))
    return set_error(MXS_INVALID_ARGUMENT,
                     "matrices are %lld x %lld; both must be at least 1, the product at most 2^40", text(given.rows),
                     text(given.columns));
  if (given.count < 0 || (given.count > 0 && !product_fits(given.rows * given.columns, given.count)))
    return set_error(MXS_INVALID_ARGUMENT,
                     "matrices.count is %lld; it must not be negative, and count * rows * columns at most 2^40",
                     text(given.count));
  matrices->rows = given.rows;
  matrices->columns = given.columns;
  matrices->count = given.count == 0 ? 1 : given.count;
  return MXS_OK;
}

// Matrices lie one after the other, or side by side in common rows.
mxs_status decide_strides(const mxs_strides &given, const char *name, const StepMatrices &matrices, int64_t *row,
                          int64_t *matrix) {
  const auto text = [](int64_t number) { return static_cast<long long>(number); };
  if (given.size != sizeof(mxs_strides))
    return set_error(MXS_INVALID_ARGUMENT, "matrices.%s.size is %u; set it by its INIT macro", name, given.size);
  if (given.row < 0 || given.row > elements_max || given.matrix < 0 || given.matrix > elements_max)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.%s has row %lld and matrix %lld, not from 0 to 2^40", name,
                     text(given.row), text(given.matrix));
  *row = given.row == 0 ? matrices.columns : given.row;
  if (*row < matrices.columns && matrices.rows > 1)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.%s.row is %lld, but rows have %lld elements: they overlap", name,
                     text(*row), text(matrices.columns));
  // rows <= 2^40 and row <= 2^40: products of the two need more than 64 bits.
  const auto exceeds = [](int64_t a, int64_t b) { return b != 0 && a > elements_max / b; };
  if (exceeds(matrices.rows, *row))
    return set_error(MXS_INVALID_ARGUMENT, "a matrix by matrices.%s reaches over more than 2^40 elements", name);
  *matrix = given.matrix == 0 ? matrices.rows * *row : given.matrix;
  if (exceeds(matrices.count, *matrix))
    return set_error(MXS_INVALID_ARGUMENT, "matrices by matrices.%s reach over more than 2^40 elements", name);
  const int64_t one = (matrices.rows - 1) * *row + matrices.columns;
  const bool one_after_the_other = *matrix >= one;
  const bool side_by_side =
      *matrix >= matrices.columns &&
      (matrices.rows == 1 || (matrices.count - 1) * *matrix + matrices.columns <= *row);
  if (matrices.count > 1 && !one_after_the_other && !side_by_side)
    return set_error(MXS_INVALID_ARGUMENT, "by matrices.%s (row %lld, matrix %lld) matrices of %lld x %lld overlap",
                     name, text(*row), text(*matrix), text(matrices.rows), text(matrices.columns));
  return MXS_OK;
}

// Blocks, each cut into heads.
mxs_status cut_rows(const mxs_matrices &given, StepMatrices *matrices) {
  const auto text = [](int64_t number) { return static_cast<long long>(number); };
  if (given.block_count < 0 || given.block_count > blocks_max ||
      (given.block_count > 0) != (given.block_rows != nullptr))
    return set_error(MXS_INVALID_ARGUMENT, "matrices.block_count is %d and block_rows is %s", given.block_count,
                     given.block_rows ? "not NULL" : "NULL");
  if (given.heads < 0) return set_error(MXS_INVALID_ARGUMENT, "matrices.heads is %d", given.heads);
  const int64_t heads = given.heads == 0 ? 1 : given.heads;
  const int64_t block_count = given.block_count == 0 ? 1 : given.block_count;
  if (heads > blocks_max / block_count)
    return set_error(MXS_INVALID_ARGUMENT, "%lld blocks of %lld heads are more than %lld parts", text(block_count),
                     text(heads), text(blocks_max));
  int64_t first_row = 0;
  for (int64_t block = 0; block < block_count; ++block) {
    const int64_t rows = given.block_rows ? given.block_rows[block] : matrices->rows;
    if (rows < 1 || rows > matrices->rows - first_row)
      return set_error(MXS_INVALID_ARGUMENT, "matrices.block_rows[%lld] is %lld, with %lld of %lld rows left",
                       text(block), text(rows), text(matrices->rows - first_row), text(matrices->rows));
    if (rows % heads != 0)
      return set_error(MXS_INVALID_ARGUMENT, "matrices.heads is %lld, which doesn't divide the %lld rows of block %lld",
                       text(heads), text(rows), text(block));
    for (int64_t head = 0; head < heads; ++head) {
      StepBlock part;
      part.first_row = first_row + head * (rows / heads);
      part.rows = rows / heads;
      part.columns = matrices->columns;
      matrices->blocks.push_back(part);
    }
    first_row += rows;
  }
  if (first_row != matrices->rows)
    return set_error(MXS_INVALID_ARGUMENT, "the %d blocks have %lld rows together, but matrices have %lld",
                     given.block_count, text(first_row), text(matrices->rows));
  return MXS_OK;
}

mxs_status decide_scaling(const mxs_matrices &given, StepMatrices *matrices) {
  if (given.transposed != 0 && given.transposed != 1)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.transposed is %d, neither 0 nor 1", given.transposed);
  matrices->transposed = given.transposed == 1;
  const bool whole = given.scale_rows != 0 || given.scale_columns != 0;
  if (whole &&
      (given.scale_rows < 1 || given.scale_columns < 1 || !product_fits(given.scale_rows, given.scale_columns)))
    return set_error(MXS_INVALID_ARGUMENT, "matrices.scale_rows and scale_columns are %lld and %lld; both must be set, "
                     "the product at most 2^40", static_cast<long long>(given.scale_rows),
                     static_cast<long long>(given.scale_columns));
  if (whole && matrices->blocks.size() > 1)
    return set_error(MXS_INVALID_ARGUMENT, "matrices.scale_rows is set, but blocks and heads are scaled each by its "
                     "own size; leave it 0");
  for (StepBlock &block : matrices->blocks) {
    block.scale_rows = whole ? given.scale_rows : given.transposed ? block.columns : block.rows;
    block.scale_columns = whole ? given.scale_columns : given.transposed ? block.rows : block.columns;
  }
  return MXS_OK;
}

uint64_t extent(const StepMatrices &matrices, int64_t row, int64_t matrix) {
  return static_cast<uint64_t>((matrices.count - 1) * matrix + (matrices.rows - 1) * row + matrices.columns);
}

}  // namespace

mxs_status decide_matrices(const mxs_matrices &given, StepMatrices *matrices) {
  StepMatrices decided;
  mxs_status status = decide_dtype(given.dtype, "dtype", &decided.dtype);
  if (status == MXS_OK) status = decide_dtype(given.gradient_dtype, "gradient_dtype", &decided.gradient_dtype);
  if (status == MXS_OK) status = decide_weights(given, &decided);
  if (status == MXS_OK) status = decide_shape(given, &decided);
  if (status == MXS_OK)
    status = decide_strides(given.weight_strides, "weight_strides", decided, &decided.weight_row,
                            &decided.weight_matrix);
  if (status == MXS_OK)
    status = decide_strides(given.gradient_strides, "gradient_strides", decided, &decided.gradient_row,
                            &decided.gradient_matrix);
  if (status == MXS_OK) status = cut_rows(given, &decided);
  if (status == MXS_OK) status = decide_scaling(given, &decided);
  if (status == MXS_OK) *matrices = std::move(decided);
  return status;
}

uint64_t weight_extent(const StepMatrices &matrices) {
  return extent(matrices, matrices.weight_row, matrices.weight_matrix);
}

uint64_t gradient_extent(const StepMatrices &matrices) {
  return extent(matrices, matrices.gradient_row, matrices.gradient_matrix);
}

bool is_dense(const StepMatrices &matrices, int64_t row, int64_t matrix) {
  return (row == matrices.columns || matrices.rows == 1) &&
         (matrix == matrices.rows * matrices.columns || matrices.count == 1);
}

}  // namespace mxs
