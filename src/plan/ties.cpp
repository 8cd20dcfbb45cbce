// SPDX-License-Identifier: Apache-2.0
// Names: each is used once, and a tied tensor takes everything from the tensor it names.
#include <cinttypes>
#include <string_view>
#include <unordered_map>

#include "base/status.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// What a tied tensor may not say of itself, since it has no bytes of its own.
mxs_status check_tied(const mxs_tensor &given) {
  const char *field = nullptr;
  if (given.fixed_owner != 0) field = "fixed_owner";
  if (given.block_rows) field = "block_rows";
  if (given.block_columns) field = "block_columns";
  if (given.transposed) field = "transposed";
  if (given.whole_rows) field = "whole_rows";
  if (given.whole_columns) field = "whole_columns";
  if (given.co_owners > 1) field = "co_owners";
  if (given.role != MXS_ROLE_AUTO && given.role != MXS_ROLE_TIED) field = "role";
  if (!field) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is set, but it is tied; set it on tensor \"%.200s\"",
                   given.name, field, given.tied_to);
}

std::vector<int64_t> shape_of(const mxs_tensor &given) { return {given.shape, given.shape + given.dimension_count}; }

// A unit below 0 isn't known yet: it will be that of the other.
mxs_status check_pair(const mxs_tensor &given, const mxs_tensor &other) {
  if (given.unit >= 0 && given.unit != other.unit)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\" of unit %d is tied to \"%.200s\" of unit %d; both must be in one unit",
                     given.name, given.unit, given.tied_to, other.unit);
  if (shape_of(given) != shape_of(other))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\" of shape %s is tied to \"%.200s\" of shape %s; both must be the same, not "
                     "transposed",
                     given.name, shape_text(shape_of(given)).c_str(), given.tied_to,
                     shape_text(shape_of(other)).c_str());
  return MXS_OK;
}

mxs_status check_dtypes(const mxs_tensor &given, const PlannedTensor &other) {
  const struct {
    const char *field;
    mxs_dtype mine, others;
  } dtypes[] = {{"dtype", given.dtype ? given.dtype : MXS_F32, other.dtype},
                {"master_dtype", given.master_dtype ? given.master_dtype : other.master_dtype, other.master_dtype},
                {"gradient_dtype", given.gradient_dtype ? given.gradient_dtype : other.gradient_dtype,
                 other.gradient_dtype}};
  for (const auto &each : dtypes)
    if (each.mine != each.others)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is %s, but \"%.200s\", to which it is tied, has %s",
                       given.name, each.field, mxs_dtype_name(each.mine), given.tied_to,
                       mxs_dtype_name(each.others));
  return MXS_OK;
}

}  // namespace

mxs_status find_ties(const mxs_tensor *given, uint64_t count, std::vector<int> *tied_to) {
  std::unordered_map<std::string_view, size_t> index_of_name;
  for (size_t index = 0; index < count; ++index) {
    const auto [entry, is_new] = index_of_name.emplace(given[index].name, index);
    if (!is_new)
      return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu].name: \"%.200s\" is the name of tensors[%zu] too", index,
                       given[index].name, entry->second);
  }
  tied_to->assign(count, -1);
  for (size_t index = 0; index < count; ++index) {
    const char *name = given[index].tied_to;
    if (!name) continue;
    const auto found = index_of_name.find(name);
    if (found == index_of_name.end())
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": tied_to is \"%.200s\", and no tensor has that name",
                       given[index].name, name);
    if (given[found->second].tied_to)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": tied_to is \"%.200s\", which is %s", given[index].name,
                       name, found->second == index ? "itself" : "tied too; name the tensor that has the bytes");
    mxs_status status = check_tied(given[index]);
    if (status == MXS_OK) status = check_pair(given[index], given[found->second]);
    if (status != MXS_OK) return status;
    (*tied_to)[index] = static_cast<int>(found->second);
  }
  return MXS_OK;
}

mxs_status resolve_ties(const mxs_tensor *given, std::vector<Draft> *drafts) {
  std::vector<int> tied_to;
  mxs_status status = find_ties(given, drafts->size(), &tied_to);
  for (size_t index = 0; status == MXS_OK && index < drafts->size(); ++index) {
    if (tied_to[index] < 0) continue;
    PlannedTensor &tensor = (*drafts)[index].tensor;
    const PlannedTensor &other = (*drafts)[static_cast<size_t>(tied_to[index])].tensor;
    status = check_dtypes(given[index], other);
    if (status != MXS_OK) return status;
    tensor.dtype = other.dtype;
    tensor.master_dtype = other.master_dtype;
    tensor.gradient_dtype = other.gradient_dtype;
    tensor.rule = other.rule;
    tensor.group = other.group;
    tensor.role = MXS_ROLE_TIED;
    tensor.tied_to = tied_to[index];
    tensor.reason.append("tied to ").append(other.name).append(", whose rule and bytes it shares");
  }
  return status;
}

}  // namespace mxs
