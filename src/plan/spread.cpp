// SPDX-License-Identifier: Apache-2.0
// Spreads each unit over ranks and nodes, so that no gather waits for one of them. What ranks carry in all stays as the
// search on loads left it.
//
//   deal   Items of equal cost, bytes and weight are like: any of them will do where one is. Unit by unit, the heaviest
//          first, each goes to a rank that is still to get one of its kind: the one that is left least above the unit's
//          bounds, then whose node, rail and itself have least of the unit, then that is to get the most.
//   swap   Units that are above their bounds (badness: the squares of the excess of ranks and nodes, as in search.cpp):
//          an item on a rank or node with too much changes places with a like one of another unit, or an unlike one, or
//          goes to another rank by itself, if that keeps loads within the limits.
//
// Limits: the worst step time and bytes that there are, and a tenth of egress_weight / step_weight (bytes_weight) more:
// by default 0.1 % of the step and 1 % of the bytes.
#include <array>
#include <compare>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/arithmetic.hpp"
#include "plan/excess.hpp"
#include "plan/ledger.hpp"

namespace mxs {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr size_t look_max = 512;   // ranks looked at for one item of the deal
constexpr size_t tries_max = 512;  // partners tried for one item of a swap, of like ones, unlike ones and ranks each
constexpr size_t stride = 7919;    // from one to the next: a prime, so that they are of many units

// What of a unit lies with ranks beforehand.
struct Given {
  int unit, rank;
  uint64_t bytes;
};

// Of one unit: where its bytes are. Tables of all ranks, cleaned when another unit comes.
class UnitLoad {
 public:
  explicit UnitLoad(const Topology &topology)
      : topology_(topology), first_rail_(topology.nodes.size()), of_rank_(topology.ranks.size()),
        of_node_(topology.nodes.size()) {
    size_t rail_count = 0;
    for (size_t node = 0; node < first_rail_.size(); ++node) {
      first_rail_[node] = rail_count;
      rail_count += topology.nodes[node].rails.size();
    }
    of_rail_.resize(rail_count);
  }

  void begin(const UnitBound &bound) {
    for (const int rank : touched_) {
      of_rank_[index(rank)] = of_rail_[rail(rank)] = 0;
      of_node_[index(topology_.node_of(rank))] = 0;
    }
    touched_.clear();
    rank_excess_ = Excess(bound.rank);
    nic_excess_ = Excess(bound.nic);
  }

  void add(int rank, uint64_t bytes) {
    touched_.push_back(rank);
    of_rank_[index(rank)] += bytes;
    of_rail_[rail(rank)] += bytes;
    of_node_[index(topology_.node_of(rank))] += bytes;
  }
  void take(int rank, uint64_t bytes) {
    of_rank_[index(rank)] -= bytes;
    of_rail_[rail(rank)] -= bytes;
    of_node_[index(topology_.node_of(rank))] -= bytes;
  }

  uint64_t rank(int rank) const { return of_rank_[index(rank)]; }
  uint64_t node(int node) const { return of_node_[index(node)]; }
  uint64_t rail_of(int rank) const { return of_rail_[rail(rank)]; }
  uint64_t nic(int node, uint64_t bytes) const { return divide_up(bytes, topology_.node(node).rails.size()); }
  uint64_t rank_excess(uint64_t bytes) const { return rank_excess_.of(bytes); }
  uint64_t nic_excess(int node, uint64_t bytes) const {
    return topology_.node_count() == 1 ? 0 : nic_excess_.of(nic(node, bytes));
  }

 private:
  static size_t index(int number) { return static_cast<size_t>(number); }
  size_t rail(int rank) const {
    const RankPlace &place = topology_.ranks[index(rank)];
    return first_rail_[index(place.node)] + index(place.rail);
  }

  const Topology &topology_;
  std::vector<size_t> first_rail_;
  std::vector<uint64_t> of_rank_, of_node_, of_rail_;
  std::vector<int> touched_;
  Excess rank_excess_{1}, nic_excess_{1};
};

using Kind = std::tuple<uint64_t, uint64_t, uint64_t>;

Kind kind_of(const Item &item) { return {item.cost, item.bytes, item.weight}; }

// A rank that is to get so many of a kind, and where it stands among those that get as many.
struct Seat {
  int minus_count, place, rank;
  auto operator<=>(const Seat &) const = default;
};

class Spread {
 public:
  Spread(const PlanSettings &settings, const std::vector<UnitBound> &bounds, std::vector<Given> given,
         const std::vector<Item *> &items, const Ledger &ledger)
      : settings_(settings), topology_(*settings.topology), bounds_(bounds), given_(std::move(given)), items_(items),
        loads_(ledger.loads()), current_(topology_) {
    std::stable_sort(given_.begin(), given_.end(), [](const Given &a, const Given &b) { return a.unit < b.unit; });
    std::stable_sort(items_.begin(), items_.end(), [](const Item *a, const Item *b) {
      return std::make_tuple(a->unit, ~a->weight) < std::make_tuple(b->unit, ~b->weight);
    });
    for (size_t place = 0; place < items_.size(); ++place)
      if (place == 0 || items_[place]->unit != items_[place - 1]->unit) unit_starts_.push_back(place);
    unit_starts_.push_back(items_.size());
    cost_limit_ = limit(ledger.worst_cost(), settings.step_weight);
    bytes_limit_ = limit(ledger.worst_bytes(), settings.bytes_weight);
    if (settings.rank_bytes_max != 0) bytes_limit_ = std::min(bytes_limit_, settings.rank_bytes_max);
  }

  void deal() {
    for (const Item *item : items_) ++wanted_[kind_of(*item)][item->owner];
    const std::vector<int> order = ranks_across_nodes(topology_);
    std::vector<int> places(order.size());
    for (size_t place = 0; place < order.size(); ++place)
      places[static_cast<size_t>(order[place])] = static_cast<int>(place);
    for (auto &[kind, counts] : wanted_)
      for (const auto &[rank, count] : counts)
        open_[kind].insert({-count, places[static_cast<size_t>(rank)], rank});
    for_each_unit([&](size_t first, size_t last) {
      for (size_t place = first; place < last; ++place) items_[place]->owner = -1;
      begin_unit(items_[first]->unit, first, first);
      for (size_t place = first; place < last; ++place) give(items_[place]);
    });
  }

  void swap(uint64_t moves_max) {
    moves_max_ = moves_max;
    collect_loads();
    for (size_t place = 0; place < items_.size(); ++place) like_[kind_of(*items_[place])].push_back(place);
    bool improved = true;
    while (improved && evaluated_ < moves_max_) {
      improved = false;
      for (const size_t number : worst_first())
        if (evaluated_ < moves_max_ && improve_unit(unit_starts_[number], unit_starts_[number + 1])) improved = true;
    }
  }

 private:
  // Units above their bounds, so that the worst ones get what moves there are.
  std::vector<size_t> worst_first() const {
    std::vector<size_t> numbers;
    const auto badness = [this](size_t number) {
      return badness_[static_cast<size_t>(items_[unit_starts_[number]]->unit)];
    };
    for (size_t number = 0; number + 1 < unit_starts_.size(); ++number)
      if (badness(number) != 0) numbers.push_back(number);
    std::stable_sort(numbers.begin(), numbers.end(), [&](size_t a, size_t b) { return badness(a) > badness(b); });
    return numbers;
  }

  static uint64_t limit(uint64_t worst, uint32_t weight, uint32_t egress_weight) {
    const Wide more = Wide{worst} * egress_weight / (Wide{10} * weight);
    return saturating_add(worst, static_cast<uint64_t>(std::min<Wide>(more, worst)));
  }
  uint64_t limit(uint64_t worst, uint32_t weight) const { return limit(worst, weight, settings_.egress_weight); }

  template <class Body>
  void for_each_unit(const Body &body) {
    for (size_t number = 0; number + 1 < unit_starts_.size(); ++number)
      body(unit_starts_[number], unit_starts_[number + 1]);
  }

  // The table of a unit, with what is given and the items of some places.
  void begin_unit(int unit, size_t first, size_t last) {
    current_unit_ = unit;
    current_.begin(bounds_[static_cast<size_t>(unit)]);
    const auto less = [](const Given &given, int wanted) { return given.unit < wanted; };
    for (auto given = std::lower_bound(given_.begin(), given_.end(), unit, less);
         given != given_.end() && given->unit == unit; ++given)
      current_.add(given->rank, given->bytes);
    for (size_t place = first; place < last; ++place) current_.add(items_[place]->owner, items_[place]->weight);
  }

  // ---- deal ----

  using Rating = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;
  Rating rate(int rank, uint64_t weight) const {
    const int node = topology_.node_of(rank);
    const uint64_t of_rank = current_.rank(rank) + weight, of_node = current_.node(node) + weight;
    if (topology_.node_count() == 1) return {current_.rank_excess(of_rank), 0, current_.rail_of(rank), of_rank};
    return {current_.rank_excess(of_rank) + current_.nic_excess(node, of_node), current_.nic(node, of_node),
            current_.rail_of(rank), of_rank};
  }

  void give(Item *item) {
    std::set<Seat> &open = open_[kind_of(*item)];
    auto best = open.begin();
    Rating best_rating = rate(best->rank, item->weight);
    size_t looks = 0;
    for (auto entry = open.begin(); entry != open.end() && looks < look_max; ++entry, ++looks) {
      const Rating rating = rate(entry->rank, item->weight);
      if (rating < best_rating) best = entry, best_rating = rating;
      const bool is_best_possible = std::get<0>(best_rating) == 0 && std::get<3>(best_rating) == item->weight &&
                                    current_.node(topology_.node_of(best->rank)) == 0;
      if (is_best_possible) break;
    }
    const Seat seat = *best;
    open.erase(best);
    if (seat.minus_count != -1) open.insert({seat.minus_count + 1, seat.place, seat.rank});
    item->owner = seat.rank;
    current_.add(seat.rank, item->weight);
  }

  // ---- swap ----

  static uint64_t key(int unit, int place) {
    return static_cast<uint64_t>(unit) << 32 | static_cast<uint32_t>(place);
  }
  uint64_t rank_bytes(int unit, int rank) const { return find(rank_bytes_, key(unit, rank)); }
  uint64_t node_bytes(int unit, int node) const { return find(node_bytes_, key(unit, node)); }
  static uint64_t find(const std::unordered_map<uint64_t, uint64_t> &table, uint64_t key) {
    const auto entry = table.find(key);
    return entry == table.end() ? 0 : entry->second;
  }

  void add(int unit, int rank, uint64_t bytes) {
    rank_bytes_[key(unit, rank)] += bytes;
    node_bytes_[key(unit, topology_.node_of(rank))] += bytes;
  }
  void take(int unit, int rank, uint64_t bytes) {
    rank_bytes_[key(unit, rank)] -= bytes;
    node_bytes_[key(unit, topology_.node_of(rank))] -= bytes;
  }

  void collect_loads() {
    rank_bytes_.reserve(items_.size() + given_.size());
    for (const Given &given : given_) add(given.unit, given.rank, given.bytes);
    for (const Item *item : items_) add(item->unit, item->owner, item->weight);
    excess_.reserve(bounds_.size());
    for (const UnitBound &bound : bounds_) excess_.push_back({Excess(bound.rank), Excess(bound.nic)});
    badness_.resize(bounds_.size());
    for (const auto &[place, bytes] : rank_bytes_) {
      const size_t unit = place >> 32;
      badness_[unit] += square(excess_[unit][0].of(bytes));
    }
    for (const auto &[place, bytes] : node_bytes_) {
      const int unit = static_cast<int>(place >> 32), node = static_cast<int>(place & UINT32_MAX);
      badness_[static_cast<size_t>(unit)] += node_badness(unit, node, bytes);
    }
  }

  static Wide square(uint64_t value) { return Wide{value} * value; }
  Wide rank_badness(int unit, uint64_t bytes) const {
    return square(excess_[static_cast<size_t>(unit)][0].of(bytes));
  }
  Wide node_badness(int unit, int node, uint64_t bytes) const {
    if (topology_.node_count() == 1) return 0;
    return square(excess_[static_cast<size_t>(unit)][1].of(current_.nic(node, bytes)));
  }

  // By how much a unit's badness falls, and by how much it rises, if bytes go from one rank to another.
  struct Change {
    Wide less = 0, more = 0;
  };
  void change(int unit, int source, int target, uint64_t bytes, Change *change) const {
    if (bytes == 0) return;
    const uint64_t a = rank_bytes(unit, source), b = rank_bytes(unit, target);
    change->less += rank_badness(unit, a) + rank_badness(unit, b);
    change->more += rank_badness(unit, a - bytes) + rank_badness(unit, b + bytes);
    const int source_node = topology_.node_of(source), target_node = topology_.node_of(target);
    if (source_node == target_node) return;
    const uint64_t c = node_bytes(unit, source_node), d = node_bytes(unit, target_node);
    change->less += node_badness(unit, source_node, c) + node_badness(unit, target_node, d);
    change->more += node_badness(unit, source_node, c - bytes) + node_badness(unit, target_node, d + bytes);
  }

  bool improve_unit(size_t first, size_t last) {
    bool improved = false;
    const int unit = items_[first]->unit;
    begin_unit(unit, first, last);
    for (size_t place = first; place < last && evaluated_ < moves_max_; ++place) {
      const int rank = items_[place]->owner, node = topology_.node_of(rank);
      if (items_[place]->weight == 0) continue;
      if (current_.rank_excess(current_.rank(rank)) == 0 && current_.nic_excess(node, current_.node(node)) == 0)
        continue;
      improved = improve_item(place) || improved;
    }
    return improved;
  }

  bool improve_item(size_t place) {
    Item *item = items_[place];
    const std::vector<size_t> &like = like_[kind_of(*item)];
    const size_t tries = std::min(like.size(), tries_max);
    for (size_t turn = 0; turn < tries; ++turn)
      if (try_swap(item, items_[like[(place + turn * stride) % like.size()]], true)) return true;
    for (int turn = 0; turn < std::min<int>(settings_.rank_count, tries_max); ++turn)
      if (try_move(item, (item->owner + 1 + turn) % settings_.rank_count)) return true;
    for (size_t turn = 1; turn < std::min(items_.size(), tries_max); ++turn)
      if (try_swap(item, items_[(place + turn * stride) % items_.size()], false)) return true;
    return false;
  }

  // Cheap: is the current unit better off if so many of its bytes go to that rank?
  bool helps(const Item &item, int target, uint64_t back) {
    ++evaluated_;
    if (target == item.owner || back >= item.weight) return false;
    const uint64_t bytes = item.weight - back;
    return current_.rank(target) + bytes < current_.rank(item.owner) ||
           (!topology_.same_node(target, item.owner) &&
            current_.node(topology_.node_of(target)) + bytes < current_.node(topology_.node_of(item.owner)));
  }

  bool fits(int rank, uint64_t less_cost, uint64_t less_bytes, const Item &more) const {
    const Load &load = loads_[static_cast<size_t>(rank)];
    return saturating_add(load.cost - less_cost, more.cost) <= cost_limit_ &&
           load.bytes - less_bytes + more.bytes <= bytes_limit_;
  }

  bool try_move(Item *item, int target) {
    if (!helps(*item, target, 0) || !fits(target, 0, 0, *item)) return false;
    Change sum;
    change(item->unit, item->owner, target, item->weight, &sum);
    if (sum.more >= sum.less) return false;
    carry(item, target);
    return true;
  }

  bool try_swap(Item *mine, Item *yours, bool is_like) {
    if (mine->unit == yours->unit) {
      if (is_like || !helps(*mine, yours->owner, yours->weight)) return false;
    } else if (!helps(*mine, yours->owner, 0)) {
      return false;
    }
    if (!is_like && !(fits(yours->owner, yours->cost, yours->bytes, *mine) &&
                      fits(mine->owner, mine->cost, mine->bytes, *yours)))
      return false;
    Change sum;
    if (mine->unit == yours->unit) {
      change(mine->unit, mine->owner, yours->owner, mine->weight - yours->weight, &sum);
    } else {
      change(mine->unit, mine->owner, yours->owner, mine->weight, &sum);
      change(yours->unit, yours->owner, mine->owner, yours->weight, &sum);
    }
    if (sum.more >= sum.less) return false;
    const int rank = mine->owner;
    carry(mine, yours->owner);
    carry(yours, rank);
    return true;
  }

  void carry(Item *item, int target) {
    Change sum;
    change(item->unit, item->owner, target, item->weight, &sum);
    badness_[static_cast<size_t>(item->unit)] += sum.more;
    badness_[static_cast<size_t>(item->unit)] -= sum.less;
    take(item->unit, item->owner, item->weight);
    add(item->unit, target, item->weight);
    Load &from = loads_[static_cast<size_t>(item->owner)], &to = loads_[static_cast<size_t>(target)];
    from.cost -= item->cost, from.bytes -= item->bytes;
    to.cost += item->cost, to.bytes += item->bytes;
    if (is_current(item->unit)) {
      current_.take(item->owner, item->weight);
      current_.add(target, item->weight);
    }
    item->owner = target;
  }
  bool is_current(int unit) const { return unit == current_unit_; }

  const PlanSettings &settings_;
  const Topology &topology_;
  const std::vector<UnitBound> &bounds_;
  std::vector<Given> given_;        // by unit
  std::vector<Item *> items_;       // by unit, the heaviest first
  std::vector<size_t> unit_starts_;
  std::vector<Load> loads_;
  UnitLoad current_;
  int current_unit_ = -1;
  uint64_t cost_limit_ = 0, bytes_limit_ = 0;
  std::map<Kind, std::map<int, int>> wanted_;
  std::map<Kind, std::set<Seat>> open_;
  std::map<Kind, std::vector<size_t>> like_;
  std::unordered_map<uint64_t, uint64_t> rank_bytes_, node_bytes_;  // by unit and number
  std::vector<std::array<Excess, 2>> excess_;
  std::vector<Wide> badness_;
  uint64_t evaluated_ = 0, moves_max_ = 0;
};

std::vector<Given> list_given(const std::vector<Draft> &drafts) {
  std::vector<Given> given;
  for (const Draft &draft : drafts)
    for (const Placement &piece : draft.pieces)
      if (piece.owner >= 0 && piece.element_count != 0)
        given.push_back({piece.unit, piece.owner, weight_bytes(draft.tensor, piece.element_count)});
  return given;
}

}  // namespace

void spread_units(const PlanSettings &settings, const std::vector<Draft> &drafts, const std::vector<UnitBound> &bounds,
                  const std::vector<Item *> &items, const Ledger &ledger, uint64_t moves_max) {
  if (settings.rank_count == 1 || items.empty()) return;
  Spread spread(settings, bounds, list_given(drafts), items, ledger);
  spread.deal();
  spread.swap(moves_max);
}

}  // namespace mxs
