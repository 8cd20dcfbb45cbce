// SPDX-License-Identifier: Apache-2.0
#include "collective/device_carried.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "base/arithmetic.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "collective/choice.hpp"

namespace mxs {

namespace {

// Names live as long as the process, as those of other algorithms do.
const char *kept(const std::string &name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

}  // namespace

std::string peers_by_transport(const Comm &comm) {
  std::map<std::string, int> peers;
  for (const Route &route : comm.routes)
    if (route.transport) ++peers[route.transport->name];
  std::string text;
  for (const auto &[name, count] : peers)
    text.append(text.empty() ? "" : ", ").append(name).append(" ").append(std::to_string(count));
  return text.empty() ? "none" : text;
}

// ---- create and end ----

mxs_status CarriedCollective::add_part(const MessageOptions &given, uint64_t slot_bytes, uint64_t result,
                                       const char *how) {
  MessageOptions options = given;
  Choice choice;
  mxs_status status = choose_messages(wire_.topology, options, nullptr, &choice);
  if (status != MXS_OK) return status;
  apply(choice, &options);
  Part part;
  status = make_message_operation(&part.messages, wire_, options);
  if (status == MXS_OK) status = state_.device().create_event(&part.fetched);
  if (status != MXS_OK) return status;
  part.messages->set_identity(Fingerprint().add(identity_).add(parts_.size()).value());
  part.in_place = options.kind == MXS_GATHER;
  part.result = result;
  if (parts_.empty()) algorithm_ = kept(std::string(how) + " " + algorithm_name(options.algorithm));
  const Schedule &schedule = part.messages->schedule();
  bytes_out_ += schedule.bytes_out;
  bytes_in_ += schedule.bytes_in;
  message_count_ += schedule.message_count;
  slot_bytes_ = std::max(slot_bytes_, align_up(slot_bytes, 4096));
  parts_.push_back(std::move(part));
  return MXS_OK;
}

mxs_status CarriedCollective::take_slots() {
  return state_.want_pinned(slot_bytes_ * std::min(slots, parts_.size()));
}

// What a failed comm left in flight may still be read by peers, until the wire's links are closed.
CarriedCollective::~CarriedCollective() {
  for (Part &part : parts_) {
    state_.device().destroy_event(part.fetched);
    if (part.messages->in_flight()) wire_.queue.bury(std::move(part.messages));
  }
}

// ---- on the stream ----

mxs_status CarriedCollective::put_fetch(size_t part) {
  const mxs_status status = fetch(part, slot_of(part));
  put_ = part + 1;
  return status == MXS_OK ? state_.device().record(parts_[part].fetched, state_.stream()) : status;
}

mxs_status CarriedCollective::enqueue(const std::byte *source, std::byte *target) {
  source_ = source;
  target_ = target;
  put_ = begun_ = arrived_ = 0;
  mxs_status status = prelude();
  for (size_t part = 0; part < std::min(slots, parts_.size()) && status == MXS_OK; ++part) status = put_fetch(part);
  if (state_.blocks())
    for (Part &part : parts_) part.sequence = 0;
  else
    for (Part &part : parts_) part.flag = state_.next_flag();
  for (size_t part = 0; part < parts_.size() && status == MXS_OK; ++part) {
    status = state_.blocks() ? await(part) : state_.wait_for_flag(parts_[part].flag);
    if (status == MXS_OK) status = deliver(part, slot_of(part));
    if (status == MXS_OK && part + slots < parts_.size()) status = put_fetch(part + slots);
  }
  return status;
}

// Where streams can't wait for the flag, the caller does.
mxs_status CarriedCollective::await(size_t part) {
  Comm &comm = state_.comm();
  const Comm::Inside inside(comm);
  Comm::Wait wait = comm.begin_wait(0);
  for (;;) {
    comm.look(&wait);
    mxs_status status = comm.progress(&wait.more);
    if (status == MXS_OK) status = carry(&wait.more);
    if (status != MXS_OK || arrived_ > part) return status;
    status = comm.pause(&wait, waits_for(), name());
    if (status != MXS_OK) return status;
  }
}

mxs_status CarriedCollective::copy_in(const std::vector<Copy> &copies, std::byte *slot, const std::byte *device) {
  for (const Copy &copy : copies) {
    const mxs_status status = state_.device().copy(slot + copy.slot, device + copy.device, copy.bytes, state_.stream());
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status CarriedCollective::copy_out(const std::vector<Copy> &copies, const std::byte *slot, std::byte *device) {
  for (const Copy &copy : copies) {
    const mxs_status status = state_.device().copy(device + copy.device, slot + copy.slot, copy.bytes, state_.stream());
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// ---- on the host ----

// Whoever polls sleeps between two looks, so that one look does what can be done.
mxs_status CarriedCollective::carry(bool *moved) {
  constexpr int rounds_max = 16;
  for (int round = 0; round < rounds_max; ++round) {
    bool again = false;
    const mxs_status status = carry_once(&again);
    if (status != MXS_OK || !again) return status;
    *moved = true;
  }
  return MXS_OK;
}

// Parts begin in their order, which is the same on all ranks of the wire, and arrive in any.
mxs_status CarriedCollective::carry_once(bool *moved) {
  while (begun_ < put_ && begun_ < arrived_ + slots) {
    Part &part = parts_[begun_];
    mxs_status status = state_.device().query(part.fetched);
    if (status == MXS_IN_PROGRESS) break;
    std::byte *const slot = slot_of(begun_);
    part.messages->prepare(part.in_place ? nullptr : slot, slot + part.result);
    if (status == MXS_OK) status = wire_.queue.enqueue(part.messages.get(), &part.sequence);
    if (status != MXS_OK) return status;
    ++begun_;
    *moved = true;
  }
  // Also when all is here: peers may still wait for what a link has of this rank.
  bool more = false;
  const mxs_status status = wire_.progress(&more);
  if (status != MXS_OK) return status;
  *moved |= more;
  while (arrived_ < begun_ && wire_.queue.complete(parts_[arrived_].sequence)) {
    if (!state_.blocks()) state_.release_flag(parts_[arrived_].flag);
    ++arrived_;
    *moved = true;
  }
  return MXS_OK;
}

int CarriedCollective::waits_for() const {
  if (arrived_ == begun_) return -1;
  const int peer = wire_.queue.describe(parts_[arrived_].sequence).waits_for;
  if (peer < 0 || wire_.rank_count == state_.comm().rank_count) return peer;
  const Topology &topology = state_.comm().topology;
  return topology.node(peer).ranks[static_cast<size_t>(
      topology.ranks[static_cast<size_t>(state_.comm().rank)].local_rank)];
}

}  // namespace mxs
