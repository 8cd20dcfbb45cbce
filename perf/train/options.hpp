// SPDX-License-Identifier: Apache-2.0
// Options: what the command line of mxs-train says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.hpp"
#include "placement.hpp"

namespace train {

struct CheckpointOptions {
  std::string path, resume_path;  // folders; "": none
  int64_t every = 0, keep = 0;    // 0: after the last step only; all stay
  bool beside = false;            // training goes on while they are written
};

struct Options {
  std::string placement = "owner";
  Shape shape;
  PlacementOptions placing;
  CheckpointOptions checkpoints;
  std::string text_path, json_path, weights_path;
  int64_t steps = 40, micro_batches = 12;
  struct Death {
    int64_t rank = -1, step = 0;  // step: counted from 1
  };
  std::vector<Death> deaths;
  float matrix_lr = 0, adamw_lr = 0.003f, weight_decay = 0.01f, clip_norm = 1.0f;
  bool quiet = false, help = false, check = false;
};

// 0 in the options: what suits the rule.
float matrix_lr(const Options &options);

// Throws a sentence for whatever it doesn't understand.
Options read_options(int argument_count, char **arguments);
std::string help_text();

}  // namespace train
