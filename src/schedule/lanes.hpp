// SPDX-License-Identifier: Apache-2.0
// Lanes of two-level: on every node, which local rank relays which part of the bytes.
//
//   lane 0   rank 0 (node 0, near rail 0) === rank 4 (node 1, near rail 0)
//   lane 1   rank 1 (node 0, near rail 1) === rank 5 (node 1, near rail 1)
//
// As many lanes as the largest node has ranks, up to 16; a node with fewer ranks uses them again from the first.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mxs {

class Lanes {
 public:
  explicit Lanes(const ScheduleOptions &options);

  int count() const { return count_; }
  int node_count() const { return static_cast<int>(relays_.size()); }
  int node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  // Neighbours are near different rails, as far as a node has them.
  const std::vector<int> &ranks(int node) const { return relays_[static_cast<size_t>(node)]; }
  int place_of(int rank) const { return places_[static_cast<size_t>(rank)]; }  // in ranks(its node)
  int relay(int node, int lane) const {
    const std::vector<int> &relays = ranks(node);
    return relays[static_cast<size_t>(lane) % relays.size()];
  }
  // The lane that a rank relays itself, if it does: small owners use that alone, which saves a hop.
  int lane_of(int rank) const { return place_of(rank) % count_; }

 private:
  std::vector<int> nodes_, places_;       // by rank
  std::vector<std::vector<int>> relays_;  // by node: its ranks
  int count_ = 1;
};

}  // namespace mxs
