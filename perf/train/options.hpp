// SPDX-License-Identifier: Apache-2.0
// Options: what the command line of mxs-train says.
#pragma once

#include <cstdint>
#include <string>

#include "model.hpp"
#include "placement.hpp"

namespace train {

struct Options {
  std::string placement = "owner";
  Shape shape;
  PlacementOptions placing;
  std::string text_path, json_path, weights_path;
  int64_t steps = 40, micro_batches = 12;
  float matrix_lr = 0, adamw_lr = 0.003f, weight_decay = 0.01f, clip_norm = 1.0f;
  bool quiet = false, help = false, check = false;
};

// 0 in the options: what suits the rule.
float matrix_lr(const Options &options);

// Throws a sentence for whatever it doesn't understand.
Options read_options(int argument_count, char **arguments);
std::string help_text();

}  // namespace train
