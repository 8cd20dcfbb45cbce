// SPDX-License-Identifier: Apache-2.0
// Matrices that several ranks of a node share. co_owners.cpp cuts and places them, sharing.cpp chooses which.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "plan/ledger.hpp"
#include "plan/stages.hpp"

namespace mxs {

// A matrix and how many ranks share it.
struct Group {
  Draft *draft = nullptr;
  int rank_count = 1;
  uint64_t cost = 0, bytes = 0;  // of one share, of the largest
};

// May be fewer than asked for: no more than there are ranges of whole chunks.
Group make_group(const PlanSettings &settings, Draft *draft, int asked);

// Rows of the largest share.
uint64_t share_rows(const PlanSettings &settings, const PlannedTensor &tensor, int rank_count);

// Cuts the matrix and gives the shares to these ranks, ascending and of one node; one rank: it was asked for more, but
// has too few rows. The reason tells.
void share_among(const PlanSettings &settings, const std::vector<int> &ranks, Draft *draft);

int most_ranks_of_a_node(const Topology &topology);

// Finds ranks for groups: the node whose ranks have least to do, and of it those that have.
class GroupPlacer {
 public:
  GroupPlacer(const Topology &topology, Ledger *ledger) : topology_(topology), ledger_(*ledger) {}
  // Ascending, and charged to the ledger. Fast if groups come by descending rank_count. False: no node has the bytes.
  bool place(const Group &group, std::vector<int> *ranks);

 private:
  void sort_nodes(int rank_count);
  std::vector<int> sorted_ranks(int node) const;
  std::tuple<uint64_t, uint64_t, int> key(int node) const;

  const Topology &topology_;
  Ledger &ledger_;
  int rank_count_ = 0;  // of the groups that nodes are sorted for
  std::set<std::tuple<uint64_t, uint64_t, int>> nodes_;  // by what their rank_count_ least loaded ranks have to do
};

// ---- sharing.cpp ----
// The matrices that ranks had better share, bigger groups first. Most often none.
std::vector<Group> choose_groups(const PlanSettings &settings, std::vector<Draft> *drafts, const Ledger &ledger);

}  // namespace mxs
