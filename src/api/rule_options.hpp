// SPDX-License-Identifier: Apache-2.0
// How each rule steps, as a caller says it: options that a stepper and an optimizer have in common.
#pragma once

#include "api/door.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

// options->newton_schulz, if it isn't nullptr, is then *newton_schulz, whose coefficients are the caller's.
inline mxs_status read_muon_options(const mxs_muon_options *given, mxs_muon_options *options,
                                    mxs_newton_schulz *newton_schulz) {
  mxs_status status = read_struct(given, sizeof *options, "muon_options", options);
  if (status != MXS_OK || !options->newton_schulz) return status;
  status = read_struct(options->newton_schulz, sizeof *newton_schulz, "muon_options.newton_schulz", newton_schulz);
  options->newton_schulz = newton_schulz;
  return status;
}

inline mxs_status read_shampoo_options(const mxs_shampoo_options *given, mxs_shampoo_options *options) {
  return read_struct(given, sizeof *options, "shampoo_options", options);
}

inline mxs_status read_soap_options(const mxs_soap_options *given, mxs_soap_options *options) {
  return read_struct(given, sizeof *options, "soap_options", options);
}

inline mxs_status read_adamw_options(const mxs_adamw_options *given, mxs_adamw_options *options) {
  return read_struct(given, sizeof *options, "adamw_options", options);
}

}  // namespace mxs
