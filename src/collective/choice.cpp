// SPDX-License-Identifier: Apache-2.0
#include "collective/choice.hpp"

#include <algorithm>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "matrixshard/collective.h"
#include "schedule/bounds.hpp"
#include "schedule/cost.hpp"

namespace mxs {

namespace {

const char *node_name(int kind) {
  return kind == MXS_GATHER ? "fanout" : kind == MXS_REDUCE ? "cooperative" : nullptr;
}

const char *kind_name(const MessageOptions &options) {
  switch (options.kind) {
    case MXS_GATHER: return "a gather";
    case MXS_REDUCE: return options.rank_order ? "a reduce in rank order" : "a reduce";
    default: return "a reshard";
  }
}

std::string names_for(const MessageOptions &options, const char *in_node) {
  std::string names;
  for (const Algorithm algorithm : all_algorithms)
    if (serves(algorithm, direction_of(options)))
      names.append(names.empty() ? "" : ", ").append(algorithm_name(algorithm));
  if (in_node) names.append(", ").append(in_node);
  return names;
}

bool is_known(const std::string &name) {
  if (name == "fanout" || name == "cooperative") return true;
  return std::any_of(std::begin(all_algorithms), std::end(all_algorithms),
                     [&](Algorithm algorithm) { return name == algorithm_name(algorithm); });
}

// Ranks of one node that are made to talk over a network (MXS_TRANSPORT=ucx) are priced as nodes of their own.
Topology priced_topology(const Comm &comm) {
  const bool over_network = std::any_of(comm.routes.begin(), comm.routes.end(), [](const Route &route) {
    return route.transport && route.transport->needs_landing;
  });
  if (!over_network || comm.topology.node_count() > 1) return comm.topology;
  std::vector<uint64_t> nodes;
  for (int rank = 0; rank < comm.rank_count; ++rank) nodes.push_back(static_cast<uint64_t>(rank));
  Topology apart = topology_from_nodes(nodes);
  static_cast<Speeds &>(apart) = comm.topology;
  return apart;
}

void take(const Prediction &prediction, Choice *choice) {
  choice->messages = true;
  choice->algorithm = prediction.algorithm;
  choice->chunk_bytes = prediction.chunk_bytes;
  choice->window = prediction.window;
  choice->predicted_s = prediction.seconds;
}

// wanted: one that serves, or nullptr.
Choice price(const Topology &topology, const MessageOptions &options, const Algorithm *wanted) {
  ScheduleOptions plan = schedule_options(topology, options);
  std::vector<Prediction> predictions = predict_all(plan, options.window);
  if (wanted) {
    std::erase_if(predictions, [&](const Prediction &prediction) { return prediction.algorithm == *wanted; });
    plan.algorithm = *wanted;
    predictions.insert(predictions.begin(), predict(plan, options.window));
  }
  Choice choice;
  choice.bound_s = lower_bound(plan).seconds();
  take(predictions.front(), &choice);
  choice.reason = reason_text(predictions, choice.bound_s);
  return choice;
}

// Of this name, for this kind.
const Algorithm *find(const std::string &name, const MessageOptions &options) {
  for (const Algorithm &algorithm : all_algorithms)
    if (name == algorithm_name(algorithm) && serves(algorithm, direction_of(options))) return &algorithm;
  return nullptr;
}

Choice choose_freely(const Comm &comm, const MessageOptions &options) {
  Choice choice = price(priced_topology(comm), options, nullptr);
  choice.node = comm.domain && node_name(options.kind);
  return choice;
}

}  // namespace

mxs_status choose_messages(const Topology &topology, const MessageOptions &options, const char *name, Choice *choice) {
  const std::string wanted = name ? name : "";
  const Algorithm *algorithm = wanted.empty() ? nullptr : find(wanted, options);
  if (!wanted.empty() && !algorithm)
    return set_error(MXS_NOT_FOUND, "algorithm is '%s', which %s in messages doesn't have; it has %s", wanted.c_str(),
                     kind_name(options), names_for(options, nullptr).c_str());
  *choice = price(topology, options, algorithm);
  return MXS_OK;
}

mxs_status choose(const Comm &comm, const MessageOptions &options, const char *name, Choice *choice) {
  std::string wanted = name ? name : "";
  const bool from_environment = wanted.empty();
  if (from_environment) wanted = environment_text("MXS_ALGORITHM").value_or("");
  if (wanted.empty()) {
    *choice = choose_freely(comm, options);
    return MXS_OK;
  }
  const char *in_node = comm.domain ? node_name(options.kind) : nullptr;
  if (in_node && wanted == in_node) {
    *choice = price(priced_topology(comm), options, nullptr);
    choice->reason = wanted + ", as asked for";
    choice->predicted_s = 0;
    choice->node = true;
    choice->messages = false;
    return MXS_OK;
  }
  if (const Algorithm *algorithm = find(wanted, options)) {
    *choice = price(priced_topology(comm), options, algorithm);
    choice->reason += "; as asked for";
    return MXS_OK;
  }
  // A variable speaks to every collective of a program: one of another kind is chosen for, and that is logged.
  if (from_environment && is_known(wanted)) {
    log_line(MXS_LOG_WARNING, "MXS_ALGORITHM is '%s', which %s doesn't have; one of %s is chosen", wanted.c_str(),
             kind_name(options), names_for(options, in_node).c_str());
    *choice = choose_freely(comm, options);
    return MXS_OK;
  }
  return set_error(MXS_NOT_FOUND, "%s is '%s', which %s on this comm doesn't have; it has %s",
                   from_environment ? "MXS_ALGORITHM" : "algorithm", wanted.c_str(), kind_name(options),
                   names_for(options, in_node).c_str());
}

}  // namespace mxs
