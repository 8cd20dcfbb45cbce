// SPDX-License-Identifier: Apache-2.0
// An optimizer's options, as numbers that ranks compare.
#include "optimizer/settings.hpp"

#include <cstring>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "kernels/recipe.hpp"

namespace mxs {
namespace {

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Folds in fields of any kind: what is negative wraps, alike everywhere.
class Hash {
 public:
  template <class... Integers>
  Hash &add(Integers... values) {
    (static_cast<void>(hash_.add(static_cast<uint64_t>(values))), ...);
    return *this;
  }
  template <class... Reals>
  Hash &add_reals(Reals... values) {
    (static_cast<void>(hash_.add(bits_of(static_cast<double>(values)))), ...);
    return *this;
  }
  uint64_t value() const { return hash_.value(); }

 private:
  Fingerprint hash_;
};

// Backends and thread counts are arithmetic, which is compared apart.
uint64_t hash_of(const mxs_muon_options &options) {
  Hash hash;
  hash.add(options.preset, options.momentum, options.nesterov, options.scale, options.decay, options.normuon)
      .add_reals(options.scale_factor, options.normuon_beta2, options.normuon_epsilon);
  const mxs_newton_schulz *const inner = options.newton_schulz;
  if (!inner) return hash.value();
  hash.add(inner->table, inner->step_count, inner->algorithm, inner->epsilon_kind)
      .add_reals(inner->epsilon, inner->safety);
  // Hashed before anything is checked: only what a custom table must have is read.
  const bool has_table = inner->table == MXS_TABLE_CUSTOM && inner->coefficients &&
                         inner->step_count > 0 && inner->step_count <= newton_schulz_steps_max;
  for (int i = 0; has_table && i < 3 * inner->step_count; ++i) hash.add_reals(inner->coefficients[i]);
  return hash.value();
}

uint64_t hash_of(const mxs_shampoo_options &options) {
  return Hash()
      .add(options.preset, options.block_max, options.interval, options.start, options.grafting, options.decay,
           options.failures_max, options.nesterov)
      .add_reals(options.momentum, options.exponent)
      .value();
}

uint64_t hash_of(const mxs_soap_options &options) {
  return Hash()
      .add(options.preset, options.side_max, options.interval, options.one_sided, options.decay, options.failures_max)
      .add_reals(options.factor_beta)
      .value();
}

uint64_t hash_of(const mxs_adamw_options &options) {
  return Hash().add(options.preset, options.decay, options.epsilon_before).value();
}

}  // namespace

OptionHashes option_hashes(const OptimizerSettings &settings) {
  OptionHashes hashes;
  hashes.muon = hash_of(settings.muon);
  hashes.shampoo = hash_of(settings.shampoo);
  hashes.soap = hash_of(settings.soap);
  hashes.adamw = hash_of(settings.adamw);
  hashes.rounding = Hash().add(settings.rounding, settings.seed).value();
  return hashes;
}

uint64_t OptionHashes::value() const { return Hash().add(muon, shampoo, soap, adamw, rounding).value(); }

const char *OptionHashes::difference(const OptionHashes &other) const {
  if (muon != other.muon) return "Muon preset or other muon_options";
  if (shampoo != other.shampoo) return "other shampoo_options";
  if (soap != other.soap) return "other soap_options";
  if (adamw != other.adamw) return "other adamw_options";
  return rounding != other.rounding ? "another rounding or seed" : "";
}

mxs_status make_stepper(std::unique_ptr<Stepper> *stepper, mxs_rule rule, const StepMatrices &matrices,
                        const OptimizerSettings &settings, Team *team) {
  switch (rule) {
    case MXS_RULE_MUON: return make_muon_stepper(stepper, matrices, settings.muon, team);
    case MXS_RULE_SHAMPOO: return make_shampoo_stepper(stepper, matrices, settings.shampoo, team);
    case MXS_RULE_SOAP: return make_soap_stepper(stepper, matrices, settings.soap, team);
    case MXS_RULE_ADAMW: return make_adamw_stepper(stepper, matrices, settings.adamw, team);
    default: return set_error(MXS_INTERNAL, "rule %d has no stepper", rule);
  }
}

namespace {

StepMatrices one_by_one() {
  StepMatrices matrices;
  matrices.rows = matrices.columns = 1;
  matrices.weight_row = matrices.weight_matrix = matrices.gradient_row = matrices.gradient_matrix = 1;
  matrices.blocks = {{0, 1, 0, 1, 1, 1}};
  return matrices;
}

}  // namespace

mxs_preset preset_of(const OptimizerSettings &settings, mxs_rule rule) {
  switch (rule) {
    case MXS_RULE_MUON: return settings.muon.preset;
    case MXS_RULE_SHAMPOO: return settings.shampoo.preset;
    case MXS_RULE_SOAP: return settings.soap.preset;
    default: return settings.adamw.preset;
  }
}

mxs_status check_options(const OptimizerSettings &settings, RulesUsed used, Team *team,
                         const std::function<void(mxs_rule rule, const Stepper &stepper)> &took) {
  OptimizerSettings tried = settings;
  if (!used.decomposes)
    for (mxs_backend *const backend : {&tried.shampoo.backend, &tried.soap.backend})
      if (*backend == MXS_BACKEND_AUTO) *backend = MXS_BACKEND_REFERENCE;
  for (const mxs_rule rule : {MXS_RULE_MUON, MXS_RULE_SHAMPOO, MXS_RULE_SOAP, MXS_RULE_ADAMW}) {
    std::unique_ptr<Stepper> stepper;
    const mxs_status status = make_stepper(&stepper, rule, one_by_one(), tried, team);
    if (status != MXS_OK && status != MXS_NOT_BUILT) return status;
    if (status == MXS_OK) took(rule, *stepper);
  }
  return MXS_OK;
}

}  // namespace mxs
