// SPDX-License-Identifier: Apache-2.0
// Planning from end to end; the stages are in stages.hpp.
#include "plan/plan.hpp"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "plan/bounds.hpp"
#include "plan/egress.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {

mxs_status read_settings(const mxs_tensor *tensors, uint64_t tensor_count, const Topology &topology,
                         const mxs_plan_options *options, PlanSettings *settings) {
  settings->rank_count = topology.rank_count();
  if (settings->rank_count < 1) return set_error(MXS_INVALID_ARGUMENT, "topology has no ranks");
  if (tensor_count > static_cast<uint64_t>(INT32_MAX))
    return set_error(MXS_INVALID_ARGUMENT, "tensor_count is %" PRIu64 ", more than 2^31 - 1", tensor_count);
  if (options) {
    settings->unit_count = options->unit_count;
    if (options->alignment) settings->alignment = options->alignment;
    if (options->flat_bytes) settings->flat_bytes = options->flat_bytes;
    settings->rank_bytes_max = options->rank_bytes_max;
    if (options->matrix_flops_per_second) settings->matrix_flops_per_second = options->matrix_flops_per_second;
    if (options->memory_bytes_per_second) settings->memory_bytes_per_second = options->memory_bytes_per_second;
    if (options->step_weight) settings->step_weight = options->step_weight;
    if (options->bytes_weight) settings->bytes_weight = options->bytes_weight;
    if (options->egress_weight) settings->egress_weight = options->egress_weight;
    if (options->search_moves_max) settings->search_moves_max = options->search_moves_max;
    if (options->co_owners_max < 0)
      return set_error(MXS_INVALID_ARGUMENT, "co_owners_max is %d, negative", options->co_owners_max);
    if (options->co_owners_max) settings->co_owners_max = options->co_owners_max;
  }
  settings->topology = &topology;
  if (settings->unit_count == 0)
    for (uint64_t index = 0; index < tensor_count; ++index) {
      if (tensors[index].unit < 0 || tensors[index].unit >= unit_count_max)
        return set_error(MXS_INVALID_ARGUMENT, "tensors[%" PRIu64 "].unit is %d, outside 0 to %d", index,
                         tensors[index].unit, unit_count_max - 1);
      settings->unit_count = std::max(settings->unit_count, tensors[index].unit + 1);
    }
  if (settings->unit_count < 0 || settings->unit_count > unit_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "unit_count is %d, outside 0 to %d", settings->unit_count, unit_count_max);
  if (!is_power_of_two(settings->alignment) || settings->alignment < gradient_alignment ||
      settings->alignment > alignment_max)
    return set_error(MXS_INVALID_ARGUMENT, "alignment is %" PRIu64 ", not a power of two from %" PRIu64 " to %" PRIu64,
                     settings->alignment, gradient_alignment, alignment_max);
  return MXS_OK;
}

namespace {

// The drafts become the plan's tensors, and their pieces its placements.
void take_drafts(std::vector<Draft> *drafts, Plan *plan) {
  uint64_t placement_count = 0;
  for (const Draft &draft : *drafts) placement_count += draft.pieces.size();
  plan->tensors.reserve(drafts->size());
  plan->placements.reserve(placement_count);
  for (Draft &draft : *drafts) {
    draft.tensor.hash = tensor_hash(draft.tensor, draft.pieces, draft.fixed_owner);
    draft.tensor.placement_index = plan->placements.size();
    draft.tensor.placement_count = draft.pieces.size();
    for (Placement &piece : draft.pieces) {
      piece.tensor = static_cast<int>(plan->tensors.size());
      plan->placements.push_back(std::move(piece));
    }
    plan->tensors.push_back(std::move(draft.tensor));
  }
}

void sum_loads(const PlanSettings &settings, Plan *plan) {
  const size_t rank_count = static_cast<size_t>(plan->topology.rank_count());
  plan->rank_step_ps.assign(rank_count, 0);
  plan->rank_step_flops.assign(rank_count, 0);
  plan->rank_owned_bytes.assign(rank_count, 0);
  for (const Placement &piece : plan->placements) {
    const PlannedTensor &tensor = plan->tensors[static_cast<size_t>(piece.tensor)];
    const size_t rank = static_cast<size_t>(piece.owner);
    plan->rank_owned_bytes[rank] += owned_bytes(tensor, piece.shape, piece.element_count);
    const StepWork work = piece_work(tensor, piece);
    plan->rank_step_ps[rank] = saturating_add(plan->rank_step_ps[rank], step_ps(work, settings));
    plan->rank_step_flops[rank] += piece_flops(tensor, piece);
  }
}

// Kept for mxs_plan_save.
void keep_given(const mxs_tensor *tensors, const PlanSettings &settings, Plan *plan) {
  plan->given.resize(plan->tensors.size());
  for (size_t index = 0; index < plan->given.size(); ++index) {
    const mxs_tensor &tensor = tensors[index];
    GivenTensor &given = plan->given[index];
    given.dtype = tensor.dtype;
    given.master_dtype = tensor.master_dtype;
    given.gradient_dtype = tensor.gradient_dtype;
    given.rule = tensor.rule;
    given.role = tensor.role;
    given.group = tensor.group;
    given.fixed_owner = tensor.fixed_owner;
    given.co_owners = tensor.co_owners;
    given.transposed = tensor.transposed;
    given.whole_rows = tensor.whole_rows;
    given.whole_columns = tensor.whole_columns;
    if (tensor.block_rows) given.block_rows.assign(tensor.block_rows, tensor.block_rows + tensor.block_count);
    if (tensor.block_columns)
      given.block_columns.assign(tensor.block_columns, tensor.block_columns + tensor.block_column_count);
  }
  plan->options.unit_count = settings.unit_count;
  plan->options.alignment = settings.alignment;
  plan->options.flat_bytes = settings.flat_bytes;
  plan->options.rank_bytes_max = settings.rank_bytes_max;
  plan->options.matrix_flops_per_second = settings.matrix_flops_per_second;
  plan->options.memory_bytes_per_second = settings.memory_bytes_per_second;
  plan->options.step_weight = settings.step_weight;
  plan->options.bytes_weight = settings.bytes_weight;
  plan->options.egress_weight = settings.egress_weight;
  plan->options.co_owners_max = settings.co_owners_max;
  plan->options.search_moves_max = settings.search_moves_max;
  plan->previous_fingerprint = settings.previous_fingerprint;
}

// Who is who counts as the previous plan itself does: ranks that are told different numbers make different plans. The
// same numbers, said or not, are no difference.
mxs_status note_previous_plan(const Plan &previous, const int32_t *ranks, PlanSettings *settings) {
  const int earlier_count = previous.topology.rank_count();
  std::vector<int> same;
  mxs_status status = renumber_ranks(nullptr, settings->rank_count, earlier_count, "previous_ranks", &same);
  if (status == MXS_OK)
    status = renumber_ranks(ranks, settings->rank_count, earlier_count, "previous_ranks", &settings->rank_now);
  if (status != MXS_OK) return status;
  settings->previous = &previous;
  settings->previous_fingerprint = previous.fingerprint;
  if (settings->rank_now == same) return MXS_OK;
  Fingerprint numbers;
  numbers.add(previous.fingerprint);
  for (const int rank : settings->rank_now) numbers.add(static_cast<uint64_t>(rank + 1));
  settings->previous_fingerprint = std::max<uint64_t>(numbers.value(), 1);
  return MXS_OK;
}

}  // namespace

mxs_status make_plan(const mxs_tensor *tensors, uint64_t tensor_count, const Topology &topology,
                     const mxs_plan_options *options, Plan *plan, const Plan *previous) {
  PlanSettings settings;
  mxs_status status = read_settings(tensors, tensor_count, topology, options, &settings);
  if (status != MXS_OK) return status;
  const int32_t *const previous_ranks = options ? options->previous_ranks : nullptr;
  if (previous_ranks && !previous)
    return set_error(MXS_INVALID_ARGUMENT, "previous_ranks is set, but previous is NULL: there are no numbers to have");
  if (previous) status = note_previous_plan(*previous, previous_ranks, &settings);
  if (status != MXS_OK) return status;
  std::vector<Draft> drafts;
  status = describe(tensors, tensor_count, settings, &drafts);
  if (status != MXS_OK) return status;
  status = choose_owners(settings, &drafts);
  return status == MXS_OK ? finish_plan(tensors, settings, &drafts, plan) : status;
}

mxs_status finish_plan(const mxs_tensor *tensors, const PlanSettings &settings, std::vector<Draft> *drafts,
                       Plan *plan) {
  const PlanBounds bounds = plan_bounds(settings, drafts);
  Plan result;
  result.topology = *settings.topology;
  result.alignment = settings.alignment;
  result.units.resize(static_cast<size_t>(settings.unit_count));
  take_drafts(drafts, &result);
  list_matrices(&result);
  keep_given(tensors, settings, &result);
  const mxs_status status = lay_out(&result);
  if (status != MXS_OK) return status;
  sum_loads(settings, &result);
  index_ranks(&result);
  measure_objectives(bounds, &result);
  result.fingerprint = plan_fingerprint(result, settings);
  result.warnings = plan_warnings(result, settings);
  *plan = std::move(result);
  return MXS_OK;
}

mxs_rank_load rank_load(const Plan &plan, int rank) {
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  load.owned_bytes = plan.rank_owned_bytes[static_cast<size_t>(rank)];
  load.step_flops = plan.rank_step_flops[static_cast<size_t>(rank)];
  load.step_ns = (plan.rank_step_ps[static_cast<size_t>(rank)] + 500) / 1000;
  load.matrix_count = plan.index.matrix_count[static_cast<size_t>(rank)];
  load.weight_bytes_max = plan.index.weight_bytes_max[static_cast<size_t>(rank)];
  return load;
}

}  // namespace mxs
