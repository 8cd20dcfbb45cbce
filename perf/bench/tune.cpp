// SPDX-License-Identifier: Apache-2.0
// tune: measures what messages, copies and sums cost between these ranks, and saves it for later comms.
//
// Speeds of a kind of link are the medians over some typical pairs. Copies and sums are timed while all ranks are at
// it: a rank is seldom alone on its memory. With these speeds a second comm then runs each algorithm in messages, and
// the ratio to its prediction is saved as the algorithm's factor.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "bench/commands.hpp"
#include "bench/factors.hpp"
#include "bench/link.hpp"
#include "bench/report.hpp"

namespace bench {

namespace {

constexpr int pairs_most = 3;

// Bytes of fp32 terms per microsecond that one rank adds while all do.
double measure_add_rate(const Ranks &ranks) {
  const size_t count = (size_t{4} << 20) / sizeof(float) * 2;
  std::vector<float> sum(count, 1), terms(count, 2);
  std::vector<double> times;
  for (int turn = 0; turn < 7; turn++) {
    ranks.barrier();
    const double start = now_us();
    for (size_t i = 0; i < count; i++) sum[i] += terms[i];
    times.push_back(now_us() - start);
    terms[static_cast<size_t>(turn)] = sum[count - 1];
  }
  return static_cast<double>(count * sizeof(float)) / ranks.largest(median(times));
}

double median_of(const std::vector<Link> &links, bool local, double Link::*field) {
  std::vector<double> values;
  for (const Link &link : links)
    if (link.local == local) values.push_back(link.*field);
  return median(values);
}

uint32_t nanoseconds(double us) { return static_cast<uint32_t>(std::clamp(us * 1e3, 1.0, 4e9)); }
uint64_t per_second(double per_us) { return static_cast<uint64_t>(std::max(per_us * 1e6, 1.0)); }

// 0 where no link of a kind was there to measure: it keeps what stands.
mxs_speeds speeds_of(const std::vector<Link> &links, double copy_rate, double add_rate) {
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  const auto has = [&](bool local) {
    return std::any_of(links.begin(), links.end(), [&](const Link &link) { return link.local == local; });
  };
  if (has(true)) {
    speeds.local_latency_ns = nanoseconds(median_of(links, true, &Link::latency_us));
    speeds.local_overhead_ns = nanoseconds(median_of(links, true, &Link::overhead_us));
  }
  if (has(false)) {
    speeds.network_latency_ns = nanoseconds(median_of(links, false, &Link::latency_us));
    speeds.network_overhead_ns = nanoseconds(median_of(links, false, &Link::overhead_us));
    speeds.network_bytes_per_second = per_second(median_of(links, false, &Link::bandwidth));
  }
  speeds.local_bytes_per_second = per_second(copy_rate);
  speeds.add_bytes_per_second = per_second(add_rate);
  return speeds;
}

void print_link(const Link &link) {
  fmt::print("{:>7} {:>5} {:<8} {:>10.2f} {:>10.2f} {:>8.3f}  ", link.a, link.b, link.local ? "local" : "network",
             link.latency_us, link.overhead_us, link.bandwidth * 1e-3);
  for (const LinkPoint &point : link.points) fmt::print(" {}:{:.1f}", point.bytes, point.time_us);
  fmt::print("\n");
  std::fflush(stdout);
}

std::string json_of(const Link &link) {
  return fmt::format("{{\"operation\": \"tune\", \"link\": \"{}\", \"a\": {}, \"b\": {}, \"latency_us\": {:.4f}, "
                     "\"overhead_us\": {:.4f}, \"bandwidth\": {:.4f}}}",
                     link.local ? "local" : "network", link.a, link.b, link.latency_us, link.overhead_us,
                     link.bandwidth * 1e-3);
}

void print_speeds(const mxs_speeds &speeds) {
  fmt::print("# speeds: local {:.2f} us + 2 x {:.2f} us, {:.2f} GB/s; network {:.2f} us + 2 x {:.2f} us, {:.3f} GB/s; "
             "sums {:.2f} GB/s\n",
             speeds.local_latency_ns * 1e-3, speeds.local_overhead_ns * 1e-3,
             static_cast<double>(speeds.local_bytes_per_second) * 1e-9, speeds.network_latency_ns * 1e-3,
             speeds.network_overhead_ns * 1e-3, static_cast<double>(speeds.network_bytes_per_second) * 1e-9,
             static_cast<double>(speeds.add_bytes_per_second) * 1e-9);
}

// On rank 0, whose file stands for all.
void save(const mxs::topology &topology, const Options &options) {
  const char *const path = options.save.empty() ? nullptr : options.save.c_str();
  mxs::check(mxs_topology_save_speeds(topology.get(), path));
  fmt::print("# saved {}\n", path ? "as " + options.save + "; MXS_SPEEDS=" + options.save + " makes comms read it"
                                  : std::string("where comms look for it"));
}

// A comm whose speeds are these: rank 0 reads them from a file that is gone again afterwards.
class TunedRanks {
 public:
  TunedRanks(const Ranks &first, const mxs::topology &topology, const Options &options) {
    if (const char *before = std::getenv("MXS_SPEEDS")) before_ = before;
    if (first.is_first()) {
      const int file = mkstemp(name_);
      if (file < 0) throw mxs::error(MXS_SYSTEM, fmt::format("{}: {}", name_, std::strerror(errno)));
      close(file);
      mxs::check(mxs_topology_save_speeds(topology.get(), name_));
      setenv("MXS_SPEEDS", name_, 1);
    }
    ranks_.emplace(options);
    if (first.is_first()) std::remove(name_);
    if (before_) setenv("MXS_SPEEDS", before_->c_str(), 1);
    else unsetenv("MXS_SPEEDS");
  }
  Ranks &ranks() { return *ranks_; }

 private:
  char name_[32] = "/tmp/mxs_speeds_XXXXXX";
  std::optional<std::string> before_;
  std::optional<Ranks> ranks_;
};

// Factors that stand would be measured on top of themselves. Contention is none.
std::vector<mxs_algorithm_factor> neutral_factors(const mxs::topology &topology) {
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  mxs::check(mxs_topology_speeds(topology.get(), &speeds));
  std::vector<mxs_algorithm_factor> factors;
  for (uint32_t i = 0; i < speeds.factor_count; i++) {
    mxs_algorithm_factor factor = MXS_ALGORITHM_FACTOR_INIT;
    factor.algorithm = speeds.factors[i].algorithm;
    if (std::strcmp(factor.algorithm, "contention") == 0) continue;
    factors.push_back(factor);
  }
  return factors;
}

mxs::topology changed(const mxs::topology &topology, mxs_speeds speeds,
                      const std::vector<mxs_algorithm_factor> &factors) {
  speeds.factors = factors.data();
  speeds.factor_count = static_cast<uint32_t>(factors.size());
  return mxs::with_speeds(topology, speeds);
}

std::vector<mxs_algorithm_factor> as_factors(const std::vector<Factor> &measured) {
  std::vector<mxs_algorithm_factor> factors;
  for (const Factor &one : measured) {
    mxs_algorithm_factor factor = MXS_ALGORITHM_FACTOR_INIT;
    factor.algorithm = one.algorithm.c_str();
    factor.per_mille = static_cast<uint32_t>(std::clamp(1000 * one.ratio + 0.5, 1.0, 1e6));
    factors.push_back(factor);
  }
  return factors;
}

void print_factors(const std::vector<Factor> &factors, JsonFile *json) {
  for (const Factor &factor : factors) {
    fmt::print("# {} takes {:.2f} times as long as predicted, over {} cases\n", factor.algorithm, factor.ratio,
               factor.cases);
    json->write_line(fmt::format("{{\"operation\": \"tune\", \"algorithm\": {}, \"factor\": {:.4f}, \"cases\": {}}}",
                                 quoted(factor.algorithm), factor.ratio, factor.cases));
  }
}

}  // namespace

int tune(const Options &options) {
  Ranks ranks(options);
  JsonFile json(ranks.is_first() ? options.json : "");
  ranks.print_header(fmt::format("tune: messages there and back, {} after 3, medians", options.iterations));
  if (ranks.is_first())
    fmt::print("#\n# {:>5} {:>5} {:<8} {:>10} {:>10} {:>8}   bytes:time one way (us)\n#{:>22} {:>10} {:>10} {:>8}\n",
               "a", "b", "link", "latency", "overhead", "rate", "", "(us)", "(us)", "(GB/s)");
  std::vector<Link> links;
  for (const auto &[a, b] : typical_pairs(ranks, pairs_most)) {
    links.push_back(measure_link(ranks, a, b, options.iterations));
    if (!ranks.is_first()) continue;
    print_link(links.back());
    json.write_line(json_of(links.back()));
  }
  const mxs_speeds measured = speeds_of(links, ranks.copy_rate(), measure_add_rate(ranks));
  const mxs::topology before = mxs::topology_of(ranks.comm());
  const mxs::topology tuned = changed(before, measured, neutral_factors(before));
  std::vector<Factor> factors;
  {
    TunedRanks second(ranks, tuned, options);
    factors = measure_factors(second.ranks(), options);
  }
  if (ranks.is_first()) {
    const std::vector<mxs_algorithm_factor> as_words = as_factors(factors);
    const mxs_speeds nothing = MXS_SPEEDS_INIT;
    const mxs::topology result = changed(tuned, nothing, as_words);
    mxs_speeds all = MXS_SPEEDS_INIT;
    mxs::check(mxs_topology_speeds(result.get(), &all));
    print_speeds(all);
    print_factors(factors, &json);
    if (!options.dry_run) save(result, options);
  }
  return ranks.end(false);
}

}  // namespace bench
