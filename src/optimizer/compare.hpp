// SPDX-License-Identifier: Apache-2.0
// Do all ranks make the same optimizer? Units and options must be equal. Who computes in another way (backend, threads,
// class of CPU) has other bits: that is refused under rank order and between replicas, and logged otherwise.
#pragma once

#include <string>
#include <vector>

#include "optimizer/optimizer.hpp"
#include "optimizer/settings.hpp"

namespace mxs {

// As it travels.
struct OptimizerFingerprints {
  uint64_t units = 0, arithmetic = 0, backup = 0;
  OptionHashes options;

  // What `other` has that this hasn't, to follow "makes its optimizer with"; "" if nothing.
  std::string difference(const OptimizerFingerprints &other) const;
};

OptimizerFingerprints fingerprints(const std::vector<Unit *> &units, const OptimizerSettings &settings,
                                   RulesUsed used, int thread_count);

// Collective over the comm.
mxs_status compare_ranks(const OptimizerComm &comm, const OptimizerFingerprints &mine,
                         const OptimizerSettings &settings, bool rank_order);
// The same over replicas. own: how it went in this shard group.
mxs_status compare_replicas(const OptimizerComm &comm, const OptimizerFingerprints &mine,
                            const OptimizerSettings &settings, mxs_status own);

}  // namespace mxs
