// SPDX-License-Identifier: Apache-2.0
#include "optimizer/compare.hpp"

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/linear.hpp"

namespace mxs {

std::string OptimizerFingerprints::difference(const OptimizerFingerprints &other) const {
  if (units != other.units) return "other units or in another order";
  return backup != other.backup ? "another options.backup" : options.difference(other.options);
}

OptimizerFingerprints fingerprints(const std::vector<Unit *> &units, const OptimizerSettings &settings,
                                   RulesUsed used, int thread_count) {
  Fingerprint all_units, arithmetic;
  all_units.add(units.size());
  for (const Unit *unit : units) all_units.add(unit->plan().fingerprint).add(static_cast<uint64_t>(unit->index()));
  if (const Device *const device = units[0]->device()) {
    arithmetic.add(device->info().name).add(static_cast<uint64_t>(device->info().major * 16 + device->info().minor));
    arithmetic.add(static_cast<uint64_t>(settings.backend)).add(static_cast<uint64_t>(settings.muon.backend));
    arithmetic.add(static_cast<uint64_t>(settings.shampoo.backend)).add(static_cast<uint64_t>(settings.soap.backend));
    return {all_units.value(), arithmetic.value(), settings.backup, option_hashes(settings)};
  }
  const mxs_newton_schulz *const newton_schulz = settings.muon.newton_schulz;
  const mxs_backend muon_backend =
      newton_schulz && newton_schulz->backend != MXS_BACKEND_AUTO ? newton_schulz->backend : settings.muon.backend;
  // Without a rule that takes one, its name is not asked for: that would load OpenBLAS (see RulesUsed).
  arithmetic.add(kernels().name);
  if (used.orthogonalizes) arithmetic.add(arithmetic_name(settings.backend)).add(arithmetic_name(muon_backend));
  for (const mxs_backend backend : {settings.shampoo.backend, settings.soap.backend}) {
    const Linear *linear = nullptr;
    if (used.decomposes && linear_of(backend, &linear) == MXS_OK) arithmetic.add(linear->name);
  }
  arithmetic.add(static_cast<uint64_t>(thread_count));
  return {all_units.value(), arithmetic.value(), settings.backup, option_hashes(settings)};
}

mxs_status compare_ranks(const OptimizerComm &comm, const OptimizerFingerprints &mine,
                         const OptimizerSettings &settings, bool rank_order) {
  std::vector<OptimizerFingerprints> all(static_cast<size_t>(comm.rank_count));
  const mxs_status status = comm.gather(&mine, all.data(), sizeof mine);
  if (status != MXS_OK) return status;
  for (int rank = 1; rank < comm.rank_count; ++rank) {
    const OptimizerFingerprints &other = all[static_cast<size_t>(rank)];
    const std::string differs = all[0].difference(other);
    if (!differs.empty())
      return set_error(MXS_MISMATCH, "rank %d makes its optimizer with %s than rank 0", rank, differs.c_str());
    if (other.arithmetic == all[0].arithmetic) continue;
    if (rank_order)
      return set_error(MXS_MISMATCH, "rank %d computes with another backend, thread count or class of CPU than rank 0, "
                       "so that equal bits cannot be promised (MXS_RANK_ORDER); this rank: %s, %d threads", rank,
                       arithmetic_name(settings.backend).c_str(), comm.thread_count);
    log_line(MXS_LOG_WARNING, "optimizer: rank %d computes with another backend, thread count or CPU than rank 0",
             rank);
  }
  return MXS_OK;
}

// Owners step redundantly and stay equal only if they compute alike.
mxs_status compare_replicas(const OptimizerComm &comm, const OptimizerFingerprints &mine,
                            const OptimizerSettings &settings, mxs_status own) {
  mxs_status status = comm.settle_replicas(own);
  if (status != MXS_OK) return status;
  std::vector<OptimizerFingerprints> all(static_cast<size_t>(comm.replica_count));
  status = comm.gather_replicas(&mine, all.data(), sizeof mine);
  for (size_t replica = 1; status == MXS_OK && replica < all.size(); ++replica) {
    const std::string other = all[0].difference(all[replica]);
    if (!other.empty())
      status = set_error(MXS_MISMATCH, "replica %zu makes its optimizer with %s than replica 0", replica,
                         other.c_str());
    else if (all[replica].arithmetic != all[0].arithmetic)
      status = set_error(MXS_MISMATCH, "replica %zu computes with another backend, thread count or class of CPU than "
                         "replica 0, so that their weights would part; this rank: %s, %d threads", replica,
                         arithmetic_name(settings.backend).c_str(), comm.thread_count);
  }
  // Only some ranks of a shard group may have other hardware in another replica.
  return comm.settle(status);
}

}  // namespace mxs
