// SPDX-License-Identifier: Apache-2.0
// What a caller's mxs_optimizer holds.
#pragma once

#include <memory>
#include <vector>

#include "collective/comm.hpp"
#include "collective/group_sum.hpp"
#include "optimizer/optimizer.hpp"

struct mxs_optimizer {
  std::vector<std::unique_ptr<mxs::GroupSum>> sums;  // of co-owners; used by inner
  std::unique_ptr<mxs::Optimizer> inner;
  std::vector<mxs::Comm *> comms;
  std::vector<int> phases;  // of the comms, before the step that runs

  mxs_status check() const {
    for (const mxs::Comm *comm : comms) {
      const mxs_status status = comm->check();
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }
  // Bytes and time of a step are counted apart.
  void enter_step() {
    for (size_t i = 0; i < comms.size(); ++i) phases[i] = comms[i]->phase.exchange(MXS_PHASE_STEP);
  }
  void leave_step() {
    for (size_t i = 0; i < comms.size(); ++i) comms[i]->phase.store(phases[i]);
  }
};
