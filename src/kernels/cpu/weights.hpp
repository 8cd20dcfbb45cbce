// SPDX-License-Identifier: Apache-2.0
// Weights of a CPU level's passes: vectors of fp32 out of, and into, every form of weights.
#pragma once

#include "kernels/cpu/level.hpp"
#include "kernels/philox.hpp"

namespace mxs {
namespace {

// The processor's own prefetching stops at the end of each 4 KiB page. 2, 4, 8 and 16 KiB: 18.8, 17.3, 18.2 and 18.0
// GB/s a CPU second of apply to bf16 beside a master, 64 MiB of updates, one thread.
constexpr size_t ahead_bytes = 2048;

template <WeightKind kind>
class Weights {
 public:
  static constexpr bool is_f32 = kind == WeightKind::f32 || kind == WeightKind::f32_copied;
  static constexpr bool has_master =
      kind == WeightKind::f32_copied || kind == WeightKind::bf16_master || kind == WeightKind::f16_master;

  Weights(const WeightForm &, const WeightRun &run)
      : weights_(static_cast<uint16_t *>(run.weights)), wide_(static_cast<float *>(run.weights)),
        remainder_(static_cast<uint16_t *>(run.master)), master_(static_cast<float *>(run.master)) {}

  // Before elements [first, first + length) are stored.
  void prepare(size_t, size_t) {}

  template <bool whole>
  Floats load(size_t at, size_t count) const {
    if constexpr (kind == WeightKind::f32) return load_floats<whole>(wide_ + at, count);
    if constexpr (has_master) return load_floats<whole>(master_ + at, count);
    if constexpr (kind == WeightKind::bf16_nearest) return Array<MXS_BF16>::load<whole>(weights_ + at, count);
    if constexpr (kind == WeightKind::f16_nearest) return Array<MXS_F16>::load<whole>(weights_ + at, count);
    const Words high = widen_halves(load_halves<whole>(weights_ + at, count));
    return floats_of(or_words(to_upper(high), widen_halves(load_halves<whole>(remainder_ + at, count))));
  }

  template <bool whole>
  void store(size_t at, Floats value, size_t count) const {
    if constexpr (has_master) store_floats<whole>(master_ + at, value, count);
    if constexpr (is_f32) return store_floats<whole>(wide_ + at, value, count);
    if constexpr (kind == WeightKind::bf16_remainder) {
      store_halves<whole>(weights_ + at, narrow_words(upper_halves(bits_of(value))), count);
      const Words low = and_words(bits_of(value), splat_word(0xffff));
      return store_halves<whole>(remainder_ + at, narrow_words(low), count);
    }
    constexpr bool bf16 = kind == WeightKind::bf16_master || kind == WeightKind::bf16_nearest;
    store_halves<whole>(weights_ + at, bf16 ? narrow_bf16(value) : narrow_f16(value), count);
  }

  // Lines of the 32 elements from `at` on, ahead_bytes later.
  void prefetch_group(size_t at) const {
    if constexpr (kind == WeightKind::f32 || has_master) {
      const float *const read = (kind == WeightKind::f32 ? wide_ : master_) + at;
      prefetch(read, ahead_bytes);
      prefetch(read + 16, ahead_bytes);
    }
    if constexpr (kind != WeightKind::f32) prefetch(weights_ + at, ahead_bytes / 2);
    if constexpr (kind == WeightKind::bf16_remainder) prefetch(remainder_ + at, ahead_bytes / 2);
  }

 private:
  uint16_t *weights_;
  float *wide_;
  uint16_t *remainder_;
  float *master_;
};

// Philox of several counters at once, one in the lower word of each 64-bit lane: a product needs both its words there,
// and upper words may be anything.
struct PhiloxLanes {
  Words words[4];
  void mix(const RandomBits &random) {
    uint32_t key0 = random.key[0], key1 = random.key[1];
    for (int round = 0; round < philox_rounds; ++round) {
      const Words product0 = multiply_lower(words[0], splat_word(philox_multiplier[0]));
      const Words product1 = multiply_lower(words[2], splat_word(philox_multiplier[1]));
      words[0] = xor_words(xor_words(word_down(product1), words[1]), splat_word(key0));
      words[1] = product1;
      words[2] = xor_words(xor_words(word_down(product0), words[3]), splat_word(key1));
      words[3] = product0;
      key0 += philox_key_step[0];
      key1 += philox_key_step[1];
    }
  }
};

// Sets of 128 elements, 16 blocks; see RandomBits.
constexpr size_t set_elements = 128;

inline void fill_random(uint16_t *target, const RandomBits &random, uint64_t set) {
  constexpr size_t blocks = 16;
  alignas(64) static constexpr uint32_t counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint64_t number = set * blocks;
  for (size_t block = 0; block < blocks; block += lanes) {
    // Even blocks where they are, odd ones a word down.
    PhiloxLanes even, odd;
    even.words[0] = add_words(splat_word(static_cast<uint32_t>(number)), load_words(counts + block));
    odd.words[0] = word_down(even.words[0]);
    even.words[1] = odd.words[1] = splat_word(static_cast<uint32_t>(number >> 32));
    even.words[2] = odd.words[2] = splat_word(random.counter[0]);
    even.words[3] = odd.words[3] = splat_word(random.counter[1]);
    even.mix(random);
    odd.mix(random);
    for (size_t word = 0; word < 4; ++word) {
      const Words both = interleave_lower(even.words[word], odd.words[word]);
      store_halves(target + word * blocks + block, narrow_words(and_words(both, splat_word(0xffff))));
      store_halves(target + (4 + word) * blocks + block, narrow_words(upper_halves(both)));
    }
  }
}

// Passes go by so many elements, for which random bits are made at once.
constexpr size_t block_elements = 1024;

template <>
class Weights<WeightKind::bf16_stochastic> {
 public:
  Weights(const WeightForm &form, const WeightRun &run)
      : weights_(static_cast<uint16_t *>(run.weights)), first_element_(run.first_element), bits_(form.random) {}

  void prepare(size_t first, size_t length) {
    const uint64_t element = first_element_ + first;
    const uint64_t first_set = element / set_elements, last_set = (element + length - 1) / set_elements;
    for (uint64_t set = first_set; set <= last_set; ++set)
      fill_random(random_ + (set - first_set) * set_elements, bits_, set);
    // random_ + offset_ is of the element 0 of the run, which may lie before the array: an integer, not a pointer.
    offset_ = static_cast<ptrdiff_t>(element % set_elements) - static_cast<ptrdiff_t>(first);
  }

  template <bool whole>
  Floats load(size_t at, size_t count) const {
    return Array<MXS_BF16>::load<whole>(weights_ + at, count);
  }

  template <bool whole>
  void store(size_t at, Floats value, size_t count) const {
    const uint16_t *const random = random_ + (offset_ + static_cast<ptrdiff_t>(at));
    const Words bits = bits_of(value);
    const Words sum = upper_halves(add_words(bits, widen_halves(load_halves<whole>(random, count))));
    store_halves<whole>(weights_ + at, narrow_words(if_nan(value, quiet_nan(bits), sum)), count);
  }

  void prefetch_group(size_t at) const { prefetch(weights_ + at, ahead_bytes / 2); }

 private:
  uint16_t *weights_;
  uint64_t first_element_;
  RandomBits bits_;
  ptrdiff_t offset_ = 0;
  alignas(64) uint16_t random_[block_elements + 2 * set_elements];
};

// body(weights) with the Weights of the form.
template <class Body>
inline void with_weights(const WeightForm &form, const WeightRun &run, Body &&body) {
  switch (form.kind) {
    case WeightKind::f32: return body(Weights<WeightKind::f32>(form, run));
    case WeightKind::f32_copied: return body(Weights<WeightKind::f32_copied>(form, run));
    case WeightKind::bf16_master: return body(Weights<WeightKind::bf16_master>(form, run));
    case WeightKind::f16_master: return body(Weights<WeightKind::f16_master>(form, run));
    case WeightKind::bf16_remainder: return body(Weights<WeightKind::bf16_remainder>(form, run));
    case WeightKind::bf16_nearest: return body(Weights<WeightKind::bf16_nearest>(form, run));
    case WeightKind::f16_nearest: return body(Weights<WeightKind::f16_nearest>(form, run));
    case WeightKind::bf16_stochastic: return body(Weights<WeightKind::bf16_stochastic>(form, run));
  }
}

}  // namespace
}  // namespace mxs
