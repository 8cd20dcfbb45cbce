// SPDX-License-Identifier: Apache-2.0
// The checker: runs a whole world's schedules on paper and complains about the first thing that is wrong.
//
// What it proves is bytes, not pieces or messages: the ends of all ranges and segments cut the buffer into intervals,
// and for every interval it knows what each place of each rank holds:
//
//   gather, reshard   how often the bytes have arrived
//   reduce            which gradients have been added, as a sum of random 64-bit weights, one per rank, and a count;
//                     for the ordered one also a hash of the order
//
// That two moves of one rank never meet on the same bytes unordered is proved apart, from the dependencies alone, so
// it holds for every timing. The run itself needs only one timing: nothing in it is a choice, so if one timing comes
// to the end, all do.
//
// A million messages take half a second (`schedule_large_worlds`): everything is a flat array, and moves, ranges and
// channels of all ranks are numbered through.
#include <algorithm>
#include <bit>

#include "schedule/schedule.hpp"

namespace mxs {

namespace {

constexpr uint32_t none = UINT32_MAX;

// A sentence of texts and numbers, side by side.
inline std::string in_words(const char *text) { return text; }
inline std::string in_words(const std::string &text) { return text; }
inline std::string in_words(uint64_t number) { return std::to_string(number); }
inline std::string in_words(int number) { return std::to_string(number); }
inline std::string in_words(uint32_t number) { return std::to_string(number); }

template <class... Parts>
std::string words(const Parts &...parts) {
  return (in_words(parts) + ...);
}

constexpr uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u + b;
  x = (x ^ x >> 31) * 0x94d049bb133111ebu;
  return x ^ x >> 29;
}
constexpr uint64_t accumulator_order = 0x51ed270b7a3f29c5u;

// What one place of a reduce holds for one interval.
struct Sum {
  uint64_t weights = 0, order = 0;
  uint32_t count = 0;        // gradients added
  bool valid = false;
  bool accumulator = false;  // what the target held at first is in it

  void add(const Sum &other) {
    weights += other.weights;
    order = mixed(order, other.order);
    count += other.count;
    accumulator |= other.accumulator;
  }
};

constexpr Sum zero = {0, 0, 0, true, false};

Sum gradient_of(int rank) {
  const uint64_t number = static_cast<uint64_t>(rank) + 1;
  return {mixed(0x2545f4914f6cdd1du, number), number, 1, true, false};
}

// Offset -> number, both given once.
class OffsetMap {
 public:
  OffsetMap() : entries_(1024) {}
  // nullptr: not there
  const uint32_t *find(uint64_t offset) const {
    for (size_t at = mixed(0, offset) & (entries_.size() - 1);; at = (at + 1) & (entries_.size() - 1)) {
      if (entries_[at].number == none) return nullptr;
      if (entries_[at].offset == offset) return &entries_[at].number;
    }
  }
  void insert(uint64_t offset, uint32_t number) {
    if (2 * ++count_ > entries_.size()) {
      std::vector<Entry> before(entries_.size() * 2);
      before.swap(entries_);
      for (const Entry &entry : before)
        if (entry.number != none) put(entry);
    }
    put({offset, number});
  }

 private:
  struct Entry {
    uint64_t offset = 0;
    uint32_t number = none;
  };
  void put(const Entry &entry) {
    size_t at = mixed(0, entry.offset) & (entries_.size() - 1);
    while (entries_[at].number != none) at = (at + 1) & (entries_.size() - 1);
    entries_[at] = entry;
  }
  std::vector<Entry> entries_;
  size_t count_ = 0;
};

class Checker {
 public:
  Checker(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules, int window)
      : layout_(layout), target_layout_(target_layout), schedules_(schedules), window_(static_cast<uint32_t>(window)),
        rank_count_(static_cast<size_t>(layout.rank_count)),
        direction_(schedules.empty() ? Direction::gather : schedules[0].options.direction),
        accumulate_(!schedules.empty() && schedules[0].options.accumulate && reduces()) {}

  std::string run() {
    if (schedules_.size() != rank_count_)
      return words(schedules_.size(), " schedules for ", layout_.rank_count, " ranks");
    number_all();
    std::string complaint = for_all_ranks(&Checker::check_form);
    if (!complaint.empty()) return complaint;
    cut_intervals();
    complaint = for_all_ranks(&Checker::check_places);
    out_ = collect(MoveKind::send);
    in_ = collect(MoveKind::receive);
    if (complaint.empty()) complaint = for_all_channels(&Checker::check_channel);
    if (complaint.empty()) complaint = for_all_ranks(&Checker::check_hazards);
    if (complaint.empty()) complaint = simulate();
    if (complaint.empty()) complaint = reduces() ? check_sums() : check_arrivals();
    return complaint;
  }

 private:
  // Intervals first .. last - 1.
  struct Intervals {
    uint32_t first = 0, last = 0;
    uint32_t count() const { return last - first; }
  };
  // Where an interval lies in its owner's packed segments. owner -1: in a gap.
  struct Home {
    int owner = -1;
    uint64_t packed = 0;
  };

  bool reduces() const { return direction_ == Direction::reduce || direction_ == Direction::ordered_reduce; }

  std::string for_all_ranks(std::string (Checker::*check)(size_t)) {
    for (size_t rank = 0; rank < rank_count_; ++rank) {
      std::string complaint = (this->*check)(rank);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  const Move &move_of(size_t rank, uint32_t index) const { return schedules_[rank].moves[index]; }

  static std::string name_of(size_t rank, size_t index) { return words("rank ", rank, ", move ", index); }

  // ---- numbers and form ----

  void number_all() {
    uint32_t move = 0, range = 0;
    for (const Schedule &schedule : schedules_) {
      first_move_.push_back(move);
      first_range_.push_back(range);
      move += static_cast<uint32_t>(schedule.moves.size());
      range += static_cast<uint32_t>(schedule.ranges.size());
    }
    first_move_.push_back(move);
    first_range_.push_back(range);
  }

  std::string check_form(size_t rank) {
    const Schedule &schedule = schedules_[rank];
    if (static_cast<size_t>(schedule.rank) != rank) return words("schedule ", rank, " is that of rank ", schedule.rank);
    for (size_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      std::string wrong;
      if (move.first_dependency + uint64_t{move.dependency_count} > schedule.dependencies.size() ||
          move.first_range + uint64_t{move.range_count} > schedule.ranges.size())
        return name_of(rank, index) + " points beyond its lists";
      for (const uint32_t cause : schedule.dependencies_of(move))
        if (cause >= index) return name_of(rank, index) + " waits for a later move";
      if (move.range_count == 0 || (move.kind == MoveKind::local && move.range_count != 1))
        return name_of(rank, index) + words(" has ", uint32_t{move.range_count}, " ranges");
      if (move.kind != MoveKind::local &&
          (move.peer < 0 || move.peer >= schedule.rank_count || move.peer == schedule.rank))
        return name_of(rank, index) + " has no peer";
      uint64_t bytes = 0;
      for (const Range &range : schedule.ranges_of(move)) {
        wrong = complain_of_form(schedule, move, range);
        if (!wrong.empty())
          return words(name_of(rank, index), " (offset ", range.offset, ", ", range.bytes, " bytes) ", wrong);
        bytes += range.bytes;
      }
      if (bytes != move.bytes)
        return words(name_of(rank, index), " has ", move.bytes, " bytes, its ranges ", bytes);
    }
    return "";
  }

  std::string complain_of_form(const Schedule &schedule, const Move &move, const Range &range) const {
    if (range.bytes == 0) return "is empty";
    if (range.bytes % schedule.options.element_bytes || range.offset % schedule.options.element_bytes)
      return "cuts an element";
    if (range.place == Place::slot) {
      if (range.slot < 0 || range.slot >= schedule.slot_count) return "has no slot";
      if (range.bytes / schedule.options.element_bytes * 4 > schedule.slot_bytes) return "exceeds its slot";
    }
    if (move.kind == MoveKind::send && move.sums != (range.place != Place::source && reduces()))
      return "sends the wrong kind of elements";
    return "";
  }

  // ---- intervals ----

  void cut_intervals() {
    OffsetMap seen;
    const auto cut = [&](uint64_t offset) {
      if (seen.find(offset)) return;
      seen.insert(offset, 0);
      cuts_.push_back(offset);
    };
    cut(0);
    for (const Layout *layout : {&layout_, target_layout_})
      for (size_t i = 0; layout && i < layout->segments.size(); ++i) {
        cut(layout->segments[i].offset);
        cut(layout->segments[i].offset + layout->segments[i].bytes);
      }
    for (const Schedule &schedule : schedules_)
      for (const Range &range : schedule.ranges) {
        cut(range.offset);
        cut(range.offset + range.bytes);
      }
    std::sort(cuts_.begin(), cuts_.end());
    for (uint32_t i = 0; i < cuts_.size(); ++i) numbers_.insert(cuts_[i], i);
    for (const Schedule &schedule : schedules_)
      for (const Range &range : schedule.ranges)
        intervals_.push_back({*numbers_.find(range.offset), *numbers_.find(range.offset + range.bytes)});
    homes_ = homes_in(layout_);
    if (direction_ == Direction::reshard) target_homes_ = homes_in(*target_layout_);
  }

  size_t interval_count() const { return cuts_.size() - 1; }

  std::vector<Home> homes_in(const Layout &layout) const {
    std::vector<Home> homes(cuts_.size());
    std::vector<uint64_t> packed(rank_count_);
    for (const Segment &segment : layout.segments) {
      uint64_t &end = packed[static_cast<size_t>(segment.owner)];
      const uint32_t last = *numbers_.find(segment.offset + segment.bytes);
      for (uint32_t i = *numbers_.find(segment.offset); i < last; ++i)
        homes[i] = {segment.owner, end + cuts_[i] - segment.offset};
      end += segment.bytes;
    }
    return homes;
  }

  // The intervals of all ranges of a move, one after the other.
  class Walk {
   public:
    Walk(const Checker &checker, size_t rank, const Move &move)
        : at_(&checker.intervals_[checker.first_range_[rank] + move.first_range]), end_(at_ + move.range_count),
          range_(&checker.schedules_[rank].ranges[move.first_range]), interval_(at_->first) {}
    bool ended() const { return at_ == end_; }
    uint32_t interval() const { return interval_; }
    const Range &range() const { return *range_; }
    uint32_t within() const { return interval_ - at_->first; }  // the range
    uint32_t range_intervals() const { return at_->count(); }
    void step() {
      if (++interval_ < at_->last) return;
      ++range_;
      if (++at_ != end_) interval_ = at_->first;
    }

   private:
    const Intervals *at_, *end_;
    const Range *range_;
    uint32_t interval_;
  };

  // Does this range use its packed position in the layout's own buffer of its rank?
  bool uses_packed(const Move &move, const Range &range) const {
    if (reduces()) return range.place == Place::target || (range.flags & move_into_target);
    return move.kind == MoveKind::local || (move.kind == MoveKind::send && range.place == Place::source);
  }

  std::string check_places(size_t rank) {
    const Schedule &schedule = schedules_[rank];
    for (size_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      for (uint32_t r = move.first_range; r < move.first_range + move.range_count; ++r) {
        const Range &range = schedule.ranges[r];
        const Intervals intervals = intervals_[first_range_[rank] + r];
        std::string wrong = complain_of_gaps(homes_, intervals);
        if (wrong.empty() && uses_packed(move, range))
          wrong = complain_of_packed(homes_, schedule.rank, intervals, range.packed);
        if (wrong.empty() && direction_ == Direction::reshard && move.kind != MoveKind::send)
          wrong = complain_of_packed(target_homes_, schedule.rank, intervals, range.target_packed);
        if (!wrong.empty())
          return words(name_of(rank, index), " (offset ", range.offset, ", ", range.bytes, " bytes) ", wrong);
      }
    }
    return "";
  }

  std::string complain_of_gaps(const std::vector<Home> &homes, const Intervals &intervals) const {
    for (uint32_t i = intervals.first; i < intervals.last; ++i)
      if (homes[i].owner < 0) return words("touches a gap at ", cuts_[i]);
    return "";
  }

  std::string complain_of_packed(const std::vector<Home> &homes, int rank, const Intervals &intervals,
                                 uint64_t packed) const {
    for (uint32_t i = intervals.first; i < intervals.last; ++i) {
      if (homes[i].owner != rank)
        return words(i > intervals.first ? "straddles segments: it" : "", " uses a packed buffer of rank ",
                     homes[i].owner, " at ", cuts_[i]);
      if (homes[i].packed != packed + cuts_[i] - cuts_[intervals.first])
        return words("is at a wrong place of the packed buffer at ", cuts_[i]);
    }
    return "";
  }

  // ---- channels ----

  // The messages of all channels of one direction, seen from one end: list[start[rank * rank_count + peer] ...].
  struct Ends {
    std::vector<uint32_t> start, list;
    uint32_t count(size_t channel) const { return start[channel + 1] - start[channel]; }
    uint32_t at(size_t channel, uint32_t message) const { return list[start[channel] + message]; }
  };

  size_t channel_of(size_t rank, int peer) const { return rank * rank_count_ + static_cast<size_t>(peer); }

  Ends collect(MoveKind kind) const {
    Ends ends;
    ends.start.resize(rank_count_ * rank_count_ + 1);
    for (size_t rank = 0; rank < rank_count_; ++rank)
      for (const Move &move : schedules_[rank].moves)
        if (move.kind == kind) ++ends.start[channel_of(rank, move.peer) + 1];
    for (size_t channel = 0; channel + 1 < ends.start.size(); ++channel) ends.start[channel + 1] += ends.start[channel];
    ends.list.resize(ends.start.back());
    std::vector<uint32_t> next(ends.start.begin(), ends.start.end() - 1);
    for (size_t rank = 0; rank < rank_count_; ++rank)
      for (uint32_t index = 0; index < schedules_[rank].moves.size(); ++index)
        if (move_of(rank, index).kind == kind) ends.list[next[channel_of(rank, move_of(rank, index).peer)]++] = index;
    return ends;
  }

  // In tiles, so that what one rank has of neighbouring peers is in cache: with 1,024 ranks, four times as fast.
  std::string for_all_channels(std::string (Checker::*check)(size_t, size_t)) {
    constexpr size_t tile = 32;
    std::string complaint;
    for (size_t from = 0; from < rank_count_; from += tile)
      for (size_t to = 0; to < rank_count_; to += tile)
        for (size_t source = from; source < std::min(from + tile, rank_count_); ++source)
          for (size_t target = to; target < std::min(to + tile, rank_count_); ++target) {
            complaint = (this->*check)(source, target);
            if (!complaint.empty()) return complaint;
          }
    return "";
  }

  std::string check_channel(size_t source, size_t target) {
    const size_t out = source * rank_count_ + target, in = target * rank_count_ + source;
    if (out_.count(out) != in_.count(in))
      return words("rank ", source, " sends ", out_.count(out), " messages to rank ", target, ", which receives ",
                   in_.count(in));
    for (uint32_t message = 0; message < out_.count(out); ++message) {
      const std::string wrong = complain_of_ends(source, move_of(source, out_.at(out, message)), target,
                                                 move_of(target, in_.at(in, message)));
      if (!wrong.empty()) return words("message ", message, " from rank ", source, " to rank ", target, ": ", wrong);
    }
    return "";
  }

  std::string complain_of_ends(size_t source, const Move &send, size_t target, const Move &receive) const {
    if (send.bytes != receive.bytes || send.sums != receive.sums)
      return words(send.bytes, " bytes of ", send.sums ? "sums" : "elements", " are sent, ", receive.bytes, " of ",
                   receive.sums ? "sums" : "elements", " received");
    Walk sent(*this, source, send), received(*this, target, receive);
    for (; !sent.ended() && !received.ended(); sent.step(), received.step())
      if (sent.interval() != received.interval())
        return words("offset ", cuts_[sent.interval()], " is sent where offset ", cuts_[received.interval()],
                     " is received");
    return "";
  }

  // ---- hazards ----

  // Who used one place: the last write, and the reads since.
  struct Users {
    uint32_t writer = none, readers = none;  // a move; the head of a list
  };
  struct Reader {
    uint32_t move, next;
  };

  std::string check_hazards(size_t rank) {
    const Schedule &schedule = schedules_[rank];
    before_on_channel_.assign(schedule.moves.size(), none);
    for (const Ends *ends : {&out_, &in_})
      for (size_t channel = rank * rank_count_; channel < (rank + 1) * rank_count_; ++channel)
        for (uint32_t i = 1; i < ends->count(channel); ++i)
          before_on_channel_[ends->at(channel, i)] = ends->at(channel, i - 1);
    cause_of_.assign(schedule.moves.size(), none);
    target_users_.assign(interval_count(), {});
    slot_users_.assign(static_cast<size_t>(schedule.slot_count), {});
    readers_.clear();
    for (uint32_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      for (const uint32_t cause : schedule.dependencies_of(move)) cause_of_[cause] = index;
      for (uint32_t r = move.first_range; r < move.first_range + move.range_count; ++r) {
        const std::string wrong = use_places(schedule, index, r);
        if (!wrong.empty()) return wrong;
      }
    }
    return "";
  }

  std::string use_places(const Schedule &schedule, uint32_t index, uint32_t range_index) {
    const Range &range = schedule.ranges[range_index];
    const bool sends = schedule.moves[index].kind == MoveKind::send;
    std::string wrong;
    if (range.place == Place::slot) {
      wrong = use(schedule, &slot_users_[static_cast<size_t>(range.slot)], index, !sends);
      if (!wrong.empty()) return wrong + words("slot ", range.slot);
    }
    // Gather: the owner's sends read the source, or in place the target, which nobody may write.
    const bool into = range.flags & move_into_target;
    if (range.place != Place::target && !into) return "";
    const Intervals intervals = intervals_[first_range_[static_cast<size_t>(schedule.rank)] + range_index];
    for (uint32_t i = intervals.first; i < intervals.last; ++i) {
      wrong = use(schedule, &target_users_[i], index, !sends || into);
      if (!wrong.empty()) return wrong + words("the target at ", cuts_[i]);
    }
    return "";
  }

  std::string use(const Schedule &schedule, Users *users, uint32_t index, bool writes) {
    if (!writes) {
      if (users->writer != none && !ordered(schedule, users->writer, index))
        return not_ordered(schedule, users->writer, index);
      readers_.push_back({index, users->readers});
      users->readers = static_cast<uint32_t>(readers_.size() - 1);
      return "";
    }
    // Readers come after the last write.
    for (uint32_t reader = users->readers; reader != none; reader = readers_[reader].next)
      if (!ordered(schedule, readers_[reader].move, index)) return not_ordered(schedule, readers_[reader].move, index);
    if (users->readers == none && users->writer != none && !ordered(schedule, users->writer, index))
      return not_ordered(schedule, users->writer, index);
    *users = {index, none};
    return "";
  }

  static std::string not_ordered(const Schedule &schedule, uint32_t earlier, uint32_t later) {
    if (earlier == later) return words(name_of(static_cast<size_t>(schedule.rank), later), ": two ranges both use ");
    return words("rank ", schedule.rank, ": of moves ", earlier, " and ", later,
                 " neither waits for the other, and both use ");
  }

  // Is `earlier` certainly done when `later` starts? Nearly always it is waited for by name.
  bool ordered(const Schedule &schedule, uint32_t earlier, uint32_t later) const {
    if (cause_of_[earlier] == later) return earlier != later;
    std::vector<uint32_t> done;
    const auto add_causes = [&](uint32_t index, bool with_channel) {
      const std::span<const uint32_t> causes = schedule.dependencies_of(schedule.moves[index]);
      done.insert(done.end(), causes.begin(), causes.end());
      if (with_channel && before_on_channel_[index] != none) done.push_back(before_on_channel_[index]);
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

  // ---- the run ----

  // Messages of a channel.
  struct Progress {
    uint32_t posted = 0, received = 0;
  };
  // By slot: what is in it.
  struct Slot {
    uint32_t first_interval = none;
    std::vector<Sum> sums;
  };

  void prepare() {
    const uint32_t move_count = first_move_.back();
    waits_for_.resize(move_count);
    rank_of_.resize(move_count);
    first_dependent_.assign(move_count + 1, 0);
    for (size_t rank = 0; rank < rank_count_; ++rank) {
      const uint32_t first = first_move_[rank];
      for (uint32_t index = 0; index < schedules_[rank].moves.size(); ++index) {
        rank_of_[first + index] = static_cast<uint32_t>(rank);
        waits_for_[first + index] = move_of(rank, index).dependency_count;
        for (const uint32_t cause : schedules_[rank].dependencies_of(move_of(rank, index)))
          ++first_dependent_[first + cause + 1];
      }
    }
    for (uint32_t move = 0; move < move_count; ++move) first_dependent_[move + 1] += first_dependent_[move];
    dependents_.resize(first_dependent_[move_count]);
    std::vector<uint32_t> next(first_dependent_.begin(), first_dependent_.end() - 1);
    for (size_t rank = 0; rank < rank_count_; ++rank)
      for (uint32_t index = 0; index < schedules_[rank].moves.size(); ++index)
        for (const uint32_t cause : schedules_[rank].dependencies_of(move_of(rank, index)))
          dependents_[next[first_move_[rank] + cause]++] = first_move_[rank] + index;
    done_.assign(move_count, 0);
    progress_.assign(rank_count_ * rank_count_, {});
    if (!reduces()) {
      arrivals_.assign(rank_count_ * interval_count(), 0);
      return;
    }
    targets_.assign(interval_count(), accumulate_ ? Sum{0, accumulator_order, 0, true, true} : Sum());
    for (const Schedule &schedule : schedules_) slots_.emplace_back(static_cast<size_t>(schedule.slot_count));
  }

  std::string simulate() {
    prepare();
    for (size_t rank = 0; rank < rank_count_; ++rank)
      for (uint32_t index = 0; index < schedules_[rank].moves.size(); ++index)
        if (move_of(rank, index).kind == MoveKind::local && move_of(rank, index).dependency_count == 0)
          ready_.push_back(first_move_[rank] + index);
    std::string complaint = for_all_channels(&Checker::run_channel);
    while (!ready_.empty() && complaint.empty()) {
      const uint32_t move = ready_.back();
      ready_.pop_back();
      complaint = start(rank_of_[move], move - first_move_[rank_of_[move]]);
    }
    if (!complaint.empty()) return complaint;
    const auto stuck = std::find(done_.begin(), done_.end(), uint8_t{0});
    if (stuck == done_.end()) return "";
    const auto move = static_cast<uint32_t>(stuck - done_.begin());
    const size_t rank = rank_of_[move];
    return words("deadlock with a window of ", window_, ": ", name_of(rank, move - first_move_[rank]),
                 " is never done");
  }

  void finish(size_t rank, uint32_t index) {
    const uint32_t move = first_move_[rank] + index;
    done_[move] = 1;
    for (uint32_t d = first_dependent_[move]; d < first_dependent_[move + 1]; ++d)
      if (--waits_for_[dependents_[d]] == 0) ready_.push_back(dependents_[d]);
  }

  // A move that has nothing to wait for in its own schedule any more.
  std::string start(size_t rank, uint32_t index) {
    const Move &move = move_of(rank, index);
    if (move.kind == MoveKind::local) {
      const std::string complaint = arrive(rank, move, nullptr);
      finish(rank, index);
      return complaint;
    }
    const auto peer = static_cast<size_t>(move.peer);
    return move.kind == MoveKind::send ? run_channel(rank, peer) : run_channel(peer, rank);
  }

  std::string run_channel(size_t source, size_t target) {
    const size_t out = source * rank_count_ + target, in = target * rank_count_ + source;
    auto &[posted, received] = progress_[out];
    for (;;) {
      while (posted < out_.count(out) && posted - received < window_ &&
             waits_for_[first_move_[source] + out_.at(out, posted)] == 0)
        ++posted;
      if (received == posted || waits_for_[first_move_[target] + in_.at(in, received)] != 0) return "";
      const uint32_t send = out_.at(out, received), receive = in_.at(in, received);
      Walk message(*this, source, move_of(source, send));
      const std::string complaint = arrive(target, move_of(target, receive), &message);
      if (!complaint.empty()) return complaint;
      ++received;
      finish(source, send);
      finish(target, receive);
    }
  }

  // A receive or local move. message: nullptr for the latter.
  std::string arrive(size_t rank, const Move &move, Walk *message) {
    for (Walk place(*this, rank, move); !place.ended(); place.step()) {
      std::string wrong = reduces() ? add_terms(rank, move, place, message) : count_arrival(rank, move, place, message);
      if (!wrong.empty()) return wrong;
      if (message) message->step();
    }
    return "";
  }

  std::string count_arrival(size_t rank, const Move &move, const Walk &place, const Walk *message) {
    const uint32_t i = place.interval();
    if (message && message->range().place == Place::target &&
        arrivals_[static_cast<size_t>(move.peer) * interval_count() + i] == 0)
      return words("rank ", move.peer, " sends offset ", cuts_[i], " to rank ", rank, " before it is there");
    uint8_t &count = arrivals_[rank * interval_count() + i];
    if (count < UINT8_MAX) ++count;
    return "";
  }

  // What a range of a reduce has in its place for the interval that the walk is at. nullptr: it is not there.
  Sum *sum_at(size_t rank, const Walk &walk, bool begins) {
    const Range &range = walk.range();
    if (range.place == Place::target) return &targets_[walk.interval()];
    Slot &slot = slots_[rank][static_cast<size_t>(range.slot)];
    if (begins && walk.within() == 0) {
      slot.first_interval = walk.interval();
      slot.sums.assign(walk.range_intervals(), Sum());
    }
    const bool holds =
        slot.first_interval == walk.interval() - walk.within() && slot.sums.size() == walk.range_intervals();
    return holds ? &slot.sums[walk.within()] : nullptr;
  }

  // One interval of a move of a reduce, in the order of its flags.
  std::string add_terms(size_t rank, const Move &move, const Walk &walk, const Walk *message) {
    const uint8_t flags = walk.range().flags;
    const uint64_t offset = cuts_[walk.interval()];
    Sum *sum = sum_at(rank, walk, flags & move_starts);
    if (!sum) return words("rank ", rank, ": slot ", walk.range().slot, " does not hold offset ", offset);
    Sum sent;
    if (message && message->range().place == Place::source) {
      sent = gradient_of(move.peer);
    } else if (message) {
      const Sum *held = sum_at(static_cast<size_t>(move.peer), *message, false);
      if (!held || !held->valid)
        return words("rank ", move.peer, " sends offset ", offset, " to rank ", rank, " before it is there");
      sent = *held;
    }
    if ((flags & move_starts) || (message && (flags & move_copies))) *sum = zero;
    if (!sum->valid) return words("rank ", rank, " adds to offset ", offset, ", where nothing is");
    const Sum own = gradient_of(static_cast<int>(rank));
    if (flags & move_own_before) sum->add(own);
    if (message && (flags & move_copies)) *sum = sent;
    if (message && !(flags & move_copies)) sum->add(sent);
    if (flags & move_own_after) sum->add(own);
    if (!(flags & move_into_target)) return "";
    Sum &target = targets_[walk.interval()];
    if (!target.valid) return words("rank ", rank, " accumulates onto nothing at ", offset);
    target.add(*sum);
    return "";
  }

  // ---- what came of it ----

  std::string check_arrivals() const {
    const std::vector<Home> &homes = direction_ == Direction::reshard ? target_homes_ : homes_;
    for (size_t rank = 0; rank < rank_count_; ++rank)
      for (size_t i = 0; i < interval_count(); ++i) {
        const bool wanted = direction_ == Direction::reshard ? homes[i].owner == static_cast<int>(rank)
                                                             : homes[i].owner >= 0;
        const uint32_t count = arrivals_[rank * interval_count() + i];
        if (wanted && count != 1) return words("rank ", rank, ", offset ", cuts_[i], ": arrived ", count, " times");
      }
    return "";
  }

  std::string check_sums() const {
    Sum whole = accumulate_ ? Sum{0, accumulator_order, 0, true, true} : zero;
    for (int rank = 0; rank < layout_.rank_count; ++rank) whole.add(gradient_of(rank));
    for (size_t i = 0; i < interval_count(); ++i) {
      if (homes_[i].owner < 0) continue;
      const std::string wrong = complain_of_sum(targets_[i], whole);
      if (!wrong.empty()) return words("rank ", homes_[i].owner, ", offset ", cuts_[i], ": ", wrong);
    }
    return "";
  }

  std::string complain_of_sum(const Sum &sum, const Sum &whole) const {
    if (!sum.valid) return "nothing arrived";
    if (sum.count != whole.count || sum.weights != whole.weights)
      return words(sum.count, " gradients were added, or not one of each of ", whole.count, " ranks");
    if (sum.accumulator != whole.accumulator) return "what the target held is not in the sum";
    if (direction_ == Direction::ordered_reduce && sum.order != whole.order) return "added in another order";
    return "";
  }

  const Layout &layout_;
  const Layout *const target_layout_;
  const std::vector<Schedule> &schedules_;
  const uint32_t window_;
  const size_t rank_count_;
  const Direction direction_;
  const bool accumulate_;

  std::vector<uint32_t> first_move_, first_range_;  // by rank: numbers of its first ones among all
  std::vector<uint64_t> cuts_;                      // ascending: interval i is cuts_[i] .. cuts_[i + 1]
  OffsetMap numbers_;                               // of cuts
  std::vector<Intervals> intervals_;                // by range
  std::vector<Home> homes_, target_homes_;          // by interval; the latter for reshard only
  Ends out_, in_;

  // Hazards, of one rank after the other.
  std::vector<uint32_t> before_on_channel_, cause_of_;  // by move: the one before; the latest that waits for it
  std::vector<Users> target_users_, slot_users_;
  std::vector<Reader> readers_;

  // The run.
  std::vector<uint32_t> rank_of_, waits_for_, first_dependent_, dependents_, ready_;  // by move of all
  std::vector<uint8_t> done_;
  std::vector<Progress> progress_;           // by channel, source first
  std::vector<uint8_t> arrivals_;            // gather, reshard: by rank and interval
  std::vector<Sum> targets_;                 // reduce: by interval, at its owner
  std::vector<std::vector<Slot>> slots_;     // reduce: by rank
};

}  // namespace

std::string check_schedules(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules,
                            int window) {
  return Checker(layout, target_layout, schedules, window).run();
}

}  // namespace mxs
