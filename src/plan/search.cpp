// SPDX-License-Identifier: Apache-2.0
// Search on loads: moves and swaps, while some rank's step time or bytes are above their lower bounds.
//
// Items of equal cost and bytes are one kind, and ranks hold so many of each: 45,000 experts are one kind, not 45,000
// choices. What is made small is the sum over ranks of
//
//     cost_weight * (excess of cost over the bound)^2 + bytes_weight * (excess of bytes)^2
//
// a sum, so that where many ranks are equally bad each step on one of them counts; of squares, so that the worst count
// most. The excess is a fraction of the bound in fixed point. The rank with most of it looks at partners, the ones with
// the least cost and the fewest bytes first, and takes the best of
//
//     1:0 one of mine      1:1 for one of yours      2:1, 1:2 two of mine for one of yours, one of mine for two
//
// Ranks that find nothing wait until others have moved. It ends where no rank finds anything, or with the budget of
// evaluated moves. Integers only, ties by number: the same on every machine.
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "plan/excess.hpp"
#include "plan/ledger.hpp"

namespace mxs {
namespace {

__extension__ using Wide = unsigned __int128;

// Partners looked at in each of the two orders.
constexpr int partner_count_max = 24, pair_partner_count_max = 6;
constexpr size_t pair_moves_max = 4096;  // of one partner: above it pairs aren't tried

struct Kind {
  uint64_t cost, bytes;
  uint64_t mark;  // sums of marks tell sets apart
  std::vector<Item *> items;
};

struct Holding {
  int kind, count;
};

struct Bearer {
  Load load;
  Wide badness = 0;
  uint64_t mark = 0;  // of what it holds
  std::vector<Holding> holdings;  // by kind; none of 0
};

// Of up to two kinds that one rank gives; -1: none.
struct Gift {
  int first = -1, second = -1;
};

struct Move {
  Gift mine, yours;
};

// splitmix64: any number to one that looks random.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class LoadSearch {
 public:
  LoadSearch(const SearchGoal &goal, const std::vector<Item *> &items, const Ledger &given)
      : goal_(goal), cost_shift_(shift_for(items, given)), cost_excess_(goal.cost_bound >> cost_shift_),
        bytes_excess_(goal.bytes_bound) {
    sort_kinds(items);
    hand_out(given);
  }

  void run() {
    bool improved = true;
    while (improved && evaluated_ < goal_.moves_max) {
      improved = false;
      open_.clear();
      stuck_.clear();
      for (int rank = 0; rank < rank_count(); ++rank)
        if (at(rank).badness != 0) open_.insert({~at(rank).badness, rank});
      while (!open_.empty() && evaluated_ < goal_.moves_max) {
        const int rank = open_.begin()->second;
        if (stuck_.count(at(rank).mark) == 0 && improve(rank)) {
          improved = true;
          continue;
        }
        stuck_.insert(at(rank).mark);
        open_.erase({~at(rank).badness, rank});
      }
    }
  }

  // Weighted excess of the worst ranks.
  Wide score() const {
    uint64_t cost = 0, bytes = 0;
    for (const Bearer &rank : ranks_) {
      cost = std::max(cost, rank.load.cost);
      bytes = std::max(bytes, rank.load.bytes);
    }
    return Wide{goal_.cost_weight} * cost_excess_.of(cost) + Wide{goal_.bytes_weight} * bytes_excess_.of(bytes);
  }

  uint64_t evaluated() const { return evaluated_; }

  // Owners by what ranks hold now. Items stay where they are if their rank still holds so many of their kind.
  void write_owners() const {
    std::vector<std::vector<Holding>> holders(kinds_.size());  // kind: the rank
    for (int rank = 0; rank < rank_count(); ++rank)
      for (const Holding &holding : at(rank).holdings)
        holders[static_cast<size_t>(holding.kind)].push_back({rank, holding.count});
    std::vector<int> wanted(ranks_.size(), 0);
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      for (const Holding &holder : holders[kind]) wanted[static_cast<size_t>(holder.kind)] = holder.count;
      std::vector<Item *> loose;
      for (Item *item : kinds_[kind].items) {
        int &count = wanted[static_cast<size_t>(item->owner)];
        if (count > 0)
          --count;
        else
          loose.push_back(item);
      }
      auto next = loose.begin();
      for (const Holding &holder : holders[kind])
        for (int &count = wanted[static_cast<size_t>(holder.kind)]; count > 0; --count) (*next++)->owner = holder.kind;
    }
  }

 private:
  int rank_count() const { return static_cast<int>(ranks_.size()); }
  Bearer &at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Bearer &at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  const Kind &kind_of(int kind) const { return kinds_[static_cast<size_t>(kind)]; }

  // Monstrous costs are made smaller, so that all of them together stay below 2^62.
  static unsigned shift_for(const std::vector<Item *> &items, const Ledger &given) {
    Wide sum = 0;
    for (const Item *item : items) sum += item->cost;
    for (const Load &load : given.loads()) sum += load.cost;
    unsigned shift = 0;
    while ((sum >> shift) >= (Wide{1} << 62)) ++shift;
    return shift;
  }

  void sort_kinds(const std::vector<Item *> &items) {
    std::map<std::pair<uint64_t, uint64_t>, int> numbers;  // most expensive first
    for (Item *item : items) {
      const auto [entry, is_new] = numbers.emplace(std::make_pair(~item->cost, ~item->bytes), 0);
      if (is_new) {
        entry->second = static_cast<int>(kinds_.size());
        kinds_.push_back({item->cost >> cost_shift_, item->bytes, mix(kinds_.size()), {}});
      }
      kinds_[static_cast<size_t>(entry->second)].items.push_back(item);
    }
  }

  void hand_out(const Ledger &given) {
    ranks_.resize(given.loads().size());
    for (int rank = 0; rank < rank_count(); ++rank) {
      Load &load = at(rank).load;
      load = {given.of(rank).cost >> cost_shift_, given.of(rank).bytes};
      at(rank).mark = mix(mix(load.cost) + load.bytes);
    }
    for (size_t kind = 0; kind < kinds_.size(); ++kind)
      for (const Item *item : kinds_[kind].items) {
        Bearer &rank = at(item->owner);
        if (rank.holdings.empty() || rank.holdings.back().kind != static_cast<int>(kind))
          rank.holdings.push_back({static_cast<int>(kind), 0});
        ++rank.holdings.back().count;
        rank.mark += kinds_[kind].mark;
        rank.load.cost += kinds_[kind].cost;
        rank.load.bytes += kinds_[kind].bytes;
      }
    for (int rank = 0; rank < rank_count(); ++rank) enter(rank);
  }

  Wide badness(const Load &load) const {
    const Wide cost = cost_excess_.of(load.cost), bytes = bytes_excess_.of(load.bytes);
    return goal_.cost_weight * cost * cost + goal_.bytes_weight * bytes * bytes;
  }

  void enter(int rank) {
    Bearer &bearer = at(rank);
    bearer.badness = badness(bearer.load);
    by_cost_.insert({bearer.load.cost, bearer.load.bytes, rank});
    by_bytes_.insert({bearer.load.bytes, bearer.load.cost, rank});
    if (bearer.badness != 0) open_.insert({~bearer.badness, rank});
  }
  void leave(int rank) {
    const Bearer &bearer = at(rank);
    by_cost_.erase({bearer.load.cost, bearer.load.bytes, rank});
    by_bytes_.erase({bearer.load.bytes, bearer.load.cost, rank});
    open_.erase({~bearer.badness, rank});
  }

  static void take(std::vector<Holding> *holdings, int kind) {
    const auto place = find(holdings, kind);
    if (--place->count == 0) holdings->erase(place);
  }
  static void put(std::vector<Holding> *holdings, int kind) {
    const auto place = find(holdings, kind);
    if (place != holdings->end() && place->kind == kind)
      ++place->count;
    else
      holdings->insert(place, {kind, 1});
  }
  static std::vector<Holding>::iterator find(std::vector<Holding> *holdings, int kind) {
    return std::lower_bound(holdings->begin(), holdings->end(), kind,
                            [](const Holding &holding, int wanted) { return holding.kind < wanted; });
  }

  void give(int kind, int source_rank, int target_rank) {
    if (kind < 0) return;
    Bearer &source = at(source_rank), &target = at(target_rank);
    take(&source.holdings, kind);
    put(&target.holdings, kind);
    const Kind &given = kind_of(kind);
    source.load.cost -= given.cost, source.load.bytes -= given.bytes, source.mark -= given.mark;
    target.load.cost += given.cost, target.load.bytes += given.bytes, target.mark += given.mark;
  }

  void apply(const Move &move, int mine, int yours) {
    leave(mine);
    leave(yours);
    for (const int kind : {move.mine.first, move.mine.second}) give(kind, mine, yours);
    for (const int kind : {move.yours.first, move.yours.second}) give(kind, yours, mine);
    enter(mine);
    enter(yours);
  }

  Load load_of(const Gift &gift) const {
    Load load;
    for (const int kind : {gift.first, gift.second})
      if (kind >= 0) load.cost += kind_of(kind).cost, load.bytes += kind_of(kind).bytes;
    return load;
  }

  // ---- the choice of a move ----

  bool improve(int rank) {
    Partners partners;
    find_partners(by_cost_, rank, &partners);
    find_partners(by_bytes_, rank, &partners);
    for (int turn = 0; turn < partner_count_max; ++turn)
      for (const std::vector<int> &order : partners)
        if (turn < static_cast<int>(order.size()) && exchange_one(rank, order[static_cast<size_t>(turn)])) return true;
    for (int turn = 0; turn < pair_partner_count_max; ++turn)
      for (const std::vector<int> &order : partners)
        if (turn < static_cast<int>(order.size()) && exchange_two(rank, order[static_cast<size_t>(turn)])) return true;
    return false;
  }

  using Key = std::tuple<uint64_t, uint64_t, int>;
  using Partners = std::vector<std::vector<int>>;

  // The first ranks in an order, of equal loads only one.
  void find_partners(const std::set<Key> &order, int rank, Partners *partners) const {
    partners->emplace_back();
    auto entry = order.begin();
    while (entry != order.end() && partners->back().size() < static_cast<size_t>(partner_count_max)) {
      const auto [first, second, partner] = *entry;
      if (partner != rank) partners->back().push_back(partner);
      entry = order.upper_bound({first, second, INT32_MAX});
    }
  }

  // What is best so far, of one pair of ranks.
  struct Best {
    Wide badness;
    Move move;
    bool found = false;
  };

  void consider(const Bearer &mine, const Bearer &yours, const Move &move, Best *best) {
    if (evaluated_ == goal_.moves_max) return;
    ++evaluated_;
    const Load out = load_of(move.mine), in = load_of(move.yours);
    const Load my_load = {mine.load.cost - out.cost + in.cost, mine.load.bytes - out.bytes + in.bytes};
    const Load your_load = {yours.load.cost + out.cost - in.cost, yours.load.bytes + out.bytes - in.bytes};
    if (goal_.budget != 0 && (my_load.bytes > goal_.budget || your_load.bytes > goal_.budget)) return;
    const Wide after = badness(my_load) + badness(your_load);
    if (after >= best->badness) return;
    *best = {after, move, true};
  }

  bool exchange_one(int rank, int partner) {
    const Bearer &mine = at(rank), &yours = at(partner);
    Best best = {mine.badness + yours.badness, {}};
    for (const Holding &out : mine.holdings) {
      if (evaluated_ >= goal_.moves_max) break;  // 100,000 sizes on 2 ranks have 2.5 billion pairs
      consider(mine, yours, {{out.kind, -1}, {}}, &best);
      for (const Holding &in : yours.holdings)
        if (in.kind != out.kind) consider(mine, yours, {{out.kind, -1}, {in.kind, -1}}, &best);
    }
    if (best.found) apply(best.move, rank, partner);
    return best.found;
  }

  bool exchange_two(int rank, int partner) {
    const Bearer &mine = at(rank), &yours = at(partner);
    const size_t a = mine.holdings.size(), b = yours.holdings.size();
    if (a * b * (a + b) / 2 > pair_moves_max) return false;
    Best best = {mine.badness + yours.badness, {}};
    for_each_pair(mine.holdings, [&](const Gift &out) {
      consider(mine, yours, {out, {}}, &best);
      for (const Holding &in : yours.holdings) consider(mine, yours, {out, {in.kind, -1}}, &best);
    });
    for_each_pair(yours.holdings, [&](const Gift &in) {
      for (const Holding &out : mine.holdings) consider(mine, yours, {{out.kind, -1}, in}, &best);
    });
    if (best.found) apply(best.move, rank, partner);
    return best.found;
  }

  template <class Body>
  static void for_each_pair(const std::vector<Holding> &holdings, const Body &body) {
    for (size_t first = 0; first < holdings.size(); ++first)
      for (size_t second = first; second < holdings.size(); ++second)
        if (first != second || holdings[first].count > 1) body(Gift{holdings[first].kind, holdings[second].kind});
  }

  const SearchGoal goal_;
  const unsigned cost_shift_;
  const Excess cost_excess_, bytes_excess_;
  std::vector<Kind> kinds_;
  std::vector<Bearer> ranks_;
  std::set<Key> by_cost_, by_bytes_;
  std::set<std::pair<Wide, int>> open_;      // worst first
  std::unordered_set<uint64_t> stuck_;       // marks of ranks that found nothing
  uint64_t evaluated_ = 0;
};

}  // namespace

uint64_t search_loads(const SearchGoal &goal, const std::vector<Item *> &items, const Ledger &given) {
  LoadSearch search(goal, items, given);
  const Wide before = search.score();
  search.run();
  if (search.score() <= before) search.write_owners();
  return search.evaluated();
}

}  // namespace mxs
