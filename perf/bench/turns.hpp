// SPDX-License-Identifier: Apache-2.0
// Contenders of one process that take turns, timed by the wall's clock and by the process's.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace bench {

struct Contender {
  std::string name;
  std::function<void()> body;  // throws mxs::error
  std::vector<double> wall_ms, cpu_ms;

  double wall() const;  // medians
  double cpu() const;
  double least() const;
  double most() const;
};

// By how much one is faster than another: the median over turns of the ratio in each turn.
double faster(const std::vector<double> &slow_ms, const std::vector<double> &fast_ms);

// Each runs once in a turn, and who begins changes from turn to turn: what else the machine does hits all alike.
void take_turns(std::vector<Contender> *contenders, int warmups, int iterations);

}  // namespace bench
