// SPDX-License-Identifier: Apache-2.0
// Forms of weights: what a remainder keeps, what stochastic rounding does, what decay multiplies; NorMuon's factors;
// runs. On the reference table, in fp64 or bit by bit; pass_tables.cpp shows that the others agree.
#include <bit>

#include "kernels/arrays.hpp"
#include "kernels/passes.hpp"
#include "kernels/philox.hpp"
#include "support/cmocka_all.h"

namespace {

const Kernels &table() { return reference_kernels(); }

WeightForm form_of(mxs_dtype dtype, mxs_weights weights, mxs_rounding rounding = MXS_ROUND_NEAREST) {
  WeightForm form;
  if (weight_form(&form, dtype, weights, rounding) != MXS_OK) print_error("%s\n", mxs_last_error());
  return form;
}

mxs_group_values values_of(float lr, float weight_decay) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = lr;
  values.weight_decay = weight_decay;
  return values;
}

// ---- remainder -----------------------------------------------------------------------------------------------------

bool remainders_are_exact() {
  const WeightForm form = form_of(MXS_BF16, MXS_WEIGHTS_REMAINDER);
  const uint16_t patterns[] = {0, 1, 2, 0x00ff, 0x5555, 0x7fff, 0x8000, 0x8001, 0xaaaa, 0xfffe, 0xffff};
  int count = 0;
  const Kernels *const *tables = all_kernels(&count);
  for (uint16_t pattern : patterns) {
    std::vector<uint16_t> high(65536), low(65536, pattern);
    for (size_t i = 0; i < high.size(); ++i) high[i] = static_cast<uint16_t>(i);
    for (int t = 0; t < count; ++t) {
      std::vector<uint16_t> high_after = high, low_after = low;
      tables[t]->scale_weights(form, {high_after.data(), low_after.data(), 0}, 1.0f, high.size());
      for (size_t i = 0; i < high.size(); ++i) {
        uint32_t wanted = static_cast<uint32_t>(i) << 16 | pattern;
        if ((wanted & 0x7fffffffu) > 0x7f800000u) wanted |= 0x400000u;  // arithmetic makes NaNs quiet
        const uint32_t got = static_cast<uint32_t>(high_after[i]) << 16 | low_after[i];
        if (got != wanted) {
          print_error("%s: %08x became %08x\n", tables[t]->name, wanted, got);
          return false;
        }
      }
    }
  }
  return true;
}

// A step of weights with a remainder is one of fp32 weights.
bool remainders_step_as_fp32() {
  const size_t count = 1000;
  std::vector<float> weights = numbers(count, 1, false);
  const std::vector<float> update = numbers(count, 2, false);
  std::vector<uint16_t> high(count), low(count);
  for (size_t i = 0; i < count; ++i) {
    high[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(weights[i]) >> 16);
    low[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(weights[i]));
  }
  const mxs_group_values values = values_of(1e-4f, 0.1f);
  for (int step = 0; step < 20; ++step) {
    const ApplyPass wide = apply_pass(form_of(MXS_F32, MXS_WEIGHTS_ALONE), MXS_DECAY_DECOUPLED, 1.0, values);
    ApplyPass split = wide;
    split.form = form_of(MXS_BF16, MXS_WEIGHTS_REMAINDER);
    table().apply(wide, {{weights.data(), nullptr, 0}, update.data(), 1.0f, count});
    table().apply(split, {{high.data(), low.data(), 0}, update.data(), 1.0f, count});
  }
  for (size_t i = 0; i < count; ++i)
    if ((static_cast<uint32_t>(high[i]) << 16 | low[i]) != std::bit_cast<uint32_t>(weights[i])) return false;
  return true;
}

// ---- rounding ------------------------------------------------------------------------------------------------------

// Neither NaN nor infinity, ties, overflow and numbers below the least normal one are an exception.
bool masters_are_rounded_to_nearest() {
  const float masters[] = {0.0f,        -0.0f,     0x1.01p0f,   0x1.03p0f,  0x1.0100002p0f, 0x1.00fffep0f, 3.3895e38f,
                           3.3961777e38f, -3.4e38f, INFINITY,   -INFINITY,  1e-40f,         -1e-45f,       NAN,
                           65519.0f,    65520.0f,  0x1.002p-10f, 6e-8f,     2.9e-8f};
  for (mxs_dtype dtype : {MXS_BF16, MXS_F16})
    for (float given : masters) {
      float master = given;
      uint16_t weight = 0xa5a5;
      table().scale_weights(form_of(dtype, MXS_WEIGHTS_MASTER), {&weight, &master, 0}, 1.0f, 1);
      const uint16_t wanted = dtype == MXS_BF16 ? bf16_from_float(given) : f16_from_float(given);
      if (weight != wanted) {
        print_error("%g became %04x, not %04x\n", static_cast<double>(given), weight, wanted);
        return false;
      }
    }
  uint16_t weight = 0;
  float largest = 3.396177e38f;  // nearer to the largest bf16 than to 2^128
  table().scale_weights(form_of(MXS_BF16, MXS_WEIGHTS_MASTER), {&weight, &largest, 0}, 1.0f, 1);
  if (weight != 0x7f7f) return false;
  largest = 3.4e38f;
  table().scale_weights(form_of(MXS_BF16, MXS_WEIGHTS_MASTER), {&weight, &largest, 0}, 1.0f, 1);
  return weight == 0x7f80;
}

// The published known answers of philox4x32_10.
bool philox_gives_the_known_answers() {
  const struct {
    uint32_t counter[4], key[2], wanted[4];
  } answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto &answer : answers) {
    uint32_t words[4];
    std::copy_n(answer.counter, 4, words);
    philox(words, answer.key[0], answer.key[1]);
    if (!std::equal(words, words + 4, answer.wanted)) return false;
  }
  return true;
}

// What apply makes of weights that are all `value` after it: decay 0, update `value`, factor 1.
std::vector<uint16_t> rounded(const Kernels &kernels, float value, size_t count, const RandomBits &random,
                              uint64_t first_element) {
  ApplyPass pass;
  pass.form = form_of(MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC);
  pass.form.random = random;
  pass.decay = 0.0f;
  pass.update_factor = 1.0f;
  std::vector<uint16_t> weights(count, 0);
  const std::vector<float> update(count, value);
  kernels.apply(pass, {{weights.data(), nullptr, first_element}, update.data(), 1.0f, count});
  return weights;
}

// Only to the two neighbours, and to the upper one as often as it is near: 200,000 draws, 5 standard deviations.
bool stochastic_rounding_is_unbiased() {
  const size_t count = 200000;
  for (float value : {1.0f + 0x1p-9f, 1.0f + 0x1p-16f, -3.0f - 0x1.8p-8f, 1e-3f, -7e30f, 3e-39f}) {
    const std::vector<uint16_t> weights = rounded(table(), value, count, random_bits(42, 7, 1), 0);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t inner = static_cast<uint16_t>(bits >> 16), outer = static_cast<uint16_t>(inner + 1);
    const double share = static_cast<double>(bits & 0xffffu) / 65536.0;
    size_t outward = 0;
    for (uint16_t weight : weights) {
      if (weight != inner && weight != outer) return false;
      outward += weight == outer;
    }
    const double number = static_cast<double>(count), wanted = share * number;
    if (std::fabs(static_cast<double>(outward) - wanted) > 5.0 * std::sqrt(number * share * (1.0 - share)) + 1.0) {
      print_error("%g: %zu of %zu outward, not %g\n", static_cast<double>(value), outward, count, wanted);
      return false;
    }
  }
  return true;
}

bool what_needs_no_rounding_is_kept() {
  for (float value : {0.0f, -0.0f, 1.0f, -2.5f, INFINITY, -INFINITY, 0x1p-133f}) {
    if (value == 0.0f && std::signbit(value)) continue;  // 0 * decay + -0 is 0
    for (uint16_t weight : rounded(table(), value, 300, random_bits(1, 2, 3), 0))
      if (std::bit_cast<uint32_t>(value) != static_cast<uint32_t>(weight) << 16) return false;
  }
  for (uint16_t weight : rounded(table(), NAN, 300, random_bits(1, 2, 3), 0))
    if ((weight & 0x7fff) <= 0x7f80) return false;
  return true;
}

// Element e takes what the comment in kernels.h says, here written once more from its words.
bool random_bits_are_as_described() {
  const uint64_t seed = 0x123456789abcdef0u, tensor = 0xfedcba9876543210u, step = 0x100000002u;
  const RandomBits random = random_bits(seed, tensor, step);
  const float value = 1.0f + 0x1.8p-9f;  // lower half 0xc000 / 4
  const uint32_t lower = std::bit_cast<uint32_t>(value) & 0xffffu;
  uint32_t stage[4] = {0x76543210u, 0xfedcba98u, 2, 1};
  philox(stage, 0x9abcdef0u, 0x12345678u);
  for (uint64_t first : {uint64_t{0}, uint64_t{77}, (uint64_t{1} << 36) - 100}) {
    const std::vector<uint16_t> weights = rounded(table(), value, 400, random, first);
    for (size_t i = 0; i < weights.size(); ++i) {
      const uint64_t element = first + i, block = element / 128 * 16 + element % 16;
      uint32_t words[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stage[2], stage[3]};
      philox(words, stage[0], stage[1]);
      const uint32_t word = words[element / 16 % 4];
      const uint32_t bits = element / 64 % 2 ? word >> 16 : word & 0xffffu;
      if (weights[i] != 0x3f80 + (lower + bits) / 65536) return false;
    }
  }
  return true;
}

// However a tensor is cut into runs, by whatever table, at whatever place.
bool random_bits_do_not_depend_on_cuts() {
  const size_t count = 5000;
  const RandomBits random = random_bits(9, 8, 7);
  const std::vector<uint16_t> whole = rounded(table(), 1.0f + 0x1p-9f, count, random, 0);
  int tables = 0;
  const Kernels *const *list = all_kernels(&tables);
  std::mt19937 any(3);
  for (int t = 0; t < tables; ++t)
    for (size_t first = 0; first < count;) {
      const size_t length = std::min<size_t>(1 + any() % 1500, count - first);
      const std::vector<uint16_t> piece = rounded(*list[t], 1.0f + 0x1p-9f, length, random, first);
      if (!std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<ptrdiff_t>(first))) return false;
      first += length;
    }
  // And another seed, tensor or step gives others.
  for (const RandomBits &other : {random_bits(10, 8, 7), random_bits(9, 9, 7), random_bits(9, 8, 8)})
    if (rounded(table(), 1.0f + 0x1p-9f, count, other, 0) == whole) return false;
  return true;
}

bool other_forms_are_refused() {
  WeightForm form;
  form.kind = WeightKind::f16_master;
  const struct {
    mxs_dtype dtype;
    mxs_weights weights;
    mxs_rounding rounding;
  } bad[] = {{MXS_F32, MXS_WEIGHTS_REMAINDER, MXS_ROUND_NEAREST}, {MXS_F16, MXS_WEIGHTS_REMAINDER, MXS_ROUND_NEAREST},
             {MXS_F16, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC},  {MXS_F32, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC},
             {MXS_BF16, MXS_WEIGHTS_MASTER, MXS_ROUND_STOCHASTIC}, {MXS_BF16, MXS_WEIGHTS_DEFAULT, MXS_ROUND_NEAREST},
             {MXS_BF16, 9, MXS_ROUND_NEAREST},                    {MXS_F64, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST},
             {MXS_U8, MXS_WEIGHTS_ALONE, 2}};
  for (const auto &each : bad)
    if (weight_form(&form, each.dtype, each.weights, each.rounding) != MXS_INVALID_ARGUMENT ||
        form.kind != WeightKind::f16_master)
      return false;
  return true;
}

// ---- decay ---------------------------------------------------------------------------------------------------------

bool decays_are_the_formulas() {
  const double lr = static_cast<double>(0.02f), wd = static_cast<double>(0.3f);
  const mxs_group_values values = values_of(0.02f, 0.3f);
  const size_t count = 400;
  const std::vector<float> before = numbers(count, 1, false), update = numbers(count, 2, false);
  for (mxs_decay decay : {MXS_DECAY_DECOUPLED, MXS_DECAY_INDEPENDENT, MXS_DECAY_L2, MXS_DECAY_PALM,
                          MXS_DECAY_CAUTIOUS})
    for (bool last : {false, true}) {
      std::vector<float> weights = before;
      ApplyPass pass = apply_pass(form_of(MXS_F32, MXS_WEIGHTS_ALONE), decay, 1.5, values);
      pass.decay_last = last;
      table().apply(pass, {{weights.data(), nullptr, 0}, update.data(), 0.5f, count});
      for (size_t i = 0; i < count; ++i) {
        const double w = static_cast<double>(before[i]), u = static_cast<double>(update[i]) * 0.5;
        const double factor = decay == MXS_DECAY_INDEPENDENT                ? 1 - wd
                              : decay == MXS_DECAY_L2                       ? 1
                              : decay == MXS_DECAY_PALM                     ? 1 - lr * lr * wd
                              : decay == MXS_DECAY_CAUTIOUS && u * w < 0    ? 1
                                                                            : 1 - lr * wd;
        const double wanted = last ? (w - lr * 1.5 * u) * factor : w * factor - lr * 1.5 * u;
        if (std::fabs(static_cast<double>(weights[i]) - wanted) > 3e-7 * (std::fabs(w) + std::fabs(u))) return false;
      }
    }
  return true;
}

// A step in one is one in two: direction, then apply.
bool adamw_is_direction_and_apply() {
  const size_t count = 777;
  const mxs_group_values values = values_of(0.01f, 0.1f);
  for (mxs_decay decay : {MXS_DECAY_DECOUPLED, MXS_DECAY_L2, MXS_DECAY_CAUTIOUS})
    for (bool epsilon_before : {false, true}) {
      const ApplyPass apply = apply_pass(form_of(MXS_F32, MXS_WEIGHTS_ALONE), decay, 1.0, values);
      const AdamwPass pass = adamw_pass(apply, decay, epsilon_before, 4, values);
      std::vector<float> gradient = numbers(count, 1, false), update(count);
      std::vector<float> first[2], second[2], weights[2];
      for (int way = 0; way < 2; ++way) {
        first[way] = numbers(count, 2, false);
        second[way] = numbers(count, 3, false);
        for (float &value : second[way]) value *= value;
        weights[way] = numbers(count, 4, false);
        AdamwRun run;
        run.gradient = gradient.data();
        run.exp_avg = first[way].data();
        run.exp_avg_sq = second[way].data();
        run.weights = {weights[way].data(), nullptr, 0};
        run.count = count;
        run.update = update.data();
        if (way == 0) {
          table().adamw(pass, run);
        } else {
          table().direction(pass, run);
          table().apply(apply, {run.weights, update.data(), 1.0f, count});
        }
      }
      if (first[0] != first[1] || second[0] != second[1] || weights[0] != weights[1]) return false;
    }
  return true;
}

// ---- NorMuon -------------------------------------------------------------------------------------------------------

// Against the formula, element by element, in fp64.
bool normuon_is_the_formula() {
  const size_t rows = 13, columns = 37;
  std::vector<float> update = numbers(rows * columns, 5, false), second(rows), factors(rows);
  for (size_t column = 0; column < columns; ++column) update[4 * columns + column] = 0.0f;
  std::vector<double> v(rows);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> squares(rows), divided(rows * columns);
    double before = 0, after = 0;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = row * columns; i < (row + 1) * columns; ++i)
        squares[row] += static_cast<double>(update[i]) * static_cast<double>(update[i]);
      v[row] += (squares[row] / static_cast<double>(columns) - v[row]) * 0.05;
      for (size_t i = row * columns; i < (row + 1) * columns; ++i) {
        divided[i] = static_cast<double>(update[i]) / (std::sqrt(v[row]) + 1e-10);
        after += divided[i] * divided[i];
      }
      before += squares[row];
    }
    normuon_factors(factors.data(), second.data(), squares.data(), rows, columns, 0.95, 1e-10);
    for (size_t i = 0; i < rows * columns; ++i) {
      const double wanted = divided[i] * std::sqrt(before / after);
      const float got = update[i] * factors[i / columns];
      if (!(std::fabs(static_cast<double>(got) - wanted) <= 1e-6 * std::fabs(wanted))) return false;
      update[i] *= 0.9f;  // another one the next time
    }
  }
  return true;
}

bool normuon_of_zeros_is_zero() {
  for (double epsilon : {1e-10, 0.0}) {
    float factors[3] = {NAN, NAN, NAN}, second[3] = {};
    const double zeros[3] = {}, one_row[3] = {0.0, 4.0, 0.0}, tiny[3] = {1e-80, 0.0, 1e-300};
    for (const double *squares : {zeros, one_row, tiny}) {
      normuon_factors(factors, second, squares, 3, 4, 0.95, epsilon);
      for (float factor : factors)
        if (!std::isfinite(factor) || factor < 0.0f || factor * 0.0f != 0.0f) return false;
    }
  }
  return true;
}

// ---- runs ----------------------------------------------------------------------------------------------------------

bool runs_cover_a_matrix() {
  const size_t shapes[][2] = {{1, 1},    {1, 4096},   {1, 4097},    {3, 5000},
                              {1000, 7}, {300, 4096}, {1, 1000000}, {70000, 5}};
  for (const auto &shape : shapes) {
    const MatrixRuns runs(shape[0], shape[1]);
    if (runs.part_count() < 1 || runs.part_count() > MatrixRuns::parts_max) return false;
    size_t next = 0;
    bool good = true;
    for (size_t part = 0; part < runs.part_count(); ++part)
      runs.each(part, [&](size_t row, size_t column, size_t count) {
        good = good && row * shape[1] + column == next && count >= 1 && count <= norm_chunk &&
               column % norm_chunk == 0 && column + count <= shape[1];
        next += count;
      });
    if (!good || next != shape[0] * shape[1]) return false;
  }
  size_t calls = 0;
  MatrixRuns(0, 5).each(0, [&](size_t, size_t, size_t) { ++calls; });
  MatrixRuns(5, 0).each(0, [&](size_t, size_t, size_t) { ++calls; });
  return calls == 0;
}

bool sums_do_not_depend_on_the_team() {
  const size_t rows = 60, columns = 5000, matrices = 3;
  const std::vector<float> values = numbers(rows * columns * matrices, 6, false);
  const MatrixRuns runs(rows, columns);
  std::vector<double> wanted;
  for (int size = 1; size <= 8; ++size)
    for (size_t count : {size_t{1}, matrices}) {
      std::unique_ptr<Team> team;
      if (Team::create(&team, size) != MXS_OK) return false;
      std::vector<double> sums(count, NAN);
      std::vector<float> doubled = values;
      sum_over_runs(team.get(), runs, count, sums.data(), [&](size_t matrix, size_t row, size_t column, size_t length) {
        bool not_finite = false;
        return table().sum_of_squares(values.data() + (matrix * rows + row) * columns + column, MXS_F32, 1.0f, length,
                                      &not_finite);
      });
      over_runs(team.get(), runs, count, [&](size_t matrix, size_t row, size_t column, size_t length) {
        table().scale(doubled.data() + (matrix * rows + row) * columns + column, 2.0f, length);
      });
      if (wanted.empty()) wanted = sums;
      if (wanted.size() < count) wanted = sums;
      if (!std::equal(sums.begin(), sums.end(), wanted.begin())) return false;
      for (size_t i = 0; i < rows * columns * count; ++i)
        if (doubled[i] != 2.0f * values[i]) return false;
    }
  return wanted.size() == matrices;
}

void a_remainder_keeps_every_bit(void **) { assert_true(remainders_are_exact()); }
void weights_with_a_remainder_step_as_fp32_does(void **) { assert_true(remainders_step_as_fp32()); }
void a_master_is_rounded_to_nearest(void **) { assert_true(masters_are_rounded_to_nearest()); }
void philox_is_philox(void **) { assert_true(philox_gives_the_known_answers()); }
void stochastic_rounding_is_without_bias(void **) { assert_true(stochastic_rounding_is_unbiased()); }
void what_fits_is_not_rounded(void **) { assert_true(what_needs_no_rounding_is_kept()); }
void random_bits_lie_where_the_header_says(void **) { assert_true(random_bits_are_as_described()); }
void random_bits_are_the_element_s_own(void **) { assert_true(random_bits_do_not_depend_on_cuts()); }
void forms_that_do_not_exist_are_refused(void **) { assert_true(other_forms_are_refused()); }
void decay_of_every_kind_is_its_formula(void **) { assert_true(decays_are_the_formulas()); }
void adamw_in_one_is_adamw_in_two(void **) { assert_true(adamw_is_direction_and_apply()); }
void normuon_follows_its_formula(void **) { assert_true(normuon_is_the_formula()); }
void normuon_makes_no_nan_of_zeros(void **) { assert_true(normuon_of_zeros_is_zero()); }
void every_element_is_in_one_run(void **) { assert_true(runs_cover_a_matrix()); }
void a_sum_has_the_same_bits_for_any_team(void **) { assert_true(sums_do_not_depend_on_the_team()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_remainder_keeps_every_bit),
      cmocka_unit_test(weights_with_a_remainder_step_as_fp32_does),
      cmocka_unit_test(a_master_is_rounded_to_nearest),
      cmocka_unit_test(philox_is_philox),
      cmocka_unit_test(stochastic_rounding_is_without_bias),
      cmocka_unit_test(what_fits_is_not_rounded),
      cmocka_unit_test(random_bits_lie_where_the_header_says),
      cmocka_unit_test(random_bits_are_the_element_s_own),
      cmocka_unit_test(forms_that_do_not_exist_are_refused),
      cmocka_unit_test(decay_of_every_kind_is_its_formula),
      cmocka_unit_test(adamw_in_one_is_adamw_in_two),
      cmocka_unit_test(normuon_follows_its_formula),
      cmocka_unit_test(normuon_makes_no_nan_of_zeros),
      cmocka_unit_test(every_element_is_in_one_run),
      cmocka_unit_test(a_sum_has_the_same_bits_for_any_team),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
