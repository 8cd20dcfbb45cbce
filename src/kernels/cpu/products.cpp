// SPDX-License-Identifier: Apache-2.0
// fp32 products of a CPU level, for Newton-Schulz without a library: each sum in the order of Product, many at once.
#include "kernels/cpu/level.hpp"

namespace mxs {

namespace {

typedef float Vector __attribute__((vector_size(vector_bytes)));
constexpr size_t vector_floats = vector_bytes / sizeof(float);
constexpr size_t tile_columns = 2 * vector_floats;
constexpr size_t tile_rows = vector_bytes == 64 ? 8 : 4;  // 16 of 32, or 8 of 16, registers hold sums

// Columns [column, column + tile_columns) of a block of right, row after row, padded with zeros.
void pack(float *__restrict packed, const Product &p, size_t first, size_t length, size_t column, size_t width) {
  for (size_t k = 0; k < length; ++k)
    for (size_t j = 0; j < tile_columns; ++j) {
      const size_t at = p.right_turned ? (column + j) * p.right_stride + first + k
                                       : (first + k) * p.right_stride + column + j;
      packed[k * tile_columns + j] = j < width ? p.right[at] : 0.0f;
    }
}

// The sums of one tile over one block, each in order.
void tile_sums(float (&sums)[tile_rows][tile_columns], const float *const (&rows)[tile_rows], const float *packed,
               size_t length) {
  Vector low[tile_rows] = {}, high[tile_rows] = {};
  for (size_t k = 0; k < length; ++k) {
    Vector right_low, right_high;
    memcpy(&right_low, packed + k * tile_columns, vector_bytes);
    memcpy(&right_high, packed + k * tile_columns + vector_floats, vector_bytes);
    for (size_t r = 0; r < tile_rows; ++r) {
      low[r] += right_low * rows[r][k];
      high[r] += right_high * rows[r][k];
    }
  }
  for (size_t r = 0; r < tile_rows; ++r) {
    memcpy(&sums[r][0], &low[r], vector_bytes);
    memcpy(&sums[r][vector_floats], &high[r], vector_bytes);
  }
}

}  // namespace

void MXS_LEVEL::multiply(const Product &p) {
  alignas(64) float packed[product_block * tile_columns];
  alignas(64) float sums[tile_rows][tile_columns];
  for (size_t first = 0; first < p.inner; first += product_block) {
    const size_t length = smaller(product_block, p.inner - first);
    for (size_t column = 0; column < p.columns; column += tile_columns) {
      const size_t width = smaller(tile_columns, p.columns - column);
      pack(packed, p, first, length, column, width);
      for (size_t row = p.lower ? column - column % tile_rows : 0; row < p.rows; row += tile_rows) {
        const size_t height = smaller(tile_rows, p.rows - row);
        const float *rows[tile_rows];  // past the end the last row again, whose sums are dropped
        for (size_t r = 0; r < tile_rows; ++r)
          rows[r] = p.left + (row + smaller(r, height - 1)) * p.left_stride + first;
        tile_sums(sums, rows, packed, length);
        for (size_t r = 0; r < height; ++r) {
          float *const target = p.target + (row + r) * p.target_stride + column;
          for (size_t j = 0; j < width; ++j) target[j] = first == 0 ? sums[r][j] : target[j] + sums[r][j];
        }
      }
    }
  }
}

}  // namespace mxs
