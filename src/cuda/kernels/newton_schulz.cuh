// SPDX-License-Identifier: Apache-2.0
// What Newton-Schulz needs beside products: matrices come in scaled to norm 1, and go out again; turned so that rows
// are the shorter side, by tiles of 32 x 32 through shared memory, so that both are read and written along rows.
#pragma once

#include <cmath>

#include "cuda/kernels/arguments.hpp"
#include "cuda/kernels/block.hpp"
#include "kernels/elements.hpp"
#include "kernels/norm_scale.hpp"

namespace mxs {

struct MoveShared {
  float tile[move_tile][move_tile + 1];
  float first, second, third;  // of NormScale: a shared variable has no constructor
};

MXS_ON_DEVICE inline void find_scale(const NormArgument &norm, uint64_t matrix, MoveShared &shared) {
  const double squares = norm.squares[matrix];
  NormScale scale;
  if (std::isfinite(squares)) scale = scalar::norm_scale(squares, norm.adds_epsilon != 0, norm.epsilon, norm.safety);
  shared.first = scale.first, shared.second = scale.second, shared.third = scale.third;
}

// body(row, column, y, x) for the elements of the tile at (row, column) of a side of so many rows and columns; y and x
// count within it.
template <class Body>
MXS_ON_DEVICE void over_tile(const Block &block, uint64_t row, uint64_t column, uint64_t rows, uint64_t columns,
                             Body &&body) {
  block.share(move_tile * move_tile, [&](uint64_t i) {
    const uint64_t y = i / move_tile, x = i % move_tile;
    if (row + y < rows && column + x < columns) body(row + y, column + x, y, x);
  });
}

// body(matrix, row, column) for all tiles of rows x columns of a batch, spread over blocks.
template <class Body>
MXS_ON_DEVICE void over_tiles(const Block &block, const MoveArguments &a, Body &&body) {
  const uint64_t tall = (a.rows + move_tile - 1) / move_tile, wide = (a.columns + move_tile - 1) / move_tile;
  for (uint64_t i = block.index(); i < tall * wide * a.count; i += block.count())
    body(i / (tall * wide), i / wide % tall * move_tile, i % wide * move_tile);
}

}  // namespace mxs

MXS_KERNEL(mxs_newton_schulz_load, mxs::MoveArguments, mxs::MoveShared) {
  const mxs::MoveArguments &a = arguments;
  if (a.skip && *a.skip) return;
  mxs::over_tiles(block, a, [&](uint64_t matrix, uint64_t row, uint64_t column) {
    const float *const source = static_cast<const float *>(a.source) + matrix * a.source_matrix;
    block.each([&](uint32_t lane) {
      if (lane == 0) mxs::find_scale(a.norm, matrix, shared);
    });
    mxs::NormScale scale;
    scale.first = shared.first, scale.second = shared.second, scale.third = shared.third;
    mxs::over_tile(block, row, column, a.rows, a.columns, [&](uint64_t r, uint64_t c, uint64_t y, uint64_t x) {
      const float value = scale.first == 0.0f ? 0.0f : mxs::scalar::scaled(source[r * a.source_stride + c], scale);
      shared.tile[a.turned ? x : y][a.turned ? y : x] = value;
    });
    const uint64_t to_row = a.turned ? column : row, to_column = a.turned ? row : column;
    const uint64_t to_rows = a.turned ? a.columns : a.rows, to_columns = a.turned ? a.rows : a.columns;
    mxs::over_tile(block, to_row, to_column, to_rows, to_columns,
                   [&](uint64_t r, uint64_t c, uint64_t y, uint64_t x) {
                     mxs::element::store(a.target, a.dtype, matrix * a.target_matrix + r * a.target_stride + c,
                                         shared.tile[y][x]);
                   });
  });
}

MXS_KERNEL(mxs_newton_schulz_store, mxs::MoveArguments, mxs::MoveShared) {
  const mxs::MoveArguments &a = arguments;
  if (a.skip && *a.skip) return;
  mxs::over_tiles(block, a, [&](uint64_t matrix, uint64_t row, uint64_t column) {
    float *const target = static_cast<float *>(a.target) + matrix * a.target_matrix;
    const uint64_t from_row = a.turned ? column : row, from_column = a.turned ? row : column;
    const uint64_t from_rows = a.turned ? a.columns : a.rows, from_columns = a.turned ? a.rows : a.columns;
    mxs::over_tile(block, from_row, from_column, from_rows, from_columns,
                   [&](uint64_t r, uint64_t c, uint64_t y, uint64_t x) {
                     shared.tile[a.turned ? x : y][a.turned ? y : x] = mxs::element::load(
                         a.source, a.dtype, matrix * a.source_matrix + r * a.source_stride + c);
                   });
    mxs::over_tile(block, row, column, a.rows, a.columns, [&](uint64_t r, uint64_t c, uint64_t y, uint64_t x) {
      target[r * a.target_stride + c] = shared.tile[y][x];
    });
  });
}

MXS_KERNEL(mxs_add_diagonal, mxs::AddDiagonalArguments, mxs::NothingShared) {
  if (arguments.skip && *arguments.skip) return;
  block.spread(arguments.n * arguments.n * arguments.count, [&](uint64_t i) {
    const uint64_t place = i % (arguments.n * arguments.n);
    const float value = mxs::element::load(arguments.source, arguments.dtype, i);
    mxs::element::store(arguments.target, arguments.dtype, i,
                        place % (arguments.n + 1) == 0 ? value + arguments.a : value);
  });
}
