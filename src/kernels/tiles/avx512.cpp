// SPDX-License-Identifier: Apache-2.0
// Products of tiles by AVX-512 (vdpbf16ps: 16 sums, two terms each), and what is done with blocks of sums, which both
// kernels share. Compiled for avx512_bf16 (see meson.build): no inline function of another header may be used here,
// unless it is static.
#include <immintrin.h>

#include "kernels/tiles/tiles.hpp"

namespace mxs::tiles {

namespace {

constexpr size_t tile_rows = 16, row_floats = 16, row_bytes = 64;
constexpr size_t tile_floats = tile_rows * row_floats;

// ---- products ------------------------------------------------------------------------------------------------------

inline __m512bh as_bf16(__m512i bits) { return __builtin_bit_cast(__m512bh, bits); }

inline __m512i load_row(const std::byte *tile, size_t row) { return _mm512_load_si512(tile + row * row_bytes); }

inline __m512i repeat_pair(const std::byte *tile, size_t row, size_t pair) {
  int bits;
  __builtin_memcpy(&bits, tile + row * row_bytes + pair * 4, sizeof bits);
  return _mm512_set1_epi32(bits);
}

constexpr int rows_at_once = 8;  // 16 sums hide the latency of vdpbf16ps

// Eight rows by 32 columns of a block. left: the first of these rows in its tile.
inline void multiply_rows(const std::byte *left, const std::byte *right, size_t steps, float *sums, bool first) {
  __m512 sum0[rows_at_once], sum1[rows_at_once];
  for (int row = 0; row < rows_at_once; ++row) {
    sum0[row] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + row * row_floats);
    sum1[row] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + tile_floats + row * row_floats);
  }
  for (size_t step = 0; step < steps; ++step, left += step_bytes, right += step_bytes)
    for (size_t pair = 0; pair < 16; ++pair) {
      const __m512bh right0 = as_bf16(load_row(right, pair)), right1 = as_bf16(load_row(right + tile_bytes, pair));
      for (int row = 0; row < rows_at_once; ++row) {
        const __m512bh terms = as_bf16(repeat_pair(left, static_cast<size_t>(row), pair));
        sum0[row] = _mm512_dpbf16_ps(sum0[row], terms, right0);
        sum1[row] = _mm512_dpbf16_ps(sum1[row], terms, right1);
      }
    }
  for (int row = 0; row < rows_at_once; ++row) {
    _mm512_store_ps(sums + row * row_floats, sum0[row]);
    _mm512_store_ps(sums + tile_floats + row * row_floats, sum1[row]);
  }
}

void multiply(const Piece &piece) {
  float *sums = piece.sums;
  for (size_t strip = 0; strip < piece.strip_count; ++strip, sums += block_floats) {
    const std::byte *const left = piece.left + strip * piece.left_strip_bytes;
    for (size_t half = 0; half < 2; ++half)
      for (size_t row = 0; row < tile_rows; row += rows_at_once)
        multiply_rows(left + half * tile_bytes + row * row_bytes, piece.right, piece.steps,
                      sums + half * 2 * tile_floats + row * row_floats, piece.first);
  }
}

void enter() {}
void leave() {}

// ---- blocks --------------------------------------------------------------------------------------------------------

// One row of a block: 32 numbers.
struct Row {
  __m512 low, high;
};

inline float *row_of(float *sums, size_t row) {
  return sums + row / tile_rows * 2 * tile_floats + row % tile_rows * row_floats;
}
inline const float *row_of(const float *sums, size_t row) { return row_of(const_cast<float *>(sums), row); }

inline Row load_sums(const float *sums, size_t row) {
  const float *const at = row_of(sums, row);
  return {_mm512_load_ps(at), _mm512_load_ps(at + tile_floats)};
}

inline void store_sums(float *sums, size_t row, const Row &values) {
  float *const at = row_of(sums, row);
  _mm512_store_ps(at, values.low);
  _mm512_store_ps(at + tile_floats, values.high);
}

inline __m512i round_row(const Row &row) {
  return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(row.high, row.low));
}

inline Row widen_row(__m512i bits) {
  const auto widen = [](__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  return {widen(_mm512_castsi512_si256(bits)), widen(_mm512_extracti64x4_epi64(bits, 1))};
}

inline void store_row(std::byte *tile, size_t row, __m512i bits) { _mm512_store_si512(tile + row * row_bytes, bits); }

// Two rows of a left operand -> the pair's row in both tiles of a right operand.
inline void store_pair(std::byte *right, size_t pair, __m512i even, __m512i odd) {
  alignas(64) static constexpr uint16_t low[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                   8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low_places = _mm512_load_si512(low);
  const __m512i high_places = _mm512_add_epi16(low_places, _mm512_set1_epi16(16));
  store_row(right, pair, _mm512_permutex2var_epi16(even, low_places, odd));
  store_row(right + tile_bytes, pair, _mm512_permutex2var_epi16(even, high_places, odd));
}

// A 16 x 16 matrix of 4-byte elements, transposed. Rows are gathered by their 16-byte quarters while they are loaded,
// which leaves half of the shuffles.
inline void turn_tile(const void *source, void *target) {
  const auto *const from = static_cast<const std::byte *>(source);
  auto *const to = static_cast<std::byte *>(target);
  const auto quarter = [&](size_t row, size_t q) {
    return _mm_load_si128(reinterpret_cast<const __m128i *>(from + row * row_bytes + q * 16));
  };
  for (size_t q = 0; q < 4; ++q) {
    __m512i rows[4];  // lane g: quarter q of row 4 g + k
    for (size_t k = 0; k < 4; ++k) {
      rows[k] = _mm512_castsi128_si512(quarter(k, q));
      rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0x00f0, quarter(4 + k, q));
      rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0x0f00, quarter(8 + k, q));
      rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0xf000, quarter(12 + k, q));
    }
    const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]), high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]), high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    store_row(to, 4 * q, _mm512_unpacklo_epi64(low01, low23));
    store_row(to, 4 * q + 1, _mm512_unpackhi_epi64(low01, low23));
    store_row(to, 4 * q + 2, _mm512_unpacklo_epi64(high01, high23));
    store_row(to, 4 * q + 3, _mm512_unpackhi_epi64(high01, high23));
  }
}

inline void turn_step(const std::byte *source, std::byte *target) {
  turn_tile(source, target);
  turn_tile(source + tile_bytes, target + tile_bytes);
}

// value(row) -> all places of the block that aren't null.
template <class Value>
inline void place(const BlockPlaces &places, Value &&value) {
  for (size_t row = 0; row < side; row += 2) {
    const __m512i even = round_row(value(row)), odd = round_row(value(row + 1));
    if (places.left) {
      store_row(places.left, row, even);  // rows of a step's two tiles lie one after the other
      store_row(places.left, row + 1, odd);
    }
    if (places.right) store_pair(places.right, row / 2, even, odd);
  }
  if (places.left_turned) turn_step(places.left, places.left_turned);
}

void load(const Plain &plain, Scale scale, float *sums, const BlockPlaces &places) {
  const __m512 first = _mm512_set1_ps(scale.first), second = _mm512_set1_ps(scale.second),
               third = _mm512_set1_ps(scale.third);
  const uint32_t mask = plain.columns >= side ? ~0u : (1u << plain.columns) - 1;
  const auto read = [&](size_t row) -> Row {
    if (row >= plain.rows) return {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const float *const from = plain.data + row * plain.stride;
    const auto scaled = [&](__m512 values) {
      return _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(values, first), second), third);
    };
    return {scaled(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from)),
            scaled(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + row_floats))};
  };
  if (!plain.turned) return place(places, read);
  alignas(64) float block[block_floats];
  for (size_t row = 0; row < side; ++row) store_sums(block, row, read(row));
  for (size_t down = 0; down < 2; ++down)
    for (size_t across = 0; across < 2; ++across)
      turn_tile(block + (2 * across + down) * tile_floats, sums + (2 * down + across) * tile_floats);
  place(places, [&](size_t row) { return load_sums(sums, row); });
}

void place_symmetric(const float *sums, const BlockPlaces &places, const BlockPlaces &mirrored) {
  place({places.left, places.left_turned, mirrored.right}, [&](size_t row) { return load_sums(sums, row); });
  if (mirrored.right) turn_step(mirrored.right, mirrored.left);
}

void place_polynomial(float *sums, const std::byte *matrix, float b, float c, std::byte *left,
                      std::byte *mirrored_left) {
  const __m512 factor_b = _mm512_set1_ps(b), factor_c = _mm512_set1_ps(c);
  alignas(64) std::byte right[step_bytes];
  place({left, nullptr, mirrored_left ? right : nullptr}, [&](size_t row) -> Row {
    const Row sum = load_sums(sums, row), old = widen_row(load_row(matrix, row));
    return {_mm512_fmadd_ps(factor_b, old.low, _mm512_mul_ps(factor_c, sum.low)),
            _mm512_fmadd_ps(factor_b, old.high, _mm512_mul_ps(factor_c, sum.high))};
  });
  if (mirrored_left) turn_step(right, mirrored_left);
}

inline Row next_row(const float *sums, __m512 a, const std::byte *left, size_t row) {
  const Row sum = load_sums(sums, row), old = widen_row(load_row(left, row));
  return {_mm512_fmadd_ps(a, old.low, sum.low), _mm512_fmadd_ps(a, old.high, sum.high)};
}

void place_next(float *sums, float a, const BlockPlaces &places) {
  const __m512 factor = _mm512_set1_ps(a);
  place(places, [&](size_t row) { return next_row(sums, factor, places.left, row); });
}

void store_last(float *sums, float a, const std::byte *left, const Plain &plain) {
  const __m512 factor = _mm512_set1_ps(a);
  const uint32_t mask = plain.columns >= side ? ~0u : (1u << plain.columns) - 1;
  const auto write = [&](size_t row, const Row &values) {
    float *const to = plain.data + row * plain.stride;
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), values.low);
    _mm512_mask_storeu_ps(to + row_floats, static_cast<__mmask16>(mask >> 16), values.high);
  };
  if (!plain.turned) {
    for (size_t row = 0; row < plain.rows && row < side; ++row) write(row, next_row(sums, factor, left, row));
    return;
  }
  alignas(64) float block[block_floats];
  for (size_t row = 0; row < side; ++row) store_sums(sums, row, next_row(sums, factor, left, row));
  for (size_t down = 0; down < 2; ++down)
    for (size_t across = 0; across < 2; ++across)
      turn_tile(sums + (2 * across + down) * tile_floats, block + (2 * down + across) * tile_floats);
  for (size_t row = 0; row < plain.rows && row < side; ++row) write(row, load_sums(block, row));
}

}  // namespace

const Kernel avx512_kernel = {"avx512_bf16", enter, multiply, leave};
const Passes avx512_passes = {load, place_symmetric, place_polynomial, place_next, store_last};

}  // namespace mxs::tiles
