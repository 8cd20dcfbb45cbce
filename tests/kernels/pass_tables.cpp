// SPDX-License-Identifier: Apache-2.0
// The element passes of optimizers: every table that this CPU can run gives the reference's bits, in every form of
// weights, wherever arrays begin and end, and writes nothing else.
#include <array>
#include <string>

#include "kernels/arrays.hpp"
#include "kernels/passes.hpp"
#include "support/cmocka_all.h"

namespace {

struct Form {
  mxs_dtype dtype;
  mxs_weights weights;
  mxs_rounding rounding;
};
const Form forms[] = {
    {MXS_F32, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},    {MXS_F32, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST},
    {MXS_BF16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST},  {MXS_F16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST},
    {MXS_BF16, MXS_WEIGHTS_REMAINDER, MXS_ROUND_NEAREST}, {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},
    {MXS_F16, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},    {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC},
};

WeightForm made_form(const Form &form) {
  WeightForm made;
  if (weight_form(&made, form.dtype, form.weights, form.rounding) != MXS_OK) print_error("%s\n", mxs_last_error());
  made.random = random_bits(1234567890123456789u, 77, 5);
  return made;
}

// All arrays of a step.
struct Arrays {
  Bytes gradient, momentum, update, exp_avg, exp_avg_sq, master, weights;
  WeightRun run;
  size_t count;

  Arrays(const Form &form, mxs_dtype gradient_dtype, size_t length, size_t shift, bool special_weights)
      : gradient(filled(numbers(length, 1, false), gradient_dtype, shift)),
        momentum(filled(numbers(length, 2, false), MXS_F32, shift + 1)),
        update(filled(numbers(length, 3, false), MXS_F32, shift + 2)),
        exp_avg(filled(numbers(length, 4, false), MXS_F32, shift)),
        exp_avg_sq(filled(squares(length), MXS_F32, shift)),
        master(filled(numbers(length, 6, special_weights), MXS_F32, shift + 3)),
        weights(filled(numbers(length, 7, special_weights), form.dtype, shift)), count(length) {
    run.weights = weights.data();
    run.master = form.weights == MXS_WEIGHTS_ALONE ? nullptr : master.data();
    run.first_element = 1000 + shift;
  }
  static std::vector<float> squares(size_t length) {
    std::vector<float> values = numbers(length, 5, false);
    for (float &value : values) value *= value;
    return values;
  }
  bool operator==(const Arrays &other) const {
    return gradient == other.gradient && momentum == other.momentum && update == other.update &&
           exp_avg == other.exp_avg && exp_avg_sq == other.exp_avg_sq && master == other.master &&
           weights == other.weights;
  }
};

bool same_double(double a, double b) { return std::memcmp(&a, &b, 8) == 0 || (std::isnan(a) && std::isnan(b)); }

mxs_group_values interesting_values() {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 0.02f;
  values.weight_decay = 0.1f;
  return values;
}

const mxs_decay decays[] = {MXS_DECAY_DECOUPLED, MXS_DECAY_INDEPENDENT, MXS_DECAY_L2, MXS_DECAY_PALM,
                            MXS_DECAY_CAUTIOUS};

// step(table, arrays) -> double, compared as what it leaves in the arrays is. Weights may be `odd` ones: a NaN that
// stays has its bits, and none meets another.
template <class Step>
bool agrees(const Kernels &table, const Form &form, mxs_dtype gradient_dtype, size_t length, size_t shift, bool odd,
            Step &&step) {
  Arrays wanted(form, gradient_dtype, length, shift, odd), got(form, gradient_dtype, length, shift, odd);
  const double wanted_sum = step(reference_kernels(), wanted), got_sum = step(table, got);
  return wanted == got && same_double(wanted_sum, got_sum);
}

bool norms_agree(const Kernels &table, size_t length, size_t shift) {
  for (mxs_dtype dtype : dtypes)
    for (float scale : {1.0f, 0.125f, 1e-30f, 3e38f}) {
      Bytes gradient = filled(numbers(length, 8, false), dtype, shift);
      bool wanted_bad = false, got_bad = false;
      const double wanted =
          reference_kernels().sum_of_squares(gradient.data(), dtype, scale, length, &wanted_bad);
      const double got = table.sum_of_squares(gradient.data(), dtype, scale, length, &got_bad);
      if (wanted_bad != got_bad || (!wanted_bad && !same_double(wanted, got))) return false;
      if (length == 0) continue;
      for (size_t bad : {size_t{0}, length / 2, length - 1}) {  // one element that isn't finite, wherever it is
        std::vector<float> copy = numbers(length, 8, false);
        copy[bad] = bad % 2 ? NAN : -INFINITY;
        Bytes with_it = filled(copy, dtype, shift);
        bool found = false;
        table.sum_of_squares(with_it.data(), dtype, 1.0f, length, &found);
        if (!found) return false;
      }
    }
  return true;
}

bool momenta_agree(const Kernels &table, size_t length, size_t shift) {
  for (mxs_dtype dtype : dtypes)
    for (const Form &form : forms)
      for (int variant = 0; variant < 16; ++variant) {
        if (length > 70 && variant % 5 != 0) continue;
        mxs_group_values values = interesting_values();
        values.momentum = variant & 8 ? 0.3f : 0.95f;
        const mxs_decay decay = variant & 4 ? MXS_DECAY_L2 : MXS_DECAY_DECOUPLED;
        if (decay != MXS_DECAY_L2 && &form != &forms[0]) continue;  // weights are not looked at
        const mxs_momentum_kind kind = variant & 2 ? MXS_MOMENTUM_SGD : MXS_MOMENTUM_EMA;
        MomentumPass pass = momentum_pass(kind, variant & 1, decay, values);
        pass.gradient_dtype = dtype;
        pass.gradient_scale = 0.37f;
        pass.form = made_form(form);
        pass.streams = variant & 1;
        if (!agrees(table, form, dtype, length, shift, false, [&](const Kernels &kernels, Arrays &arrays) {
              return kernels.momentum(pass, {arrays.gradient.data(), arrays.momentum.floats(), arrays.update.floats(),
                                             arrays.run, length});
            }))
          return false;
      }
  return true;
}

bool applications_agree(const Kernels &table, size_t length, size_t shift) {
  for (const Form &form : forms)
    for (mxs_decay decay : decays)
      for (bool decay_last : {false, true}) {
        ApplyPass pass = apply_pass(made_form(form), decay, 1.7, interesting_values());
        pass.decay_last = decay_last;
        if (!agrees(table, form, MXS_F32, length, shift, true, [&](const Kernels &kernels, Arrays &arrays) {
              kernels.apply(pass, {arrays.run, arrays.update.floats(), 0.9f, length});
              kernels.scale(arrays.update.floats(), 0.7f, length);
              kernels.scale_weights(pass.form, arrays.run, 0.6f, length);
              return 0.0;
            }))
          return false;
      }
  return true;
}

AdamwRun adamw_run(Arrays &arrays, size_t length) {
  AdamwRun run;
  run.gradient = arrays.gradient.data();
  run.exp_avg = arrays.exp_avg.floats();
  run.exp_avg_sq = arrays.exp_avg_sq.floats();
  run.weights = arrays.run;
  run.count = length;
  run.update = arrays.update.floats();
  return run;
}

bool adamws_agree(const Kernels &table, size_t length, size_t shift) {
  for (mxs_dtype dtype : dtypes)
    for (const Form &form : forms)
      for (mxs_decay decay : decays)
        for (int epsilon_before : {0, 1}) {
          if (length > 70 && (epsilon_before + decay + dtype) % 2 != 0) continue;
          const ApplyPass apply = apply_pass(made_form(form), decay, 1.0, interesting_values());
          AdamwPass pass = adamw_pass(apply, decay, epsilon_before != 0, 3, interesting_values());
          pass.gradient_dtype = dtype;
          pass.gradient_scale = 0.37f;
          const bool odd = decay != MXS_DECAY_L2;
          if (!agrees(table, form, dtype, length, shift, odd, [&](const Kernels &kernels, Arrays &arrays) {
                kernels.adamw(pass, adamw_run(arrays, length));
                double sum = kernels.direction(pass, adamw_run(arrays, length));
                AdamwRun grafted = adamw_run(arrays, length);
                grafted.filtered = arrays.momentum.floats();
                return sum + kernels.direction(pass, grafted);
              }))
            return false;
        }
  return true;
}

void every_table_has_the_same_norm(void **) { assert_true(with_every_table(norms_agree)); }
void every_table_has_the_same_momentum(void **) { assert_true(with_every_table(momenta_agree)); }
void every_table_applies_to_the_same_bits(void **) { assert_true(with_every_table(applications_agree)); }
void every_table_has_the_same_adamw(void **) { assert_true(with_every_table(adamws_agree)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_table_has_the_same_norm),
      cmocka_unit_test(every_table_has_the_same_momentum),
      cmocka_unit_test(every_table_applies_to_the_same_bits),
      cmocka_unit_test(every_table_has_the_same_adamw),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
