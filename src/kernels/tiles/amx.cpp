// SPDX-License-Identifier: Apache-2.0
// Products of tiles by AMX: tdpbf16ps multiplies 16 x 32 by 32 x 16 terms in 16 cycles.
//
// Eight tile registers: four sums (32 x 32), two left, two right: four loads for four products. The right operand's 16
// KiB stay in the first-level cache, the left one streams from the second. Sums are put down and taken up tile by tile,
// so that the next block's first products need not wait for the last store: 1,710 GF against 1,530 with all stores
// first (loops of these instructions alone on a Xeon, operands in the second-level cache, sums put down every 256
// terms; the product instruction does 3,020 from registers, and 2,050 with loads from the first-level cache, unless
// the numbers are zero: then 2,590).
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

struct Step {
  const std::byte *left, *right;
};

inline void load_step(Step at) {
  load<6>(at.right);
  load<4>(at.left);
  load<7>(at.right + tile_bytes);
  load<5>(at.left + tile_bytes);
}

// Multiplies the step that is loaded, and loads the next as registers become free.
inline void multiply_step(Step next) {
  multiply_add<0, 4, 6>();
  multiply_add<1, 4, 7>();
  load<4>(next.left);
  multiply_add<2, 5, 6>();
  load<6>(next.right);
  multiply_add<3, 5, 7>();
  load<7>(next.right + tile_bytes);
  load<5>(next.left + tile_bytes);
}

static_assert(slices == group_steps);

// Each step's tiles are loaded before the work that is done meanwhile: the core looks a few hundred instructions ahead,
// and loads that come from the second-level cache should be among them.
void multiply(const Piece &piece) {
  Ahead ahead0 = piece.ahead[0], ahead1 = piece.ahead[1];
  const Meanwhile meanwhile = piece.meanwhile;
  const bool first = piece.first;
  float *sums = piece.sums;
  Step next = {piece.left, piece.right};
  load_step(next);
  take_up<0>(sums, first);
  take_up<1>(sums, first);
  take_up<2>(sums, first);
  take_up<3>(sums, first);
  for (size_t strip = 0; strip < piece.strip_count; ++strip, sums += block_floats) {
    const bool more = strip + 1 < piece.strip_count;
    for (size_t step = 0; step < piece.steps; ++step) {
      // After the last step of all, the first is loaded once more, for nothing.
      if (step + 1 < piece.steps)
        next = {next.left + step_bytes, next.right + step_bytes};
      else
        next = {piece.left + (more ? strip + 1 : 0) * piece.left_strip_bytes, piece.right};
      multiply_step(next);
      fetch(&ahead0);
      fetch(&ahead1);
      if (meanwhile.work) meanwhile.work(meanwhile.context, strip, step);
    }
    for (size_t slice = piece.steps; meanwhile.work && slice < slices; ++slice)
      meanwhile.work(meanwhile.context, strip, slice);
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
