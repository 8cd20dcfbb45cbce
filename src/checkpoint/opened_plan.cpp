// SPDX-License-Identifier: Apache-2.0
// The arrays of a manifest against its plan.
#include <cinttypes>

#include "base/status.hpp"
#include "checkpoint/describe.hpp"
#include "checkpoint/opened_checks.hpp"

namespace mxs {
namespace {

class Check {
 public:
  Check(const OpenedCheckpoint &opened, const Plan &plan) : opened_(opened), plan_(plan) {
    for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
      tensor_of_name_.emplace(plan.tensors[tensor].name, tensor);
  }

  mxs_status tensor(size_t index) const {
    const PlannedTensor &planned = plan_.tensors[index];
    const auto found = opened_.index_of_name.find(planned.name);
    const ManifestArray *const array =
        found == opened_.index_of_name.end() ? nullptr : &opened_.manifest.arrays[found->second];
    if (planned.tied_to >= 0) return array ? wrong(*array, "stands there, but in the plan it is tied") : MXS_OK;
    if (!array || array->kind != MXS_ARRAY_WEIGHTS)
      return set_error(MXS_DAMAGED, "tensor \"%.200s\" of the plan has no weights in the checkpoint",
                       planned.name.c_str());
    return compare(*array, describe_weights(plan_, index, opened_.manifest.masters));
  }

  mxs_status array(const ManifestArray &array) const {
    const auto found = tensor_of_name_.find(array.tensor);
    if (array.kind == MXS_ARRAY_EXTRA)
      return found == tensor_of_name_.end() ? MXS_OK : wrong(array, "is said to be none of the plan's, but is");
    if (found == tensor_of_name_.end()) return wrong(array, "is of a tensor that the plan hasn't got");
    const PlannedTensor &planned = plan_.tensors[found->second];
    if (planned.tied_to >= 0) return wrong(array, "is of a tensor that is tied to another");
    if (array.kind == MXS_ARRAY_MASTER)
      return has_master(planned) ? compare(array, describe_master(plan_, found->second))
                                 : wrong(array, "is the master of a tensor that has none by the plan");
    if (array.kind != MXS_ARRAY_STATE) return MXS_OK;
    if (!has_state(planned)) return wrong(array, "is state of a tensor that isn't stepped by the plan");
    if (array.block >= 0 && static_cast<uint64_t>(array.block) >= planned.placement_count)
      return wrong(array, "is state of a matrix that its tensor hasn't got");
    return MXS_OK;
  }

 private:
  mxs_status compare(const ManifestArray &array, const ManifestArray &wanted) const {
    if (array.dtype_word == wanted.dtype_word && array.shape == wanted.shape) return MXS_OK;
    return wrong(array, "has another dtype or shape than by the plan");
  }
  mxs_status wrong(const ManifestArray &array, const char *what) const {
    return set_error(MXS_DAMAGED, "array \"%.200s\" (%.100s) %s", array.name.c_str(),
                     opened_.manifest.files[array.file].name.c_str(), what);
  }

  const OpenedCheckpoint &opened_;
  const Plan &plan_;
  std::unordered_map<std::string_view, size_t> tensor_of_name_;
};

}  // namespace

mxs_status check_plan_arrays(const OpenedCheckpoint &opened, const Plan &plan) {
  if (plan.topology.rank_count() != opened.manifest.rank_count)
    return set_error(MXS_DAMAGED, "the plan is of %d ranks, but ranks is %d", plan.topology.rank_count(),
                     opened.manifest.rank_count);
  const Check check(opened, plan);
  for (size_t index = 0; index < plan.tensors.size(); ++index)
    if (const mxs_status status = check.tensor(index); status != MXS_OK) return status;
  for (const ManifestArray &array : opened.manifest.arrays)
    if (const mxs_status status = check.array(array); status != MXS_OK) return status;
  return MXS_OK;
}

}  // namespace mxs
