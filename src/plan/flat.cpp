// SPDX-License-Identifier: Apache-2.0
// Flat tensors: large, not matrices; and frozen ones. Those of a unit are laid end to end and cut evenly over ranks:
//
//   |   a   |  b  |c|d|            e            |     five tensors, four shares: a cut falls on a chunk of the norm
//   |  rank 3   |  rank 0   |  rank 1   | rank 2 |    (and of the alignment) or on a border between tensors
//
// A share is no smaller than flat_bytes unless its tensor is, nor than a page of the alignment, so that 100,000 frozen
// tensors on 4,096 ranks are not 400 million pieces: a unit has at most a piece for each tensor and for each cut.
// Stepped and frozen tensors are cut apart, since they load differently; each cut is even in owned bytes. Shares go to
// the ranks that carry the least, the largest first, ranks of other nodes before a node's next: so the ranks that
// begin move on from unit to unit, and what chunks leave uneven in one unit is made up in the next.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/dtype.hpp"
#include "plan/ledger.hpp"
#include "plan/memory.hpp"
#include "plan/previous.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// Flat tensors of one unit, all stepped or all frozen.
struct Group {
  std::vector<Draft *> drafts;
  uint64_t weight_bytes = 0, load = 0;  // owned bytes
};

struct Share {
  uint64_t load = 0, cost = 0;
  std::vector<std::pair<Draft *, size_t>> pieces;  // of a draft: the number
};

uint64_t load_of(const PlannedTensor &tensor, uint64_t element_count) {
  return owned_bytes(tensor, {static_cast<int64_t>(element_count)}, element_count);
}

// Where share `number` of so many begins if nothing had to be whole. No product overflows: counts are at most 2^20.
uint64_t ideal_border(uint64_t load, uint64_t share_count, uint64_t number) {
  return load / share_count * number + load % share_count * number / share_count;
}

uint64_t distance(uint64_t a, uint64_t b) { return a < b ? b - a : a - b; }

// Where a tensor may be cut nearest to element `wish`: not at all before `last`, in chunks no nearer than `least` to it
// and to the end, or at the end.
uint64_t nearest_cut(uint64_t wish, uint64_t last, uint64_t end, uint64_t chunk, uint64_t least) {
  uint64_t best = distance(wish, last) <= distance(wish, end) ? last : end;
  if (end - last < least || end - last - least < least) return best;
  const uint64_t first_chunk = last + least, last_chunk = align_down(end - least, chunk);
  if (first_chunk > last_chunk) return best;
  const uint64_t cut = std::clamp(align_down(wish + chunk / 2, chunk), first_chunk, last_chunk);
  // A cut that has no place because the one before was rounded up moves on: no share stays empty for it.
  const bool is_crowded = last != 0 && best == last;
  return is_crowded || distance(wish, cut) <= distance(wish, best) ? cut : best;
}

class Cutter {
 public:
  Cutter(const PlanSettings &settings, const Group &group) : settings_(settings), load_(group.load) {
    const uint64_t wanted = group.weight_bytes / least_bytes();
    share_count_ = std::clamp<uint64_t>(wanted, 1, static_cast<uint64_t>(settings.rank_count));
    shares_.emplace_back();
  }

  void cut(Draft *draft) {
    const PlannedTensor &tensor = draft->tensor;
    draft->pieces.clear();
    const uint64_t chunk = flat_chunk_elements(tensor, settings_);
    const uint64_t least = align_up(divide_up(least_bytes(), dtype_bytes(tensor.dtype)), chunk);
    const uint64_t element_load = load_of(tensor, 1), end = begin_ + load_of(tensor, tensor.element_count);
    uint64_t last = 0;
    for (; next_ < share_count_; ++next_) {
      const uint64_t border = ideal_border(load_, share_count_, next_);
      if (border > end) break;
      const uint64_t wish = (border - std::min(border, begin_)) / element_load;
      const uint64_t cut = nearest_cut(wish, last, tensor.element_count, chunk, least);
      if (cut != last) add_piece(draft, last, cut - last);
      last = cut;
      if (shares_.back().load != 0) shares_.emplace_back();
    }
    if (last != tensor.element_count || draft->pieces.empty()) add_piece(draft, last, tensor.element_count - last);
    begin_ = end;
  }

  uint64_t share_count() const { return share_count_; }

  // The last cut may have fallen on the end.
  std::vector<Share> take_shares() {
    if (shares_.back().pieces.empty()) shares_.pop_back();
    return std::move(shares_);
  }

 private:
  uint64_t least_bytes() const { return std::max(settings_.flat_bytes, settings_.alignment); }

  void add_piece(Draft *draft, uint64_t offset, uint64_t element_count) {
    const PlannedTensor &tensor = draft->tensor;
    Placement piece;
    piece.block = static_cast<int>(draft->pieces.size());
    piece.owner = -1;
    piece.unit = tensor.unit;
    piece.shape = {static_cast<int64_t>(element_count)};
    piece.element_offset = offset;
    piece.element_count = element_count;
    shares_.back().load += load_of(tensor, element_count);
    shares_.back().cost = saturating_add(shares_.back().cost, piece_cost(settings_, tensor, piece));
    shares_.back().pieces.emplace_back(draft, draft->pieces.size());
    draft->pieces.push_back(std::move(piece));
  }

  const PlanSettings &settings_;
  uint64_t load_, share_count_ = 1;
  uint64_t begin_ = 0;  // of the next tensor, in load
  uint64_t next_ = 1;   // the share that the next border begins
  std::vector<Share> shares_;
};

// Ranks, those of the same place in their nodes one after the other, so that neighbours in turn are on other nodes.
std::vector<int> ranks_in_turn(const PlanSettings &settings) {
  std::vector<int> ranks(static_cast<size_t>(settings.rank_count));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto turn = [&](int rank) {
    const RankPlace &place = settings.topology->ranks[static_cast<size_t>(rank)];
    return std::make_tuple(place.local_rank, place.node);
  };
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return turn(a) < turn(b); });
  return ranks;
}

// Ranks that carry the least come first: by cost where shares are stepped, by bytes where they are frozen.
class Turns {
 public:
  Turns(const std::vector<int> &ranks, Ledger *ledger, bool by_bytes)
      : ranks_(ranks), ledger_(*ledger), by_bytes_(by_bytes) {
    for (size_t place = 0; place < ranks.size(); ++place) order_.insert(key(place));
  }

  // At most as many shares as ranks: each gets a rank of its own.
  void give(std::vector<Share> *shares) {
    std::stable_sort(shares->begin(), shares->end(), [](const Share &a, const Share &b) { return a.load > b.load; });
    std::vector<size_t> places;
    for (const Share &share : *shares) {
      const size_t place = std::get<2>(*order_.begin());
      order_.erase(order_.begin());
      places.push_back(place);
      for (const auto &[draft, number] : share.pieces) draft->pieces[number].owner = ranks_[place];
      ledger_.add(ranks_[place], share.cost, share.load);
    }
    for (const size_t place : places) order_.insert(key(place));
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, size_t>;
  Key key(size_t place) const {
    const Load &load = ledger_.of(ranks_[place]);
    return by_bytes_ ? Key{load.bytes, load.cost, place} : Key{load.cost, load.bytes, place};
  }
  const std::vector<int> &ranks_;
  Ledger &ledger_;
  bool by_bytes_;
  std::set<Key> order_;
};

}  // namespace

uint64_t flat_chunk_elements(const PlannedTensor &tensor, const PlanSettings &settings) {
  // All powers of two, so that the larger is a multiple of the other. Chunks of the norm, and segment borders.
  return std::max(norm_chunk_elements, settings.alignment / dtype_bytes(tensor.dtype));
}

void own_flat(const PlanSettings &settings, std::vector<Draft> *drafts, Ledger *ledger) {
  std::map<int, Group> groups[2];  // by unit; stepped ones, frozen ones
  for (Draft &draft : *drafts) {
    if (draft.tensor.role != MXS_ROLE_FLAT) continue;
    Group &group = groups[draft.tensor.frozen()][draft.tensor.unit];
    group.drafts.push_back(&draft);
    group.weight_bytes += weight_bytes(draft.tensor, draft.tensor.element_count);
    group.load += load_of(draft.tensor, draft.tensor.element_count);
  }
  const std::vector<int> ranks = ranks_in_turn(settings);
  std::optional<PreviousOwners> previous;
  if (settings.previous) previous.emplace(settings);
  for (const bool frozen : {false, true}) {
    Turns turns(ranks, ledger, frozen);
    for (const auto &[unit, group] : groups[frozen]) {
      Cutter cutter(settings, group);
      if (previous) {
        recut_flat(settings, *previous, group.drafts, cutter.share_count(), ledger);
        continue;
      }
      for (Draft *draft : group.drafts) cutter.cut(draft);
      std::vector<Share> shares = cutter.take_shares();
      turns.give(&shares);
    }
  }
}

}  // namespace mxs
