// SPDX-License-Identifier: Apache-2.0
// The loops of a CPU level: this file is compiled once per level (see meson.build) and fills one table.
//
// Every loop does for each element exactly the operations of reference/, in the same order; only how many elements are
// in flight differs. So the results are equal bit for bit: nothing is contracted (-ffp-contract=off), nothing
// reassociated. Integer selects stand where reference/ branches, because those become vector code.
//
// No inline function of another header may be used here, unless it is static: a copy compiled for this level could be
// the one that the linker keeps for everybody.
#include <immintrin.h>
#include <string.h>

#include "kernels/kernels.hpp"
#include "kernels/reference/passes.hpp"

namespace mxs {

namespace {

// Passes work on blocks that stay in the first-level cache (4 KiB of fp32), where widening and rounding take place.
constexpr size_t block_elements = 1024;

// Below this many bytes written, targets stay in the cache for whoever reads them next.
constexpr size_t stream_bytes = size_t{1} << 20;

template <class To, class From>
inline To cast_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

struct F32 {
  using Type = float;
  static float load(float value) { return value; }
};

struct Bf16 {
  using Type = uint16_t;
  static float load(uint16_t bits) { return cast_bits<float>(static_cast<uint32_t>(bits) << 16); }
  static uint16_t store(float value) {
    const uint32_t bits = cast_bits<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

// ---- copy ----------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr size_t vector_bytes = 64;
inline void stream(std::byte *target, const std::byte *source) {
  _mm512_stream_si512(reinterpret_cast<__m512i *>(target), _mm512_loadu_si512(source));
}
#else
constexpr size_t vector_bytes = 32;
inline void stream(std::byte *target, const std::byte *source) {
  _mm256_stream_si256(reinterpret_cast<__m256i *>(target),
                      _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source)));
}
#endif

// The first byte from `offset` on that begins a cache line of target, as an offset.
inline size_t line_from(const std::byte *target, size_t offset, size_t bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(target) + offset;
  return smaller(offset + ((64 - (address & 63)) & 63), bytes);
}

// The processor's own prefetching stops at the end of each 4 KiB page, where a copy then waits for memory. mxs-perf
// gather --layout k:2 --pin, 2 ranks, milliseconds without and with: 64 MiB 2.93 and 2.55, 256 MiB 14.6 and 11.3; 4
// ranks on 2 cores, k:4, 256 MiB: 26.4 and 24.9. May point past the end: a prefetch never faults.
constexpr size_t ahead_bytes = 8192;
inline void prefetch(const std::byte *source, size_t offset) {
  _mm_prefetch(reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(source) + offset), _MM_HINT_T1);
}

// A piece of source comes into the first-level cache once and leaves from there for all targets. Each target's part
// of the piece is shifted to its own line borders, so that only its very first and last lines are written in part.
void copy_to_many(std::byte *const *targets, int count, const std::byte *source, size_t bytes) {
  if (bytes * static_cast<size_t>(count) < stream_bytes || bytes < 256) {
    for (int t = 0; t < count && bytes > 0; ++t) memcpy(targets[t], source, bytes);
    return;
  }
  constexpr size_t piece_bytes = 4096;
  for (size_t piece = 0; piece < bytes; piece += piece_bytes) {
    const size_t piece_end = smaller(piece + piece_bytes, bytes);
    for (int t = 0; t < count; ++t) {
      std::byte *const target = targets[t];
      size_t at = line_from(target, piece, bytes);
      if (piece == 0) memcpy(target, source, at);
      const size_t end = piece_end == bytes ? bytes : line_from(target, piece_end, bytes);
      if (t == 0)
        for (; at + vector_bytes <= end; at += vector_bytes) {
          prefetch(source, at + ahead_bytes);
          stream(target + at, source + at);
        }
      else
        for (; at + vector_bytes <= end; at += vector_bytes) stream(target + at, source + at);
      if (at < end) memcpy(target + at, source + at, end - at);
    }
  }
  _mm_sfence();
}

// ---- conversions ---------------------------------------------------------------------------------------------------

void narrow_bf16(uint16_t *__restrict target, const float *__restrict source, size_t elements) {
  for (size_t i = 0; i < elements; ++i) target[i] = Bf16::store(source[i]);
}

void widen_bf16(float *__restrict target, const uint16_t *__restrict source, size_t elements) {
  for (size_t i = 0; i < elements; ++i) target[i] = Bf16::load(source[i]);
}

// fp16 by the processor's own conversions, 16 elements or 8 at a time; a tail goes through a padded copy. A NaN narrows
// to the one NaN that reference/ has, not to the processor's, which keeps part of the payload.
#if defined(__AVX512F__)
constexpr size_t half_step = 16;
inline void widen_step(float *target, const uint16_t *source) {
  // The masked form with all lanes: gcc 12 warns of the plain one's undefined lanes.
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
  _mm512_storeu_ps(target, _mm512_maskz_cvtph_ps(0xffff, half));
}
inline void narrow_step(uint16_t *target, const float *source) {
  const __m512 value = _mm512_loadu_ps(source);
  const __m256i half = _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(half, _mm256_set1_epi16(static_cast<short>(0x8000))),
                                      _mm256_set1_epi16(0x7e00));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(target), _mm256_mask_blend_epi16(is_nan, half, nan));
}
#else
constexpr size_t half_step = 8;
inline void widen_step(float *target, const uint16_t *source) {
  _mm256_storeu_ps(target, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(source))));
}
inline void narrow_step(uint16_t *target, const float *source) {
  const __m256 value = _mm256_loadu_ps(source);
  const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m128i nan = _mm_or_si128(_mm_and_si128(half, _mm_set1_epi16(static_cast<short>(0x8000))),
                                   _mm_set1_epi16(0x7e00));
  const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(target), _mm_blendv_epi8(half, nan, is_nan));
}
#endif

void widen_f16(float *target, const uint16_t *source, size_t elements) {
  size_t i = 0;
  for (; i + half_step <= elements; i += half_step) widen_step(target + i, source + i);
  if (i == elements) return;
  uint16_t from[half_step] = {};
  float to[half_step];
  memcpy(from, source + i, (elements - i) * sizeof(uint16_t));
  widen_step(to, from);
  memcpy(target + i, to, (elements - i) * sizeof(float));
}

void narrow_f16(uint16_t *target, const float *source, size_t elements) {
  size_t i = 0;
  for (; i + half_step <= elements; i += half_step) narrow_step(target + i, source + i);
  if (i == elements) return;
  float from[half_step] = {};
  uint16_t to[half_step];
  memcpy(from, source + i, (elements - i) * sizeof(float));
  narrow_step(to, from);
  memcpy(target + i, to, (elements - i) * sizeof(uint16_t));
}

void narrow(void *target, mxs_dtype dtype, const float *source, size_t elements) {
  if (dtype == MXS_F32) {
    if (elements > 0) memcpy(target, source, elements * sizeof(float));
  } else if (dtype == MXS_BF16) {
    narrow_bf16(static_cast<uint16_t *>(target), source, elements);
  } else {
    narrow_f16(static_cast<uint16_t *>(target), source, elements);
  }
}

void widen(float *target, const void *source, mxs_dtype dtype, size_t elements) {
  if (dtype == MXS_F32) {
    if (elements > 0) memcpy(target, source, elements * sizeof(float));
  } else if (dtype == MXS_BF16) {
    widen_bf16(target, static_cast<const uint16_t *>(source), elements);
  } else {
    widen_f16(target, static_cast<const uint16_t *>(source), elements);
  }
}

// ---- sums ----------------------------------------------------------------------------------------------------------

// Where a sum begins. The base may be the target itself, and a loop that knows it has no overlap to fear.
enum class Begin { at_zero, at_target, at_base };

// Up to 8 sources in one go, with the running sum in a register.
template <class Format, Begin begin, int count>
void sum_group(float *__restrict target, const float *__restrict base, const void *const *sources, size_t elements) {
  const typename Format::Type *from[count];
  for (int s = 0; s < count; ++s) from[s] = static_cast<const typename Format::Type *>(sources[s]);
  for (size_t i = 0; i < elements; ++i) {
    float sum = begin == Begin::at_zero ? 0.0f : begin == Begin::at_target ? target[i] : base[i];
    for (int s = 0; s < count; ++s) sum += Format::load(from[s][i]);
    target[i] = sum;
  }
}

template <class Format, Begin begin>
void sum_up_to_8(float *target, const float *base, const void *const *sources, int count, size_t elements) {
  switch (count) {
    case 1: return sum_group<Format, begin, 1>(target, base, sources, elements);
    case 2: return sum_group<Format, begin, 2>(target, base, sources, elements);
    case 3: return sum_group<Format, begin, 3>(target, base, sources, elements);
    case 4: return sum_group<Format, begin, 4>(target, base, sources, elements);
    case 5: return sum_group<Format, begin, 5>(target, base, sources, elements);
    case 6: return sum_group<Format, begin, 6>(target, base, sources, elements);
    case 7: return sum_group<Format, begin, 7>(target, base, sources, elements);
    case 8: return sum_group<Format, begin, 8>(target, base, sources, elements);
    default: break;
  }
}

template <class Format>
void sum_from(float *target, const float *base, const void *const *sources, int count, size_t elements) {
  if (!base) return sum_up_to_8<Format, Begin::at_zero>(target, base, sources, count, elements);
  if (base == target) return sum_up_to_8<Format, Begin::at_target>(target, nullptr, sources, count, elements);
  return sum_up_to_8<Format, Begin::at_base>(target, base, sources, count, elements);
}

// More than 8 sources go in groups over one block of target, which stays in the first-level cache meanwhile.
template <class Format>
void sum_blocks(float *target, const float *base, const void *const *sources, int count, size_t elements) {
  if (count <= 8) return sum_from<Format>(target, base, sources, count, elements);
  for (size_t block = 0; block < elements; block += block_elements) {
    const size_t length = smaller(block_elements, elements - block);
    const float *running = base ? base + block : nullptr;
    for (int first = 0; first < count; first += 8) {
      const int group = count - first < 8 ? count - first : 8;
      const void *from[8];
      for (int s = 0; s < group; ++s) from[s] = static_cast<const typename Format::Type *>(sources[first + s]) + block;
      sum_from<Format>(target + block, running, from, group, length);
      running = target + block;
    }
  }
}

// fp16 is widened first, a block of up to 8 sources at a time: 16 KiB.
void sum_f16(float *target, const float *base, const void *const *sources, int count, size_t elements) {
  constexpr size_t length_max = 512;
  float wide[8][length_max];
  for (size_t block = 0; block < elements; block += length_max) {
    const size_t length = smaller(length_max, elements - block);
    const float *running = base ? base + block : nullptr;
    for (int first = 0; first < count; first += 8) {
      const int group = count - first < 8 ? count - first : 8;
      const void *from[8];
      for (int s = 0; s < group; ++s) {
        widen_f16(wide[s], static_cast<const uint16_t *>(sources[first + s]) + block, length);
        from[s] = wide[s];
      }
      sum_from<F32>(target + block, running, from, group, length);
      running = target + block;
    }
  }
}

void sum_in_order(float *target, const float *base, const void *const *sources, int count, mxs_dtype dtype,
                  size_t elements) {
  if (count == 0) {
    for (size_t i = 0; i < elements; ++i) target[i] = base ? base[i] : 0.0f;
    return;
  }
  if (dtype == MXS_F32)
    sum_blocks<F32>(target, base, sources, count, elements);
  else if (dtype == MXS_BF16)
    sum_blocks<Bf16>(target, base, sources, count, elements);
  else
    sum_f16(target, base, sources, count, elements);
}

void add(float *target, const void *source, mxs_dtype dtype, size_t elements) {
  sum_in_order(target, target, &source, 1, dtype, elements);
}

// ---- products ------------------------------------------------------------------------------------------------------

typedef float Vector __attribute__((vector_size(vector_bytes)));
constexpr size_t vector_floats = vector_bytes / sizeof(float);
constexpr size_t tile_columns = 2 * vector_floats;
constexpr size_t tile_rows = vector_bytes == 64 ? 8 : 4;  // 16 of 32, or 8 of 16, registers hold sums

// Columns [column, column + tile_columns) of a block of right, row after row, padded with zeros.
void pack(float *__restrict packed, const Product &p, size_t first, size_t length, size_t column, size_t width) {
  for (size_t k = 0; k < length; ++k)
    for (size_t j = 0; j < tile_columns; ++j) {
      const size_t at = p.right_turned ? (column + j) * p.right_stride + first + k
                                       : (first + k) * p.right_stride + column + j;
      packed[k * tile_columns + j] = j < width ? p.right[at] : 0.0f;
    }
}

// The sums of one tile over one block, each in order.
void tile_sums(float (&sums)[tile_rows][tile_columns], const float *const (&rows)[tile_rows], const float *packed,
               size_t length) {
  Vector low[tile_rows] = {}, high[tile_rows] = {};
  for (size_t k = 0; k < length; ++k) {
    Vector right_low, right_high;
    memcpy(&right_low, packed + k * tile_columns, vector_bytes);
    memcpy(&right_high, packed + k * tile_columns + vector_floats, vector_bytes);
    for (size_t r = 0; r < tile_rows; ++r) {
      low[r] += right_low * rows[r][k];
      high[r] += right_high * rows[r][k];
    }
  }
  for (size_t r = 0; r < tile_rows; ++r) {
    memcpy(&sums[r][0], &low[r], vector_bytes);
    memcpy(&sums[r][vector_floats], &high[r], vector_bytes);
  }
}

void multiply(const Product &p) {
  alignas(64) float packed[product_block * tile_columns];
  alignas(64) float sums[tile_rows][tile_columns];
  for (size_t first = 0; first < p.inner; first += product_block) {
    const size_t length = smaller(product_block, p.inner - first);
    for (size_t column = 0; column < p.columns; column += tile_columns) {
      const size_t width = smaller(tile_columns, p.columns - column);
      pack(packed, p, first, length, column, width);
      for (size_t row = p.lower ? column - column % tile_rows : 0; row < p.rows; row += tile_rows) {
        const size_t height = smaller(tile_rows, p.rows - row);
        const float *rows[tile_rows];  // past the end the last row again, whose sums are dropped
        for (size_t r = 0; r < tile_rows; ++r)
          rows[r] = p.left + (row + smaller(r, height - 1)) * p.left_stride + first;
        tile_sums(sums, rows, packed, length);
        for (size_t r = 0; r < height; ++r) {
          float *const target = p.target + (row + r) * p.target_stride + column;
          for (size_t j = 0; j < width; ++j) target[j] = first == 0 ? sums[r][j] : target[j] + sums[r][j];
        }
      }
    }
  }
}

}  // namespace

extern const Kernels MXS_LEVEL_TABLE;
const Kernels MXS_LEVEL_TABLE = {
    MXS_LEVEL_NAME,           copy_to_many,     sum_in_order,        add,
    narrow,                   widen,            reference::sum_of_squares,
    reference::momentum,      reference::direction, reference::apply, reference::adamw,
    reference::scale_weights, reference::scale, multiply,
};

}  // namespace mxs
