// SPDX-License-Identifier: Apache-2.0
// When is the meter read, and which part of a step does a difference belong to?
#include "meter.hpp"

#include <ctime>
#include <fstream>
#include <limits>
#include <string>

#include "check.hpp"
#include "report.hpp"

namespace train {

Meter::Reading Meter::read() const {
  Reading reading;
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  reading.cpu_ms = static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  if (comm_ == nullptr) return reading;
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  check(mxs_comm_query_stats(comm_, &stats), "mxs_comm_query_stats");
  for (const auto &phases : stats.counters)
    for (int phase = 0; phase < MXS_PHASE_COUNT; ++phase)
      reading.sent[phase] += static_cast<double>(phases[phase].bytes_out);
  return reading;
}

double Meter::Reading::all_sent() const {
  double total = 0;
  for (double bytes : sent) total += bytes;
  return total;
}

// Of this network namespace, all but lo. A line: "eth0: bytes packets 6 more, bytes ...".
Meter::Cards Meter::read_cards() {
  Cards cards;
  std::ifstream file("/proc/self/net/dev");
  constexpr auto rest_of_line = std::numeric_limits<std::streamsize>::max();
  for (int title = 0; title < 2; ++title) file.ignore(rest_of_line, '\n');
  for (std::string name; std::getline(file >> std::ws, name, ':'); file.ignore(rest_of_line, '\n')) {
    double numbers[9] = {};
    for (double &number : numbers) file >> number;
    if (name == "lo") continue;
    cards.bytes_in += numbers[0];
    cards.bytes_out += numbers[8];
  }
  return cards;
}

void Meter::begin_step(const mxs_comm *comm) {
  comm_ = comm;
  begin_cards_ = read_cards();
  begin_ = read();
}

void Meter::begin_optimizer() { middle_ = read(); }

void Meter::end_step() {
  const Reading end = read();
  const Cards cards = read_cards();
  Costs costs = {};
  const auto put = [&](Cost cost, double value) { costs[static_cast<size_t>(cost)] = value; };
  const auto told = [&](int phase) { return middle_.sent[phase] - begin_.sent[phase]; };
  put(Cost::forward_bytes, told(MXS_PHASE_FORWARD));
  put(Cost::backward_bytes, told(MXS_PHASE_BACKWARD));
  put(Cost::other_bytes, told(MXS_PHASE_OTHER) + told(MXS_PHASE_STEP));
  put(Cost::step_bytes, end.all_sent() - middle_.all_sent());
  put(Cost::cpu_ms, end.cpu_ms - begin_.cpu_ms);
  put(Cost::optimizer_cpu_ms, end.cpu_ms - middle_.cpu_ms);
  put(Cost::card_bytes_in, cards.bytes_in - begin_cards_.bytes_in);
  put(Cost::card_bytes_out, cards.bytes_out - begin_cards_.bytes_out);
  steps_.push_back(costs);
}

Costs Meter::costs() const {
  Costs medians = {};
  for (size_t cost = 0; cost < cost_count; ++cost) {
    std::vector<double> values;
    for (size_t step = steps_.size() > 1 ? 1 : 0; step < steps_.size(); ++step) values.push_back(steps_[step][cost]);
    medians[cost] = median(values);
  }
  return medians;
}

}  // namespace train
