// SPDX-License-Identifier: Apache-2.0
// Where the matrices of a batch lie (mxs_strides), and what may not be: matrices that overlap, a target that lies
// across its source. Grids of pieces may interleave: column blocks of one tensor, experts side by side.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "api/door.hpp"
#include "base/status.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

struct BatchShape {
  int64_t rows, columns, count;
};

// Where one side of a batch lies, with every field decided.
struct BatchPlace {
  const float *data = nullptr;
  int64_t rows = 0, columns = 0, count = 0, row = 0, matrix = 0;

  // Elements from the first to behind the last.
  int64_t extent() const { return (rows - 1) * row + (count - 1) * matrix + columns; }
};

// Do two equal grids of pieces of `columns` elements, the second `distance` behind the first, have an element in
// common? Of the same grid (distance 0) pieces of different matrices are meant.
inline bool pieces_meet(const BatchPlace &place, int64_t distance) {
  const int64_t reach = (place.rows - 1) * place.row + place.columns;  // of one matrix
  for (int64_t apart = distance == 0 ? 1 : 1 - place.count; apart < place.count; ++apart) {
    const int64_t first = distance + apart * place.matrix;
    if (first >= reach) break;
    if (first <= -reach) continue;
    // From the nearest row of the one matrix to the first of the other.
    const int64_t rest = ((first % place.row) + place.row) % place.row;
    const int64_t rows_between = (first - rest) / place.row;
    if (rest < place.columns && std::abs(rows_between) < place.rows) return true;
    if (place.row - rest < place.columns && std::abs(rows_between + 1) < place.rows) return true;
  }
  return false;
}

inline mxs_status read_place(const char *name, const float *data, const mxs_strides *given, BatchShape shape,
                             BatchPlace *place) {
  mxs_strides strides = MXS_STRIDES_INIT;
  const mxs_status status = read_struct(given, sizeof strides, name, &strides);
  if (status != MXS_OK) return status;
  if (reinterpret_cast<uintptr_t>(data) % alignof(float) != 0)
    return set_error(MXS_INVALID_ARGUMENT, "the array of %s is at %p, not at a border of 4 bytes", name,
                     static_cast<const void *>(data));
  constexpr int64_t elements_max = int64_t{1} << 60;
  if (strides.row < 0 || strides.matrix < 0 || (strides.row > 0 && strides.row < shape.columns))
    return set_error(MXS_INVALID_ARGUMENT, "%s are row %lld and matrix %lld, but a row has %lld elements", name,
                     static_cast<long long>(strides.row), static_cast<long long>(strides.matrix),
                     static_cast<long long>(shape.columns));
  *place = {data, shape.rows, shape.columns, shape.count, strides.row > 0 ? strides.row : shape.columns,
            strides.matrix};
  if (place->row > elements_max / shape.rows || place->matrix > elements_max / shape.count)
    return set_error(MXS_INVALID_ARGUMENT, "%s are row %lld and matrix %lld: no memory is so large", name,
                     static_cast<long long>(strides.row), static_cast<long long>(strides.matrix));
  if (place->matrix == 0) place->matrix = place->rows * place->row;
  if (place->matrix > elements_max / shape.count || pieces_meet(*place, 0))
    return set_error(MXS_INVALID_ARGUMENT, "%s are row %lld and matrix %lld, by which %lld matrices of %lld x %lld "
                     "overlap", name, static_cast<long long>(place->row), static_cast<long long>(place->matrix),
                     static_cast<long long>(shape.count), static_cast<long long>(shape.rows),
                     static_cast<long long>(shape.columns));
  return MXS_OK;
}

// In place or apart. With equal strides the one may lie between the other's rows.
inline mxs_status check_apart(const BatchPlace &source, const BatchPlace &target) {
  const auto from = reinterpret_cast<uintptr_t>(source.data), to = reinterpret_cast<uintptr_t>(target.data);
  const bool equal_strides = source.row == target.row && source.matrix == target.matrix;
  if (from == to && (equal_strides || (source.count == 1 && source.row == target.row))) return MXS_OK;
  const auto source_bytes = static_cast<uintptr_t>(source.extent()) * sizeof(float);
  const auto target_bytes = static_cast<uintptr_t>(target.extent()) * sizeof(float);
  if (from + source_bytes <= to || to + target_bytes <= from) return MXS_OK;
  const auto distance = static_cast<int64_t>(to - from);
  const auto element_bytes = static_cast<int64_t>(sizeof(float));
  if (equal_strides && distance % element_bytes == 0 && !pieces_meet(source, distance / element_bytes)) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT,
                   "target begins %lld bytes behind source and overlaps it; it may be source, with the same strides, "
                   "or lie apart", static_cast<long long>(distance));
}

}  // namespace mxs
