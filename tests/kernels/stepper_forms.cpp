// SPDX-License-Identifier: Apache-2.0
// Steppers and forms: weights beside masters or remainders, gradients of 16 bits, decay, scales, heads. Each is
// compared with the plain case, fp32 and dense, whose numbers tests/kernels/presets.cpp compares with fp64.
#include <cmath>

#include "optimizer/lone_stepper.hpp"
#include "support/stepping.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

struct Rule {
  const char *name;
  MakeStepper (*on)(int32_t threads);
};
const Rule rules[] = {
    {"muon", [](int32_t threads) { return muon_on(threads); }},
    {"normuon", [](int32_t threads) { return muon_on(threads, MXS_PRESET_NORMUON); }},
    {"adamw", [](int32_t threads) { return adamw_on(threads); }},
};

bool say(const char *rule, const char *what) {
  print_error("%s: %s: %s\n", rule, what, mxs_last_error());
  return false;
}

mxs_matrices small_matrices() {
  mxs_matrices matrices = matrices_of(37, 61, 2);
  matrices.weight_strides.row = 64;
  return matrices;
}

template <class Visit>
bool each_element(const mxs_matrices &matrices, Visit &&visit) {
  for (int64_t matrix = 0; matrix < matrices.count; ++matrix)
    for (int64_t row = 0; row < matrices.rows; ++row)
      for (int64_t column = 0; column < matrices.columns; ++column)
        if (!visit(matrix, row, column)) return false;
  return true;
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t half_of(const Bytes &bytes, uint64_t at) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * at, 2);
  return bits;
}

// ---- weights -------------------------------------------------------------------------------------------------------

// Masters, and bf16 with a remainder, have the bits of fp32 weights; what stands beside a master is the master rounded.
bool masters_have_the_bits_of_fp32() {
  for (const Rule &rule : rules) {
    Stepping plain(small_matrices(), rule.on(1));
    if (plain.run(4) != MXS_OK) return say(rule.name, "fp32");
    struct Form {
      mxs_dtype dtype;
      mxs_weights weights;
    };
    for (const Form form : {Form{MXS_BF16, MXS_WEIGHTS_MASTER}, Form{MXS_F16, MXS_WEIGHTS_DEFAULT},
                            Form{MXS_BF16, MXS_WEIGHTS_REMAINDER}}) {
      mxs_matrices matrices = small_matrices();
      matrices.dtype = form.dtype;
      matrices.weights = form.weights;
      Stepping other(matrices, rule.on(2));
      if (other.run(4) != MXS_OK) return say(rule.name, "16 bits");
      const bool good = each_element(matrices, [&](int64_t matrix, int64_t row, int64_t column) {
        const uint64_t at = other.place(matrices.weight_strides, matrix, row, column);
        const uint32_t wanted = bits_of(plain.weight(matrix, row, column));
        if (form.weights == MXS_WEIGHTS_REMAINDER)
          return (static_cast<uint32_t>(half_of(other.weights, at)) << 16 | half_of(other.master, at)) == wanted;
        const float master = Stepping::get(other.master, MXS_F32, at);
        const uint16_t rounded =
            form.dtype == MXS_BF16 ? mxs::bf16_from_float(master) : mxs::f16_from_float(master);
        return bits_of(master) == wanted && half_of(other.weights, at) == rounded;
      });
      if (!good || !other.gaps_are_untouched()) return say(rule.name, "masters have other bits");
    }
  }
  return true;
}

// Without a master one step from equal weights is the fp32 step, rounded.
bool lone_bf16_is_rounded() {
  for (const Rule &rule : rules)
    for (const mxs_dtype dtype : {MXS_BF16, MXS_F16}) {
      mxs_matrices matrices = small_matrices();
      Stepping plain(matrices, rule.on(1));
      matrices.dtype = dtype;
      matrices.weights = MXS_WEIGHTS_ALONE;
      Stepping alone(matrices, rule.on(1));
      if (plain.run(1) != MXS_OK || alone.run(1) != MXS_OK) return say(rule.name, "a step");
      const bool good = each_element(matrices, [&](int64_t matrix, int64_t row, int64_t column) {
        const float wanted = plain.weight(matrix, row, column);
        return half_of(alone.weights, alone.place(matrices.weight_strides, matrix, row, column)) ==
               (dtype == MXS_BF16 ? mxs::bf16_from_float(wanted) : mxs::f16_from_float(wanted));
      });
      if (!good) return say(rule.name, "weights alone are not the rounded step");
    }
  return true;
}

mxs_matrices stochastic_matrices() {
  mxs_matrices matrices = matrices_of(37, 61, 2);
  matrices.dtype = MXS_BF16;
  matrices.weights = MXS_WEIGHTS_ALONE;
  matrices.rounding = MXS_ROUND_STOCHASTIC;
  matrices.seed = 5;
  matrices.tensor_id = 7;
  return matrices;
}

// Up or down to a neighbour, so that the mean is right; by seed, tensor, step and element alone.
bool stochastic_rounding_does_not_see_layouts() {
  for (const Rule &rule : rules) {
    const mxs_matrices matrices = stochastic_matrices();
    Stepping plain(matrices_of(37, 61, 2), rule.on(1)), rounded(matrices, rule.on(1));
    if (plain.run(1) != MXS_OK || rounded.run(1) != MXS_OK) return say(rule.name, "a step");
    double error = 0, ulp = 0;
    const bool neighbours = each_element(matrices, [&](int64_t matrix, int64_t row, int64_t column) {
      const uint32_t exact = bits_of(plain.weight(matrix, row, column)), below = exact & 0xffff0000u;
      const uint32_t got = bits_of(rounded.weight(matrix, row, column));
      error += static_cast<double>(as_float(got)) - static_cast<double>(as_float(exact));
      ulp += std::fabs(static_cast<double>(as_float(below + 0x10000u)) - static_cast<double>(as_float(below)));
      return got == below || got == below + 0x10000u;
    });
    // Errors are uniform within a unit: the sum of 4,514 has a deviation of about 0.4 / sqrt(4514) of the sum of units.
    if (!neighbours || std::fabs(error) > 0.03 * ulp) return say(rule.name, "biased, or not to a neighbour");

    mxs_matrices gaps = matrices;
    gaps.weight_strides.row = 71;
    gaps.weight_strides.matrix = 37 * 71 + 13;
    Stepping once(matrices, rule.on(1)), apart(gaps, rule.on(3)), halves(matrices, rule.on(2));
    mxs_matrices other_seed = matrices, other_tensor = matrices;
    other_seed.seed = 6;
    other_tensor.tensor_id = 8;
    Stepping seed(other_seed, rule.on(1)), tensor(other_tensor, rule.on(1));
    if (once.run(3) != MXS_OK || apart.run(3) != MXS_OK || halves.run_halves(3) != MXS_OK || seed.run(3) != MXS_OK ||
        tensor.run(3) != MXS_OK)
      return say(rule.name, "steps");
    for (int64_t matrix = 0; matrix < 2; ++matrix) {
      if (once.weights_of(matrix) != apart.weights_of(matrix)) return say(rule.name, "strides change random bits");
      if (once.weights_of(matrix) != halves.weights_of(matrix)) return say(rule.name, "halves change random bits");
      if (once.weights_of(matrix) == seed.weights_of(matrix) || once.weights_of(matrix) == tensor.weights_of(matrix))
        return say(rule.name, "seed and tensor are of no consequence");
    }
  }
  return true;
}

// ---- gradients -----------------------------------------------------------------------------------------------------

// Gradients of 16 bits are as the same numbers in fp32.
bool narrow_gradients_are_widened() {
  for (const Rule &rule : rules) {
    Stepping plain(small_matrices(), rule.on(1));
    if (plain.run(3) != MXS_OK) return say(rule.name, "fp32");
    for (const mxs_dtype dtype : {MXS_BF16, MXS_F16})
      for (const int64_t row : {0, 63}) {
        mxs_matrices matrices = small_matrices();
        matrices.gradient_dtype = dtype;
        matrices.gradient_strides.row = row;
        Stepping narrow(matrices, rule.on(2));
        if (narrow.run(3) != MXS_OK) return say(rule.name, "narrow gradients");
        if (narrow.weights.text() != plain.weights.text() ||
            narrow.result.gradient_norm != plain.result.gradient_norm)
          return say(rule.name, "narrow gradients give other bits");
      }
  }
  return true;
}

// scale and clip factor are multiplied into the gradient: powers of two leave no trace.
bool scales_are_multiplied_in() {
  for (const Rule &rule : rules) {
    Stepping plain(matrices_of(20, 30), rule.on(1)), scaled(matrices_of(20, 30), rule.on(1));
    plain.fill_gradient(1);
    scaled.fill_gradient(1);
    for (uint64_t at = 0; at < 600; ++at)
      Stepping::put(scaled.gradient, MXS_F32, at, 8 * Stepping::get(plain.gradient, MXS_F32, at));
    mxs_step_call call = plain.call(), other = scaled.call();
    other.gradient_scale = 0.25f;
    other.clip_factor = 0.5f;
    if (mxs_stepper_step(plain.stepper, &call, &plain.result) != MXS_OK ||
        mxs_stepper_step(scaled.stepper, &other, &scaled.result) != MXS_OK)
      return say(rule.name, "a scaled step");
    if (plain.weights.text() != scaled.weights.text()) return say(rule.name, "scaled gradients give other bits");
    // The norm is scaled, not clipped.
    if (scaled.result.gradient_norm != 2 * plain.result.gradient_norm) return say(rule.name, "norm");
    double squares = 0;
    for (uint64_t at = 0; at < 600; ++at) {
      const double number = static_cast<double>(Stepping::get(plain.gradient, MXS_F32, at));
      squares += number * number;
    }
    if (std::fabs(plain.result.gradient_norm - std::sqrt(squares)) > 1e-12 * std::sqrt(squares))
      return say(rule.name, "the norm is wrong");
  }
  return true;
}

// ---- decay and scale -----------------------------------------------------------------------------------------------

// The update before lr, scale and decay.
std::string update_of(Stepping &stepping) {
  Bytes update(20 * 30 * 4);
  stepping.fill_gradient(1);
  const mxs_step_call call = stepping.call();
  stepping.status = mxs_stepper_update(stepping.stepper, &call, reinterpret_cast<float *>(update.data()), nullptr);
  if (stepping.status == MXS_OK)
    stepping.status = mxs_stepper_apply(stepping.stepper, &call, reinterpret_cast<const float *>(update.data()));
  return update.text();
}

MakeStepper with_decay(bool muon, mxs_decay decay) {
  if (muon) {
    mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
    options.decay = decay;
    return muon_with(options);
  }
  mxs_adamw_options options = MXS_ADAMW_OPTIONS_INIT;
  options.decay = decay;
  return adamw_with(options);
}

bool decay_is_by_its_kind() {
  for (const bool muon : {true, false})
    for (const mxs_decay decay : {MXS_DECAY_PRESET, MXS_DECAY_DECOUPLED, MXS_DECAY_INDEPENDENT, MXS_DECAY_PALM,
                                  MXS_DECAY_CAUTIOUS}) {
      const char *const rule = muon ? "muon" : "adamw";
      Stepping stepping(matrices_of(20, 30), with_decay(muon, decay));
      stepping.values.lr = 0.125f;
      stepping.values.weight_decay = 0.25f;
      Stepping before(matrices_of(20, 30), with_decay(muon, decay));
      const std::string update = update_of(stepping);
      if (stepping.status != MXS_OK) return say(rule, "update and apply");
      const double scale = muon ? static_cast<double>(mxs_muon_scale(MXS_PRESET_DEFAULT, 20, 30)) : 1.0;
      const bool good = each_element(stepping.matrices(), [&](int64_t, int64_t row, int64_t column) {
        float u;
        std::memcpy(&u, update.data() + (row * 30 + column) * 4, 4);
        const double w = static_cast<double>(before.weight(0, row, column));
        double factor = 1 - 0.125 * 0.25;
        if (decay == MXS_DECAY_INDEPENDENT) factor = 1 - 0.25;
        if (decay == MXS_DECAY_PALM) factor = 1 - 0.125 * 0.125 * 0.25;
        if (decay == MXS_DECAY_CAUTIOUS && static_cast<double>(u) * w < 0) factor = 1;
        const double wanted = w * factor - 0.125 * scale * static_cast<double>(u);
        return std::fabs(static_cast<double>(stepping.weight(0, row, column)) - wanted) < 1e-6;
      });
      if (!good) return say(rule, "decay");
    }
  return true;
}

// L2 decay is a gradient that has wd * w in it: and then nothing decays. It reads weights, wherever they are kept.
bool l2_is_part_of_the_gradient() {
  for (const bool muon : {true, false})
    for (const mxs_dtype dtype : {MXS_F32, MXS_BF16}) {
      mxs_matrices matrices = matrices_of(20, 30);
      matrices.dtype = dtype;
      Stepping l2(matrices, with_decay(muon, MXS_DECAY_L2)), plain(matrices_of(20, 30), with_decay(muon, 0));
      l2.values.weight_decay = 0.25f;
      plain.values.weight_decay = 0;
      plain.fill_gradient(1);
      for (uint64_t at = 0; at < 600; ++at) {
        const float weight = Stepping::get(plain.weights, MXS_F32, at);
        Stepping::put(plain.gradient, MXS_F32, at, Stepping::get(plain.gradient, MXS_F32, at) + 0.25f * weight);
      }
      mxs_step_call call = plain.call(), unread = l2.call();
      if (mxs_stepper_step(plain.stepper, &call, nullptr) != MXS_OK || l2.run(1) != MXS_OK) return say("l2", "a step");
      const Bytes &masters = dtype == MXS_F32 ? l2.weights : l2.master;
      if (masters.text() != plain.weights.text()) return say(muon ? "muon" : "adamw", "l2 gives other bits");
      Bytes update(600 * 4);
      unread.weights = nullptr;
      if (mxs_stepper_update(l2.stepper, &unread, reinterpret_cast<float *>(update.data()), nullptr) !=
          MXS_INVALID_ARGUMENT)
        return say(muon ? "muon" : "adamw", "l2 without weights");
    }
  return true;
}

// From weights of zero a step is -lr * scale * update.
bool updates_are_scaled_as_out_and_in() {
  const int64_t blocks[] = {16, 32};
  struct Case {
    void (*set)(mxs_matrices &matrices);
    float scales[2];  // of the first and of the last row
  };
  const auto of = [](int64_t rows, int64_t columns) { return mxs_muon_scale(MXS_PRESET_DION, rows, columns); };
  const Case cases[] = {
      {[](mxs_matrices &) {}, {of(48, 20), of(48, 20)}},
      {[](mxs_matrices &m) { m.transposed = 1; }, {of(20, 48), of(20, 48)}},
      {[](mxs_matrices &m) { m.scale_rows = 96, m.scale_columns = 20; }, {of(96, 20), of(96, 20)}},
      {[](mxs_matrices &m) { m.heads = 4; }, {of(12, 20), of(12, 20)}},
      {[](mxs_matrices &m) { m.heads = 4, m.transposed = 1; }, {of(20, 12), of(20, 12)}},
      {[](mxs_matrices &m) { m.block_count = 2; }, {of(16, 20), of(32, 20)}},
  };
  for (const Case &each : cases) {
    mxs_matrices matrices = matrices_of(48, 20);
    each.set(matrices);
    if (matrices.block_count) matrices.block_rows = blocks;
    mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
    options.preset = MXS_PRESET_DION;
    options.scale_factor = 2;
    Stepping stepping(matrices, muon_with(options));
    std::memset(stepping.weights.data(), 0, stepping.weights.size());
    stepping.values.lr = 0.5f;
    stepping.fill_gradient(1);
    Bytes update(48 * 20 * 4);
    float *const numbers = reinterpret_cast<float *>(update.data());
    const mxs_step_call call = stepping.call();
    if (mxs_stepper_update(stepping.stepper, &call, numbers, nullptr) != MXS_OK ||
        mxs_stepper_apply(stepping.stepper, &call, numbers) != MXS_OK)
      return say("dion", "update and apply");
    for (const int64_t row : {0, 47}) {
      const double wanted = -static_cast<double>(each.scales[row == 47]) * static_cast<double>(numbers[row * 20 + 3]);
      if (std::fabs(static_cast<double>(stepping.weight(0, row, 3)) - wanted) > 1e-6 * std::fabs(wanted))
        return say("dion", "an update is scaled by another factor");
    }
  }
  return true;
}

// ---- columns -------------------------------------------------------------------------------------------------------

// Column blocks, which plans have: each is as a tensor of its own, whose rows have gaps.
bool column_blocks_equal_tensors() {
  constexpr int64_t rows = 24, whole_columns = 50;
  const int64_t widths[] = {16, 30, 4};
  for (const mxs_preset preset : {MXS_PRESET_DEFAULT, MXS_PRESET_NORMUON}) {
    mxs::StepMatrices matrices;
    matrices.rows = rows;
    matrices.columns = whole_columns;
    matrices.count = 2;
    matrices.weight_row = matrices.gradient_row = whole_columns;
    matrices.weight_matrix = matrices.gradient_matrix = rows * whole_columns;
    int64_t first = 0;
    for (const int64_t width : widths) {
      mxs::StepBlock block;
      block.rows = block.scale_rows = rows;
      block.first_column = first;
      block.columns = block.scale_columns = width;
      matrices.blocks.push_back(block);
      first += width;
    }
    mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
    options.preset = preset;
    std::unique_ptr<mxs::LoneStepper> stepper;
    const auto make = [&](std::unique_ptr<mxs::Stepper> *made, const mxs::StepMatrices &given, mxs::Team *team) {
      return mxs::make_muon_stepper(made, given, options, team);
    };
    if (mxs::LoneStepper::create(&stepper, matrices, preset, 2, make) != MXS_OK) return say("muon", "column blocks");
    Stepping whole(matrices_of(rows, whole_columns, 2), muon_on(1));  // its arrays alone are used
    Bytes state(stepper->state_bytes()), workspace(stepper->workspace_bytes());
    if (stepper->init(state.data()) != MXS_OK) return false;
    for (unsigned step = 1; step <= 3; ++step) {
      whole.fill_gradient(step);
      mxs_step_call call = whole.call();
      call.state = state.data();
      call.workspace = workspace.data();
      call.workspace_bytes = workspace.size();
      mxs_step_result result = MXS_STEP_RESULT_INIT;
      if (stepper->step(call, mxs::LoneStepper::Extent::step, nullptr, &result) != MXS_OK) return say("muon", "a step");
    }
    first = 0;
    for (const int64_t width : widths) {
      mxs_matrices alone = matrices_of(rows, width, 2);
      Stepping other(alone, muon_on(1, preset));
      // The numbers of these columns.
      const auto take = [&](const Bytes &from, const Bytes &to) {
        each_element(alone, [&](int64_t matrix, int64_t row, int64_t column) {
          const uint64_t at = whole.place(whole.matrices().weight_strides, matrix, row, first + column);
          Stepping::put(to, MXS_F32, other.place(alone.weight_strides, matrix, row, column),
                        Stepping::get(from, MXS_F32, at));
          return true;
        });
      };
      Stepping fresh(matrices_of(rows, whole_columns, 2), muon_on(1));
      take(fresh.weights, other.weights);
      for (unsigned step = 1; step <= 3; ++step) {
        fresh.fill_gradient(step);
        take(fresh.gradient, other.gradient);
        const mxs_step_call call = other.call();
        if (mxs_stepper_step(other.stepper, &call, nullptr) != MXS_OK) return say("muon", "a block alone");
      }
      const bool equal = each_element(alone, [&](int64_t matrix, int64_t row, int64_t column) {
        return bits_of(other.weight(matrix, row, column)) == bits_of(whole.weight(matrix, row, first + column));
      });
      if (!equal) return say("muon", "a column block has other bits than a tensor of its own");
      first += width;
    }
  }
  return true;
}

// ---- heads ---------------------------------------------------------------------------------------------------------

bool heads_are_scaled() {
  const float factors[] = {1, 0.5f, 0.75f, 1};
  for (const mxs_weights weights : {MXS_WEIGHTS_DEFAULT, MXS_WEIGHTS_MASTER, MXS_WEIGHTS_REMAINDER}) {
    mxs_matrices matrices = matrices_of(12, 20);
    matrices.weight_strides.row = 23;
    matrices.dtype = weights == MXS_WEIGHTS_DEFAULT ? MXS_F32 : MXS_BF16;
    matrices.weights = weights;
    Stepping before(matrices, muon_on(1)), after(matrices, muon_on(1));
    void *const master = after.master.size() > 0 ? after.master.data() : nullptr;
    if (mxs_scale_heads(&matrices, after.weights.data(), master, factors, 4, 1) != MXS_OK)
      return say("heads", "scaling");
    const bool good = each_element(after.matrices(), [&](int64_t, int64_t row, int64_t column) {
      const uint64_t at = after.place(matrices.weight_strides, 0, row, column);
      const float wanted = before.weight(0, row, column) * factors[row / 3];
      if (weights == MXS_WEIGHTS_REMAINDER)
        return (static_cast<uint32_t>(half_of(after.weights, at)) << 16 | half_of(after.master, at)) == bits_of(wanted);
      if (weights == MXS_WEIGHTS_MASTER)
        return Stepping::get(after.master, MXS_F32, at) == wanted &&
               half_of(after.weights, at) == mxs::bf16_from_float(wanted);
      return after.weight(0, row, column) == wanted;
    });
    if (!good || !after.gaps_are_untouched()) return say("heads", "wrong numbers");
  }
  return true;
}

bool wrong_heads_are_refused() {
  mxs_matrices matrices = matrices_of(12, 20), batch = matrices_of(12, 20, 2), blocks = matrices_of(12, 20);
  const int64_t rows[] = {6, 6};
  blocks.block_rows = rows;
  blocks.block_count = 2;
  float factors[] = {1, 0.5f, 0.75f, NAN}, negative[] = {-1};
  Stepping stepping(matrices, muon_on(1));
  void *const weights = stepping.weights.data();
  const std::string before = stepping.weights.text();
  struct Case {
    const mxs_matrices *matrices;
    void *weights, *master;
    const float *factors;
    int32_t heads;
    const char *words;
  };
  const Case cases[] = {
      {nullptr, weights, nullptr, factors, 3, "matrices is NULL"},
      {&matrices, nullptr, nullptr, factors, 3, "weights is NULL"},
      {&matrices, static_cast<char *>(weights) + 2, nullptr, factors, 3, "multiple of 4"},
      {&matrices, weights, weights, factors, 3, "master is set"},
      {&matrices, weights, nullptr, nullptr, 3, "factors is NULL"},
      {&matrices, weights, nullptr, static_cast<float *>(weights), 3, "overlap"},
      {&matrices, weights, nullptr, factors, 4, "factors[3] is nan"},
      {&matrices, weights, nullptr, negative, 1, "factors[0] is -1"},
      {&matrices, weights, nullptr, factors, 0, "heads is 0"},
      {&matrices, weights, nullptr, factors, -3, "heads is -3"},
      {&matrices, weights, nullptr, factors, 5, "divide"},
      {&batch, weights, nullptr, factors, 3, "one matrix"},
      {&blocks, weights, nullptr, factors, 3, "without blocks"},
  };
  for (const Case &each : cases) {
    const mxs_status status =
        mxs_scale_heads(each.matrices, each.weights, each.master, each.factors, each.heads, 1);
    if (status != MXS_INVALID_ARGUMENT || !std::strstr(mxs_last_error(), each.words) ||
        stepping.weights.text() != before)
      return say("heads", each.words);
  }
  return true;
}

void masters_and_remainders_have_the_bits_of_fp32_weights(void **) { assert_true(masters_have_the_bits_of_fp32()); }
void weights_without_a_master_are_rounded(void **) { assert_true(lone_bf16_is_rounded()); }
void random_bits_belong_to_elements(void **) { assert_true(stochastic_rounding_does_not_see_layouts()); }
void gradients_of_16_bits_are_as_fp32(void **) { assert_true(narrow_gradients_are_widened()); }
void gradients_are_scaled_and_clipped(void **) { assert_true(scales_are_multiplied_in()); }
void weights_decay_by_the_kind_of_decay(void **) { assert_true(decay_is_by_its_kind()); }
void l2_decay_is_part_of_the_gradient(void **) { assert_true(l2_is_part_of_the_gradient()); }
void an_update_is_scaled_as_out_and_in(void **) { assert_true(updates_are_scaled_as_out_and_in()); }
void column_blocks_are_as_tensors_of_their_own(void **) { assert_true(column_blocks_equal_tensors()); }
void rows_of_heads_are_scaled(void **) { assert_true(heads_are_scaled()); }
void heads_that_make_no_sense_are_refused(void **) { assert_true(wrong_heads_are_refused()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(masters_and_remainders_have_the_bits_of_fp32_weights),
      cmocka_unit_test(weights_without_a_master_are_rounded),
      cmocka_unit_test(random_bits_belong_to_elements),
      cmocka_unit_test(gradients_of_16_bits_are_as_fp32),
      cmocka_unit_test(gradients_are_scaled_and_clipped),
      cmocka_unit_test(weights_decay_by_the_kind_of_decay),
      cmocka_unit_test(l2_decay_is_part_of_the_gradient),
      cmocka_unit_test(an_update_is_scaled_as_out_and_in),
      cmocka_unit_test(column_blocks_are_as_tensors_of_their_own),
      cmocka_unit_test(rows_of_heads_are_scaled),
      cmocka_unit_test(heads_that_make_no_sense_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
