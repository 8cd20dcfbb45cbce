// SPDX-License-Identifier: Apache-2.0
// Leaving: a closed socket may drop what the kernel still has to send, and does if anything comes for it. So peers are
// told how much was sent, and their answer is waited for.
//
// With messages in flight the comm has failed, and who lent memory to them may have given it back. UCX cancels no
// receive of which a part has come, and no send of which a part has gone: it would go on with them in any progress
// (1.13.1: a rank in some 2,000 died in ucp_eager_middle_handler). So then there is none, and destroying the worker
// closes endpoints and drops requests.
#include <algorithm>
#include <memory>

#include "base/clock.hpp"
#include "transport/ucx/link.hpp"

namespace mxs {

namespace {

constexpr uint64_t flush_ns = 1'000'000'000;

bool in_order(const UcxLink &link) {
  return std::none_of(link.peers.begin(), link.peers.end(),
                      [](const auto &peer) { return peer && (peer->truncated || peer->waits()); });
}

// Until all peers have what was sent to them, or patience_ns is over.
void say_farewell(UcxLink &link, uint64_t patience_ns) {
  link.leaving = true;
  for (const std::unique_ptr<UcxPeer> &peer : link.peers)
    if (peer && !peer->all_lanes([](const UcxLane &lane) { return lane.send_posted == 0 && lane.receive_posted == 0; }))
      peer->attend_later();
  const uint64_t deadline_ns = now_ns() + patience_ns;
  const auto has_all = [](const auto &peer) {
    return !peer || peer->failure != UCS_OK || (!peer->told_busy && peer->all_lanes([&](const UcxLane &lane) {
      return peer->heard.completed[lane.number] >= lane.sent;
    }));
  };
  for (;;) {
    while (link.ucx->worker_progress(link.worker)) {
    }
    if (link.post_control_receives() != MXS_OK) return;
    if (!link.busy.empty()) link.attend();
    const uint64_t now = now_ns();
    if (now >= deadline_ns || std::all_of(link.peers.begin(), link.peers.end(), has_all)) return;
    link.sleep(std::min<uint64_t>(deadline_ns - now, 10'000'000));
  }
}

void close_endpoints(UcxLink &link) {
  std::vector<void *> closing;
  for (const std::unique_ptr<UcxPeer> &peer : link.peers) {
    if (!peer || !peer->endpoint) continue;
    ucp_request_param_t parameters{};
    if (peer->failure != UCS_OK) {
      parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    void *request = link.ucx->ep_close_nbx(peer->endpoint, &parameters);
    if (request && !UCS_PTR_IS_ERR(request)) closing.push_back(request);
  }
  const uint64_t deadline_ns = now_ns() + flush_ns;
  const auto closed = [&](void *request) { return link.ucx->request_check_status(request) != UCS_INPROGRESS; };
  while (now_ns() < deadline_ns && !std::all_of(closing.begin(), closing.end(), closed))
    link.ucx->worker_progress(link.worker);
  for (void *request : closing) link.ucx->request_free(request);
}

void cancel_receives(UcxLink &link) {
  for (UcxControlReceive &receive : link.controls)
    if (receive.request) link.ucx->request_cancel(link.worker, receive.request);
  for (const std::unique_ptr<UcxPeer> &peer : link.peers) {
    if (!peer) continue;
    for (UcxLane &lane : peer->lanes)
      for (UcxReceive &slot : lane.receives)
        if (slot.request) link.ucx->request_cancel(link.worker, slot.request);
  }
}

// What has come and met no receive: UCX warns of each when the worker is destroyed. The rest of a message whose sender
// died on the way never comes, nor does any without progress.
void drop_unmatched(UcxLink &link, bool may_progress) {
  const uint64_t deadline_ns = may_progress ? now_ns() + flush_ns / 10 : 0;
  std::vector<std::vector<std::byte>> landings;  // kept: a later progress may go on with an unfinished one
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h message = link.ucx->tag_probe_nb(link.worker, 0, 0, 1, &info)) {
    std::vector<std::byte> &landing = landings.emplace_back(info.length);
    ucp_request_param_t parameters{};
    void *request = link.ucx->tag_msg_recv_nbx(link.worker, landing.data(), info.length, message, &parameters);
    if (!request || UCS_PTR_IS_ERR(request)) continue;
    while (link.ucx->request_check_status(request) == UCS_INPROGRESS && now_ns() < deadline_ns)
      link.ucx->worker_progress(link.worker);
    link.ucx->request_free(request);
  }
}

}  // namespace

void close_ucx(Link *base, uint64_t patience_ns) {
  if (!base) return;
  std::unique_ptr<UcxLink> link(&UcxLink::of(base));
  const bool flush = in_order(*link);
  if (flush) say_farewell(*link, patience_ns);
  cancel_receives(*link);
  if (flush) {
    while (link->ucx->worker_progress(link->worker)) {
    }
    close_endpoints(*link);
  }
  drop_unmatched(*link, flush);
}

}  // namespace mxs
