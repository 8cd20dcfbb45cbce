// SPDX-License-Identifier: Apache-2.0
// Who owns what: first what is fixed, then flat tensors (even by nature), what ranks share, matrices, and what weighs
// nothing.
//
//   matrices   longest processing time first: sorted by step cost, then bytes; each to the rank with the least cost so
//              far, then the fewest bytes, then the lowest number. Where nothing is fixed and no budget binds, the
//              worst rank's cost is at most 4/3 of the best possible (Graham's bound).
//   light      tails (one item for each unit) and matrices that cost us no step: to the rank with the fewest bytes
//              among those that stay within the worst rank's cost, so that they fill what the matrices left uneven
//
// A rank whose budget would be exceeded is passed over. If the order by cost finds no place for something, all is
// placed once more by bytes alone; only if that fails too, the plan is refused.
#include <algorithm>
#include <cinttypes>
#include <map>
#include <set>
#include <tuple>

#include "base/status.hpp"
#include "plan/ledger.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// Ranks in the order in which they want the next item: by cost, or by bytes.
class Queue {
 public:
  Queue(Ledger *ledger, bool by_bytes) : ledger_(*ledger), by_bytes_(by_bytes) {
    for (int rank = 0; rank < ledger_.rank_count(); ++rank) order_.insert(key(rank));
  }
  // False: it fits nowhere.
  bool give(Item *item) {
    for (auto entry = order_.begin(); entry != order_.end(); ++entry) {
      const int rank = std::get<2>(*entry);
      if (!ledger_.fits(rank, item->bytes)) continue;
      order_.erase(entry);
      ledger_.add(rank, item->cost, item->bytes);
      order_.insert(key(rank));
      item->owner = rank;
      return true;
    }
    return false;
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, int>;
  Key key(int rank) const {
    const Load &load = ledger_.of(rank);
    return by_bytes_ ? Key{load.bytes, load.cost, rank} : Key{load.cost, load.bytes, rank};
  }
  Ledger &ledger_;
  bool by_bytes_;
  std::set<Key> order_;
};

bool give_light(Ledger *ledger, Item *item) {
  int best = -1;
  bool best_is_free = false;
  for (int rank = 0; rank < ledger->rank_count(); ++rank) {
    if (!ledger->fits(rank, item->bytes)) continue;
    const Load &load = ledger->of(rank);
    const bool is_free = saturating_add(load.cost, item->cost) <= ledger->worst_cost();
    bool better = best < 0 || (is_free && !best_is_free);
    if (!better && is_free == best_is_free) {
      const Load &other = ledger->of(best);
      better = is_free ? load.bytes < other.bytes
                       : std::tie(load.cost, load.bytes) < std::tie(other.cost, other.bytes);
    }
    if (!better) continue;
    best = rank;
    best_is_free = is_free;
  }
  if (best < 0) return false;
  ledger->add(best, item->cost, item->bytes);
  item->owner = best;
  return true;
}

// Stable sorts, so that equals keep the caller's order: the same on every machine.
bool place_by_cost(Ledger *ledger, std::vector<Item *> *items) {
  std::stable_sort(items->begin(), items->end(), [](const Item *a, const Item *b) {
    return std::make_tuple(a->light, ~a->cost, ~a->bytes) < std::make_tuple(b->light, ~b->cost, ~b->bytes);
  });
  Queue queue(ledger, false);
  for (Item *item : *items)
    if (!(item->light ? give_light(ledger, item) : queue.give(item))) return false;
  return true;
}

bool place_by_bytes(Ledger *ledger, std::vector<Item *> *items) {
  std::stable_sort(items->begin(), items->end(), [](const Item *a, const Item *b) {
    return std::make_tuple(~a->bytes, ~a->cost) < std::make_tuple(~b->bytes, ~b->cost);
  });
  Queue queue(ledger, true);
  for (Item *item : *items)
    if (!queue.give(item)) return false;
  return true;
}

void load_piece(const PlanSettings &settings, Item *item, const PlannedTensor &tensor, Placement *piece) {
  item->cost = saturating_add(item->cost, piece_cost(settings, tensor, *piece));
  item->bytes += owned_bytes(tensor, piece->shape, piece->element_count);
  item->pieces.push_back(piece);
}

bool is_open(const Draft &draft) {
  return draft.tensor.role != MXS_ROLE_TIED && draft.fixed_owner < 0 && !draft.together;
}

void own_fixed(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger) {
  for (Draft &draft : *drafts)
    for (Placement &piece : draft.pieces) {
      if (draft.fixed_owner < 0) break;
      piece.owner = draft.fixed_owner;
      ledger->add(piece.owner, piece_cost(settings, draft.tensor, piece),
                  owned_bytes(draft.tensor, piece.shape, piece.element_count));
    }
}

// What is still open, as items: matrices and runs of blocks one by one, the tails of a unit together.
std::vector<Item> collect_items(const PlanSettings &settings, std::vector<Draft> *drafts) {
  std::vector<Item> items;
  std::map<int, Item> tails;
  for (Draft &draft : *drafts) {
    if (!is_open(draft) || draft.tensor.role == MXS_ROLE_FLAT) continue;
    if (draft.tensor.role == MXS_ROLE_TAIL) {
      load_piece(settings, &tails[draft.tensor.unit], draft.tensor, &draft.pieces[0]);
      continue;
    }
    for (Placement &piece : draft.pieces) {
      if (draft.begins_run(static_cast<size_t>(piece.block))) items.emplace_back();
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

mxs_status over_budget(const PlanSettings &settings, const Ledger &ledger) {
  uint64_t all_bytes = 0;
  for (int rank = 0; rank < ledger.rank_count(); ++rank) all_bytes += ledger.of(rank).bytes;
  const int worst = ledger.rank_of_most_bytes();
  return set_error(MXS_OVER_BUDGET,
                   "no placement within rank_bytes_max (%" PRIu64 " bytes): balanced by bytes, rank %d would own "
                   "%" PRIu64 " of the %" PRIu64 " bytes on %d ranks; allow more, or use more ranks",
                   settings.rank_bytes_max, worst, ledger.of(worst).bytes, all_bytes, settings.rank_count);
}

}  // namespace

mxs_status choose_owners(const PlanSettings &settings, std::vector<Draft> *drafts) {
  Ledger given(settings.rank_count, settings.rank_bytes_max);
  own_fixed(settings, drafts, &given);
  own_flat(settings, drafts, &given);
  if (const mxs_status status = own_together(settings, drafts, &given); status != MXS_OK) return status;
  const bool given_fits = given.fits(given.rank_of_most_bytes(), 0);

  std::vector<Item> items = collect_items(settings, drafts);
  std::vector<Item *> order;
  for (Item &item : items) order.push_back(&item);
  Ledger ledger = given;
  bool found = given_fits && place_by_cost(&ledger, &order);
  if (!found) {
    ledger = given;
    found = given_fits && place_by_bytes(&ledger, &order);
  }
  if (!found) {
    ledger = given;
    ledger.lift_budget();
    place_by_bytes(&ledger, &order);
    return over_budget(settings, ledger);
  }
  for (const Item &item : items)
    for (Placement *piece : item.pieces) piece->owner = item.owner;
  return MXS_OK;
}

}  // namespace mxs
