// SPDX-License-Identifier: Apache-2.0
#include "schedule/simulated_world.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/status.hpp"
#include "schedule/trees.hpp"

namespace mxs {

namespace {

struct InChannel {
  int32_t source, target;
  uint32_t begin, count;
};

class WorldMaker {
 public:
  WorldMaker(const ScheduleOptions &options, SimulatedWorld *world) : options_(options), world_(*world) {}

  mxs_status add(const Schedule &schedule);
  mxs_status join();

 private:
  void place(const Schedule &schedule);
  void keep(const Schedule &schedule, const Move &move, SimulatedMove *kept);

  const ScheduleOptions &options_;
  SimulatedWorld &world_;
  std::vector<InChannel> in_;
  std::vector<uint32_t> order_, place_;  // of one rank's moves, sorted by channel; where each went
};

// Sorts a rank's moves by channel: sends by peer, then receives by peer. Local moves are done from the start: a gather
// in place has nothing to copy.
void WorldMaker::place(const Schedule &schedule) {
  const auto group = [&](uint32_t index) {
    const Move &move = schedule.moves[index];
    return (move.kind == MoveKind::receive ? uint64_t{1} << 32 : 0) | static_cast<uint32_t>(move.peer);
  };
  order_.clear();
  for (uint32_t index = 0; index < schedule.moves.size(); ++index)
    if (schedule.moves[index].kind != MoveKind::local) order_.push_back(index);
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return group(a) < group(b); });
  place_.assign(schedule.moves.size(), SimulatedMove::none);
  const uint32_t base = static_cast<uint32_t>(world_.moves.size());
  for (uint32_t position = 0; position < order_.size(); ++position) place_[order_[position]] = base + position;
}

void WorldMaker::keep(const Schedule &schedule, const Move &move, SimulatedMove *kept) {
  std::vector<uint32_t> &lists = world_.lists;
  const uint32_t list = static_cast<uint32_t>(lists.size());
  lists.push_back(0);
  for (const uint32_t dependency : schedule.dependencies_of(move)) {
    const uint32_t place = place_[dependency];
    if (place == SimulatedMove::none) continue;
    lists.push_back(place);
    ++lists[list];
  }
  if (lists[list] > 1) {
    kept->dependency = SimulatedMove::many | list;
    return;
  }
  if (lists[list] == 1) kept->dependency = lists.back();
  lists.resize(list);
}

mxs_status WorldMaker::add(const Schedule &schedule) {
  place(schedule);
  world_.channels_of.push_back(static_cast<uint32_t>(world_.channels.size()));
  for (const uint32_t index : order_) {
    const Move &move = schedule.moves[index];
    const uint64_t bytes = schedule.message_bytes(move);
    if (bytes > UINT32_MAX)
      return set_error(MXS_INVALID_ARGUMENT, "messages of %llu bytes can't be simulated; make chunk_bytes smaller",
                       static_cast<unsigned long long>(bytes));
    const uint32_t position = static_cast<uint32_t>(world_.moves.size());
    SimulatedMove kept;
    kept.bytes = static_cast<uint32_t>(bytes);
    kept.added = static_cast<uint32_t>(std::min<uint64_t>(schedule.added_bytes(move), UINT32_MAX));
    keep(schedule, move, &kept);
    const bool sends = move.kind == MoveKind::send;
    if (sends) {
      const bool any = world_.channels.size() > world_.channels_of.back();
      const bool same = any && world_.channels.back().target == move.peer;
      if (!same) {
        SimulatedChannel channel;
        channel.source = schedule.rank;
        channel.target = move.peer;
        channel.out_begin = position;
        channel.local = options_.topology->same_node(schedule.rank, move.peer);
        world_.channels.push_back(channel);
      }
      kept.channel = static_cast<uint32_t>(world_.channels.size() - 1);
      ++world_.channels.back().count;
    } else {
      const bool same = !in_.empty() && in_.back().target == schedule.rank && in_.back().source == move.peer;
      if (!same) in_.push_back({move.peer, schedule.rank, position, 0});
      ++in_.back().count;
    }
    world_.moves.push_back(kept);
  }
  return MXS_OK;
}

// Gives every channel its moves at the receiver.
mxs_status WorldMaker::join() {
  world_.channels_of.push_back(static_cast<uint32_t>(world_.channels.size()));
  for (const InChannel &in : in_) {
    const auto begin = world_.channels.begin() + world_.channels_of[static_cast<size_t>(in.source)];
    const auto end = world_.channels.begin() + world_.channels_of[static_cast<size_t>(in.source) + 1];
    const auto found = std::lower_bound(begin, end, in.target, [](const SimulatedChannel &channel, int target) {
      return channel.target < target;
    });
    if (found == end || found->target != in.target || found->count != in.count)
      return set_error(MXS_INTERNAL, "rank %d expects %u messages of rank %d, which sends another number", in.target,
                       in.count, in.source);
    found->in_begin = in.begin;
    for (uint32_t i = 0; i < in.count; ++i)
      world_.moves[in.begin + i].channel = static_cast<uint32_t>(found - world_.channels.begin());
  }
  return MXS_OK;
}

}  // namespace

mxs_status make_simulated_world(const ScheduleOptions &options, const std::vector<Piece> &pieces,
                                SimulatedWorld *world) {
  *world = SimulatedWorld();
  WorldMaker maker(options, world);
  const std::unique_ptr<Trees> trees = make_trees(options);
  for (int rank = 0; rank < options.layout->rank_count; ++rank) {
    const mxs_status status = maker.add(make_schedule(options, *trees, pieces, rank));
    if (status != MXS_OK) return status;
  }
  return maker.join();
}

}  // namespace mxs
