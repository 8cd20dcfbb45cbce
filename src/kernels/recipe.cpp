// SPDX-License-Identifier: Apache-2.0
#include "kernels/recipe.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/log.hpp"
#include "base/status.hpp"
#include "kernels/presets.hpp"

namespace mxs {

namespace {

struct Polynomial {
  double a, b, c;
};

// What follows the last polynomial if more steps are asked for.
enum class More { cycle, repeat_last };

struct Table {
  const char *name;
  std::vector<Polynomial> polynomials;
  int step_count;
  More more;
  double safety;
  // Polynomials up to this one become (a / s, b / s^3, c / s^5), and the norm is left alone. 0: the norm is multiplied.
  // Polar Express was published so; its eighth has converged, and folding would only move its limit from 1.
  int folded = 0;
};

constexpr Polynomial jordan = {3.4445, -4.7750, 2.0315};

const Table &table_of(mxs_table number) {
  static const Table tables[] = {
      {"jordan", {jordan}, 5, More::cycle, 1},
      // Five different ones: singular values from 1e-2 on come to within [0.978, 1.032].
      {"you",
       {{4.0848, -6.8946, 2.9270},
        {3.9505, -6.3029, 2.6377},
        {3.7418, -5.5913, 2.3037},
        {2.8769, -3.1427, 1.2046},
        {2.8366, -3.0525, 1.2012}},
       5, More::cycle, 1},
      {"polar-express",
       {{8.28721201814563, -23.595886519098837, 17.300387312530933},
        {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
        {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
        {3.3184196573706015, -2.488488024314874, 0.51004894012372},
        {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
        {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
        {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
        {1.875, -1.25, 0.375}},
       5, More::repeat_last, 1.05, 7},
      {"deepseek-v4",
       {jordan, jordan, jordan, jordan, jordan, jordan, jordan, jordan, {2, -1.5, 0.5}, {2, -1.5, 0.5}},
       10, More::repeat_last, 1},
      {"polar-cushion",
       {{8.156554524902461, -22.48329292557795, 15.878769915207462},
        {4.042929935166739, -2.808917465908714, 0.5000178451051316},
        {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
        {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
        {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
       5, More::repeat_last, 1.02},
  };
  return tables[number - MXS_TABLE_JORDAN];
}

NewtonSchulzRecipe::Step rounded(Polynomial polynomial, double safety) {
  const double square = safety * safety;
  return {static_cast<float>(polynomial.a / safety), static_cast<float>(polynomial.b / (safety * square)),
          static_cast<float>(polynomial.c / (safety * square * square))};
}

// safety 0 and step_count 0: the table's own.
void take_table(const Table &table, int step_count, double safety, NewtonSchulzRecipe *recipe) {
  if (step_count == 0) step_count = table.step_count;
  if (safety == 0) safety = table.safety;
  recipe->steps.clear();
  const int count = static_cast<int>(table.polynomials.size());
  for (int step = 0; step < step_count; ++step) {
    const int index = step < count ? step : table.more == More::cycle ? step % count : count - 1;
    recipe->steps.push_back(rounded(table.polynomials[static_cast<size_t>(index)], index < table.folded ? safety : 1));
  }
  recipe->safety = table.folded > 0 ? 1 : safety;
}

mxs_status read_custom(const mxs_newton_schulz &options, Table *table) {
  if (!options.coefficients || options.step_count == 0)
    return set_error(MXS_INVALID_ARGUMENT,
                     "a custom table wants step_count and coefficients, but step_count is %d and coefficients are %s",
                     options.step_count, options.coefficients ? "given" : "NULL");
  *table = {"custom", {}, options.step_count, More::repeat_last, 1};
  for (int step = 0; step < options.step_count; ++step) {
    const double *const abc = options.coefficients + 3 * step;
    for (int i = 0; i < 3; ++i)
      if (!(std::fabs(abc[i]) <= static_cast<double>(FLT_MAX)))
        return set_error(MXS_INVALID_ARGUMENT, "coefficient %c of step %d is %g, which is no fp32 number", "abc"[i],
                         step, abc[i]);
    table->polynomials.push_back({abc[0], abc[1], abc[2]});
  }
  return MXS_OK;
}

double map_step(const NewtonSchulzRecipe::Step &step, double x) {
  const double square = x * x;
  return x * (static_cast<double>(step.a) + square * (static_cast<double>(step.b) +
                                                      square * static_cast<double>(step.c)));
}

// Where a table does worst. bad: neither within (0, divergence_bound) nor anything in between.
struct Trouble {
  bool bad = false, diverges = false;
  double sigma = 0, value = 0;
  size_t step = 0;
};

// slack: what rounding may add at each step.
void look_at(const NewtonSchulzRecipe &recipe, double sigma, double slack, Trouble *trouble) {
  double x = sigma;
  for (size_t step = 0; step < recipe.steps.size(); ++step) {
    x = map_step(recipe.steps[step], x) * (1 + slack);
    const bool diverges = !(std::fabs(x) < divergence_bound);
    if (!diverges && x > 0) continue;
    // Divergence tells more than the sign that comes with it, an earlier step more than a later one.
    const bool worse = !trouble->bad || (diverges && !trouble->diverges) ||
                       (diverges == trouble->diverges && std::fabs(x) > std::fabs(trouble->value));
    if (worse) *trouble = {true, diverges, sigma, x, step};
    if (diverges) return;
  }
}

// 4,096 singular values evenly spread by ratio, and as many by distance: tables bend near zero by the one, and near 1
// by the other.
Trouble find_trouble(const NewtonSchulzRecipe &recipe, double slack = 0) {
  constexpr int count = 4096;
  constexpr double least = 1e-9;  // far below 1 / slope_at_zero of any table
  const double most = (1 + rounding_slack) / recipe.safety;
  const double ratio = std::pow(most / least, 1.0 / (count - 1));
  Trouble trouble;
  double sigma = least;
  for (int i = 0; i < count; ++i, sigma *= ratio) {
    look_at(recipe, std::min(sigma, most), slack, &trouble);
    look_at(recipe, most * (i + 1) / count, slack, &trouble);
  }
  return trouble;
}

// The least safety of a few that makes the table good, 0 if none does.
double better_safety(const Table &table, int step_count) {
  for (const double safety : {1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0}) {
    NewtonSchulzRecipe recipe;
    take_table(table, step_count, safety, &recipe);
    if (!find_trouble(recipe).bad) return safety;
  }
  return 0;
}

// Good in exact arithmetic, but with nothing to spare: X is rounded at each step, to bf16 by some backends. CANS is
// such a table, with whatever safety of its norm: a 7 x 13 matrix diverged by it. With many rows roundings cancel.
void warn_of_rounding(const Table &table, const NewtonSchulzRecipe &recipe) {
  const Trouble trouble = find_trouble(recipe, rounding_slack);
  if (!trouble.bad) return;
  log_line(MXS_LOG_WARNING,
           "the Newton-Schulz table %s has no room for rounding: with %.1f%% more at each step, as bf16 may give, the "
           "singular value %.5g becomes %.4g; divide its polynomials by a safety (a / s, b / s^3, c / s^5), or take an "
           "fp32 backend",
           table.name, 100 * rounding_slack, trouble.sigma, trouble.value);
}

mxs_status check_table(const Table &table, int step_count, const NewtonSchulzRecipe &recipe, mxs_backend backend) {
  const Trouble trouble = find_trouble(recipe);
  if (!trouble.bad) {
    if (backend != MXS_BACKEND_REFERENCE && backend != MXS_BACKEND_OPENBLAS) warn_of_rounding(table, recipe);
    return MXS_OK;
  }
  const double safety = better_safety(table, step_count);
  char advice[64] = "";
  if (safety > 0) std::snprintf(advice, sizeof advice, "; with safety %g it is good", safety);
  return set_error(MXS_INVALID_ARGUMENT,
                   "the Newton-Schulz table %s %s: step %zu of %zu turns what began as the singular value %.5g into "
                   "%.4g, where norms up to 1 and %.1f%% of rounding are let through by safety %g%s",
                   table.name, trouble.diverges ? "diverges" : "turns signs", trouble.step + 1, recipe.steps.size(),
                   trouble.sigma, trouble.value, 100 * rounding_slack, recipe.safety, advice);
}

mxs_status check_fields(const mxs_newton_schulz &options) {
  if (options.table < MXS_TABLE_PRESET || options.table > MXS_TABLE_CUSTOM)
    return set_error(MXS_INVALID_ARGUMENT, "the table is %d, which is none of MXS_TABLE_...", options.table);
  if (options.step_count < 0 || options.step_count > newton_schulz_steps_max)
    return set_error(MXS_INVALID_ARGUMENT, "step_count is %d, not from 1 to %d, or 0 for the table's own",
                     options.step_count, newton_schulz_steps_max);
  if (options.coefficients && options.table != MXS_TABLE_CUSTOM)
    return set_error(MXS_INVALID_ARGUMENT, "coefficients are given, but the table is %d, not MXS_TABLE_CUSTOM",
                     options.table);
  if (options.epsilon_kind < MXS_EPSILON_PRESET || options.epsilon_kind > MXS_EPSILON_ADD)
    return set_error(MXS_INVALID_ARGUMENT, "epsilon_kind is %d, which is none of MXS_EPSILON_...",
                     options.epsilon_kind);
  if (!(options.epsilon >= 0) || !std::isfinite(options.epsilon))
    return set_error(MXS_INVALID_ARGUMENT, "epsilon is %g, not a finite number from 0 on", options.epsilon);
  if (options.epsilon != 0 && options.epsilon_kind == MXS_EPSILON_PRESET)
    return set_error(MXS_INVALID_ARGUMENT, "epsilon is %g, but epsilon_kind says that the preset's is taken; set it to "
                     "MXS_EPSILON_MAX or MXS_EPSILON_ADD", options.epsilon);
  if (options.safety != 0 && !(options.safety >= 0x1p-10 && options.safety <= 0x1p10))
    return set_error(MXS_INVALID_ARGUMENT, "safety is %g, not from 2^-10 to 2^10, or 0 for the table's own",
                     options.safety);
  return MXS_OK;
}

}  // namespace

mxs_status make_recipe(const mxs_newton_schulz &options, NewtonSchulzRecipe *recipe) {
  mxs_status status = check_preset(MXS_RULE_MUON, options.preset);
  if (status == MXS_OK) status = check_fields(options);
  if (status != MXS_OK) return status;
  const auto &preset = find_preset(options.preset)->muon;
  const mxs_table number = options.table == MXS_TABLE_PRESET ? preset.table : options.table;
  Table custom = {};
  if (number == MXS_TABLE_CUSTOM) status = read_custom(options, &custom);
  if (status != MXS_OK) return status;
  const Table &table = number == MXS_TABLE_CUSTOM ? custom : table_of(number);
  const bool own_epsilon = options.epsilon_kind != MXS_EPSILON_PRESET;
  NewtonSchulzRecipe made;
  made.adds_epsilon = (own_epsilon ? options.epsilon_kind : preset.epsilon_kind) == MXS_EPSILON_ADD;
  made.epsilon = own_epsilon ? options.epsilon : preset.epsilon;
  take_table(table, options.step_count, options.safety, &made);
  status = check_table(table, options.step_count, made, options.backend);
  if (status == MXS_OK) *recipe = std::move(made);
  return status;
}

NewtonSchulzRecipe recipe_of(mxs_preset preset) {
  const auto &muon = find_preset(preset)->muon;
  NewtonSchulzRecipe recipe;
  recipe.adds_epsilon = muon.epsilon_kind == MXS_EPSILON_ADD;
  recipe.epsilon = muon.epsilon;
  take_table(table_of(muon.table), 0, 0, &recipe);
  return recipe;
}

double scalar_map(const NewtonSchulzRecipe &recipe, double sigma) {
  for (const NewtonSchulzRecipe::Step &step : recipe.steps) sigma = map_step(step, sigma);
  return sigma;
}

double slope_at_zero(const NewtonSchulzRecipe &recipe) {
  double slope = 1;
  for (const NewtonSchulzRecipe::Step &step : recipe.steps) slope *= static_cast<double>(step.a);
  return slope;
}

mxs_scale scale_of(mxs_preset preset) { return find_preset(preset)->muon.scale; }

float update_scale(mxs_scale scale, int64_t rows, int64_t columns) {
  if (rows < 1 || columns < 1) return 0.0f;
  const double r = static_cast<double>(rows), c = static_cast<double>(columns);
  switch (scale) {
    case MXS_SCALE_SHAPE: return static_cast<float>(std::sqrt(std::max(1.0, r / c)));
    case MXS_SCALE_MAX: return static_cast<float>(std::sqrt(std::max(r, c)));
    case MXS_SCALE_RATIO: return static_cast<float>(std::sqrt(r / c));
    // An update of the root mean square that AdamW's have.
    case MXS_SCALE_RMS: return static_cast<float>(0.2 * std::sqrt(std::max(r, c)));
    default: return 1.0f;
  }
}

}  // namespace mxs
