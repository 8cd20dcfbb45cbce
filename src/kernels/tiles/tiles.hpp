// SPDX-License-Identifier: Apache-2.0
// Tiles: products of bf16 matrices with fp32 sums, from operands that are kept packed.
//
// A tile is 1 KiB, as AMX registers hold it. Of a left operand it is 16 rows of 32 terms (along k, the dimension that
// is summed over); of a right operand it is 16 pairs of terms by 16 columns:
//
//   left tile     row r, term t            at 2 (32 r + t)            right tile     term t, column c
//                                                                                    at 2 (32 (t / 2) + 2 c + t % 2)
//
// So the right tile of X^T is the left tile of X, transposed as a 16 x 16 matrix of 4-byte pairs. A strip is 32 rows of
// a left operand, or 32 columns of a right one; a step is 32 terms of a strip: two tiles, one after the other. Eight
// steps (16 KiB: they stay in the first-level cache) lie together:
//
//   | steps 0..7 of strip 0 | steps 0..7 of strip 1 | ... | steps 8..15 of strip 0 | ...
//
// Sums are blocks of 32 x 32 fp32 numbers: four tiles of 16 x 16, left to right, then down. Rows, columns and terms
// beyond a matrix are zero, which is exact. Each sum is formed in the order of its terms, wherever it is put down in
// between, so that bits depend neither on how a product is cut nor on threads; and a product that is symmetric is so to
// the last bit. Both kernels take denormals for zero and give zero for them (so the instructions are defined); their
// sums round differently (AMX adds up 32 terms before it adds them to the sum), so bits differ between them.
//
// Files that are compiled for an instruction set include this one: no inline function here that isn't static.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxs::tiles {

constexpr size_t side = 32;              // of a block, and terms of a step
constexpr size_t tile_bytes = 1024;
constexpr size_t step_bytes = 2 * tile_bytes;
constexpr size_t group_steps = 8;
constexpr size_t block_floats = side * side;

// One operand in memory.
struct Operand {
  std::byte *data = nullptr;
  size_t strips = 0, steps = 0;

  size_t bytes() const { return strips * steps * step_bytes; }
  size_t groups() const { return (steps + group_steps - 1) / group_steps; }
  size_t steps_of(size_t group) const {
    return group + 1 < groups() ? group_steps : steps - group * group_steps;
  }
  // Steps of one strip in one group.
  std::byte *run(size_t strip, size_t group) const {
    return data + (group * strips * group_steps + strip * steps_of(group)) * step_bytes;
  }
  std::byte *step(size_t strip, size_t step) const {
    return run(strip, step / group_steps) + step % group_steps * step_bytes;
  }
};

// Memory that will be read later, taken into the second-level cache while the kernel multiplies.
struct Ahead {
  const std::byte *data = nullptr;
  size_t lines = 0;  // at each step
};

// What else is to be done while the tiles multiply: other units of the core are idle then. Of each strip all slices are
// called, in order, before the strip's sums are put down.
constexpr size_t slices = 8;
struct Meanwhile {
  void (*work)(void *context, size_t strip, size_t slice) = nullptr;
  void *context = nullptr;
};

// sums (strip_count blocks, one after the other) += left strips times one right strip, over a few steps.
struct Piece {
  const std::byte *left = nullptr;
  size_t left_strip_bytes = 0;  // from strip to strip
  size_t strip_count = 0;
  const std::byte *right = nullptr;
  size_t steps = 0;
  float *sums = nullptr;
  bool first = false;  // sums begin from zero
  Ahead ahead[2];
  Meanwhile meanwhile;
};

struct Kernel {
  const char *name;
  // Around pieces, on each thread: AMX wants its tiles configured, and released lest the thread's state stays large.
  void (*enter)();
  void (*multiply)(const Piece &piece);
  void (*leave)();
};

extern const Kernel amx_kernel, avx512_kernel;

// As scale_to_norm's.
struct Scale {
  float first, second, third;
};

// A block of a matrix in plain memory, cut at the matrix's end. turned: plain is the transpose of what is packed, and
// rows and columns are plain's.
struct Plain {
  float *data = nullptr;
  size_t stride = 0;
  size_t rows = 0, columns = 0;
  bool turned = false;
};

// What is done with blocks of sums, in fp32, before they are rounded to bf16. All in AVX-512. A block is finished in
// `slices` calls, 0 to the last. Block (i, j) is strip i and step j of a left operand, strip j and step i of a right
// one.
struct Passes {
  // plain, scaled -> a block of a left and of a right operand, at once.
  void (*load)(const Plain &plain, Scale scale, std::byte *left, std::byte *right);
  // sums of a symmetric matrix -> its block (i, j) and, unless i = j (nullptr), its block (j, i) as left operands.
  void (*place_symmetric)(const float *sums, std::byte *left, std::byte *mirrored, std::byte *scratch, size_t slice);
  // The same for b A + c sums; A: its block (i, j).
  void (*place_polynomial)(const float *sums, const std::byte *matrix, float b, float c, std::byte *left,
                           std::byte *mirrored, std::byte *scratch, size_t slice);
  // a X + sums, X from its block of a right operand, which may be the target, too.
  void (*place_next)(const float *sums, float a, const std::byte *old, std::byte *left, std::byte *right,
                     size_t slice);
  // The same, to plain in fp32. sums may be written.
  void (*store_last)(float *sums, float a, const std::byte *old, const Plain &plain, size_t slice);
  // Tiles one after the other, each transposed as 16 x 16 elements of 4 bytes.
  void (*turn)(const std::byte *source, std::byte *target, size_t tile_count);
  // Takes lines into the first-level cache, to be written.
  void (*fetch_to_write)(std::byte *data, size_t lines);
};

extern const Passes avx512_passes;

}  // namespace mxs::tiles
