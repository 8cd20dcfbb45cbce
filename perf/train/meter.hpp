// SPDX-License-Identifier: Apache-2.0
// Meter: what does a step cost, beside the time that it takes?
//
//   begin_step ---- forward, backward, sums of gradients ---- begin_optimizer ---- the optimizer's step ---- end_step
//
// Sent are the bytes that the comm counts, of all kinds of collectives: those of the first part by the phase that was
// told when their collective began, those of the second part all as the step's. CPU time is that of the whole process,
// its threads for progress among them: where ranks share cores it says what the wall clock can't, how much was worked.
// Cards count for their node: ranks of one node read the same numbers.
//
// The first step of a process is left out if there are others: it touches pages and compiles kernels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "matrixshard/matrixshard.h"

namespace train {

enum class Cost { forward_bytes, backward_bytes, step_bytes, other_bytes, cpu_ms, optimizer_cpu_ms, card_bytes_in,
                  card_bytes_out };
constexpr size_t cost_count = static_cast<size_t>(Cost::card_bytes_out) + 1;
constexpr const char *cost_names[cost_count] = {"sent_forward_bytes", "sent_backward_bytes", "sent_step_bytes",
                                                "sent_other_bytes", "cpu_ms", "optimizer_cpu_ms", "card_bytes_in",
                                                "card_bytes_out"};
using Costs = std::array<double, cost_count>;

class Meter {
 public:
  // comm: nullptr if this rank is alone.
  void begin_step(const mxs_comm *comm);
  void begin_optimizer();
  void end_step();

  // Of one step: medians.
  Costs costs() const;

 private:
  struct Reading {
    double cpu_ms = 0;
    double sent[MXS_PHASE_COUNT] = {};
    double all_sent() const;
  };
  struct Cards {
    double bytes_in = 0, bytes_out = 0;
  };
  Reading read() const;
  static Cards read_cards();

  const mxs_comm *comm_ = nullptr;
  Reading begin_, middle_;
  Cards begin_cards_;
  std::vector<Costs> steps_;
};

}  // namespace train
