// SPDX-License-Identifier: Apache-2.0
// The door of kernels.h's presets: names, values, scales.
#include "matrixshard/kernels.h"

#include <cstring>
#include <string>

#include "api/door.hpp"
#include "base/status.hpp"
#include "kernels/presets.hpp"
#include "kernels/recipe.hpp"

using namespace mxs;

const char *mxs_preset_name(mxs_preset preset) {
  const Preset *const found = find_preset(preset);
  return found ? found->name : "unknown";
}

mxs_status mxs_preset_from_name(const char *name, mxs_preset *preset) {
  return fenced([&]() -> mxs_status {
    if (!name || !preset) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", name ? "preset" : "name");
    int count = 0;
    const Preset *const presets = all_presets(&count);
    std::string names;
    for (int i = 0; i < count; ++i) {
      if (std::strcmp(name, presets[i].name) == 0) {
        *preset = presets[i].preset;
        return MXS_OK;
      }
      names.append(i == 0 ? "" : ", ").append(presets[i].name);
    }
    return set_error(MXS_NOT_FOUND, "no preset is called \"%.64s\"; there are %s", name, names.c_str());
  });
}

mxs_rule mxs_preset_rule(mxs_preset preset) {
  const Preset *const found = find_preset(preset);
  return found ? found->rule : MXS_RULE_AUTO;
}

mxs_status mxs_preset_values(mxs_preset preset, mxs_group_values *values) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_out_struct(values, sizeof *values, "values");
    if (status != MXS_OK) return status;
    const Preset *const found = find_preset(preset);
    if (!found) return set_error(MXS_INVALID_ARGUMENT, "the preset is %d, which is none", preset);
    write_struct(found->values, values);
    return MXS_OK;
  });
}

float mxs_muon_scale(mxs_preset preset, int64_t rows, int64_t columns) {
  const Preset *const found = find_preset(preset);
  if (!found || (found->rule != MXS_RULE_MUON && found->rule != MXS_RULE_AUTO)) return 0.0f;
  return update_scale(found->muon.scale, rows, columns);
}
