// SPDX-License-Identifier: Apache-2.0
// The plan of another world, from a saved one.
#include <algorithm>

#include "checkpoint/reshard.hpp"
#include "plan/co_owners.hpp"

namespace mxs {

namespace {

// What the caller said of a tensor; borrowed from the plan.
mxs_tensor given_tensor(const Plan &plan, size_t index) {
  const PlannedTensor &planned = plan.tensors[index];
  const GivenTensor &given = plan.given[index];
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = planned.name.c_str();
  tensor.tied_to = planned.tied_to < 0 ? nullptr : plan.tensors[static_cast<size_t>(planned.tied_to)].name.c_str();
  tensor.unit = planned.unit;
  tensor.dimension_count = static_cast<int32_t>(planned.shape.size());
  std::copy(planned.shape.begin(), planned.shape.end(), tensor.shape);
  tensor.dtype = given.dtype;
  tensor.master_dtype = given.master_dtype;
  tensor.gradient_dtype = given.gradient_dtype;
  tensor.rule = given.rule;
  tensor.role = given.role;
  tensor.group = given.group;
  tensor.fixed_owner = given.fixed_owner;
  tensor.co_owners = given.co_owners;
  tensor.transposed = given.transposed;
  tensor.whole_rows = given.whole_rows;
  tensor.whole_columns = given.whole_columns;
  tensor.block_rows = given.block_rows.empty() ? nullptr : given.block_rows.data();
  tensor.block_count = static_cast<int32_t>(given.block_rows.size());
  tensor.block_columns = given.block_columns.empty() ? nullptr : given.block_columns.data();
  tensor.block_column_count = static_cast<int32_t>(given.block_columns.size());
  return tensor;
}

template <class Number>
void take(Number given, Number *kept) {
  if (given != 0) *kept = given;
}

mxs_plan_options options_over(const mxs_plan_options &saved, const mxs_plan_options &given) {
  mxs_plan_options options = saved;
  options.previous = given.previous;
  take(given.unit_count, &options.unit_count);
  take(given.alignment, &options.alignment);
  take(given.flat_bytes, &options.flat_bytes);
  take(given.rank_bytes_max, &options.rank_bytes_max);
  take(given.matrix_flops_per_second, &options.matrix_flops_per_second);
  take(given.memory_bytes_per_second, &options.memory_bytes_per_second);
  take(given.step_weight, &options.step_weight);
  take(given.bytes_weight, &options.bytes_weight);
  take(given.egress_weight, &options.egress_weight);
  take(given.co_owners_max, &options.co_owners_max);
  take(given.search_moves_max, &options.search_moves_max);
  return options;
}

}  // namespace

mxs_status plan_for_world(const Plan &saved, const Topology &topology, const mxs_plan_options &options,
                          const Plan *previous, Plan *plan) {
  std::vector<mxs_tensor> tensors;
  const int co_owners_max = most_ranks_of_a_node(topology);
  for (size_t index = 0; index < saved.tensors.size(); ++index) {
    tensors.push_back(given_tensor(saved, index));
    mxs_tensor &tensor = tensors.back();
    if (tensor.fixed_owner > topology.rank_count()) tensor.fixed_owner = 0;
    tensor.co_owners = std::min(tensor.co_owners, co_owners_max);
  }
  const mxs_plan_options all = options_over(saved.options, options);
  return make_plan(tensors.data(), tensors.size(), topology, &all, plan, previous);
}

}  // namespace mxs
