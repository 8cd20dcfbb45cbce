// SPDX-License-Identifier: Apache-2.0
// What the parts of the checker (check.cpp) look at: the schedules of all ranks, numbered through, and the buffer cut
// into intervals by the ends of all ranges and segments.
//
// Everything is a flat array: a million messages take half a second (`schedule_large_worlds`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace mxs::checker {

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

// The messages of all channels of one direction, seen from one end: list[start[rank * rank_count + peer] ...].
struct Ends {
  std::vector<uint32_t> start, list;
  uint32_t count(size_t channel) const { return start[channel + 1] - start[channel]; }
  uint32_t at(size_t channel, uint32_t message) const { return list[start[channel] + message]; }
};

struct World {
  const Layout &layout;
  const Layout *const target_layout;
  const std::vector<Schedule> &schedules;
  const uint32_t window;
  const size_t rank_count;
  const Direction direction;
  const bool accumulate;

  std::vector<uint32_t> first_move, first_range;  // by rank: numbers of its first ones among all
  std::vector<uint64_t> cuts;                     // ascending: interval i is cuts[i] .. cuts[i + 1]
  std::vector<Intervals> intervals;               // by range
  std::vector<Home> homes, target_homes;          // by interval; the latter for reshard only
  Ends out, in;

  World(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules, int window);
  World(const World &) = delete;

  // Fills what follows the constructor's, and complains of what is wrong with single moves and the ends of messages.
  std::string build();

  bool reduces() const { return direction == Direction::reduce || direction == Direction::ordered_reduce; }
  size_t interval_count() const { return cuts.size() - 1; }
  const Move &move_of(size_t rank, uint32_t index) const { return schedules[rank].moves[index]; }
  size_t channel_of(size_t rank, int peer) const { return rank * rank_count + static_cast<size_t>(peer); }

  // check(source, target), until it complains. In tiles, so that what one rank has of neighbouring peers is in cache:
  // with 1,024 ranks, four times as fast.
  template <class Check>
  std::string for_all_channels(Check &&check) const {
    constexpr size_t tile = 32;
    for (size_t from = 0; from < rank_count; from += tile)
      for (size_t to = 0; to < rank_count; to += tile)
        for (size_t source = from; source < std::min(from + tile, rank_count); ++source)
          for (size_t target = to; target < std::min(to + tile, rank_count); ++target) {
            std::string complaint = check(source, target);
            if (!complaint.empty()) return complaint;
          }
    return "";
  }
};

// The intervals of all ranges of a move, one after the other.
class Walk {
 public:
  Walk(const World &world, size_t rank, const Move &move)
      : at_(&world.intervals[world.first_range[rank] + move.first_range]), end_(at_ + move.range_count),
        range_(&world.schedules[rank].ranges[move.first_range]), interval_(at_->first) {}
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

inline std::string name_of(size_t rank, size_t index) { return words("rank ", rank, ", move ", index); }

// No move of a rank meets another on the same bytes without waiting for it.
std::string check_hazards(const World &world);

// Runs all schedules, and looks at what came of it.
std::string check_run(const World &world);

}  // namespace mxs::checker
