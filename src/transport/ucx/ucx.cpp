// SPDX-License-Identifier: Apache-2.0
// UCX: tag messages between processes, on one node or on many.
//
//   UCX tag   | source rank: 20 bits | control: 1 bit | lane: 3 bits | our tag: 40 bits |   matched on the first three
//
// All messages are eager (no handshake per chunk: a chain of chunks took 1.35-2.8 s with rendezvous and 0.81 s without,
// 8 namespaces on 200 Mbit/s), and land in receives that are posted already, because the receiver says in control
// messages how many it has posted: the sender keeps back what has no receive yet, but for a window of small ones. So
// nothing piles up inside UCX however late a rank is.
//
//   receiver  receive, receive, receive ... progress: control {posted = 3}
//   sender    send (kept back) ........................................... progress: pushed -> sent
//
// Failure: UCX tells the endpoint of a dead peer, never the receives that wait for it; progress looks at both.
//
// Opening and leaving are in open.cpp and close.cpp, the state is in link.hpp.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/status.hpp"
#include "transport/ucx/link.hpp"

namespace mxs {

namespace {

constexpr uint64_t control_flag = uint64_t{1} << (ucx_source_shift - 1);
constexpr size_t small_bytes = 8192;  // may go before there is a receive for it, up to a window ahead
constexpr int progress_rounds = 32;   // events that one progress takes, so that others get their turn

constexpr uint64_t wire_tag(int source_rank, int lane, uint64_t tag) {
  return static_cast<uint64_t>(source_rank) << ucx_source_shift | static_cast<uint64_t>(lane) << tag_bits | tag;
}

constexpr uint64_t control_tag(int source_rank) { return wire_tag(source_rank, 0, 0) | control_flag; }
constexpr uint64_t notice_flag = 1;  // in our tag of a control message

}  // namespace

UcxLink::~UcxLink() {
  if (worker) ucx->worker_destroy(worker);
  if (context) ucx->cleanup(context);
}

void UcxPeer::attend_later() {
  if (busy) return;
  busy = true;
  link->busy.push_back(this);  // within its capacity: a peer is in it once
}

bool UcxPeer::waits() const {
  return !all_lanes([](const UcxLane &lane) {
    return lane.send_posted == lane.sent && lane.receive_posted == lane.receive_completed;
  });
}

mxs_status UcxLink::refused(const char *what, ucs_status_t status) const {
  return set_error(MXS_TRANSPORT_FAILED, "ucx: %s: %s", what, ucx->status_string(status));
}

// ---- What UCX calls back. Nothing is sent from here. ----------------------------------------------------------------

namespace {

void count_sent(UcxLane *lane) {
  while (lane->sent < lane->send_pushed && lane->sends[lane->sent % lane->sends.size()].complete) ++lane->sent;
}

void on_sent(void *request, ucs_status_t status, void *user_data) {
  UcxSend *slot = static_cast<UcxSend *>(user_data);
  UcxPeer *peer = slot->lane->peer;
  peer->link->ucx->request_free(request);
  if (status == UCS_OK) {
    slot->complete = true;
    count_sent(slot->lane);
    return;
  }
  if (peer->failure == UCS_OK) peer->failure = status;
  peer->link->trouble = true;
}

void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data) {
  UcxReceive *slot = static_cast<UcxReceive *>(user_data);
  UcxPeer *peer = slot->lane->peer;
  slot->request = nullptr;
  slot->open = false;
  if (status == UCS_OK) {
    slot->arrival.bytes = info->length;
    slot->arrival.tag = info->sender_tag & tag_mask;
    slot->complete = true;
    ++slot->lane->receive_completed;
    // It may be time now to tell of receives that were posted before.
    if (peer->heard.leaving || slot->lane->receive_posted != peer->told.posted[slot->lane->number])
      peer->attend_later();
  } else {
    if (status == UCS_ERR_MESSAGE_TRUNCATED)
      peer->truncated = true;
    else if (peer->failure == UCS_OK)
      peer->failure = status;
    peer->link->trouble = true;
  }
  peer->link->ucx->request_free(request);
}

void on_told(void *request, ucs_status_t status, void *user_data) {
  UcxPeer *peer = static_cast<UcxPeer *>(user_data);
  peer->link->ucx->request_free(request);
  peer->told_busy = false;
  if (status != UCS_OK && peer->failure == UCS_OK) {
    peer->failure = status;
    peer->link->trouble = true;
  }
}

void on_notified(void *request, ucs_status_t, void *user_data) {
  UcxPeer *peer = static_cast<UcxPeer *>(user_data);
  peer->link->ucx->request_free(request);
  peer->notice_busy = false;
}

void hear(UcxLink &link, const UcxControl &control, uint64_t sender_tag) {
  const size_t source = static_cast<size_t>(sender_tag >> ucx_source_shift);
  UcxPeer *peer = source < link.peers.size() ? link.peers[source].get() : nullptr;
  if (!peer) return;
  for (int lane = 0; lane < lane_count; ++lane) {
    peer->heard.posted[lane] = std::max(peer->heard.posted[lane], control.posted[lane]);
    peer->heard.completed[lane] = std::max(peer->heard.completed[lane], control.completed[lane]);
    if (control.leaving) peer->heard.sent[lane] = control.sent[lane];
  }
  if (control.leaving) {
    peer->heard.leaving = 1;
    link.trouble = true;
  }
  peer->attend_later();
}

void hear_notice(UcxLink &link, const Notice &notice, uint64_t sender_tag) {
  const size_t source = static_cast<size_t>(sender_tag >> ucx_source_shift);
  UcxPeer *peer = source < link.peers.size() ? link.peers[source].get() : nullptr;
  if (!peer) return;
  peer->notice_in = notice;
  if (!peer->notice_came) ++link.notices;
  peer->notice_came = true;
}

void on_control(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data) {
  UcxControlReceive *receive = static_cast<UcxControlReceive *>(user_data);
  UcxLink &link = *receive->link;
  receive->request = nullptr;
  receive->open = false;
  link.controls_came = true;
  if (status == UCS_OK) hear_ucx_control(link, &receive->landing, info->length, info->sender_tag);
  link.ucx->request_free(request);
}

}  // namespace

void hear_ucx_control(UcxLink &link, const void *message, size_t bytes, uint64_t sender_tag) {
  if (sender_tag & notice_flag) {
    Notice notice;
    if (bytes != sizeof notice) return;
    std::memcpy(&notice, message, sizeof notice);
    hear_notice(link, notice, sender_tag);
    return;
  }
  UcxControl control;
  if (bytes != sizeof control) return;
  std::memcpy(&control, message, sizeof control);
  hear(link, control, sender_tag);
}

void on_ucx_endpoint_failure(void *user_data, ucp_ep_h, ucs_status_t status) {
  UcxPeer *peer = static_cast<UcxPeer *>(user_data);
  if (peer->failure == UCS_OK) peer->failure = status;
  peer->link->trouble = true;
}

// ---- What we call. --------------------------------------------------------------------------------------------------

namespace {

ucp_request_param_t bytes_with(void *user_data) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
  parameters.user_data = user_data;
  parameters.datatype = ucp_dt_make_contig(1);
  return parameters;
}

// A receive whose message is here already calls back before it returns, and then its request is gone. (With leave to
// return nullptr instead, 1.13.1 fills no tag_info.)
ucp_request_param_t receive_with(void *user_data, ucp_tag_recv_nbx_callback_t callback) {
  ucp_request_param_t parameters = bytes_with(user_data);
  parameters.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.cb.recv = callback;
  return parameters;
}

void push_sends(UcxLink &link, UcxLane *lane) {
  UcxPeer *peer = lane->peer;
  while (lane->send_pushed < lane->send_posted && peer->failure == UCS_OK) {
    UcxSend &slot = lane->sends[lane->send_pushed % lane->sends.size()];
    const uint64_t ahead = slot.bytes <= small_bytes ? lane->sends.size() : 0;
    if (lane->send_pushed >= peer->heard.posted[lane->number] + ahead) return;
    ucp_request_param_t parameters = bytes_with(&slot);
    parameters.cb.send = on_sent;
    ++lane->send_pushed;
    void *request = link.ucx->tag_send_nbx(peer->endpoint, slot.data, slot.bytes,
                                           wire_tag(link.rank, lane->number, slot.tag), &parameters);
    if (!request) {
      slot.complete = true;
      count_sent(lane);
    } else if (UCS_PTR_IS_ERR(request)) {
      peer->failure = UCS_PTR_STATUS(request);
      link.trouble = true;
    }
  }
}

// Is it time to tell of new receives? Once the sender has no more than half of those that are open left to use: it is
// never without, and a control message serves half a window. (A gather of 16 MiB around a chain of 8 ranks, window 4:
// 0.54 control messages per message of data in place of 0.98, and 0.23 s of CPU time in all in place of 0.27.)
bool due(const UcxLane &lane, uint64_t told) {
  const uint64_t open = lane.receive_posted - lane.receive_completed;
  return lane.receive_posted != told && told <= lane.receive_completed + open / 2;
}

// Tells the peer what it doesn't know yet. Nothing while the message before is on its way; then again later.
void tell(UcxLink &link, UcxPeer *peer) {
  const bool farewell = link.leaving && !peer->told.leaving;
  const UcxControl &told = peer->told;
  const bool answer = peer->heard.leaving && !peer->all_lanes([&](const UcxLane &lane) {
    return lane.receive_completed == told.completed[lane.number];
  });
  const bool knows_enough = peer->all_lanes([&](const UcxLane &lane) { return !due(lane, told.posted[lane.number]); });
  if (peer->failure != UCS_OK || (knows_enough && !farewell && !answer)) return;
  if (peer->told_busy) return peer->attend_later();
  for (const UcxLane &lane : peer->lanes) {
    peer->told.posted[lane.number] = lane.receive_posted;
    peer->told.completed[lane.number] = lane.receive_completed;
    peer->told.sent[lane.number] = lane.sent;
  }
  peer->told.leaving = link.leaving;
  ucp_request_param_t parameters = bytes_with(peer);
  parameters.cb.send = on_told;
  void *request = link.ucx->tag_send_nbx(peer->endpoint, &peer->told, sizeof peer->told, control_tag(link.rank),
                                         &parameters);
  if (UCS_PTR_IS_ERR(request)) {
    peer->failure = UCS_PTR_STATUS(request);
    link.trouble = true;
  } else {
    peer->told_busy = request != nullptr;
  }
}

}  // namespace

mxs_status UcxLink::post_control_receives() {
  while (controls_came) {
    controls_came = false;
    for (UcxControlReceive &receive : controls) {
      if (receive.open) continue;
      const ucp_request_param_t parameters = receive_with(&receive, on_control);
      receive.open = true;
      void *request = ucx->tag_recv_nbx(worker, &receive.landing, sizeof receive.landing, control_flag, control_flag,
                                        &parameters);
      if (UCS_PTR_IS_ERR(request)) return refused("no receive", UCS_PTR_STATUS(request));
      receive.request = receive.open ? request : nullptr;
    }
  }
  return MXS_OK;
}

void UcxLink::attend() {
  const size_t count = busy.size();
  for (size_t i = 0; i < count; ++i) {
    UcxPeer *peer = busy[i];
    peer->busy = false;
    for (UcxLane &lane : peer->lanes) push_sends(*this, &lane);
    tell(*this, peer);  // may come back into the list, behind
  }
  busy.erase(busy.begin(), busy.begin() + static_cast<std::ptrdiff_t>(count));
}

// ---- Messages. ------------------------------------------------------------------------------------------------------

namespace {

mxs_status peer_gone(const UcxLink &link, const UcxPeer &peer) {
  if (peer.failure == UCS_OK)
    return set_error(MXS_PEER_FAILED, "rank %d left the comm while rank %d had messages in flight with it", peer.rank,
                     link.rank);
  return set_error(MXS_PEER_FAILED, "rank %d died, hung up or can't be reached by rank %d any more (ucx: %s)",
                   peer.rank, link.rank, link.ucx->status_string(peer.failure));
}

mxs_status send(Link *base, int target_rank, int number, uint64_t tag, const void *data, size_t bytes) {
  UcxLink &link = UcxLink::of(base);
  UcxLane &lane = link.lane(target_rank, number);
  if (lane.send_posted - lane.sent >= lane.sends.size())
    return set_error(MXS_INTERNAL, "ucx: rank %d has %zu messages in flight to rank %d, more than the window",
                     link.rank, lane.sends.size(), target_rank);
  if (lane.peer->failure != UCS_OK) return peer_gone(link, *lane.peer);
  UcxSend &slot = lane.sends[lane.send_posted % lane.sends.size()];
  slot.data = data;
  slot.bytes = bytes;
  slot.tag = tag & tag_mask;
  slot.complete = false;
  ++lane.send_posted;
  push_sends(link, &lane);
  return MXS_OK;
}

mxs_status receive(Link *base, int source_rank, int number, void *landing, size_t bytes) {
  UcxLink &link = UcxLink::of(base);
  UcxLane &lane = link.lane(source_rank, number);
  if (lane.receive_posted - lane.retired >= lane.receives.size())
    return set_error(MXS_INTERNAL, "ucx: rank %d has %zu receives posted for rank %d, more than the window", link.rank,
                     lane.receives.size(), source_rank);
  UcxReceive &slot = lane.receives[lane.receive_posted % lane.receives.size()];
  slot.arrival.data = landing;
  slot.complete = false;
  slot.open = true;
  ++lane.receive_posted;
  const ucp_request_param_t parameters = receive_with(&slot, on_received);
  void *request = link.ucx->tag_recv_nbx(link.worker, landing, bytes, wire_tag(source_rank, number, 0), ucx_match_mask,
                                         &parameters);
  if (UCS_PTR_IS_ERR(request)) return link.refused("no receive", UCS_PTR_STATUS(request));
  slot.request = slot.open ? request : nullptr;
  lane.peer->attend_later();
  return MXS_OK;
}

// A peer that failed or left matters only if something waits for it. What it sent before it left may still be coming.
mxs_status judge(UcxLink &link) {
  for (const std::unique_ptr<UcxPeer> &peer : link.peers) {
    if (!peer) continue;
    if (peer->truncated)
      return set_error(MXS_MISMATCH, "rank %d sent more bytes than rank %d expected: all ranks must start the same "
                       "collectives in the same order",
                       peer->rank, link.rank);
    const bool left = peer->heard.leaving && peer->all_lanes([&](const UcxLane &lane) {
      return lane.receive_completed >= peer->heard.sent[lane.number];
    });
    if ((peer->failure != UCS_OK || left) && peer->waits()) return peer_gone(link, *peer);
  }
  return MXS_OK;
}

mxs_status progress(Link *base) {
  UcxLink &link = UcxLink::of(base);
  for (int round = 0; round < progress_rounds && link.ucx->worker_progress(link.worker); ++round) {
  }
  if (link.controls_came) {
    const mxs_status status = link.post_control_receives();
    if (status != MXS_OK) return status;
  }
  if (!link.busy.empty()) link.attend();
  return link.trouble ? judge(link) : MXS_OK;
}

uint64_t sent(Link *base, int target_rank, int lane) { return UcxLink::of(base).lane(target_rank, lane).sent; }

const Arrival *arrived(Link *base, int source_rank, int number) {
  const UcxLane &lane = UcxLink::of(base).lane(source_rank, number);
  const UcxReceive &slot = lane.receives[lane.retired % lane.receives.size()];
  return lane.retired < lane.receive_posted && slot.complete ? &slot.arrival : nullptr;
}

void retire(Link *base, int source_rank, int number) { ++UcxLink::of(base).lane(source_rank, number).retired; }

void notify(Link *base, int target_rank, const Notice &notice) {
  UcxLink &link = UcxLink::of(base);
  UcxPeer *peer = link.peers[static_cast<size_t>(target_rank)].get();
  if (peer->notice_busy || peer->failure != UCS_OK) return;
  peer->notice_out = notice;
  ucp_request_param_t parameters = bytes_with(peer);
  parameters.cb.send = on_notified;
  void *request = link.ucx->tag_send_nbx(peer->endpoint, &peer->notice_out, sizeof peer->notice_out,
                                         control_tag(link.rank) | notice_flag, &parameters);
  peer->notice_busy = request && !UCS_PTR_IS_ERR(request);
}

const Notice *noticed(Link *base, int *source_rank) {
  UcxLink &link = UcxLink::of(base);
  if (link.notices == 0) return nullptr;
  for (const std::unique_ptr<UcxPeer> &peer : link.peers) {
    if (!peer || !peer->notice_came) continue;
    peer->notice_came = false;
    --link.notices;
    *source_rank = peer->rank;
    return &peer->notice_in;
  }
  return nullptr;
}

void sleep(Link *base, uint64_t at_most_ns) { UcxLink::of(base).sleep(at_most_ns); }
int arm(Link *base) { return UcxLink::of(base).arm(); }

}  // namespace

int UcxLink::arm() { return !busy.empty() || ucx->worker_arm(worker) != UCS_OK ? -1 : event_file; }

void UcxLink::sleep(uint64_t at_most_ns) {
  pollfd file = {arm(), POLLIN, 0};
  if (file.fd < 0) return;
  const timespec timeout = {static_cast<time_t>(at_most_ns / 1'000'000'000u),
                            static_cast<long>(at_most_ns % 1'000'000'000u)};
  ppoll(&file, 1, &timeout, nullptr);
}

const Transport ucx_transport = {"ucx",   ucx_usable, open_ucx, connect_ucx, close_ucx, send,
                                 receive, progress,   sent,     arrived,     retire,    sleep,
                                 true,    notify,     noticed,  arm};

}  // namespace mxs
