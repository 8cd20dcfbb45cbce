// SPDX-License-Identifier: Apache-2.0
#include "bench/ranks.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>

namespace bench {

namespace {

constexpr size_t sum_count_max = 64;  // of mxs_comm_sum

// The core'th of those that this process may use.
void pin_to(int index) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  index %= std::max(1, CPU_COUNT(&set));
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set) || index-- != 0) continue;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
      throw mxs::error(MXS_SYSTEM, fmt::format("--pin: core {} can't be had: {}", core, std::strerror(errno)));
    return;
  }
}

// "0-3,8"
std::string core_list() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "?";
  std::string list;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
    list += fmt::format("{}{}", list.empty() ? "" : ",", core);
    if (last > core) list += fmt::format("-{}", last);
    core = last;
  }
  return list;
}

// Texts travel as numbers, a byte each.
std::string text_of(const std::vector<double> &codes) {
  std::string text;
  for (const double code : codes)
    if (code > 0) text += static_cast<char>(code);
  return text;
}

}  // namespace

double now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

Ranks::Ranks(const Options &options) : options_(options) {
  mxs_comm_options comm = MXS_COMM_OPTIONS_INIT;
  comm.transport = options.transport.empty() ? nullptr : options.transport.c_str();
  comm_ = mxs::make_comm(&comm);
  mxs::check(mxs_comm_query(comm_.get(), &info_));
  if (options.pin) pin_to(info_.local_rank);
}

void Ranks::barrier() const { mxs::check(mxs_comm_barrier(comm_.get(), nullptr)); }

// Sums with zeros are exact, so a sum carries every rank's values to all.
std::vector<std::vector<double>> Ranks::share(const std::vector<double> &mine) const {
  const size_t each = mine.size();
  std::vector<double> values(each * static_cast<size_t>(count()), 0.0);
  std::copy(mine.begin(), mine.end(), values.begin() + static_cast<ptrdiff_t>(each * static_cast<size_t>(rank())));
  for (size_t at = 0; at < values.size(); at += sum_count_max)
    mxs::check(mxs_comm_sum(comm_.get(), values.data() + at, std::min(sum_count_max, values.size() - at), nullptr));
  std::vector<std::vector<double>> by_rank;
  for (size_t at = 0; at < values.size(); at += each)
    by_rank.emplace_back(values.begin() + static_cast<ptrdiff_t>(at),
                         values.begin() + static_cast<ptrdiff_t>(at + each));
  return by_rank;
}

std::vector<double> Ranks::share(double mine) const {
  std::vector<double> values;
  for (const std::vector<double> &one : share(std::vector<double>{mine})) values.push_back(one[0]);
  return values;
}

double Ranks::largest(double mine) const {
  const std::vector<double> values = share(mine);
  return *std::max_element(values.begin(), values.end());
}

void Ranks::wait(mxs_request request) const {
  if (!options_.spin) {
    mxs::check(mxs_comm_wait(comm_.get(), request, nullptr));
    return;
  }
  while (mxs::check(mxs_comm_test(comm_.get(), request)) == MXS_IN_PROGRESS) {
  }
}

double Ranks::copy_rate() {
  if (copy_rate_ > 0) return copy_rate_;
  // Larger than a core's own caches, and not much to touch for many ranks.
  const size_t bytes =
      std::min(size_t{32} << 20, (size_t{64} << 20) / static_cast<size_t>(count()) + (size_t{4} << 20));
  std::vector<char> source(bytes, 1), target(bytes, 2);
  std::vector<double> times;
  for (int turn = 0; turn < 7; turn++) {
    barrier();
    const double start = now_us();
    std::memcpy(target.data(), source.data(), bytes);
    times.push_back(now_us() - start);
    source[static_cast<size_t>(turn)] = target[bytes - 1];
  }
  return copy_rate_ = static_cast<double>(bytes) / largest(median(times));
}

void Ranks::print_header(const std::string &title) {
  constexpr size_t host_bytes = 24, cores_bytes = 24;
  char host[host_bytes + 1] = "";
  gethostname(host, host_bytes);
  const std::string cores = core_list();
  std::vector<double> mine = {static_cast<double>(getpid()), static_cast<double>(info_.node),
                              static_cast<double>(info_.local_rank)};
  for (size_t i = 0; i < host_bytes; i++) mine.push_back(i < std::strlen(host) ? host[i] : 0);
  for (size_t i = 0; i < cores_bytes; i++) mine.push_back(i < cores.size() ? cores[i] : 0);
  const std::vector<std::vector<double>> all = share(mine);
  const double rate = copy_rate();
  if (!is_first()) return;
  fmt::print("# {}\n# matrixshard {}: {} rank{} on {} node{}, transports: {}, all ranks copy {:.1f} GB/s each\n", title,
             mxs_version_text(), count(), count() == 1 ? "" : "s", info_.node_count, info_.node_count == 1 ? "" : "s",
             info_.transports, rate * 1e-3);
  for (int rank = 0; rank < count(); rank++) {
    const std::vector<double> &one = all[static_cast<size_t>(rank)];
    const auto host_at = one.begin() + 3, cores_at = host_at + host_bytes;
    if (count() > 16 && rank >= 8 && rank < count() - 1) {
      if (rank == 8) fmt::print("#   ...\n");
      continue;
    }
    fmt::print("#   rank {} pid {} on {}, node {}, local rank {}, cores {}\n", rank, one[0],
               text_of({host_at, cores_at}), one[1], one[2], text_of({cores_at, one.end()}));
  }
}

}  // namespace bench
