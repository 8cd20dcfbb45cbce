// SPDX-License-Identifier: Apache-2.0
// Where the search starts: longest processing time first.
//
//   by cost    the most expensive first; each to the rank with the least cost so far, then the fewest bytes, then the
//              lowest number. Where nothing is fixed and no budget binds, the worst rank's cost is at most 4/3 of the
//              best possible (Graham's bound). Light items last: to the rank with the fewest bytes among those that
//              stay within the worst rank's cost, so that they fill what the matrices left uneven.
//   by bytes   the same by owned bytes, for budgets that the first can't keep
//
// A rank whose budget would be exceeded is passed over. Where the first 256 in the order are passed over, the rank with
// the fewest bytes gets it: so 100,000 items on 4,096 ranks that are full already are placed in no time.
#include <set>
#include <tuple>

#include "plan/ledger.hpp"

namespace mxs {
namespace {

// Ranks by cost and by bytes, least first.
class Queues {
 public:
  explicit Queues(Ledger *ledger) : ledger_(*ledger) {
    for (int rank = 0; rank < ledger_.rank_count(); ++rank) insert(rank);
  }

  // Each gives the item to a rank, or says false: it fits nowhere.
  bool give_by_cost(Item *item) {
    const int rank = first(by_cost_, *item, UINT64_MAX);
    return rank < 0 ? give_by_bytes(item) : give(rank, item);
  }
  bool give_by_bytes(Item *item) { return give(first(by_bytes_, *item, UINT64_MAX), item); }
  bool give_light(Item *item) {
    const int rank = first(by_bytes_, *item, ledger_.worst_cost());
    return rank < 0 ? give_by_cost(item) : give(rank, item);
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, int>;
  static constexpr size_t look_max = 256;

  int first(const std::set<Key> &order, const Item &item, uint64_t cost_max) const {
    size_t look_count = look_max;
    for (auto entry = order.begin(); entry != order.end() && look_count > 0; ++entry, --look_count) {
      const int rank = std::get<2>(*entry);
      if (ledger_.fits(rank, item.bytes) && saturating_add(ledger_.of(rank).cost, item.cost) <= cost_max) return rank;
    }
    return -1;
  }

  bool give(int rank, Item *item) {
    if (rank < 0) return false;
    remove(rank);
    ledger_.add(rank, item->cost, item->bytes);
    item->owner = rank;
    insert(rank);
    return true;
  }

  void insert(int rank) {
    const Load &load = ledger_.of(rank);
    by_cost_.insert({load.cost, load.bytes, rank});
    by_bytes_.insert({load.bytes, load.cost, rank});
  }
  void remove(int rank) {
    const Load &load = ledger_.of(rank);
    by_cost_.erase({load.cost, load.bytes, rank});
    by_bytes_.erase({load.bytes, load.cost, rank});
  }

  Ledger &ledger_;
  std::set<Key> by_cost_, by_bytes_;
};

}  // namespace

std::vector<int> ranks_across_nodes(const Topology &topology) {
  std::vector<int> ranks(topology.ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = static_cast<int>(rank);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const RankPlace &x = topology.ranks[static_cast<size_t>(a)], &y = topology.ranks[static_cast<size_t>(b)];
    return std::tie(x.local_rank, x.node) < std::tie(y.local_rank, y.node);
  });
  return ranks;
}

// Stable sorts, so that equals keep the caller's order: the same on every machine.
bool start_by_cost(std::vector<Item *> items, Ledger *ledger) {
  std::stable_sort(items.begin(), items.end(), [](const Item *a, const Item *b) {
    return std::make_tuple(a->light, ~a->cost, ~a->bytes) < std::make_tuple(b->light, ~b->cost, ~b->bytes);
  });
  Queues queues(ledger);
  for (Item *item : items)
    if (!(item->light ? queues.give_light(item) : queues.give_by_cost(item))) return false;
  return true;
}

bool start_by_bytes(std::vector<Item *> items, Ledger *ledger) {
  std::stable_sort(items.begin(), items.end(), [](const Item *a, const Item *b) {
    return std::make_tuple(~a->bytes, ~a->cost) < std::make_tuple(~b->bytes, ~b->cost);
  });
  Queues queues(ledger);
  for (Item *item : items)
    if (!queues.give_by_bytes(item)) return false;
  return true;
}

}  // namespace mxs
