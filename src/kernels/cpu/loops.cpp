// SPDX-License-Identifier: Apache-2.0
// Bytes and sums of a CPU level, for collectives.
#include "kernels/cpu/level.hpp"

namespace mxs {

namespace {

// More than 8 sources are added on blocks of the target that stay in the first-level cache.
constexpr size_t block_elements = 1024;

// Below this many bytes written, targets stay in the cache for whoever reads them next.
constexpr size_t stream_bytes = size_t{1} << 20;

template <class To, class From>
inline To cast_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

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
inline void stream(std::byte *target, const std::byte *source) {
  _mm512_stream_si512(reinterpret_cast<__m512i *>(target), _mm512_loadu_si512(source));
}
#else
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

// A piece of source comes into the first-level cache once and leaves from there for all targets. Each target's part
// of the piece is shifted to its own line borders, so that only its very first and last lines are written in part.
// ---- conversions ---------------------------------------------------------------------------------------------------

template <mxs_dtype dtype>
void narrow_to(typename Array<dtype>::Type *target, const float *source, size_t elements) {
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) Array<dtype>::template store<true>(target + i, load_floats(source + i));
  if (i < elements)
    Array<dtype>::template store<false>(target + i, load_floats<false>(source + i, elements - i), elements - i);
}

template <mxs_dtype dtype>
void widen_from(float *target, const typename Array<dtype>::Type *source, size_t elements) {
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) store_floats(target + i, Array<dtype>::template load<true>(source + i));
  if (i < elements)
    store_floats<false>(target + i, Array<dtype>::template load<false>(source + i, elements - i), elements - i);
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
        widen_from<MXS_F16>(wide[s], static_cast<const uint16_t *>(sources[first + s]) + block, length);
        from[s] = wide[s];
      }
      sum_from<F32>(target + block, running, from, group, length);
      running = target + block;
    }
  }
}

}  // namespace

namespace MXS_LEVEL {

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
          prefetch(source + at, ahead_bytes);
          stream(target + at, source + at);
        }
      else
        for (; at + vector_bytes <= end; at += vector_bytes) stream(target + at, source + at);
      if (at < end) memcpy(target + at, source + at, end - at);
    }
  }
  _mm_sfence();
}

void narrow(void *target, mxs_dtype dtype, const float *source, size_t elements) {
  if (dtype == MXS_F32) {
    if (elements > 0) memcpy(target, source, elements * sizeof(float));
  } else if (dtype == MXS_BF16) {
    narrow_to<MXS_BF16>(static_cast<uint16_t *>(target), source, elements);
  } else {
    narrow_to<MXS_F16>(static_cast<uint16_t *>(target), source, elements);
  }
}

void widen(float *target, const void *source, mxs_dtype dtype, size_t elements) {
  if (dtype == MXS_F32) {
    if (elements > 0) memcpy(target, source, elements * sizeof(float));
  } else if (dtype == MXS_BF16) {
    widen_from<MXS_BF16>(target, static_cast<const uint16_t *>(source), elements);
  } else {
    widen_from<MXS_F16>(target, static_cast<const uint16_t *>(source), elements);
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

}  // namespace MXS_LEVEL

}  // namespace mxs
