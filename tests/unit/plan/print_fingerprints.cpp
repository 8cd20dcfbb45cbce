// SPDX-License-Identifier: Apache-2.0
// Fingerprints of many plans, a line each, which every build and every machine prints alike: what fingerprints.py
// compares. All rules, roles, blocks, co-owners, budgets and weights; fixed seeds; several shapes of clusters.
#include <cinttypes>
#include <cstdio>
#include <functional>

#include "models.hpp"

using namespace mxs;

namespace {

struct Cluster {
  const char *name;
  std::vector<int> ranks_of_node;
};

const Cluster clusters[] = {{"1", {1}},
                            {"3", {3}},
                            {"4+3", {4, 3}},
                            {"2x8", {8, 8}},
                            {"8x8", {8, 8, 8, 8, 8, 8, 8, 8}},
                            {"1+5+2", {1, 5, 2}}};

Topology topology_of(const Cluster &cluster) {
  std::vector<uint64_t> nodes;
  for (size_t node = 0; node < cluster.ranks_of_node.size(); ++node)
    nodes.insert(nodes.end(), static_cast<size_t>(cluster.ranks_of_node[node]), node);
  return topology_from_nodes(nodes);
}

void print_plan(const std::string &name, const Model &model, const Cluster &cluster) {
  Plan plan;
  const mxs_status status =
      make_plan(model.tensors.data(), model.tensors.size(), topology_of(cluster), &model.options, &plan);
  std::printf("%s %s %d %016" PRIx64 "\n", name.c_str(), cluster.name, status, status == MXS_OK ? plan.fingerprint : 0);
}

// Matrices of every kind, in twelve blocks; every third one is stepped by `rule`.
Model layers(mxs_rule rule) {
  Model model = gpt(12, 256);
  for (size_t index = 0; index < model.tensors.size(); index += 3)
    if (model.tensors[index].dimension_count == 2 && !model.tensors[index].block_rows) model.tensors[index].rule = rule;
  return model;
}

Model experts() {
  Model model;
  for (int unit = 0; unit < 4; ++unit) {
    model.add(numbered("up", unit), {40, 128, 64}, unit).dtype = MXS_BF16;
    model.add(numbered("down", unit), {40, 64, 128}, unit).dtype = MXS_BF16;
    model.add(numbered("router", unit), {40, 128}, unit, MXS_RULE_ADAMW);
    model.add(numbered("bias", unit), {40}, unit);
  }
  return model;
}

Model frozen_with_pairs() {
  Model model;
  for (int unit = 0; unit < 20; ++unit)
    for (int index = 0; index < 5; ++index) {
      const std::string name = numbered("m", 5 * unit + index);
      model.add(name, {500 + 37 * index, 401}, unit, MXS_RULE_FROZEN).dtype = MXS_BF16;
      model.add(name + ".a", {8, 401}, unit).dtype = MXS_BF16;
      model.add(name + ".b", {500 + 37 * index, 8}, unit).dtype = MXS_BF16;
    }
  return model;
}

void print_options(const Cluster &cluster) {
  const std::pair<const char *, std::function<void(mxs_plan_options &)>> changes[] = {
      {"tight", [](mxs_plan_options &o) { o.rank_bytes_max = 48 << 20; }},
      {"impossible", [](mxs_plan_options &o) { o.rank_bytes_max = 1 << 16; }},
      {"bytes_first", [](mxs_plan_options &o) { o.step_weight = 1, o.bytes_weight = 1'000'000; }},
      {"egress_first", [](mxs_plan_options &o) { o.egress_weight = 1'000'000; }},
      {"no_search", [](mxs_plan_options &o) { o.search_moves_max = 1; }},
      {"slow_memory", [](mxs_plan_options &o) { o.memory_bytes_per_second = 10'000'000'000; }},
      {"huge_pages", [](mxs_plan_options &o) { o.alignment = 2 << 20; }},
      {"fine_shares", [](mxs_plan_options &o) { o.flat_bytes = 4096, o.alignment = 64; }},
      {"co_owners", [](mxs_plan_options &o) { o.co_owners_max = 8; }}};
  for (const auto &[name, change] : changes) {
    Model model = layers(MXS_RULE_MUON);
    change(model.options);
    print_plan(std::string("options.").append(name), model, cluster);
  }
}

}  // namespace

int main() {
  for (const Cluster &cluster : clusters) {
    const int rank_count = topology_of(cluster).rank_count();
    for (unsigned seed = 0; seed < 40; ++seed)
      print_plan(numbered("random.", seed), random_model(seed, rank_count), cluster);
    for (const mxs_rule rule : {MXS_RULE_MUON, MXS_RULE_ADAMW, MXS_RULE_FROZEN, MXS_RULE_EXTERNAL, MXS_RULE_SHAMPOO,
                                MXS_RULE_SOAP})
      print_plan(numbered("rule.", rule), layers(rule), cluster);
    print_plan("experts", experts(), cluster);
    print_plan("frozen_with_pairs", frozen_with_pairs(), cluster);
    print_options(cluster);
  }
  return 0;
}
