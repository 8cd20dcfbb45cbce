// SPDX-License-Identifier: Apache-2.0
// A CPU level: what its files share. They are compiled once per level (see kernels/meson.build), and table.cpp fills
// the level's table with their functions.
//
// Every loop does for each element exactly the operations of reference/, in the same order; only how many elements are
// in flight differs. So the results are equal bit for bit: nothing is contracted (-ffp-contract=off), nothing
// reassociated. Selects stand where reference/ branches, because those become vector code.
//
// No inline function of another header may be used here, unless it is static: a copy compiled for this level could be
// the one that the linker keeps for everybody.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/kernels.hpp"

namespace mxs {

// Each level's own: MXS_LEVEL is x86_64_v3, ...
namespace MXS_LEVEL {
void copy_to_many(std::byte *const *targets, int count, const std::byte *source, size_t bytes);
void sum_in_order(float *target, const float *base, const void *const *sources, int count, mxs_dtype dtype,
                  size_t elements);
void add(float *target, const void *source, mxs_dtype dtype, size_t elements);
void narrow(void *target, mxs_dtype dtype, const float *source, size_t elements);
void widen(float *target, const void *source, mxs_dtype dtype, size_t elements);
double sum_of_squares(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite);
double momentum(const MomentumPass &pass, const MomentumRun &run);
double direction(const AdamwPass &pass, const AdamwRun &run);
void apply(const ApplyPass &pass, const ApplyRun &run);
void adamw(const AdamwPass &pass, const AdamwRun &run);
void scale_weights(const WeightForm &form, const WeightRun &run, float factor, size_t count);
void scale(float *values, float factor, size_t count);
void multiply(const Product &product);
}  // namespace MXS_LEVEL

namespace {

inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// ---- vectors: 16 elements, or 8 ------------------------------------------------------------------------------------

#if defined(__AVX512F__)

using Floats = __m512;   // arithmetic by operators
using Doubles = __m512d;
using Words = __m512i;
using Halves = __m256i;  // 16-bit numbers, as many as Floats
constexpr size_t lanes = 16;

inline Floats load_floats(const float *source) { return _mm512_loadu_ps(source); }
inline void store_floats(float *target, Floats value) { _mm512_storeu_ps(target, value); }
inline void stream_floats(float *target, Floats value) { _mm512_stream_ps(target, value); }
inline Halves load_halves(const uint16_t *source) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
}
inline void store_halves(uint16_t *target, Halves value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(target), value);
}
inline Floats splat(float value) { return _mm512_set1_ps(value); }
inline Words splat_word(uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
inline Floats root(Floats value) { return _mm512_sqrt_ps(value); }
inline Floats if_not_negative(Floats test, Floats then, Floats otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(test, _mm512_setzero_ps(), _CMP_GE_OQ), otherwise, then);
}
inline Words bits_of(Floats value) { return _mm512_castps_si512(value); }
inline Floats floats_of(Words bits) { return _mm512_castsi512_ps(bits); }
inline Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
inline Words upper_halves(Words bits) { return _mm512_srli_epi32(bits, 16); }
inline Words widen_halves(Halves value) { return _mm512_cvtepu16_epi32(value); }
inline Halves narrow_words(Words value) { return _mm512_cvtepi32_epi16(value); }
inline Words to_upper(Words bits) { return _mm512_slli_epi32(bits, 16); }
inline Words if_nan(Floats test, Words then, Words otherwise) {
  return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(test, test, _CMP_UNORD_Q), otherwise, then);
}
inline Words and_words(Words a, Words b) { return _mm512_and_si512(a, b); }
inline Words or_words(Words a, Words b) { return _mm512_or_si512(a, b); }
inline Words larger_words(Words a, Words b) { return _mm512_max_epi32(a, b); }
inline Words xor_words(Words a, Words b) { return _mm512_xor_si512(a, b); }
inline Words load_words(const uint32_t *source) { return _mm512_loadu_si512(source); }
// Of 64-bit lanes: products of their lower words, and shifts by a word.
inline Words multiply_lower(Words a, Words b) { return _mm512_mul_epu32(a, b); }
inline Words word_down(Words value) { return _mm512_srli_epi64(value, 32); }
// Lower words of both, a's first.
inline Words interleave_lower(Words a, Words b) {
  return _mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32));
}
inline Doubles lower_doubles(Floats value) { return _mm512_cvtps_pd(_mm512_castps512_ps256(value)); }
inline Doubles upper_doubles(Floats value) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1));
}
inline void store_doubles(double *target, Doubles value) { _mm512_storeu_pd(target, value); }
inline Doubles zero_doubles() { return _mm512_setzero_pd(); }
inline Floats widen_f16(Halves value) { return _mm512_cvtph_ps(value); }
// A NaN narrows to the one NaN that reference/ has, not to the processor's, which keeps part of the payload.
inline Halves narrow_f16(Floats value) {
  const __m256i half = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(half, _mm256_set1_epi16(static_cast<short>(0x8000))),
                                      _mm256_set1_epi16(0x7e00));
  return _mm256_mask_blend_epi16(_mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), half, nan);
}

#else

using Floats = __m256;
using Doubles = __m256d;
using Words = __m256i;
using Halves = __m128i;
constexpr size_t lanes = 8;

inline Floats load_floats(const float *source) { return _mm256_loadu_ps(source); }
inline void store_floats(float *target, Floats value) { _mm256_storeu_ps(target, value); }
inline void stream_floats(float *target, Floats value) { _mm256_stream_ps(target, value); }
inline Halves load_halves(const uint16_t *source) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(source)); }
inline void store_halves(uint16_t *target, Halves value) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(target), value);
}
inline Floats splat(float value) { return _mm256_set1_ps(value); }
inline Words splat_word(uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
inline Floats root(Floats value) { return _mm256_sqrt_ps(value); }
inline Floats if_not_negative(Floats test, Floats then, Floats otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(test, _mm256_setzero_ps(), _CMP_GE_OQ));
}
inline Words bits_of(Floats value) { return _mm256_castps_si256(value); }
inline Floats floats_of(Words bits) { return _mm256_castsi256_ps(bits); }
inline Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
inline Words upper_halves(Words bits) { return _mm256_srli_epi32(bits, 16); }
inline Words widen_halves(Halves value) { return _mm256_cvtepu16_epi32(value); }
// Of words below 2^16.
inline Halves narrow_words(Words value) {
  return _mm_packus_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
}
inline Words to_upper(Words bits) { return _mm256_slli_epi32(bits, 16); }
inline Words if_nan(Floats test, Words then, Words otherwise) {
  return _mm256_blendv_epi8(otherwise, then, _mm256_castps_si256(_mm256_cmp_ps(test, test, _CMP_UNORD_Q)));
}
inline Words and_words(Words a, Words b) { return _mm256_and_si256(a, b); }
inline Words or_words(Words a, Words b) { return _mm256_or_si256(a, b); }
inline Words larger_words(Words a, Words b) { return _mm256_max_epi32(a, b); }
inline Words xor_words(Words a, Words b) { return _mm256_xor_si256(a, b); }
inline Words load_words(const uint32_t *source) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
}
inline Words multiply_lower(Words a, Words b) { return _mm256_mul_epu32(a, b); }
inline Words word_down(Words value) { return _mm256_srli_epi64(value, 32); }
inline Words interleave_lower(Words a, Words b) { return _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa); }
inline Doubles lower_doubles(Floats value) { return _mm256_cvtps_pd(_mm256_castps256_ps128(value)); }
inline Doubles upper_doubles(Floats value) { return _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1)); }
inline void store_doubles(double *target, Doubles value) { _mm256_storeu_pd(target, value); }
inline Doubles zero_doubles() { return _mm256_setzero_pd(); }
inline Floats widen_f16(Halves value) { return _mm256_cvtph_ps(value); }
inline Halves narrow_f16(Floats value) {
  const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m128i nan = _mm_or_si128(_mm_and_si128(half, _mm_set1_epi16(static_cast<short>(0x8000))),
                                   _mm_set1_epi16(0x7e00));
  const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  return _mm_blendv_epi8(half, nan, is_nan);
}

#endif

constexpr size_t vector_bytes = lanes * sizeof(float);

inline Floats widen_bf16(Halves value) { return floats_of(to_upper(widen_halves(value))); }

// A NaN becomes a quiet one, and never infinity.
inline Words quiet_nan(Words bits) { return or_words(upper_halves(bits), splat_word(0x40)); }

// To nearest even.
inline Halves narrow_bf16(Floats value) {
  const Words bits = bits_of(value);
  const Words odd = and_words(upper_halves(bits), splat_word(1));
  const Words rounded = upper_halves(add_words(add_words(bits, splat_word(0x7fff)), odd));
  return narrow_words(if_nan(value, quiet_nan(bits), rounded));
}

// ---- loads and stores that may be of fewer -------------------------------------------------------------------------

template <bool whole>
inline Floats load_floats(const float *source, size_t count) {
  if constexpr (whole) return load_floats(source);
  float padded[lanes] = {};
  memcpy(padded, source, count * sizeof(float));
  return load_floats(padded);
}

template <bool whole>
inline void store_floats(float *target, Floats value, size_t count) {
  if constexpr (whole) return store_floats(target, value);
  float padded[lanes];
  store_floats(padded, value);
  memcpy(target, padded, count * sizeof(float));
}

template <bool whole>
inline Halves load_halves(const uint16_t *source, size_t count) {
  if constexpr (whole) return load_halves(source);
  uint16_t padded[lanes] = {};
  memcpy(padded, source, count * sizeof(uint16_t));
  return load_halves(padded);
}

template <bool whole>
inline void store_halves(uint16_t *target, Halves value, size_t count) {
  if constexpr (whole) return store_halves(target, value);
  uint16_t padded[lanes];
  store_halves(padded, value);
  memcpy(target, padded, count * sizeof(uint16_t));
}

// Arrays of one dtype, by vectors.
template <mxs_dtype dtype>
struct Array;

template <>
struct Array<MXS_F32> {
  using Type = float;
  template <bool whole>
  static Floats load(const float *source, size_t count = lanes) { return load_floats<whole>(source, count); }
  template <bool whole>
  static void store(float *target, Floats value, size_t count = lanes) { store_floats<whole>(target, value, count); }
};

template <>
struct Array<MXS_BF16> {
  using Type = uint16_t;
  template <bool whole>
  static Floats load(const uint16_t *source, size_t count = lanes) {
    return widen_bf16(load_halves<whole>(source, count));
  }
  template <bool whole>
  static void store(uint16_t *target, Floats value, size_t count = lanes) {
    store_halves<whole>(target, narrow_bf16(value), count);
  }
};

template <>
struct Array<MXS_F16> {
  using Type = uint16_t;
  template <bool whole>
  static Floats load(const uint16_t *source, size_t count = lanes) {
    return widen_f16(load_halves<whole>(source, count));
  }
  template <bool whole>
  static void store(uint16_t *target, Floats value, size_t count = lanes) {
    store_halves<whole>(target, narrow_f16(value), count);
  }
};

// May point past the end: a prefetch never faults.
inline void prefetch(const void *source, size_t ahead_bytes) {
  _mm_prefetch(reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(source) + ahead_bytes), _MM_HINT_T1);
}

}  // namespace

}  // namespace mxs
