// SPDX-License-Identifier: Apache-2.0
// The least time of gathers on one topology: what bounds.hpp says of them, for many layouts. Tables of all ranks are
// made once; a layout costs as much as it has segments, since all that own nothing receive alike, and the slowest of
// them is found without a look at the others.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.hpp"
#include "schedule/bounds.hpp"
#include "topology/topology.hpp"

namespace mxs {

// Ranks, or nodes, by what each can send or receive in a second.
class Rates {
 public:
  explicit Rates(std::vector<double> of_place);
  double of(int place) const { return of_place_[static_cast<size_t>(place)]; }
  double sum() const { return sum_; }  // in the order of places
  // Of all but these, each named once; 0: they are all.
  double slowest_but(const std::vector<int> &places);

 private:
  std::vector<double> of_place_, levels_;  // levels: the rates that occur, ascending
  std::vector<int> level_of_place_, places_at_level_;
  double sum_ = 0;
};

class GatherBound {
 public:
  explicit GatherBound(const Topology &topology);
  // Equal to lower_bound of a gather, to the bit.
  Bound of(const Layout &layout);

 private:
  const Topology &topology_;
  Rates ranks_, nodes_;
  std::vector<uint64_t> rank_bytes_;
  std::vector<double> node_bytes_;
  std::vector<int> owners_, nodes_of_owners_;
};

}  // namespace mxs
