// SPDX-License-Identifier: Apache-2.0
// What `mxs plan` was asked for, read from its words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "matrixshard/matrixshard.h"

namespace mxs_cli {

struct RuleWord {
  std::string pattern;
  mxs_rule rule = MXS_RULE_AUTO;
  int32_t group = 0;
};

struct PlanRequest {
  std::string path, world;
  int32_t replicas = 1;
  std::vector<RuleWord> rules;
  mxs_model_options model = MXS_MODEL_OPTIONS_INIT;  // without its rules: they point elsewhere
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;  // without the previous plan
  mxs_memory_options memory = MXS_MEMORY_OPTIONS_INIT;
  uint64_t tokens = 0, train_flops = 0, active = 0;  // for times of steps; 0: not told
  std::vector<std::string> compare;  // in the order of compare_names
  bool tensors = false, json = false;
  std::string save, previous, html;
};

// Placements that a plan can be compared with, in the order in which they are shown.
extern const std::vector<std::string> compare_names;

// Returns what is wrong with the words, or "".
std::string read_plan_request(const Words &words, PlanRequest *request);

}  // namespace mxs_cli
