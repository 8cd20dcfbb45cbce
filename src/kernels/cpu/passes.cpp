// SPDX-License-Identifier: Apache-2.0
// The element passes of optimizers, for a CPU level: see passes.hpp.
//
// All go by groups of 32 elements, as many as a sum of squares has lanes, and prefetch one group of each array a page
// ahead. What is left at the end is a group in padded vectors. L2 decay makes its gradient first, a chunk at a time in
// the first-level cache, so that no pass has weights to read for it.
#include "kernels/cpu/level.hpp"
#include "kernels/cpu/weights.hpp"

namespace mxs {

namespace {

constexpr size_t group_elements = norm_lanes;

template <bool is_whole>
struct Whole {
  static constexpr bool value = is_whole;
};

// body(Whole, first, count): groups of count elements from `first` on, relative to `begin`.
template <class Body>
inline void over_groups(size_t begin, size_t end, Body &&body) {
  size_t at = begin;
  for (; at + group_elements <= end; at += group_elements) body(Whole<true>(), at, group_elements);
  if (at < end) body(Whole<false>(), at, end - at);
}

// body(at, count): the vectors of one group; index counts them.
template <class Body>
inline void over_vectors(size_t count, Body &&body) {
#pragma GCC unroll 4
  for (size_t index = 0; index < group_elements / lanes; ++index) {
    if (index * lanes >= count) return;
    body(index, smaller(lanes, count - index * lanes));
  }
}

inline Floats lerp(Floats start, Floats end, Floats weight, bool from_end) {
  const Floats difference = end - start;
  return from_end ? end - difference * weight : start + difference * weight;
}

// The sum of squares of one chunk.
class Squares {
 public:
  Squares() {
    for (Doubles &sum : sums_) sum = zero_doubles();
  }
  // The vector `index` of a group; values past `count` don't count.
  template <bool whole>
  void add(size_t index, Floats value, size_t count) {
    if constexpr (!whole) {
      float padded[lanes];
      store_floats(padded, value);
      value = load_floats<false>(padded, count);
    }
    const Doubles lower = lower_doubles(value), upper = upper_doubles(value);
    sums_[2 * index] += lower * lower;
    sums_[2 * index + 1] += upper * upper;
  }
  double total() const {
    double values[norm_lanes];
    for (size_t i = 0; i < sum_count; ++i) store_doubles(values + i * (lanes / 2), sums_[i]);
    for (size_t half = norm_lanes / 2; half > 0; half /= 2)
      for (size_t lane = 0; lane < half; ++lane) values[lane] += values[lane + half];
    return values[0];
  }

 private:
  static constexpr size_t sum_count = 2 * group_elements / lanes;
  Doubles sums_[sum_count];
};

// body(first, end, squares) for each chunk.
template <class Body>
inline double over_chunks(size_t count, Body &&body) {
  double sum = 0.0;
  for (size_t first = 0; first < count; first += norm_chunk) {
    Squares squares;
    body(first, smaller(first + norm_chunk, count), squares);
    sum += squares.total();
  }
  return sum;
}

template <mxs_dtype dtype>
inline const typename Array<dtype>::Type *array_of(const void *source) {
  return static_cast<const typename Array<dtype>::Type *>(source);
}

template <mxs_dtype dtype>
inline void prefetch_group(const typename Array<dtype>::Type *source) {
  constexpr size_t line_elements = 64 / sizeof *source;
  for (size_t at = 0; at < group_elements; at += line_elements) prefetch(source + at, ahead_bytes);
}

// ---- norm ----------------------------------------------------------------------------------------------------------

template <mxs_dtype dtype>
double sum_of(const void *gradient, float scale, size_t count, bool *not_finite) {
  const auto *const from = array_of<dtype>(gradient);
  const Floats factor = splat(scale);
  Words largest = splat_word(0);  // magnitude, as bits: infinity and NaN are above every number
  const double sum = over_chunks(count, [&](size_t first, size_t end, Squares &squares) {
    over_groups(first, end, [&](auto whole, size_t at, size_t group) {
      prefetch_group<dtype>(from + at);
      over_vectors(group, [&](size_t index, size_t length) {
        const Floats scaled =
            Array<dtype>::template load<whole.value>(from + at + index * lanes, length) * factor;
        largest = larger_words(largest, and_words(bits_of(scaled), splat_word(0x7fffffff)));
        squares.add<whole.value>(index, scaled, length);
      });
    });
  });
  float magnitudes[lanes];
  store_floats(magnitudes, floats_of(largest));
  for (size_t lane = 0; lane < lanes; ++lane)
    if (!(magnitudes[lane] <= __FLT_MAX__)) *not_finite = true;
  return sum;
}

// ---- L2 decay ------------------------------------------------------------------------------------------------------

template <mxs_dtype dtype, class Form>
void decayed_gradient(float *target, const typename Array<dtype>::Type *from, float scale, float l2, Form &weights,
                      size_t first, size_t count) {
  const Floats factor = splat(scale), decay = splat(l2);
  over_groups(0, count, [&](auto whole, size_t at, size_t group) {
    over_vectors(group, [&](size_t index, size_t length) {
      const size_t here = at + index * lanes;
      const Floats scaled = Array<dtype>::template load<whole.value>(from + here, length) * factor;
      const Floats weight = weights.template load<whole.value>(first + here, length);
      store_floats<whole.value>(target + here, scaled + weight * decay, length);
    });
  });
}

// plain(gradient, first, count) for each chunk, with its gradient in fp32, scaled and decayed.
template <mxs_dtype dtype, class Plain>
void over_decayed(const void *gradient, float scale, float l2, const WeightForm &form, const WeightRun &run,
                  size_t count, Plain &&plain) {
  alignas(64) float chunk[norm_chunk];
  with_weights(form, run, [&](auto weights) {
    for (size_t first = 0; first < count; first += norm_chunk) {
      const size_t length = smaller(norm_chunk, count - first);
      decayed_gradient<dtype>(chunk, array_of<dtype>(gradient) + first, scale, l2, weights, first, length);
      plain(chunk, first, length);
    }
  });
}

// The run's weights are at `first` already where they are looked at.
AdamwRun adamw_run_from(const AdamwRun &run, const WeightForm &form, const float *gradient, size_t first,
                        size_t count) {
  AdamwRun part = run;
  part.gradient = gradient;
  if (run.exp_avg) part.exp_avg = run.exp_avg + first;
  part.exp_avg_sq = run.exp_avg_sq + first;
  part.weights = later(form, run.weights, first);
  part.count = count;
  if (run.update) part.update = run.update + first;
  if (run.filtered) part.filtered = run.filtered + first;
  return part;
}

// ---- momentum ------------------------------------------------------------------------------------------------------

struct MomentumVectors {
  Floats scale, momentum_weight, nesterov_weight, momentum;
  explicit MomentumVectors(const MomentumPass &pass)
      : scale(splat(pass.gradient_scale)), momentum_weight(splat(pass.momentum_lerp.weight)),
        nesterov_weight(splat(pass.nesterov_lerp.weight)), momentum(splat(pass.momentum)) {}
};

template <mxs_dtype dtype, bool sgd, bool nesterov, bool streamed>
double momentum_of(const MomentumPass &pass, const MomentumRun &run) {
  const auto *const gradients = array_of<dtype>(run.gradient);
  float *const momenta = run.momentum, *const updates = run.update;
  const MomentumVectors scalars(pass);
  const bool momentum_from_end = pass.momentum_lerp.from_end, nesterov_from_end = pass.nesterov_lerp.from_end;
  const double sum = over_chunks(run.count, [&](size_t first, size_t end, Squares &squares) {
    over_groups(first, end, [&](auto whole, size_t at, size_t group) {
      prefetch_group<dtype>(gradients + at);
      prefetch_group<MXS_F32>(momenta + at);
      if constexpr (!streamed) prefetch_group<MXS_F32>(updates + at);
      over_vectors(group, [&](size_t index, size_t length) {
        const size_t here = at + index * lanes;
        const Floats gradient =
            Array<dtype>::template load<whole.value>(gradients + here, length) * scalars.scale;
        const Floats old = load_floats<whole.value>(momenta + here, length);
        Floats momentum, update;
        if constexpr (sgd) {
          momentum = old * scalars.momentum + gradient;
          update = nesterov ? momentum * scalars.momentum + gradient : momentum;
        } else {
          momentum = lerp(old, gradient, scalars.momentum_weight, momentum_from_end);
          update = nesterov ? lerp(gradient, momentum, scalars.nesterov_weight, nesterov_from_end) : momentum;
        }
        store_floats<whole.value>(momenta + here, momentum, length);
        if constexpr (streamed && whole.value)
          stream_floats(updates + here, update);
        else
          store_floats<whole.value>(updates + here, update, length);
        squares.add<whole.value>(index, update, length);
      });
    });
  });
  if constexpr (streamed) _mm_sfence();
  return sum;
}

inline bool at_line(const void *array) { return reinterpret_cast<uintptr_t>(array) % 64 == 0; }

template <mxs_dtype dtype>
double momentum_with(const MomentumPass &pass, const MomentumRun &run) {
  const bool streamed = pass.streams && at_line(run.update);
  if (pass.sgd && pass.nesterov)
    return streamed ? momentum_of<dtype, true, true, true>(pass, run)
                    : momentum_of<dtype, true, true, false>(pass, run);
  if (pass.sgd)
    return streamed ? momentum_of<dtype, true, false, true>(pass, run)
                    : momentum_of<dtype, true, false, false>(pass, run);
  if (pass.nesterov)
    return streamed ? momentum_of<dtype, false, true, true>(pass, run)
                    : momentum_of<dtype, false, true, false>(pass, run);
  return streamed ? momentum_of<dtype, false, false, true>(pass, run)
                  : momentum_of<dtype, false, false, false>(pass, run);
}

template <mxs_dtype dtype>
double momentum_decayed(const MomentumPass &pass, const MomentumRun &run) {
  MomentumPass plain = pass;
  plain.gradient_dtype = MXS_F32;
  plain.gradient_scale = 1.0f;
  plain.l2 = 0.0f;
  double sum = 0.0;
  over_decayed<dtype>(run.gradient, pass.gradient_scale, pass.l2, pass.form, run.weights, run.count,
                      [&](const float *gradient, size_t first, size_t count) {
                        sum += momentum_with<MXS_F32>(
                            plain, {gradient, run.momentum + first, run.update + first, {}, count});
                      });
  return sum;
}

// ---- AdamW ---------------------------------------------------------------------------------------------------------

struct AdamwVectors {
  Floats scale, first_weight, beta2, second_weight, root2, epsilon, factor;
  bool from_end;
  explicit AdamwVectors(const AdamwPass &pass)
      : scale(splat(pass.gradient_scale)), first_weight(splat(pass.first_lerp.weight)), beta2(splat(pass.beta2)),
        second_weight(splat(pass.second_weight)), root2(splat(pass.correction2_root)), epsilon(splat(pass.epsilon)),
        factor(splat(pass.direction_factor)), from_end(pass.first_lerp.from_end) {}

  template <bool whole>
  Floats new_second(float *seconds, Floats gradient, size_t length) const {
    const Floats second = load_floats<whole>(seconds, length) * beta2 + gradient * second_weight * gradient;
    store_floats<whole>(seconds, second, length);
    return second;
  }
  template <bool whole>
  Floats new_first(float *firsts, Floats gradient, size_t length) const {
    const Floats first = lerp(load_floats<whole>(firsts, length), gradient, first_weight, from_end);
    store_floats<whole>(firsts, first, length);
    return first;
  }
  Floats direction(Floats first, Floats second) const { return first * factor / (root(second) / root2 + epsilon); }
};

// (weight * before + change) * after, of which one is the decay and one is 1; where update * weight is negative or not
// a number, both are what `cautious` makes of them.
struct ApplyVectors {
  Floats factor, before, after, before_against, after_against;
  explicit ApplyVectors(const ApplyPass &pass)
      : factor(splat(pass.update_factor)), before(splat(pass.decay_last ? 1.0f : pass.decay)),
        after(splat(pass.decay_last ? pass.decay : 1.0f)), before_against(pass.cautious ? splat(1.0f) : before),
        after_against(pass.cautious ? splat(1.0f) : after) {}

  Floats new_weight(Floats weight, Floats update) const {
    const Floats product = update * weight;
    return (weight * if_not_negative(product, before, before_against) + update * factor) *
           if_not_negative(product, after, after_against);
  }
};

template <mxs_dtype dtype, class Form>
void adamw_of(const AdamwPass &pass, const AdamwRun &run, Form &weights) {
  const auto *const gradients = array_of<dtype>(run.gradient);
  float *const firsts = run.exp_avg, *const seconds = run.exp_avg_sq;
  const AdamwVectors scalars(pass);
  const ApplyVectors application(pass.apply);
  for (size_t block = 0; block < run.count; block += block_elements) {
    const size_t end = smaller(block + block_elements, run.count);
    weights.prepare(block, end - block);
    over_groups(block, end, [&](auto whole, size_t at, size_t group) {
      prefetch_group<dtype>(gradients + at);
      prefetch_group<MXS_F32>(firsts + at);
      prefetch_group<MXS_F32>(seconds + at);
      weights.prefetch_group(at);
      over_vectors(group, [&](size_t index, size_t length) {
        const size_t here = at + index * lanes;
        const Floats gradient = Array<dtype>::template load<whole.value>(gradients + here, length) * scalars.scale;
        const Floats second = scalars.new_second<whole.value>(seconds + here, gradient, length);
        const Floats first = scalars.new_first<whole.value>(firsts + here, gradient, length);
        const Floats weight = weights.template load<whole.value>(here, length);
        weights.template store<whole.value>(
            here, application.new_weight(weight, scalars.direction(first, second)), length);
      });
    });
  }
}

template <mxs_dtype dtype>
void adamw_with(const AdamwPass &pass, const AdamwRun &run) {
  with_weights(pass.apply.form, run.weights, [&](auto weights) { adamw_of<dtype>(pass, run, weights); });
}

template <mxs_dtype dtype, bool filtered>
double direction_of(const AdamwPass &pass, const AdamwRun &run) {
  const auto *const gradients = array_of<dtype>(run.gradient);
  float *const firsts = run.exp_avg, *const seconds = run.exp_avg_sq, *const updates = run.update;
  const AdamwVectors scalars(pass);
  return over_chunks(run.count, [&](size_t begin, size_t end, Squares &squares) {
    over_groups(begin, end, [&](auto whole, size_t at, size_t group) {
      prefetch_group<dtype>(gradients + at);
      prefetch_group<MXS_F32>(seconds + at);
      prefetch_group<MXS_F32>(filtered ? run.filtered + at : firsts + at);
      prefetch_group<MXS_F32>(updates + at);
      over_vectors(group, [&](size_t index, size_t length) {
        const size_t here = at + index * lanes;
        const Floats gradient = Array<dtype>::template load<whole.value>(gradients + here, length) * scalars.scale;
        const Floats second = scalars.new_second<whole.value>(seconds + here, gradient, length);
        Floats first;
        if constexpr (filtered)
          first = load_floats<whole.value>(run.filtered + here, length);
        else
          first = scalars.new_first<whole.value>(firsts + here, gradient, length);
        const Floats update = scalars.direction(first, second);
        store_floats<whole.value>(updates + here, update, length);
        squares.add<whole.value>(index, update, length);
      });
    });
  });
}

template <mxs_dtype dtype>
double direction_with(const AdamwPass &pass, const AdamwRun &run) {
  return run.filtered ? direction_of<dtype, true>(pass, run) : direction_of<dtype, false>(pass, run);
}

// plain(pass, run) with the decay in the gradient, chunk after chunk.
template <mxs_dtype dtype, class Plain>
void over_decayed_adamw(const AdamwPass &pass, const AdamwRun &run, Plain &&plain) {
  AdamwPass without = pass;
  without.gradient_dtype = MXS_F32;
  without.gradient_scale = 1.0f;
  without.l2 = 0.0f;
  over_decayed<dtype>(run.gradient, pass.gradient_scale, pass.l2, pass.apply.form, run.weights, run.count,
                      [&](const float *gradient, size_t first, size_t count) {
                        plain(without, adamw_run_from(run, pass.apply.form, gradient, first, count));
                      });
}

// ---- apply ---------------------------------------------------------------------------------------------------------

// new_value(weight, at, length) for every vector of weights.
template <class Form, class NewValue>
inline void over_weights(Form &weights, size_t count, NewValue &&new_value) {
  for (size_t block = 0; block < count; block += block_elements) {
    const size_t end = smaller(block + block_elements, count);
    weights.prepare(block, end - block);
    over_groups(block, end, [&](auto whole, size_t at, size_t group) {
      weights.prefetch_group(at);
      over_vectors(group, [&](size_t index, size_t length) {
        const size_t here = at + index * lanes;
        const Floats weight = weights.template load<whole.value>(here, length);
        weights.template store<whole.value>(here, new_value(whole, weight, here, length), length);
      });
    });
  }
}

template <class Form>
void apply_of(const ApplyPass &pass, const ApplyRun &run, Form &weights) {
  const ApplyVectors application(pass);
  const Floats row_factor = splat(run.row_factor);
  const float *const updates = run.update;
  over_weights(weights, run.count, [&](auto whole, Floats weight, size_t here, size_t length) {
    prefetch(updates + here, ahead_bytes);
    return application.new_weight(weight, load_floats<whole.value>(updates + here, length) * row_factor);
  });
}

// with(dtype constant) of the gradient.
template <mxs_dtype of>
struct Dtype {
  static constexpr mxs_dtype value = of;
};

template <class With>
inline auto with_dtype(mxs_dtype dtype, With &&with) {
  if (dtype == MXS_BF16) return with(Dtype<MXS_BF16>());
  if (dtype == MXS_F16) return with(Dtype<MXS_F16>());
  return with(Dtype<MXS_F32>());
}

}  // namespace

namespace MXS_LEVEL {

double sum_of_squares(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite) {
  return with_dtype(dtype, [&](auto type) { return sum_of<type.value>(gradient, scale, count, not_finite); });
}

double momentum(const MomentumPass &pass, const MomentumRun &run) {
  return with_dtype(pass.gradient_dtype, [&](auto type) {
    return pass.l2 == 0.0f ? momentum_with<type.value>(pass, run) : momentum_decayed<type.value>(pass, run);
  });
}

double direction(const AdamwPass &pass, const AdamwRun &run) {
  return with_dtype(pass.gradient_dtype, [&](auto type) {
    if (pass.l2 == 0.0f) return direction_with<type.value>(pass, run);
    double sum = 0.0;
    over_decayed_adamw<type.value>(pass, run, [&](const AdamwPass &plain, const AdamwRun &chunk) {
      sum += direction_with<MXS_F32>(plain, chunk);
    });
    return sum;
  });
}

void adamw(const AdamwPass &pass, const AdamwRun &run) {
  with_dtype(pass.gradient_dtype, [&](auto type) {
    if (pass.l2 == 0.0f) return adamw_with<type.value>(pass, run);
    over_decayed_adamw<type.value>(pass, run, adamw_with<MXS_F32>);
  });
}

void apply(const ApplyPass &pass, const ApplyRun &run) {
  with_weights(pass.form, run.weights, [&](auto weights) { apply_of(pass, run, weights); });
}

void scale_weights(const WeightForm &form, const WeightRun &run, float factor, size_t count) {
  const Floats factors = splat(factor);
  with_weights(form, run, [&](auto weights) {
    over_weights(weights, count, [&](auto, Floats weight, size_t, size_t) { return weight * factors; });
  });
}

void scale(float *values, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace MXS_LEVEL

}  // namespace mxs
