// SPDX-License-Identifier: Apache-2.0
// tune: measures what messages, copies and sums cost between these ranks, and saves it for later comms.
//
// Speeds of a kind of link are the medians over some typical pairs. Copies and sums are timed while all ranks are at
// it: a rank is seldom alone on its memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "bench/commands.hpp"
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
  mxs_topology *changed = nullptr;
  mxs::check(mxs_topology_with_speeds(&changed, before.get(), &measured));
  const mxs::topology topology(changed);
  if (ranks.is_first()) {
    mxs_speeds all = MXS_SPEEDS_INIT;
    mxs::check(mxs_topology_speeds(topology.get(), &all));
    print_speeds(all);
    if (!options.dry_run) save(topology, options);
  }
  return ranks.end(false);
}

}  // namespace bench
