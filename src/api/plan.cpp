// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/plan.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/door.hpp"
#include "api/tensors.hpp"
#include "api/values.hpp"
#include "base/dtype.hpp"
#include "machine/machine.hpp"
#include "plan/saved.hpp"
#include "plan/stages.hpp"
#include "schedule/gather_bound.hpp"

using namespace mxs;

static_assert(sizeof(mxs_tensor) == 168, "part of the ABI");
static_assert(sizeof(mxs_plan_options) == 88, "part of the ABI");
static_assert(sizeof(mxs_tensor_info) == 56, "part of the ABI");
static_assert(sizeof(mxs_placement) == 144, "part of the ABI");
static_assert(sizeof(mxs_rank_load) == 40, "part of the ABI");
static_assert(sizeof(mxs_matrix) == 72, "part of the ABI");
static_assert(sizeof(mxs_unit_load) == 88, "part of the ABI");
static_assert(sizeof(mxs_objective) == 32, "part of the ABI");
static_assert(sizeof(mxs_plan_move) == 56, "part of the ABI");
static_assert(sizeof(mxs_memory_options) == 40, "part of the ABI");
static_assert(sizeof(mxs_memory) == 104, "part of the ABI");

namespace {

constexpr size_t plan_bytes_max = size_t{512} << 20;

mxs_status check_plan(const mxs_plan *plan) {
  return plan ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "plan is NULL");
}

mxs_status check_index(const char *name, int64_t index, uint64_t count) {
  if (index >= 0 && static_cast<uint64_t>(index) < count) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is %" PRId64 ", but the plan has %" PRIu64, name, index, count);
}

mxs_status check_rank(const mxs_plan *plan, int32_t rank) {
  const int rank_count = plan->value.topology.rank_count();
  if (rank >= 0 && rank < rank_count) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "rank is %d, outside a world of %d ranks", rank, rank_count);
}

// The planner knows no schedules and schedules know no plans; here they meet. Tables of all ranks serve all units.
std::vector<uint64_t> gather_bounds_ns(const Plan &plan) {
  GatherBound gather(plan.topology);
  std::vector<uint64_t> bounds;
  bounds.reserve(plan.units.size());
  for (const PlannedUnit &unit : plan.units) {
    const double bound = 1e9 * gather.of(unit.weights).seconds();
    bounds.push_back(bound < 1.8e19 ? static_cast<uint64_t>(bound + 0.5) : UINT64_MAX);
  }
  return bounds;
}

uint64_t gradient_bytes(const Plan &plan, const PlannedUnit &unit) {
  uint64_t bytes = 0;
  for (const int index : unit.tensors) {
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(index)];
    if (!tensor.frozen()) bytes += tensor.element_count * dtype_bytes(tensor.gradient_dtype);
  }
  return bytes;
}

mxs_unit_load unit_load(const mxs_plan &given, size_t index) {
  const Plan &plan = given.value;
  const PlannedUnit &unit = plan.units[index];
  const UnitEgress &egress = unit.egress;
  mxs_unit_load load = MXS_UNIT_LOAD_INIT;
  load.owner_count = egress.owner_count;
  load.segment_count = unit.weights.segments.size();
  load.weight_bytes = egress.bytes;
  load.gradient_bytes = gradient_bytes(plan, unit);
  load.rank_bytes_max = egress.rank_worst;
  load.rank_bytes_bound = unit.rank_bytes_bound;
  load.nic_bytes_max = egress.nic_worst;
  load.nic_bytes_bound = unit.nic_bytes_bound;
  load.network_bytes = saturating_multiply(static_cast<uint64_t>(plan.topology.node_count() - 1), egress.bytes);
  load.gather_bound_ns = given.gather_bound_ns[index];
  load.rank_of_most_bytes = egress.rank;
  load.node_of_most_bytes = egress.node;
  return load;
}

}  // namespace

mxs_plan::mxs_plan(Plan &&plan) : value(std::move(plan)), gather_bound_ns(gather_bounds_ns(value)) {
  for (size_t index = 0; index < value.tensors.size(); ++index)
    index_of_name.emplace(value.tensors[index].name, static_cast<int32_t>(index));
}

mxs_status mxs_plan_create(mxs_plan **plan, const mxs_tensor *tensors, uint64_t tensor_count,
                           const mxs_topology *topology, const mxs_plan_options *options) {
  return fenced([&]() -> mxs_status {
    if (!plan) return set_error(MXS_INVALID_ARGUMENT, "plan is NULL");
    if (!topology) return set_error(MXS_INVALID_ARGUMENT, "topology is NULL");
    mxs_plan_options read_options = MXS_PLAN_OPTIONS_INIT;
    mxs_status status =
        read_struct(options, offsetof(mxs_plan_options, matrix_flops_per_second), "options", &read_options);
    if (status != MXS_OK) return status;
    std::vector<mxs_tensor> read;
    status = read_tensors(tensors, tensor_count, INT32_MAX, &read);
    if (status != MXS_OK) return status;
    Plan value;
    status = make_plan(read.data(), read.size(), topology->value, &read_options, &value,
                       read_options.previous ? &read_options.previous->value : nullptr);
    if (status != MXS_OK) return status;
    *plan = std::make_unique<mxs_plan>(std::move(value)).release();
    return MXS_OK;
  });
}

const char *mxs_role_name(mxs_role role) { return role_name(role); }

void mxs_plan_destroy(mxs_plan **plan) {
  if (!plan) return;
  delete *plan;
  *plan = nullptr;
}

int32_t mxs_plan_rank_count(const mxs_plan *plan) { return plan ? plan->value.topology.rank_count() : 0; }

int32_t mxs_plan_unit_count(const mxs_plan *plan) {
  return plan ? static_cast<int32_t>(plan->value.units.size()) : 0;
}

uint64_t mxs_plan_tensor_count(const mxs_plan *plan) { return plan ? plan->value.tensors.size() : 0; }

uint64_t mxs_plan_placement_count(const mxs_plan *plan) { return plan ? plan->value.placements.size() : 0; }

uint64_t mxs_plan_fingerprint(const mxs_plan *plan) { return plan ? plan->value.fingerprint : 0; }

mxs_status mxs_plan_find(const mxs_plan *plan, const char *name, int32_t *tensor) {
  if (const mxs_status status = check_plan(plan); status != MXS_OK) return status;
  if (!name) return set_error(MXS_INVALID_ARGUMENT, "name is NULL");
  if (!tensor) return set_error(MXS_INVALID_ARGUMENT, "tensor is NULL");
  const auto found = plan->index_of_name.find(name);
  if (found == plan->index_of_name.end())
    return set_error(MXS_NOT_FOUND, "no tensor of the plan has the name \"%.200s\"", name);
  *tensor = found->second;
  return MXS_OK;
}

mxs_status mxs_plan_tensor(const mxs_plan *plan, int32_t tensor, mxs_tensor_info *info) {
  mxs_status status = check_plan(plan);
  if (status == MXS_OK) status = check_out_struct(info, sizeof(mxs_tensor_info), "info");
  if (status == MXS_OK) status = check_index("tensor", tensor, plan->value.tensors.size());
  if (status != MXS_OK) return status;
  const PlannedTensor &planned = plan->value.tensors[static_cast<size_t>(tensor)];
  mxs_tensor_info result = MXS_TENSOR_INFO_INIT;
  result.role = planned.role;
  result.rule = planned.rule;
  result.unit = planned.unit;
  result.group = planned.group;
  result.tied_to = planned.tied_to;
  result.placement_index = planned.placement_index;
  result.placement_count = planned.placement_count;
  result.name = planned.name.c_str();
  result.reason = planned.reason.c_str();
  write_struct(result, info);
  return MXS_OK;
}

mxs_status mxs_plan_placement(const mxs_plan *plan, uint64_t index, mxs_placement *placement) {
  mxs_status status = check_plan(plan);
  if (status == MXS_OK) status = check_out_struct(placement, offsetof(mxs_placement, matrix_index), "placement");
  if (status != MXS_OK) return status;
  if (index >= plan->value.placements.size())
    return set_error(MXS_INVALID_ARGUMENT, "index is %" PRIu64 ", but the plan has %zu placements", index,
                     plan->value.placements.size());
  const Placement &piece = plan->value.placements[index];
  mxs_placement result = MXS_PLACEMENT_INIT;
  result.tensor = piece.tensor;
  result.block = piece.block;
  result.owner = piece.owner;
  result.unit = piece.unit;
  result.dimension_count = static_cast<int32_t>(piece.shape.size());
  std::copy(piece.shape.begin(), piece.shape.end(), result.shape);
  result.element_offset = piece.element_offset;
  result.element_count = piece.element_count;
  result.weight_offset = piece.weight_offset;
  result.gradient_offset = piece.gradient_offset;
  result.matrix_index = piece.matrix_index;
  result.matrix_count = piece.matrix_count;
  result.co_owner = piece.co_owner;
  result.co_owner_count = piece.co_owner_count;
  write_struct(result, placement);
  return MXS_OK;
}

mxs_status mxs_plan_rank(const mxs_plan *plan, int32_t rank, mxs_rank_load *load) {
  mxs_status status = check_plan(plan);
  if (status == MXS_OK) status = check_out_struct(load, offsetof(mxs_rank_load, step_ns), "load");
  if (status == MXS_OK) status = check_rank(plan, rank);
  if (status != MXS_OK) return status;
  write_struct(rank_load(plan->value, rank), load);
  return MXS_OK;
}

mxs_status mxs_plan_layout(const mxs_plan *plan, int32_t unit, int32_t which, mxs_layout **layout) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_plan(plan);
    if (status == MXS_OK) status = check_index("unit", unit, plan->value.units.size());
    if (status != MXS_OK) return status;
    if (which != MXS_WEIGHTS && which != MXS_GRADIENTS)
      return set_error(MXS_INVALID_ARGUMENT, "which is %d, neither MXS_WEIGHTS nor MXS_GRADIENTS", which);
    if (!layout) return set_error(MXS_INVALID_ARGUMENT, "layout is NULL");
    const PlannedUnit &planned = plan->value.units[static_cast<size_t>(unit)];
    const Layout &chosen = which == MXS_WEIGHTS ? planned.weights : planned.gradients;
    *layout = std::make_unique<mxs_layout>(mxs_layout{chosen}).release();
    return MXS_OK;
  });
}

mxs_status mxs_plan_memory(const mxs_plan *plan, int32_t rank, const mxs_memory_options *options, mxs_memory *memory) {
  return fenced([&]() -> mxs_status {
    mxs_memory_options read_options = MXS_MEMORY_OPTIONS_INIT;
    mxs_status status = check_plan(plan);
    if (status == MXS_OK) status = check_out_struct(memory, offsetof(mxs_memory, own_slots), "memory");
    if (status == MXS_OK) status = check_rank(plan, rank);
    if (status == MXS_OK)
      status = read_struct(options, offsetof(mxs_memory_options, replicas), "options", &read_options);
    if (status != MXS_OK) return status;
    if (read_options.slots < 0 || read_options.gradient_slots < 0 || read_options.thread_count < 0)
      return set_error(MXS_INVALID_ARGUMENT,
                       "options.slots is %d, options.gradient_slots %d and options.thread_count %d; none may be "
                       "negative",
                       read_options.slots, read_options.gradient_slots, read_options.thread_count);
    if (read_options.backup != 0 && read_options.backup != 1)
      return set_error(MXS_INVALID_ARGUMENT, "options.backup is %d, not 0 or 1", read_options.backup);
    const int32_t own_count = read_options.own_slot_unit_count;
    if (own_count < 0 || (own_count > 0 && !read_options.own_slot_units))
      return set_error(MXS_INVALID_ARGUMENT,
                       own_count < 0 ? "options.own_slot_unit_count is %d, which is negative"
                                     : "options.own_slot_units is NULL, but options.own_slot_unit_count is %d",
                       own_count);
    for (int32_t i = 0; i < own_count && status == MXS_OK; ++i)
      status = check_index("a unit of options.own_slot_units", read_options.own_slot_units[i],
                           plan->value.units.size());
    if (status != MXS_OK) return status;
    write_struct(predict_memory(plan->value, rank, read_options), memory);
    return MXS_OK;
  });
}

mxs_status mxs_plan_report(const mxs_plan *plan, char *text, size_t text_bytes, size_t *bytes_out) {
  return fenced([&]() -> mxs_status {
    const mxs_status status = check_plan(plan);
    if (status != MXS_OK) return status;
    if (!text && text_bytes != 0)
      return set_error(MXS_INVALID_ARGUMENT, "text is NULL, but text_bytes is %zu", text_bytes);
    const std::string report = plan_report(plan->value);
    if (text_bytes != 0) {
      const size_t copied = std::min(text_bytes - 1, report.size());
      std::memcpy(text, report.data(), copied);
      text[copied] = '\0';
    }
    if (bytes_out) *bytes_out = report.size() + 1;
    return MXS_OK;
  });
}

uint64_t mxs_plan_matrix_count(const mxs_plan *plan) { return plan ? plan->value.matrices.size() : 0; }

mxs_status mxs_plan_matrix(const mxs_plan *plan, uint64_t index, mxs_matrix *matrix) {
  mxs_status status = check_plan(plan);
  if (status == MXS_OK) status = check_out_struct(matrix, sizeof(mxs_matrix), "matrix");
  if (status != MXS_OK) return status;
  if (index >= plan->value.matrices.size())
    return set_error(MXS_INVALID_ARGUMENT, "index is %" PRIu64 ", but the plan has %zu matrices", index,
                     plan->value.matrices.size());
  const Matrix &planned = plan->value.matrices[index];
  mxs_matrix result = MXS_MATRIX_INIT;
  result.tensor = planned.tensor;
  result.block = planned.block;
  result.owner = planned.owner;
  result.placement = planned.placement;
  result.element_offset = planned.element_offset;
  result.rows = planned.rows;
  result.columns = planned.columns;
  result.row_stride = planned.row_stride;
  result.scale_rows = planned.scale_rows;
  result.scale_columns = planned.scale_columns;
  write_struct(result, matrix);
  return MXS_OK;
}

mxs_status mxs_plan_unit(const mxs_plan *plan, int32_t unit, mxs_unit_load *load) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_plan(plan);
    if (status == MXS_OK) status = check_out_struct(load, sizeof(mxs_unit_load), "load");
    if (status == MXS_OK) status = check_index("unit", unit, plan->value.units.size());
    if (status != MXS_OK) return status;
    write_struct(unit_load(*plan, static_cast<size_t>(unit)), load);
    return MXS_OK;
  });
}

mxs_status mxs_plan_objective(const mxs_plan *plan, int32_t kind, mxs_objective *objective) {
  mxs_status status = check_plan(plan);
  if (status == MXS_OK) status = check_out_struct(objective, sizeof(mxs_objective), "objective");
  if (status != MXS_OK) return status;
  if (kind < MXS_OBJECTIVE_BYTES || kind > MXS_OBJECTIVE_NIC)
    return set_error(MXS_INVALID_ARGUMENT, "kind is %d, which is no objective", kind);
  const Objective &found = plan->value.objectives[kind];
  mxs_objective result = MXS_OBJECTIVE_INIT;
  result.rank = found.rank;
  result.unit = found.unit;
  result.worst = found.worst;
  result.bound = found.bound;
  write_struct(result, objective);
  return MXS_OK;
}

uint64_t mxs_plan_warning_count(const mxs_plan *plan) { return plan ? plan->value.warnings.size() : 0; }

const char *mxs_plan_warning(const mxs_plan *plan, uint64_t index) {
  return plan && index < plan->value.warnings.size() ? plan->value.warnings[index].c_str() : nullptr;
}

namespace {

mxs_status check_plans(const mxs_plan *source, const mxs_plan *target, const uint64_t *move_count) {
  if (!source || !target) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL", source ? "target" : "source");
  return move_count ? MXS_OK : set_error(MXS_INVALID_ARGUMENT, "move_count is NULL");
}

mxs_status write_moves(const std::vector<PlanMove> &found, mxs_plan_move *moves, uint64_t move_capacity,
                       uint64_t *move_count) {
  const mxs_status status =
      write_array(moves, move_capacity, found.size(), sizeof(mxs_plan_move), "moves", [&](uint64_t index) {
        const PlanMove &move = found[index];
        return mxs_plan_move{sizeof(mxs_plan_move), move.tensor,         move.source_rank,    move.target_rank,
                             move.source_placement, move.target_placement, move.element_offset, move.element_count,
                             move.bytes};
      });
  if (status == MXS_OK) *move_count = found.size();
  return status;
}

}  // namespace

mxs_status mxs_plan_moves(const mxs_plan *source, const mxs_plan *target, mxs_plan_move *moves, uint64_t move_capacity,
                          uint64_t *move_count) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_plans(source, target, move_count);
    std::vector<PlanMove> found;
    if (status == MXS_OK) status = plan_moves(source->value, target->value, &found);
    return status == MXS_OK ? write_moves(found, moves, move_capacity, move_count) : status;
  });
}

mxs_status mxs_plan_moves_from(const mxs_plan *source, const mxs_plan *target, const int32_t *source_ranks,
                               mxs_plan_move *moves, uint64_t move_capacity, uint64_t *move_count) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_plans(source, target, move_count);
    std::vector<int> rank_now;
    if (status == MXS_OK)
      status = renumber_ranks(source_ranks, target->value.topology.rank_count(), source->value.topology.rank_count(),
                              "source_ranks", &rank_now);
    std::vector<PlanMove> found;
    if (status == MXS_OK) status = plan_moves_from(source->value, target->value, rank_now, &found);
    return status == MXS_OK ? write_moves(found, moves, move_capacity, move_count) : status;
  });
}

mxs_status mxs_plan_save(const mxs_plan *plan, const char *path) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_plan(plan);
    if (status != MXS_OK) return status;
    if (!path || !*path) return set_error(MXS_INVALID_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    std::string text;
    status = plan_to_json(plan->value, &text);
    return status == MXS_OK ? write_file("plan", path, text) : status;
  });
}

mxs_status mxs_plan_load(mxs_plan **plan, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!plan) return set_error(MXS_INVALID_ARGUMENT, "plan is NULL");
    if (!path || !*path) return set_error(MXS_INVALID_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    std::string text;
    mxs_status status = read_file("plan", path, plan_bytes_max, &text);
    if (status != MXS_OK) return status;
    SavedPlan saved;
    Plan value;
    status = saved_plan_from_json(text, &saved);
    text = std::string();  // its room is needed no longer
    if (status == MXS_OK) status = restore_plan(saved, &value);
    if (status != MXS_OK) return cause_in_file(status, std::string("plan: ") + path);
    *plan = std::make_unique<mxs_plan>(std::move(value)).release();
    return MXS_OK;
  });
}
