// SPDX-License-Identifier: Apache-2.0
// A plan from what was saved of it: planned as it was, but for the choice of owners, which the file has.
//
//   describe   as mxs_plan_create does, from what its caller said
//   own        from the file: shares of flat tensors, co-owners, the owner of each piece
//   lay out, seal, and compare the fingerprint
//
// The file may be anybody's, and its fingerprint made to fit. What later stages and units rely on is checked here, so
// that no file makes a plan that the planner could not have made: owners within the world (json.cpp), cuts where cuts
// may be, one owner for pieces that can't be parted, fixed owners, the budget.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "plan/co_owners.hpp"
#include "plan/saved.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

constexpr uint64_t column_block_count_max = uint64_t{1} << 23;  // 800 MB of them

mxs_status wrong(size_t index, const SavedTensor &tensor, const char *what) {
  return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu] (\"%.200s\"): %s", index, tensor.name.c_str(), what);
}

// A short text can tell of a stack of 2^40 matrices, or of 1,000 column blocks in each of 1,000: there must be an owner
// for each piece, and not more matrices than any model has, before they get any room.
mxs_status check_counts(const SavedPlan &saved) {
  uint64_t matrix_count = 0;
  for (size_t index = 0; index < saved.tensors.size(); ++index) {
    const SavedTensor &tensor = saved.tensors[index];
    const GivenTensor &given = tensor.given;
    const bool may_be_stack = tensor.shape.size() == 3 && tensor.tied_to.empty() && given.rule != MXS_RULE_ADAMW &&
                              given.rule != MXS_RULE_FROZEN && given.role != MXS_ROLE_FLAT &&
                              given.role != MXS_ROLE_TAIL;
    const uint64_t owner_count = tensor.owners.ranks.size();
    const uint64_t stack = may_be_stack ? static_cast<uint64_t>(tensor.shape[0]) : 0;
    if (stack > owner_count || (stack != 0 && given.block_rows.size() > owner_count / stack))
      return wrong(index, tensor, "owners has fewer ranks than the stack has matrices");
    matrix_count += owner_count * given.block_columns.size();  // both have a text: their product is below 2^58
    if (matrix_count > column_block_count_max || given.block_rows.size() > static_cast<size_t>(block_count_max))
      return wrong(index, tensor, "with it the plan has too many blocks");
  }
  return MXS_OK;
}

// Shares of a flat tensor, of which the planner would have made others.
mxs_status take_shares(const PlanSettings &settings, const SavedTensor &saved, size_t index, Draft *draft) {
  const PlannedTensor &tensor = draft->tensor;
  if (tensor.role != MXS_ROLE_FLAT) return wrong(index, saved, "elements stands there, but it isn't flat");
  const uint64_t chunk = flat_chunk_elements(tensor, settings);
  const Placement whole = draft->pieces[0];
  draft->pieces.clear();
  uint64_t offset = 0;
  for (const uint64_t elements : saved.owners.elements) {
    if (offset % chunk != 0) return wrong(index, saved, "elements cut it elsewhere than on a border of chunks");
    if (elements > tensor.element_count - offset) return wrong(index, saved, "elements add up to more than it has");
    Placement share = whole;
    share.block = static_cast<int>(draft->pieces.size());
    share.shape = {static_cast<int64_t>(elements)};
    share.element_offset = offset;
    share.element_count = elements;
    draft->pieces.push_back(std::move(share));
    offset += elements;
  }
  return offset == tensor.element_count ? MXS_OK : wrong(index, saved, "elements add up to less than it has");
}

// Ranks that share a matrix, as the planner could have chosen them.
mxs_status take_co_owners(const PlanSettings &settings, const SavedTensor &saved, size_t index, Draft *draft) {
  const std::vector<int> &ranks = saved.owners.ranks;
  const PlannedTensor &tensor = draft->tensor;
  const int asked = tensor.co_owners, count = static_cast<int>(std::min<size_t>(ranks.size(), INT32_MAX));
  if (count > 1 && (tensor.rule != MXS_RULE_MUON || !tensor.block_columns.empty() || draft->fixed_owner >= 0))
    return wrong(index, saved, "owners has several ranks, but it can't be shared");
  if (count == 0 || make_group(settings, draft, asked > 1 ? asked : count).rank_count != count ||
      (asked <= 1 && count > (asked == 1 ? 1 : settings.co_owners_max)))
    return wrong(index, saved, "owners has not as many ranks as may share it");
  for (int number = 1; number < count; ++number) {
    const int rank = ranks[static_cast<size_t>(number)], before = ranks[static_cast<size_t>(number) - 1];
    if (rank <= before || !settings.topology->same_node(rank, before))
      return wrong(index, saved, "owners that share it aren't ascending ranks of one node");
  }
  if (count > 1 || asked > 1) share_among(settings, ranks, draft);
  return MXS_OK;
}

mxs_status take_owners(const PlanSettings &settings, const SavedTensor &saved, size_t index, Draft *draft) {
  const std::vector<int> &owners = saved.owners.ranks;
  if (draft->tensor.role == MXS_ROLE_TIED) return MXS_OK;
  if (!saved.owners.elements.empty()) {
    const mxs_status status = take_shares(settings, saved, index, draft);
    if (status != MXS_OK) return status;
  }
  if (draft->tensor.role == MXS_ROLE_MATRIX) {
    const mxs_status status = take_co_owners(settings, saved, index, draft);
    if (status != MXS_OK) return status;
  }
  if (owners.size() != draft->pieces.size())
    return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu] (\"%.200s\"): owners has %zu ranks, but it has %zu pieces",
                     index, saved.name.c_str(), owners.size(), draft->pieces.size());
  for (size_t number = 0; number < owners.size(); ++number) {
    Placement &piece = draft->pieces[number];
    piece.owner = owners[number];
    if (draft->fixed_owner >= 0 && piece.owner != draft->fixed_owner)
      return wrong(index, saved, "owners is another rank than fixed_owner");
    const bool is_parted = draft->tensor.role != MXS_ROLE_BLOCKS || draft->begins_run(number);
    if (!is_parted && piece.owner != owners[number - 1])
      return wrong(index, saved, "owners differ, but its pieces can't be parted");
  }
  return MXS_OK;
}

mxs_status check_budget(const PlanSettings &settings, const Plan &plan) {
  for (size_t rank = 0; rank < plan.rank_owned_bytes.size(); ++rank)
    if (settings.rank_bytes_max != 0 && plan.rank_owned_bytes[rank] > settings.rank_bytes_max)
      return set_error(MXS_INVALID_ARGUMENT,
                       "owners give rank %zu %" PRIu64 " bytes, more than rank_bytes_max (%" PRIu64 ")", rank,
                       plan.rank_owned_bytes[rank], settings.rank_bytes_max);
  return MXS_OK;
}

}  // namespace

mxs_tensor tensor_as_given(const std::string &name, const char *tied_to, int unit, const std::vector<int64_t> &shape,
                           const GivenTensor &given) {
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = name.c_str();
  tensor.tied_to = tied_to;
  tensor.unit = unit;
  tensor.dimension_count = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape);
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

mxs_status restore_plan(const SavedPlan &saved, Plan *plan) {
  mxs_status status = check_counts(saved);
  if (status != MXS_OK) return status;
  std::vector<mxs_tensor> tensors;
  for (const SavedTensor &tensor : saved.tensors)
    tensors.push_back(tensor_as_given(tensor.name, tensor.tied_to.empty() ? nullptr : tensor.tied_to.c_str(),
                                      tensor.unit, tensor.shape, tensor.given));
  PlanSettings settings;
  status = read_settings(tensors.data(), tensors.size(), saved.topology, &saved.options, &settings);
  if (status != MXS_OK) return status;
  settings.previous_fingerprint = saved.previous_fingerprint;
  std::vector<Draft> drafts;
  status = describe(tensors.data(), tensors.size(), settings, &drafts);
  for (size_t index = 0; index < drafts.size() && status == MXS_OK; ++index)
    status = take_owners(settings, saved.tensors[index], index, &drafts[index]);
  if (status != MXS_OK) return status;
  Plan result;
  status = finish_plan(tensors.data(), settings, &drafts, &result);
  if (status == MXS_OK) status = check_budget(settings, result);
  if (status != MXS_OK) return status;
  if (result.fingerprint != saved.fingerprint)
    return set_error(MXS_INVALID_ARGUMENT,
                     "fingerprint is %016" PRIx64 ", but what the file holds has %016" PRIx64 "; it was changed, or "
                     "this release plans otherwise: plan anew", saved.fingerprint, result.fingerprint);
  *plan = std::move(result);
  return MXS_OK;
}

}  // namespace mxs
