// SPDX-License-Identifier: Apache-2.0
// By which way do a unit's bytes go? In a node by load and store, unless the caller insists; else in messages.
#include <algorithm>
#include <string>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "matrixshard/collective.h"
#include "unit/builder.hpp"
#include "unit/replicas.hpp"

namespace mxs {

namespace {

uint64_t segment_bytes(const Layout &layout) {
  uint64_t bytes = 0;
  for (const Segment &segment : layout.segments) bytes += segment.bytes;
  return bytes;
}

}  // namespace

// By which way bytes will go: by load and store if all ranks share a node, else, or if the caller insists, by messages.
mxs_status UnitBuilder::choose() {
  pool_options_.by_reference = options_.gather == MXS_GATHER_BY_REFERENCE;
  pool_options_.slots = pool_slot_count(options_.slots);
  pool_options_.gradient_slots = pool_slot_count(options_.gradient_slots);
  pool_options_.replicas = options_.replicas != nullptr;
  pool_options_.on_device = options_.memory == MXS_CUDA;
  if (on_device()) return MXS_OK;
  if (pool_options_.by_reference && options_.buffer)
    return set_error(MXS_INVALID_ARGUMENT, "unit %d: gather by reference maps owners' pages, so it can't use a buffer",
                     index_);
  if (pool_options_.by_reference && !comm_.domain && comm_.rank_count > 1)
    return set_error(MXS_INVALID_ARGUMENT,
                     "unit %d: gather by reference needs all ranks in one node, joined by shm or loopback; this comm's "
                     "are joined by %s",
                     index_, comm_.transports.c_str());
  if (!options_.algorithm || !*options_.algorithm) return MXS_OK;
  // One name serves both kinds; inside a node each kind has a name of its own for the same way.
  gather_name_ = reduce_name_ = options_.algorithm;
  if (gather_name_ == "fanout" || gather_name_ == "cooperative") {
    gather_name_ = "fanout";
    reduce_name_ = "cooperative";
  }
  if (gather_name_ == "fanout" && options_.buffer)
    return set_error(MXS_INVALID_ARGUMENT,
                     "unit %d: fanout needs memory that peers map, which a buffer of the caller's is not", index_);
  const PlannedUnit &planned = given_plan_.units[static_cast<size_t>(index_)];
  Choice choice;
  mxs_status status = choose_gather(planned.weights, &choice);
  if (status != MXS_OK) return status;
  return choose_reduce(planned.gradients, MXS_F32, &choice);
}

MessageOptions UnitBuilder::gather_options(const Layout &layout) const {
  MessageOptions options;
  options.kind = MXS_GATHER;
  options.layout = &layout;
  return options;
}

MessageOptions UnitBuilder::reduce_options(const Layout &layout, mxs_dtype dtype) const {
  MessageOptions options;
  options.kind = MXS_REDUCE;
  options.layout = &layout;
  options.dtype = dtype;
  options.rank_order = (options_.flags & MXS_RANK_ORDER) != 0;
  options.accumulate = !options_.replicas;
  return options;
}

// Peers can't map a buffer of the caller's.
mxs_status UnitBuilder::choose_gather(const Layout &layout, Choice *choice) const {
  const mxs_status status = mxs::choose(comm_, gather_options(layout), gather_name_.c_str(), choice);
  if (options_.buffer) choice->node = false;
  return status;
}

mxs_status UnitBuilder::choose_reduce(const Layout &layout, mxs_dtype dtype, Choice *choice) const {
  return mxs::choose(comm_, reduce_options(layout, dtype), reduce_name_.c_str(), choice);
}

// Units of one shape are common: without it ranks that gather them in another order would get each other's bytes.
uint64_t UnitBuilder::identity() const {
  return Fingerprint().add("unit").add(plan().fingerprint).add(static_cast<uint64_t>(index_)).value();
}

mxs_status UnitBuilder::make_gather() {
  const Layout &layout = planned().weights;
  const uint64_t all = segment_bytes(layout), own = layout.owned_bytes(comm_.rank);
  unit_->gather_algorithm_ = unit_->by_reference_ ? "reference" : "none";
  if (unit_->by_reference_ || all == 0) return MXS_OK;
  Choice choice;
  mxs_status status = choose_gather(layout, &choice);
  if (status != MXS_OK) return status;
  if (choice.node) {
    const SharedRegion &target = unit_->own_slot_ ? unit_->region_ : unit_->pool_->region();
    unit_->node_gather_ = make_node_gather(comm_, {&layout, &unit_->region_, &target});
    unit_->node_gather_->set_identity(identity());
    unit_->gather_bytes_out_ = own * static_cast<uint64_t>(comm_.rank_count - 1);
    unit_->gather_bytes_in_ = all - own;
    unit_->gather_algorithm_ = "fanout";
    unit_->node_gather_->set_label(comm_.label("fanout", unit_->gather_bytes_out_, unit_->gather_bytes_in_, index_));
    return MXS_OK;
  }
  MessageOptions options = gather_options(layout);
  apply(choice, &options);
  status = make_message_operation(&unit_->message_gather_, comm_, options);
  if (status != MXS_OK) return status;
  unit_->message_gather_->set_identity(identity());
  unit_->message_gather_->set_unit(index_);
  const Schedule &schedule = unit_->message_gather_->schedule();
  unit_->gather_bytes_out_ = schedule.bytes_out;
  unit_->gather_bytes_in_ = schedule.bytes_in;
  unit_->gather_algorithm_ = algorithm_name(choice.algorithm);
  return MXS_OK;
}

mxs_status UnitBuilder::make_reduce(GradientGroup *group) {
  const uint64_t own = group->layout.owned_bytes(comm_.rank);
  Choice choice;
  mxs_status status = choose_reduce(group->layout, group->dtype, &choice);
  if (status != MXS_OK) return status;
  if (choice.node) {
    group->node = make_node_reduce(
        comm_, {&group->layout, group->dtype, &unit_->pool_->region(),
                options_.replicas ? &unit_->pool_->region() : &unit_->region_, !options_.replicas});
    group->node->set_identity(identity());
    group->bytes_out = segment_bytes(group->layout) - own;
    group->bytes_in = own * static_cast<uint64_t>(comm_.rank_count - 1);
    unit_->reduce_algorithm_ = "cooperative";
    group->node->set_label(comm_.label("cooperative", group->bytes_out, group->bytes_in, index_));
    return MXS_OK;
  }
  MessageOptions options = reduce_options(group->layout, group->dtype);
  apply(choice, &options);
  status = make_message_operation(&group->messages, comm_, options);
  if (status != MXS_OK) return status;
  group->messages->set_identity(identity());
  group->messages->set_unit(index_);
  const Schedule &schedule = group->messages->schedule();
  group->bytes_out = schedule.bytes_out;
  group->bytes_in = schedule.bytes_in;
  unit_->reduce_algorithm_ = algorithm_name(choice.algorithm);
  return MXS_OK;
}

mxs_status UnitBuilder::make_replica_sum() {
  if (!options_.replicas || unit_->groups_.empty()) return MXS_OK;
  unit_->replica_sum_ = std::make_unique<ReplicaSum>(*options_.replicas);
  unit_->replica_sum_->set_unit(index_);
  const auto summed_here = [unit = unit_.get()] {
    return std::all_of(unit->groups_.begin(), unit->groups_.end(), [unit](const GradientGroup &group) {
      return unit->comm_->queue.complete(group.request);
    });
  };
  return unit_->replica_sum_->make(unit_->sums_bytes_, unit_->rank_order_, identity(), summed_here);
}

}  // namespace mxs
