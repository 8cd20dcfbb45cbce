// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/describe.hpp"

#include <cassert>
#include <charconv>
#include <cinttypes>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "model/safetensors.hpp"

namespace mxs {

namespace {

const PlannedTensor &tensor_of(const Plan &plan, size_t tensor) { return plan.tensors[tensor]; }

// Everything but name, kind, tensor and part.
FiledArray array_of(std::vector<int64_t> shape, mxs_dtype dtype) {
  FiledArray array;
  array.shape = std::move(shape);
  array.dtype = dtype;
  array.dtype_word = find_safetensors_format(dtype)->word;
  array.number_bytes = static_cast<uint32_t>(dtype_bytes(dtype));
  array.bytes = array.number_bytes;
  for (const int64_t side : array.shape) array.bytes *= static_cast<uint64_t>(side);
  return array;
}

// A number for each row of each matrix, as NorMuon keeps them.
std::vector<int64_t> shape_by_row(const PlannedTensor &tensor) {
  const size_t dimension_count = tensor.shape.size();
  assert(dimension_count >= 2);
  std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end() - 2);
  if (tensor.has_column_blocks() && tensor.block_columns.size() > 1)
    shape.push_back(static_cast<int64_t>(tensor.block_columns.size()));
  shape.push_back(tensor.shape[dimension_count - 2]);
  return shape;
}

bool is_all_of_another(const Plan &plan, const PlannedTensor &tensor, int rank) {
  if (tensor.placement_count == 0) return false;
  const int owner = plan.placements[tensor.placement_index].owner;
  if (owner == rank) return false;
  for (uint64_t number = 1; number < tensor.placement_count; ++number)
    if (plan.placements[tensor.placement_index + number].owner != owner) return false;
  return true;
}

}  // namespace

std::vector<ManifestPiece> pieces_by_owner(const Plan &plan, size_t tensor, uint64_t numbers) {
  const PlannedTensor &planned = tensor_of(plan, tensor);
  std::vector<ManifestPiece> pieces;
  for (uint64_t number = 0; number < planned.placement_count && planned.element_count > 0; ++number) {
    const Placement &placement = plan.placements[planned.placement_index + number];
    const uint64_t first = numbers_of_elements(numbers, placement.element_offset, planned.element_count);
    const uint64_t count = numbers_of_elements(numbers, placement.element_count, planned.element_count);
    if (count == 0) continue;
    if (!pieces.empty() && pieces.back().rank == placement.owner)
      pieces.back().count += count;
    else
      pieces.push_back({placement.owner, first, count, {}});
  }
  if (pieces.empty()) {
    const int owner = planned.placement_count > 0 ? plan.placements[planned.placement_index].owner : 0;
    pieces.push_back({owner, 0, 0, {}});
  }
  return pieces;
}

bool has_master(const PlannedTensor &tensor) {
  return tensor.tied_to < 0 && tensor.element_count > 0 && tensor.master_dtype != tensor.dtype;
}

bool has_state(const PlannedTensor &tensor) {
  return tensor.tied_to < 0 && tensor.element_count > 0 && !tensor.frozen() && tensor.rule != MXS_RULE_EXTERNAL;
}

FiledArray describe_weights(const Plan &plan, size_t tensor, bool masters) {
  const PlannedTensor &planned = tensor_of(plan, tensor);
  FiledArray array = array_of(planned.shape, masters && has_master(planned) ? planned.master_dtype : planned.dtype);
  array.kind = MXS_ARRAY_WEIGHTS;
  array.name = array.tensor = planned.name;
  array.pieces = pieces_by_owner(plan, tensor, numbers_of(array));
  return array;
}

FiledArray describe_master(const Plan &plan, size_t tensor) {
  const PlannedTensor &planned = tensor_of(plan, tensor);
  FiledArray array = array_of(planned.shape, planned.master_dtype);
  array.kind = MXS_ARRAY_MASTER;
  array.name = planned.name + ".master";
  array.tensor = planned.name;
  array.pieces = pieces_by_owner(plan, tensor, numbers_of(array));
  return array;
}

FiledArray describe_state(const Plan &plan, size_t tensor, const StatePart &part) {
  assert(part.scope != StateScope::matrix);
  const PlannedTensor &planned = tensor_of(plan, tensor);
  FiledArray array = array_of(part.scope == StateScope::row ? shape_by_row(planned) : planned.shape, part.dtype);
  array.kind = MXS_ARRAY_STATE;
  array.name = planned.name + "." + part.name;
  array.tensor = planned.name;
  array.part = part.name;
  array.pieces = pieces_by_owner(plan, tensor, numbers_of(array));
  return array;
}

FiledArray describe_matrix_state(const Plan &plan, uint64_t placement, const StatePart &part) {
  assert(part.scope == StateScope::matrix);
  const Placement &piece = plan.placements[placement];
  const PlannedTensor &planned = tensor_of(plan, static_cast<size_t>(piece.tensor));
  FiledArray array = array_of(part.shape, part.dtype);
  array.kind = MXS_ARRAY_STATE;
  array.tensor = planned.name;
  array.part = part_without_number(part.name, &array.cut);
  array.block = static_cast<int64_t>(placement - planned.placement_index);
  array.name = planned.name + "." + array.part;
  if (planned.placement_count > 1) array.name.append(1, '.').append(std::to_string(array.block));
  if (array.cut >= 0) array.name.append(1, '.').append(std::to_string(array.cut));
  array.pieces = {{piece.owner, 0, numbers_of(array), {}}};
  return array;
}

mxs_status describe_extra(const mxs_extra_tensor &extra, size_t number, FiledArray *array) {
  if (!extra.name || !extra.dtype || extra.name[0] == '\0')
    return set_error(MXS_INVALID_ARGUMENT, "options.extras[%zu] has no name or no dtype", number);
  const SafetensorsFormat *const format = find_safetensors_format(std::string_view(extra.dtype));
  if (!format)
    return set_error(MXS_INVALID_ARGUMENT, "options.extras[%zu] (\"%.200s\") has the dtype \"%.40s\", which is none "
                     "of safetensors'", number, extra.name, extra.dtype);
  if (extra.dimension_count < 0 || extra.dimension_count > MXS_DIMENSIONS_MAX)
    return set_error(MXS_INVALID_ARGUMENT, "options.extras[%zu] (\"%.200s\") has %d dimensions, not from 0 to %d",
                     number, extra.name, extra.dimension_count, MXS_DIMENSIONS_MAX);
  array->shape.assign(extra.shape, extra.shape + extra.dimension_count);
  uint64_t numbers = 0;
  if (!numbers_of_shape(array->shape, &numbers) || !checked_multiply(numbers, format->number_bytes, &array->bytes))
    return set_error(MXS_INVALID_ARGUMENT, "options.extras[%zu] (\"%.200s\") has a shape of no tensor", number,
                     extra.name);
  if (array->bytes > 0 && !extra.data)
    return set_error(MXS_INVALID_ARGUMENT, "options.extras[%zu] (\"%.200s\") has %" PRIu64 " bytes, but data is NULL",
                     number, extra.name, array->bytes);
  array->name = array->tensor = extra.name;
  array->kind = MXS_ARRAY_EXTRA;
  array->dtype_word = format->word;
  array->dtype = format->dtype;
  array->number_bytes = format->number_bytes;
  array->pieces = {{0, 0, numbers, {}}};
  return MXS_OK;
}

std::vector<FiledArray> describe_model(const Plan &plan, bool masters) {
  std::vector<FiledArray> arrays;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    if (plan.tensors[tensor].tied_to < 0) arrays.push_back(describe_weights(plan, tensor, masters));
  return arrays;
}

std::vector<FiledArray> describe_optimizer(
    const Plan &plan, bool masters, const std::function<const std::vector<StatePart> &(mxs_rule rule)> &parts_of,
    int rank) {
  std::vector<FiledArray> arrays;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    const PlannedTensor &planned = plan.tensors[tensor];
    if (rank >= 0 && is_all_of_another(plan, planned, rank)) continue;
    if (!masters && has_master(planned)) arrays.push_back(describe_master(plan, tensor));
    if (!parts_of || !has_state(planned)) continue;
    for (const StatePart &part : parts_of(planned.rule))
      if (part.scope != StateScope::matrix) arrays.push_back(describe_state(plan, tensor, part));
  }
  return arrays;
}

std::string_view part_without_number(std::string_view part, int64_t *number) {
  *number = -1;
  const size_t dot = part.rfind('.');
  if (dot == std::string_view::npos) return part;
  const char *const end = part.data() + part.size();
  int64_t read = 0;
  const auto [stop, error] = std::from_chars(part.data() + dot + 1, end, read);
  if (error != std::errc() || stop != end || read < 0) return part;
  *number = read;
  return part.substr(0, dot);
}

}  // namespace mxs
