// SPDX-License-Identifier: Apache-2.0
// The form of single moves, where their ranges lie, and whether both ends of every message agree.
#include "schedule/checked_world.hpp"

namespace mxs::checker {

namespace {

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

class Builder {
 public:
  explicit Builder(World *world) : world_(*world) {}

  std::string build() {
    number_all();
    std::string complaint = for_all_ranks(&Builder::check_form);
    if (!complaint.empty()) return complaint;
    cut_intervals();
    complaint = for_all_ranks(&Builder::check_places);
    world_.out = collect(MoveKind::send);
    world_.in = collect(MoveKind::receive);
    if (!complaint.empty()) return complaint;
    return world_.for_all_channels([&](size_t source, size_t target) { return check_channel(source, target); });
  }

 private:
  std::string for_all_ranks(std::string (Builder::*check)(size_t)) {
    for (size_t rank = 0; rank < world_.rank_count; ++rank) {
      std::string complaint = (this->*check)(rank);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  // ---- numbers and form ----

  void number_all() {
    uint32_t move = 0, range = 0;
    for (const Schedule &schedule : world_.schedules) {
      world_.first_move.push_back(move);
      world_.first_range.push_back(range);
      move += static_cast<uint32_t>(schedule.moves.size());
      range += static_cast<uint32_t>(schedule.ranges.size());
    }
    world_.first_move.push_back(move);
    world_.first_range.push_back(range);
  }

  std::string check_form(size_t rank) {
    const Schedule &schedule = world_.schedules[rank];
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
    if (move.kind == MoveKind::send && move.sums != (range.place != Place::source && world_.reduces()))
      return "sends the wrong kind of elements";
    return "";
  }

  // ---- intervals ----

  void cut_intervals() {
    OffsetMap seen;
    const auto cut = [&](uint64_t offset) {
      if (seen.find(offset)) return;
      seen.insert(offset, 0);
      world_.cuts.push_back(offset);
    };
    cut(0);
    for (const Layout *layout : {&world_.layout, world_.target_layout})
      for (size_t i = 0; layout && i < layout->segments.size(); ++i) {
        cut(layout->segments[i].offset);
        cut(layout->segments[i].offset + layout->segments[i].bytes);
      }
    for (const Schedule &schedule : world_.schedules)
      for (const Range &range : schedule.ranges) {
        cut(range.offset);
        cut(range.offset + range.bytes);
      }
    std::sort(world_.cuts.begin(), world_.cuts.end());
    for (uint32_t i = 0; i < world_.cuts.size(); ++i) numbers_.insert(world_.cuts[i], i);
    for (const Schedule &schedule : world_.schedules)
      for (const Range &range : schedule.ranges)
        world_.intervals.push_back({*numbers_.find(range.offset), *numbers_.find(range.offset + range.bytes)});
    world_.homes = homes_in(world_.layout);
    if (world_.direction == Direction::reshard) world_.target_homes = homes_in(*world_.target_layout);
  }

  std::vector<Home> homes_in(const Layout &layout) const {
    std::vector<Home> homes(world_.cuts.size());
    std::vector<uint64_t> packed(world_.rank_count);
    for (const Segment &segment : layout.segments) {
      uint64_t &end = packed[static_cast<size_t>(segment.owner)];
      const uint32_t last = *numbers_.find(segment.offset + segment.bytes);
      for (uint32_t i = *numbers_.find(segment.offset); i < last; ++i)
        homes[i] = {segment.owner, end + world_.cuts[i] - segment.offset};
      end += segment.bytes;
    }
    return homes;
  }

  // Does this range use its packed position in the layout's own buffer of its rank?
  bool uses_packed(const Move &move, const Range &range) const {
    if (world_.reduces()) return range.place == Place::target || (range.flags & move_into_target);
    return move.kind == MoveKind::local || (move.kind == MoveKind::send && range.place == Place::source);
  }

  std::string check_places(size_t rank) {
    const Schedule &schedule = world_.schedules[rank];
    for (size_t index = 0; index < schedule.moves.size(); ++index) {
      const Move &move = schedule.moves[index];
      for (uint32_t r = move.first_range; r < move.first_range + move.range_count; ++r) {
        const Range &range = schedule.ranges[r];
        const Intervals intervals = world_.intervals[world_.first_range[rank] + r];
        std::string wrong = complain_of_gaps(world_.homes, intervals);
        if (wrong.empty() && uses_packed(move, range))
          wrong = complain_of_packed(world_.homes, schedule.rank, intervals, range.packed);
        if (wrong.empty() && world_.direction == Direction::reshard && move.kind != MoveKind::send)
          wrong = complain_of_packed(world_.target_homes, schedule.rank, intervals, range.target_packed);
        if (!wrong.empty())
          return words(name_of(rank, index), " (offset ", range.offset, ", ", range.bytes, " bytes) ", wrong);
      }
    }
    return "";
  }

  std::string complain_of_gaps(const std::vector<Home> &homes, const Intervals &intervals) const {
    for (uint32_t i = intervals.first; i < intervals.last; ++i)
      if (homes[i].owner < 0) return words("touches a gap at ", world_.cuts[i]);
    return "";
  }

  std::string complain_of_packed(const std::vector<Home> &homes, int rank, const Intervals &intervals,
                                 uint64_t packed) const {
    for (uint32_t i = intervals.first; i < intervals.last; ++i) {
      if (homes[i].owner != rank)
        return words(i > intervals.first ? "straddles segments: it" : "", " uses a packed buffer of rank ",
                     homes[i].owner, " at ", world_.cuts[i]);
      if (homes[i].packed != packed + world_.cuts[i] - world_.cuts[intervals.first])
        return words("is at a wrong place of the packed buffer at ", world_.cuts[i]);
    }
    return "";
  }

  // ---- channels ----

  Ends collect(MoveKind kind) const {
    Ends ends;
    ends.start.resize(world_.rank_count * world_.rank_count + 1);
    for (size_t rank = 0; rank < world_.rank_count; ++rank)
      for (const Move &move : world_.schedules[rank].moves)
        if (move.kind == kind) ++ends.start[world_.channel_of(rank, move.peer) + 1];
    for (size_t channel = 0; channel + 1 < ends.start.size(); ++channel) ends.start[channel + 1] += ends.start[channel];
    ends.list.resize(ends.start.back());
    std::vector<uint32_t> next(ends.start.begin(), ends.start.end() - 1);
    for (size_t rank = 0; rank < world_.rank_count; ++rank)
      for (uint32_t index = 0; index < world_.schedules[rank].moves.size(); ++index) {
        const Move &move = world_.move_of(rank, index);
        if (move.kind == kind) ends.list[next[world_.channel_of(rank, move.peer)]++] = index;
      }
    return ends;
  }

  std::string check_channel(size_t source, size_t target) {
    const size_t out = source * world_.rank_count + target, in = target * world_.rank_count + source;
    if (world_.out.count(out) != world_.in.count(in))
      return words("rank ", source, " sends ", world_.out.count(out), " messages to rank ", target, ", which receives ",
                   world_.in.count(in));
    for (uint32_t message = 0; message < world_.out.count(out); ++message) {
      const std::string wrong = complain_of_ends(source, world_.move_of(source, world_.out.at(out, message)), target,
                                                 world_.move_of(target, world_.in.at(in, message)));
      if (!wrong.empty()) return words("message ", message, " from rank ", source, " to rank ", target, ": ", wrong);
    }
    return "";
  }

  std::string complain_of_ends(size_t source, const Move &send, size_t target, const Move &receive) const {
    if (send.bytes != receive.bytes || send.sums != receive.sums)
      return words(send.bytes, " bytes of ", send.sums ? "sums" : "elements", " are sent, ", receive.bytes, " of ",
                   receive.sums ? "sums" : "elements", " received");
    Walk sent(world_, source, send), received(world_, target, receive);
    for (; !sent.ended() && !received.ended(); sent.step(), received.step())
      if (sent.interval() != received.interval())
        return words("offset ", world_.cuts[sent.interval()], " is sent where offset ",
                     world_.cuts[received.interval()], " is received");
    return "";
  }

  World &world_;
  OffsetMap numbers_;  // of cuts
};

}  // namespace

World::World(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules, int window)
    : layout(layout), target_layout(target_layout), schedules(schedules), window(static_cast<uint32_t>(window)),
      rank_count(static_cast<size_t>(layout.rank_count)),
      direction(schedules.empty() ? Direction::gather : schedules[0].options.direction),
      accumulate(!schedules.empty() && schedules[0].options.accumulate && reduces()) {}

std::string World::build() {
  if (schedules.size() != rank_count) return words(schedules.size(), " schedules for ", layout.rank_count, " ranks");
  return Builder(this).build();
}

}  // namespace mxs::checker
