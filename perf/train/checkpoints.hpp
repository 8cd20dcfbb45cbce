// SPDX-License-Identifier: Apache-2.0
// Checkpoints: how does a run save what it has learnt, and go on from it?
//
// The library saves weights, state and step number. What only this program knows, its place in the data, goes along as
// rank 0's user bytes: batches are functions of (seed, step, number), so two numbers tell it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "options.hpp"
#include "placement.hpp"

namespace train {

struct Position {
  uint64_t steps = 0, skipped_steps = 0;  // done; those that were skipped count as done
  std::string from;                       // the checkpoint that the run went on from
};

class Checkpoints {
 public:
  // Both are looked at as long as this lives.
  Checkpoints(const Options &options, Trained trained) : options_(options), trained_(std::move(trained)) {}
  ~Checkpoints();
  Checkpoints(const Checkpoints &) = delete;
  Checkpoints &operator=(const Checkpoints &) = delete;

  // Loads the checkpoint that the options name; from the beginning if they name none. Collective.
  Position resume();
  // Saves if it is time. Collective.
  void after_step(const Position &position);
  // Waits for saves that go on.
  void finish();

 private:
  void save(const Position &position);
  void forget_finished();

  const Options &options_;
  const Trained trained_;
  std::vector<mxs_save *> saves_;  // under way, the oldest first
};

}  // namespace train
