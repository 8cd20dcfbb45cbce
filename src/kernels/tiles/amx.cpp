// SPDX-License-Identifier: Apache-2.0
// Products of tiles by AMX: tdpbf16ps multiplies 16 x 32 by 32 x 16 terms in 16 cycles.
//
// Eight tile registers: four sums (32 x 32), two left, two right: four loads for four products. The right operand's 16
// KiB stay in the first-level cache, the left one streams from the second. Sums are put down and taken up tile by tile,
// so that the next block's first products need not wait for the last store: 1,710 GF against 1,530 with all stores
// first (Xeon with AMX, operands in the second-level cache, sums put down every 256 terms; the bare instruction does
// 3,020 from registers and 2,050 from the first-level cache with numbers that aren't zero).
//
// Instructions are written out: gcc's intrinsics for tile loads don't tell the compiler that they read memory.
#include <immintrin.h>

#include "kernels/tiles/tiles.hpp"

namespace mxs::tiles {

namespace {

constexpr long row_bytes = 64;

template <int tile>
inline void load(const void *from) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(tile), "r"(from), "r"(row_bytes) : "memory");
}

template <int tile>
inline void store(void *to) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(tile), "r"(to), "r"(row_bytes) : "memory");
}

template <int tile>
inline void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

template <int sum, int left, int right>
inline void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
}

template <int sum>
inline void take_up(const float *sums, bool first) {
  if (first)
    clear<sum>();
  else
    load<sum>(sums + sum * (block_floats / 4));
}

// The sums of one block go down, those of the next come up.
template <int sum>
inline void change(float *sums, bool more, bool first) {
  store<sum>(sums + sum * (block_floats / 4));
  if (more) take_up<sum>(sums + block_floats, first);
}

inline void fetch(Ahead *ahead) {
  for (size_t line = 0; line < ahead->lines; ++line)
    _mm_prefetch(reinterpret_cast<const char *>(ahead->data) + line * 64, _MM_HINT_T1);
  ahead->data += ahead->lines * 64;
}

inline void multiply_step(const std::byte *left, const std::byte *right) {
  load<6>(right);
  load<4>(left);
  multiply_add<0, 4, 6>();
  load<7>(right + tile_bytes);
  multiply_add<1, 4, 7>();
  load<5>(left + tile_bytes);
  multiply_add<2, 5, 6>();
  multiply_add<3, 5, 7>();
}

void multiply(const Piece &piece) {
  Ahead ahead0 = piece.ahead[0], ahead1 = piece.ahead[1];
  const bool first = piece.first;
  float *sums = piece.sums;
  take_up<0>(sums, first);
  take_up<1>(sums, first);
  take_up<2>(sums, first);
  take_up<3>(sums, first);
  for (size_t strip = 0; strip < piece.strip_count; ++strip, sums += block_floats) {
    const std::byte *left = piece.left + strip * piece.left_strip_bytes, *right = piece.right;
    for (size_t step = 0; step < piece.steps; ++step, left += step_bytes, right += step_bytes) {
      multiply_step(left, right);
      fetch(&ahead0);
      fetch(&ahead1);
    }
    const bool more = strip + 1 < piece.strip_count;
    change<0>(sums, more, first);
    change<1>(sums, more, first);
    change<2>(sums, more, first);
    change<3>(sums, more, first);
  }
}

// What ldtilecfg reads.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

void enter() {
  Configuration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.column_bytes[tile] = 64;
    configuration.rows[tile] = 16;
  }
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
}

void leave() { asm volatile("tilerelease" ::: "memory"); }

}  // namespace

const Kernel amx_kernel = {"amx_bf16", enter, multiply, leave};

}  // namespace mxs::tiles
