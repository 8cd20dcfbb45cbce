// SPDX-License-Identifier: Apache-2.0
#include "kernels/presets.hpp"

#include <initializer_list>
#include <string>
#include <utility>

#include "base/status.hpp"
#include "base/words.hpp"

namespace mxs {

namespace {

constexpr mxs_group_values values_of(float lr, float weight_decay, float momentum, float beta1, float beta2,
                                     float epsilon) {
  return {sizeof(mxs_group_values), lr, weight_decay, momentum, beta1, beta2, epsilon, 0.0f};
}

constexpr auto ema = MXS_MOMENTUM_EMA, sgd = MXS_MOMENTUM_SGD;
constexpr auto at_least = MXS_EPSILON_MAX, added = MXS_EPSILON_ADD;

// DEFAULT's epsilon is 0: the norm is summed in fp64, so that the smallest fp32 numbers have one, and 0 maps to 0. Its
// shampoo differs from Meta's published defaults, a root at every step and no grafting: with those it costs 10 times as
// much, and its lr is no AdamW's.
constexpr Preset presets[] = {
    {MXS_PRESET_DEFAULT, "default", MXS_RULE_AUTO, values_of(1e-3f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f),
     {ema, true, MXS_TABLE_YOU, at_least, 0, MXS_SCALE_RMS, false}, {10, MXS_GRAFTING_ADAM}},
    {MXS_PRESET_TORCH_MUON, "torch-muon", MXS_RULE_MUON, values_of(1e-3f, 0.1f, 0.95f, 0.9f, 0.999f, 1e-8f),
     {ema, true, MXS_TABLE_JORDAN, at_least, 1e-7, MXS_SCALE_SHAPE, false}, {}},
    {MXS_PRESET_TORCH_MUON_RMS, "torch-muon-rms", MXS_RULE_MUON, values_of(1e-3f, 0.1f, 0.95f, 0.9f, 0.999f, 1e-8f),
     {ema, true, MXS_TABLE_JORDAN, at_least, 1e-7, MXS_SCALE_RMS, false}, {}},
    {MXS_PRESET_KELLER_JORDAN, "keller-jordan", MXS_RULE_MUON, values_of(2e-2f, 0, 0.95f, 0.9f, 0.95f, 1e-10f),
     {ema, true, MXS_TABLE_JORDAN, added, 1e-7, MXS_SCALE_SHAPE, false}, {}},
    {MXS_PRESET_MOONLIGHT, "moonlight", MXS_RULE_MUON, values_of(1e-3f, 0.1f, 0.95f, 0.9f, 0.95f, 1e-8f),
     {sgd, true, MXS_TABLE_JORDAN, added, 1e-7, MXS_SCALE_RMS, false}, {}},
    {MXS_PRESET_NVIDIA, "nvidia", MXS_RULE_MUON, values_of(3e-4f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f),
     {ema, false, MXS_TABLE_YOU, at_least, 1e-15, MXS_SCALE_MAX, false}, {}},
    {MXS_PRESET_DION, "dion", MXS_RULE_MUON, values_of(1e-2f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f),
     {sgd, false, MXS_TABLE_POLAR_CUSHION, added, 1e-8, MXS_SCALE_RATIO, false}, {}},
    {MXS_PRESET_NORMUON, "normuon", MXS_RULE_MUON, values_of(2e-2f, 0, 0.95f, 0.9f, 0.95f, 1e-10f),
     {ema, true, MXS_TABLE_JORDAN, added, 1e-7, MXS_SCALE_SHAPE, true}, {}},
    {MXS_PRESET_SHAMPOO, "shampoo", MXS_RULE_SHAMPOO, values_of(1e-2f, 0, 0, 0.9f, 1.0f, 1e-12f), {},
     {1, MXS_GRAFTING_NONE}},
    {MXS_PRESET_SOAP, "soap", MXS_RULE_SOAP, values_of(3e-3f, 1e-2f, 0, 0.95f, 0.95f, 1e-8f), {}, {}},
    {MXS_PRESET_TORCH_ADAMW, "torch-adamw", MXS_RULE_ADAMW, values_of(1e-3f, 1e-2f, 0, 0.9f, 0.999f, 1e-8f), {}, {}},
};
constexpr int preset_count = sizeof presets / sizeof *presets;

mxs_status check_choice(const char *name, int32_t value, int32_t last) {
  if (value >= 0 && value <= last) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "options.%s is %d, not from 0 to %d", name, value, last);
}

mxs_status check_count(const char *name, int32_t value) {
  if (value >= 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "options.%s is %d; 0 takes the default", name, value);
}

// from, and up to but not including below.
mxs_status check_number(const char *name, double value, double from, double below) {
  if (value >= from && value < below) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "options.%s is %g, not from %g to below %g", name, value, from, below);
}

mxs_status first_of(std::initializer_list<mxs_status> statuses) {
  for (const mxs_status status : statuses)
    if (status != MXS_OK) return status;
  return MXS_OK;
}

template <class Number>
void take(Number *field, Number otherwise) {
  if (*field == Number{}) *field = otherwise;
}

bool is_on(mxs_switch given, bool otherwise) { return given == MXS_SWITCH_PRESET ? otherwise : given == MXS_ON; }

// What newton_schulz leaves open is the preset's.
mxs_status complete_newton_schulz(const mxs_muon_options &options, MuonRecipe *recipe) {
  mxs_newton_schulz newton_schulz = MXS_NEWTON_SCHULZ_INIT;
  if (options.newton_schulz) newton_schulz = *options.newton_schulz;
  newton_schulz.preset = options.preset;
  mxs_status status = check_choice("newton_schulz.algorithm", newton_schulz.algorithm, MXS_ALGORITHM_GRAM);
  if (status == MXS_OK) status = check_backend(newton_schulz.backend);
  if (newton_schulz.backend == MXS_BACKEND_AUTO) newton_schulz.backend = options.backend;
  recipe->choice = {newton_schulz.backend, newton_schulz.algorithm};
  if (status == MXS_OK) status = make_recipe(newton_schulz, &recipe->newton_schulz);
  return status;
}

}  // namespace

const Preset *find_preset(mxs_preset preset) {
  if (preset < 0 || preset >= preset_count) return nullptr;
  static_assert(presets[MXS_PRESET_TORCH_ADAMW].preset == MXS_PRESET_TORCH_ADAMW, "the table is in order");
  return &presets[preset];
}

const Preset *all_presets(int *count) {
  *count = preset_count;
  return presets;
}

mxs_status check_preset(mxs_rule rule, mxs_preset preset) {
  const Preset *const found = find_preset(preset);
  if (found && (found->rule == MXS_RULE_AUTO || found->rule == rule)) return MXS_OK;
  std::string good;
  for (const Preset &each : presets)
    if (each.rule == rule) good.append(", ").append(each.name);
  if (!found)
    return set_error(MXS_INVALID_ARGUMENT, "the preset is %d, which is none; those of %s are default%s", preset,
                     rule_name(rule), good.c_str());
  return set_error(MXS_INVALID_ARGUMENT, "the preset %s is of %s; those of %s are default%s", found->name,
                   rule_name(found->rule), rule_name(rule), good.c_str());
}

mxs_status check_backend(mxs_backend backend) {
  if (backend >= MXS_BACKEND_AUTO && backend <= MXS_BACKEND_TILES) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the backend is %d, which is none of MXS_BACKEND_...", backend);
}

mxs_status check_threads(int32_t thread_count) {
  if (thread_count >= 0 && thread_count <= 4096) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "thread_count is %d, not from 0 to 4096", thread_count);
}

mxs_status complete(const mxs_muon_options &options, MuonRecipe *recipe) {
  const mxs_status status = first_of(
      {check_preset(MXS_RULE_MUON, options.preset), check_choice("momentum", options.momentum, MXS_MOMENTUM_SGD),
       check_choice("nesterov", options.nesterov, MXS_OFF), check_choice("scale", options.scale, MXS_SCALE_RMS),
       check_number("scale_factor", static_cast<double>(options.scale_factor), 0, 1e30),
       check_choice("decay", options.decay, MXS_DECAY_CAUTIOUS), check_choice("normuon", options.normuon, MXS_OFF),
       check_number("normuon_beta2", static_cast<double>(options.normuon_beta2), 0, 1),
       check_number("normuon_epsilon", static_cast<double>(options.normuon_epsilon), 0, 1e30),
       check_threads(options.thread_count), check_backend(options.backend)});
  if (status != MXS_OK) return status;
  const auto &preset = find_preset(options.preset)->muon;
  MuonRecipe made;
  made.preset = options.preset;
  made.momentum = options.momentum ? options.momentum : preset.momentum;
  made.nesterov = is_on(options.nesterov, preset.nesterov);
  made.scale = options.scale ? options.scale : preset.scale;
  if (options.scale_factor != 0) made.scale_factor = options.scale_factor;
  if (options.decay) made.decay = options.decay;
  made.normuon = is_on(options.normuon, preset.normuon);
  if (options.normuon_beta2 != 0) made.normuon_beta2 = options.normuon_beta2;
  if (options.normuon_epsilon != 0) made.normuon_epsilon = options.normuon_epsilon;
  if (options.thread_count != 0) made.thread_count = options.thread_count;
  const mxs_status products = complete_newton_schulz(options, &made);
  if (products == MXS_OK) *recipe = std::move(made);
  return products;
}

mxs_status complete(mxs_shampoo_options *options) {
  const mxs_status status = first_of(
      {check_preset(MXS_RULE_SHAMPOO, options->preset), check_count("block_max", options->block_max),
       check_count("interval", options->interval), check_count("start", options->start),
       check_choice("grafting", options->grafting, MXS_GRAFTING_SGD),
       check_choice("decay", options->decay, MXS_DECAY_CAUTIOUS), check_count("failures_max", options->failures_max),
       check_choice("nesterov", options->nesterov, MXS_OFF),
       check_number("momentum", static_cast<double>(options->momentum), 0, 1),
       check_number("exponent", options->exponent, 0, 16), check_backend(options->backend),
       check_threads(options->thread_count)});
  if (status != MXS_OK) return status;
  if (options->nesterov == MXS_ON && options->momentum == 0)
    return set_error(MXS_INVALID_ARGUMENT,
                     "options.nesterov is MXS_ON, but options.momentum is 0: set both or neither");
  const auto &preset = find_preset(options->preset)->shampoo;
  take(&options->block_max, 1024);
  take(&options->interval, preset.interval);
  take(&options->start, options->interval);
  take(&options->grafting, preset.grafting);
  take(&options->decay, MXS_DECAY_DECOUPLED);
  take(&options->failures_max, 3);
  take(&options->nesterov, MXS_OFF);
  take(&options->exponent, 0.25);
  take(&options->thread_count, 1);
  return MXS_OK;
}

mxs_status complete(mxs_soap_options *options) {
  const mxs_status status = first_of(
      {check_preset(MXS_RULE_SOAP, options->preset), check_count("side_max", options->side_max),
       check_count("interval", options->interval), check_choice("one_sided", options->one_sided, MXS_OFF),
       check_number("factor_beta", static_cast<double>(options->factor_beta), 0, 1),
       check_choice("decay", options->decay, MXS_DECAY_CAUTIOUS), check_count("failures_max", options->failures_max),
       check_backend(options->backend), check_threads(options->thread_count)});
  if (status != MXS_OK) return status;
  take(&options->side_max, 10000);
  take(&options->interval, 10);
  take(&options->one_sided, MXS_OFF);
  take(&options->decay, MXS_DECAY_DECOUPLED);
  take(&options->failures_max, 3);
  take(&options->thread_count, 1);
  return MXS_OK;
}

mxs_status complete(mxs_adamw_options *options) {
  const mxs_status status =
      first_of({check_preset(MXS_RULE_ADAMW, options->preset),
                check_choice("decay", options->decay, MXS_DECAY_CAUTIOUS),
                check_choice("epsilon_before", options->epsilon_before, MXS_OFF),
                check_threads(options->thread_count)});
  if (status != MXS_OK) return status;
  take(&options->decay, MXS_DECAY_DECOUPLED);
  take(&options->epsilon_before, MXS_OFF);
  take(&options->thread_count, 1);
  return MXS_OK;
}

}  // namespace mxs
