// SPDX-License-Identifier: Apache-2.0
// From tensors that the caller has in memory, as mxs_tensor describes them, to a model. They have been checked as a
// plan checks them; what is left is what only models ask for: names that are text, and units of all tensors or of none.
#include "base/status.hpp"
#include "base/text.hpp"
#include "model/list.hpp"
#include "model/model.hpp"

namespace mxs {
namespace {

LoadedTensor copy_of(const mxs_tensor &given) {
  LoadedTensor tensor;
  tensor.name = given.name;
  tensor.shape.assign(given.shape, given.shape + given.dimension_count);
  tensor.dtype = given.dtype;
  tensor.master_dtype = given.master_dtype;
  tensor.gradient_dtype = given.gradient_dtype;
  tensor.rule = given.rule;
  tensor.group = given.group;
  tensor.role = given.role;
  tensor.fixed_owner = given.fixed_owner;
  tensor.co_owners = given.co_owners;
  if (given.tied_to) tensor.tied_to = given.tied_to;
  if (given.block_rows) tensor.block_rows.assign(given.block_rows, given.block_rows + given.block_count);
  if (given.block_columns)
    tensor.block_columns.assign(given.block_columns, given.block_columns + given.block_column_count);
  tensor.transposed = given.transposed != 0;
  tensor.whole_rows = given.whole_rows;
  tensor.whole_columns = given.whole_columns;
  return tensor;
}

}  // namespace

mxs_status model_from_tensors(const std::vector<mxs_tensor> &given, LoadedModel *model) {
  LoadedModel read;
  read.kind = "model";
  read.tensors.reserve(given.size());
  UnitNames units;
  mxs_status status = MXS_OK;
  for (size_t index = 0; status == MXS_OK && index < given.size(); ++index) {
    if (!is_utf8(given[index].name))
      return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu].name is not UTF-8", index);
    read.tensors.push_back(copy_of(given[index]));
    if (given[index].unit >= 0) status = units.add(given[index].name, given[index].unit, &read.tensors.back());
  }
  if (status == MXS_OK) status = units.finish(&read);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
