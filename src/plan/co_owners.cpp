// SPDX-License-Identifier: Apache-2.0
// Co-owners: ranks of one node that have a range of a matrix's rows each, and share its step.
//
//   rows 0 to 1023     rank 8     every step: each multiplies with its own rows; the n x n Gram matrices, which every
//   rows 1024 to 2047  rank 9     product needs whole, are summed inside the group
//   rows 2048 to 3071  rank 12
//   rows 3072 to 4095  rank 13
//
// Rows are cut where flat tensors may be, between whole chunks of 4,096 elements or of the alignment: segments may end
// there, and the norm, which is summed in such chunks, is the same whoever owns what.
#include "plan/co_owners.hpp"

#include <algorithm>
#include <cinttypes>
#include <numeric>
#include <string>
#include <utility>

#include "base/status.hpp"

namespace mxs {
namespace {

uint64_t row_count(const PlannedTensor &tensor) { return static_cast<uint64_t>(tensor.shape[0]); }

// Rows from one place where the matrix may be cut to the next.
uint64_t rows_between_cuts(const PlanSettings &settings, const PlannedTensor &tensor) {
  const uint64_t chunk = flat_chunk_elements(tensor, settings);
  return chunk / std::gcd(chunk, static_cast<uint64_t>(tensor.shape[1]));
}

// The first ones get a range more, the last one ends with the short range.
void cut_rows(const PlanSettings &settings, int count, Draft *draft) {
  const PlannedTensor &tensor = draft->tensor;
  const uint64_t step = rows_between_cuts(settings, tensor), shares = static_cast<uint64_t>(count);
  const uint64_t range_count = divide_up(row_count(tensor), step);
  const Placement whole = draft->pieces[0];
  draft->pieces.clear();
  uint64_t row = 0;
  for (uint64_t number = 0; number < shares; ++number) {
    const uint64_t ranges = range_count / shares + (number < range_count % shares ? 1 : 0);
    const uint64_t rows = std::min(ranges * step, row_count(tensor) - row);
    Placement share = whole;
    share.co_owner = static_cast<int>(number);
    share.co_owner_count = count;
    share.shape[0] = static_cast<int64_t>(rows);
    share.element_offset = row * static_cast<uint64_t>(tensor.shape[1]);
    share.element_count = rows * static_cast<uint64_t>(tensor.shape[1]);
    draft->pieces.push_back(std::move(share));
    row += rows;
  }
  draft->together = true;
}

void forget_alone(std::string *reason) {
  if (const size_t found = reason->find(alone_reason); found != std::string::npos)
    reason->erase(found, alone_reason.size());
}

// Too few rows for even two.
void leave_alone(const PlanSettings &settings, Draft *draft) {
  PlannedTensor &tensor = draft->tensor;
  tensor.reason.append(", not ").append(std::to_string(tensor.co_owners));
  tensor.reason.append(" co-owners: rows can be cut only every ");
  tensor.reason.append(std::to_string(rows_between_cuts(settings, tensor)));
}

// *least_bytes: below it there is no room for this group.
mxs_status no_room(const PlanSettings &settings, const Group &group, const Ledger &ledger, uint64_t *least_bytes) {
  uint64_t least = UINT64_MAX;
  for (const Node &node : settings.topology->nodes) {
    if (node.rank_count() < group.rank_count) continue;
    std::vector<uint64_t> bytes;
    for (const int rank : node.ranks) bytes.push_back(ledger.of(rank).bytes);
    const auto last = bytes.begin() + group.rank_count - 1;
    std::nth_element(bytes.begin(), last, bytes.end());
    least = std::min(least, *last + group.bytes);
  }
  return set_error(MXS_OVER_BUDGET,
                   "tensor \"%.200s\": no %d ranks of a node have room for its co-owners within rank_bytes_max "
                   "(%" PRIu64 " bytes); they would own %" PRIu64 " bytes at the least. Allow more, or ask for more "
                   "co-owners",
                   group.draft->tensor.name.c_str(), group.rank_count, settings.rank_bytes_max, *least_bytes = least);
}

std::vector<Group> asked_groups(const PlanSettings &settings, std::vector<Draft> *drafts) {
  std::vector<Group> groups;
  for (Draft &draft : *drafts) {
    if (draft.tensor.co_owners < 2) continue;
    const Group group = make_group(settings, &draft, draft.tensor.co_owners);
    if (group.rank_count > 1)
      groups.push_back(group);
    else
      leave_alone(settings, &draft);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group &a, const Group &b) {
    return std::tie(a.rank_count, a.cost) > std::tie(b.rank_count, b.cost);
  });
  return groups;
}

}  // namespace

void share_among(const PlanSettings &settings, const std::vector<int> &ranks, Draft *draft) {
  PlannedTensor &tensor = draft->tensor;
  if (ranks.size() == 1) {
    leave_alone(settings, draft);
    return;
  }
  cut_rows(settings, static_cast<int>(ranks.size()), draft);
  for (size_t number = 0; number < ranks.size(); ++number) draft->pieces[number].owner = ranks[number];
  forget_alone(&tensor.reason);
  tensor.reason.append("; shared by ").append(std::to_string(ranks.size())).append(" ranks of node ");
  tensor.reason.append(std::to_string(settings.topology->node_of(ranks[0])));
  if (tensor.co_owners == 0) tensor.reason.append(", which lowers the worst step");
  if (tensor.co_owners > static_cast<int>(ranks.size()))
    tensor.reason.append(", not ").append(std::to_string(tensor.co_owners)).append(": rows can be cut only every ")
        .append(std::to_string(rows_between_cuts(settings, tensor)));
}

uint64_t share_rows(const PlanSettings &settings, const PlannedTensor &tensor, int rank_count) {
  const uint64_t step = rows_between_cuts(settings, tensor);
  const uint64_t ranges = divide_up(divide_up(row_count(tensor), step), static_cast<uint64_t>(rank_count));
  return std::min(ranges * step, row_count(tensor));
}

Group make_group(const PlanSettings &settings, Draft *draft, int asked) {
  const PlannedTensor &tensor = draft->tensor;
  const uint64_t ranges = tensor.element_count ? divide_up(row_count(tensor), rows_between_cuts(settings, tensor)) : 1;
  Group group;
  group.draft = draft;
  group.rank_count = static_cast<int>(std::min(ranges, static_cast<uint64_t>(asked)));
  if (group.rank_count < 2) return group;
  group.cost = step_ps(step_work(tensor.rule, tensor.shape, group.rank_count), settings);
  const uint64_t rows = share_rows(settings, tensor, group.rank_count);
  group.bytes = owned_bytes(tensor, {static_cast<int64_t>(rows), tensor.shape[1]},
                            rows * static_cast<uint64_t>(tensor.shape[1]));
  return group;
}

int most_ranks_of_a_node(const Topology &topology) {
  int most = 0;
  for (const Node &node : topology.nodes) most = std::max(most, node.rank_count());
  return most;
}

mxs_status check_co_owners(const mxs_tensor &given, const Draft &draft, const PlanSettings &settings) {
  if (given.co_owners < 2) return MXS_OK;
  const PlannedTensor &tensor = draft.tensor;
  if (tensor.rule != MXS_RULE_MUON)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": co_owners is %d, but only rule muon has a step to share, and it has rule %s",
                     given.name, given.co_owners, rule_name(tensor.rule));
  if (given.dimension_count != 2 || tensor.role != MXS_ROLE_MATRIX || given.block_column_count > 0)
    return set_error(MXS_INVALID_ARGUMENT,
                     "tensor \"%.200s\": co_owners is %d, but only 2 dimensions without blocks can be shared; blocks "
                     "have owners of their own", given.name, given.co_owners);
  if (given.fixed_owner != 0)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": co_owners is %d, but fixed_owner gives all to rank %d",
                     given.name, given.co_owners, given.fixed_owner - 1);
  const int most = most_ranks_of_a_node(*settings.topology);
  if (given.co_owners > most)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": co_owners is %d, but no node has more than %d rank%s",
                     given.name, given.co_owners, most, most == 1 ? "" : "s");
  return MXS_OK;
}

std::vector<int> GroupPlacer::sorted_ranks(int node) const {
  std::vector<int> ranks = topology_.node(node).ranks;
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const Load &x = ledger_.of(a), &y = ledger_.of(b);
    return std::tie(x.cost, x.bytes, a) < std::tie(y.cost, y.bytes, b);
  });
  return ranks;
}

std::tuple<uint64_t, uint64_t, int> GroupPlacer::key(int node) const {
  const Load &last = ledger_.of(sorted_ranks(node)[static_cast<size_t>(rank_count_) - 1]);
  return {last.cost, last.bytes, node};
}

void GroupPlacer::sort_nodes(int rank_count) {
  rank_count_ = rank_count;
  nodes_.clear();
  for (int node = 0; node < topology_.node_count(); ++node)
    if (topology_.node(node).rank_count() >= rank_count) nodes_.insert(key(node));
}

bool GroupPlacer::place(const Group &group, std::vector<int> *ranks) {
  if (group.rank_count != rank_count_) sort_nodes(group.rank_count);
  for (auto entry = nodes_.begin(); entry != nodes_.end(); ++entry) {
    const int node = std::get<2>(*entry);
    std::vector<int> found = sorted_ranks(node);
    std::erase_if(found, [&](int rank) { return !ledger_.fits(rank, group.bytes); });
    if (found.size() < static_cast<size_t>(group.rank_count)) continue;
    found.resize(static_cast<size_t>(group.rank_count));
    std::sort(found.begin(), found.end());
    nodes_.erase(entry);
    for (const int rank : found) ledger_.add(rank, group.cost, group.bytes);
    nodes_.insert(key(node));
    *ranks = std::move(found);
    return true;
  }
  return false;
}

mxs_status own_together(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger,
                        uint64_t *least_bytes) {
  std::vector<int> ranks;
  GroupPlacer asked(*settings.topology, ledger);
  for (const Group &group : asked_groups(settings, drafts)) {
    if (!asked.place(group, &ranks)) return no_room(settings, group, *ledger, least_bytes);
    share_among(settings, ranks, group.draft);
  }
  if (settings.co_owners_max < 2) return MXS_OK;
  GroupPlacer chosen(*settings.topology, ledger);
  for (const Group &group : choose_groups(settings, drafts, *ledger))
    if (chosen.place(group, &ranks)) share_among(settings, ranks, group.draft);
  return MXS_OK;
}

}  // namespace mxs
