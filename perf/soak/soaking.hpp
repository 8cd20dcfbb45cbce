// SPDX-License-Identifier: Apache-2.0
// A rank's life: world after world, in each round after round of cases, until the ranks agree that the time is over or
// one of them finds its comm failed.
#pragma once

#include <barrier>

#include "soak/drawn.hpp"
#include "soak/faults.hpp"
#include "soak/group.hpp"

namespace soak {

// What the rank's process, or its thread, brings along.
struct Place {
  int rank = 0, rank_count = 1;
  const mxs_bootstrap *bootstrap = nullptr;  // NULL: the environment
  std::barrier<> *threads = nullptr;         // of ranks in one process
  Nurse nurse;
};

// Exit statuses of a rank.
constexpr int status_wrong = 1, status_failed = 3, status_leak = 4;

mxs::comm make_world(const Options &options, const Place &place, Choices *choices);
bool has_failed(mxs_comm *comm);
// Does the sentence name the rank, as "rank 2" or in "ranks 1, 2 and 3"?
bool names_rank(const std::string &sentence, int rank);

int soak(const Options &options, const Place &place);
// matrix.cpp: one phase again and again, until the fault of options is heard.
int run_matrix(const Options &options, const Place &place);

}  // namespace soak
