// SPDX-License-Identifier: Apache-2.0
// The run: one timing, in which a message is taken as soon as its window and dependencies allow. For every interval it
// is known what each place of each rank holds:
//
//   gather, reshard   how often the bytes have arrived
//   reduce            which gradients have been added, as a sum of random 64-bit weights, one per rank, and a count;
//                     for the ordered one also a hash of the order
//
// One timing will do: nothing in it is a choice, so if one comes to the end, all do.
#include "schedule/checked_world.hpp"

namespace mxs::checker {

namespace {

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

class Run {
 public:
  explicit Run(const World &world) : world_(world) {}

  std::string run() {
    const std::string complaint = simulate();
    if (!complaint.empty()) return complaint;
    return world_.reduces() ? check_sums() : check_arrivals();
  }

 private:
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
    const uint32_t move_count = world_.first_move.back();
    waits_for_.resize(move_count);
    rank_of_.resize(move_count);
    first_dependent_.assign(move_count + 1, 0);
    for (size_t rank = 0; rank < world_.rank_count; ++rank) {
      const uint32_t first = world_.first_move[rank];
      for (uint32_t index = 0; index < world_.schedules[rank].moves.size(); ++index) {
        rank_of_[first + index] = static_cast<uint32_t>(rank);
        waits_for_[first + index] = world_.move_of(rank, index).dependency_count;
        for (const uint32_t cause : world_.schedules[rank].dependencies_of(world_.move_of(rank, index)))
          ++first_dependent_[first + cause + 1];
      }
    }
    for (uint32_t move = 0; move < move_count; ++move) first_dependent_[move + 1] += first_dependent_[move];
    dependents_.resize(first_dependent_[move_count]);
    std::vector<uint32_t> next(first_dependent_.begin(), first_dependent_.end() - 1);
    for (size_t rank = 0; rank < world_.rank_count; ++rank)
      for (uint32_t index = 0; index < world_.schedules[rank].moves.size(); ++index)
        for (const uint32_t cause : world_.schedules[rank].dependencies_of(world_.move_of(rank, index)))
          dependents_[next[world_.first_move[rank] + cause]++] = world_.first_move[rank] + index;
    done_.assign(move_count, 0);
    progress_.assign(world_.rank_count * world_.rank_count, {});
    if (!world_.reduces()) {
      arrivals_.assign(world_.rank_count * world_.interval_count(), 0);
      return;
    }
    targets_.assign(world_.interval_count(), world_.accumulate ? Sum{0, accumulator_order, 0, true, true} : Sum());
    for (const Schedule &schedule : world_.schedules) slots_.emplace_back(static_cast<size_t>(schedule.slot_count));
  }

  std::string simulate() {
    prepare();
    for (size_t rank = 0; rank < world_.rank_count; ++rank)
      for (uint32_t index = 0; index < world_.schedules[rank].moves.size(); ++index)
        if (world_.move_of(rank, index).kind == MoveKind::local && world_.move_of(rank, index).dependency_count == 0)
          ready_.push_back(world_.first_move[rank] + index);
    std::string complaint =
        world_.for_all_channels([&](size_t source, size_t target) { return run_channel(source, target); });
    while (!ready_.empty() && complaint.empty()) {
      const uint32_t move = ready_.back();
      ready_.pop_back();
      complaint = start(rank_of_[move], move - world_.first_move[rank_of_[move]]);
    }
    if (!complaint.empty()) return complaint;
    const auto stuck = std::find(done_.begin(), done_.end(), uint8_t{0});
    if (stuck == done_.end()) return "";
    const auto move = static_cast<uint32_t>(stuck - done_.begin());
    const size_t rank = rank_of_[move];
    return words("deadlock with a window of ", world_.window, ": ", name_of(rank, move - world_.first_move[rank]),
                 " is never done");
  }

  void finish(size_t rank, uint32_t index) {
    const uint32_t move = world_.first_move[rank] + index;
    done_[move] = 1;
    for (uint32_t d = first_dependent_[move]; d < first_dependent_[move + 1]; ++d)
      if (--waits_for_[dependents_[d]] == 0) ready_.push_back(dependents_[d]);
  }

  // A move that has nothing to wait for in its own schedule any more.
  std::string start(size_t rank, uint32_t index) {
    const Move &move = world_.move_of(rank, index);
    if (move.kind == MoveKind::local) {
      const std::string complaint = arrive(rank, move, nullptr);
      finish(rank, index);
      return complaint;
    }
    const auto peer = static_cast<size_t>(move.peer);
    return move.kind == MoveKind::send ? run_channel(rank, peer) : run_channel(peer, rank);
  }

  std::string run_channel(size_t source, size_t target) {
    const size_t out = source * world_.rank_count + target, in = target * world_.rank_count + source;
    auto &[posted, received] = progress_[out];
    for (;;) {
      while (posted < world_.out.count(out) && posted - received < world_.window &&
             waits_for_[world_.first_move[source] + world_.out.at(out, posted)] == 0)
        ++posted;
      if (received == posted || waits_for_[world_.first_move[target] + world_.in.at(in, received)] != 0) return "";
      const uint32_t send = world_.out.at(out, received), receive = world_.in.at(in, received);
      Walk message(world_, source, world_.move_of(source, send));
      const std::string complaint = arrive(target, world_.move_of(target, receive), &message);
      if (!complaint.empty()) return complaint;
      ++received;
      finish(source, send);
      finish(target, receive);
    }
  }

  // A receive or local move. message: nullptr for the latter.
  std::string arrive(size_t rank, const Move &move, Walk *message) {
    for (Walk place(world_, rank, move); !place.ended(); place.step()) {
      const std::string wrong = world_.reduces() ? add_terms(rank, move, place, message)
                                                 : count_arrival(rank, move, place, message);
      if (!wrong.empty()) return wrong;
      if (message) message->step();
    }
    return "";
  }

  std::string count_arrival(size_t rank, const Move &move, const Walk &place, const Walk *message) {
    const uint32_t i = place.interval();
    if (message && message->range().place == Place::target &&
        arrivals_[static_cast<size_t>(move.peer) * world_.interval_count() + i] == 0)
      return words("rank ", move.peer, " sends offset ", world_.cuts[i], " to rank ", rank, " before it is there");
    uint8_t &count = arrivals_[rank * world_.interval_count() + i];
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
    const uint64_t offset = world_.cuts[walk.interval()];
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
    const std::vector<Home> &homes = world_.direction == Direction::reshard ? world_.target_homes : world_.homes;
    for (size_t rank = 0; rank < world_.rank_count; ++rank)
      for (size_t i = 0; i < world_.interval_count(); ++i) {
        const bool wanted = world_.direction == Direction::reshard ? homes[i].owner == static_cast<int>(rank)
                                                             : homes[i].owner >= 0;
        const uint32_t count = arrivals_[rank * world_.interval_count() + i];
        if (wanted && count != 1)
          return words("rank ", rank, ", offset ", world_.cuts[i], ": arrived ", count, " times");
      }
    return "";
  }

  std::string check_sums() const {
    Sum whole = world_.accumulate ? Sum{0, accumulator_order, 0, true, true} : zero;
    for (int rank = 0; rank < world_.layout.rank_count; ++rank) whole.add(gradient_of(rank));
    for (size_t i = 0; i < world_.interval_count(); ++i) {
      if (world_.homes[i].owner < 0) continue;
      const std::string wrong = complain_of_sum(targets_[i], whole);
      if (!wrong.empty()) return words("rank ", world_.homes[i].owner, ", offset ", world_.cuts[i], ": ", wrong);
    }
    return "";
  }

  std::string complain_of_sum(const Sum &sum, const Sum &whole) const {
    if (!sum.valid) return "nothing arrived";
    if (sum.count != whole.count || sum.weights != whole.weights)
      return words(sum.count, " gradients were added, or not one of each of ", whole.count, " ranks");
    if (sum.accumulator != whole.accumulator) return "what the target held is not in the sum";
    if (world_.direction == Direction::ordered_reduce && sum.order != whole.order) return "added in another order";
    return "";
  }

  const World &world_;
  std::vector<uint32_t> rank_of_, waits_for_, first_dependent_, dependents_, ready_;  // by move of all
  std::vector<uint8_t> done_;
  std::vector<Progress> progress_;        // by channel, source first
  std::vector<uint8_t> arrivals_;         // gather, reshard: by rank and interval
  std::vector<Sum> targets_;              // reduce: by interval, at its owner
  std::vector<std::vector<Slot>> slots_;  // reduce: by rank
};

}  // namespace

std::string check_run(const World &world) { return Run(world).run(); }

}  // namespace mxs::checker
