// SPDX-License-Identifier: Apache-2.0
// Re-planning from another plan's owners.
//
//   before, 4 ranks   | 0 0 0 | 1 1 1 | 2 2 2 | 3 3 3 |
//   after, 3 ranks    | 0 0 0 | 1 1 1 | 2 2 2 | 0 1 2 |      a fresh cut would move half of it, this moves a quarter
//
// A flat tensor is cut where its owners were; a rank that has more than its share gives up the end of what it has. That
// makes more pieces than a fresh cut has, and plans made from plans have ever more: plan anew when that shows.
#include "plan/previous.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/dtype.hpp"

namespace mxs {
namespace {

struct Part {
  Draft *draft;
  uint64_t begin, end;
  int owner;
};

uint64_t element_load(const PlannedTensor &tensor) { return owned_bytes(tensor, {1}, 1); }

// A rank may keep so much more than an even share: no step waits for it, and chunks are never quite even.
uint64_t tolerated(uint64_t quota) { return quota / 32; }

class Recut {
 public:
  Recut(const PlanSettings &settings, const std::vector<Draft *> &drafts, uint64_t share_count, Ledger *ledger)
      : settings_(settings), ledger_(*ledger), held_(static_cast<size_t>(settings.rank_count), 0) {
    uint64_t load = 0;
    for (const Draft *draft : drafts) load += element_load(draft->tensor) * draft->tensor.element_count;
    quota_ = load / share_count + 1;
  }

  // Borders of runs move to where the tensor may be cut.
  void keep(const PreviousOwners &previous, Draft *draft) {
    const uint64_t chunk = flat_chunk_elements(draft->tensor, settings_);
    uint64_t begin = 0;
    for (const PreviousRun &run : previous.runs_of(draft->tensor)) {
      const bool is_last = run.end == draft->tensor.element_count;
      const uint64_t near = std::min(align_down(run.end + chunk / 2, chunk), draft->tensor.element_count);
      const uint64_t end = std::max(is_last ? run.end : near, begin);
      if (end > begin || (is_last && begin == 0)) keep_part({draft, begin, end, run.owner}, previous);
      begin = end;
    }
  }

  void hand_out() {
    for (int rank = 0; rank < settings_.rank_count; ++rank) order_.insert(key(rank));
    for (Part part : pool_)
      while (part.begin < part.end || part.owner < 0) {
        const int rank = std::get<3>(*order_.begin());
        order_.erase(order_.begin());
        const uint64_t load = element_load(part.draft->tensor);
        const uint64_t held = held_[static_cast<size_t>(rank)];
        const uint64_t end = cut_near(part, quota_ > held ? (quota_ - held) / load : 0);
        take({part.draft, part.begin, end, rank});
        order_.insert(key(rank));
        part.begin = end;
        part.owner = rank;
      }
  }

  void write(const std::vector<Draft *> &drafts) {
    for (Draft *draft : drafts) {
      std::vector<Part> &parts = parts_[draft];
      std::sort(parts.begin(), parts.end(), [](const Part &a, const Part &b) { return a.begin < b.begin; });
      const Placement whole = draft->pieces[0];
      draft->pieces.clear();
      for (const Part &part : parts) {
        if (!draft->pieces.empty() && draft->pieces.back().owner == part.owner)
          grow(&draft->pieces.back(), part.end);
        else
          draft->pieces.push_back(piece_of(whole, part, draft->pieces.size()));
      }
    }
  }

 private:
  static Placement piece_of(const Placement &whole, const Part &part, size_t number) {
    Placement piece = whole;
    piece.block = static_cast<int>(number);
    piece.owner = part.owner;
    piece.element_offset = part.begin;
    piece.element_count = 0;
    grow(&piece, part.end);
    return piece;
  }
  static void grow(Placement *piece, uint64_t end) {
    piece->element_count = end - piece->element_offset;
    piece->shape = {static_cast<int64_t>(piece->element_count)};
  }

  // The elements that one share has at the least.
  uint64_t least_elements(const PlannedTensor &tensor) const {
    const uint64_t chunk = flat_chunk_elements(tensor, settings_);
    const uint64_t bytes = std::max(settings_.flat_bytes, settings_.alignment);
    return align_up(divide_up(std::min(bytes, bytes_max), dtype_bytes(tensor.dtype)), chunk);
  }

  // Where to end what begins with the part and wants so many elements: neither it nor the rest is less than the least.
  uint64_t cut_near(const Part &part, uint64_t wanted) const {
    const uint64_t chunk = flat_chunk_elements(part.draft->tensor, settings_);
    const uint64_t least = least_elements(part.draft->tensor), count = part.end - part.begin;
    const uint64_t taken = std::max(align_up(std::min(wanted, count), chunk), least);
    return count < least || taken >= count - std::min(least, count) ? part.end : part.begin + taken;
  }

  void keep_part(const Part &part, const PreviousOwners &previous) {
    if (part.owner < 0) {
      pool_.push_back(part);
      return;
    }
    const uint64_t load = element_load(part.draft->tensor), held = held_[static_cast<size_t>(part.owner)];
    const uint64_t allowed = quota_ + tolerated(quota_);
    const bool fits = held + load * (part.end - part.begin) <= allowed;
    const uint64_t room = held < quota_ ? (quota_ - held) / load : 0;
    const uint64_t end = fits || previous.same_world() ? part.end : room == 0 ? part.begin : cut_near(part, room);
    if (end > part.begin || part.begin == part.end) take({part.draft, part.begin, end, part.owner});
    if (end < part.end) pool_.push_back({part.draft, end, part.end, -1});
  }

  void take(const Part &part) {
    const PlannedTensor &tensor = part.draft->tensor;
    Placement piece = piece_of(Placement(), part, 0);
    const uint64_t load = element_load(tensor) * piece.element_count;
    held_[static_cast<size_t>(part.owner)] += load;
    ledger_.add(part.owner, piece_cost(settings_, tensor, piece), load);
    parts_[part.draft].push_back(part);
  }

  using Key = std::tuple<uint64_t, uint64_t, uint64_t, int>;
  Key key(int rank) const {
    const Load &load = ledger_.of(rank);
    return {held_[static_cast<size_t>(rank)], load.cost, load.bytes, rank};
  }

  const PlanSettings &settings_;
  Ledger &ledger_;
  uint64_t quota_ = 0;
  std::vector<uint64_t> held_;  // of these tensors, by rank
  std::vector<Part> pool_;
  std::map<Draft *, std::vector<Part>> parts_;  // looked up only: their order is that of `drafts`
  std::set<Key> order_;
};

}  // namespace

PreviousOwners::PreviousOwners(const PlanSettings &settings)
    : previous_(*settings.previous), rank_now_(settings.rank_now), rank_count_(settings.rank_count) {
  for (const PlannedTensor &tensor : previous_.tensors) tensor_of_name_.emplace(tensor.name, &tensor);
}

bool PreviousOwners::same_world() const {
  return static_cast<int>(rank_now_.size()) == rank_count_ &&
         std::none_of(rank_now_.begin(), rank_now_.end(), [](int rank) { return rank < 0; });
}

const PlannedTensor *PreviousOwners::find(const PlannedTensor &tensor) const {
  const auto found = tensor_of_name_.find(tensor.name);
  return found != tensor_of_name_.end() && found->second->shape == tensor.shape ? found->second : nullptr;
}

std::vector<PreviousRun> PreviousOwners::runs_of(const PlannedTensor &tensor) const {
  std::vector<PreviousRun> runs;
  const PlannedTensor *old = find(tensor);
  for (uint64_t number = 0; old && number < old->placement_count; ++number) {
    const Placement &piece = previous_.placements[old->placement_index + number];
    const int owner = rank_now_[static_cast<size_t>(piece.owner)];
    if (runs.empty() || runs.back().owner != owner) runs.push_back({piece.element_offset, piece.element_offset, owner});
    runs.back().end = piece.element_offset + piece.element_count;
  }
  if (runs.empty()) runs.push_back({0, tensor.element_count, -1});
  return runs;
}

int PreviousOwners::owner_of(const PlannedTensor &tensor, uint64_t offset, uint64_t element_count) const {
  const PlannedTensor *old = find(tensor);
  if (!old) return -1;
  const auto first = previous_.placements.begin() + static_cast<ptrdiff_t>(old->placement_index);
  const auto last = first + static_cast<ptrdiff_t>(old->placement_count);
  const uint64_t stop = offset + element_count;
  // Those of no elements count, too: an empty matrix stays where it was.
  auto piece = std::partition_point(first, last, [offset](const Placement &one) {
    return one.element_offset + one.element_count < offset;
  });
  std::map<int, uint64_t> elements_of_rank;
  for (; piece != last && piece->element_offset <= stop; ++piece)
    if (const int rank = rank_now_[static_cast<size_t>(piece->owner)]; rank >= 0)
      elements_of_rank[rank] += std::min(piece->element_offset + piece->element_count, stop) -
                                std::min(std::max(piece->element_offset, offset), stop);
  int owner = -1;
  uint64_t most = 0;
  for (const auto &[rank, elements] : elements_of_rank)
    if ((elements > 0 || element_count == 0) && (owner < 0 || elements > most)) owner = rank, most = elements;
  return owner;
}

void recut_flat(const PlanSettings &settings, const PreviousOwners &previous, const std::vector<Draft *> &drafts,
                uint64_t share_count, Ledger *ledger) {
  Recut recut(settings, drafts, share_count, ledger);
  for (Draft *draft : drafts) recut.keep(previous, draft);
  recut.hand_out();
  recut.write(drafts);
}

void note_previous(const PlanSettings &settings, std::vector<Draft> *drafts, const std::vector<Item *> &items) {
  const PreviousOwners previous(settings);
  for (size_t index = 0; index < drafts->size(); ++index)
    for (Placement &piece : (*drafts)[index].pieces) piece.tensor = static_cast<int>(index);
  for (Item *item : items) {
    std::map<int, uint64_t> bytes_of_rank;
    for (const Placement *piece : item->pieces) {
      const PlannedTensor &tensor = (*drafts)[static_cast<size_t>(piece->tensor)].tensor;
      const int owner = previous.owner_of(tensor, piece->element_offset, piece->element_count);
      if (owner >= 0) bytes_of_rank[owner] += weight_bytes(tensor, piece->element_count);
    }
    uint64_t most = 0;
    for (const auto &[rank, bytes] : bytes_of_rank)
      if (item->previous_owner < 0 || bytes > most) item->previous_owner = rank, most = bytes;
  }
}

bool start_from_previous(const std::vector<Item *> &items, const Ledger &given) {
  Ledger ledger = given;
  std::vector<Item *> rest;
  for (Item *item : items) {
    if (item->previous_owner < 0 || !ledger.fits(item->previous_owner, item->bytes)) {
      rest.push_back(item);
      continue;
    }
    item->owner = item->previous_owner;
    ledger.add(item->owner, item->cost, item->bytes);
  }
  Ledger by_bytes = ledger;
  return start_by_cost(rest, &ledger) || start_by_bytes(rest, &by_bytes);
}

}  // namespace mxs
