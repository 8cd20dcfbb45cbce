// SPDX-License-Identifier: Apache-2.0
// The plan of another world, from a saved one.
#include <algorithm>

#include "checkpoint/reshard.hpp"
#include "plan/co_owners.hpp"
#include "plan/saved.hpp"

namespace mxs {

namespace {

mxs_tensor given_tensor(const Plan &plan, size_t index) {
  const PlannedTensor &tensor = plan.tensors[index];
  const char *const tied_to =
      tensor.tied_to < 0 ? nullptr : plan.tensors[static_cast<size_t>(tensor.tied_to)].name.c_str();
  return tensor_as_given(tensor.name, tied_to, tensor.unit, tensor.shape, plan.given[index]);
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
