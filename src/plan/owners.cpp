// SPDX-License-Identifier: Apache-2.0
// Who owns what: first what is fixed, then flat tensors (even by nature) and what ranks share, then all else by longest
// processing time and a search; ledger.hpp names the steps.
//
// rank_bytes_max binds everything. If the order by cost finds no place for something, all is placed once more by bytes
// alone; if that fails too, the search makes the worst rank's bytes as small as it can, without a budget. What it
// reaches is either within the budget, or the smallest budget that works, which the refusal tells.
#include <algorithm>
#include <cinttypes>
#include <map>

#include "base/status.hpp"
#include "plan/bounds.hpp"
#include "plan/ledger.hpp"
#include "plan/memory.hpp"
#include "plan/previous.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

void load_piece(const PlanSettings &settings, Item *item, const PlannedTensor &tensor, Placement *piece) {
  item->cost = saturating_add(item->cost, piece_cost(settings, tensor, *piece));
  item->bytes += owned_bytes(tensor, piece->shape, piece->element_count);
  item->weight += weight_bytes(tensor, piece->element_count);
  item->unit = tensor.unit;
  item->owner = piece->owner;
  item->pieces.push_back(piece);
}

bool is_open(const Draft &draft) {
  return draft.fixed_owner < 0 && draft.tensor.role != MXS_ROLE_TIED && draft.tensor.role != MXS_ROLE_FLAT;
}

std::vector<uint64_t> sizes_of(uint64_t Item::*field, const std::vector<Item *> &items) {
  std::vector<uint64_t> sizes;
  sizes.reserve(items.size());
  for (const Item *item : items) sizes.push_back(item->*field);
  return sizes;
}

std::vector<uint64_t> loads_of(uint64_t Load::*field, const Ledger &ledger) {
  std::vector<uint64_t> loads;
  loads.reserve(ledger.loads().size());
  for (const Load &load : ledger.loads()) loads.push_back(load.*field);
  return loads;
}

Ledger with_items(const Ledger &given, const std::vector<Item *> &items) {
  Ledger ledger = given;
  for (const Item *item : items) ledger.add(item->owner, item->cost, item->bytes);
  return ledger;
}

SearchGoal goal_of(const PlanSettings &settings, const std::vector<Item *> &items, const Ledger &given) {
  const Ledger ledger = with_items(given, items);
  SearchGoal goal;
  goal.cost_bound = load_bound(sizes_of(&Item::cost, items), loads_of(&Load::cost, given), ledger.worst_cost());
  goal.bytes_bound = load_bound(sizes_of(&Item::bytes, items), loads_of(&Load::bytes, given), ledger.worst_bytes());
  goal.cost_weight = settings.step_weight;
  goal.bytes_weight = settings.bytes_weight;
  goal.budget = settings.rank_bytes_max;
  goal.moves_max = settings.search_moves_max / 2;  // the other half is for units
  return goal;
}

// As few bytes on the worst rank as can be found, whatever the budget; tells them.
uint64_t place_for_least_bytes(const PlanSettings &settings, const std::vector<Item *> &items, Ledger given) {
  given.set_budget(0);
  Ledger ledger = given;
  start_by_bytes(items, &ledger);
  SearchGoal goal = goal_of(settings, items, given);
  goal.cost_weight = goal.budget = 0;
  search_loads(goal, items, given);
  return with_items(given, items).worst_bytes();
}

// The tensor with the most bytes that only one rank can have.
const Item *largest_item(const std::vector<Item *> &items) {
  const auto less = [](const Item *a, const Item *b) { return a->bytes < b->bytes; };
  const auto largest = std::max_element(items.begin(), items.end(), less);
  return largest == items.end() ? nullptr : *largest;
}

const std::string &name_of(const std::vector<Draft> &drafts, const Item &item) {
  for (const Draft &draft : drafts)
    for (const Placement &piece : draft.pieces)
      if (&piece == item.pieces.front()) return draft.tensor.name;
  return drafts.front().tensor.name;
}

// Of the tensors that a rank has beforehand, the one with the most bytes there.
const std::string &largest_given(const std::vector<Draft> &drafts, int rank) {
  const std::string *name = &drafts.front().tensor.name;
  uint64_t most = 0;
  for (const Draft &draft : drafts) {
    uint64_t bytes = 0;
    for (const Placement &piece : draft.pieces)
      if (piece.owner == rank) bytes += owned_bytes(draft.tensor, piece.shape, piece.element_count);
    if (bytes <= most) continue;
    most = bytes;
    name = &draft.tensor.name;
  }
  return *name;
}

mxs_status over_budget(const PlanSettings &settings, const std::vector<Draft> &drafts,
                       const std::vector<Item *> &items, const Ledger &given, uint64_t least_bytes) {
  const uint64_t budget = settings.rank_bytes_max;
  const int fullest = given.rank_of_most_bytes();
  if (given.worst_bytes() > budget)
    return set_error(MXS_OVER_BUDGET,
                     "rank_bytes_max is %" PRIu64 " bytes, but rank %d has %" PRIu64 " by fixed owners, flat shares "
                     "and shared matrices alone, most of them of tensor \"%.200s\"; the smallest that works is "
                     "%" PRIu64,
                     budget, fullest, given.worst_bytes(), largest_given(drafts, fullest).c_str(), least_bytes);
  const Item *largest = largest_item(items);
  if (largest && largest->bytes > budget)
    return set_error(MXS_OVER_BUDGET,
                     "rank_bytes_max is %" PRIu64 " bytes, but tensor \"%.200s\" has %" PRIu64 " that one rank must "
                     "own (weights, masters, gradient sums and state); the smallest that works is %" PRIu64,
                     budget, name_of(drafts, *largest).c_str(), largest->bytes, least_bytes);
  const Ledger ledger = with_items(given, items);
  uint64_t all_bytes = 0;
  for (const Load &load : ledger.loads()) all_bytes += load.bytes;
  return set_error(MXS_OVER_BUDGET,
                   "no placement of %" PRIu64 " bytes on %d ranks within rank_bytes_max (%" PRIu64 " bytes each) was "
                   "found; the smallest that works is %" PRIu64 "; allow as much, or use more ranks",
                   all_bytes, settings.rank_count, budget, least_bytes);
}

// By cost if that keeps the budget, else by bytes. False: neither does. *worst_bytes: of what was found.
bool start_within(uint64_t budget, const std::vector<Item *> &items, const Ledger &given, uint64_t *worst_bytes) {
  Ledger by_cost = given, by_bytes = given;
  by_cost.set_budget(budget);
  by_bytes.set_budget(budget);
  if (!by_cost.fits(given.rank_of_most_bytes(), 0)) return false;
  const bool is_by_cost = start_by_cost(items, &by_cost);
  if (!is_by_cost && !start_by_bytes(items, &by_bytes)) return false;
  *worst_bytes = (is_by_cost ? by_cost : by_bytes).worst_bytes();
  return true;
}

// Now and then the order by cost keeps a budget that is smaller than what the search by bytes has reached.
constexpr int lower_budget_tries = 16;

uint64_t try_lower_budgets(uint64_t least_bytes, const std::vector<Item *> &items, const Ledger &given) {
  uint64_t reached = 0, unused = 0;
  for (int turn = 0; turn < lower_budget_tries && start_within(least_bytes - 1, items, given, &reached); ++turn)
    least_bytes = start_within(reached, items, given, &unused) ? reached : least_bytes - 1;
  return least_bytes;
}

// False: nothing within the budget was found; *least_bytes tells what would have to be allowed.
bool find_start(const PlanSettings &settings, const std::vector<Item *> &items, const Ledger &given,
                uint64_t *least_bytes) {
  if (start_within(settings.rank_bytes_max, items, given, least_bytes)) return true;
  *least_bytes = place_for_least_bytes(settings, items, given);
  if (*least_bytes <= settings.rank_bytes_max) return true;
  *least_bytes = try_lower_budgets(*least_bytes, items, given);
  return false;
}

// From the owners of the previous plan, who give up only what it takes to come near to the plan that was just found
// without them: 1/32 more of the worst rank is not worth a move. Then what moves anyhow is spread.
void keep_previous(const PlanSettings &settings, std::vector<Draft> *drafts, const std::vector<UnitBound> &bounds,
                   const std::vector<Item *> &items, const Ledger &given) {
  const Ledger fresh = with_items(given, items);
  SearchGoal goal = goal_of(settings, items, given);
  goal.cost_bound = std::max(goal.cost_bound, saturating_add(fresh.worst_cost(), fresh.worst_cost() / 32));
  goal.bytes_bound = std::max(goal.bytes_bound, fresh.worst_bytes() + fresh.worst_bytes() / 32);
  std::vector<int> owners;
  for (const Item *item : items) owners.push_back(item->owner);
  note_previous(settings, drafts, items);
  if (!start_from_previous(items, given)) {
    for (size_t index = 0; index < items.size(); ++index) items[index]->owner = owners[index];
    return;
  }
  search_loads(goal, items, given);
  std::vector<Item *> moved;
  for (Item *item : items) {
    if (item->owner != item->previous_owner) moved.push_back(item);
    else for (Placement *piece : item->pieces) piece->owner = item->owner;
  }
  spread_units(settings, *drafts, bounds, moved, with_items(given, items), settings.search_moves_max / 2);
}

}  // namespace

void own_fixed(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger) {
  for (Draft &draft : *drafts)
    for (Placement &piece : draft.pieces) {
      if (draft.fixed_owner < 0) break;
      piece.owner = draft.fixed_owner;
      ledger->add(piece.owner, piece_cost(settings, draft.tensor, piece),
                  owned_bytes(draft.tensor, piece.shape, piece.element_count));
    }
}

std::vector<Item> collect_items(const PlanSettings &settings, std::vector<Draft> *drafts, Collect which) {
  std::vector<Item> items;
  std::map<int, Item> tails;
  for (Draft &draft : *drafts) {
    if (!is_open(draft)) continue;
    if (which == Collect::open && draft.together) continue;
    if (draft.tensor.role == MXS_ROLE_TAIL) {
      load_piece(settings, &tails[draft.tensor.unit], draft.tensor, &draft.pieces[0]);
      continue;
    }
    for (Placement &piece : draft.pieces) {
      if (draft.together || draft.begins_run(static_cast<size_t>(piece.block))) items.emplace_back();
      load_piece(settings, &items.back(), draft.tensor, &piece);
    }
  }
  for (Item &item : items) item.light = item.cost == 0;
  for (auto &[unit, item] : tails) {
    item.light = true;
    items.push_back(std::move(item));
  }
  return items;
}

namespace {

// Start and search, on ranks that are numbered across nodes. *least_bytes: as own_all has it.
mxs_status choose_loads(const PlanSettings &settings, const std::vector<Draft> &drafts,
                        const std::vector<Item *> &items, const Ledger &given, uint64_t *least_bytes) {
  const std::vector<int> ranks = ranks_across_nodes(*settings.topology);
  Ledger numbered(settings.rank_count, settings.rank_bytes_max);
  for (int place = 0; place < settings.rank_count; ++place) {
    const Load &load = given.of(ranks[static_cast<size_t>(place)]);
    numbered.add(place, load.cost, load.bytes);
  }
  if (!find_start(settings, items, numbered, least_bytes))
    return over_budget(settings, drafts, items, given, *least_bytes);
  search_loads(goal_of(settings, items, numbered), items, numbered);
  for (Item *item : items) item->owner = ranks[static_cast<size_t>(item->owner)];
  return MXS_OK;
}

// *least_bytes: if the budget is refused, one that at least would be needed.
mxs_status own_all(const PlanSettings &settings, std::vector<Draft> *drafts, uint64_t *least_bytes) {
  Ledger given(settings.rank_count, settings.rank_bytes_max);
  own_fixed(settings, drafts, &given);
  own_flat(settings, drafts, &given);
  if (const mxs_status status = own_together(settings, drafts, &given, least_bytes); status != MXS_OK) return status;

  std::vector<Item> collected = collect_items(settings, drafts, Collect::open);
  std::vector<Item *> items;
  items.reserve(collected.size());
  for (Item &item : collected) items.push_back(&item);
  const mxs_status status = choose_loads(settings, *drafts, items, given, least_bytes);
  if (status != MXS_OK) return status;
  const std::vector<UnitBound> bounds = unit_bounds(settings, *drafts, collected);
  spread_units(settings, *drafts, bounds, items, with_items(given, items), settings.search_moves_max / 2);
  if (settings.previous) keep_previous(settings, drafts, bounds, items, given);
  for (const Item *item : items)
    for (Placement *piece : item->pieces) piece->owner = item->owner;
  return MXS_OK;
}

bool asks_for_co_owners(const std::vector<Draft> &drafts) {
  return std::any_of(drafts.begin(), drafts.end(), [](const Draft &draft) { return draft.tensor.co_owners > 1; });
}

// Where co-owners go depends on the budget, and what is left for the rest on them: so the budget that works is found by
// planning with what each refusal says is needed at the least. Few steps lead there, since each is a bound.
mxs_status refuse(PlanSettings settings, const std::vector<Draft> &drafts, uint64_t least_bytes) {
  const std::string refusal = last_error_text();
  mxs_status status = MXS_OVER_BUDGET;
  while (status == MXS_OVER_BUDGET && least_bytes > settings.rank_bytes_max) {
    settings.rank_bytes_max = least_bytes;
    std::vector<Draft> tried = drafts;
    status = own_all(settings, &tried, &least_bytes);
  }
  if (status != MXS_OK) return set_error(MXS_OVER_BUDGET, "%s", refusal.c_str());
  return set_error(MXS_OVER_BUDGET, "%s; the smallest that works is %" PRIu64,
                   refusal.substr(0, refusal.find("; the smallest that works is ")).c_str(), settings.rank_bytes_max);
}

}  // namespace

mxs_status choose_owners(const PlanSettings &settings, std::vector<Draft> *drafts) {
  uint64_t least_bytes = 0;
  if (settings.rank_bytes_max == 0 || !asks_for_co_owners(*drafts)) return own_all(settings, drafts, &least_bytes);
  const std::vector<Draft> kept = *drafts;
  const mxs_status status = own_all(settings, drafts, &least_bytes);
  return status == MXS_OVER_BUDGET ? refuse(settings, kept, least_bytes) : status;
}

}  // namespace mxs
