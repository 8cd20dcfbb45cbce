// SPDX-License-Identifier: Apache-2.0
// The ranks of a measurement: their comm, their clocks, and what they tell each other.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/options.hpp"
#include "matrixshard/matrixshard.hpp"

namespace bench {

double now_us();   // of a steady clock
double cpu_us();   // that this process has used
double median(std::vector<double> values);
// The value that `part` of all values do not exceed: 0.99.
double percentile(std::vector<double> values, double part);

class Ranks {
 public:
  explicit Ranks(const Options &options);

  const mxs::comm &comm() const { return comm_; }
  const mxs_comm_info &info() const { return info_; }
  int rank() const { return info_.rank; }
  int count() const { return info_.rank_count; }
  bool is_first() const { return info_.rank == 0; }

  void barrier() const;
  // The exit status of the program: 1 if data were wrong. All ranks stay until rank 0 has said all it has to say: a
  // launcher ends the others as soon as one rank ends with 1.
  int end(bool wrong) const {
    std::fflush(stdout);
    barrier();
    return wrong ? 1 : 0;
  }
  // Every rank's values, by rank. All give equally many.
  std::vector<std::vector<double>> share(const std::vector<double> &mine) const;
  std::vector<double> share(double mine) const;
  double largest(double mine) const;

  // Waits for what was started with `request`, as the options say.
  void wait(mxs_request request) const;

  // Bytes per microsecond that one rank copies while all do; measured when it is first asked for. Collective.
  double copy_rate();

  // The lines that head a table: who takes part, and by which means. Collective; rank 0 prints.
  void print_header(const std::string &title);

 private:
  const Options &options_;
  mxs::comm comm_;
  mxs_comm_info info_ = MXS_COMM_INFO_INIT;
  double copy_rate_ = 0;
};

}  // namespace bench
