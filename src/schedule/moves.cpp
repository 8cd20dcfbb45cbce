// SPDX-License-Identifier: Apache-2.0
// Turns pieces into one rank's moves.
//
// The tree of a piece says who is above and below a rank; everything else (gather or reduce, keys, slots,
// dependencies) is the same for all algorithms.
#include <algorithm>
#include <cassert>
#include <deque>

#include "base/arithmetic.hpp"
#include "schedule/schedule.hpp"
#include "schedule/trees.hpp"

namespace mxs {

namespace {

struct Item {
  Key key;
  Move move;
};

// Collects one rank's moves with their keys, sorts them, then gives out slots and dependencies.
class Builder {
 public:
  Builder(const ScheduleOptions &options, const std::vector<Piece> &pieces, int rank)
      : options_(options), pieces_(pieces), trees_(make_trees(options)), rank_(rank),
        rank_count_(options.layout->rank_count) {}

  Schedule build() {
    for (size_t index = 0; index < pieces_.size(); ++index) {
      piece_ = static_cast<uint32_t>(index);
      switch (options_.direction) {
        case Direction::gather: add_gather(pieces_[index]); break;
        case Direction::reduce: add_reduce(pieces_[index]); break;
        case Direction::ordered_reduce: add_ordered(pieces_[index]); break;
        case Direction::reshard: add_reshard(pieces_[index]); break;
      }
    }
    std::sort(items_.begin(), items_.end(), [](const Item &a, const Item &b) { return a.key < b.key; });

    Schedule schedule;
    schedule.options = options_;
    schedule.rank = rank_;
    schedule.rank_count = rank_count_;
    schedule.moves.reserve(items_.size());
    for (const Item &item : items_) {
      schedule.moves.push_back(item.move);
      count(item.move, &schedule);
    }
    give_slots(&schedule);
    return schedule;
  }

 private:
  Key key(uint64_t time, uint64_t nearness, int source, int target) const {
    const int distance = source <= target ? target - source : target - source + rank_count_;
    return {time << 32 | nearness, static_cast<uint64_t>(distance) << 40 | piece_};
  }

  Move move(MoveKind kind, Place place, int peer) const {
    const Piece &piece = pieces_[piece_];
    Move result;
    result.kind = kind;
    result.place = place;
    result.peer = peer;
    result.bytes = static_cast<uint32_t>(piece.bytes);
    result.piece = piece_;
    result.offset = piece.offset;
    result.packed = piece.packed;
    result.target_packed = piece.target_packed;
    return result;
  }

  void add(const Key &key, const Move &move) { items_.push_back({key, move}); }

  void add_gather(const Piece &piece) {
    const auto edge_key = [&](int source, int target) {
      return key(trees_->gather_time(piece, target), trees_->depth(piece, target), source, target);
    };
    const int parent = trees_->parent(piece, rank_);
    if (rank_ == piece.owner)
      add(key(piece.round, 0, rank_, rank_), move(MoveKind::local, Place::target, -1));
    else
      add(edge_key(parent, rank_), move(MoveKind::receive, Place::target, parent));
    const Place from = rank_ == piece.owner ? Place::source : Place::target;
    trees_->children(piece, rank_, &children_);
    for (const int child : children_) add(edge_key(rank_, child), move(MoveKind::send, from, child));
  }

  bool is_leaf(const Piece &piece, int rank) {
    trees_->children(piece, rank, &children_of_child_);
    return children_of_child_.empty();
  }

  void add_reduce(const Piece &piece) {
    const bool owns = rank_ == piece.owner;
    const auto edge_key = [&](int child, int parent) {
      return key(trees_->reduce_time(piece, child), trees_->depth(piece, child), child, parent);
    };
    trees_->children(piece, rank_, &children_);
    if (owns && children_.empty()) {  // alone in the world
      Move own = move(MoveKind::local, Place::target, -1);
      own.flags = static_cast<uint8_t>(move_own_before | (options_.accumulate ? 0 : move_starts));
      add(key(piece.round, 0, rank_, rank_), own);
      return;
    }
    const bool into_slot = !owns || options_.accumulate;
    std::vector<Item> receives;
    for (const int child : children_) {
      Move receive = move(MoveKind::receive, into_slot ? Place::slot : Place::target, child);
      receive.sums = !is_leaf(piece, child);
      receives.push_back({edge_key(child, rank_), receive});
    }
    std::sort(receives.begin(), receives.end(), [](const Item &a, const Item &b) { return a.key < b.key; });
    for (size_t i = 0; i < receives.size(); ++i) {
      if (i == 0) receives[i].move.flags |= move_starts | move_own_before;
      if (i + 1 == receives.size() && owns && into_slot) receives[i].move.flags |= move_into_target;
      items_.push_back(receives[i]);
    }
    if (owns) return;
    const int parent = trees_->parent(piece, rank_);
    Move send = move(MoveKind::send, receives.empty() ? Place::source : Place::slot, parent);
    send.sums = !receives.empty();
    add(edge_key(rank_, parent), send);
  }

  // Times of a piece: the accumulator, then rank 0's gradient, rank 1's, ..., then the result.
  void add_ordered(const Piece &piece) {
    const int owner = piece.owner, helper = piece.helper;
    const auto edge_key = [&](int order, int source, int target) {
      return key(piece.round, static_cast<uint64_t>(order), source, target);
    };
    const bool apart = helper != owner;
    if (rank_ == helper) add_ordered_helper(piece, edge_key);
    if (rank_ == owner && apart) {
      if (options_.accumulate) {
        Move accumulator = move(MoveKind::send, Place::target, helper);
        accumulator.sums = true;
        add(edge_key(0, owner, helper), accumulator);
      }
      Move result = move(MoveKind::receive, Place::target, helper);
      result.sums = true;
      result.flags = move_copies;
      add(edge_key(rank_count_ + 1, helper, owner), result);
    }
    if (rank_ != helper) add(edge_key(1 + rank_, rank_, helper), move(MoveKind::send, Place::source, helper));
  }

  template <class EdgeKey>
  void add_ordered_helper(const Piece &piece, EdgeKey &&edge_key) {
    const int owner = piece.owner;
    const bool apart = rank_ != owner;
    const Place place = apart ? Place::slot : Place::target;
    std::vector<Item> terms;
    if (apart && options_.accumulate) {
      Move accumulator = move(MoveKind::receive, place, owner);
      accumulator.sums = true;
      accumulator.flags = move_starts | move_copies;
      terms.push_back({edge_key(0, owner, rank_), accumulator});
    }
    for (int term = 0; term < rank_count_; ++term) {
      if (term == rank_) continue;
      Move gradient = move(MoveKind::receive, place, term);
      if (term == rank_ + 1 && terms.empty()) gradient.flags |= move_own_before;  // rank 0 helps: its term is first
      if (terms.empty() && (apart || !options_.accumulate)) gradient.flags |= move_starts;
      terms.push_back({edge_key(1 + term, term, rank_), gradient});
    }
    place_own_term(&terms);
    if (terms.empty()) {  // alone in the world
      Move own = move(MoveKind::local, Place::target, -1);
      own.flags = static_cast<uint8_t>(move_own_before | (options_.accumulate ? 0 : move_starts));
      add(edge_key(0, rank_, rank_), own);
    }
    items_.insert(items_.end(), terms.begin(), terms.end());
    if (!apart) return;
    Move result = move(MoveKind::send, Place::slot, owner);
    result.sums = true;
    add(edge_key(rank_count_ + 1, rank_, owner), result);
  }

  // Behind the message that comes before this rank's turn, unless it has been put before the first.
  void place_own_term(std::vector<Item> *terms) const {
    Item *before = nullptr;
    for (Item &term : *terms) {
      if (term.move.flags & move_own_before) return;
      if ((term.move.flags & move_copies) || term.move.peer < rank_) before = &term;
    }
    if (before) before->move.flags |= move_own_after;
  }

  void add_reshard(const Piece &piece) {
    const int source = piece.owner, target = piece.helper;
    if (rank_ == source && rank_ == target)
      add(key(piece.round, 0, source, target), move(MoveKind::local, Place::target, -1));
    else if (rank_ == source)
      add(key(piece.round, 0, source, target), move(MoveKind::send, Place::source, target));
    else if (rank_ == target)
      add(key(piece.round, 0, source, target), move(MoveKind::receive, Place::target, source));
  }

  static void count(const Move &move, Schedule *schedule) {
    if (move.kind == MoveKind::local) return;
    ++schedule->message_count;
    (move.kind == MoveKind::send ? schedule->bytes_out : schedule->bytes_in) += schedule->message_bytes(move);
  }

  // The move after which a slot that this move uses is free again?
  static bool frees_slot(const Move &move) {
    return move.place == Place::slot && (move.kind == MoveKind::send || (move.flags & move_into_target));
  }

  int slots_needed() const {
    int live = 0, most = 0;
    for (const Item &item : items_) {
      if (item.move.place == Place::slot && (item.move.flags & move_starts)) most = std::max(most, ++live);
      if (frees_slot(item.move)) --live;
    }
    return most;
  }

  void give_slots(Schedule *schedule) const {
    constexpr uint32_t none = UINT32_MAX;
    struct State {
      uint32_t last = none;  // the move that brought the latest bytes of the piece, or still reads them
      int slot = -1;
    };
    struct Slot {
      int index;
      uint32_t last_user;
    };
    std::vector<State> states(pieces_.size());
    std::deque<Slot> free;  // the one that has been free longest is taken first
    uint64_t slot_bytes = 0;
    int made = 0;
    const int needed = slots_needed();
    const int slot_count = needed == 0 ? 0 : needed + options_.spare_slots;
    for (uint32_t index = 0; index < schedule->moves.size(); ++index) {
      Move &move = schedule->moves[index];
      State &state = states[move.piece];
      uint32_t waits_for = state.last;
      if (move.place == Place::slot && (move.flags & move_starts)) {
        assert(waits_for == none);
        if (made < slot_count) {
          state.slot = made++;
        } else {
          state.slot = free.front().index;
          waits_for = free.front().last_user;
          free.pop_front();
        }
        slot_bytes = std::max(slot_bytes, align_up(move.bytes / options_.element_bytes * 4, 64));
      }
      // Ordered: the result may not be written over the accumulator before that has been sent.
      const bool reads_target = move.kind == MoveKind::send && move.place == Place::target && move.sums;
      if (move.kind == MoveKind::receive || reads_target) state.last = index;
      if (move.place == Place::slot) move.slot = state.slot;
      if (frees_slot(move)) free.push_back({state.slot, index});
      const bool reads_source = move.kind == MoveKind::send && move.place == Place::source;
      if (waits_for != none && !reads_target && !reads_source) {
        move.first_dependency = static_cast<uint32_t>(schedule->dependencies.size());
        move.dependency_count = 1;
        schedule->dependencies.push_back(waits_for);
      }
    }
    schedule->slot_count = made;
    schedule->slot_bytes = slot_bytes;
  }

  const ScheduleOptions &options_;
  const std::vector<Piece> &pieces_;
  const std::unique_ptr<Trees> trees_;
  const int rank_, rank_count_;
  uint32_t piece_ = 0;
  std::vector<int> children_, children_of_child_;
  std::vector<Item> items_;
};

}  // namespace

Schedule make_schedule(const ScheduleOptions &options, const std::vector<Piece> &pieces, int rank) {
  return Builder(options, pieces, rank).build();
}

uint64_t bytes_in_least(const ScheduleOptions &options, int rank) {
  const Layout &layout = *options.layout;
  uint64_t total = 0;
  for (const Segment &segment : layout.segments) total += segment.bytes;
  const uint64_t owned = layout.owned_bytes(rank);
  switch (options.direction) {
    case Direction::gather: return total - owned;
    case Direction::reduce:
    case Direction::ordered_reduce: {
      // Either one finished sum, or every gradient by itself.
      const uint64_t others = static_cast<uint64_t>(layout.rank_count) - 1;
      return std::min(owned / options.element_bytes * 4, others * owned) * (others > 0);
    }
    case Direction::reshard: break;
  }
  std::vector<LayoutMove> moves;
  uint64_t bytes = 0;
  if (layout_moves(layout, *options.target_layout, &moves) != MXS_OK) return 0;
  for (const LayoutMove &move : moves)
    if (move.target_rank == rank && move.source_rank != rank) bytes += move.bytes;
  return bytes;
}

}  // namespace mxs
