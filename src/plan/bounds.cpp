// SPDX-License-Identifier: Apache-2.0
// Lower bounds: what the worst rank carries at least, whoever owns what.
//
//   level    ranks filled up like water over their fixed loads; at least the mean
//   largest  the largest item on the rank with the least fixed load
//   parts    a trial T is out of reach if items, counted in whole parts, need more parts than the ranks have. Let c be
//            the room that T leaves on the emptiest rank. An item of size x has floor(x * D / c) parts; M(r) is the
//            most parts that any set of items has that fits into rank r's room. If all items together have more
//            parts than the sum of M, T can't be. Tried for D = 1 to 128, and T by bisection.
//
// An example of the last: 240 matrices of 8 and 160 of 3 on 64 ranks, nearly Llama-3 70B. The mean is 37.5. With T = 37
// and D = 14 they have 3 parts and 1, in all 880; but a rank can't have more than 13 within 37 (4 * 8 + 3), all ranks
// 832. With T = 38 nothing is found, and indeed 4 * 8 + 2 * 3 on 48 ranks and 3 * 8 + 4 * 3 on 16 is a placement.
#include "plan/bounds.hpp"

#include <algorithm>
#include <map>

#include "base/arithmetic.hpp"
#include "plan/ledger.hpp"

namespace mxs {
namespace {

__extension__ using Wide = unsigned __int128;

// Equal sizes together.
struct Sizes {
  std::vector<uint64_t> distinct;      // ascending
  std::vector<uint64_t> count_from;    // items of that size or more
};

Sizes count_sizes(std::vector<uint64_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  Sizes counted;
  for (size_t index = 0; index < sizes.size(); ++index)
    if (sizes[index] != 0 && (index == 0 || sizes[index] != sizes[index - 1])) {
      counted.distinct.push_back(sizes[index]);
      counted.count_from.push_back(sizes.size() - index);
    }
  return counted;
}

// Ranks with the same fixed load.
struct Ranks {
  uint64_t fixed = 0, count = 0;
};

std::vector<Ranks> count_ranks(std::vector<uint64_t> fixed) {
  std::sort(fixed.begin(), fixed.end());
  std::vector<Ranks> counted;
  for (const uint64_t load : fixed) {
    if (counted.empty() || counted.back().fixed != load) counted.push_back({load, 0});
    ++counted.back().count;
  }
  return counted;
}

class Trial {
 public:
  Trial(std::vector<uint64_t> sizes, std::vector<uint64_t> fixed, size_t part_count_max)
      : part_count_max_(part_count_max), sizes_(count_sizes(sizes)), ranks_(count_ranks(std::move(fixed))) {
    for (const uint64_t size : sizes) total_ += size;
  }

  // A level that is certainly needed.
  uint64_t first() const {
    const uint64_t largest = sizes_.distinct.empty() ? 0 : sizes_.distinct.back();
    const Wide level = std::max<Wide>(water_level(), saturating_add(ranks_.front().fixed, largest));
    return static_cast<uint64_t>(std::min<Wide>(std::max<Wide>(level, ranks_.back().fixed), UINT64_MAX));
  }

  // No rank may carry more than `level`, which is at least first(): is that certainly too little?
  bool is_out_of_reach(uint64_t level) {
    if (lacks_parts(level, proving_)) return true;  // what proved the last one, mostly proves the next
    for (size_t parts = 1; parts <= part_count_max_; ++parts)
      if (lacks_parts(level, parts)) {
        proving_ = parts;
        return true;
      }
    return false;
  }

 private:
  // Where ranks stand if the items were water.
  Wide water_level() const {
    Wide below = 0, level = 0;  // of the ranks under water: their fixed loads
    uint64_t count = 0;
    for (size_t index = 0; index < ranks_.size(); ++index) {
      if (count != 0 && level <= ranks_[index].fixed) break;
      below += Wide{ranks_[index].fixed} * ranks_[index].count;
      count += ranks_[index].count;
      level = (total_ + below + count - 1) / count;
    }
    return level;
  }

  bool lacks_parts(uint64_t level, size_t parts) {
    const uint64_t room = level - ranks_.front().fixed;
    if (room == 0) return total_ != 0;
    const Wide needed = weigh(room, parts);
    if (needed <= some_set(level, parts)) return false;
    fill_least(parts);
    Wide most = 0;
    for (const Ranks &ranks : ranks_) {
      size_t reached = parts;
      while (least_[reached] > level - ranks.fixed) --reached;
      most += Wide{reached} * ranks.count;
    }
    return needed > most;
  }

  // Parts of all items; smallest_[k]: the smallest item of at least k parts.
  Wide weigh(uint64_t room, size_t parts) {
    smallest_.assign(parts + 1, UINT64_MAX);
    Wide needed = 0;
    size_t place = 0;
    for (size_t part = 1; part <= parts; ++part) {
      const uint64_t least = static_cast<uint64_t>((Wide{part} * room + parts - 1) / parts);
      place = static_cast<size_t>(std::lower_bound(sizes_.distinct.begin() + static_cast<std::ptrdiff_t>(place),
                                                   sizes_.distinct.end(), least) -
                                  sizes_.distinct.begin());
      if (place == sizes_.distinct.size()) break;
      smallest_[part] = sizes_.distinct[place];
      needed += sizes_.count_from[place];
    }
    return needed;
  }

  // Parts that ranks can hold with items of one size, the one with the most parts for its size: M is at least that.
  // Mostly this is enough already, and the table of all sets isn't needed.
  Wide some_set(uint64_t level, size_t parts) const {
    size_t best = 0;
    for (size_t part = 1; part <= parts && smallest_[part] != UINT64_MAX; ++part)
      if (best == 0 || Wide{part} * smallest_[best] > Wide{best} * smallest_[part]) best = part;
    Wide sum = 0;
    if (best != 0)
      for (const Ranks &ranks : ranks_) sum += Wide{best} * ((level - ranks.fixed) / smallest_[best]) * ranks.count;
    return sum;
  }

  // least_[w]: the smallest sum of items with w parts or more.
  void fill_least(size_t parts) {
    least_.assign(parts + 1, UINT64_MAX);
    least_[0] = 0;
    for (size_t weight = 1; weight <= parts; ++weight)
      for (size_t part = 1; part <= weight && smallest_[part] != UINT64_MAX; ++part)
        least_[weight] = std::min(least_[weight], saturating_add(least_[weight - part], smallest_[part]));
  }

  size_t part_count_max_;
  Sizes sizes_;
  std::vector<Ranks> ranks_;
  Wide total_ = 0;
  size_t proving_ = 1;
  std::vector<uint64_t> smallest_, least_;
};

// What can't move: fixed owners and flat shares.
std::vector<Load> fixed_loads(const PlanSettings &settings, const std::vector<Draft> &drafts) {
  Ledger ledger(settings.rank_count, 0);
  for (const Draft &draft : drafts) {
    if (draft.fixed_owner < 0 && draft.tensor.role != MXS_ROLE_FLAT) continue;
    for (const Placement &piece : draft.pieces)
      ledger.add(piece.owner, piece_cost(settings, draft.tensor, piece),
                 owned_bytes(draft.tensor, piece.shape, piece.element_count));
  }
  return ledger.loads();
}

uint64_t bound_of(uint64_t Load::*field, uint64_t Item::*size, const std::vector<Load> &fixed,
                  const std::vector<Item> &items) {
  std::vector<uint64_t> sizes, loads;
  sizes.reserve(items.size());
  for (const Load &load : fixed) loads.push_back(load.*field);
  std::vector<uint64_t> carried = loads;
  for (const Item &item : items) {
    sizes.push_back(item.*size);
    uint64_t &load = carried[static_cast<size_t>(item.owner)];
    load = saturating_add(load, item.*size);
  }
  return load_bound(std::move(sizes), std::move(loads), *std::max_element(carried.begin(), carried.end()));
}

// What a placement of one unit certainly reaches: the fullest bin at first, or the mean and one item more.
uint64_t reached(const std::vector<uint64_t> &sizes, const std::vector<uint64_t> &fixed) {
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += size;
  for (const uint64_t load : fixed) total += load;
  return std::max(*std::max_element(fixed.begin(), fixed.end()),
                  divide_up(total, fixed.size()) + *std::max_element(sizes.begin(), sizes.end()));
}

// Of a unit with more items than ranks or nodes, that they are whole raises the bounds.
struct ManyItems {
  std::vector<uint64_t> sizes, of_rank, of_node;  // of_rank, of_node: fixed
};

void count_wholes(const PlanSettings &settings, const std::vector<Draft> &drafts, const std::vector<Item> &items,
                  std::vector<UnitBound> *bounds) {
  const Topology &topology = *settings.topology;
  const size_t rank_count = topology.ranks.size(), node_count = topology.nodes.size();
  std::vector<uint32_t> counts(bounds->size(), 0);
  for (const Item &item : items) ++counts[static_cast<size_t>(item.unit)];
  std::map<int, ManyItems> units;
  for (const Item &item : items) {
    if (counts[static_cast<size_t>(item.unit)] <= (node_count > 1 ? node_count : rank_count)) continue;
    ManyItems &unit = units[item.unit];
    unit.sizes.push_back(item.weight);
    unit.of_rank.resize(rank_count);
    unit.of_node.resize(node_count);
  }
  for (const Draft &draft : drafts) {
    const auto unit = units.find(draft.tensor.unit);
    if (unit == units.end() || (draft.fixed_owner < 0 && draft.tensor.role != MXS_ROLE_FLAT)) continue;
    for (const Placement &piece : draft.pieces) {
      const uint64_t bytes = weight_bytes(draft.tensor, piece.element_count);
      unit->second.of_rank[static_cast<size_t>(piece.owner)] += bytes;
      unit->second.of_node[static_cast<size_t>(topology.node_of(piece.owner))] += bytes;
    }
  }
  const size_t rails = topology.nodes[0].rails.size();
  const bool nodes_are_alike = std::all_of(topology.nodes.begin(), topology.nodes.end(),
                                           [&](const Node &node) { return node.rails.size() == rails; });
  for (const auto &[number, unit] : units) {
    UnitBound &bound = (*bounds)[static_cast<size_t>(number)];
    const auto bound_of_bins = [&sizes = unit.sizes](const std::vector<uint64_t> &fixed) {
      return load_bound(sizes, fixed, reached(sizes, fixed), unit_part_count_max);
    };
    if (unit.sizes.size() > rank_count) bound.rank = std::max(bound.rank, bound_of_bins(unit.of_rank));
    if (node_count > 1 && nodes_are_alike)
      bound.nic = std::max(bound.nic, divide_up(bound_of_bins(unit.of_node), rails));
  }
}

}  // namespace

uint64_t load_bound(std::vector<uint64_t> sizes, std::vector<uint64_t> fixed, uint64_t found_worst,
                    size_t part_count_max) {
  Trial trial(std::move(sizes), std::move(fixed), part_count_max);
  uint64_t proven = trial.first(), open = found_worst;
  if (proven >= open) return open;
  // What can't be proven of the least level can hardly be proven of a higher one.
  if (!trial.is_out_of_reach(proven)) return proven;
  while (open - proven > 1) {
    const uint64_t middle = proven + (open - proven) / 2;
    (trial.is_out_of_reach(middle) ? proven : open) = middle;
  }
  return open;
}

std::vector<UnitBound> unit_bounds(const PlanSettings &settings, const std::vector<Draft> &drafts,
                                   const std::vector<Item> &items) {
  const Topology &topology = *settings.topology;
  uint64_t rail_count = 0, rails_max = 0;
  for (const Node &node : topology.nodes) {
    rail_count += node.rails.size();
    rails_max = std::max<uint64_t>(rails_max, node.rails.size());
  }
  std::vector<UnitBound> bounds(static_cast<size_t>(settings.unit_count));
  std::vector<uint64_t> totals(bounds.size());
  for (const Draft &draft : drafts)
    for (const Placement &piece : draft.pieces)
      totals[static_cast<size_t>(piece.unit)] += weight_bytes(draft.tensor, piece.element_count);
  for (const Draft &draft : drafts)
    for (const Placement &piece : draft.pieces) {
      UnitBound &bound = bounds[static_cast<size_t>(piece.unit)];
      bound.rank = std::max(bound.rank, weight_bytes(draft.tensor, piece.element_count));
    }
  for (const Item &item : items) {
    UnitBound &bound = bounds[static_cast<size_t>(item.unit)];
    bound.rank = std::max(bound.rank, item.weight);
  }
  for (size_t unit = 0; unit < bounds.size(); ++unit) {
    UnitBound &bound = bounds[unit];
    if (topology.node_count() > 1)
      bound.nic = std::max(divide_up(bound.rank, rails_max), divide_up(totals[unit], rail_count));
    bound.rank = std::max(bound.rank, divide_up(totals[unit], static_cast<uint64_t>(settings.rank_count)));
  }
  count_wholes(settings, drafts, items, &bounds);
  return bounds;
}

PlanBounds plan_bounds(const PlanSettings &settings, std::vector<Draft> *drafts) {
  const std::vector<Load> fixed = fixed_loads(settings, *drafts);
  const std::vector<Item> items = collect_items(settings, drafts, Collect::owned_too);
  PlanBounds bounds;
  bounds.bytes = bound_of(&Load::bytes, &Item::bytes, fixed, items);
  bounds.step_ps = bound_of(&Load::cost, &Item::cost, fixed, items);
  bounds.units = unit_bounds(settings, *drafts, items);
  return bounds;
}

}  // namespace mxs
