// SPDX-License-Identifier: Apache-2.0
// Making a unit: everything that allocates, maps or touches is here. And its end.
//
//   1 compare over ranks   2 share files (collective)   3 map and touch this rank's, make operations
//   4 all ranks well?      5 touch peers' pages          6 all ranks well?
//
// A rank's own pages are real before a peer touches them, so that each rank's memory is charged to itself.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <string>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/environment.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/choice.hpp"
#include "collective/comm.hpp"
#include "matrixshard/collective.h"
#include "plan/memory.hpp"
#include "unit/compare.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

namespace {

constexpr uint64_t huge_page_bytes = uint64_t{2} << 20;

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t total_bytes(const std::vector<Extent> &extents) {
  uint64_t bytes = 0;
  for (const Extent &extent : extents) bytes += extent.bytes;
  return bytes;
}

uint64_t segment_bytes(const Layout &layout) {
  uint64_t bytes = 0;
  for (const Segment &segment : layout.segments) bytes += segment.bytes;
  return bytes;
}

// A rank's segments as runs of whole pages.
std::vector<Extent> page_extents(const Layout &layout, int owner) {
  std::vector<Extent> extents;
  for (const Segment &segment : layout.segments) {
    if (segment.owner != owner || segment.bytes == 0) continue;
    const uint64_t end = align_up(segment.offset + segment.bytes, page_bytes());
    if (!extents.empty() && extents.back().offset + extents.back().bytes >= segment.offset)
      extents.back().bytes = end - extents.back().offset;
    else
      extents.push_back({segment.offset, end - segment.offset});
  }
  return extents;
}

std::vector<Extent> complement(const std::vector<Extent> &extents, uint64_t bytes) {
  std::vector<Extent> result;
  uint64_t at = 0;
  for (const Extent &extent : extents) {
    if (extent.offset > at) result.push_back({at, extent.offset - at});
    at = extent.offset + extent.bytes;
  }
  if (at < bytes) result.push_back({at, bytes - at});
  return result;
}

// Makes read-only maps real, page by page.
void read_pages(const std::byte *base, const std::vector<Extent> &extents) {
  for (const Extent &extent : extents)
    for (uint64_t offset = 0; offset < extent.bytes; offset += page_bytes())
      static_cast<void>(*static_cast<const volatile std::byte *>(base + extent.offset + offset));
}

// Where a rank's packed bytes of one piece begin.
uint64_t packed_offset(const Layout &layout, int rank, uint64_t offset) {
  uint64_t packed = 0;
  for (const Segment &segment : layout.segments) {
    if (segment.owner != rank) continue;
    if (offset >= segment.offset && offset < segment.offset + segment.bytes) return packed + offset - segment.offset;
    packed += segment.bytes;
  }
  assert(false && "the offset is in one of the rank's segments");
  return 0;
}

}  // namespace

class UnitBuilder {
 public:
  UnitBuilder(Comm &comm, const Plan &plan, int index, const mxs_unit_options &options)
      : comm_(comm), given_plan_(plan), index_(index), options_(options) {}

  mxs_status run(std::unique_ptr<Unit> *unit);

 private:
  mxs_status choose();
  MessageOptions gather_options(const Layout &layout) const;
  MessageOptions reduce_options(const Layout &layout, mxs_dtype dtype) const;
  mxs_status choose_gather(const Layout &layout, Choice *choice) const;
  mxs_status choose_reduce(const Layout &layout, mxs_dtype dtype, Choice *choice) const;
  mxs_status prepare();
  mxs_status check_alignment() const;
  mxs_status check_masters() const;
  mxs_status compare();
  void list_tensors();
  void list_groups();
  void list_owned();
  mxs_status share_pool();
  mxs_status share();
  mxs_status build();
  mxs_status make_range();
  mxs_status make_masters();
  mxs_status make_gather();
  mxs_status make_reduce(GradientGroup *group);
  mxs_status touch_peers();
  mxs_status settle(mxs_status own) const;

  const Plan &plan() const { return unit_->pool_->plan; }
  const PlannedUnit &planned() const { return plan().units[static_cast<size_t>(index_)]; }
  std::byte *file_memory() const { return unit_->region_.at(local_place(comm_)); }

  Comm &comm_;
  const Plan &given_plan_;
  const int index_;
  const mxs_unit_options &options_;
  PoolOptions pool_options_;
  std::string gather_name_, reduce_name_;  // "": MXS_ALGORITHM, else chosen
  int64_t debug_views_ = 0;
  bool pool_is_new_ = false;
  std::unique_ptr<Unit> unit_;
};

// By which way bytes will go: by load and store if all ranks share a node, else, or if the caller insists, by messages.
mxs_status UnitBuilder::choose() {
  pool_options_.by_reference = options_.gather == MXS_GATHER_BY_REFERENCE;
  pool_options_.slots = pool_slot_count(options_.slots);
  pool_options_.gradient_slots = pool_slot_count(options_.gradient_slots);
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
  options.accumulate = true;
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

// Owners' borders become borders of maps, which lie on pages.
mxs_status UnitBuilder::check_alignment() const {
  if (options_.buffer) {
    if (reinterpret_cast<uintptr_t>(options_.buffer) % page_bytes())
      return set_error(MXS_INVALID_ARGUMENT, "unit %d: buffer is at %p, which is no multiple of the page, %llu bytes",
                       index_, options_.buffer, static_cast<unsigned long long>(page_bytes()));
    return MXS_OK;
  }
  int owner = -1;
  for (const Segment &segment : given_plan_.units[static_cast<size_t>(index_)].weights.segments) {
    if (segment.owner != owner && segment.offset % page_bytes())
      return set_error(MXS_INVALID_ARGUMENT,
                       "unit %d: a segment begins at byte %llu, but segments are mapped and must begin on pages of "
                       "%llu bytes; make the plan with an alignment of at least that",
                       index_, static_cast<unsigned long long>(segment.offset),
                       static_cast<unsigned long long>(page_bytes()));
    owner = segment.owner;
  }
  return MXS_OK;
}

// Commit rounds fp32 to the float dtypes. The plan sees to that for the rules that the library steps; here it is for
// external and frozen tensors, which may be anything as long as they have no second copy.
mxs_status UnitBuilder::check_masters() const {
  for (const int number : given_plan_.units[static_cast<size_t>(index_)].tensors) {
    const PlannedTensor &tensor = given_plan_.tensors[static_cast<size_t>(number)];
    const bool is_narrow = tensor.dtype == MXS_BF16 || tensor.dtype == MXS_F16;
    if (tensor.master_dtype != tensor.dtype && (tensor.master_dtype != MXS_F32 || !is_narrow))
      return set_error(MXS_NOT_BUILT,
                       "unit %d, tensor %s: this release can't round a master in %s to %s; use f32 masters of bf16 or "
                       "f16, or set master_dtype to dtype",
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
                                 .add(static_cast<uint64_t>(pool_options_.slots))
                                 .add(static_cast<uint64_t>(pool_options_.gradient_slots))
                                 .add(static_cast<uint64_t>(options_.flags))
                                 .add(options_.buffer != nullptr)
                                 .add(std::string_view(gather_name_))
                                 .add(std::string_view(forced))
                                 .value();
  unit_->pool_ = find_pool(comm_, given_plan_, pool_options_);
  description.has_pool = unit_->pool_ != nullptr;
  pool_is_new_ = !unit_->pool_;
  return compare_units(comm_, given_plan_, description);
}

void UnitBuilder::list_tensors() {
  for (const int tensor : planned().tensors) {
    const PlannedTensor &described = plan().tensors[static_cast<size_t>(tensor)];
    if (described.tied_to >= 0) continue;
    UnitTensor entry;
    entry.tensor = tensor;
    entry.element_count = described.element_count;
    if (described.placement_count) {
      const Placement &first = plan().placements[described.placement_index];
      entry.weight_offset = first.weight_offset;
      entry.gradient_offset = first.gradient_offset;
    }
    unit_->tensors_.push_back(entry);
  }
  std::sort(unit_->tensors_.begin(), unit_->tensors_.end(),
            [](const UnitTensor &a, const UnitTensor &b) { return a.tensor < b.tensor; });
}

// Neighbours with one owner and one dtype make one segment. Each group's sums follow the one before.
void UnitBuilder::list_groups() {
  std::vector<GradientGroup> &groups = unit_->groups_;
  size_t last_group = SIZE_MAX;
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.gradient_offset == UINT64_MAX || piece.element_count == 0) continue;
    const mxs_dtype dtype = plan().tensors[static_cast<size_t>(piece.tensor)].gradient_dtype;
    const uint64_t bytes = piece.element_count * dtype_bytes(dtype);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto &known) { return known.dtype == dtype; });
    if (group == groups.end()) {
      group = groups.emplace(groups.end());
      group->dtype = dtype;
      group->layout.rank_count = comm_.rank_count;
      group->layout.alignment = 64;
    }
    std::vector<Segment> &segments = group->layout.segments;
    const auto number = static_cast<size_t>(group - groups.begin());
    if (number == last_group && segments.back().owner == piece.owner &&
        segments.back().offset + segments.back().bytes == piece.gradient_offset)
      segments.back().bytes += bytes;
    else
      segments.push_back({piece.owner, piece.gradient_offset, bytes});
    group->layout.bytes = piece.gradient_offset + bytes;
    last_group = number;
  }
  for (GradientGroup &group : groups) {
    group.sums_offset = unit_->sums_bytes_;
    unit_->sums_bytes_ += group.layout.owned_bytes(comm_.rank) / dtype_bytes(group.dtype) * sizeof(float);
  }
}

// After range, sums and masters are there: the addresses of what this rank owns.
void UnitBuilder::list_owned() {
  std::byte *master = unit_->masters_.data();
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.owner != comm_.rank || piece.element_count == 0) continue;
    const PlannedTensor &tensor = plan().tensors[static_cast<size_t>(piece.tensor)];
    OwnedPlacement owned;
    owned.placement = placement;
    owned.tensor = piece.tensor;
    owned.dtype = tensor.dtype;
    owned.master_dtype = tensor.master_dtype;
    owned.element_count = piece.element_count;
    owned.weights = unit_->range_ + piece.weight_offset;
    if (const uint64_t bytes = master_bytes(tensor, piece.element_count)) {
      owned.master = master;
      master += bytes;
    }
    for (const GradientGroup &group : unit_->groups_) {
      if (piece.gradient_offset == UINT64_MAX || group.dtype != tensor.gradient_dtype) continue;
      const uint64_t elements =
          packed_offset(group.layout, comm_.rank, piece.gradient_offset) / dtype_bytes(group.dtype);
      owned.gradient = reinterpret_cast<float *>(unit_->sums() + group.sums_offset) + elements;
    }
    unit_->owned_.push_back(owned);
  }
}

mxs_status UnitBuilder::share_pool() {
  if (!pool_is_new_) return MXS_OK;
  unit_->pool_ = std::make_shared<Pool>(given_plan_, pool_options_);
  return unit_->pool_->open(comm_);
}

mxs_status UnitBuilder::share() {
  list_tensors();
  list_groups();
  unit_->range_bytes_ = align_up(planned().weights.bytes, page_bytes());
  if (!options_.buffer) {
    unit_->own_extents_ = page_extents(planned().weights, comm_.rank);
    unit_->other_extents_ = complement(unit_->own_extents_, unit_->range_bytes_);
    unit_->sums_offset_ = align_up(unit_->range_bytes_, huge_page_bytes);
  }
  return share_memory(comm_, unit_->sums_offset_ + align_up(unit_->sums_bytes_, page_bytes()), "unit",
                      &unit_->region_);
}

// This rank's pages, at their place in the file, and the range over them.
mxs_status UnitBuilder::make_range() {
  std::vector<Extent> file_extents = unit_->own_extents_;
  file_extents.push_back({unit_->sums_offset_, align_up(unit_->sums_bytes_, page_bytes())});
  unit_->touched_bytes_ = total_bytes(file_extents);
  mxs_status status = touch(file_memory(), file_extents, &unit_->huge_bytes_);
  if (status != MXS_OK) return status;
  if (options_.buffer) {
    unit_->range_ = static_cast<std::byte *>(options_.buffer);
    return MXS_OK;
  }
  status = reserve(&unit_->reserved_, unit_->range_bytes_);
  if (status != MXS_OK) return status;
  unit_->range_ = unit_->reserved_.data();
  const int file = unit_->region_.files[static_cast<size_t>(local_place(comm_))].get();
  for (const Extent &extent : unit_->own_extents_) {
    status = map_over(unit_->range_ + extent.offset, file, extent.offset, extent.bytes, true);
    if (status != MXS_OK) return status;
  }
  status = touch(unit_->range_, unit_->own_extents_, nullptr);
  if (status != MXS_OK || unit_->by_reference_) return status;
  status = unit_->map_slot(unit_->slot_);
  if (status != MXS_OK) return status;
  return touch(unit_->range_, unit_->other_extents_, nullptr);
}

// Nobody else maps them, but a file gets large pages where plain memory may not.
mxs_status UnitBuilder::make_masters() {
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.owner == comm_.rank)
      unit_->masters_bytes_ += master_bytes(plan().tensors[static_cast<size_t>(piece.tensor)], piece.element_count);
  }
  if (unit_->masters_bytes_ == 0) return MXS_OK;
  File file;
  mxs_status status = create_file(&file, unit_->masters_bytes_, "masters");
  if (status != MXS_OK) return status;
  status = map_file(&unit_->masters_, file.get(), unit_->masters_bytes_, true);
  if (status != MXS_OK) return status;
  uint64_t huge_bytes = 0;
  status = touch(unit_->masters_.data(), {{0, unit_->masters_.bytes()}}, &huge_bytes);
  unit_->touched_bytes_ += unit_->masters_.bytes();
  unit_->huge_bytes_ += huge_bytes;
  return status;
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
    unit_->node_gather_ = make_node_gather(comm_, {&layout, &unit_->region_, &unit_->pool_->region()});
    unit_->gather_bytes_out_ = own * static_cast<uint64_t>(comm_.rank_count - 1);
    unit_->gather_bytes_in_ = all - own;
    unit_->gather_algorithm_ = "fanout";
    return MXS_OK;
  }
  MessageOptions options = gather_options(layout);
  options.algorithm = choice.algorithm;
  status = make_message_operation(&unit_->message_gather_, comm_, options);
  if (status != MXS_OK) return status;
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
        comm_, {&group->layout, group->dtype, &unit_->pool_->region(), &unit_->region_, true});
    group->bytes_out = segment_bytes(group->layout) - own;
    group->bytes_in = own * static_cast<uint64_t>(comm_.rank_count - 1);
    unit_->reduce_algorithm_ = "cooperative";
    return MXS_OK;
  }
  MessageOptions options = reduce_options(group->layout, group->dtype);
  options.algorithm = choice.algorithm;
  status = make_message_operation(&group->messages, comm_, options);
  if (status != MXS_OK) return status;
  const Schedule &schedule = group->messages->schedule();
  group->bytes_out = schedule.bytes_out;
  group->bytes_in = schedule.bytes_in;
  unit_->reduce_algorithm_ = algorithm_name(choice.algorithm);
  return MXS_OK;
}

mxs_status UnitBuilder::build() {
  if (pool_is_new_) {
    const mxs_status status = unit_->pool_->touch_own();
    if (status != MXS_OK) return status;
  }
  mxs_status status = make_range();
  if (status != MXS_OK) return status;
  status = make_masters();
  if (status != MXS_OK) return status;
  list_owned();
  status = make_gather();
  unit_->reduce_algorithm_ = "none";
  for (GradientGroup &group : unit_->groups_)
    if (status == MXS_OK) status = make_reduce(&group);
  return status;
}

// All of the peers' pages that this rank will read or write: their first use costs a trap.
mxs_status UnitBuilder::touch_peers() {
  if (!comm_.domain) return MXS_OK;
  if (pool_is_new_) {
    const mxs_status status = unit_->pool_->touch_peers(comm_);
    if (status != MXS_OK) return status;
  }
  for (int place = 0; place < comm_.domain->local_count(); place++) {
    const int rank = comm_.domain->ranks()[static_cast<size_t>(place)];
    if (rank == comm_.rank) continue;
    std::vector<Extent> extents;
    if (!options_.buffer) extents = page_extents(planned().weights, rank);
    mxs_status status = MXS_OK;
    if (unit_->by_reference_) {
      const int file = unit_->region_.files[static_cast<size_t>(place)].get();
      for (const Extent &extent : extents) {
        status = map_over(unit_->range_ + extent.offset, file, extent.offset, extent.bytes, false);
        if (status != MXS_OK) return status;
      }
      read_pages(unit_->range_, extents);
      if (!extents.empty()) unit_->owner_places_.push_back(place);
      extents.clear();
    }
    uint64_t sums_bytes = 0;
    for (const GradientGroup &group : unit_->groups_)
      sums_bytes += group.layout.owned_bytes(rank) / dtype_bytes(group.dtype) * sizeof(float);
    extents.push_back({unit_->sums_offset_, align_up(sums_bytes, page_bytes())});
    status = touch(unit_->region_.at(place), extents, nullptr);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
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
  return environment_number("MXS_DEBUG_VIEWS", 0, 1, &debug_views_);
}

// A rank may have no memory or no descriptor for what all others have got. But one that was failed by its peers would
// wait for them here once more: the comm has failed.
mxs_status UnitBuilder::settle(mxs_status own) const {
  if (own == MXS_TIMED_OUT || own == MXS_PEER_FAILED || own == MXS_MISMATCH) return comm_.fail(own);
  return refuse_unit(comm_, own, index_);
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
  status = compare();
  if (status != MXS_OK) return status;
  unit_->slot_ = index_ % pool_options_.slots;
  unit_->takes_slot_ = !unit_->by_reference_ && !options_.buffer &&
                       given_plan_.units[static_cast<size_t>(index_)].weights.bytes != 0;
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
  *unit = std::move(unit_);
  return MXS_OK;
}

mxs_status refuse_unit(Comm &comm, mxs_status own, int index) {
  char what[64];
  std::snprintf(what, sizeof what, "mxs_unit_create of unit %d", index);
  return settle_over_ranks(comm, own, what);
}

mxs_status create_unit(std::unique_ptr<Unit> *unit, Comm &comm, const Plan &plan, int index,
                       const mxs_unit_options &options) {
  const mxs_status status = comm.check();
  return status == MXS_OK ? UnitBuilder(comm, plan, index, options).run(unit) : status;
}

Unit::~Unit() { comm_->children.fetch_sub(1); }

mxs_status destroy_unit(Unit **handle) {
  Unit *unit = *handle;
  if (!unit) return MXS_OK;
  Comm &comm = *unit->comm_;
  mxs_status status = comm.check();
  if (status == MXS_FORKED) return status;
  if (unit->attached_)
    return set_error(MXS_HELD, "unit %d is part of an optimizer; destroy that first", unit->index_);
  if (!comm.failed()) {
    status = unit->check_idle("mxs_unit_destroy");
    if (status != MXS_OK) return status;
    if (unit->gradients_state_ == MXS_REDUCING && !unit->reduce_complete()) {
      status = comm.progress();
      if (status == MXS_OK && !unit->reduce_complete())
        return set_error(MXS_HELD, "rank %d, unit %d: a reduce is in flight; call mxs_unit_wait_reduce first",
                         unit->rank_, unit->index_);
    }
  }
  if (unit->takes_slot_ && unit->weights_state_ != MXS_SHARDED) unit->pool_->return_slot(unit->slot_);
  unit->return_gradient_slot();
  // What a failure left in flight must not be advanced any more, nor its scratch memory go while peers may read it.
  const auto bury = [&](auto &operation) {
    if (operation && operation->in_flight()) comm.queue.bury(std::move(operation));
  };
  bury(unit->node_gather_);
  bury(unit->message_gather_);
  for (GradientGroup &group : unit->groups_) {
    bury(group.node);
    bury(group.messages);
  }
  delete unit;
  *handle = nullptr;
  return MXS_OK;
}

}  // namespace mxs
