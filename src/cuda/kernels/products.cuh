// SPDX-License-Identifier: Apache-2.0
// Products of fp32 matrices on any GPU: the reference backend. Tiles of 64 x 64, each of one block of 256 threads, a
// thread 4 x 4 elements; factors pass through shared memory 16 columns at a time. Every element is summed in the order
// of the host's reference product, so that bits are the host's, without fma: at best half of a GPU's fp32 rate.
#pragma once

#include "cuda/kernels/arguments.hpp"
#include "cuda/kernels/block.hpp"

namespace mxs {

constexpr uint32_t product_depth = 16, product_width = 16, product_own = 4;
constexpr uint64_t product_sum_length = 256;  // product_block of kernels/kernels.hpp

struct ProductShared {
  // A column more than is used: threads that read a column then fall on different banks.
  float left[product_depth][product_tile + 1], right[product_depth][product_tile + 1];
};

struct ProductSums {
  float sum[product_own][product_own], total[product_own][product_own];
};

// One tile of one matrix.
struct ProductTile {
  const float *left, *right, *addend;
  float *target;
  uint64_t row, column;
};

MXS_ON_DEVICE inline float factor_at(const float *data, const FactorArgument &factor, uint64_t row, uint64_t column) {
  return factor.turned ? data[column * factor.stride + row] : data[row * factor.stride + column];
}

// Columns [first, first + depth) of the left tile and rows of the right one; zeros beyond the matrices' borders. Lanes
// follow what lies side by side.
MXS_ON_DEVICE inline void load_factors(const Block &block, const MultiplyArguments &a, const ProductTile &tile,
                                       uint64_t first, ProductShared &shared) {
  block.each([&](uint32_t lane) {
    for (uint32_t i = lane; i < product_depth * product_tile; i += block.lanes()) {
      const uint32_t across = i % product_tile, deep = i / product_tile;
      const uint32_t near = i % product_depth, far = i / product_depth;
      const uint32_t left_row = a.left.turned ? across : far, left_depth = a.left.turned ? deep : near;
      const uint32_t right_column = a.right.turned ? far : across, right_depth = a.right.turned ? near : deep;
      const bool has_left = tile.row + left_row < a.rows && first + left_depth < a.inner;
      const bool has_right = tile.column + right_column < a.columns && first + right_depth < a.inner;
      shared.left[left_depth][left_row] =
          has_left ? factor_at(tile.left, a.left, tile.row + left_row, first + left_depth) : 0.0f;
      shared.right[right_depth][right_column] =
          has_right ? factor_at(tile.right, a.right, first + right_depth, tile.column + right_column) : 0.0f;
    }
  });
}

// What lies beyond a factor's border adds 0 * 0, which changes no sum: none is ever -0.
MXS_ON_DEVICE inline void add_products(const ProductShared &shared, uint32_t lane, ProductSums &own) {
  const uint32_t row = lane / product_width, column = lane % product_width;
  for (uint32_t deep = 0; deep < product_depth; ++deep)
    for (uint32_t i = 0; i < product_own; ++i)
      for (uint32_t j = 0; j < product_own; ++j)
        own.sum[i][j] += shared.left[deep][row + product_width * i] * shared.right[deep][column + product_width * j];
}

// A block of terms ends: its sum goes to the total. The first is the total.
MXS_ON_DEVICE inline void close_sums(ProductSums &own, bool is_first) {
  for (uint32_t i = 0; i < product_own; ++i)
    for (uint32_t j = 0; j < product_own; ++j) {
      own.total[i][j] = is_first ? own.sum[i][j] : own.total[i][j] + own.sum[i][j];
      own.sum[i][j] = 0.0f;
    }
}

MXS_ON_DEVICE inline void store_products(const MultiplyArguments &a, const ProductTile &tile, uint32_t lane,
                                         const ProductSums &own) {
  for (uint32_t i = 0; i < product_own; ++i)
    for (uint32_t j = 0; j < product_own; ++j) {
      const uint64_t row = tile.row + lane / product_width + product_width * i;
      const uint64_t column = tile.column + lane % product_width + product_width * j;
      if (row >= a.rows || column >= a.columns || (a.symmetric && column > row)) continue;
      float value = a.alpha * own.total[i][j];
      if (tile.addend) value = value + a.beta * tile.addend[row * a.addend_stride + column];
      tile.target[row * a.target_stride + column] = value;
      if (a.symmetric) tile.target[column * a.target_stride + row] = value;
    }
}

MXS_ON_DEVICE inline void multiply_tile(const Block &block, const MultiplyArguments &a, const ProductTile &tile,
                                        ProductShared &shared) {
  PerLane<ProductSums, product_threads> sums;
  block.each([&](uint32_t lane) { sums[lane] = ProductSums{}; });
  for (uint64_t first = 0; first < a.inner; first += product_depth) {
    load_factors(block, a, tile, first, shared);
    const uint64_t end = first + product_depth;
    block.each([&](uint32_t lane) {
      add_products(shared, lane, sums[lane]);
      if (end % product_sum_length == 0 || end >= a.inner) close_sums(sums[lane], end <= product_sum_length);
    });
  }
  block.each([&](uint32_t lane) { store_products(a, tile, lane, sums[lane]); });
}

}  // namespace mxs

MXS_KERNEL(mxs_multiply, mxs::MultiplyArguments, mxs::ProductShared) {
  if (arguments.skip && *arguments.skip) return;
  const uint64_t tall = (arguments.rows + mxs::product_tile - 1) / mxs::product_tile;
  const uint64_t wide = (arguments.columns + mxs::product_tile - 1) / mxs::product_tile;
  for (uint64_t i = block.index(); i < tall * wide * arguments.count; i += block.count()) {
    const uint64_t matrix = i / (tall * wide), row = i / wide % tall, column = i % wide;
    if (arguments.symmetric && column > row) continue;
    mxs::ProductTile tile{};
    tile.left = arguments.left.data + matrix * arguments.left.matrix;
    tile.right = arguments.right.data + matrix * arguments.right.matrix;
    tile.target = arguments.target + matrix * arguments.target_matrix;
    if (arguments.addend) tile.addend = arguments.addend + matrix * arguments.addend_matrix;
    tile.row = row * mxs::product_tile, tile.column = column * mxs::product_tile;
    mxs::multiply_tile(block, arguments, tile, shared);
  }
}
