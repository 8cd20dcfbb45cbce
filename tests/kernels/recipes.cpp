// SPDX-License-Identifier: Apache-2.0
// What options mean: presets, tables of Newton-Schulz, and what is refused, with its reason.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/presets.hpp"
#include "kernels/recipe.hpp"
#include "matrixshard/matrixshard.h"
#include "support/cmocka_all.h"

namespace {

using mxs::complete;
using mxs::MuonRecipe;
using mxs::NewtonSchulzRecipe;
using Step = NewtonSchulzRecipe::Step;

bool complain(const char *sentence) {
  print_error("%s; last error: %s\n", sentence, mxs_last_error());
  return false;
}

// ---- presets -------------------------------------------------------------------------------------------------------

// The published figures once more, by hand.
struct Published {
  mxs_preset preset;
  const char *name;
  mxs_rule rule;
  float lr, weight_decay, momentum, beta1, beta2, epsilon;
  float tall, wide;  // scales of 400 x 25 and of 25 x 100
};
const Published published[] = {
    {MXS_PRESET_DEFAULT, "default", MXS_RULE_AUTO, 1e-3f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f, 4, 2},
    {MXS_PRESET_TORCH_MUON, "torch-muon", MXS_RULE_MUON, 1e-3f, 0.1f, 0.95f, 0.9f, 0.999f, 1e-8f, 4, 1},
    {MXS_PRESET_TORCH_MUON_RMS, "torch-muon-rms", MXS_RULE_MUON, 1e-3f, 0.1f, 0.95f, 0.9f, 0.999f, 1e-8f, 4, 2},
    {MXS_PRESET_KELLER_JORDAN, "keller-jordan", MXS_RULE_MUON, 2e-2f, 0, 0.95f, 0.9f, 0.95f, 1e-10f, 4, 1},
    {MXS_PRESET_MOONLIGHT, "moonlight", MXS_RULE_MUON, 1e-3f, 0.1f, 0.95f, 0.9f, 0.95f, 1e-8f, 4, 2},
    {MXS_PRESET_NVIDIA, "nvidia", MXS_RULE_MUON, 3e-4f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f, 20, 10},
    {MXS_PRESET_DION, "dion", MXS_RULE_MUON, 1e-2f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f, 4, 0.5f},
    {MXS_PRESET_NORMUON, "normuon", MXS_RULE_MUON, 2e-2f, 0, 0.95f, 0.9f, 0.95f, 1e-10f, 4, 1},
    {MXS_PRESET_SHAMPOO, "shampoo", MXS_RULE_SHAMPOO, 1e-2f, 0, 0, 0.9f, 1, 1e-12f, 0, 0},
    {MXS_PRESET_SOAP, "soap", MXS_RULE_SOAP, 3e-3f, 1e-2f, 0, 0.95f, 0.95f, 1e-8f, 0, 0},
    {MXS_PRESET_TORCH_ADAMW, "torch-adamw", MXS_RULE_ADAMW, 1e-3f, 1e-2f, 0, 0.9f, 0.999f, 1e-8f, 0, 0},
};

bool presets_say_what_was_published() {
  for (const Published &row : published) {
    mxs_preset preset = -7;
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    if (std::strcmp(mxs_preset_name(row.preset), row.name) != 0) return complain(row.name);
    if (mxs_preset_from_name(row.name, &preset) != MXS_OK || preset != row.preset) return complain(row.name);
    if (mxs_preset_rule(row.preset) != row.rule) return complain(row.name);
    if (mxs_preset_values(row.preset, &values) != MXS_OK) return complain(row.name);
    if (values.lr != row.lr || values.weight_decay != row.weight_decay || values.momentum != row.momentum ||
        values.beta1 != row.beta1 || values.beta2 != row.beta2 || values.epsilon != row.epsilon)
      return complain(row.name);
    if (mxs_muon_scale(row.preset, 400, 25) != row.tall || mxs_muon_scale(row.preset, 25, 100) != row.wide)
      return complain(row.name);
  }
  return true;
}

bool what_is_no_preset_is_refused() {
  mxs_preset preset = -7;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 42;
  for (const char *name : {"", "Torch-muon", "torch-muon ", "adam"})
    if (mxs_preset_from_name(name, &preset) != MXS_NOT_FOUND || preset != -7 ||
        !std::strstr(mxs_last_error(), "torch-muon-rms"))
      return complain(name);
  if (mxs_preset_from_name(nullptr, &preset) != MXS_INVALID_ARGUMENT) return false;
  if (mxs_preset_from_name("soap", nullptr) != MXS_INVALID_ARGUMENT) return false;
  for (const mxs_preset number : {-1, 11, INT32_MAX, INT32_MIN}) {
    if (std::strcmp(mxs_preset_name(number), "unknown") != 0 || mxs_preset_rule(number) != MXS_RULE_AUTO) return false;
    if (mxs_muon_scale(number, 4, 4) != 0) return false;
    if (mxs_preset_values(number, &values) != MXS_INVALID_ARGUMENT || values.lr != 42) return false;
  }
  values.size = 3;
  return mxs_preset_values(MXS_PRESET_SOAP, &values) == MXS_INVALID_ARGUMENT && values.lr == 42 &&
         mxs_preset_values(MXS_PRESET_SOAP, nullptr) == MXS_INVALID_ARGUMENT &&
         mxs_muon_scale(MXS_PRESET_DEFAULT, 0, 4) == 0 && mxs_muon_scale(MXS_PRESET_DEFAULT, 4, -1) == 0;
}

// ---- options completed ---------------------------------------------------------------------------------------------

bool zeros_take_the_presets() {
  mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
  MuonRecipe recipe;
  options.preset = MXS_PRESET_DION;
  if (complete(options, &recipe) != MXS_OK) return complain("dion");
  if (recipe.momentum != MXS_MOMENTUM_SGD || recipe.nesterov || recipe.scale != MXS_SCALE_RATIO || recipe.normuon ||
      recipe.scale_factor != 1 || recipe.decay != MXS_DECAY_DECOUPLED || recipe.thread_count != 1)
    return complain("dion's switches");
  const NewtonSchulzRecipe &products = recipe.newton_schulz;
  if (products.safety != 1.02 || !products.adds_epsilon || products.epsilon != 1e-8 || products.steps.size() != 5 ||
      products.steps[4].a != 2.3465413258596377f)
    return complain("dion's table");
  options.preset = MXS_PRESET_NORMUON;
  if (complete(options, &recipe) != MXS_OK || !recipe.normuon || !recipe.nesterov || recipe.normuon_beta2 != 0.95f ||
      recipe.normuon_epsilon != 1e-10f || recipe.newton_schulz.steps[4].b != -4.7750f)
    return complain("normuon");
  options.preset = MXS_PRESET_NVIDIA;
  if (complete(options, &recipe) != MXS_OK || recipe.nesterov || recipe.newton_schulz.epsilon != 1e-15 ||
      recipe.newton_schulz.adds_epsilon || recipe.newton_schulz.steps[1].a != 3.9505f)
    return complain("nvidia");
  options.preset = MXS_PRESET_DEFAULT;
  return complete(options, &recipe) == MXS_OK && recipe.nesterov && recipe.scale == MXS_SCALE_RMS &&
         recipe.newton_schulz.epsilon == 0 && recipe.momentum == MXS_MOMENTUM_EMA;
}

bool what_is_given_beats_the_preset() {
  mxs_newton_schulz products = MXS_NEWTON_SCHULZ_INIT;
  products.preset = MXS_PRESET_TORCH_MUON;  // not looked at
  products.table = MXS_TABLE_POLAR_EXPRESS;
  products.step_count = 6;
  products.algorithm = MXS_ALGORITHM_GRAM;
  mxs_muon_options options = MXS_MUON_OPTIONS_INIT;
  options.preset = MXS_PRESET_DION;
  options.momentum = MXS_MOMENTUM_EMA;
  options.nesterov = MXS_ON;
  options.scale = MXS_SCALE_NONE;
  options.scale_factor = 0.5f;
  options.decay = MXS_DECAY_CAUTIOUS;
  options.normuon = MXS_ON;
  options.normuon_beta2 = 0.5f;
  options.normuon_epsilon = 1e-3f;
  options.thread_count = 2;
  options.backend = MXS_BACKEND_OPENBLAS;
  options.newton_schulz = &products;
  MuonRecipe recipe;
  if (complete(options, &recipe) != MXS_OK) return complain("all fields");
  if (recipe.momentum != MXS_MOMENTUM_EMA || !recipe.nesterov || recipe.scale != MXS_SCALE_NONE ||
      recipe.scale_factor != 0.5f || recipe.decay != MXS_DECAY_CAUTIOUS || !recipe.normuon ||
      recipe.normuon_beta2 != 0.5f || recipe.normuon_epsilon != 1e-3f || recipe.thread_count != 2)
    return complain("switches");
  // Epsilon stays Dion's, safety is the table's.
  if (recipe.newton_schulz.steps.size() != 6 || recipe.newton_schulz.epsilon != 1e-8 ||
      recipe.newton_schulz.safety != 1 || recipe.choice.backend != MXS_BACKEND_OPENBLAS ||
      recipe.choice.algorithm != MXS_ALGORITHM_GRAM)
    return complain("products");
  products.backend = MXS_BACKEND_REFERENCE;
  options.preset = MXS_PRESET_NORMUON;
  options.normuon = MXS_OFF;
  return complete(options, &recipe) == MXS_OK && recipe.choice.backend == MXS_BACKEND_REFERENCE && !recipe.normuon;
}

bool other_rules_are_completed() {
  mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  if (complete(&shampoo) != MXS_OK || shampoo.block_max != 1024 || shampoo.interval != 10 || shampoo.start != 10 ||
      shampoo.grafting != MXS_GRAFTING_ADAM || shampoo.exponent != 0.25 || shampoo.failures_max != 3 ||
      shampoo.decay != MXS_DECAY_DECOUPLED || shampoo.nesterov != MXS_OFF || shampoo.thread_count != 1)
    return complain("shampoo");
  shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  shampoo.preset = MXS_PRESET_SHAMPOO;
  if (complete(&shampoo) != MXS_OK || shampoo.interval != 1 || shampoo.start != 1 ||
      shampoo.grafting != MXS_GRAFTING_NONE)
    return complain("Meta's shampoo");
  shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  shampoo.interval = 7;
  shampoo.grafting = MXS_GRAFTING_SGD;
  if (complete(&shampoo) != MXS_OK || shampoo.start != 7 || shampoo.grafting != MXS_GRAFTING_SGD)
    return complain("shampoo every 7 steps");
  mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
  if (complete(&soap) != MXS_OK || soap.side_max != 10000 || soap.interval != 10 || soap.one_sided != MXS_OFF ||
      soap.failures_max != 3 || soap.factor_beta != 0)
    return complain("soap");
  mxs_adamw_options adamw = MXS_ADAMW_OPTIONS_INIT;
  adamw.preset = MXS_PRESET_TORCH_ADAMW;
  return complete(&adamw) == MXS_OK && adamw.decay == MXS_DECAY_DECOUPLED && adamw.epsilon_before == MXS_OFF;
}

template <class Options, class Try>
bool refuses(const Options &good, const char *what, const std::function<void(Options *)> &spoil, Try &&attempt) {
  Options options = good;
  spoil(&options);
  if (attempt(options) == MXS_INVALID_ARGUMENT && std::strstr(mxs_last_error(), what)) return true;
  return complain(what);
}

bool muon_options_out_of_range_are_refused() {
  using Options = mxs_muon_options;
  const auto refused = [](const char *what, const std::function<void(Options *)> &spoil) {
    MuonRecipe recipe;
    recipe.thread_count = 77;
    const bool good = refuses<Options>(MXS_MUON_OPTIONS_INIT, what, spoil,
                                       [&](const Options &options) { return complete(options, &recipe); });
    return good && recipe.thread_count == 77;
  };
  return refused("those of muon are default, torch-muon,", [](Options *o) { o->preset = MXS_PRESET_SOAP; }) &&
         refused("normuon", [](Options *o) { o->preset = 11; }) &&
         refused("momentum", [](Options *o) { o->momentum = 3; }) &&
         refused("nesterov", [](Options *o) { o->nesterov = -1; }) &&
         refused("scale", [](Options *o) { o->scale = 6; }) &&
         refused("scale_factor", [](Options *o) { o->scale_factor = -1; }) &&
         refused("scale_factor", [](Options *o) { o->scale_factor = NAN; }) &&
         refused("decay", [](Options *o) { o->decay = 6; }) &&
         refused("normuon", [](Options *o) { o->normuon = 3; }) &&
         refused("normuon_beta2", [](Options *o) { o->normuon_beta2 = 1; }) &&
         refused("normuon_epsilon", [](Options *o) { o->normuon_epsilon = INFINITY; }) &&
         refused("thread_count", [](Options *o) { o->thread_count = 4097; }) &&
         refused("backend", [](Options *o) { o->backend = 5; });
}

bool other_options_out_of_range_are_refused() {
  const auto shampoo = [](const char *what, const std::function<void(mxs_shampoo_options *)> &spoil) {
    return refuses<mxs_shampoo_options>(MXS_SHAMPOO_OPTIONS_INIT, what, spoil,
                                        [](mxs_shampoo_options &options) { return complete(&options); });
  };
  const auto soap = [](const char *what, const std::function<void(mxs_soap_options *)> &spoil) {
    return refuses<mxs_soap_options>(MXS_SOAP_OPTIONS_INIT, what, spoil,
                                     [](mxs_soap_options &options) { return complete(&options); });
  };
  const auto adamw = [](const char *what, const std::function<void(mxs_adamw_options *)> &spoil) {
    return refuses<mxs_adamw_options>(MXS_ADAMW_OPTIONS_INIT, what, spoil,
                                      [](mxs_adamw_options &options) { return complete(&options); });
  };
  return shampoo("those of shampoo are default, shampoo", [](auto *o) { o->preset = MXS_PRESET_NVIDIA; }) &&
         shampoo("block_max", [](auto *o) { o->block_max = -1; }) &&
         shampoo("interval", [](auto *o) { o->interval = -1; }) && shampoo("start", [](auto *o) { o->start = -1; }) &&
         shampoo("grafting", [](auto *o) { o->grafting = 4; }) && shampoo("decay", [](auto *o) { o->decay = -1; }) &&
         shampoo("failures_max", [](auto *o) { o->failures_max = -1; }) &&
         shampoo("momentum", [](auto *o) { o->momentum = 1; }) &&
         shampoo("exponent", [](auto *o) { o->exponent = -0.25; }) &&
         shampoo("exponent", [](auto *o) { o->exponent = std::numeric_limits<double>::quiet_NaN(); }) &&
         soap("those of soap are default, soap", [](auto *o) { o->preset = MXS_PRESET_SHAMPOO; }) &&
         soap("side_max", [](auto *o) { o->side_max = -1; }) && soap("interval", [](auto *o) { o->interval = -9; }) &&
         soap("one_sided", [](auto *o) { o->one_sided = 3; }) &&
         soap("factor_beta", [](auto *o) { o->factor_beta = 1; }) &&
         adamw("those of adamw are default, torch-adamw", [](auto *o) { o->preset = MXS_PRESET_MOONLIGHT; }) &&
         adamw("epsilon_before", [](auto *o) { o->epsilon_before = 3; }) &&
         adamw("decay", [](auto *o) { o->decay = 6; });
}

// ---- tables --------------------------------------------------------------------------------------------------------

mxs_newton_schulz of_table(mxs_table table, int step_count = 0, double safety = 0) {
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.table = table;
  options.step_count = step_count;
  options.safety = safety;
  return options;
}

bool is_close(double got, double wanted, double relative) { return std::fabs(got - wanted) <= relative * wanted; }

// f at the singular values that the facts of each table name.
bool tables_map_singular_values_as_published() {
  struct Row {
    mxs_table table;
    int step_count;
    double safety, slope;
    double least, most;  // of f from 0.01 to 1
  };
  const Row rows[] = {
      {MXS_TABLE_JORDAN, 0, 0, 485, 0.682, 1.134},       {MXS_TABLE_JORDAN, 6, 0, 1670, 0.682, 1.134},
      {MXS_TABLE_YOU, 0, 0, 493, 0.978, 1.032},          {MXS_TABLE_POLAR_EXPRESS, 0, 0, 804, 0.846, 1.124},
      {MXS_TABLE_POLAR_EXPRESS, 5, 1.01, 976, 0.870, 1.124}, {MXS_TABLE_POLAR_EXPRESS, 8, 1.01, 6363, 1, 1},
      {MXS_TABLE_POLAR_CUSHION, 0, 0, 990, 0.859, 1.141}, {MXS_TABLE_DEEPSEEK_V4, 0, 0, 79263, 1, 1.001},
  };
  for (const Row &row : rows) {
    NewtonSchulzRecipe recipe;
    if (make_recipe(of_table(row.table, row.step_count, row.safety), &recipe) != MXS_OK) return complain("a table");
    double least = 9, most = 0;
    for (int i = 0; i <= 20000; ++i) {
      const double value = mxs::scalar_map(recipe, std::pow(10.0, -2 + i / 10000.0));
      least = std::min(least, value);
      most = std::max(most, value);
    }
    if (is_close(slope_at_zero(recipe), row.slope, 2e-3) && std::fabs(least - row.least) < 1e-3 &&
        std::fabs(most - row.most) < 1.1e-3)
      continue;
    print_error("table %d, %d steps: slope %.6g, from %.6g to %.6g\n", row.table, row.step_count,
                slope_at_zero(recipe), least, most);
    return false;
  }
  return true;
}

bool equal(const Step &left, const Step &right) {
  return left.a == right.a && left.b == right.b && left.c == right.c;
}

bool more_steps_than_polynomials_cycle_or_repeat() {
  NewtonSchulzRecipe recipe;
  if (make_recipe(of_table(MXS_TABLE_YOU, 7), &recipe) != MXS_OK || recipe.steps.size() != 7 ||
      !equal(recipe.steps[5], recipe.steps[0]) || !equal(recipe.steps[6], recipe.steps[1]))
    return complain("you");
  if (make_recipe(of_table(MXS_TABLE_JORDAN, 32), &recipe) != MXS_OK || recipe.steps.size() != 32)
    return complain("jordan");
  if (make_recipe(of_table(MXS_TABLE_DEEPSEEK_V4, 12), &recipe) != MXS_OK ||
      !equal(recipe.steps[11], {2, -1.5f, 0.5f}) || !equal(recipe.steps[7], {3.4445f, -4.7750f, 2.0315f}))
    return complain("deepseek-v4");
  if (make_recipe(of_table(MXS_TABLE_POLAR_CUSHION, 7), &recipe) != MXS_OK ||
      !equal(recipe.steps[6], recipe.steps[4]))
    return complain("polar-cushion");
  if (make_recipe(of_table(MXS_TABLE_POLAR_EXPRESS, 10), &recipe) != MXS_OK ||
      !equal(recipe.steps[9], {1.875f, -1.25f, 0.375f}) || !equal(recipe.steps[7], recipe.steps[9]))
    return complain("polar-express");
  // Folded but for the eighth: the seventh over 1.05.
  if (recipe.safety != 1 || !is_close(static_cast<double>(recipe.steps[6].a), 1.8750014808534479 / 1.05, 1e-7))
    return complain("polar-express, the seventh");
  if (make_recipe(of_table(MXS_TABLE_POLAR_EXPRESS, 3, 1.25), &recipe) != MXS_OK || recipe.steps.size() != 3 ||
      !is_close(-static_cast<double>(recipe.steps[1].b), 2.9478499167379106 / std::pow(1.25, 3), 1e-7) ||
      !is_close(static_cast<double>(recipe.steps[1].c), 0.5448431082926601 / std::pow(1.25, 5), 1e-7))
    return complain("polar-express, folded by 1.25");
  // Elsewhere safety is the norm's.
  return make_recipe(of_table(MXS_TABLE_YOU, 0, 1.25), &recipe) == MXS_OK && recipe.safety == 1.25 &&
         recipe.steps[0].a == 4.0848f;
}

bool epsilon_is_the_presets_or_the_callers() {
  NewtonSchulzRecipe recipe;
  mxs_newton_schulz options = of_table(MXS_TABLE_YOU);
  options.preset = MXS_PRESET_KELLER_JORDAN;
  if (make_recipe(options, &recipe) != MXS_OK || !recipe.adds_epsilon || recipe.epsilon != 1e-7) return false;
  options.epsilon_kind = MXS_EPSILON_MAX;
  if (make_recipe(options, &recipe) != MXS_OK || recipe.adds_epsilon || recipe.epsilon != 0) return false;
  options.epsilon = 0.125;
  return make_recipe(options, &recipe) == MXS_OK && !recipe.adds_epsilon && recipe.epsilon == 0.125;
}

using Coefficients = std::vector<double>;  // a, b, c of each step

const Coefficients cans = {8.4703, -25.1081, 18.6293, 4.1828, -3.1087, 0.5806, 3.9619, -2.9541,
                           0.5630, 3.2866,   -2.4647, 0.5074, 2.2737,  -1.6447, 0.4162};
const Coefficients aol_of_nvidia = {4.0098, -7.0585, 2.4635, 3.4585, -5.5479, 2.5959,
                                    2.7573, -3.2939, 1.4254, 2.7215, -3.0494, 1.3169};
const Coefficients aol_of_flash = {4.6051, -9.6552, 5.6769, 4.7505, -6.0861, 2.1790,
                                   2.7763, -2.3190, 0.5523, 2.4231, -2.2861, 0.8193};
const Coefficients cubic5 = {3.3656576, -3.3420992, 0, 2.5744352, -1.4957376, 0, 2.5368962, -1.4312570, 0,
                             2.4418906, -1.2764040, 0, 2.2230472, -0.9630650, 0};

mxs_newton_schulz of_coefficients(const Coefficients &coefficients, double safety = 0) {
  mxs_newton_schulz options = of_table(MXS_TABLE_CUSTOM, static_cast<int>(coefficients.size() / 3), safety);
  options.coefficients = coefficients.data();
  return options;
}

bool refuses_recipe(const mxs_newton_schulz &options, std::initializer_list<const char *> words) {
  NewtonSchulzRecipe recipe;
  recipe.safety = 77;
  if (make_recipe(options, &recipe) != MXS_INVALID_ARGUMENT || recipe.safety != 77) return complain(*words.begin());
  for (const char *word : words)
    if (!std::strstr(mxs_last_error(), word)) return complain(word);
  return true;
}

bool makes_recipe(const mxs_newton_schulz &options) {
  NewtonSchulzRecipe recipe;
  return make_recipe(options, &recipe) == MXS_OK || complain("should be good");
}

bool tables_that_diverge_or_turn_signs_are_refused() {
  return refuses_recipe(of_coefficients(cans), {"custom", "diverges", "step 3 of 5", "1.0039", "safety 1.01 it is"}) &&
         makes_recipe(of_coefficients(cans, 1.01)) &&
         refuses_recipe(of_coefficients(aol_of_nvidia), {"turns signs", "safety 1.2 it is good"}) &&
         makes_recipe(of_coefficients(aol_of_nvidia, 1.2)) && makes_recipe(of_coefficients(aol_of_flash)) &&
         refuses_recipe(of_coefficients(cubic5), {"turns signs", "1.0039", "safety 1.01 it is good"}) &&
         makes_recipe(of_coefficients(cubic5, 1.01)) &&
         refuses_recipe(of_table(MXS_TABLE_POLAR_EXPRESS, 0, 1), {"polar-express diverges", "safety 1.01 it is"}) &&
         refuses_recipe(of_table(MXS_TABLE_JORDAN, 0, 0.5), {"jordan diverges", "safety 1.01 it is good"}) &&
         // No safety helps a table that sends everything to the other side, nowhere, or far away.
         refuses_recipe(of_coefficients({-1, 0, 0}), {"turns signs"}) &&
         refuses_recipe(of_coefficients({0, 0, 0}), {"turns signs"}) &&
         refuses_recipe(of_coefficients({1e20, 0, 0, 1e20, 0, 0}), {"diverges"}) &&
         makes_recipe(of_coefficients({1, 0, 0})) &&
         // Twice to the other side: the values between are lost.
         refuses_recipe(of_coefficients({2, -3, 0, 2, -3, 0}), {"turns signs", "step 1 of 2"});
}

bool bad_tables_are_refused() {
  mxs_newton_schulz no_coefficients = of_table(MXS_TABLE_CUSTOM, 5), no_count = of_coefficients(aol_of_flash);
  no_count.step_count = 0;
  mxs_newton_schulz unwanted = of_table(MXS_TABLE_YOU), epsilon = of_table(MXS_TABLE_YOU), kind = epsilon;
  unwanted.coefficients = cans.data();
  epsilon.epsilon = 1e-7;
  kind.epsilon_kind = 3;
  mxs_newton_schulz negative = kind, endless = kind;
  negative.epsilon_kind = endless.epsilon_kind = MXS_EPSILON_MAX;
  negative.epsilon = -1;
  endless.epsilon = static_cast<double>(INFINITY);
  mxs_newton_schulz preset = of_table(MXS_TABLE_YOU);
  preset.preset = MXS_PRESET_TORCH_ADAMW;
  return refuses_recipe(no_coefficients, {"coefficients are NULL"}) && refuses_recipe(no_count, {"step_count is 0"}) &&
         refuses_recipe(unwanted, {"not MXS_TABLE_CUSTOM"}) && refuses_recipe(epsilon, {"epsilon_kind"}) &&
         refuses_recipe(kind, {"epsilon_kind is 3"}) && refuses_recipe(negative, {"epsilon is -1"}) &&
         refuses_recipe(endless, {"epsilon is inf"}) && refuses_recipe(preset, {"torch-adamw", "torch-muon-rms"}) &&
         refuses_recipe(of_table(7), {"table is 7"}) && refuses_recipe(of_table(-1), {"table is -1"}) &&
         refuses_recipe(of_table(MXS_TABLE_YOU, 33), {"step_count is 33"}) &&
         refuses_recipe(of_table(MXS_TABLE_YOU, -1), {"step_count is -1"}) &&
         refuses_recipe(of_table(MXS_TABLE_YOU, 0, -1), {"safety is -1"}) &&
         refuses_recipe(of_table(MXS_TABLE_YOU, 0, std::numeric_limits<double>::quiet_NaN()), {"safety is nan"}) &&
         refuses_recipe(of_coefficients({2, -1.5, 0.5, 2, std::numeric_limits<double>::quiet_NaN(), 0.5}),
                        {"coefficient b of step 1 is nan"}) &&
         refuses_recipe(of_coefficients({2, -1.5, 1e39}), {"coefficient c of step 0"});
}

void presets_have_published_names_rules_and_values(void **) { assert_true(presets_say_what_was_published()); }
void names_and_numbers_of_no_preset_are_refused(void **) { assert_true(what_is_no_preset_is_refused()); }
void options_left_zero_take_the_presets(void **) { assert_true(zeros_take_the_presets()); }
void options_that_are_given_beat_the_preset(void **) { assert_true(what_is_given_beats_the_preset()); }
void options_of_other_rules_are_completed(void **) { assert_true(other_rules_are_completed()); }
void muon_options_out_of_their_range_are_refused(void **) { assert_true(muon_options_out_of_range_are_refused()); }
void other_options_out_of_their_range_are_refused(void **) { assert_true(other_options_out_of_range_are_refused()); }
void tables_map_as_published(void **) { assert_true(tables_map_singular_values_as_published()); }
void more_steps_cycle_or_repeat_the_last(void **) { assert_true(more_steps_than_polynomials_cycle_or_repeat()); }
void epsilon_has_a_kind(void **) { assert_true(epsilon_is_the_presets_or_the_callers()); }
void tables_that_go_mad_are_refused_with_the_reason(void **) {
  assert_true(tables_that_diverge_or_turn_signs_are_refused());
}
void tables_out_of_range_are_refused(void **) { assert_true(bad_tables_are_refused()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(presets_have_published_names_rules_and_values),
      cmocka_unit_test(names_and_numbers_of_no_preset_are_refused),
      cmocka_unit_test(options_left_zero_take_the_presets),
      cmocka_unit_test(options_that_are_given_beat_the_preset),
      cmocka_unit_test(options_of_other_rules_are_completed),
      cmocka_unit_test(muon_options_out_of_their_range_are_refused),
      cmocka_unit_test(other_options_out_of_their_range_are_refused),
      cmocka_unit_test(tables_map_as_published),
      cmocka_unit_test(more_steps_cycle_or_repeat_the_last),
      cmocka_unit_test(epsilon_has_a_kind),
      cmocka_unit_test(tables_that_go_mad_are_refused_with_the_reason),
      cmocka_unit_test(tables_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
