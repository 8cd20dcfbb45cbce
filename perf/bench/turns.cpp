// SPDX-License-Identifier: Apache-2.0
#include "bench/turns.hpp"

#include <algorithm>
#include <ctime>

#include "bench/ranks.hpp"

namespace bench {

namespace {

// Of all threads.
double cpu_now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

}  // namespace

double Contender::wall() const { return median(wall_ms); }
double Contender::cpu() const { return median(cpu_ms); }
double Contender::least() const { return *std::min_element(wall_ms.begin(), wall_ms.end()); }
double Contender::most() const { return *std::max_element(wall_ms.begin(), wall_ms.end()); }

double faster(const std::vector<double> &slow_ms, const std::vector<double> &fast_ms) {
  std::vector<double> ratios;
  for (size_t i = 0; i < slow_ms.size(); i++) ratios.push_back(slow_ms[i] / fast_ms[i]);
  return median(ratios);
}

void take_turns(std::vector<Contender> *contenders, int warmups, int iterations) {
  for (int turn = -warmups; turn < iterations; turn++)
    for (size_t i = 0; i < contenders->size(); i++) {
      Contender &contender = (*contenders)[(i + static_cast<size_t>(turn + warmups)) % contenders->size()];
      const double cpu = cpu_now_ms(), wall = now_us();
      contender.body();
      if (turn < 0) continue;
      contender.wall_ms.push_back((now_us() - wall) * 1e-3);
      contender.cpu_ms.push_back(cpu_now_ms() - cpu);
    }
}

}  // namespace bench
