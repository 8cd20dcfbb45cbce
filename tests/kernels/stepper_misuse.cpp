// SPDX-License-Identifier: Apache-2.0
// Steppers and what is wrong with a call, with matrices, with a gradient or with a state: a status, a sentence that
// names the cause, and nothing changed.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "support/stepping.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

bool says(mxs_status got, mxs_status wanted, const char *words, const char *what) {
  if (got == wanted && std::strstr(mxs_last_error(), words)) return true;
  print_error("%s: status %d (not %d): %s (not \"%s\")\n", what, got, wanted, mxs_last_error(), words);
  return false;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

struct Wrong {
  const char *words;  // of the sentence
  void (*spoil)(Stepping &stepping, mxs_step_call &call);
  bool updates = false;  // an update has no use for it
};

const Wrong wrong_calls[] = {
    {"call.values is NULL", [](Stepping &, mxs_step_call &call) { call.values = nullptr; }},
    {"gradient is NULL", [](Stepping &, mxs_step_call &call) { call.gradient = nullptr; }},
    {"weights is NULL", [](Stepping &, mxs_step_call &call) { call.weights = nullptr; }, true},
    {"master is NULL", [](Stepping &, mxs_step_call &call) { call.master = nullptr; }, true},
    {"state is NULL", [](Stepping &, mxs_step_call &call) { call.state = nullptr; }},
    {"workspace is NULL", [](Stepping &, mxs_step_call &call) { call.workspace = nullptr; }},
    {"workspace has 64 bytes, this stepper needs", [](Stepping &, mxs_step_call &call) { call.workspace_bytes = 64; }},
    {"not at a multiple of 64",
     [](Stepping &, mxs_step_call &call) { call.state = static_cast<char *>(call.state) + 8; }},
    {"not at a multiple of 64",
     [](Stepping &, mxs_step_call &call) { call.workspace = static_cast<char *>(call.workspace) + 32; }},
    {"not at a multiple of 4",
     [](Stepping &, mxs_step_call &call) { call.gradient = static_cast<const char *>(call.gradient) + 2; }},
    {"not at a multiple of 2",
     [](Stepping &, mxs_step_call &call) { call.weights = static_cast<char *>(call.weights) + 1; }, true},
    {"gradient_scale", [](Stepping &, mxs_step_call &call) { call.gradient_scale = NAN; }},
    {"clip_factor", [](Stepping &, mxs_step_call &call) { call.clip_factor = -INFINITY; }},
    {"gradient_scale * call.clip_factor is inf",
     [](Stepping &, mxs_step_call &call) { call.gradient_scale = call.clip_factor = 1e30f; }},
    {"values.lr", [](Stepping &stepping, mxs_step_call &) { stepping.values.lr = NAN; }},
    {"values.weight_decay", [](Stepping &stepping, mxs_step_call &) { stepping.values.weight_decay = -1; }},
    {"values.momentum is 1; it must be 0 or more, and below 1",
     [](Stepping &stepping, mxs_step_call &) { stepping.values.momentum = 1; }},
    {"values.lr is -0.5; it must be 0 or more, and finite",
     [](Stepping &stepping, mxs_step_call &) { stepping.values.lr = -0.5f; }},
    {"values.beta1", [](Stepping &stepping, mxs_step_call &) { stepping.values.beta1 = 1; }},
    {"values.beta2", [](Stepping &stepping, mxs_step_call &) { stepping.values.beta2 = 1; }},
    {"values.epsilon", [](Stepping &stepping, mxs_step_call &) { stepping.values.epsilon = INFINITY; }},
    {"call.size", [](Stepping &, mxs_step_call &call) { call.size = 8; }},
    {"values.size", [](Stepping &stepping, mxs_step_call &) { stepping.values.size = 4; }},
    {"gradient (", [](Stepping &, mxs_step_call &call) { call.gradient = call.weights; }},
    {"master (", [](Stepping &, mxs_step_call &call) { call.master = call.state; }},
    {"overlap", [](Stepping &, mxs_step_call &call) { call.workspace = static_cast<char *>(call.state) + 64; }},
    {"overlap", [](Stepping &, mxs_step_call &call) { call.weights = call.master; }},
    {"overlap", [](Stepping &stepping, mxs_step_call &call) {
       // The last bytes of one lie in the first of the other.
       call.gradient = stepping.master.data() + stepping.master.size() - 4;
     }},
};

mxs_matrices bf16_matrices() {
  mxs_matrices matrices = matrices_of(24, 40, 2);
  matrices.dtype = MXS_BF16;
  return matrices;
}

bool wrong_calls_change_nothing() {
  for (const Wrong &wrong : wrong_calls) {
    Stepping stepping(bf16_matrices(), muon_on(2));
    if (stepping.run(1) != MXS_OK) return says(stepping.status, MXS_OK, "", "a good step");
    mxs_step_call call = stepping.call();
    wrong.spoil(stepping, call);
    const std::string before = stepping.everything() + stepping.workspace.text();
    if (!says(mxs_stepper_step(stepping.stepper, &call, &stepping.result), MXS_INVALID_ARGUMENT, wrong.words, "step"))
      return false;
    Bytes update(24 * 40 * 2 * 4);
    const std::string poisoned = update.text();
    float *const numbers = reinterpret_cast<float *>(update.data());
    const mxs_status status = mxs_stepper_update(stepping.stepper, &call, numbers, nullptr);
    if (wrong.updates) {
      if (status != MXS_OK) return says(status, MXS_OK, "", wrong.words);
      continue;
    }
    if (!says(status, MXS_INVALID_ARGUMENT, wrong.words, "update")) return false;
    if (update.text() != poisoned || stepping.everything() + stepping.workspace.text() != before) {
      print_error("a call with \"%s\" changed something\n", wrong.words);
      return false;
    }
  }
  return true;
}

bool missing_things_are_named() {
  Stepping stepping(bf16_matrices(), muon_on(1));
  const mxs_step_call call = stepping.call();
  Bytes update(24 * 40 * 2 * 4 + 64);
  float *const numbers = reinterpret_cast<float *>(update.data());
  mxs_step_result short_one = MXS_STEP_RESULT_INIT;
  short_one.size = 4;
  mxs_stepper_info info = MXS_STEPPER_INFO_INIT;
  mxs_state_part part = MXS_STATE_PART_INIT;
  stepping.fill_gradient(1);
  const std::string before = stepping.everything();
  const bool refused =
      says(mxs_stepper_step(nullptr, &call, nullptr), MXS_INVALID_ARGUMENT, "stepper is NULL", "no stepper") &&
      says(mxs_stepper_step(stepping.stepper, nullptr, nullptr), MXS_INVALID_ARGUMENT, "call is NULL", "no call") &&
      says(mxs_stepper_step(stepping.stepper, &call, &short_one), MXS_INVALID_ARGUMENT, "result->size", "result") &&
      says(mxs_stepper_update(stepping.stepper, &call, nullptr, nullptr), MXS_INVALID_ARGUMENT, "update is NULL",
           "no update") &&
      says(mxs_stepper_update(stepping.stepper, &call, reinterpret_cast<float *>(update.data() + 1), nullptr),
           MXS_INVALID_ARGUMENT, "not at a multiple of 4", "update") &&
      says(mxs_stepper_update(stepping.stepper, &call, reinterpret_cast<float *>(stepping.gradient.data()), nullptr),
           MXS_INVALID_ARGUMENT, "overlap", "update on the gradient") &&
      says(mxs_stepper_apply(stepping.stepper, &call, nullptr), MXS_INVALID_ARGUMENT, "update is NULL", "no update") &&
      says(mxs_stepper_apply(stepping.stepper, &call, reinterpret_cast<float *>(stepping.master.data())),
           MXS_INVALID_ARGUMENT, "overlap", "update on the masters") &&
      says(mxs_stepper_apply(stepping.stepper, &call, numbers), MXS_INVALID_ARGUMENT, "no step", "apply first") &&
      says(mxs_stepper_init(stepping.stepper, nullptr), MXS_INVALID_ARGUMENT, "state is NULL", "init") &&
      says(mxs_stepper_init(stepping.stepper, stepping.state.data() + 8), MXS_INVALID_ARGUMENT, "multiple of 64",
           "init") &&
      says(mxs_stepper_init(nullptr, stepping.state.data()), MXS_INVALID_ARGUMENT, "stepper is NULL", "init") &&
      says(mxs_stepper_describe(nullptr, &info), MXS_INVALID_ARGUMENT, "stepper is NULL", "describe") &&
      says(mxs_stepper_describe(stepping.stepper, nullptr), MXS_INVALID_ARGUMENT, "info is NULL", "describe") &&
      says(mxs_stepper_state(nullptr, 0, &part), MXS_INVALID_ARGUMENT, "stepper is NULL", "state") &&
      says(mxs_stepper_state(stepping.stepper, 0, nullptr), MXS_INVALID_ARGUMENT, "part is NULL", "state") &&
      says(mxs_stepper_state(stepping.stepper, 1, &part), MXS_NOT_FOUND, "part 1", "state") &&
      says(mxs_stepper_check_state(stepping.stepper, nullptr, 64), MXS_INVALID_ARGUMENT, "state is NULL", "check");
  if (!refused || stepping.everything() != before) return false;
  mxs_stepper *none = nullptr;
  mxs_stepper_destroy(nullptr);
  mxs_stepper_destroy(&none);
  return mxs_stepper_state_bytes(nullptr) == 0 && mxs_stepper_workspace_bytes(nullptr) == 0 &&
         mxs_stepper_state_count(nullptr) == 0;
}

// ---- matrices ------------------------------------------------------------------------------------------------------

struct WrongMatrices {
  const char *words;
  void (*spoil)(mxs_matrices &matrices);
};

const int64_t blocks_short[] = {8, 8}, blocks_long[] = {16, 16}, blocks_zero[] = {24, 0}, blocks_odd[] = {9, 15};
constexpr int64_t huge = int64_t{1} << 40;

const WrongMatrices wrong_matrices[] = {
    {"matrices.size", [](mxs_matrices &m) { m.size = 12; }},
    {"0 x 40", [](mxs_matrices &m) { m.rows = 0; }},
    {"24 x -1", [](mxs_matrices &m) { m.columns = -1; }},
    {"2^40", [](mxs_matrices &m) { m.rows = m.columns = huge; }},
    {"2^40", [](mxs_matrices &m) { m.rows = std::numeric_limits<int64_t>::max(); }},
    {"matrices.count is -1", [](mxs_matrices &m) { m.count = -1; }},
    {"matrices.count", [](mxs_matrices &m) { m.count = huge; }},
    {"matrices.dtype", [](mxs_matrices &m) { m.dtype = MXS_F64; }},
    {"matrices.dtype", [](mxs_matrices &m) { m.dtype = 77; }},
    {"matrices.gradient_dtype", [](mxs_matrices &m) { m.gradient_dtype = MXS_U8; }},
    {"matrices.weights", [](mxs_matrices &m) { m.weights = 9; }},
    {"their own", [](mxs_matrices &m) { m.weights = MXS_WEIGHTS_MASTER; }},
    {"for bf16; dtype is f32", [](mxs_matrices &m) { m.weights = MXS_WEIGHTS_REMAINDER; }},
    {"for bf16; dtype is f16", [](mxs_matrices &m) { m.weights = MXS_WEIGHTS_REMAINDER, m.dtype = MXS_F16; }},
    {"matrices.rounding", [](mxs_matrices &m) { m.rounding = 5; }},
    {"STOCHASTIC", [](mxs_matrices &m) { m.rounding = MXS_ROUND_STOCHASTIC; }},
    {"have a master", [](mxs_matrices &m) { m.rounding = MXS_ROUND_STOCHASTIC, m.dtype = MXS_BF16; }},
    {"weight_strides.size", [](mxs_matrices &m) { m.weight_strides.size = 0; }},
    {"gradient_strides.size", [](mxs_matrices &m) { m.gradient_strides.size = 4; }},
    {"row -5", [](mxs_matrices &m) { m.weight_strides.row = -5; }},
    {"they overlap", [](mxs_matrices &m) { m.weight_strides.row = 39; }},
    {"2^40", [](mxs_matrices &m) { m.gradient_strides.row = huge; }},
    {"2^40", [](mxs_matrices &m) { m.gradient_strides.matrix = huge; }},
    {"overlap", [](mxs_matrices &m) { m.weight_strides.matrix = 24 * 40 - 1; }},
    {"overlap", [](mxs_matrices &m) { m.gradient_strides.row = 60, m.gradient_strides.matrix = 40; }},
    {"blocks have 16 rows", [](mxs_matrices &m) { m.block_rows = blocks_short, m.block_count = 2; }},
    {"block_rows[1] is 16, with 8 of 24", [](mxs_matrices &m) { m.block_rows = blocks_long, m.block_count = 2; }},
    {"block_rows[1] is 0", [](mxs_matrices &m) { m.block_rows = blocks_zero, m.block_count = 2; }},
    {"block_rows is NULL", [](mxs_matrices &m) { m.block_count = 2; }},
    {"block_count is 0", [](mxs_matrices &m) { m.block_rows = blocks_short; }},
    {"heads is -1", [](mxs_matrices &m) { m.heads = -1; }},
    {"doesn't divide", [](mxs_matrices &m) { m.heads = 5; }},
    {"9 rows of block 0", [](mxs_matrices &m) { m.block_rows = blocks_odd, m.block_count = 2, m.heads = 3 - 1; }},
    {"parts", [](mxs_matrices &m) { m.heads = 1 << 30; }},
    {"transposed is 2", [](mxs_matrices &m) { m.transposed = 2; }},
    {"scale_rows", [](mxs_matrices &m) { m.scale_rows = 48; }},
    {"scale_rows", [](mxs_matrices &m) { m.scale_rows = m.scale_columns = huge; }},
    {"by its own size", [](mxs_matrices &m) { m.scale_rows = m.scale_columns = 48, m.heads = 2; }},
};

bool wrong_matrices_are_refused() {
  for (const WrongMatrices &wrong : wrong_matrices)
    for (const MakeStepper &make : {muon_on(1), adamw_on(1)}) {
      mxs_matrices matrices = matrices_of(24, 40, 2);
      wrong.spoil(matrices);
      mxs_stepper *stepper = nullptr;
      if (!says(make(&stepper, &matrices), MXS_INVALID_ARGUMENT, wrong.words, "matrices") || stepper) return false;
    }
  return true;
}

// One that took minutes, or all memory. Elements of adamw are each alone, however many matrices they are of.
bool batches_of_too_many_blocks_are_refused() {
  mxs_matrices matrices = matrices_of(1, 1, int64_t{1} << 40);
  mxs_stepper *stepper = nullptr;
  if (!says(mxs_muon_create(&stepper, &matrices, nullptr), MXS_INVALID_ARGUMENT, "at most 1048576 blocks", "2^40"))
    return false;
  matrices = matrices_of(4, 4, (1 << 18) + 1);
  matrices.heads = 4;
  if (!says(mxs_muon_create(&stepper, &matrices, nullptr), MXS_INVALID_ARGUMENT, "of 4 blocks", "heads")) return false;
  mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
  options.block_max = 1;
  matrices = matrices_of(int64_t{1} << 20, int64_t{1} << 20);
  if (!says(mxs_shampoo_create(&stepper, &matrices, &options), MXS_INVALID_ARGUMENT, "set a larger block_max", "cut"))
    return false;
  if (stepper) return false;
  matrices = matrices_of(1, 1, int64_t{1} << 40);
  const mxs_status status = mxs_adamw_create(&stepper, &matrices, nullptr);
  const bool made = says(status, MXS_OK, "", "adamw") && mxs_stepper_state_bytes(stepper) == (uint64_t{8} << 40) + 64;
  mxs_stepper_destroy(&stepper);
  return made;
}

bool wrong_options_are_refused() {
  const mxs_matrices matrices = matrices_of(8, 8);
  mxs_stepper *stepper = nullptr;
  const auto muon = [&](void (*spoil)(mxs_muon_options &)) {
    mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
    spoil(options);
    return mxs_muon_create(&stepper, &matrices, &options);
  };
  mxs_matrices transposed = matrices;
  transposed.transposed = 1;
  mxs_muon_options normuon = MXS_MUON_OPTIONS_INIT;
  normuon.preset = MXS_PRESET_NORMUON;
  static const mxs_newton_schulz short_one = [] {
    mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
    options.size = 16;
    return options;
  }();
  return says(mxs_muon_create(nullptr, &matrices, nullptr), MXS_INVALID_ARGUMENT, "stepper is NULL", "stepper") &&
         says(mxs_muon_create(&stepper, nullptr, nullptr), MXS_INVALID_ARGUMENT, "matrices is NULL", "matrices") &&
         says(mxs_adamw_create(&stepper, nullptr, nullptr), MXS_INVALID_ARGUMENT, "matrices is NULL", "matrices") &&
         says(muon([](mxs_muon_options &o) { o.size = 1; }), MXS_INVALID_ARGUMENT, "options.size", "size") &&
         says(muon([](mxs_muon_options &o) { o.newton_schulz = &short_one; }), MXS_INVALID_ARGUMENT,
              "options.newton_schulz.size", "newton_schulz") &&
         says(muon([](mxs_muon_options &o) { o.preset = MXS_PRESET_SOAP; }), MXS_INVALID_ARGUMENT, "soap", "preset") &&
         says(muon([](mxs_muon_options &o) { o.thread_count = -1; }), MXS_INVALID_ARGUMENT, "thread_count", "-1") &&
         says(muon([](mxs_muon_options &o) { o.thread_count = 5000; }), MXS_INVALID_ARGUMENT, "4096", "threads") &&
         says(mxs_muon_create(&stepper, &transposed, &normuon), MXS_NOT_BUILT, "column", "NorMuon transposed") &&
         !stepper;
}

// ---- gradients -----------------------------------------------------------------------------------------------------

struct BadGradient {
  MakeStepper make;
  float value, scale, clip_factor;
  bool finite;
};

// A step is skipped and counted, its number doesn't advance, and the next one is as if nothing had been.
bool bad_gradients_are_skipped() {
  const BadGradient all[] = {
      {muon_on(2), NAN, 0, 0, false},     {muon_on(1), INFINITY, 0, 0, false}, {adamw_on(2), -INFINITY, 0, 0, false},
      {adamw_on(1), 1e30f, 1e30f, 0, false},  // infinite once it is scaled
      {adamw_on(1), 1e20f, 0, 0, true},       // its square is not in fp32
      {muon_on(1), 1e31f, 0, 0, true},        // nor would a sum of such be
      {adamw_on(1), 1e10f, 0, 1e12f, true},
  };
  for (const BadGradient &bad : all)
    for (const mxs_dtype dtype : {MXS_F32, MXS_BF16}) {
      mxs_matrices matrices = matrices_of(33, 65, 2);
      matrices.gradient_dtype = dtype;
      matrices.gradient_strides.row = 70;
      Stepping good(matrices, bad.make), stepping(matrices, bad.make);
      if (good.run(2) != MXS_OK || stepping.run(1) != MXS_OK) return says(MXS_INTERNAL, MXS_OK, "", "good steps");
      Stepping::put(stepping.gradient, dtype, stepping.place(matrices.gradient_strides, 1, 32, 64), bad.value);
      mxs_step_call call = stepping.call();
      call.gradient_scale = bad.scale;
      call.clip_factor = bad.clip_factor;
      const std::string weights = stepping.weights.text(), state = stepping.state.text();
      Bytes update(33 * 65 * 2 * 4);
      const std::string poisoned = update.text();
      if (mxs_stepper_step(stepping.stepper, &call, &stepping.result) != MXS_OK ||
          mxs_stepper_update(stepping.stepper, &call, reinterpret_cast<float *>(update.data()), &stepping.result))
        return says(MXS_INTERNAL, MXS_OK, "", "a skipped step");
      if (stepping.result.skipped != 1 || stepping.result.step_number != 1 || stepping.result.skipped_count != 2 ||
          std::isfinite(stepping.result.gradient_norm) != bad.finite || update.text() != poisoned) {
        print_error("%g: skipped %d, step %llu, %llu skipped, norm %g\n", static_cast<double>(bad.value),
                    stepping.result.skipped, static_cast<unsigned long long>(stepping.result.step_number),
                    static_cast<unsigned long long>(stepping.result.skipped_count), stepping.result.gradient_norm);
        return false;
      }
      if (stepping.weights.text() != weights || stepping.state.text().substr(64) != state.substr(64)) return false;
      if (stepping.run(1) != MXS_OK || stepping.result.skipped != 0 || stepping.result.step_number != 2 ||
          stepping.weights.text() != good.weights.text())
        return says(MXS_INTERNAL, MXS_OK, "", "the step after a skipped one");
    }
  return true;
}

bool poisoned_gaps_of_a_gradient_are_not_looked_at() {
  mxs_matrices matrices = matrices_of(5, 7, 3);
  matrices.gradient_strides.row = 9;
  matrices.gradient_strides.matrix = 50;
  for (const MakeStepper &make : {muon_on(1), adamw_on(1)}) {
    Stepping stepping(matrices, make);
    for (uint64_t at = 0; at < stepping.gradient.size() / 4; ++at)
      Stepping::put(stepping.gradient, MXS_F32, at, NAN);
    if (stepping.run(2) != MXS_OK || stepping.result.skipped != 0) return false;
  }
  return true;
}

// ---- states --------------------------------------------------------------------------------------------------------

bool states_of_others_are_refused() {
  const mxs_matrices matrices = matrices_of(24, 40, 2);
  mxs_matrices narrow = matrices, other_gradient = matrices, other_shape = matrices, heads = matrices, alone = matrices;
  narrow.dtype = alone.dtype = MXS_BF16;
  alone.weights = MXS_WEIGHTS_ALONE;
  other_gradient.gradient_dtype = MXS_F16;
  std::swap(other_shape.rows, other_shape.columns);
  heads.heads = 2;
  mxs_muon_options sums = MXS_MUON_OPTIONS_INIT, normuon = MXS_MUON_OPTIONS_INIT;
  sums.momentum = MXS_MOMENTUM_SGD;
  normuon.normuon = MXS_ON;
  struct Other {
    const char *words;
    mxs_matrices matrices;
    MakeStepper make;
  };
  const Other others[] = {
      {"the rule adamw, this stepper of muon", matrices, adamw_on(1)},
      {"the preset moonlight, this stepper of default", matrices, muon_on(1, MXS_PRESET_MOONLIGHT)},
      {"weights in bf16, this stepper of f32", narrow, muon_on(1)},
      {"gradients in f16, this stepper of f32", other_gradient, muon_on(1)},
      {"rows, columns", other_shape, muon_on(1)},
      {"heads differ", heads, muon_on(1)},
      {"other options", matrices, muon_with(sums)},
      {"other options", matrices, muon_with(normuon)},
  };
  Stepping stepping(matrices, muon_on(1));
  stepping.fill_gradient(1);
  for (const Other &other : others) {
    Stepping made(other.matrices, other.make);
    if (made.status != MXS_OK) return says(made.status, MXS_OK, "", other.words);
    Bytes state(std::max(made.state.size(), stepping.state.size()));
    std::memset(state.data(), 0, state.size());
    std::memcpy(state.data(), made.state.data(), made.state.size());
    const mxs_status checked = mxs_stepper_check_state(stepping.stepper, state.data(), state.size());
    if (!says(checked, MXS_MISMATCH, other.words, "check")) return false;
    mxs_step_call call = stepping.call();
    call.state = state.data();
    const std::string before = stepping.everything() + state.text();
    if (!says(mxs_stepper_step(stepping.stepper, &call, nullptr), MXS_MISMATCH, other.words, "step")) return false;
    if (stepping.everything() + state.text() != before) return false;
  }
  Stepping with_master(narrow, muon_on(1)), without(alone, muon_on(1));
  return says(mxs_stepper_check_state(with_master.stepper, without.state.data(), without.state.size()), MXS_MISMATCH,
              "weights alone, this stepper of beside a master", "weights");
}

bool damaged_states_are_refused() {
  Stepping stepping(matrices_of(24, 40, 2), muon_on(1));
  if (stepping.run(2) != MXS_OK) return false;
  const auto check = [&](uint64_t bytes) {
    return mxs_stepper_check_state(stepping.stepper, stepping.state.data(), bytes);
  };
  const uint64_t bytes = stepping.state.size();
  if (check(bytes) != MXS_OK || !says(check(63), MXS_MISMATCH, "63 bytes", "too short") ||
      !says(check(bytes - 1), MXS_MISMATCH, "cut off", "cut off"))
    return false;
  // At any border, as it may lie in a file that is mapped.
  std::string moved(1, 'x');
  moved += stepping.state.text();
  if (mxs_stepper_check_state(stepping.stepper, moved.data() + 1, bytes) != MXS_OK) return false;
  float *const momentum = reinterpret_cast<float *>(stepping.state.data() + 64);
  momentum[1000] = NAN;
  if (!says(check(bytes), MXS_MISMATCH, "element 1000 of its \"momentum\"", "NaN")) return false;
  // Who steps nevertheless hears of it.
  stepping.fill_gradient(3);
  const mxs_step_call call = stepping.call();
  if (!says(mxs_stepper_step(stepping.stepper, &call, nullptr), MXS_INTERNAL, "matrix 1 is not finite", "damaged"))
    return false;
  const Bytes nothing(bytes);
  if (!says(mxs_stepper_check_state(stepping.stepper, nothing.data(), bytes), MXS_MISMATCH, "no state", "poison"))
    return false;
  stepping.state.data()[8] = 9;
  return says(check(bytes), MXS_MISMATCH, "version 9, this release reads 1", "version");
}

mxs_status shampoo(mxs_stepper **stepper, const mxs_matrices *matrices) {
  return mxs_shampoo_create(stepper, matrices, nullptr);
}

// Numbers that nothing is divided by, until they wrap; and counts that are none.
bool damaged_numbers_of_a_state_are_refused() {
  for (const MakeStepper &make : {muon_on(1), adamw_on(1), MakeStepper(shampoo)}) {
    Stepping stepping(matrices_of(5, 7), make);
    if (stepping.run(1) != MXS_OK) return says(stepping.status, MXS_OK, "", "a good step");
    const auto check = [&] {
      return mxs_stepper_check_state(stepping.stepper, stepping.state.data(), stepping.state.size());
    };
    const uint64_t good = 1, far = UINT64_MAX;
    unsigned char *const step_number = stepping.state.data() + 32;
    if (std::memcmp(step_number, &good, sizeof good) != 0) return says(MXS_INTERNAL, MXS_OK, "", "its place");
    std::memcpy(step_number, &far, sizeof far);
    const std::string before = stepping.everything();
    if (!says(check(), MXS_MISMATCH, "18446744073709551615 steps", "check")) return false;
    const mxs_step_call call = stepping.call();
    if (!says(mxs_stepper_step(stepping.stepper, &call, nullptr), MXS_MISMATCH, "damaged", "step")) return false;
    if (stepping.everything() != before) return false;
    std::memcpy(step_number, &good, sizeof good);
    if (check() != MXS_OK) return says(MXS_INTERNAL, MXS_OK, "", "repaired");
  }
  Stepping stepping(matrices_of(5, 7), MakeStepper(shampoo));
  if (stepping.run(1) != MXS_OK) return false;
  mxs_state_part part = MXS_STATE_PART_INIT;
  mxs_stepper_state(stepping.stepper, mxs_stepper_state_count(stepping.stepper) - 1, &part);
  if (std::strcmp(part.name, "failures") != 0 || part.dtype != MXS_F64) return false;
  for (const double count : {-1.0, 0.5, 1e300, static_cast<double>(NAN)}) {
    std::memcpy(stepping.state.data() + part.offset + sizeof count, &count, sizeof count);
    if (!says(mxs_stepper_check_state(stepping.stepper, stepping.state.data(), stepping.state.size()), MXS_MISMATCH,
              "element 1 of its \"failures\"", "failures"))
      return false;
    const mxs_step_call call = stepping.call();
    if (mxs_stepper_step(stepping.stepper, &call, &stepping.result) != MXS_OK) return false;
  }
  return true;
}

// A state is a block of bytes: copied, it continues elsewhere, with another stepper and other threads.
bool states_continue_elsewhere() {
  for (const int way : {0, 1}) {
    const auto on = [way](int32_t threads) { return way == 0 ? muon_on(threads) : adamw_on(threads); };
    const mxs_matrices matrices = matrices_of(24, 40, 2);
    Stepping first(matrices, on(1)), second(matrices, on(2));
    if (first.run(3) != MXS_OK || second.run(3) != MXS_OK) return false;
    Stepping third(matrices, on(3));
    std::memcpy(third.state.data(), first.state.data(), first.state.size());
    std::memcpy(third.weights.data(), first.weights.data(), first.weights.size());
    if (mxs_stepper_check_state(third.stepper, third.state.data(), third.state.size()) != MXS_OK) return false;
    second.fill_gradient(9);
    third.fill_gradient(9);
    const mxs_step_call a = second.call(), b = third.call();
    if (mxs_stepper_step(second.stepper, &a, &second.result) || mxs_stepper_step(third.stepper, &b, &third.result))
      return false;
    if (third.result.step_number != 4 || second.everything() != third.everything()) return false;
  }
  return true;
}

// Two threads with one stepper: each call is made alone, or refused and hasn't changed anything.
bool calls_at_once_are_refused() {
  Stepping stepping(matrices_of(64, 64, 4), adamw_on(2));
  stepping.fill_gradient(1);
  std::atomic<int> made{0}, others{0};
  const mxs_step_call call = stepping.call();
  const auto step = [&] {
    for (int turn = 0; turn < 200; ++turn) {
      const mxs_status status = mxs_stepper_step(stepping.stepper, &call, nullptr);
      if (status == MXS_OK) ++made;
      if (status != MXS_OK && status != MXS_HELD) ++others;
    }
  };
  std::thread one(step), two(step);
  one.join();
  two.join();
  Stepping alone(matrices_of(64, 64, 4), adamw_on(1));
  alone.fill_gradient(1);
  const mxs_step_call again = alone.call();
  for (int turn = 0; turn < made; ++turn)
    if (mxs_stepper_step(alone.stepper, &again, nullptr) != MXS_OK) return false;
  return others == 0 && made > 0 && alone.everything() == stepping.everything();
}

void calls_of_one_stepper_are_made_one_at_a_time(void **) { assert_true(calls_at_once_are_refused()); }
void a_wrong_call_changes_nothing(void **) { assert_true(wrong_calls_change_nothing()); }
void what_is_missing_is_named(void **) { assert_true(missing_things_are_named()); }
void matrices_that_fit_nowhere_are_refused(void **) { assert_true(wrong_matrices_are_refused()); }
void a_batch_of_too_many_blocks_is_refused(void **) { assert_true(batches_of_too_many_blocks_are_refused()); }
void options_out_of_range_are_refused(void **) { assert_true(wrong_options_are_refused()); }
void a_gradient_that_is_not_finite_skips_the_step(void **) { assert_true(bad_gradients_are_skipped()); }
void gaps_in_gradients_are_not_read(void **) { assert_true(poisoned_gaps_of_a_gradient_are_not_looked_at()); }
void the_state_of_another_stepper_is_refused(void **) { assert_true(states_of_others_are_refused()); }
void a_damaged_state_is_refused(void **) { assert_true(damaged_states_are_refused()); }
void numbers_of_a_state_that_cannot_be_are_refused(void **) { assert_true(damaged_numbers_of_a_state_are_refused()); }
void a_state_continues_in_another_stepper(void **) { assert_true(states_continue_elsewhere()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_wrong_call_changes_nothing),
      cmocka_unit_test(what_is_missing_is_named),
      cmocka_unit_test(calls_of_one_stepper_are_made_one_at_a_time),
      cmocka_unit_test(matrices_that_fit_nowhere_are_refused),
      cmocka_unit_test(a_batch_of_too_many_blocks_is_refused),
      cmocka_unit_test(options_out_of_range_are_refused),
      cmocka_unit_test(a_gradient_that_is_not_finite_skips_the_step),
      cmocka_unit_test(gaps_in_gradients_are_not_read),
      cmocka_unit_test(the_state_of_another_stepper_is_refused),
      cmocka_unit_test(a_damaged_state_is_refused),
      cmocka_unit_test(numbers_of_a_state_that_cannot_be_are_refused),
      cmocka_unit_test(a_state_continues_in_another_stepper),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
