// SPDX-License-Identifier: Apache-2.0
// Is one tensor's description sound in itself? And those of a model, before anybody knows the world? The sentence names
// the tensor and the field.
#include <cinttypes>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

mxs_status check_dtype(const mxs_tensor &given, mxs_dtype dtype, const char *field) {
  if (dtype == 0 || dtype_bytes(dtype) != 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is %d, which is no dtype", given.name, field, dtype);
}

mxs_status check_numbers(const mxs_tensor &given, const PlanSettings &settings) {
  if (given.unit < 0 || given.unit >= settings.unit_count)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": unit is %d, outside 0 to %d", given.name, given.unit,
                     settings.unit_count - 1);
  if (given.group < 0)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": group is %d, negative", given.name, given.group);
  if (given.rule < MXS_RULE_AUTO || given.rule > MXS_RULE_SOAP)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": rule is %d, which is no rule", given.name, given.rule);
  if (given.role < MXS_ROLE_AUTO || given.role > MXS_ROLE_TIED)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": role is %d, which is no role", given.name, given.role);
  if (given.role == MXS_ROLE_TIED && !given.tied_to)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": role is tied, but tied_to is NULL", given.name);
  if (given.fixed_owner < 0 || given.fixed_owner > settings.rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": fixed_owner is rank %" PRId64
                     ", outside a world of %d ranks",
                     given.name, int64_t{given.fixed_owner} - 1, settings.rank_count);
  if (given.co_owners < 0)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": co_owners is %d, negative", given.name, given.co_owners);
  return MXS_OK;
}

mxs_status check_shape(const mxs_tensor &given, uint64_t *element_count) {
  if (given.dimension_count < 0 || given.dimension_count > MXS_DIMENSIONS_MAX)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": dimension_count is %d, outside 0 to %d", given.name,
                     given.dimension_count, MXS_DIMENSIONS_MAX);
  bool empty = false;
  for (int d = 0; d < given.dimension_count; ++d) {
    if (given.shape[d] < 0)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": shape[%d] is %" PRId64 ", negative", given.name, d,
                       given.shape[d]);
    empty = empty || given.shape[d] == 0;
  }
  uint64_t count = empty ? 0 : 1;
  for (int d = 0; d < given.dimension_count && !empty; ++d)
    if (!checked_multiply(count, static_cast<uint64_t>(given.shape[d]), &count))
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": shape has more than 2^62 elements", given.name);
  *element_count = count;
  return MXS_OK;
}

bool is_matrix_or_stack(const mxs_tensor &given) { return given.dimension_count == 2 || given.dimension_count == 3; }

// Which dimension of each matrix is cut, and into what.
struct Cut {
  const char *field, *count_field;
  const int64_t *lengths;
  int32_t count;
  int dimension;  // of the tensor
};

Cut row_cut(const mxs_tensor &given) {
  return {"block_rows", "block_count", given.block_rows, given.block_count, given.dimension_count - 2};
}

Cut column_cut(const mxs_tensor &given) {
  return {"block_columns", "block_column_count", given.block_columns, given.block_column_count,
          given.dimension_count - 1};
}

mxs_status check_cut(const mxs_tensor &given, const Cut &cut) {
  if (!cut.lengths) {
    if (cut.count == 0) return MXS_OK;
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is %d, but %s is NULL", given.name, cut.count_field,
                     cut.count, cut.field);
  }
  if (cut.count < 1 || cut.count > block_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is %d, outside 1 to %" PRId64, given.name,
                     cut.count_field, cut.count, block_count_max);
  if (!is_matrix_or_stack(given))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %s cut a matrix (2 dimensions) or each of a stack (3), but it has %d",
                     given.name, cut.field, given.dimension_count);
  uint64_t sum = 0;
  for (int block = 0; block < cut.count; ++block) {
    if (cut.lengths[block] < 1)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s[%d] is %" PRId64 ", not positive", given.name,
                       cut.field, block, cut.lengths[block]);
    if (!checked_add(sum, static_cast<uint64_t>(cut.lengths[block]), &sum)) sum = bytes_max;
  }
  if (sum != static_cast<uint64_t>(given.shape[cut.dimension]))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %s add up to %" PRIu64 ", but shape[%d] is %" PRId64, given.name, cut.field,
                     sum, cut.dimension, given.shape[cut.dimension]);
  if (given.dimension_count == 3 && given.shape[0] > block_count_max / cut.count)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": a stack of %" PRId64 " matrices cut into %d blocks each; more than %" PRId64
                     " blocks",
                     given.name, given.shape[0], cut.count, block_count_max);
  return MXS_OK;
}

mxs_status check_blocks(const mxs_tensor &given) {
  if (given.block_rows && given.block_columns)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": block_rows and block_columns are both set; a tensor is cut by its rows or by "
                     "its columns",
                     given.name);
  const mxs_status status = check_cut(given, row_cut(given));
  return status == MXS_OK ? check_cut(given, column_cut(given)) : status;
}

__extension__ using Wide = unsigned __int128;

// Every block grows by whole / local. `blocks` says nothing if that dimension isn't cut.
mxs_status check_whole(const mxs_tensor &given, const char *field, int64_t whole, const Cut &blocks) {
  if (whole == 0) return MXS_OK;
  const int64_t local = given.shape[blocks.dimension];
  if (whole < local)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %s is %" PRId64 ", less than the local shape[%d], which is %" PRId64,
                     given.name, field, whole, blocks.dimension, local);
  for (int block = 0; blocks.lengths && block < blocks.count; ++block)
    if (static_cast<Wide>(blocks.lengths[block]) * static_cast<Wide>(whole) % static_cast<Wide>(local) != 0)
      return set_error(MXS_INVALID_ARGUMENT,
                       "tensor \"%.200s\": %s is %" PRId64 ", by which %s[%d], %" PRId64 " of %" PRId64
                       ", does not grow to a whole number",
                       given.name, field, whole, blocks.field, block, blocks.lengths[block], local);
  return MXS_OK;
}

mxs_status check_scaling(const mxs_tensor &given) {
  if (given.transposed != 0 && given.transposed != 1)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": transposed is %d, neither 0 nor 1", given.name,
                     given.transposed);
  if (given.whole_rows < 0 || given.whole_columns < 0)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": %s is %" PRId64 ", negative", given.name,
                     given.whole_rows < 0 ? "whole_rows" : "whole_columns",
                     given.whole_rows < 0 ? given.whole_rows : given.whole_columns);
  if (given.transposed == 0 && given.whole_rows == 0 && given.whole_columns == 0) return MXS_OK;
  if (!is_matrix_or_stack(given))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %s concerns a matrix (2 dimensions) or a stack (3), but it has %d",
                     given.name, given.transposed ? "transposed" : given.whole_rows ? "whole_rows" : "whole_columns",
                     given.dimension_count);
  const mxs_status status = check_whole(given, "whole_rows", given.whole_rows, row_cut(given));
  return status == MXS_OK ? check_whole(given, "whole_columns", given.whole_columns, column_cut(given)) : status;
}

}  // namespace

mxs_status check_tensor(const mxs_tensor &given, uint64_t index, const PlanSettings &settings,
                        uint64_t *element_count) {
  if (!given.name || !*given.name)
    return set_error(MXS_INVALID_ARGUMENT, "tensors[%" PRIu64 "].name is %s", index, given.name ? "empty" : "NULL");
  mxs_status status = check_dtype(given, given.dtype, "dtype");
  if (status == MXS_OK) status = check_dtype(given, given.master_dtype, "master_dtype");
  if (status == MXS_OK) status = check_dtype(given, given.gradient_dtype, "gradient_dtype");
  if (status == MXS_OK) status = check_numbers(given, settings);
  if (status == MXS_OK) status = check_shape(given, element_count);
  if (status == MXS_OK) status = check_blocks(given);
  if (status == MXS_OK) status = check_scaling(given);
  return status;
}

mxs_status check_tensors(const mxs_tensor *tensors, uint64_t tensor_count) {
  PlanSettings any_world;
  any_world.rank_count = rank_count_max;
  any_world.unit_count = unit_count_max;
  for (uint64_t index = 0; index < tensor_count; ++index) {
    mxs_tensor tensor = tensors[index];
    if (tensor.unit == -1) tensor.unit = 0;
    uint64_t element_count = 0;
    const mxs_status status = check_tensor(tensor, index, any_world, &element_count);
    if (status != MXS_OK) return status;
  }
  std::vector<int> tied_to;
  return find_ties(tensors, tensor_count, &tied_to);
}

}  // namespace mxs
