// SPDX-License-Identifier: Apache-2.0
// How a comm comes to CUDA memory.
//
//   1 each rank       finds the library, its device and NCCL, and what MXS_ROUTE asks for
//   2 all ranks       know all of that, and decide alike
//   3 each rank       stream, events, the flag, a progress thread
//   4 all ranks       NCCL groups, and comms that carry messages
//
// After each step all ranks tell how it went, so that what fails on one fails on all with one sentence.
#include "collective/device_comm.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_carried.hpp"
#include "collective/device_collective.hpp"
#include "collective/device_state.hpp"

namespace mxs {

namespace {

constexpr char opening_name[] = "opening CUDA memory";

enum Asked : int32_t { chosen, nccl, levels, messages };

mxs_status read_route(int32_t *asked) {
  const auto text = environment_text("MXS_ROUTE");
  *asked = chosen;
  if (!text) return MXS_OK;
  for (const auto &[name, value] :
       {std::pair{"nccl", nccl}, std::pair{"levels", levels}, std::pair{"messages", messages}})
    if (*text == name) {
      *asked = value;
      return MXS_OK;
    }
  return set_error(MXS_ENVIRONMENT, "MXS_ROUTE is \"%.32s\", not \"nccl\", \"levels\" or \"messages\"", text->c_str());
}

// What every rank says of itself.
struct Wish {
  int32_t device, nccl_version, asked, given_nccl;
  char why_no_nccl[400];
};
static_assert(sizeof(Wish) <= Comm::agreement_bytes_max);

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

class DeviceOpening {
 public:
  explicit DeviceOpening(Comm &comm) : comm_(comm), state_(std::make_unique<DeviceState>(comm)) {}
  mxs_status run();

 private:
  mxs_status look(Wish *own);
  mxs_status decide(const std::vector<Wish> &wishes);
  mxs_status decide_between_nodes(int32_t asked);
  mxs_status take();
  mxs_status join();
  mxs_status join_levels();
  mxs_status settled(mxs_status own) { return settle_over_ranks(comm_, own, opening_name); }
  mxs_status join_group(Comm &comm, bool with_given, std::unique_ptr<DeviceGroup> *group);
  mxs_status split(int color, int key, const char *which, std::unique_ptr<Comm> *made);
  void tell();

  Comm &comm_;
  std::unique_ptr<DeviceState> state_;
  DeviceLibrary *library_ = nullptr;
  int nccl_version_ = 0;
  std::string reason_;  // for the log
};

// The device that was asked for, else that of the context that is current here, else by the local rank.
mxs_status DeviceOpening::look(Wish *own) {
  mxs_status status = read_route(&own->asked);
  if (status == MXS_OK) status = device_library(&library_);
  if (status != MXS_OK) return status;
  const int count = library_->device_count();
  int index = comm_.asked_device - 1;
  if (comm_.asked_device > count)
    return set_error(MXS_NO_DEVICE, "options.device is MXS_DEVICE(%d), but this process sees %d devices", index, count);
  if (index < 0) index = library_->current_device();
  if (index < 0) index = comm_.topology.ranks[static_cast<size_t>(comm_.rank)].local_rank % count;
  status = library_->device(index, &state_->device_);
  if (status != MXS_OK) return status;
  std::string why_not;
  own->device = index;
  own->nccl_version = comm_.rank_count > 1 && own->asked != messages ? library_->nccl_version(&why_not) : 0;
  own->given_nccl = comm_.given_nccl != nullptr;
  std::strncpy(own->why_no_nccl, why_not.c_str(), sizeof own->why_no_nccl - 1);
  return MXS_OK;
}

// From what all ranks know alone.
mxs_status DeviceOpening::decide(const std::vector<Wish> &wishes) {
  const Wish &first = wishes[0];
  nccl_version_ = first.nccl_version;
  state_->blocks_ = !state_->device_->info().waits_values;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    const Wish &wish = wishes[rank];
    if (wish.asked != first.asked)
      return set_error(MXS_MISMATCH, "MXS_ROUTE of rank %zu is not that of rank 0; set it to the same on all ranks",
                       rank);
    if (wish.given_nccl != first.given_nccl)
      return set_error(MXS_MISMATCH, "options.nccl_comm was%s given on rank %zu, and was%s on rank 0; give it on all "
                       "ranks or on none", wish.given_nccl ? "" : " not", rank, first.given_nccl ? "" : " not");
    if (wish.nccl_version == 0) nccl_version_ = 0;
  }
  for (size_t rank = 0; nccl_version_ != 0 && rank < wishes.size(); ++rank)
    if (wishes[rank].nccl_version != first.nccl_version)
      return set_error(MXS_MISMATCH, "rank %zu has NCCL %s, rank 0 has %s; all ranks need the same "
                       "(MXS_NCCL_LIBRARY), or MXS_ROUTE=messages", rank,
                       version_text(wishes[rank].nccl_version).c_str(), version_text(first.nccl_version).c_str());
  if (comm_.rank_count == 1) return MXS_OK;
  if (first.given_nccl && (first.asked == levels || first.asked == messages))
    return set_error(MXS_ENVIRONMENT, "MXS_ROUTE asks for levels or messages, but options.nccl_comm joins all ranks "
                     "and is to carry CUDA memory; leave one of them out");
  if (first.asked == messages) {
    state_->route_ = DeviceRoute::staged;
    reason_ = "MXS_ROUTE";
    return MXS_OK;
  }
  if (nccl_version_ == 0) {
    size_t rank = 0;
    while (wishes[rank].nccl_version != 0) ++rank;
    if (first.asked != chosen || first.given_nccl)
      return set_error(MXS_NOT_BUILT, "%s wants NCCL, but rank %zu has none: %.300s",
                       first.given_nccl ? "options.nccl_comm" : "MXS_ROUTE", rank, wishes[rank].why_no_nccl);
    state_->route_ = DeviceRoute::staged;
    reason_ = "no NCCL on rank " + std::to_string(rank) + ": " + wishes[rank].why_no_nccl;
    return MXS_OK;
  }
  return first.given_nccl ? MXS_OK : decide_between_nodes(first.asked);
}

mxs_status DeviceOpening::decide_between_nodes(int32_t asked) {
  const Topology &topology = comm_.topology;
  bool equal = true;
  for (int node = 1; node < topology.node_count(); ++node)
    equal &= topology.node(node).rank_count() == topology.node(0).rank_count();
  if (asked == levels && (!equal || topology.node_count() < 2))
    return set_error(MXS_ENVIRONMENT, "MXS_ROUTE is \"levels\", which wants at least two nodes with equal numbers of "
                     "ranks; these %d ranks are on %d node%s%s", comm_.rank_count, topology.node_count(),
                     topology.node_count() == 1 ? "" : "s", equal ? "" : " of different sizes");
  const bool by_levels = asked == levels || (asked == chosen && topology.node_count() > 1 && equal);
  state_->route_ = by_levels ? DeviceRoute::levels : DeviceRoute::whole;
  reason_ = asked != chosen ? "MXS_ROUTE" : topology.node_count() == 1 ? "one node"
            : equal ? "several nodes" : "nodes of different sizes";
  return MXS_OK;
}

// What this rank takes for itself.
mxs_status DeviceOpening::take() {
  Device &device = *state_->device_;
  mxs_status status = device.create_stream(&state_->stream_);
  for (DeviceFlight &flight : state_->flights_)
    if (status == MXS_OK) status = flight.make(*state_);
  if (status == MXS_OK && state_->route_ != DeviceRoute::whole) {
    status = device.allocate_pinned(4096, &state_->flag_memory_);
    if (status == MXS_OK) state_->flag_ = new (state_->flag_memory_.data()) std::atomic<uint32_t>(0);
  }
  // Streams wait while nobody calls.
  if (status == MXS_OK && comm_.forced_progress != MXS_PROGRESS_MANUAL) status = comm_.start_thread();
  return status;
}

mxs_status DeviceOpening::join_group(Comm &comm, bool with_given, std::unique_ptr<DeviceGroup> *group) {
  GroupOptions options;
  options.rank = comm.rank;
  options.rank_count = comm.rank_count;
  options.gather = [&comm](const void *source, void *target, size_t bytes) {
    return comm.agree(source, target, bytes, 0);
  };
  options.existing = with_given ? comm_.given_nccl : nullptr;
  options.timeout_ns = comm_.timeout_ns;
  options.poll = [this] { return comm_.look_at_peers(); };
  return fenced([&] { return state_->device_->make_group(group, options); });
}

// A comm that this one carries: it makes progress when this one's operations do, and fails with it.
mxs_status DeviceOpening::split(int color, int key, const char *which, std::unique_ptr<Comm> *made) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.progress = MXS_PROGRESS_MANUAL;
  const mxs_status status = split_comm(made, comm_, color, key, options, false);
  if (status != MXS_OK) return status;
  (*made)->whose_ranks = std::string("of the comm that carries CUDA memory ") + which + ": ";
  return MXS_OK;
}

mxs_status DeviceOpening::join() {
  if (state_->route_ == DeviceRoute::whole)
    return settled(comm_.rank_count > 1 ? join_group(comm_, true, &state_->whole_) : MXS_OK);
  const mxs_status status = settled(split(0, comm_.rank, "between all ranks", &state_->wire_));
  if (status != MXS_OK) return status;
  comm_.tie_to(*state_->wire_);
  return state_->route_ == DeviceRoute::levels ? join_levels() : MXS_OK;
}

mxs_status DeviceOpening::join_levels() {
  const RankPlace &place = comm_.topology.ranks[static_cast<size_t>(comm_.rank)];
  mxs_status status = settled(split(place.local_rank, place.node, "between nodes", &state_->rail_));
  if (status != MXS_OK) return status;
  comm_.tie_to(*state_->rail_);
  // NCCL's handshake inside the node goes over a comm of the node's ranks.
  std::unique_ptr<Comm> node;
  status = settled(split(place.node, place.local_rank, "inside a node", &node));
  if (status != MXS_OK) return status;
  return settled(node->rank_count > 1 ? join_group(*node, false, &state_->node_) : MXS_OK);
}

void DeviceOpening::tell() {
  const std::string version = "nccl " + version_text(nccl_version_);
  switch (state_->route_) {
    case DeviceRoute::whole: state_->text_ = comm_.rank_count == 1 ? "one rank" : version; break;
    case DeviceRoute::levels: state_->text_ = version + " in nodes, " + state_->rail_->transports + " between"; break;
    case DeviceRoute::staged: state_->text_ = "staged over " + state_->wire_->transports; break;
  }
  if (comm_.rank != 0) return;
  log_line(MXS_LOG_INFO, "CUDA memory: %s (%s); rank 0 has device %d, %s", state_->text_.c_str(),
           reason_.empty() ? "one rank" : reason_.c_str(), state_->device_->info().index,
           state_->device_->info().name.c_str());
}

mxs_status DeviceOpening::run() {
  Wish own{};
  mxs_status status = settled(fenced([&] { return look(&own); }));
  if (status != MXS_OK) return status;
  std::vector<Wish> wishes(static_cast<size_t>(comm_.rank_count));
  status = comm_.agree(&own, wishes.data(), sizeof own, 0);
  if (status == MXS_OK) status = decide(wishes);
  if (status != MXS_OK) return status;
  status = settled(fenced([&] { return take(); }));
  if (status == MXS_OK) status = join();
  if (status != MXS_OK) return status;
  tell();
  comm_.adopt(std::move(state_));
  return MXS_OK;
}

mxs_status open_device(Comm &comm) {
  const mxs_status status = comm.check();
  return status != MXS_OK || comm.device() ? status : DeviceOpening(comm).run();
}

DeviceComm *device_of(const Comm &comm) { return comm.device(); }

// ---- what is made from it ----

mxs_status check_device_buffer(const Comm &comm, const char *what, const void *memory, uint64_t bytes) {
  if (bytes == 0) return MXS_OK;
  const DeviceInfo &own = comm.device()->device().info();
  for (const uint64_t offset : {uint64_t{0}, bytes - 1}) {
    PointerInfo info;
    const void *const place = static_cast<const std::byte *>(memory) + offset;
    const mxs_status status = loaded_device_library()->pointer(place, &info);
    if (status != MXS_OK) return status;
    if (info.kind == PointerKind::host || info.kind == PointerKind::pinned)
      return set_error(MXS_INVALID_ARGUMENT, "%s of rank %d (%p, %" PRIu64 " bytes) is %s memory%s, but this is a "
                       "collective in CUDA memory: pass memory of device %d (%s)", what, comm.rank, memory, bytes,
                       info.kind == PointerKind::host ? "host" : "pinned host", offset ? " at its end" : "", own.index,
                       own.name.c_str());
    if (info.kind == PointerKind::device && info.device != own.index)
      return set_error(MXS_INVALID_ARGUMENT, "%s of rank %d (%p, %" PRIu64 " bytes) is memory of device %d%s, but the "
                       "comm's device is %d (%s)", what, comm.rank, memory, bytes, info.device,
                       offset ? " at its end" : "", own.index, own.name.c_str());
  }
  return MXS_OK;
}

mxs_status make_device_operation(std::unique_ptr<DeviceOperation> *operation, Comm &comm,
                                 const DeviceCollectiveOptions &options) {
  auto *const state = static_cast<DeviceState *>(comm.device());
  if (!state) return set_error(MXS_INTERNAL, "a collective in CUDA memory before the comm's device was opened");
  // Levels have neither an order of all ranks nor exchanges between all of them: those go as if staged.
  const bool staged = state->route() == DeviceRoute::staged || options.rank_order || options.kind == MXS_RESHARD;
  if (state->route() == DeviceRoute::whole) return make_whole_collective(operation, *state, options);
  return staged ? make_staged_collective(operation, *state, options)
                : make_levels_collective(operation, *state, options);
}

}  // namespace mxs
