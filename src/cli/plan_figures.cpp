// SPDX-License-Identifier: Apache-2.0
// Asks the library for all that `mxs plan` shows.
#include "cli/plan_figures.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cli/plan_text.hpp"
#include "cli/plan_times.hpp"

namespace mxs_cli {

uint64_t saturating_sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

namespace {

constexpr uint64_t matrix_flops_default = 150'000'000'000'000, memory_bytes_default = 1'500'000'000'000;

std::vector<RankFigures> ask_ranks(const PlanRequest &request, const mxs_topology *topology, const mxs_plan *plan) {
  std::vector<RankFigures> ranks(static_cast<size_t>(mxs_plan_rank_count(plan)));
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankFigures &rank = ranks[r];
    rank.rank = static_cast<int32_t>(r);
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    mxs::check(mxs_topology_rank(topology, rank.rank, &info));
    rank.node = info.node;
    mxs::check(mxs_plan_rank(plan, rank.rank, &rank.load));
    mxs::check(mxs_plan_memory(plan, rank.rank, &request.memory, &rank.memory));
  }
  return ranks;
}

std::vector<UnitFigures> ask_units(const mxs_model *model, const mxs_plan *plan) {
  std::vector<UnitFigures> units(static_cast<size_t>(mxs_plan_unit_count(plan)));
  for (size_t u = 0; u < units.size(); ++u) {
    UnitFigures &unit = units[u];
    unit.unit = static_cast<int32_t>(u);
    const char *name = mxs_model_unit_name(model, unit.unit);
    unit.name = name ? name : std::string("unit ").append(std::to_string(u));
    mxs::check(mxs_plan_unit(plan, unit.unit, &unit.load));
  }
  return units;
}

// Of dtypes 0 means a default, see mxs_tensor.
std::vector<TensorFigures> ask_tensors(const mxs_model *model, const mxs_plan *plan) {
  const mxs_tensor *given = nullptr;
  uint64_t count = 0;
  mxs::check(mxs_model_tensors(model, &given, &count));
  std::vector<TensorFigures> tensors(count);
  for (uint64_t t = 0; t < count; ++t) {
    TensorFigures &tensor = tensors[t];
    tensor.given = &given[t];
    mxs::check(mxs_plan_tensor(plan, static_cast<int32_t>(t), &tensor.info));
    tensor.dtype = given[t].dtype ? given[t].dtype : MXS_F32;
    tensor.gradient_dtype = given[t].gradient_dtype ? given[t].gradient_dtype : tensor.dtype;
    tensor.element_count = 1;
    for (int32_t d = 0; d < given[t].dimension_count; ++d)
      tensor.element_count = saturating_product(tensor.element_count, static_cast<uint64_t>(given[t].shape[d]));
  }
  return tensors;
}

// One pass over all placements: whose bytes lie in which unit, and who owns which tensor.
void ask_placements(const mxs_plan *plan, PlanFigures *figures) {
  for (uint64_t p = 0; p < mxs_plan_placement_count(plan); ++p) {
    mxs_placement placement = MXS_PLACEMENT_INIT;
    mxs::check(mxs_plan_placement(plan, p, &placement));
    TensorFigures &tensor = figures->tensors[static_cast<size_t>(placement.tensor)];
    tensor.owners.push_back(placement.owner);
    tensor.co_owner_count = std::max(tensor.co_owner_count, placement.co_owner_count);
    if (placement.element_count > 0)
      figures->units[static_cast<size_t>(placement.unit)].owned.emplace_back(
          placement.owner, placement.element_count * mxs_dtype_bytes(tensor.dtype));
  }
  for (UnitFigures &unit : figures->units) {
    std::sort(unit.owned.begin(), unit.owned.end());
    std::vector<std::pair<int32_t, uint64_t>> summed;
    for (const auto &[rank, bytes] : unit.owned) {
      if (!summed.empty() && summed.back().first == rank) summed.back().second += bytes;
      else summed.emplace_back(rank, bytes);
    }
    unit.owned = std::move(summed);
  }
  for (TensorFigures &tensor : figures->tensors) {
    std::sort(tensor.owners.begin(), tensor.owners.end());
    tensor.owners.erase(std::unique(tensor.owners.begin(), tensor.owners.end()), tensor.owners.end());
  }
  for (TensorFigures &tensor : figures->tensors)
    if (tensor.is_tied()) tensor.owners = figures->tensors[static_cast<size_t>(tensor.info.tied_to)].owners;
}

void count_parameters(const PlanRequest &request, PlanFigures *figures) {
  for (const TensorFigures &tensor : figures->tensors) {
    if (tensor.is_tied()) continue;
    figures->parameter_count = saturating_sum(figures->parameter_count, tensor.element_count);
    uint64_t &of_unit = figures->units[static_cast<size_t>(tensor.info.unit)].parameter_count;
    of_unit = saturating_sum(of_unit, tensor.element_count);
  }
  if (request.active > figures->parameter_count)
    throw mxs::error(MXS_INVALID_ARGUMENT, text_of("--active: a token can't pass ", count_text(request.active),
                                                   " parameters of a model of ", count_text(figures->parameter_count)));
  if (request.active)
    figures->active_share =
        static_cast<double>(request.active) / static_cast<double>(figures->parameter_count);
}

// What g co-owners of an r x c matrix receive in its step, as the planner prices it: 5 Gram matrices of n x n in fp32
// from each other, and where rows are the short side the update as columns instead of rows, there and back.
uint64_t co_owned_step_bytes(const TensorFigures &tensor) {
  if (tensor.co_owner_count < 2 || tensor.is_tied() || tensor.given->dimension_count != 2) return 0;
  const uint64_t others = static_cast<uint64_t>(tensor.co_owner_count - 1);
  const uint64_t rows = static_cast<uint64_t>(tensor.given->shape[0]);
  const uint64_t columns = static_cast<uint64_t>(tensor.given->shape[1]), short_side = std::min(rows, columns);
  const uint64_t sums = saturating_product(20 * short_side, saturating_product(short_side, others * (others + 1)));
  const uint64_t exchange = rows < columns ? saturating_product(8 * rows, columns) / (others + 1) * others : 0;
  return saturating_sum(sums, exchange);
}

// Each unit is gathered for forward and again for backward; each gradient is reduced once. A byte of a unit enters each
// other node once, and there each rank but the first copies it.
WireFigures count_wire(const PlanRequest &request, const PlanFigures &figures) {
  const uint64_t ranks = static_cast<uint64_t>(figures.rank_count);
  WireFigures wire;
  for (const UnitFigures &unit : figures.units) {
    const uint64_t all = saturating_product(ranks - 1, unit.load.weight_bytes);
    wire.network_bytes = saturating_sum(wire.network_bytes, saturating_product(2, unit.load.network_bytes));
    if (!request.memory.by_reference)
      wire.local_bytes = saturating_sum(wire.local_bytes, saturating_product(2, all - unit.load.network_bytes));
  }
  add_reduces(figures, &wire.local_bytes, &wire.network_bytes);
  for (const TensorFigures &tensor : figures.tensors)
    wire.matrix_step_bytes = saturating_sum(wire.matrix_step_bytes, co_owned_step_bytes(tensor));
  return wire;
}

MoveFigures count_moves(const mxs::plan &previous, const mxs::plan &plan) {
  MoveFigures moves;
  if (!previous) return moves;
  const std::vector<mxs_plan_move> listed = mxs::moves(previous, plan);
  moves.known = true;
  moves.count = listed.size();
  for (const mxs_plan_move &move : listed) moves.bytes = saturating_sum(moves.bytes, move.bytes);
  return moves;
}

// Times of gathers go by the NICs' speed. Words that don't give it get the topology's guess; a file's was written down.
void note_guessed_network(const mxs_topology *topology, PlanFigures *figures) {
  if (figures->node_count == 1 || !figures->world_is_words ||
      figures->world.find("nic:") != std::string::npos)
    return;
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  mxs_node_info node = MXS_NODE_INFO_INIT;
  mxs::check(mxs_topology_speeds(topology, &speeds));
  mxs::check(mxs_topology_node(topology, 0, &node));
  char note[200];
  std::snprintf(note, sizeof note,
                "--world has no nic:, so gathers are timed by a guess: %d NIC%s a node, %g GB/s each",
                node.rail_count, node.rail_count == 1 ? "" : "s",
                static_cast<double>(speeds.network_bytes_per_second) * 1e-9);
  figures->notes.push_back(note);
}

// The same of times inside nodes, which a comparison has.
void note_guessed_local(const mxs_topology *topology, PlanFigures *figures) {
  if (figures->node_count == figures->rank_count || !figures->world_is_words ||
      figures->world.find("local:") != std::string::npos)
    return;
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  mxs::check(mxs_topology_speeds(topology, &speeds));
  char note[120];
  std::snprintf(note, sizeof note,
                "--world has no local:, so times inside nodes go by a guess: %g GB/s between two ranks",
                static_cast<double>(speeds.local_bytes_per_second) * 1e-9);
  figures->notes.push_back(note);
}

// Most experts of a layer see none of a token.
void note_all_experts(const PlanRequest &request, PlanFigures *figures) {
  const bool has_experts = std::any_of(
      figures->tensors.begin(), figures->tensors.end(),
      [](const TensorFigures &tensor) { return std::strstr(tensor.info.name, "experts.") != nullptr; });
  if (has_experts && request.tokens && !request.active)
    figures->notes.push_back("times of forward and backward are those of all experts: --active tells how many "
                             "parameters a token passes");
}

void take_sentences(const PlanRequest &request, const mxs_model *model, const mxs_topology *topology,
                    const mxs_plan *plan, PlanFigures *figures) {
  for (uint64_t w = 0; w < mxs_plan_warning_count(plan); ++w) figures->warnings.push_back(mxs_plan_warning(plan, w));
  for (uint64_t n = 0; n < mxs_model_note_count(model); ++n) figures->notes.push_back(mxs_model_note(model, n));
  note_guessed_network(topology, figures);
  if (!request.compare.empty()) note_guessed_local(topology, figures);
  note_all_experts(request, figures);
  if (request.replicas > 1)
    figures->notes.push_back(
        std::string("this is one of ")
            .append(std::to_string(request.replicas))
            .append(" replicas: each step, every owner also adds up its fp32 sums of gradients with the same rank of "
                    "the others (not in the bytes on the wire)"));
}

}  // namespace

void add_reduces(const PlanFigures &figures, uint64_t *local_bytes, uint64_t *network_bytes) {
  const uint64_t ranks = static_cast<uint64_t>(figures.rank_count), nodes = static_cast<uint64_t>(figures.node_count);
  for (const TensorFigures &tensor : figures.tensors) {
    if (!tensor.has_gradient()) continue;
    const uint64_t bytes = tensor.element_count * mxs_dtype_bytes(tensor.gradient_dtype);
    const uint64_t sum_bytes = ranks > nodes ? tensor.element_count * sizeof(float) : bytes;
    *local_bytes = saturating_sum(*local_bytes, saturating_product(ranks - nodes, bytes));
    *network_bytes = saturating_sum(*network_bytes, saturating_product(nodes - 1, sum_bytes));
  }
}

PlanFigures plan_figures(const PlanRequest &request, const mxs::model &model, const mxs::topology &topology,
                         const mxs::plan &plan, const mxs::plan &previous) {
  PlanFigures figures;
  figures.path = request.path;
  figures.title = mxs_model_title(model.get());
  figures.world = request.world;
  figures.node_count = mxs_topology_node_count(topology.get());
  figures.rank_count = mxs_topology_rank_count(topology.get());
  figures.replicas = request.replicas;
  figures.world_is_words = request.world.find("ranks:") != std::string::npos;
  const mxs_plan_options &options = request.options;
  figures.matrix_flops_per_second =
      options.matrix_flops_per_second ? options.matrix_flops_per_second : matrix_flops_default;
  figures.memory_bytes_per_second =
      options.memory_bytes_per_second ? options.memory_bytes_per_second : memory_bytes_default;
  figures.budget = options.rank_bytes_max;
  figures.tokens = request.tokens;
  figures.train_flops_per_second = request.train_flops ? request.train_flops : figures.matrix_flops_per_second;
  figures.by_reference = request.memory.by_reference != 0;
  figures.co_owners_max = options.co_owners_max;
  figures.fingerprint = mxs_plan_fingerprint(plan.get());
  for (int32_t kind = 0; kind < 4; ++kind) mxs::check(mxs_plan_objective(plan.get(), kind, &figures.objectives[kind]));
  figures.ranks = ask_ranks(request, topology.get(), plan.get());
  figures.units = ask_units(model.get(), plan.get());
  figures.tensors = ask_tensors(model.get(), plan.get());
  figures.show_tensors = request.tensors;
  ask_placements(plan.get(), &figures);
  count_parameters(request, &figures);
  for (const UnitFigures &unit : figures.units) figures.weight_bytes += unit.load.weight_bytes;
  figures.wire = count_wire(request, figures);
  figures.moves = count_moves(previous, plan);
  take_sentences(request, model.get(), topology.get(), plan.get(), &figures);
  if (!request.compare.empty()) {
    figures.compared = compare_placements(request, figures);
    time_placements(topology, plan, &figures);
    figures.advice = plan_advice(figures);
  }
  figures.verdict = plan_verdict(figures);
  return figures;
}

}  // namespace mxs_cli
