// SPDX-License-Identifier: Apache-2.0
// Report: the figures of one run, as JSON and as the lines that a person reads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "meter.hpp"
#include "options.hpp"

namespace train {

// Of all ranks: an element each.
struct RankFigures {
  std::vector<mxs_memory> predicted, counted;
  std::vector<double> pss_bytes;           // by how much creating the placement raised the proportional set size
  std::vector<double> step_matrix_bytes;   // sent during one optimizer step
  std::array<std::vector<double>, cost_count> costs;  // of one step
};

// The ranks that were left went on.
struct Restart {
  uint64_t step = 0;     // after this one
  int ranks = 0, lost = 0;
  double seconds = 0;    // from the failure to the next step
};

struct RunFigures {
  int ranks = 1;
  std::vector<double> losses;              // of each step, the mean over its micro-batches
  std::vector<double> step_ms, optimizer_ms;  // of each step, the slowest rank's
  uint64_t first_step = 0;                 // not 0: of a resumed run
  uint64_t matrices = 0, matrix_parameters = 0;  // under another rule than adamw
  mxs_dtype product_dtype = MXS_BF16;      // of the network's products on rank 0
  int newton_schulz_steps = 0;             // of every hidden matrix; 0: under another rule than muon
  uint64_t skipped_steps = 0, parameters = 0, text_bytes = 0, activation_bytes = 0, weights_hash = 0;
  std::vector<Restart> restarts;
  RankFigures by_rank;
};

double median(std::vector<double> values);

void write_json(const std::string &path, const Options &options, const RunFigures &figures);
void print_summary(const Options &options, const RunFigures &figures);

// Proportional set size of this process, from /proc/self/smaps_rollup: a page that n processes share counts 1/n in
// each. Without pages of files, which are programs and libraries.
uint64_t pss_bytes();

// A line that is drawn over itself on a terminal; elsewhere one line per quarter. On stderr.
class Progress {
 public:
  Progress(std::string name, int64_t steps, bool shown);
  void show(int64_t done, double loss);
  void say(const std::string &sentence);

 private:
  std::string name_;
  int64_t steps_;
  bool shown_, terminal_;
};

}  // namespace train
