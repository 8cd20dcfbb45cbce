// SPDX-License-Identifier: Apache-2.0
// fp32 products of a CPU level, for Newton-Schulz without a library: each sum in the order of Product, many at once.
//
// A tile of the target is up to 8 x 32 sums in registers (4 x 16 with 16 registers), and no larger than what there is
// of it: Newton-Schulz without a library is for few rows, and a tile of 8 rows for one would be seven eighths waste.
// Tails are masked, so nothing is padded.
#include "kernels/cpu/level.hpp"

namespace mxs {

namespace {

constexpr size_t vectors_max = 2;
constexpr size_t tile_columns = vectors_max * lanes;
constexpr size_t near_floats = 4096;  // 16 KiB
constexpr size_t tile_rows = lanes == 16 ? 8 : 4;  // 16 of 32, or 8 of 16, registers hold sums

// The first count of a vector's lanes.
#if defined(__AVX512F__)
using Mask = __mmask16;
inline Mask mask_of(size_t count) { return static_cast<Mask>((1u << count) - 1); }
inline Floats load_masked(const float *source, Mask mask) { return _mm512_maskz_loadu_ps(mask, source); }
inline void store_masked(float *target, Mask mask, Floats value) { _mm512_mask_storeu_ps(target, mask, value); }
#else
using Mask = __m256i;
inline Mask mask_of(size_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Floats load_masked(const float *source, Mask mask) { return _mm256_maskload_ps(source, mask); }
inline void store_masked(float *target, Mask mask, Floats value) { _mm256_maskstore_ps(target, mask, value); }
#endif

// What a column of tiles has in common, over one block of what is summed: rows first to first + length of right.
struct Block {
  const float *right;
  size_t right_stride;
  size_t first, length;
  size_t column, width, vectors;
  Mask masks[vectors_max];
};

// target (columns x rows) = source (rows x columns) turned, four by four: one by one it takes longer than the products
// of 16 rows.
void turn(float *__restrict target, size_t target_stride, const float *source, size_t source_stride, size_t rows,
          size_t columns) {
  const size_t whole_rows = rows - rows % 4, whole_columns = columns - columns % 4;
  for (size_t r = 0; r < whole_rows; r += 4)
    for (size_t c = 0; c < whole_columns; c += 4) {
      const float *const from = source + r * source_stride + c;
      float *const to = target + c * target_stride + r;
      __m128 first = _mm_loadu_ps(from), second = _mm_loadu_ps(from + source_stride),
             third = _mm_loadu_ps(from + 2 * source_stride), fourth = _mm_loadu_ps(from + 3 * source_stride);
      _MM_TRANSPOSE4_PS(first, second, third, fourth);
      _mm_storeu_ps(to, first);
      _mm_storeu_ps(to + target_stride, second);
      _mm_storeu_ps(to + 2 * target_stride, third);
      _mm_storeu_ps(to + 3 * target_stride, fourth);
    }
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      target[c * target_stride + r] = source[r * source_stride + c];
}

// Dense, row after row: right's rows lie pages apart where they are long; turned, its columns are its rows.
void pack(float *__restrict packed, const Product &p, Block *block) {
  const size_t stride = block->vectors * lanes;
  if (p.right_turned)
    turn(packed, stride, p.right + block->column * p.right_stride + block->first, p.right_stride, block->width,
         block->length);
  else
    for (size_t k = 0; k < block->length; ++k)
      for (size_t v = 0; v < block->vectors; ++v)
        store_floats(packed + k * stride + v * lanes,
                     load_masked(block->right + k * p.right_stride + v * lanes, block->masks[v]));
  block->right = packed;
  block->right_stride = stride;
}

// The sums of one tile over one block, each in order.
template <size_t rows, size_t vectors>
void multiply_tile(const Product &p, const Block &block, size_t row) {
  const float *const left = p.left + row * p.left_stride + block.first;
  Floats sums[rows][vectors] = {};
  for (size_t k = 0; k < block.length; ++k) {
    Floats right[vectors];
    for (size_t v = 0; v < vectors; ++v)
      right[v] = load_masked(block.right + k * block.right_stride + v * lanes, block.masks[v]);
    for (size_t r = 0; r < rows; ++r)
      for (size_t v = 0; v < vectors; ++v) sums[r][v] += right[v] * splat(left[r * p.left_stride + k]);
  }
  for (size_t r = 0; r < rows; ++r)
    for (size_t v = 0; v < vectors; ++v) {
      float *const target = p.target + (row + r) * p.target_stride + block.column + v * lanes;
      store_masked(target, block.masks[v],
                   block.first == 0 ? sums[r][v] : load_masked(target, block.masks[v]) + sums[r][v]);
    }
}

// The rows that are fewer than a tile has.
template <size_t vectors, size_t rows = tile_rows - 1>
void multiply_last(const Product &p, const Block &block, size_t row, size_t count) {
  if (count == rows) return multiply_tile<rows, vectors>(p, block, row);
  if constexpr (rows > 1) multiply_last<vectors, rows - 1>(p, block, row, count);
}

template <size_t vectors>
void multiply_rows(const Product &p, const Block &block, size_t row, size_t row_end) {
  for (; row + tile_rows <= row_end; row += tile_rows) multiply_tile<tile_rows, vectors>(p, block, row);
  multiply_last<vectors>(p, block, row, row_end - row);
}

// Of lower products the tile's second vector begins later by its lanes.
void multiply_column(const Product &p, const Block &block) {
  size_t row = p.lower ? block.column : 0;
  if (block.vectors == 1) return multiply_rows<1>(p, block, row, p.rows);
  if (p.lower) multiply_rows<1>(p, block, row, block.column + lanes), row += lanes;
  multiply_rows<2>(p, block, row, p.rows);
}

}  // namespace

void MXS_LEVEL::multiply(const Product &p) {
  alignas(64) float packed[product_block * tile_columns];
  for (size_t first = 0; first < p.inner; first += product_block)
    for (size_t column = 0; column < p.columns; column += tile_columns) {
      Block block;
      block.first = first, block.length = smaller(product_block, p.inner - first);
      block.column = column, block.width = smaller(tile_columns, p.columns - column);
      block.vectors = (block.width + lanes - 1) / lanes;
      for (size_t v = 0; v < block.vectors; ++v) block.masks[v] = mask_of(smaller(lanes, block.width - v * lanes));
      block.right = p.right + first * p.right_stride + column, block.right_stride = p.right_stride;
      // Rows that lie near each other stay in the first cache, and one row of tiles reads them only once.
      const bool near = p.right_stride * block.length <= near_floats;
      if (p.right_turned || (p.rows > tile_rows && !near)) pack(packed, p, &block);
      multiply_column(p, block);
    }
}

}  // namespace mxs
