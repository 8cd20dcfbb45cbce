// SPDX-License-Identifier: Apache-2.0
#include "collective/choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "matrixshard/collective.h"

namespace mxs {

namespace {

constexpr uint64_t kib = 1024;

bool over_network(const Comm &comm) {
  return std::any_of(comm.routes.begin(), comm.routes.end(), [](const Route &route) {
    return route.transport && route.transport->needs_landing;
  });
}

const char *node_name(int kind) {
  return kind == MXS_GATHER ? "fanout" : kind == MXS_REDUCE ? "cooperative" : nullptr;
}

// Those that a kind can use in messages, best known first.
std::vector<Algorithm> algorithms_for(const MessageOptions &options) {
  if (options.kind == MXS_RESHARD) return {Algorithm::direct};
  if (options.kind == MXS_REDUCE && options.rank_order) return {Algorithm::flat, Algorithm::chain, Algorithm::spread};
  return {Algorithm::flat, Algorithm::chain, Algorithm::spread};
}

std::string names_for(const Comm &comm, const MessageOptions &options) {
  std::string names;
  for (const Algorithm algorithm : algorithms_for(options))
    names.append(names.empty() ? "" : ", ").append(algorithm_name(algorithm));
  if (comm.domain && node_name(options.kind)) names.append(", ").append(node_name(options.kind));
  return names;
}

const char *kind_name(const MessageOptions &options) {
  switch (options.kind) {
    case MXS_GATHER: return "a gather";
    case MXS_REDUCE: return options.rank_order ? "a reduce in rank order" : "a reduce";
    default: return "a reshard";
  }
}

}  // namespace

// flat: every owner sends to all others itself. Its busiest port carries (p - 1) times the largest owner's bytes; a
// ring's carries everybody's once, but the last chunk passes p - 1 ranks. So flat while owners are about even (within
// 1.25 of it), for two ranks, and below 64 KiB, where a ring's hops cost more than its ports save.
Algorithm choose_algorithm(const Comm &comm, const MessageOptions &options) {
  const Layout &layout = *options.layout;
  if (options.kind == MXS_RESHARD) return Algorithm::direct;
  if (options.kind == MXS_REDUCE && options.rank_order) return Algorithm::spread;
  uint64_t total = 0, largest = 0;
  for (int rank = 0; rank < layout.rank_count; ++rank) {
    const uint64_t owned = layout.owned_bytes(rank);
    total += owned;
    largest = std::max(largest, owned);
  }
  const uint64_t ranks = static_cast<uint64_t>(comm.rank_count);
  if (ranks <= 2 || total <= 64 * kib) return Algorithm::flat;
  const bool even = largest <= total / ranks + total / ranks / 4;
  return even ? Algorithm::flat : Algorithm::chain;
}

// Network: sqrt(s (L + o) / ((N - 2) b)), kept within what goes eagerly on TCP; L + o = 60 us and 1.25 GB/s stand for
// a network nobody has measured, and hardly matter within these bounds.
// Memory: a chunk should stay in a core's cache between ranks. Of 64 KiB to 1 MiB, 128 and 256 KiB were the best for
// 32 MiB of heap memory over shm with 4 ranks on 2 busy cores: a reduce to one owner, flat, took 78, 125 and 190 ms in
// chunks of 128 KiB, 256 KiB and 1 MiB (one sweep, noisy).
uint64_t choose_chunk_bytes(const Comm &comm, const MessageOptions &options) {
  if (options.chunk_bytes) return options.chunk_bytes;
  const uint64_t ranks = static_cast<uint64_t>(std::max(comm.rank_count, 3));
  if (over_network(comm)) {
    const double bytes = static_cast<double>(options.layout->bytes);
    const double best = std::sqrt(bytes * 60e-6 * 1.25e9 / static_cast<double>(ranks - 2));
    return std::clamp<uint64_t>(align_down(static_cast<uint64_t>(std::min(best, 1e9)), 4096), 64 * kib, 128 * kib);
  }
  return std::clamp<uint64_t>(align_up(options.layout->bytes / (8 * ranks), 4096), 64 * kib, 256 * kib);
}

namespace {

mxs_status choose_freely(const Comm &comm, const MessageOptions &options, Choice *choice) {
  choice->node = comm.domain && node_name(options.kind);
  choice->messages = true;
  choice->algorithm = choose_algorithm(comm, options);
  return MXS_OK;
}

bool is_known(const std::string &name) {
  for (const char *known : {"flat", "chain", "spread", "direct", "fanout", "cooperative"})
    if (name == known) return true;
  return false;
}

}  // namespace

mxs_status choose(const Comm &comm, const MessageOptions &options, const char *name, Choice *choice) {
  std::string wanted = name ? name : "";
  const bool from_environment = wanted.empty();
  if (from_environment) wanted = environment_text("MXS_ALGORITHM").value_or("");
  if (wanted.empty()) return choose_freely(comm, options, choice);
  const char *in_node = comm.domain ? node_name(options.kind) : nullptr;
  Choice result;
  if (in_node && wanted == in_node) {
    result.node = true;
    *choice = result;
    return MXS_OK;
  }
  for (const Algorithm algorithm : algorithms_for(options))
    if (wanted == algorithm_name(algorithm)) {
      result.messages = true;
      result.algorithm = algorithm;
      *choice = result;
      return MXS_OK;
    }
  // A variable speaks to every collective of a program: one of another kind is chosen for, and that is logged.
  if (from_environment && is_known(wanted)) {
    log_line(MXS_LOG_WARNING, "MXS_ALGORITHM is '%s', which %s doesn't have; one of %s is chosen", wanted.c_str(),
             kind_name(options), names_for(comm, options).c_str());
    return choose_freely(comm, options, choice);
  }
  return set_error(MXS_NOT_FOUND, "%s is '%s', which %s on this comm doesn't have; it has %s",
                   from_environment ? "MXS_ALGORITHM" : "algorithm", wanted.c_str(),
                   kind_name(options), names_for(comm, options).c_str());
}

}  // namespace mxs
