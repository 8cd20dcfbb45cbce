// SPDX-License-Identifier: Apache-2.0
// What the tests of schedules share: a whole world's set of them.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "layout/layout.hpp"
#include "schedule/schedule.hpp"
#include "support/layouts.hpp"

namespace mxs {

struct Set {
  Layout layout, target_layout;
  std::vector<Schedule> schedules;
  std::string complaint;  // of making it

  std::string check(int window) const {
    return complaint.empty() ? check_schedules(layout, &target_layout, schedules, window) : complaint;
  }
};

inline Layout layout_of(const TestLayout &test, int rank_count, std::string *complaint) {
  std::vector<Segment> segments;
  for (const TestSegment &segment : test.segments) segments.push_back({segment.owner, segment.offset, segment.bytes});
  Layout layout;
  if (make_layout(segments, rank_count, test.alignment, &layout) != MXS_OK) *complaint = last_error_text();
  return layout;
}

// options: all but the layouts.
inline void make_set(Set *set, ScheduleOptions options, const TestLayout &source, const TestLayout &target,
                     int rank_count) {
  set->layout = layout_of(source, rank_count, &set->complaint);
  set->target_layout = layout_of(target, rank_count, &set->complaint);
  options.layout = &set->layout;
  options.target_layout = &set->target_layout;
  std::vector<Piece> pieces;
  if (!set->complaint.empty()) return;
  if (cut_pieces(options, &pieces) != MXS_OK) {
    set->complaint = last_error_text();
    return;
  }
  for (int rank = 0; rank < rank_count; ++rank) set->schedules.push_back(make_schedule(options, pieces, rank));
}

inline const char *direction_name(Direction direction) {
  switch (direction) {
    case Direction::gather: return "gather";
    case Direction::reduce: return "reduce";
    case Direction::ordered_reduce: return "ordered reduce";
    case Direction::reshard: return "reshard";
  }
  return "";
}

}  // namespace mxs
