// SPDX-License-Identifier: Apache-2.0
// Which matrices had better have co-owners? Only where whole matrices can't be dealt evenly: there are few of them, or
// some are far larger than the rest.
//
//   4 matrices, 16 ranks, whole:  | 100 | 100 | 100 | 100 | 0 | 0 | ... | 0 |
//   each shared by 4:             | 29 | 29 | 29 | ...             29 | 29 |    (the n x n products are done by each)
//
// A bound tells what the worst rank has at the least as long as matrices stay whole. If that is hardly more than the
// mean, nothing is shared. Else some choices are tried, each placed by longest processing time first: the k most
// expensive matrices are shared by as many ranks as it takes to bring a share down to what a share of the most
// expensive one costs among g. The one with the lowest worst rank is taken, if it is clearly below the bound: so
// whatever a search could have done with whole matrices would have been worse.
#include <algorithm>
#include <functional>
#include <optional>
#include <queue>

#include "plan/co_owners.hpp"

namespace mxs {
namespace {

__extension__ using Wide = unsigned __int128;

// Matrices and blocks that one rank steps.
struct Whole {
  uint64_t cost = 0, bytes = 0;
  Draft *sharable = nullptr;
};

struct Choice {
  std::vector<Group> groups;
  std::vector<const Whole *> rest;
  uint64_t worst_cost = UINT64_MAX;
};

// 1/64: an exchange in every step isn't worth less than 1.6%.
uint64_t clearly_below(uint64_t cost) { return cost - cost / 64; }

// Bounds the time of choosing: so many matrices and ranks are looked at, about 0.3 s.
constexpr uint64_t looks_max = uint64_t{1} << 20;
constexpr uint64_t depth_count_max = 32;
constexpr size_t full_ranks_max = 256;  // that one matrix passes over, until the budget is taken to bind too much

bool may_be_shared(const Draft &draft) {
  return draft.tensor.role == MXS_ROLE_MATRIX && draft.tensor.rule == MXS_RULE_MUON && draft.tensor.co_owners == 0 &&
         draft.tensor.block_columns.empty();
}

// The most expensive first. What costs no step doesn't matter here.
std::vector<Whole> list_wholes(const PlanSettings &settings, std::vector<Draft> *drafts) {
  std::vector<Whole> wholes;
  for (Draft &draft : *drafts) {
    const mxs_role role = draft.tensor.role;
    if ((role != MXS_ROLE_MATRIX && role != MXS_ROLE_BLOCKS) || draft.fixed_owner >= 0 || draft.together) continue;
    for (size_t number = 0; number < draft.pieces.size(); ++number) {
      const Placement &piece = draft.pieces[number];
      if (draft.begins_run(number)) wholes.emplace_back();
      Whole &whole = wholes.back();
      whole.cost = saturating_add(whole.cost, piece_cost(settings, draft.tensor, piece));
      whole.bytes += owned_bytes(draft.tensor, piece.shape, piece.element_count);
      if (may_be_shared(draft)) whole.sharable = &draft;
    }
  }
  std::erase_if(wholes, [](const Whole &whole) { return whole.cost == 0; });
  std::stable_sort(wholes.begin(), wholes.end(), [](const Whole &a, const Whole &b) { return a.cost > b.cost; });
  return wholes;
}

uint64_t mean_cost(const std::vector<Whole> &wholes, const Ledger &ledger) {
  Wide sum = 0;
  for (const Whole &whole : wholes) sum += whole.cost;
  for (int rank = 0; rank < ledger.rank_count(); ++rank) sum += ledger.of(rank).cost;
  return static_cast<uint64_t>(sum / static_cast<Wide>(ledger.rank_count()));
}

// Of the first j * ranks + 1 some rank has j + 1, which cost no less than the cheapest j + 1 of them.
uint64_t bound_of_wholes(const std::vector<Whole> &wholes, const Ledger &ledger) {
  uint64_t bound = std::max(ledger.worst_cost(), mean_cost(wholes, ledger));
  const size_t rank_count = static_cast<size_t>(ledger.rank_count());
  for (size_t last = 0; last < wholes.size(); last += rank_count) {
    uint64_t cost = 0;
    for (size_t back = 0; back <= last / rank_count; ++back) cost = saturating_add(cost, wholes[last - back].cost);
    bound = std::max(bound, cost);
  }
  return bound;
}

// Groups of 2 to co_owners_max ranks; from 8 on only powers of two, and the most.
std::vector<int> group_sizes(const PlanSettings &settings) {
  const int most = std::min(settings.co_owners_max, most_ranks_of_a_node(*settings.topology));
  std::vector<int> sizes;
  for (int size = 2; size <= most; size += size < 8 ? 1 : size) sizes.push_back(size);
  if (!sizes.empty() && sizes.back() < most) sizes.push_back(most);
  return sizes;
}

// As a group of so many; none if rows would be cut unevenly, since all wait for the largest share.
std::optional<Group> even_group(const PlanSettings &settings, const Whole &whole, int size) {
  if (!whole.sharable) return {};
  const Group group = make_group(settings, whole.sharable, size);
  const PlannedTensor &tensor = whole.sharable->tensor;
  if (group.rank_count < size || group.cost >= whole.cost) return {};
  const uint64_t rows = static_cast<uint64_t>(tensor.shape[0]), parts = static_cast<uint64_t>(size);
  const uint64_t even_rows = divide_up(rows, parts);
  if (share_rows(settings, tensor, size) > even_rows + even_rows / 8) return {};
  return group;
}

// The smallest group whose shares cost no more than `cost`; else the one with the cheapest shares.
std::optional<Group> group_within(const PlanSettings &settings, const Whole &whole, const std::vector<int> &sizes,
                                  uint64_t cost) {
  std::optional<Group> best;
  for (const int size : sizes) {
    const std::optional<Group> group = even_group(settings, whole, size);
    if (!group || (best && group->cost >= best->cost)) continue;
    best = group;
    if (best->cost <= cost) break;
  }
  return best;
}

// What the worst rank has once groups and the rest are placed. UINT64_MAX: the budget doesn't allow it.
uint64_t worst_of(const PlanSettings &settings, const Choice &choice, Ledger ledger) {
  GroupPlacer placer(*settings.topology, &ledger);
  std::vector<int> ranks;
  for (const Group &group : choice.groups)
    if (!placer.place(group, &ranks)) return UINT64_MAX;
  using Key = std::tuple<uint64_t, uint64_t, int>;
  std::priority_queue<Key, std::vector<Key>, std::greater<>> queue;
  const auto push = [&](int rank) { queue.push({ledger.of(rank).cost, ledger.of(rank).bytes, rank}); };
  for (int rank = 0; rank < ledger.rank_count(); ++rank) push(rank);
  for (const Whole *whole : choice.rest) {
    std::vector<int> full;
    while (!queue.empty() && !ledger.fits(std::get<2>(queue.top()), whole->bytes)) {
      if (full.size() == full_ranks_max) return UINT64_MAX;
      full.push_back(std::get<2>(queue.top()));
      queue.pop();
    }
    if (queue.empty()) return UINT64_MAX;
    const int rank = std::get<2>(queue.top());
    queue.pop();
    ledger.add(rank, whole->cost, whole->bytes);
    push(rank);
    for (const int other : full) push(other);
  }
  return ledger.worst_cost();
}

// The `depth` most expensive are shared, as far as they cost more than `cost`.
Choice share_first(const PlanSettings &settings, const std::vector<Whole> &wholes, const std::vector<int> &sizes,
                   size_t depth, uint64_t cost) {
  Choice choice;
  for (size_t index = 0; index < wholes.size(); ++index) {
    std::optional<Group> group;
    if (index < depth && wholes[index].cost > cost) group = group_within(settings, wholes[index], sizes, cost);
    if (group)
      choice.groups.push_back(*group);
    else
      choice.rest.push_back(&wholes[index]);
  }
  std::stable_sort(choice.groups.begin(), choice.groups.end(), [](const Group &a, const Group &b) {
    return std::tie(a.rank_count, a.cost) > std::tie(b.rank_count, b.cost);
  });
  return choice;
}

// How many of the most expensive are shared: evenly spread counts, and what is left over when each rank has as many.
std::vector<size_t> depths(size_t whole_count, size_t rank_count, size_t size_count) {
  const size_t most = std::min(whole_count, 2 * rank_count);
  const uint64_t count =
      std::clamp<uint64_t>(looks_max / ((whole_count + rank_count) * size_count), 1, depth_count_max);
  std::set<size_t> found = {most};
  const size_t step = divide_up(most, count);
  for (size_t depth = step; depth < most; depth += step) found.insert(depth);
  if (whole_count % rank_count != 0) found.insert(whole_count % rank_count);
  return {found.begin(), found.end()};
}

}  // namespace

std::vector<Group> choose_groups(const PlanSettings &settings, std::vector<Draft> *drafts, const Ledger &ledger) {
  const std::vector<Whole> wholes = list_wholes(settings, drafts);
  const std::vector<int> sizes = group_sizes(settings);
  const uint64_t bound = bound_of_wholes(wholes, ledger);
  if (wholes.empty() || sizes.empty() || mean_cost(wholes, ledger) >= clearly_below(bound)) return {};
  const auto first = std::find_if(wholes.begin(), wholes.end(), [](const Whole &whole) { return whole.sharable; });
  if (first == wholes.end()) return {};

  Choice best;
  for (const int size : sizes) {
    const std::optional<Group> group = even_group(settings, *first, size);
    if (!group) continue;
    for (const size_t depth : depths(wholes.size(), static_cast<size_t>(ledger.rank_count()), sizes.size())) {
      Choice choice = share_first(settings, wholes, sizes, depth, group->cost);
      choice.worst_cost = worst_of(settings, choice, ledger);
      if (choice.worst_cost < best.worst_cost) best = std::move(choice);
    }
  }
  return best.worst_cost < clearly_below(bound) ? best.groups : std::vector<Group>();
}

}  // namespace mxs
