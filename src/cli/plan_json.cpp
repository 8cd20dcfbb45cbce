// SPDX-License-Identifier: Apache-2.0
// The figures of `mxs plan` as one JSON object, in one line. Bytes and times are integers.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "cli/json_writer.hpp"
#include "cli/plan_text.hpp"
#include "cli/plan_times.hpp"

namespace mxs_cli {

namespace {

uint64_t whole_ns(double ns) { return static_cast<uint64_t>(std::llround(ns)); }

void add_head(const PlanFigures &figures, JsonText *json) {
  json->key("model").open('{').add("path", figures.path).add("title", figures.title);
  json->add("tensors", figures.tensors.size()).add("units", figures.units.size());
  json->add("parameters", figures.parameter_count).close('}');
  json->key("topology").open('{').add("words", figures.world).add_signed("ranks", figures.rank_count);
  json->add_signed("nodes", figures.node_count).add_signed("replicas", figures.replicas).close('}');
  json->key("rates").open('{').add("matrix_flops_per_second", figures.matrix_flops_per_second);
  json->add("memory_bytes_per_second", figures.memory_bytes_per_second).close('}');
  if (figures.budget) json->add("budget_bytes", figures.budget);
  json->add("fingerprint", hexadecimal_text(figures.fingerprint));
}

void add_objectives(const PlanFigures &figures, JsonText *json) {
  const char *const names[] = {"bytes", "step_ps", "egress", "nic"};
  json->key("objectives").open('{');
  for (int kind = 0; kind < 4; ++kind) {
    const mxs_objective &objective = figures.objectives[kind];
    json->key(names[kind]).open('{').add("worst", objective.worst).add("bound", objective.bound);
    json->add_signed(kind == MXS_OBJECTIVE_NIC ? "node" : "rank", objective.rank);
    if (kind >= MXS_OBJECTIVE_EGRESS) json->add_signed("unit", objective.unit);
    json->close('}');
  }
  json->close('}');
}

void add_ranks(const PlanFigures &figures, JsonText *json) {
  json->key("ranks").open('[');
  for (const RankFigures &rank : figures.ranks) {
    const mxs_memory &memory = rank.memory;
    json->open('{').add_signed("rank", rank.rank).add_signed("node", rank.node);
    json->add_signed("matrices", rank.load.matrix_count).add("owned_bytes", rank.load.owned_bytes);
    json->add("step_ns", rank.load.step_ns).add("weights", memory.weights).add("masters", memory.masters);
    json->add("gradients", memory.gradients).add("state", memory.state).add("slack", memory.slack);
    json->add("rest", memory.rest).add("slots", memory.slots).add("gradient_slots", memory.gradient_slots);
    json->add("workspace", memory.workspace).add("peak", memory.peak).close('}');
  }
  json->close(']');
}

void add_units(const PlanFigures &figures, JsonText *json) {
  json->key("units").open('[');
  for (const UnitFigures &unit : figures.units) {
    const mxs_unit_load &load = unit.load;
    json->open('{').add_signed("unit", unit.unit).add("name", unit.name).add("weight_bytes", load.weight_bytes);
    json->add("gradient_bytes", load.gradient_bytes).add_signed("owner_count", load.owner_count);
    json->add("segment_count", load.segment_count).add("rank_bytes_max", load.rank_bytes_max);
    json->add("rank_bytes_bound", load.rank_bytes_bound).add("nic_bytes_max", load.nic_bytes_max);
    json->add("nic_bytes_bound", load.nic_bytes_bound).add("network_bytes", load.network_bytes);
    json->add("gather_bound_ns", load.gather_bound_ns).key("owned").open('[');
    for (const auto &[rank, bytes] : unit.owned) json->open('[').signed_number(rank).number(bytes).close(']');
    json->close(']').close('}');
  }
  json->close(']');
}

// gather_ns: of forward and of backward, both. Without --tokens there is no time of a step.
void add_compared(const PlanFigures &figures, const ComparedPlacement &row, JsonText *json) {
  const auto sum = [](const std::vector<double> &times) {
    return whole_ns(std::accumulate(times.begin(), times.end(), 0.0));
  };
  const double tokens = static_cast<double>(figures.tokens);
  json->open('{').add("placement", row.placement).add("rest_bytes", row.rest_bytes);
  json->add("peak_bytes", row.peak_bytes).add("step_ns", row.step_ns).add("local_bytes", row.local_bytes);
  json->add("network_bytes", row.network_bytes).add("step_bytes", row.step_bytes);
  json->add("optimizer_wire_ns", whole_ns(row.optimizer_wire_ns)).add("optimizer_ns", whole_ns(row.optimizer_ns));
  json->add("gather_ns", 2 * sum(row.gather_ns)).add("reduce_ns", sum(row.reduce_ns));
  if (figures.tokens) {
    json->add("forward_backward_ns", whole_ns(forward_backward_ns(figures, row, tokens)));
    json->add("whole_step_ns", whole_ns(whole_step_ns(figures, row, tokens)));
  }
  json->add("note", row.note).close('}');
}

void add_wire(const PlanFigures &figures, JsonText *json) {
  json->key("wire").open('{').add("local_bytes", figures.wire.local_bytes);
  json->add("network_bytes", figures.wire.network_bytes);
  json->add("matrix_step_bytes", figures.wire.matrix_step_bytes).close('}');
  if (figures.moves.known)
    json->key("moves").open('{').add("count", figures.moves.count).add("bytes", figures.moves.bytes).close('}');
  json->key("compare").open('[');
  for (const ComparedPlacement &row : figures.compared) add_compared(figures, row, json);
  json->close(']');
  if (figures.compared.empty()) return;
  json->key("training").open('{').add("tokens", figures.tokens);
  json->add("active_parameters", active_parameters(figures));
  json->add("flops_per_second", figures.train_flops_per_second).close('}');
  json->add("advice", figures.advice);
}

void add_tensors(const PlanFigures &figures, JsonText *json) {
  if (!figures.show_tensors) return;
  json->key("tensors").open('[');
  for (const TensorFigures &tensor : figures.tensors) {
    json->open('{').add("name", std::string(tensor.info.name)).key("shape").open('[');
    for (int32_t d = 0; d < tensor.given->dimension_count; ++d) json->signed_number(tensor.given->shape[d]);
    json->close(']').add("dtype", std::string(mxs_dtype_name(tensor.dtype))).add_signed("unit", tensor.info.unit);
    json->add("rule", std::string(mxs_rule_name(tensor.info.rule)));
    json->add("role", std::string(mxs_role_name(tensor.info.role))).key("owners").open('[');
    for (const int32_t owner : tensor.owners) json->signed_number(owner);
    json->close(']').add("why", std::string(tensor.info.reason)).close('}');
  }
  json->close(']');
}

void add_sentences(const char *name, const std::vector<std::string> &sentences, JsonText *json) {
  json->key(name).open('[');
  for (const std::string &sentence : sentences) json->text(sentence);
  json->close(']');
}

}  // namespace

std::string plan_json(const PlanFigures &figures) {
  JsonText json;
  json.open('{');
  add_head(figures, &json);
  add_objectives(figures, &json);
  add_ranks(figures, &json);
  add_units(figures, &json);
  add_wire(figures, &json);
  add_tensors(figures, &json);
  add_sentences("warnings", figures.warnings, &json);
  add_sentences("notes", figures.notes, &json);
  json.add("verdict", figures.verdict).close('}');
  return json.take();
}

}  // namespace mxs_cli
