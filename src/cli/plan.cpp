// SPDX-License-Identifier: Apache-2.0
// mxs plan: who would own what of a model on a cluster that needn't exist, at what cost, and what is wrong with it.
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/plan_figures.hpp"
#include "cli/plan_page.hpp"
#include "cli/read_topology.hpp"

namespace mxs_cli {

namespace {

mxs::model load_model(const PlanRequest &request) {
  std::vector<mxs_model_rule> rules;
  for (const RuleWord &word : request.rules) {
    mxs_model_rule rule = MXS_MODEL_RULE_INIT;
    rule.rule = word.rule;
    rule.pattern = word.pattern.c_str();
    rule.group = word.group;
    rules.push_back(rule);
  }
  mxs_model_options options = request.model;
  options.rules = rules.empty() ? nullptr : rules.data();
  options.rule_count = rules.size();
  return mxs::load_model(request.path.c_str(), &options);
}

// The world's first shard group: consecutive ranks, as many as one replica has.
mxs::topology shard_group(mxs::topology world, int32_t replicas) {
  if (replicas == 1) return world;
  const int32_t rank_count = mxs_topology_rank_count(world.get());
  if (rank_count % replicas != 0)
    throw mxs::error(MXS_INVALID_ARGUMENT, std::string("--replicas ")
                                               .append(std::to_string(replicas))
                                               .append(" doesn't divide a world of ")
                                               .append(std::to_string(rank_count))
                                               .append(" ranks"));
  std::vector<int32_t> ranks(static_cast<size_t>(rank_count / replicas));
  std::iota(ranks.begin(), ranks.end(), 0);
  return mxs::topology_of(world, ranks);
}

mxs::plan make_plan(const PlanRequest &request, const mxs::model &model, const mxs::topology &topology,
                    const mxs::plan &previous) {
  mxs_plan_options options = request.options;
  options.unit_count = mxs_model_unit_count(model.get());
  options.previous = previous.get();
  return mxs::make_plan(mxs::tensors_of(model), topology, &options);
}

int show(const PlanRequest &request, const PlanFigures &figures) {
  const std::string json = request.json || !request.html.empty() ? plan_json(figures) : "";
  if (!request.html.empty()) {
    const std::string complaint = write_plan_page(request.html, json);
    if (!complaint.empty()) {
      std::fprintf(stderr, "mxs plan: %s\n", complaint.c_str());
      return 1;
    }
  }
  const std::string text = request.json ? json + "\n" : plan_table(figures);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

int plan(const Words &words) {
  PlanRequest request;
  const std::string complaint = read_plan_request(words, &request);
  if (!complaint.empty()) return bad_use("plan", complaint);
  mxs::topology topology;
  try {
    topology = shard_group(read_topology(request.world), request.replicas);
  } catch (const mxs::error &error) {
    return bad_use("plan", error.what());
  }
  try {
    const mxs::model model = load_model(request);
    const mxs::plan previous = request.previous.empty() ? nullptr : mxs::load_plan(request.previous.c_str());
    const mxs::plan made = make_plan(request, model, topology, previous);
    const PlanFigures figures = plan_figures(request, model, topology, made, previous);
    if (!request.save.empty()) mxs::check(mxs_plan_save(made.get(), request.save.c_str()));
    return show(request, figures);
  } catch (const mxs::error &error) {
    std::fprintf(stderr, "mxs plan: %s%s\n", error.status() == MXS_OVER_BUDGET ? "--budget: " : "", error.what());
    return 1;
  }
}

}  // namespace mxs_cli
