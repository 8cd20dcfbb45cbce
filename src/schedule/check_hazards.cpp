// SPDX-License-Identifier: Apache-2.0
// Hazards: that two moves of one rank never meet on the same bytes unordered is proved from the dependencies alone, so
// it holds for every timing.
#include "schedule/checked_world.hpp"

namespace mxs::checker {

namespace {

class Hazards {
 public:
  explicit Hazards(const World &world) : world_(world) {}

  std::string check(size_t rank) {
    const Schedule &schedule = world_.schedules[rank];
    before_on_channel_.assign(schedule.moves.size(), none);
    for (const Ends *ends : {&world_.out, &world_.in})
      for (size_t channel = rank * world_.rank_count; channel < (rank + 1) * world_.rank_count; ++channel)
        for (uint32_t i = 1; i < ends->count(channel); ++i)
          before_on_channel_[ends->at(channel, i)] = ends->at(channel, i - 1);
    cause_of_.assign(schedule.moves.size(), none);
    target_users_.assign(world_.interval_count(), {});
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

 private:
  // Who used one place: the last write, and the reads since.
  struct Users {
    uint32_t writer = none, readers = none;  // a move; the head of a list
  };
  struct Reader {
    uint32_t move, next;
  };

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
    const Intervals intervals = world_.intervals[world_.first_range[static_cast<size_t>(schedule.rank)] + range_index];
    for (uint32_t i = intervals.first; i < intervals.last; ++i) {
      wrong = use(schedule, &target_users_[i], index, !sends || into);
      if (!wrong.empty()) return wrong + words("the target at ", world_.cuts[i]);
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

  const World &world_;
  // Of one rank after the other.
  std::vector<uint32_t> before_on_channel_, cause_of_;  // by move: the one before; the latest that waits for it
  std::vector<Users> target_users_, slot_users_;
  std::vector<Reader> readers_;
};

}  // namespace

std::string check_hazards(const World &world) {
  Hazards hazards(world);
  for (size_t rank = 0; rank < world.rank_count; ++rank) {
    std::string complaint = hazards.check(rank);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace mxs::checker
