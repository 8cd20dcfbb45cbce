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
    for (size_t slice = 0; piece.meanwhile.work && slice < slices; ++slice)
      piece.meanwhile.work(piece.meanwhile.context, strip, slice);
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

inline void store_row(std::byte *tile, size_t row, __m512i bits) { _mm512_store_si512(tile + row * row_bytes, bits); }

struct RowPair {
  Row even, odd;
};

inline Row widen_row(__m512i bits) {
  const auto widen = [](__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  return {widen(_mm512_castsi512_si256(bits)), widen(_mm512_extracti64x4_epi64(bits, 1))};
}

// A pair of rows of a right operand's step.
inline RowPair widen_pair(const std::byte *right, size_t pair) {
  const __m512i low = load_row(right, pair), high = load_row(right + tile_bytes, pair);
  const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const auto upper = [](__m512i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)); };
  return {{upper(low), upper(high)},
          {_mm512_castsi512_ps(_mm512_and_si512(low, odd)), _mm512_castsi512_ps(_mm512_and_si512(high, odd))}};
}

// Two rows of a left operand -> the pair's row in both tiles of a right operand.
inline void store_pair(std::byte *right, size_t pair, __m512i even, __m512i odd) {
  const __m512i first = _mm512_unpacklo_epi16(even, odd);   // of each eight columns the first four
  const __m512i second = _mm512_unpackhi_epi16(even, odd);  // and the last four
  const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  store_row(right, pair, _mm512_permutex2var_epi64(first, low, second));
  store_row(right + tile_bytes, pair, _mm512_permutex2var_epi64(first, high, second));
}

// A 16 x 16 matrix of 4-byte elements, transposed: rows 4 q to 4 q + 3 of the result. Rows are gathered by their
// 16-byte quarters while they are loaded, which leaves half of the shuffles.
inline void turn_quarter(const std::byte *source, std::byte *target, size_t q) {
  const auto quarter = [&](size_t row) {
    return _mm_load_si128(reinterpret_cast<const __m128i *>(source + row * row_bytes + q * 16));
  };
  __m512i rows[4];  // lane g: quarter q of row 4 g + k
  for (size_t k = 0; k < 4; ++k) {
    rows[k] = _mm512_castsi128_si512(quarter(k));
    rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0x00f0, quarter(4 + k));
    rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0x0f00, quarter(8 + k));
    rows[k] = _mm512_mask_broadcast_i32x4(rows[k], 0xf000, quarter(12 + k));
  }
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]), high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]), high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  store_row(target, 4 * q, _mm512_unpacklo_epi64(low01, low23));
  store_row(target, 4 * q + 1, _mm512_unpackhi_epi64(low01, low23));
  store_row(target, 4 * q + 2, _mm512_unpacklo_epi64(high01, high23));
  store_row(target, 4 * q + 3, _mm512_unpackhi_epi64(high01, high23));
}

inline void turn_tile(const void *source, void *target) {
  for (size_t q = 0; q < 4; ++q)
    turn_quarter(static_cast<const std::byte *>(source), static_cast<std::byte *>(target), q);
}

void turn(const std::byte *source, std::byte *target, size_t tile_count) {
  for (size_t tile = 0; tile < tile_count; ++tile) turn_tile(source + tile * tile_bytes, target + tile * tile_bytes);
}

// ---- a block in slices: first its rows, then what is transposed from them ------------------------------------------

constexpr size_t pair_count = side / 2, row_slices = 4, slice_pairs = pair_count / row_slices;
static_assert(slices == row_slices + 4);

// value(pair) -> a block of a left and of a right operand.
template <class Value>
inline void place_rows(std::byte *left, std::byte *right, size_t first_pair, size_t last_pair, Value &&value) {
  for (size_t pair = first_pair; pair < last_pair; ++pair) {
    const RowPair rows = value(pair);
    const __m512i even = round_row(rows.even), odd = round_row(rows.odd);
    store_row(left, 2 * pair, even);  // rows of a step's two tiles lie one after the other
    store_row(left, 2 * pair + 1, odd);
    if (right) store_pair(right, pair, even, odd);
  }
}

template <class Value>
inline void place_slice(std::byte *left, std::byte *right, size_t slice, Value &&value) {
  place_rows(left, right, slice * slice_pairs, (slice + 1) * slice_pairs, value);
}

inline void turn_slice(const std::byte *source, std::byte *target, size_t slice) {
  turn_quarter(source, target, slice - row_slices);
  turn_quarter(source + tile_bytes, target + tile_bytes, slice - row_slices);
}

inline RowPair load_pair(const float *sums, size_t pair) {
  return {load_sums(sums, 2 * pair), load_sums(sums, 2 * pair + 1)};
}

// The columns of plain that a block has.
inline uint32_t mask_of(const Plain &plain) { return plain.columns >= side ? ~0u : (1u << plain.columns) - 1; }

void load(const Plain &plain, Scale scale, std::byte *left, std::byte *right) {
  const __m512 first = _mm512_set1_ps(scale.first), second = _mm512_set1_ps(scale.second),
               third = _mm512_set1_ps(scale.third);
  const uint32_t mask = mask_of(plain);
  const auto read = [&](size_t row) -> Row {
    if (row >= plain.rows) return {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const float *const from = plain.data + row * plain.stride;
    const auto scaled = [&](__m512 values) {
      return _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(values, first), second), third);
    };
    return {scaled(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from)),
            scaled(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + row_floats))};
  };
  if (!plain.turned)
    return place_rows(left, right, 0, pair_count,
                      [&](size_t pair) -> RowPair { return {read(2 * pair), read(2 * pair + 1)}; });
  alignas(64) float block[block_floats], turned[block_floats];
  for (size_t row = 0; row < side; ++row) store_sums(block, row, read(row));
  for (size_t down = 0; down < 2; ++down)
    for (size_t across = 0; across < 2; ++across)
      turn_tile(block + (2 * across + down) * tile_floats, turned + (2 * down + across) * tile_floats);
  place_rows(left, right, 0, pair_count, [&](size_t pair) { return load_pair(turned, pair); });
}

// The mirrored block is the right operand's, turned.
void place_symmetric(const float *sums, std::byte *left, std::byte *mirrored, std::byte *scratch, size_t slice) {
  if (slice < row_slices)
    place_slice(left, mirrored ? scratch : nullptr, slice, [&](size_t pair) { return load_pair(sums, pair); });
  else if (mirrored)
    turn_slice(scratch, mirrored, slice);
}

void place_polynomial(const float *sums, const std::byte *matrix, float b, float c, std::byte *left,
                      std::byte *mirrored, std::byte *scratch, size_t slice) {
  if (slice >= row_slices) {
    if (mirrored) turn_slice(scratch, mirrored, slice);
    return;
  }
  const __m512 factor_b = _mm512_set1_ps(b), factor_c = _mm512_set1_ps(c);
  const auto mixed = [&](size_t row) -> Row {
    const Row old = widen_row(load_row(matrix, row)), sum = load_sums(sums, row);
    return {_mm512_fmadd_ps(factor_b, old.low, _mm512_mul_ps(factor_c, sum.low)),
            _mm512_fmadd_ps(factor_b, old.high, _mm512_mul_ps(factor_c, sum.high))};
  };
  place_slice(left, mirrored ? scratch : nullptr, slice,
              [&](size_t pair) -> RowPair { return {mixed(2 * pair), mixed(2 * pair + 1)}; });
}

inline RowPair next_pair(const float *sums, float a, const std::byte *right, size_t pair) {
  const __m512 factor = _mm512_set1_ps(a);
  const RowPair old = widen_pair(right, pair), sum = load_pair(sums, pair);
  const auto mixed = [&](const Row &x, const Row &change) -> Row {
    return {_mm512_fmadd_ps(factor, x.low, change.low), _mm512_fmadd_ps(factor, x.high, change.high)};
  };
  return {mixed(old.even, sum.even), mixed(old.odd, sum.odd)};
}

void place_next(const float *sums, float a, const std::byte *old, std::byte *left, std::byte *right, size_t slice) {
  constexpr size_t pairs = pair_count / slices;  // nothing is turned
  place_rows(left, right, slice * pairs, (slice + 1) * pairs,
             [&](size_t pair) { return next_pair(sums, a, old, pair); });
}

inline void store_plain(const Plain &plain, size_t row, const Row &values) {
  if (row >= plain.rows) return;
  const uint32_t mask = mask_of(plain);
  float *const to = plain.data + row * plain.stride;
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), values.low);
  _mm512_mask_storeu_ps(to + row_floats, static_cast<__mmask16>(mask >> 16), values.high);
}

// Half of the rows of sums' transpose: tiles (half, 0) and (half, 1).
inline void store_turned(const float *sums, const Plain &plain, size_t half) {
  alignas(64) float turned[2][tile_floats];
  for (size_t across = 0; across < 2; ++across) turn_tile(sums + (2 * across + half) * tile_floats, turned[across]);
  for (size_t row = 0; row < tile_rows; ++row)
    store_plain(plain, half * tile_rows + row,
                {_mm512_load_ps(turned[0] + row * row_floats), _mm512_load_ps(turned[1] + row * row_floats)});
}

void store_last(float *sums, float a, const std::byte *old, const Plain &plain, size_t slice) {
  if (slice >= row_slices) {
    if (plain.turned && slice % 2 == 1) store_turned(sums, plain, (slice - row_slices) / 2);
    return;
  }
  for (size_t pair = slice * slice_pairs; pair < (slice + 1) * slice_pairs; ++pair) {
    const RowPair rows = next_pair(sums, a, old, pair);
    if (plain.turned) {
      store_sums(sums, 2 * pair, rows.even);
      store_sums(sums, 2 * pair + 1, rows.odd);
    } else {
      store_plain(plain, 2 * pair, rows.even);
      store_plain(plain, 2 * pair + 1, rows.odd);
    }
  }
}

void fetch_to_write(std::byte *data, size_t lines) {
  for (size_t line = 0; line < lines; ++line) __builtin_prefetch(data + line * 64, 1, 3);
}

}  // namespace

const Kernel avx512_kernel = {"avx512_bf16", enter, multiply, leave};
const Passes avx512_passes = {load,       place_symmetric, place_polynomial, place_next,
                              store_last, turn,            fetch_to_write};

}  // namespace mxs::tiles
