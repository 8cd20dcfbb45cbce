// SPDX-License-Identifier: Apache-2.0
// From the caller's words to a rule, a role, a reason, and pieces that want owners.
//
//   rule      2 or 3 dimensions                    else
//   auto      muon                                 adamw
//   muon, shampoo, soap:  2: matrix or blocks, 3: blocks, else an error
//   external  2: matrix or blocks, 3: blocks       as adamw
//   adamw     flat from flat_bytes on, else tail
//   frozen    flat
//   Column blocks change no role: they cut each matrix or block into several, which stay with its owner.
//   A fixed owner makes flat a tail; role flat or tail is obeyed where there is no matrix to keep whole.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

bool has_matrices(const mxs_tensor &given) { return given.dimension_count == 2 || given.dimension_count == 3; }

bool is_wire_dtype(mxs_dtype dtype) { return dtype == MXS_F32 || dtype == MXS_BF16 || dtype == MXS_F16; }

// Texts grow by parts: gcc 12 warns falsely of overlap where a sum begins with a literal (its bug 105651).
template <class... Parts>
void append(std::string *text, const Parts &...parts) {
  (text->append(parts), ...);
}

// Fills in the rule, and begins the reason.
mxs_status choose_rule(const mxs_tensor &given, PlannedTensor *tensor) {
  const bool unlike_matrix = given.role == MXS_ROLE_FLAT || given.role == MXS_ROLE_TAIL;
  tensor->rule = given.rule;
  if (given.rule != MXS_RULE_AUTO) append(&tensor->reason, rule_name(given.rule), " as described");
  if (given.rule == MXS_RULE_AUTO) {
    tensor->rule = has_matrices(given) && !unlike_matrix ? MXS_RULE_MUON : MXS_RULE_ADAMW;
    if (tensor->rule == MXS_RULE_MUON)
      tensor->reason = given.dimension_count == 2 ? "muon, since 2 dimensions make a matrix"
                                                  : "muon, since 3 dimensions make a stack of matrices";
    else if (unlike_matrix)
      append(&tensor->reason, "adamw, since role ", role_name(given.role), " was asked for");
    else
      append(&tensor->reason, "adamw, since ", std::to_string(given.dimension_count),
             given.dimension_count == 1 ? " dimension makes" : " dimensions make", " no matrix");
    if (given.dimension_count > 3) append(&tensor->reason, " (view it as 2 or 3 for muon)");
  }
  if (!wants_matrices(tensor->rule)) return MXS_OK;
  if (!has_matrices(given))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": rule %s needs 2 dimensions, or 3 for a stack of matrices, but it has %d; %s",
                     given.name, rule_name(tensor->rule), given.dimension_count,
                     given.dimension_count > 3 ? "describe it by a 2-D or 3-D view, such as (out, in * height * width)"
                                               : "use rule adamw");
  if (unlike_matrix)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": role %s would tear matrices that rule %s needs whole",
                     given.name, role_name(given.role), rule_name(tensor->rule));
  return MXS_OK;
}

mxs_status choose_dtypes(const mxs_tensor &given, PlannedTensor *tensor) {
  tensor->dtype = given.dtype ? given.dtype : MXS_F32;
  // A frozen tensor is never rounded from a master, so by default it has none.
  tensor->master_dtype = given.master_dtype ? given.master_dtype : tensor->frozen() ? tensor->dtype : MXS_F32;
  tensor->gradient_dtype = given.gradient_dtype ? given.gradient_dtype : tensor->dtype;
  if (tensor->frozen()) return MXS_OK;
  if (!is_wire_dtype(tensor->gradient_dtype))
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": gradient_dtype is %s%s, not f32, bf16 or f16",
                     given.name, mxs_dtype_name(tensor->gradient_dtype), given.gradient_dtype ? "" : " (as dtype)");
  if (tensor->rule == MXS_RULE_EXTERNAL) return MXS_OK;
  if (!is_wire_dtype(tensor->dtype))
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": dtype is %s, but rule %s steps f32, bf16 and f16",
                     given.name, mxs_dtype_name(tensor->dtype), rule_name(tensor->rule));
  if (tensor->master_dtype != MXS_F32 && tensor->master_dtype != tensor->dtype)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": master_dtype is %s, neither f32 nor dtype (%s)",
                     given.name, mxs_dtype_name(tensor->master_dtype), mxs_dtype_name(tensor->dtype));
  return MXS_OK;
}

// Every later sum of bytes stays within 2^62 if this holds for the sum over all tensors.
mxs_status count_bytes(const mxs_tensor &given, const PlannedTensor &tensor, uint64_t *total) {
  // Masters, sums and state: at most 8 + 4 + 8 bytes an element; shampoo's and soap's squares by their sides.
  uint64_t bytes = 0;
  if (!checked_multiply(tensor.element_count, dtype_bytes(tensor.dtype) + 20, &bytes))
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %" PRIu64 " elements with masters, sums and state are more than 2^62 bytes",
                     given.name, tensor.element_count);
  bool fits = checked_add(*total, bytes, total);
  if (tensor.rule == MXS_RULE_SHAMPOO || tensor.rule == MXS_RULE_SOAP)
    for (const bool rows : {true, false}) {
      // A side that is cut has less; the other side's square is there once for each block.
      const uint64_t side = static_cast<uint64_t>(tensor.shape[tensor.shape.size() - (rows ? 2 : 1)]);
      const uint64_t stack = tensor.shape.size() == 3 ? static_cast<uint64_t>(tensor.shape[0]) : 1;
      const int32_t cuts = rows ? given.block_column_count : given.block_count;
      uint64_t square = 0;
      fits = fits && checked_multiply(side, side, &square) && checked_multiply(square, 8, &square) &&
             checked_multiply(square, stack, &square) &&
             checked_multiply(square, static_cast<uint64_t>(std::max(cuts, 1)), &square) &&
             checked_add(*total, square, total);
    }
  if (fits) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": with it the model needs more than 2^62 bytes", given.name);
}

mxs_status choose_flat_or_tail(const mxs_tensor &given, const PlanSettings &settings, PlannedTensor *tensor) {
  const uint64_t bytes = weight_bytes(*tensor, tensor->element_count);
  if (given.role == MXS_ROLE_FLAT && given.fixed_owner != 0)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": role flat has no single owner, but fixed_owner is rank %d",
                     given.name, given.fixed_owner - 1);
  tensor->role = MXS_ROLE_TAIL;
  if (given.role == MXS_ROLE_FLAT || given.role == MXS_ROLE_TAIL) {
    tensor->role = given.role;
    if (given.rule != MXS_RULE_AUTO) append(&tensor->reason, ", role ", role_name(given.role), " too");
  } else if (given.fixed_owner != 0) {
    append(&tensor->reason, "; tail of the owner that was asked for");
  } else if (tensor->frozen()) {
    tensor->role = MXS_ROLE_FLAT;
    append(&tensor->reason, "; stored evenly");
  } else if (bytes >= settings.flat_bytes) {
    tensor->role = MXS_ROLE_FLAT;
    append(&tensor->reason, "; flat from ", std::to_string(settings.flat_bytes), " bytes on");
  } else {
    append(&tensor->reason, "; tail below ", std::to_string(settings.flat_bytes), " bytes");
  }
  if (given.block_rows) append(&tensor->reason, "; block_rows have no meaning for it");
  if (given.block_columns) append(&tensor->reason, "; block_columns have no meaning for it");
  if (given.transposed || given.whole_rows || given.whole_columns)
    append(&tensor->reason, "; transposed and whole sizes have no meaning for it");
  return MXS_OK;
}

Placement piece_of(const PlannedTensor &tensor, std::vector<int64_t> shape, uint64_t offset, uint64_t count) {
  Placement piece;
  piece.owner = -1;
  piece.unit = tensor.unit;
  piece.shape = std::move(shape);
  piece.element_offset = offset;
  piece.element_count = count;
  return piece;
}

void add_block(Draft *draft, int64_t rows, int64_t columns, uint64_t *offset) {
  const uint64_t count = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns);
  draft->pieces.push_back(piece_of(draft->tensor, {rows, columns}, *offset, count));
  draft->pieces.back().block = static_cast<int>(draft->pieces.size()) - 1;
  *offset += count;
}

// Where a border between two blocks can part two owners, a run of blocks ends.
void find_runs(const mxs_tensor &given, const PlanSettings &settings, Draft *draft) {
  PlannedTensor &tensor = draft->tensor;
  if (given.fixed_owner != 0 || draft->pieces.size() < 2) return;
  int run = 0;
  draft->runs.reserve(draft->pieces.size());
  for (const Placement &piece : draft->pieces) {
    const bool on_border = weight_bytes(tensor, piece.element_offset) % settings.alignment == 0 &&
                           (piece.element_offset * dtype_bytes(tensor.gradient_dtype)) % gradient_alignment == 0;
    if (!draft->runs.empty() && on_border) ++run;
    draft->runs.push_back(run);
  }
  const size_t run_count = static_cast<size_t>(run) + 1;
  if (run_count == draft->pieces.size()) return;
  if (run_count == 1) append(&tensor.reason, " of one owner");
  else append(&tensor.reason, " in ", std::to_string(run_count), " runs, each of one owner");
  append(&tensor.reason, run_count == 1 ? ", since no border" : ", since not every border",
         " between them is at a multiple of ", std::to_string(settings.alignment), " bytes, and of ",
         std::to_string(gradient_alignment), " bytes of gradients");
  if (run_count == 1) draft->runs.clear();
}

void add_column_blocks(const mxs_tensor &given, PlannedTensor *tensor) {
  if (!given.block_columns) return;
  append(&tensor->reason, tensor->role == MXS_ROLE_BLOCKS ? "; the columns of each are " : "; its columns are ",
         std::to_string(given.block_column_count), given.block_column_count == 1 ? " matrix" : " matrices");
}

void add_scaling(const mxs_tensor &given, PlannedTensor *tensor) {
  if (given.transposed) append(&tensor->reason, "; stored transposed");
  if (!given.whole_rows && !given.whole_columns) return;
  const size_t last = tensor->shape.size() - 1;
  append(&tensor->reason, "; scaled as a piece of ",
         shape_text({given.whole_rows ? given.whole_rows : tensor->shape[last - 1],
                     given.whole_columns ? given.whole_columns : tensor->shape[last]}));
}

mxs_status cut_blocks(const mxs_tensor &given, const PlanSettings &settings, Draft *draft) {
  PlannedTensor &tensor = draft->tensor;
  const bool is_stack = given.dimension_count == 3;
  const int64_t stack = is_stack ? tensor.shape[0] : 1, columns = tensor.shape.back();
  if (stack > block_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": a stack of %" PRId64 " matrices, more than %" PRId64,
                     given.name, stack, block_count_max);
  uint64_t offset = 0;
  for (int64_t index = 0; index < stack; ++index) {
    if (!given.block_rows) add_block(draft, tensor.shape[1], columns, &offset);
    for (int block = 0; block < given.block_count; ++block) add_block(draft, given.block_rows[block], columns, &offset);
  }
  if (draft->pieces.empty()) draft->pieces.push_back(piece_of(tensor, {0, columns}, 0, 0));
  tensor.role = MXS_ROLE_BLOCKS;
  append(&tensor.reason, "; ", std::to_string(draft->pieces.size()), draft->pieces.size() == 1 ? " block" : " blocks");
  find_runs(given, settings, draft);
  add_column_blocks(given, &tensor);
  add_scaling(given, &tensor);
  return MXS_OK;
}

mxs_status choose_role(const mxs_tensor &given, const PlanSettings &settings, Draft *draft) {
  PlannedTensor &tensor = draft->tensor;
  const bool whole = wants_matrices(tensor.rule) ||
                     (tensor.rule == MXS_RULE_EXTERNAL && has_matrices(given) && given.role != MXS_ROLE_FLAT &&
                      given.role != MXS_ROLE_TAIL);
  if (whole && (given.dimension_count == 3 || given.block_count > 1)) return cut_blocks(given, settings, draft);
  if (whole) {
    tensor.role = MXS_ROLE_MATRIX;
    append(&tensor.reason, std::string(alone_reason));
    add_column_blocks(given, &tensor);
    add_scaling(given, &tensor);
  } else if (const mxs_status status = choose_flat_or_tail(given, settings, &tensor); status != MXS_OK) {
    return status;
  }
  const bool is_flat = tensor.role == MXS_ROLE_FLAT;
  std::vector<int64_t> shape = is_flat ? std::vector{static_cast<int64_t>(tensor.element_count)} : tensor.shape;
  draft->pieces.push_back(piece_of(tensor, std::move(shape), 0, tensor.element_count));
  return MXS_OK;
}

}  // namespace

mxs_status describe(const mxs_tensor *given, uint64_t count, const PlanSettings &settings, std::vector<Draft> *drafts) {
  drafts->resize(count);
  uint64_t total_bytes = 0;
  for (uint64_t index = 0; index < count; ++index) {
    Draft &draft = (*drafts)[index];
    PlannedTensor &tensor = draft.tensor;
    mxs_status status = check_tensor(given[index], index, settings, &tensor.element_count);
    if (status != MXS_OK) return status;
    tensor.name = given[index].name;
    tensor.shape.assign(given[index].shape, given[index].shape + given[index].dimension_count);
    tensor.unit = given[index].unit;
    tensor.group = given[index].group;
    tensor.transposed = given[index].transposed != 0;
    tensor.whole_rows = given[index].whole_rows;
    tensor.whole_columns = given[index].whole_columns;
    if (given[index].block_columns)
      tensor.block_columns.assign(given[index].block_columns,
                                  given[index].block_columns + given[index].block_column_count);
    tensor.co_owners = given[index].co_owners;
    draft.fixed_owner = given[index].fixed_owner - 1;
    if (given[index].tied_to) continue;  // resolve_ties does the rest
    status = choose_rule(given[index], &tensor);
    if (status == MXS_OK) status = choose_dtypes(given[index], &tensor);
    if (status == MXS_OK) status = count_bytes(given[index], tensor, &total_bytes);
    if (status == MXS_OK) status = choose_role(given[index], settings, &draft);
    if (status == MXS_OK) status = check_co_owners(given[index], draft, settings);
    if (status != MXS_OK) return status;
  }
  return resolve_ties(given, drafts);
}

}  // namespace mxs
