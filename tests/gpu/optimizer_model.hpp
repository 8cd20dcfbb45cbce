// SPDX-License-Identifier: Apache-2.0
// What tests of optimizers in CUDA memory have in common: models, values, streams and comparisons.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "gpu/optimizer_side.hpp"

namespace mxs::test {

// Odd sizes; ranks of large worlds own nothing of it.
inline const std::vector<SideTensor> adamw_model = {
    {"embedding", 0, {611, 63}, MXS_BF16, MXS_RULE_ADAMW, 1},
    {"norm", 0, {33}, MXS_F32, MXS_RULE_ADAMW, 0},
    {"bias", 1, {7}, MXS_F16, MXS_RULE_ADAMW, 0},
    {"outside", 1, {12, 8}, MXS_F32, MXS_RULE_EXTERNAL, 0},
    {"table", 1, {20, 20}, MXS_F32, MXS_RULE_FROZEN, 0},
};

inline std::vector<mxs_group_values> values_of(int step) {
  std::vector<mxs_group_values> groups(2, MXS_GROUP_VALUES_INIT);
  groups[0].lr = 0.02f / static_cast<float>(step + 1);
  groups[1].lr = 0.003f;
  groups[1].weight_decay = 0.0f;
  return groups;
}

inline mxs_step step_of(const std::vector<mxs_group_values> &groups, float clip_norm, void *stream) {
  mxs_step step = MXS_STEP_INIT;
  step.group_count = static_cast<int32_t>(groups.size());
  step.groups = groups.data();
  step.gradient_scale = 0.125f;
  step.clip_norm = clip_norm;
  step.stream = stream;
  return step;
}

// A stream of a rank's device.
class Stream {
 public:
  explicit Stream(mxs_comm *comm) {
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    if (mxs_comm_query(comm, &info) != MXS_OK) return;
    const int index = info.device > 0 ? info.device - 1 : 0;
    if (find_device(index, &device) != MXS_OK || device->create_stream(&stream) != MXS_OK) device = nullptr;
  }
  ~Stream() {
    if (device) device->destroy_stream(stream);
  }
  Device *device = nullptr;
  DeviceStream stream = nullptr;
};

inline std::string compare_verdicts(const mxs_verdict &host, const mxs_verdict &device) {
  if (host.skipped != device.skipped) return "skipped is " + std::to_string(device.skipped);
  if (host.step_number != device.step_number) return "step_number is " + std::to_string(device.step_number);
  if (std::memcmp(&host.norm, &device.norm, sizeof host.norm) != 0) return "norm is " + std::to_string(device.norm);
  if (std::memcmp(&host.clip_factor, &device.clip_factor, sizeof host.clip_factor) != 0)
    return "clip_factor is " + std::to_string(device.clip_factor);
  return host.found_inf_rank == device.found_inf_rank
             ? ""
             : "found_inf_rank is " + std::to_string(device.found_inf_rank);
}

inline std::string compare_sides(Side *host, Side *device, int step) {
  std::vector<std::byte> of_host, of_device;
  std::string complaint = host->collect(&of_host);
  if (complaint.empty()) complaint = device->collect(&of_device);
  if (!complaint.empty()) return complaint;
  if (of_host == of_device) return "";
  const size_t least = std::min(of_host.size(), of_device.size());
  const auto at = std::mismatch(of_host.begin(), of_host.begin() + static_cast<ptrdiff_t>(least), of_device.begin());
  return "after step " + std::to_string(step) + " byte " + std::to_string(at.first - of_host.begin()) + " of " +
         std::to_string(of_host.size()) + " (" + std::to_string(of_device.size()) + " on the device) differs";
}

struct Case {
  const std::vector<SideTensor> *model;
  mxs_preset preset = MXS_PRESET_DEFAULT;
  mxs_rounding rounding = MXS_ROUND_NEAREST;
};

inline mxs_optimizer_options options_of(const Case &given) {
  static const mxs_shampoo_options shampoo = [] {
    mxs_shampoo_options options = MXS_SHAMPOO_OPTIONS_INIT;
    options.interval = options.start = 2;
    options.backend = MXS_BACKEND_REFERENCE;
    options.momentum = 0.5f;
    return options;
  }();
  static const mxs_soap_options soap = [] {
    mxs_soap_options options = MXS_SOAP_OPTIONS_INIT;
    options.interval = 2;
    options.backend = MXS_BACKEND_REFERENCE;
    return options;
  }();
  mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
  options.backend = MXS_BACKEND_REFERENCE;
  options.preset = given.preset;
  options.rounding = given.rounding;
  options.seed = 11;
  options.shampoo_options = &shampoo;
  options.soap_options = &soap;
  return options;
}

// Matrices of each kind: rows and columns as blocks, a stack, tall and wide ones, transposed.
inline const std::vector<SideTensor> muon_model = {
    {"embedding", 0, {130, 64}, MXS_BF16, MXS_RULE_ADAMW, 1},
    {"qkv", 1, {96, 32}, MXS_BF16, MXS_RULE_MUON, 0, {32, 48, 16}},
    {"out", 1, {40, 56}, MXS_F32, MXS_RULE_MUON, 0},
    {"tall", 1, {200, 24}, MXS_F32, MXS_RULE_MUON, 1},
    {"experts", 2, {3, 32, 64}, MXS_F16, MXS_RULE_MUON, 0},
    {"c_attn", 2, {24, 72}, MXS_BF16, MXS_RULE_MUON, 0, {}, {24, 16, 32}, true},
    {"norm", 2, {33}, MXS_F32, MXS_RULE_ADAMW, 1},
};

// Sides with and without factors, blocks, a stack; refreshed at every second step.
inline const std::vector<SideTensor> factor_model = {
    {"embedding", 0, {130, 64}, MXS_BF16, MXS_RULE_ADAMW, 1},
    {"qkv", 0, {48, 20}, MXS_BF16, MXS_RULE_SHAMPOO, 0, {16, 32}},
    {"out", 1, {24, 36}, MXS_F32, MXS_RULE_SOAP, 0},
    {"up", 1, {40, 17}, MXS_F32, MXS_RULE_SHAMPOO, 1},
    {"experts", 2, {3, 12, 20}, MXS_F16, MXS_RULE_SOAP, 1},
    {"down", 2, {33, 24}, MXS_BF16, MXS_RULE_SOAP, 0},
};

// Without what NorMuon has not in this release.
inline const std::vector<SideTensor> &upright_model() {
  static const std::vector<SideTensor> model = [] {
    std::vector<SideTensor> upright;
    for (const SideTensor &tensor : muon_model)
      if (!tensor.transposed) upright.push_back(tensor);
    return upright;
  }();
  return model;
}

}  // namespace mxs::test
