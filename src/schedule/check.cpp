// SPDX-License-Identifier: Apache-2.0
// The checker: runs a whole world's schedules on paper and complains about the first thing that is wrong.
//
// What it proves is bytes, not pieces: all ranges of all moves and segments cut the buffer into intervals, and for
// every interval it knows what each place of each rank holds:
//
//   gather, reshard   how often the bytes have arrived
//   reduce            which gradients have been added, as a sum of random 64-bit weights, one per rank, and a count;
//                     for the ordered one also a hash of the order
//
// That two moves of one rank never meet on the same bytes unordered is proved apart, from the dependencies alone, so
// it holds for every timing. The run itself needs only one timing: nothing in it is a choice, so if one timing comes
// to the end, all do.
#include <algorithm>
#include <map>

#include "base/hash.hpp"
#include "schedule/schedule.hpp"

namespace mxs {

namespace {

// A sentence of texts and numbers, side by side.
inline std::string in_words(const char *text) { return text; }
inline std::string in_words(uint64_t number) { return std::to_string(number); }
inline std::string in_words(int number) { return std::to_string(number); }
inline std::string in_words(uint32_t number) { return std::to_string(number); }

template <class... Parts>
std::string words(const Parts &...parts) {
  return (in_words(parts) + ...);
}

uint64_t mixed(uint64_t a, uint64_t b) { return hash_bytes(&b, sizeof b, a); }
uint64_t weight_of(int rank) { return mixed(0x9e3779b97f4a7c15u, static_cast<uint64_t>(rank)); }
constexpr uint64_t accumulator_order = 0x51ed270b7a3f29c5u;

// What one place holds for one interval.
struct Content {
  bool valid = false;
  bool accumulator = false;  // reduce: what the target held at first is in it
  uint32_t count = 0;        // gather: arrivals. Reduce: gradients added
  uint64_t weights = 0;
  uint64_t order = 0;

  void add(const Content &other) {
    accumulator |= other.accumulator;
    count += other.count;
    weights += other.weights;
    order = mixed(order, other.order);
  }
};

Content gradient_of(int rank) {
  return {true, false, 1, weight_of(rank), static_cast<uint64_t>(rank) + 1};
}

// The moves of one channel, at one end.
struct End {
  std::vector<uint32_t> moves;
  size_t posted = 0, done = 0;
};

struct RankState {
  std::vector<bool> done;
  std::map<int, End> out, in;                  // by peer
  std::vector<Content> target;                 // by interval
  std::vector<std::vector<Content>> slots;     // by slot: the intervals of the piece in it
  std::vector<uint64_t> slot_offsets;          // of that piece
  std::vector<uint32_t> locals;
  size_t locals_done = 0;
};

// Neighbours with one owner lie side by side in its packed buffer as well: a move of a reshard may span them.
Layout joined(const Layout &layout) {
  Layout result = layout;
  result.segments.clear();
  for (const Segment &segment : layout.segments) {
    if (segment.bytes == 0) continue;
    if (!result.segments.empty() && result.segments.back().owner == segment.owner)
      result.segments.back().bytes += segment.bytes;
    else
      result.segments.push_back(segment);
  }
  return result;
}

class Checker {
 public:
  Checker(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules, int window)
      : schedules_(schedules), window_(static_cast<size_t>(window)),
        direction_(schedules.empty() ? Direction::gather : schedules[0].options.direction) {
    layout_ = direction_ == Direction::reshard ? joined(layout) : layout;
    if (direction_ == Direction::reshard) target_layout_ = joined(*target_layout);
  }

  std::string run() {
    if (schedules_.size() != static_cast<size_t>(layout_.rank_count))
      return words(schedules_.size(), " schedules for ", layout_.rank_count, " ranks");
    cut_intervals();
    states_.resize(schedules_.size());
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      const std::string complaint = check_moves(schedules_[rank]);
      if (!complaint.empty()) return complaint;
      prepare(schedules_[rank], &states_[rank]);
    }
    std::string complaint = check_channels();
    for (size_t rank = 0; rank < schedules_.size() && complaint.empty(); ++rank)
      complaint = check_hazards(schedules_[rank], states_[rank]);
    if (complaint.empty()) complaint = simulate();
    if (complaint.empty()) complaint = check_results();
    return complaint;
  }

 private:
  bool reduces() const { return direction_ == Direction::reduce || direction_ == Direction::ordered_reduce; }

  void cut_intervals() {
    cuts_.push_back(0);
    for (const Layout *layout : {&layout_, &target_layout_})
      for (const Segment &segment : layout->segments) {
        cuts_.push_back(segment.offset);
        cuts_.push_back(segment.offset + segment.bytes);
      }
    for (const Schedule &schedule : schedules_)
      for (const Move &move : schedule.moves) {
        cuts_.push_back(move.offset);
        cuts_.push_back(move.offset + move.bytes);
      }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }

  // The interval that begins at an offset that is a cut.
  size_t interval(uint64_t offset) const {
    return static_cast<size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), offset) - cuts_.begin());
  }
  size_t interval_count() const { return cuts_.size() - 1; }

  // The segment that holds a whole range, and how many bytes of its owner's come before it. nullptr: none does.
  static const Segment *segment_of(const Layout &layout, uint64_t offset, uint64_t bytes, uint64_t *packed) {
    const auto after = std::upper_bound(layout.segments.begin(), layout.segments.end(), offset,
                                        [](uint64_t value, const Segment &s) { return value < s.offset; });
    for (auto segment = after; segment != layout.segments.begin();) {
      --segment;
      if (segment->bytes == 0) continue;
      if (offset + bytes > segment->offset + segment->bytes) return nullptr;
      *packed = offset - segment->offset;
      for (auto before = layout.segments.begin(); before != segment; ++before)
        if (before->owner == segment->owner) *packed += before->bytes;
      return &*segment;
    }
    return nullptr;
  }

  // Does this move use the packed position in the layout's own buffer of its rank?
  bool uses_packed(const Move &move) const {
    if (reduces()) return move.place == Place::target || (move.flags & move_into_target);
    return move.kind == MoveKind::local || (move.kind == MoveKind::send && move.place == Place::source);
  }

  std::string check_moves(const Schedule &schedule) const {
    for (size_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      const std::string where = words("rank ", schedule.rank, ", move ", index, " (offset ", move.offset, ", ",
                                      move.bytes, " bytes)");
      for (int d = 0; d < move.dependency_count; ++d)
        if (schedule.dependencies[move.first_dependency + static_cast<size_t>(d)] >= index)
          return where + " waits for a later move";
      if (move.bytes == 0) return where + " is empty";
      uint64_t packed = 0;
      const Segment *segment = segment_of(layout_, move.offset, move.bytes, &packed);
      if (!segment) return where + " straddles segments or touches a gap";
      const uint32_t element_bytes = schedule.options.element_bytes;
      if (move.bytes % element_bytes || (move.offset - segment->offset) % element_bytes)
        return where + " cuts an element";
      if (uses_packed(move)) {
        if (segment->owner != schedule.rank) return where + " uses a packed buffer that another rank has";
        if (move.packed != packed) return where + " is at a wrong place of the packed buffer";
      }
      if (direction_ == Direction::reshard && move.kind != MoveKind::send) {
        const Segment *to = segment_of(target_layout_, move.offset, move.bytes, &packed);
        if (!to) return where + " straddles segments of the target layout";
        if (to->owner != schedule.rank) return where + " brings what another rank is to have";
        if (move.target_packed != packed) return where + " is at a wrong place of the packed target";
      }
      if (move.place == Place::slot) {
        if (move.slot < 0 || move.slot >= schedule.slot_count) return where + " has no slot";
        if (move.bytes / schedule.options.element_bytes * 4 > schedule.slot_bytes) return where + " exceeds its slot";
      }
      if (move.kind != MoveKind::local && (move.peer < 0 || move.peer >= schedule.rank_count ||
                                           move.peer == schedule.rank))
        return where + " has no peer";
      if (move.kind == MoveKind::send && move.sums != (move.place != Place::source && reduces()))
        return where + " sends the wrong kind of elements";
    }
    return "";
  }

  void prepare(const Schedule &schedule, RankState *state) const {
    state->done.resize(schedule.moves.size());
    state->target.resize(interval_count());
    state->slots.resize(static_cast<size_t>(schedule.slot_count));
    state->slot_offsets.resize(state->slots.size());
    for (uint32_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      if (move.kind == MoveKind::local)
        state->locals.push_back(index);
      else
        (move.kind == MoveKind::send ? state->out : state->in)[move.peer].moves.push_back(index);
    }
    if (!schedule.options.accumulate || !reduces()) return;
    for (const Segment &segment : layout_.segments)
      if (segment.owner == schedule.rank)
        for (size_t i = interval(segment.offset); cuts_[i] < segment.offset + segment.bytes; ++i)
          state->target[i] = {true, true, 0, 0, accumulator_order};
  }

  std::string check_channels() const {
    for (const Schedule &schedule : schedules_)
      for (const auto &[peer, out] : states_[static_cast<size_t>(schedule.rank)].out) {
        const Schedule &other = schedules_[static_cast<size_t>(peer)];
        const auto found = states_[static_cast<size_t>(peer)].in.find(schedule.rank);
        const size_t received = found == states_[static_cast<size_t>(peer)].in.end() ? 0 : found->second.moves.size();
        if (received != out.moves.size())
          return words("rank ", schedule.rank, " sends ", out.moves.size(), " messages to rank ", peer,
                       ", which receives ", received);
        for (size_t i = 0; i < received; ++i) {
          const Move &send = schedule.moves[out.moves[i]], &receive = other.moves[found->second.moves[i]];
          if (send.offset != receive.offset || send.bytes != receive.bytes || send.sums != receive.sums)
            return words("message ", i, " from rank ", schedule.rank, " to rank ", peer, ": offset ",
                         send.offset, ", ", send.bytes, " bytes sent, offset ", receive.offset, ", ",
                         receive.bytes, " received");
        }
      }
    for (const Schedule &schedule : schedules_)
      for (const auto &[peer, in] : states_[static_cast<size_t>(schedule.rank)].in)
        if (!states_[static_cast<size_t>(peer)].out.count(schedule.rank))
          return words("rank ", schedule.rank, " receives ", in.moves.size(), " messages of rank ", peer,
                       ", which sends none");
    return "";
  }

  // ---- hazards ----

  struct Access {
    uint32_t move;
    bool writes;
  };

  // Is `earlier` certainly done when `later` starts?
  static bool ordered(const Schedule &schedule, const std::vector<uint32_t> &before_on_channel, uint32_t earlier,
                      uint32_t later) {
    std::vector<uint32_t> done;
    const auto add_causes = [&](uint32_t index, bool with_channel) {
      const Move &move = schedule.moves[index];
      for (int d = 0; d < move.dependency_count; ++d)
        done.push_back(schedule.dependencies[move.first_dependency + static_cast<size_t>(d)]);
      if (with_channel && before_on_channel[index] != UINT32_MAX) done.push_back(before_on_channel[index]);
    };
    // A receive starts when the one before it on its channel is done; a send only completes after the one before it.
    add_causes(later, schedule.moves[later].kind == MoveKind::receive);
    std::vector<bool> seen(later + 1);
    while (!done.empty()) {
      const uint32_t index = done.back();
      done.pop_back();
      if (index == earlier) return true;
      if (index < earlier || seen[index]) continue;
      seen[index] = true;
      add_causes(index, true);
    }
    return false;
  }

  void collect(const Schedule &schedule, std::map<std::pair<int, size_t>, std::vector<Access>> *accesses) const {
    for (uint32_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      const auto touch = [&](int place, bool writes) {
        for (size_t i = interval(move.offset); cuts_[i] < move.offset + move.bytes; ++i)
          (*accesses)[{place, i}].push_back({index, writes});
      };
      if (move.place == Place::slot)
        (*accesses)[{1 + move.slot, 0}].push_back({index, move.kind != MoveKind::send});
      // Gather: the owner's sends read the source, or in place the target, which nobody may write.
      if (move.place == Place::target) touch(0, move.kind != MoveKind::send);
      if (move.flags & move_into_target) touch(0, true);
    }
  }

  std::string check_hazards(const Schedule &schedule, const RankState &state) const {
    std::vector<uint32_t> before_on_channel(schedule.moves.size(), UINT32_MAX);
    for (const auto *ends : {&state.out, &state.in})
      for (const auto &[peer, end] : *ends)
        for (size_t i = 1; i < end.moves.size(); ++i) before_on_channel[end.moves[i]] = end.moves[i - 1];
    std::map<std::pair<int, size_t>, std::vector<Access>> accesses;
    collect(schedule, &accesses);
    for (const auto &[place, list] : accesses) {
      size_t last_write = list.size();
      for (size_t i = 0; i < list.size(); ++i) {
        const size_t from = last_write == list.size() ? 0 : last_write;
        for (size_t j = from; j < i; ++j) {
          if (!list[i].writes && !list[j].writes) continue;
          if (!ordered(schedule, before_on_channel, list[j].move, list[i].move))
            return words("rank ", schedule.rank, ": moves ", list[j].move, " and ", list[i].move, " both use ",
                         place.first ? "slot " : "the target, interval ",
                         place.first ? static_cast<size_t>(place.first - 1) : place.second,
                         " and neither waits for the other");
        }
        if (list[i].writes) last_write = i;
      }
    }
    return "";
  }

  // ---- the run ----

  bool ready(const Schedule &schedule, const RankState &state, const Move &move) const {
    for (int d = 0; d < move.dependency_count; ++d)
      if (!state.done[schedule.dependencies[move.first_dependency + static_cast<size_t>(d)]]) return false;
    return true;
  }

  // What a send carries, one entry per interval.
  std::string read_message(int rank, const Move &move, std::vector<Content> *message) {
    RankState &state = states_[static_cast<size_t>(rank)];
    const size_t first = interval(move.offset), last = interval(move.offset + move.bytes);
    for (size_t i = first; i < last; ++i) {
      Content content;
      if (move.place == Place::source)
        content = reduces() ? gradient_of(rank) : Content{true, false, 1, 0, 0};
      else if (move.place == Place::target)
        content = state.target[i];
      else if (state.slot_offsets[static_cast<size_t>(move.slot)] == move.offset &&
               i - first < state.slots[static_cast<size_t>(move.slot)].size())
        content = state.slots[static_cast<size_t>(move.slot)][i - first];
      if (!content.valid)
        return words("rank ", rank, " sends offset ", cuts_[i], " to rank ", move.peer, " before it is there");
      message->push_back(content);
    }
    return "";
  }

  // The contents that a receive or local move works on.
  Content *place_of(RankState *state, const Move &move) const {
    const size_t first = interval(move.offset), last = interval(move.offset + move.bytes);
    if (move.place != Place::slot) return &state->target[first];
    std::vector<Content> &slot = state->slots[static_cast<size_t>(move.slot)];
    uint64_t &offset = state->slot_offsets[static_cast<size_t>(move.slot)];
    if (move.flags & move_starts) {
      slot.assign(last - first, Content());
      offset = move.offset;
    }
    return offset == move.offset && slot.size() == last - first ? slot.data() : nullptr;
  }

  // A move of a reduce, in the order of its flags. message: nullptr for a local one.
  std::string add_terms(int rank, const Move &move, const std::vector<Content> *message) {
    RankState &state = states_[static_cast<size_t>(rank)];
    const size_t first = interval(move.offset), count = interval(move.offset + move.bytes) - first;
    Content *place = place_of(&state, move);
    if (!place) return words("rank ", rank, ": slot ", move.slot, " does not hold offset ", move.offset);
    for (size_t i = 0; i < count; ++i) {
      Content &content = place[i];
      if (move.flags & move_starts) content = Content{true, false, 0, 0, 0};
      if ((move.flags & move_copies) && message) content = Content{true, false, 0, 0, 0};
      if (!content.valid)
        return words("rank ", rank, " adds to offset ", cuts_[first + i], ", where nothing is");
      if (move.flags & move_own_before) content.add(gradient_of(rank));
      if (message && (move.flags & move_copies))
        content = (*message)[i];
      else if (message)
        content.add((*message)[i]);
      if (move.flags & move_own_after) content.add(gradient_of(rank));
      if (move.flags & move_into_target) {
        Content &target = state.target[first + i];
        if (!target.valid) return words("rank ", rank, " accumulates onto nothing");
        target.add(content);
      }
    }
    return "";
  }

  std::string arrive(int rank, const Move &move, const std::vector<Content> *message) {
    if (reduces()) return add_terms(rank, move, message);
    Content *place = place_of(&states_[static_cast<size_t>(rank)], move);
    const size_t count = interval(move.offset + move.bytes) - interval(move.offset);
    for (size_t i = 0; i < count; ++i) {
      place[i].valid = true;
      ++place[i].count;
    }
    return "";
  }

  std::string advance(int rank, bool *moved) {
    const Schedule &schedule = schedules_[static_cast<size_t>(rank)];
    RankState &state = states_[static_cast<size_t>(rank)];
    for (; state.locals_done < state.locals.size(); ++state.locals_done) {
      const uint32_t index = state.locals[state.locals_done];
      if (!ready(schedule, state, schedule.moves[index])) break;
      const std::string complaint = arrive(rank, schedule.moves[index], nullptr);
      if (!complaint.empty()) return complaint;
      state.done[index] = true;
      *moved = true;
    }
    for (auto &[peer, out] : state.out)
      while (out.posted < out.moves.size() && out.posted - out.done < window_ &&
             ready(schedule, state, schedule.moves[out.moves[out.posted]])) {
        ++out.posted;
        *moved = true;
      }
    for (auto &[peer, in] : state.in) {
      End &other = states_[static_cast<size_t>(peer)].out[rank];
      while (in.done < other.posted && ready(schedule, state, schedule.moves[in.moves[in.done]])) {
        const uint32_t sent = other.moves[other.done], received = in.moves[in.done];
        std::vector<Content> message;
        std::string complaint = read_message(peer, schedules_[static_cast<size_t>(peer)].moves[sent], &message);
        if (complaint.empty()) complaint = arrive(rank, schedule.moves[received], &message);
        if (!complaint.empty()) return complaint;
        state.done[received] = states_[static_cast<size_t>(peer)].done[sent] = true;
        ++in.done;
        ++other.done;
        *moved = true;
      }
    }
    return "";
  }

  std::string simulate() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Schedule &schedule : schedules_) {
        const std::string complaint = advance(schedule.rank, &moved);
        if (!complaint.empty()) return complaint;
      }
    }
    for (const Schedule &schedule : schedules_) {
      const std::vector<bool> &done = states_[static_cast<size_t>(schedule.rank)].done;
      const auto stuck = std::find(done.begin(), done.end(), false);
      if (stuck != done.end())
        return words("deadlock with a window of ", window_, ": rank ", schedule.rank, " never does move ",
                     static_cast<size_t>(stuck - done.begin()));
    }
    return "";
  }

  // ---- what came of it ----

  std::string check_results() const {
    Content whole{true, false, 0, 0, 0};
    if (reduces() && schedules_[0].options.accumulate) whole = {true, true, 0, 0, accumulator_order};
    for (int rank = 0; rank < layout_.rank_count; ++rank) whole.add(gradient_of(rank));
    const Layout &receiving = direction_ == Direction::reshard ? target_layout_ : layout_;
    for (const Segment &segment : receiving.segments)
      for (size_t i = interval(segment.offset); i < interval(segment.offset + segment.bytes); ++i)
        for (const Schedule &schedule : schedules_) {
          const bool owns = schedule.rank == segment.owner;
          if (direction_ != Direction::gather && !owns) continue;
          const Content &content = states_[static_cast<size_t>(schedule.rank)].target[i];
          const std::string complaint = reduces() ? complain_of_sum(content, whole)
                                        : content.count != 1
                                            ? words("arrived ", content.count, " times")
                                            : "";
          if (!complaint.empty())
            return words("rank ", schedule.rank, ", offset ", cuts_[i], ": ", complaint.c_str());
        }
    return "";
  }

  std::string complain_of_sum(const Content &content, const Content &whole) const {
    if (!content.valid) return "nothing arrived";
    if (content.count != whole.count || content.weights != whole.weights)
      return words(content.count, " gradients were added, or not one of each of ", whole.count, " ranks");
    if (content.accumulator != whole.accumulator) return "what the target held is not in the sum";
    if (direction_ == Direction::ordered_reduce && content.order != whole.order) return "added in another order";
    return "";
  }

  const std::vector<Schedule> &schedules_;
  const size_t window_;
  const Direction direction_;
  Layout layout_, target_layout_;  // the latter for reshard only
  std::vector<uint64_t> cuts_;
  std::vector<RankState> states_;
};

}  // namespace

std::string check_schedules(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules,
                            int window) {
  return Checker(layout, target_layout, schedules, window).run();
}

}  // namespace mxs
