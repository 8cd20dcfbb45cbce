// SPDX-License-Identifier: Apache-2.0
// How a product of packed operands is cut into parts, and how one part is computed.
//
// A part is a rectangle of blocks whose left strips stay in the second-level cache while right strips come by:
//
//   up to 1,024 terms   16 left strips (at most 1 MiB); each right strip is done with at once, its sums are few
//   more                12 x 12 strips; their sums (576 KiB) stay in the cache over all terms, eight steps at a time
//
// Both cost about 4 bytes from beyond that cache for 1,000 flops. Measured with one AMX thread: 1,430 GF at 1,024 terms
// and 1,270 GF at 4,096, against 1,600 GF at 512 (all with operands of 32 MiB).
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/tiles/tiles.hpp"

namespace mxs::tiles {

constexpr size_t resident_steps = 32;    // up to so many the left strips of a part stay in the cache with all terms
constexpr size_t resident_strips = 16;
constexpr size_t square_strips = 12;

// Blocks whose sums a part holds at a time.
inline size_t sum_blocks(size_t steps) {
  return steps <= resident_steps ? resident_strips : square_strips * square_strips;
}

struct PackedProduct {
  Operand left, right;
  // Of a symmetric product only blocks on and below the diagonal; left and right have equally many strips then.
  bool lower = false;
};

struct Span {
  size_t first, last;
  size_t count() const { return last - first; }
};

struct Part {
  Span rows, columns;  // strips
};

// Equal spans, so that no part is a small remainder.
inline Span span_of(size_t strips, size_t spans, size_t index) {
  return {strips * index / spans, strips * (index + 1) / spans};
}

class Cut {
 public:
  Cut(const PackedProduct &product, int thread_count) : lower_(product.lower) {
    rows_ = product.left.strips;
    columns_ = product.right.strips;
    const bool resident = product.left.steps <= resident_steps;
    row_spans_ = spans_of(rows_, resident ? resident_strips : square_strips);
    column_spans_ = lower_ ? row_spans_ : spans_of(columns_, resident ? 2 * resident_strips : square_strips);
    // Several parts a thread, so that threads end together; but no smaller than 4 x 4 blocks.
    const size_t wanted = thread_count > 1 ? 4 * static_cast<size_t>(thread_count) : 1;
    while (parts() < wanted && (rows_ > 4 * row_spans_ || columns_ > 4 * column_spans_)) {
      if (lower_)
        column_spans_ = ++row_spans_;
      else if (columns_ * row_spans_ >= rows_ * column_spans_)
        ++column_spans_;
      else
        ++row_spans_;
    }
  }

  size_t parts() const { return lower_ ? row_spans_ * (row_spans_ + 1) / 2 : row_spans_ * column_spans_; }

  Part part(size_t index) const {
    if (!lower_) return make(index % row_spans_, index / row_spans_);
    // Off the diagonal first: parts on it are half as large, and fill up what threads have left.
    size_t row = 1;
    while (row < row_spans_ && index >= row) index -= row++;
    return row < row_spans_ ? make(row, index) : make(index, index);
  }

 private:
  static size_t spans_of(size_t strips, size_t strips_max) { return (strips + strips_max - 1) / strips_max; }
  Part make(size_t row, size_t column) const {
    return {span_of(rows_, row_spans_, row), span_of(columns_, column_spans_, column)};
  }
  bool lower_;
  size_t rows_, columns_, row_spans_, column_spans_;
};

// finish(row strip, column strip, sums) for every block of the part; sums may be written. sums has room for
// sum_blocks(steps) blocks.
template <class Finish>
void multiply_part(const Kernel &kernel, const PackedProduct &product, const Part &part, float *sums, Finish &&finish) {
  const Operand &left = product.left, &right = product.right;
  const bool resident = left.steps <= resident_steps;
  const size_t groups = left.groups();
  const size_t pass_groups = resident ? groups : 1;
  // Operands that fit the cache need no fetching ahead.
  const bool fetches = left.bytes() + right.bytes() > (size_t{1} << 20);
  constexpr size_t run_lines = group_steps * step_bytes / 64;
  for (size_t pass = 0; pass < groups; pass += pass_groups) {
    const std::byte *next_left = pass + pass_groups < groups ? left.run(part.rows.first, pass + pass_groups) : nullptr;
    for (size_t column = part.columns.first; column < part.columns.last; ++column) {
      const size_t first = product.lower ? std::max(part.rows.first, column) : part.rows.first;
      if (first >= part.rows.last) continue;
      const size_t count = part.rows.last - first;
      float *const strip_sums =
          resident ? sums : sums + (column - part.columns.first) * part.rows.count() * block_floats;
      for (size_t group = pass; group < pass + pass_groups; ++group) {
        Piece piece;
        piece.left = left.run(first, group);
        piece.steps = left.steps_of(group);
        piece.left_strip_bytes = piece.steps * step_bytes;
        piece.strip_count = count;
        piece.right = right.run(column, group);
        piece.sums = strip_sums;
        piece.first = group == 0;
        const size_t steps = count * piece.steps;
        if (fetches && next_left) {
          piece.ahead[0] = {next_left, (part.rows.count() * run_lines - 1) / (part.columns.count() * steps) + 1};
          next_left += piece.ahead[0].lines * steps * 64;
        }
        if (fetches && column + 1 < part.columns.last)
          piece.ahead[1] = {right.run(column + 1, group), (run_lines - 1) / steps + 1};
        kernel.multiply(piece);
      }
      if (pass + pass_groups < groups) continue;
      for (size_t row = first; row < part.rows.last; ++row)
        finish(row, column, strip_sums + (row - first) * block_floats);
    }
  }
}

}  // namespace mxs::tiles
