// SPDX-License-Identifier: Apache-2.0
// How a product of packed operands is cut into parts, and how one part is computed.
//
// A part is a rectangle of blocks whose left strips stay in the second-level cache while right strips come by:
//
//   up to 1,024 terms   16 left strips (at most 1 MiB); each right strip is done with at once, its sums are few
//   more                12 x 12 strips; their sums (576 KiB) stay in the cache over all terms, eight steps at a time
//
// Both cost about 4 bytes from beyond that cache for 1,000 flops.
//
// Vector units work while tiles are multiplied: a column's blocks are finished (rounded, and put where the next
// product reads them) in slices between the steps of the next column. All at once after each column, five steps of
// 1,024 x 4,096 took 1.05 times as long (one AMX thread; 256 x 1,024: as long). Where the right operand is the left
// one turned, 16 KiB are turned at a time, before they are used: to do that meanwhile, too, took 1.1 times as long for
// X X^T of 256 x 1,024, since the first-level cache holds 48 KiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/tiles/tiles.hpp"

namespace mxs::tiles {

constexpr size_t resident_steps = 32;    // up to so many the left strips of a part stay in the cache with all terms
constexpr size_t resident_strips = 16;
constexpr size_t square_strips = 12;

constexpr size_t run_bytes = group_steps * step_bytes;

// What a thread needs for parts of so many steps: sums, of two columns or of all, and a run of turned strips.
inline size_t part_bytes(size_t steps) {
  const size_t blocks = steps <= resident_steps ? 2 * resident_strips : square_strips * square_strips;
  return blocks * block_floats * sizeof(float) + run_bytes;
}

struct PackedProduct {
  Operand left, right;
  // left times its transpose: right is left itself, and only blocks on and below the diagonal are computed.
  bool is_symmetric = false;
  // All rows of a column are in one part, so that what the finisher makes of a column may be written over it.
  // For at most resident_strips rows and resident_steps.
  bool in_place = false;
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
  Cut(const PackedProduct &product, int thread_count) : lower_(product.is_symmetric) {
    rows_ = product.left.strips;
    columns_ = product.right.strips;
    const bool resident = product.left.steps <= resident_steps;
    row_spans_ = spans_of(rows_, resident ? resident_strips : square_strips);
    column_spans_ = lower_ ? row_spans_ : spans_of(columns_, resident ? 2 * resident_strips : square_strips);
    // Several parts a thread, so that threads end together; but no smaller than 4 x 4 blocks.
    const size_t wanted = thread_count > 1 ? 4 * static_cast<size_t>(thread_count) : 1;
    while (parts() < wanted && ((rows_ > 4 * row_spans_ && !product.in_place) || columns_ > 4 * column_spans_)) {
      if (lower_)
        column_spans_ = ++row_spans_;
      else if (product.in_place || columns_ * row_spans_ >= rows_ * column_spans_)
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

// What is made of a product's blocks.
//   void finish(size_t row, size_t column, float *sums, size_t slice)   of every block all slices, in order
//   void fetch(size_t row, size_t column, size_t part, size_t parts)    what finish will write; where it is far away
template <class Finisher>
class PartProduct {
 public:
  // workspace: part_bytes(steps) at a 64-byte border.
  PartProduct(const Kernel &kernel, const Passes &passes, const PackedProduct &product, const Part &part,
              std::byte *workspace, Finisher *finisher)
      : kernel_(kernel), passes_(passes), product_(product), part_(part), finisher_(finisher),
        resident_(product.left.steps <= resident_steps), groups_(product.left.groups()),
        pass_groups_(resident_ ? groups_ : 1),
        far_(product.left.bytes() + product.right.bytes() > (size_t{1} << 20)),
        turned_(workspace), sums_(reinterpret_cast<float *>(workspace + run_bytes)) {}

  void run() {
    for (size_t pass = 0; pass < groups_; pass += pass_groups_) {
      pass_ = pass;
      const size_t next = pass + pass_groups_;
      next_left_ = far_ && next < groups_ ? product_.left.run(part_.rows.first, next) : nullptr;
      for (column_ = part_.columns.first; has_rows(column_); ++column_) {
        finishes_.begin(has_unfinished_ ? row_count(unfinished_) * slices : 0,
                        pass_groups_ * row_count(column_) * slices);
        for (group_ = pass; group_ < next; ++group_) multiply();
        has_unfinished_ = next >= groups_;
        unfinished_ = column_;
      }
    }
    // The last column has none after it.
    for (size_t unit = 0; has_unfinished_ && unit < row_count(unfinished_) * slices; ++unit) finish_unit(unit);
  }

 private:
  size_t first_row(size_t column) const {
    return product_.is_symmetric ? std::max(part_.rows.first, column) : part_.rows.first;
  }
  bool has_rows(size_t column) const { return column < part_.columns.last && first_row(column) < part_.rows.last; }
  size_t row_count(size_t column) const { return part_.rows.last - first_row(column); }

  float *sums_of(size_t column) const {
    const size_t place = column - part_.columns.first;
    return sums_ + (resident_ ? place % 2 : place) * part_.rows.count() * block_floats;
  }

  // All left strips of the part, one right strip, the steps of one group.
  void multiply() {
    constexpr size_t run_lines = run_bytes / 64;
    Piece piece;
    piece.left = product_.left.run(first_row(column_), group_);
    piece.steps = product_.left.steps_of(group_);
    piece.left_strip_bytes = piece.steps * step_bytes;
    piece.strip_count = row_count(column_);
    piece.right = product_.right.run(column_, group_);
    if (product_.is_symmetric) piece.right = turn(piece.right, piece.steps);
    piece.sums = sums_of(column_);
    piece.first = group_ == 0;
    const size_t steps = piece.strip_count * piece.steps;
    if (next_left_) {
      piece.ahead[0] = {next_left_, (part_.rows.count() * run_lines - 1) / (part_.columns.count() * steps) + 1};
      next_left_ += piece.ahead[0].lines * steps * 64;
    }
    if (far_ && column_ + 1 < part_.columns.last)
      piece.ahead[1] = {product_.right.run(column_ + 1, group_), (run_lines - 1) / steps + 1};
    piece.meanwhile = {[](void *self, size_t strip, size_t slice) {
                         static_cast<PartProduct *>(self)->work(strip, slice);
                       },
                       this};
    fetches_ = far_ && pass_ + pass_groups_ >= groups_;
    kernel_.multiply(piece);
  }

  // `total` units, spread evenly over the calls of a column's pieces.
  struct Chores {
    uint64_t rate = 0, due = 0;  // units * 2^32
    size_t done = 0, total = 0;
    void begin(size_t units, size_t calls) {
      rate = calls > 0 ? (static_cast<uint64_t>(units) << 32) / calls + 1 : 0;
      due = done = 0;
      total = units;
    }
    template <class Body>
    void advance(Body &&body) {
      due += rate;
      const size_t last = std::min<size_t>(due >> 32, total);
      for (; done < last; ++done) body(done);
    }
  };

  // A share of everything that is done meanwhile.
  void work(size_t strip, size_t slice) {
    finishes_.advance([&](size_t unit) { finish_unit(unit); });
    if (fetches_)
      finisher_->fetch(first_row(column_) + strip, column_, (group_ - pass_) * slices + slice, pass_groups_ * slices);
  }

  void finish_unit(size_t unit) {
    const size_t block = unit / slices;
    finisher_->finish(first_row(unfinished_) + block, unfinished_, sums_of(unfinished_) + block * block_floats,
                      unit % slices);
  }

  const std::byte *turn(const std::byte *source, size_t steps) const {
    passes_.turn(source, turned_, 2 * steps);
    return turned_;
  }

  const Kernel &kernel_;
  const Passes &passes_;
  const PackedProduct &product_;
  const Part part_;
  Finisher *const finisher_;
  const bool resident_;
  const size_t groups_, pass_groups_;
  const bool far_;  // operands that fit the cache need no fetching ahead
  std::byte *const turned_;
  float *const sums_;
  const std::byte *next_left_ = nullptr;
  size_t pass_ = 0, column_ = 0, group_ = 0;
  bool has_unfinished_ = false, fetches_ = false;
  size_t unfinished_ = 0;  // the column before
  Chores finishes_;
};

}  // namespace mxs::tiles
