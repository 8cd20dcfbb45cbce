// SPDX-License-Identifier: Apache-2.0
// Making a unit: everything that allocates, maps or touches happens in here.
//
//   1 compare over ranks   2 share files (collective)   3 map and touch this rank's, make operations
//   4 all ranks well?      5 touch peers' pages          6 all ranks well?
//
// A rank's own pages are real before a peer touches them, so that each rank's memory is charged to itself.
#include <cstdio>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "matrixshard/collective.h"
#include "unit/builder.hpp"
#include "unit/compare.hpp"

namespace mxs {

// Commit rounds fp32 to the float dtypes. The plan sees to that for the rules that the library steps; here it is for
// external and frozen tensors, which may be anything as long as they have no second copy.
mxs_status UnitBuilder::check_masters() const {
  for (const int number : given_plan_.units[static_cast<size_t>(index_)].tensors) {
    const PlannedTensor &tensor = given_plan_.tensors[static_cast<size_t>(number)];
    const bool is_narrow = tensor.dtype == MXS_BF16 || tensor.dtype == MXS_F16;
    if (tensor.master_dtype != tensor.dtype && (tensor.master_dtype != MXS_F32 || !is_narrow))
      return set_error(MXS_NOT_BUILT,
                       "unit %d, tensor %.200s: this release can't round a master in %s to %s; use f32 masters of bf16 "
                       "or f16, or set master_dtype to dtype",
                       index_, tensor.name.c_str(), mxs_dtype_name(tensor.master_dtype), mxs_dtype_name(tensor.dtype));
  }
  return MXS_OK;
}

mxs_status UnitBuilder::compare() {
  const std::string forced = environment_text("MXS_ALGORITHM").value_or("");
  UnitDescription description;
  description.index = static_cast<uint64_t>(index_);
  description.options_hash = Fingerprint()
                                 .add(pool_options_.by_reference)
                                 .add(pool_options_.on_device)
                                 .add(static_cast<uint64_t>(pool_options_.slots))
                                 .add(static_cast<uint64_t>(pool_options_.gradient_slots))
                                 .add(static_cast<uint64_t>(options_.flags))
                                 .add(options_.buffer != nullptr)
                                 .add(static_cast<uint64_t>(options_.own_slot))
                                 .add(static_cast<uint64_t>(options_.replicas ? options_.replicas->rank_count : 0))
                                 .add(static_cast<uint64_t>(options_.replicas ? options_.replicas->rank : 0))
                                 .add(std::string_view(gather_name_))
                                 .add(std::string_view(forced))
                                 .value();
  unit_->pool_ = find_pool(comm_, given_plan_, pool_options_);
  description.has_pool = unit_->pool_ != nullptr;
  pool_is_new_ = !unit_->pool_;
  return compare_units(comm_, given_plan_, description);
}

// The ranks of options.replicas must be one rank's place in several shard groups that do the same.
mxs_status UnitBuilder::compare_replicas(mxs_status own) {
  if (!options_.replicas) return own;
  Comm &replicas = *options_.replicas;
  mxs_status status = settle_over_ranks(replicas, own, "mxs_unit_create in another replica");
  if (status != MXS_OK) return status;
  struct Place {
    uint64_t fingerprint;
    int64_t rank, rank_count, index;
  };
  const Place mine = {given_plan_.fingerprint, comm_.rank, comm_.rank_count, index_};
  std::vector<Place> places(static_cast<size_t>(replicas.rank_count));
  status = replicas.agree(&mine, places.data(), sizeof mine, 0);
  for (size_t replica = 1; status == MXS_OK && replica < places.size(); ++replica) {
    const Place &first = places[0], &other = places[replica];
    if (other.rank != first.rank || other.rank_count != first.rank_count)
      status = set_error(MXS_INVALID_ARGUMENT, "unit %d: options.replicas joins rank %lld of %lld with rank %lld of "
                         "%lld; its ranks must have one rank in their shard groups, and these one size", index_,
                         static_cast<long long>(first.rank), static_cast<long long>(first.rank_count),
                         static_cast<long long>(other.rank), static_cast<long long>(other.rank_count));
    else if (other.fingerprint != first.fingerprint || other.index != first.index)
      status = set_error(MXS_MISMATCH, "unit %d: replica %zu has another plan than replica 0, or creates another unit "
                         "(%lld)", index_, replica, static_cast<long long>(other.index));
  }
  // Some replica comms of a group may be right where others are wrong.
  return refuse_unit(comm_, status, index_);
}

mxs_status UnitBuilder::build() {
  if (on_device()) return build_on_device();
  if (pool_is_new_) {
    const mxs_status status = unit_->pool_->touch_own();
    if (status != MXS_OK) return status;
  }
  mxs_status status = unit_->takes_slot_ ? unit_->pool_->touch_own_slots(index_) : MXS_OK;
  if (status == MXS_OK) status = make_range();
  if (status != MXS_OK) return status;
  status = make_masters();
  if (status != MXS_OK) return status;
  list_owned();
  status = make_gather();
  unit_->reduce_algorithm_ = "none";
  for (GradientGroup &group : unit_->groups_)
    if (status == MXS_OK) status = make_reduce(&group);
  if (status == MXS_OK) make_canaries();
  unit_->watch_operations();
  return status == MXS_OK ? make_replica_sum() : status;
}

// Every rank has chosen alike.
void UnitBuilder::log_choice() const {
  if (comm_.rank != 0) return;
  const mxs_unit_info info = unit_->info();
  log_line(MXS_LOG_INFO, "unit %d: %llu bytes, gathered by %s, reduced by %s, %s%s", index_,
           static_cast<unsigned long long>(info.bytes), info.gather_algorithm, info.reduce_algorithm,
           on_device() ? "CUDA memory, " : "pages of ", info.pages);
}

// All that can be refused by looking at this rank's arguments.
mxs_status UnitBuilder::prepare() {
  if (given_plan_.topology.rank_count() != comm_.rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "the plan is for %d ranks, but the comm has %d",
                     given_plan_.topology.rank_count(), comm_.rank_count);
  if (index_ < 0 || static_cast<size_t>(index_) >= given_plan_.units.size())
    return set_error(MXS_INVALID_ARGUMENT, "unit is %d, but the plan has %zu", index_, given_plan_.units.size());
  mxs_status status = choose();
  if (status != MXS_OK) return status;
  status = check_alignment();
  if (status != MXS_OK) return status;
  status = check_masters();
  if (status != MXS_OK) return status;
  if (on_device()) status = check_device_options();
  if (status != MXS_OK) return status;
  return environment_number("MXS_DEBUG_VIEWS", 0, 1, &debug_views_);
}

// A rank may have no memory or no descriptor for what all others have got. But one that was failed by its peers would
// wait for them here once more: the comm has failed.
mxs_status UnitBuilder::settle(mxs_status own) const {
  mxs_status status = own;
  if (own == MXS_TIMED_OUT || own == MXS_PEER_FAILED || own == MXS_MISMATCH) status = comm_.fail(own);
  else status = refuse_unit(comm_, own, index_);
  return options_.replicas ? settle_over_ranks(*options_.replicas, status, "mxs_unit_create in another replica")
                           : status;
}

mxs_status UnitBuilder::run(std::unique_ptr<Unit> *unit) {
  mxs_status status = settle(fenced([&] { return prepare(); }));
  if (status != MXS_OK) return status;
  unit_ = std::make_unique<mxs_unit>();
  unit_->comm_ = &comm_;
  comm_.children.fetch_add(1);
  unit_->index_ = index_;
  unit_->rank_ = comm_.rank;
  unit_->rank_order_ = (options_.flags & MXS_RANK_ORDER) != 0;
  unit_->debug_views_ = debug_views_ == 1 && !options_.buffer;
  unit_->by_reference_ = pool_options_.by_reference;
  status = compare_replicas(compare());
  if (status == MXS_OK && on_device()) status = open_on_device();
  if (status != MXS_OK) return status;
  if (options_.replicas) {
    unit_->replicas_ = options_.replicas;
    options_.replicas->children.fetch_add(1);
    options_.replicas->tie_to(comm_);
  }
  unit_->slot_ = index_ % pool_options_.slots;
  const bool needs_slot = !unit_->by_reference_ && !options_.buffer &&
                          given_plan_.units[static_cast<size_t>(index_)].weights.bytes != 0;
  unit_->own_slot_ = needs_slot && options_.own_slot != 0;
  unit_->takes_slot_ = needs_slot && !unit_->own_slot_;
  status = settle(fenced([&] { return share_pool(); }));
  if (status != MXS_OK) return status;
  status = fenced([&] { return share(); });
  status = settle(status == MXS_OK ? fenced([&] { return build(); }) : status);
  if (status != MXS_OK) return status;
  status = settle(fenced([&] { return touch_peers(); }));
  if (status != MXS_OK) return status;
  // The maps stay; the files are not needed any more, and there may be many units.
  unit_->region_.files.clear();
  if (pool_is_new_) comm_.pools.push_back(unit_->pool_);
  if (unit_->debug_views_) unit_->protect(false);
  log_choice();
  *unit = std::move(unit_);
  return MXS_OK;
}

mxs_status refuse_unit(Comm &comm, mxs_status own, int index, Comm *replicas) {
  char what[64];
  std::snprintf(what, sizeof what, "mxs_unit_create of unit %d", index);
  const mxs_status status = settle_over_ranks(comm, own, what);
  return replicas ? settle_over_ranks(*replicas, status, "mxs_unit_create in another replica") : status;
}

mxs_status create_unit(std::unique_ptr<Unit> *unit, Comm &comm, const Plan &plan, int index,
                       const mxs_unit_options &options) {
  mxs_status status = comm.check();
  if (status == MXS_OK && options.replicas) status = options.replicas->check();
  return status == MXS_OK ? UnitBuilder(comm, plan, index, options).run(unit) : status;
}

}  // namespace mxs
