// SPDX-License-Identifier: Apache-2.0
// Turns pieces into one rank's moves.
//
// The tree of a piece says who is above and below a rank; everything else (gather or reduce, keys, messages, slots,
// dependencies) is the same for all algorithms:
//
//   pieces --> this rank's edges, sorted by key --> messages --> flags, slots, dependencies --> ranges joined
#include <algorithm>
#include <cassert>
#include <deque>

#include "base/arithmetic.hpp"
#include "schedule/schedule.hpp"
#include "schedule/trees.hpp"

namespace mxs {

uint64_t small_piece_bytes(const Topology *topology, bool same_node) {
  constexpr uint64_t least = 4096;  // whatever a message costs
  const Topology unmeasured;
  const Topology &known = topology ? *topology : unmeasured;
  const uint64_t overhead_ns = (same_node ? known.local : known.network).overhead_ns;
  return std::max(least, overhead_ns * (known.local.bytes_per_second / 1'000'000) / 1000);
}

uint64_t Schedule::added_bytes(const Move &move) const {
  const bool reduces = options.direction == Direction::reduce || options.direction == Direction::ordered_reduce;
  if (!reduces || move.kind == MoveKind::send) return 0;
  uint64_t bytes = 0;
  for (const Range &range : ranges_of(move)) {
    const bool adds_message = move.kind == MoveKind::receive && !(range.flags & move_copies);
    const auto terms = static_cast<uint64_t>(adds_message + ((range.flags & move_own_before) != 0) +
                                             ((range.flags & move_own_after) != 0) +
                                             ((range.flags & move_into_target) != 0));
    bytes += terms * range.bytes;
  }
  return bytes;
}

namespace {

constexpr uint32_t none = UINT32_MAX;

// One piece between two ranks, seen from one of them.
struct Edge {
  Key key;
  uint32_t piece;
  int32_t peer;
  MoveKind kind;
  Place place;
  uint8_t flags;
  bool sums;
};

class Builder {
 public:
  Builder(const ScheduleOptions &options, const Trees &trees, const std::vector<Piece> &pieces, int rank)
      : options_(options), trees_(trees), pieces_(pieces), rank_(rank), rank_count_(options.layout->rank_count) {
    small_in_node_ = small_piece_bytes(options.topology, true);
    small_between_ = small_piece_bytes(options.topology, false);
    schedule_.options = options;
    schedule_.rank = rank;
    schedule_.rank_count = rank_count_;
  }

  Schedule build() {
    collect();
    std::sort(edges_.begin(), edges_.end(), [](const Edge &a, const Edge &b) { return a.key < b.key; });
    make_messages();
    if (options_.direction == Direction::reduce) give_flags();
    give_slots_and_dependencies();
    join_ranges();
    return std::move(schedule_);
  }

 private:
  // ---- edges ----

  void collect() {
    if (options_.direction == Direction::reduce) receive_counts_.resize(pieces_.size());
    edges_.reserve(2 * pieces_.size());
    for (size_t index = 0; index < pieces_.size(); ++index) {
      piece_ = static_cast<uint32_t>(index);
      switch (options_.direction) {
        case Direction::gather: add_gather(pieces_[index]); break;
        case Direction::reduce: add_reduce(pieces_[index]); break;
        case Direction::ordered_reduce:
          if (options_.algorithm == Algorithm::chain)
            add_ordered_chain(pieces_[index]);
          else
            add_ordered(pieces_[index]);
          break;
        case Direction::reshard: add_reshard(pieces_[index]); break;
      }
    }
  }

  // Ranks and depths stay below 2^20 (rank_count_max), pieces below 2^24.
  Key key(uint64_t time, uint64_t nearness, int source, int target) const {
    const int distance = source <= target ? target - source : target - source + rank_count_;
    return {time, nearness << 44 | static_cast<uint64_t>(distance) << 24 | piece_};
  }

  void add(const Key &key, MoveKind kind, Place place, int peer, bool sums = false, int flags = 0) {
    edges_.push_back({key, piece_, peer, kind, place, static_cast<uint8_t>(flags), sums});
  }

  void add_gather(const Piece &piece) {
    const auto edge_key = [&](int source, int target) {
      return key(trees_.gather_time(piece, target), trees_.depth(piece, target), source, target);
    };
    const int parent = trees_.parent(piece, rank_);
    if (rank_ == piece.owner)
      add(key(piece.round, 0, rank_, rank_), MoveKind::local, Place::target, -1);
    else
      add(edge_key(parent, rank_), MoveKind::receive, Place::target, parent);
    const Place from = rank_ == piece.owner ? Place::source : Place::target;
    trees_.children(piece, rank_, &children_);
    for (const int child : children_) add(edge_key(rank_, child), MoveKind::send, from, child);
  }

  bool is_leaf(const Piece &piece, int rank) {
    trees_.children(piece, rank, &children_of_child_);
    return children_of_child_.empty();
  }

  // Alone in the world.
  void add_own() {
    add(key(pieces_[piece_].round, 0, rank_, rank_), MoveKind::local, Place::target, -1, false,
        move_own_before | (options_.accumulate ? 0 : move_starts));
  }

  // Flags of receives depend on their order, which messages decide: give_flags.
  void add_reduce(const Piece &piece) {
    const bool owns = rank_ == piece.owner;
    const auto edge_key = [&](int child, int parent) {
      return key(trees_.reduce_time(piece, child), trees_.depth(piece, child), child, parent);
    };
    trees_.children(piece, rank_, &children_);
    if (owns && children_.empty()) return add_own();
    const Place sum = !owns || options_.accumulate ? Place::slot : Place::target;
    receive_counts_[piece_] = static_cast<uint32_t>(children_.size());
    for (const int child : children_)
      add(edge_key(child, rank_), MoveKind::receive, sum, child, !is_leaf(piece, child));
    if (owns) return;
    const int parent = trees_.parent(piece, rank_);
    const bool relays = !children_.empty();
    add(edge_key(rank_, parent), MoveKind::send, relays ? Place::slot : Place::source, parent, relays);
  }

  // By a helper. Order of a piece: the accumulator, then rank 0's gradient, rank 1's, ..., then the result.
  void add_ordered(const Piece &piece) {
    const int owner = piece.owner, helper = piece.helper;
    const auto edge_key = [&](int order, int source, int target) {
      const uint64_t steps = static_cast<uint64_t>(rank_count_) + 2;
      return key(piece.round * steps + static_cast<uint64_t>(order), 0, source, target);
    };
    if (rank_ == helper) add_ordered_helper(piece, edge_key);
    if (rank_ == owner && helper != owner) {
      if (options_.accumulate) add(edge_key(0, owner, helper), MoveKind::send, Place::target, helper, true);
      add(edge_key(rank_count_ + 1, helper, owner), MoveKind::receive, Place::target, helper, true, move_copies);
    }
    if (rank_ != helper) add(edge_key(1 + rank_, rank_, helper), MoveKind::send, Place::source, helper);
  }

  template <class EdgeKey>
  void add_ordered_helper(const Piece &piece, EdgeKey &&edge_key) {
    if (rank_count_ == 1) return add_own();
    const int owner = piece.owner;
    const bool apart = rank_ != owner;
    const Place place = apart ? Place::slot : Place::target;
    const size_t first = edges_.size();
    if (apart && options_.accumulate)
      add(edge_key(0, owner, rank_), MoveKind::receive, place, owner, true, move_starts | move_copies);
    for (int term = 0; term < rank_count_; ++term) {
      if (term == rank_) continue;
      const bool is_first = edges_.size() == first;
      int flags = 0;
      if (term == rank_ + 1 && is_first) flags |= move_own_before;  // rank 0 helps: its term comes first
      if (is_first && (apart || !options_.accumulate)) flags |= move_starts;
      add(edge_key(1 + term, term, rank_), MoveKind::receive, place, term, false, flags);
    }
    place_own_term(first);
    if (apart) add(edge_key(rank_count_ + 1, rank_, owner), MoveKind::send, Place::slot, owner, true);
  }

  // Behind the message that comes before this rank's turn, unless it has been put before the first.
  void place_own_term(size_t first) {
    Edge *before = nullptr;
    for (size_t index = first; index < edges_.size(); ++index) {
      Edge &edge = edges_[index];
      if (edge.flags & move_own_before) return;
      if ((edge.flags & move_copies) || edge.peer < rank_) before = &edge;
    }
    if (before) before->flags |= move_own_after;
  }

  // Hop 0 takes the accumulator from the owner to rank 0, hop r + 1 the sum from rank r to rank r + 1, the last hop
  // from the last rank to the owner. What holds the sum may also be the owner's target itself: at rank 0 before, at
  // the last rank after all.
  void add_ordered_chain(const Piece &piece) {
    if (rank_count_ == 1) return add_own();
    const int owner = piece.owner, last = rank_count_ - 1;
    const bool accumulate = options_.accumulate;
    const auto hop_key = [&](int hop, int source, int target) {
      return key(uint64_t{piece.round} + static_cast<uint64_t>(hop), static_cast<uint64_t>(rank_count_ - hop), source,
                 target);
    };
    Place sum = Place::slot;
    if (rank_ == 0) {
      if (!accumulate) {
        sum = Place::source;  // its gradient as it is
      } else if (owner == 0) {
        sum = Place::target;
        add(key(piece.round, 0, 0, 0), MoveKind::local, sum, -1, false, move_own_before);
      } else {
        add(hop_key(0, owner, 0), MoveKind::receive, sum, owner, true, move_starts | move_copies | move_own_after);
      }
    } else {
      const bool raw = rank_ == 1 && !accumulate;
      if (rank_ == last && owner == last) sum = Place::target;
      add(hop_key(rank_, rank_ - 1, rank_), MoveKind::receive, sum, rank_ - 1, !raw,
          move_starts | move_own_after | (raw ? 0 : move_copies));
    }
    if (rank_ == owner && accumulate && owner != 0)
      add(hop_key(0, owner, 0), MoveKind::send, Place::target, 0, true);
    if (rank_ != last)
      add(hop_key(rank_ + 1, rank_, rank_ + 1), MoveKind::send, sum, rank_ + 1, sum != Place::source);
    else if (owner != last)
      add(hop_key(rank_count_, last, owner), MoveKind::send, sum, owner, true);
    if (rank_ == owner && owner != last)
      add(hop_key(rank_count_, last, owner), MoveKind::receive, Place::target, last, true, move_copies);
  }

  void add_reshard(const Piece &piece) {
    const int source = piece.owner, target = piece.helper;
    const Key edge_key = key(piece.round, 0, source, target);
    if (rank_ == source && rank_ == target)
      add(edge_key, MoveKind::local, Place::target, -1);
    else if (rank_ == source)
      add(edge_key, MoveKind::send, Place::source, target);
    else if (rank_ == target)
      add(edge_key, MoveKind::receive, Place::target, source);
  }

  // ---- messages ----

  // Does the edge go with the channel's latest message? Asks for nothing that the two ends may see differently.
  bool joins(const Edge &edge, const Move &message, uint64_t message_time) const {
    const uint64_t bytes = pieces_[edge.piece].bytes, small = small_for(edge.peer);
    return edge.key.time == message_time && edge.sums == message.sums && message.range_count < message_pieces_max &&
           message.bytes + bytes <= options_.chunk_bytes && bytes <= small &&
           (message.range_count > 1 || message.bytes <= small);
  }
  uint64_t small_for(int peer) const {
    return options_.topology && options_.topology->same_node(rank_, peer) ? small_in_node_ : small_between_;
  }

  void make_messages() {
    std::vector<Move> &moves = schedule_.moves;
    std::vector<uint32_t> latest(2 * static_cast<size_t>(rank_count_), none);  // by channel
    std::vector<uint32_t> message_of(edges_.size());
    std::vector<uint64_t> times;  // by message
    moves.reserve(edges_.size());
    times.reserve(edges_.size());
    for (size_t index = 0; index < edges_.size(); ++index) {
      const Edge &edge = edges_[index];
      uint32_t *open = nullptr;
      if (edge.kind != MoveKind::local)
        open = &latest[2 * static_cast<size_t>(edge.peer) + (edge.kind == MoveKind::send)];
      uint32_t message = open ? *open : none;
      if (message == none || !joins(edge, moves[message], times[message])) {
        message = static_cast<uint32_t>(moves.size());
        Move move;
        move.kind = edge.kind;
        move.sums = edge.sums;
        move.peer = edge.peer;
        moves.push_back(move);
        times.push_back(edge.key.time);
        if (open) *open = message;
      }
      ++moves[message].range_count;
      moves[message].bytes += static_cast<uint32_t>(pieces_[edge.piece].bytes);
      message_of[index] = message;
    }
    fill_ranges(message_of);
    for (const Move &move : moves) {
      if (move.kind == MoveKind::local) continue;
      ++schedule_.message_count;
      (move.kind == MoveKind::send ? schedule_.bytes_out : schedule_.bytes_in) += schedule_.message_bytes(move);
    }
  }

  // A range per edge, those of one message side by side.
  void fill_ranges(const std::vector<uint32_t> &message_of) {
    std::vector<uint32_t> next(schedule_.moves.size());
    uint32_t first = 0;
    for (size_t index = 0; index < next.size(); ++index) {
      schedule_.moves[index].first_range = next[index] = first;
      first += schedule_.moves[index].range_count;
    }
    schedule_.ranges.resize(edges_.size());
    for (size_t index = 0; index < edges_.size(); ++index) {
      const Edge &edge = edges_[index];
      const Piece &piece = pieces_[edge.piece];
      Range &range = schedule_.ranges[next[message_of[index]]++];
      range.offset = piece.offset;
      range.packed = piece.packed;
      range.target_packed = piece.target_packed;
      range.bytes = static_cast<uint32_t>(piece.bytes);
      range.piece = edge.piece;
      range.place = edge.place;
      range.flags = edge.flags;
    }
  }

  std::span<Range> ranges_of(const Move &move) {
    return {schedule_.ranges.data() + move.first_range, move.range_count};
  }

  // Reduce: what comes first of a piece begins its sum, with this rank's own gradient; what comes last ends it.
  void give_flags() {
    std::vector<uint32_t> received(pieces_.size());
    for (const Move &move : schedule_.moves) {
      if (move.kind != MoveKind::receive) continue;
      for (Range &range : ranges_of(move)) {
        const uint32_t count = ++received[range.piece];
        if (count == 1) range.flags |= move_starts | move_own_before;
        const bool ends = count == receive_counts_[range.piece];
        if (ends && range.place == Place::slot && pieces_[range.piece].owner == rank_) range.flags |= move_into_target;
      }
    }
  }

  // ---- slots and dependencies ----

  static bool takes_slot(const Range &range) { return range.place == Place::slot && (range.flags & move_starts); }

  // Is the slot free again after this?
  static bool frees_slot(const Move &move, const Range &range) {
    return range.place == Place::slot && (move.kind == MoveKind::send || (range.flags & move_into_target));
  }

  // A message takes all of its slots before it frees any.
  int slots_needed(int *most_per_message) {
    int live = 0, most = 0;
    *most_per_message = 0;
    for (const Move &move : schedule_.moves) {
      int taken = 0, freed = 0;
      for (const Range &range : ranges_of(move)) {
        taken += takes_slot(range);
        freed += frees_slot(move, range);
      }
      most = std::max(most, live + taken);
      *most_per_message = std::max(*most_per_message, taken);
      live += taken - freed;
    }
    return most;
  }

  // By piece: its slot, and the moves that used its places last.
  struct State {
    uint32_t last_of_target = none, last_of_slot = none;
    int slot = -1;
  };
  struct Slot {
    int index;
    uint32_t last_user;
  };

  void give_slots_and_dependencies() {
    states_.resize(pieces_.size());
    int most_per_message = 0;
    const int needed = slots_needed(&most_per_message);
    slot_count_max_ = needed == 0 ? 0 : needed + options_.spare_slots * most_per_message;
    for (uint32_t index = 0; index < schedule_.moves.size(); ++index) {
      Move &move = schedule_.moves[index];
      waits_for_.clear();
      for (Range &range : ranges_of(move)) {
        State &state = states_[range.piece];
        if (takes_slot(range)) take_slot(&state, range);
        if (range.place == Place::slot) range.slot = state.slot;
        use_places(index, move, range, &state);
      }
      for (const Range &range : ranges_of(move))
        if (frees_slot(move, range)) free_.push_back({range.slot, index});
      std::sort(waits_for_.begin(), waits_for_.end());
      waits_for_.erase(std::unique(waits_for_.begin(), waits_for_.end()), waits_for_.end());
      move.first_dependency = static_cast<uint32_t>(schedule_.dependencies.size());
      move.dependency_count = static_cast<uint32_t>(waits_for_.size());
      schedule_.dependencies.insert(schedule_.dependencies.end(), waits_for_.begin(), waits_for_.end());
    }
  }

  void take_slot(State *state, const Range &range) {
    assert(state->last_of_slot == none);
    if (schedule_.slot_count < slot_count_max_) {
      state->slot = schedule_.slot_count++;
    } else {
      state->slot = free_.front().index;
      state->last_of_slot = free_.front().last_user;
      free_.pop_front();
    }
    schedule_.slot_bytes = std::max(schedule_.slot_bytes, align_up(range.bytes / options_.element_bytes * 4, 64));
  }

  void use_places(uint32_t index, const Move &move, const Range &range, State *state) {
    const auto use = [&](uint32_t *last, bool later_ones_wait) {
      if (*last != none) waits_for_.push_back(*last);
      if (later_ones_wait) *last = index;
    };
    const bool sends = move.kind == MoveKind::send;
    if (range.place == Place::slot) use(&state->last_of_slot, true);
    // Of those who only read the target, an accumulator's sender: the result may not be written over it before.
    if (range.place == Place::target) use(&state->last_of_target, !sends || move.sums);
    if (range.flags & move_into_target) use(&state->last_of_target, true);
  }

  // ---- ranges ----

  // Is range.packed used, that is, a position in a buffer of this rank's segments of options.layout?
  bool uses_packed(const Move &move, const Range &range) const {
    switch (options_.direction) {
      case Direction::gather:
      case Direction::reshard: return move.kind == MoveKind::local || range.place == Place::source;
      default: return range.place == Place::target || (range.flags & move_into_target);
    }
  }
  bool uses_target_packed(const Move &move) const {
    return options_.direction == Direction::reshard && move.kind != MoveKind::send;
  }

  bool continues(const Move &move, const Range &before, const Range &range) const {
    return range.place == before.place && range.place != Place::slot && range.flags == before.flags &&
           range.offset == before.offset + before.bytes &&
           (!uses_packed(move, range) || range.packed == before.packed + before.bytes) &&
           (!uses_target_packed(move) || range.target_packed == before.target_packed + before.bytes);
  }

  void join_ranges() {
    std::vector<Range> &ranges = schedule_.ranges;
    uint32_t kept = 0;
    for (Move &move : schedule_.moves) {
      const uint32_t begin = move.first_range, end = begin + move.range_count;
      move.first_range = kept;
      for (uint32_t index = begin; index < end; ++index) {
        if (kept > move.first_range && continues(move, ranges[kept - 1], ranges[index]))
          ranges[kept - 1].bytes += ranges[index].bytes;
        else
          ranges[kept++] = ranges[index];
      }
      move.range_count = static_cast<uint16_t>(kept - move.first_range);
    }
    ranges.resize(kept);
  }

  const ScheduleOptions &options_;
  const Trees &trees_;
  const std::vector<Piece> &pieces_;
  const int rank_, rank_count_;
  uint64_t small_in_node_ = 0, small_between_ = 0;
  Schedule schedule_;
  uint32_t piece_ = 0;
  std::vector<Edge> edges_;
  std::vector<uint32_t> receive_counts_;  // reduce, by piece
  std::vector<int> children_, children_of_child_;
  int slot_count_max_ = 0;
  std::vector<State> states_;
  std::deque<Slot> free_;  // the one that has been free longest is taken first
  std::vector<uint32_t> waits_for_;
};

}  // namespace

Schedule make_schedule(const ScheduleOptions &options, const Trees &trees, const std::vector<Piece> &pieces,
                       int rank) {
  return Builder(options, trees, pieces, rank).build();
}

Schedule make_schedule(const ScheduleOptions &options, const std::vector<Piece> &pieces, int rank) {
  return make_schedule(options, *make_trees(options), pieces, rank);
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
