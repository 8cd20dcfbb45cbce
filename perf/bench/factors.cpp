// SPDX-License-Identifier: Apache-2.0
// A gather and an fp32 reduce of 1 MiB, in heap memory so that bytes go in messages, to all owners and to one.
#include "bench/factors.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/job.hpp"

namespace bench {

namespace {

constexpr uint64_t case_bytes = uint64_t{1} << 20;
constexpr int turns = 5;

// measured / predicted; nothing if there is no such algorithm here, or nothing is predicted.
std::optional<double> ratio_of(Ranks &ranks, Job &job, const std::string &algorithm) {
  std::unique_ptr<Contender> contender;
  try {
    contender = job.make(algorithm);
    contender->run(Form::out_of_place);
  } catch (const mxs::error &error) {
    if (!shows_absence(error.status())) throw;
    return {};
  }
  const double predicted_us = static_cast<double>(contender->describe().predicted_ns) * 1e-3;
  std::vector<double> times;
  for (int turn = 0; turn < turns; turn++) {
    ranks.barrier();
    const double start = now_us();
    contender->run(Form::out_of_place);
    times.push_back(ranks.largest(now_us() - start));
  }
  if (predicted_us <= 0) return {};
  return median(times) / predicted_us;
}

}  // namespace

std::vector<Factor> measure_factors(Ranks &ranks, const Options &given) {
  std::vector<Factor> factors;
  if (ranks.count() < 2) return factors;
  for (const std::string &algorithm : known_algorithms()) {
    Factor factor;
    factor.algorithm = algorithm;
    double logarithms = 0;
    for (const char *layout : {"even", "one"})
      for (const bool gathers : {true, false}) {
        Options options = given;
        options.heap = true;
        options.layout = layout;
        const auto job = gathers ? make_gather(ranks, options, case_bytes) : make_reduce(ranks, options, case_bytes);
        job->prepare(Form::out_of_place, 1);
        const std::optional<double> ratio = ratio_of(ranks, *job, algorithm);
        if (!ratio) continue;
        logarithms += std::log(*ratio);
        factor.cases++;
      }
    if (factor.cases == 0) continue;
    factor.ratio = std::exp(logarithms / factor.cases);
    factors.push_back(factor);
  }
  return factors;
}

}  // namespace bench
