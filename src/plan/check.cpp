// SPDX-License-Identifier: Apache-2.0
// Is one tensor's description sound in itself? The sentence names the tensor and the field.
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
  if (given.co_owners > 1 || given.block_column_count != 0 || given.transposed != 0 || given.whole_rows != 0 ||
      given.whole_columns != 0)
    return set_error(MXS_NOT_BUILT,
                     "tensor \"%.200s\": co_owners, block_columns, transposed, whole_rows and whole_columns are not "
                     "built yet", given.name);
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

mxs_status check_blocks(const mxs_tensor &given) {
  if (!given.block_rows) {
    if (given.block_count == 0) return MXS_OK;
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": block_count is %d, but block_rows is NULL", given.name,
                     given.block_count);
  }
  if (given.block_count < 1 || given.block_count > block_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": block_count is %d, outside 1 to %" PRId64, given.name,
                     given.block_count, block_count_max);
  if (given.dimension_count != 2)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": block_rows cut the rows of 2 dimensions, but it has %d; a stack of matrices "
                     "(3 dimensions) is cut by its leading index without them",
                     given.name, given.dimension_count);
  uint64_t rows = 0;
  for (int block = 0; block < given.block_count; ++block) {
    if (given.block_rows[block] < 1)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": block_rows[%d] is %" PRId64 ", not positive",
                       given.name, block, given.block_rows[block]);
    if (!checked_add(rows, static_cast<uint64_t>(given.block_rows[block]), &rows)) rows = bytes_max;
  }
  if (rows != static_cast<uint64_t>(given.shape[0]))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": block_rows add up to %" PRIu64 ", but shape[0] is %" PRId64, given.name, rows,
                     given.shape[0]);
  return MXS_OK;
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
  return status;
}

}  // namespace mxs
