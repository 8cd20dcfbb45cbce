// SPDX-License-Identifier: Apache-2.0
// UCX: tag messages between processes, on one node or on many.
//
//   UCX tag   | source rank: 23 bits | control: 1 bit | our tag: 40 bits |   matched on the first two
//
// All messages are eager (no handshake per chunk: a chain of chunks took 1.35-2.8 s with rendezvous and 0.81 s without,
// 8 namespaces on 200 Mbit/s), and land in receives that are posted already, because the receiver says in control
// messages how many it has posted: the sender keeps back what has no receive yet, but for a window of small ones. So
// nothing piles up inside UCX however late a rank is.
//
//   receiver  receive, receive, receive ... progress: control {posted = 3}
//   sender    send (kept back) ........................................... progress: pushed -> sent
//
// Leaving: a closed socket may drop what the kernel still has to send. So close tells peers how much was sent, and
// waits for their answer, at most linger_ns.
//
// Failure: UCX tells the endpoint of a dead peer, never the receives that wait for it; progress looks at both.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/library.hpp"

namespace mxs {

namespace {

constexpr int source_shift = tag_bits + 1;
constexpr int rank_count_max = 1 << (64 - source_shift);
constexpr uint64_t match_mask = ~tag_mask;

constexpr uint64_t control_flag = uint64_t{1} << tag_bits;
constexpr size_t small_bytes = 8192;              // may go before there is a receive for it, up to a window ahead
constexpr size_t control_receives = 16;           // posted at a time, for all peers together
constexpr uint64_t linger_ns = 1'000'000'000;
constexpr int progress_rounds = 32;               // events that one progress takes, so that others get their turn

constexpr uint64_t wire_tag(int source_rank, bool control, uint64_t tag) {
  return static_cast<uint64_t>(source_rank) << source_shift | (control ? control_flag : 0) | tag;
}

// The address blob: this, then the worker's address.
struct AddressHead {
  uint32_t magic, major, minor, release;
};
constexpr uint32_t address_magic = 0x4d585355;

// What a receiver tells a sender about the messages between them; counts since connect.
struct Control {
  uint64_t posted;     // receives for the addressee's messages
  uint64_t completed;  // of these
  uint64_t sent;       // to the addressee
  uint64_t leaving;    // 1: there will be no more
};

struct UcxLink;

struct SendSlot {
  const void *data;
  size_t bytes;
  uint64_t tag;
  bool complete;
  struct Peer *peer;
};

struct ReceiveSlot {
  Arrival arrival;
  void *request;  // nullptr unless open
  bool open, complete;
  struct Peer *peer;
};

struct Peer {
  UcxLink *link = nullptr;
  int rank = -1;
  ucp_ep_h endpoint = nullptr;
  ucs_status_t failure = UCS_OK;  // of the endpoint
  bool truncated = false;         // it sent a longer message than we have room for

  // Counts of messages; slot: count % window. sent <= pushed <= posted.
  std::vector<SendSlot> sends;
  uint64_t send_posted = 0, send_pushed = 0, sent = 0;
  std::vector<ReceiveSlot> receives;
  uint64_t receive_posted = 0, receive_completed = 0, retired = 0;

  Control heard{};  // the latest from it
  Control told{};   // the latest to it; lies still while told_busy
  bool told_busy = false;
  bool busy = false;  // in UcxLink::busy

  bool waits() const { return send_posted != sent || receive_posted != receive_completed; }
};

struct ControlReceive {
  UcxLink *link;
  Control landing;
  void *request;  // nullptr unless open
  bool open;
};

struct UcxLink : Link {
  const UcxLibrary *ucx = nullptr;
  int rank = 0;
  size_t window = 0;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_file = -1;  // the worker's
  std::vector<std::unique_ptr<Peer>> peers;  // by rank; nullptr: not connected
  std::vector<Peer *> busy;                  // have something to push or to tell
  std::vector<ControlReceive> controls;
  bool controls_came = true;  // some are not open
  bool trouble = false;  // a failure or a farewell that progress has to judge
  bool leaving = false;

  ~UcxLink() {
    if (worker) ucx->worker_destroy(worker);
    if (context) ucx->cleanup(context);
  }
};

UcxLink &mine(Link *link) { return *static_cast<UcxLink *>(link); }

void attend_later(Peer *peer) {
  if (peer->busy) return;
  peer->busy = true;
  peer->link->busy.push_back(peer);  // within its capacity: a peer is in it once
}

// ---- What UCX calls back. Nothing is sent from here. ----------------------------------------------------------------

void count_sent(Peer *peer) {
  while (peer->sent < peer->send_pushed && peer->sends[peer->sent % peer->sends.size()].complete) ++peer->sent;
}

void on_sent(void *request, ucs_status_t status, void *user_data) {
  SendSlot *slot = static_cast<SendSlot *>(user_data);
  Peer *peer = slot->peer;
  peer->link->ucx->request_free(request);
  if (status == UCS_OK) {
    slot->complete = true;
    count_sent(peer);
    return;
  }
  if (peer->failure == UCS_OK) peer->failure = status;
  peer->link->trouble = true;
}

void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data) {
  ReceiveSlot *slot = static_cast<ReceiveSlot *>(user_data);
  Peer *peer = slot->peer;
  slot->request = nullptr;
  slot->open = false;
  if (status == UCS_OK) {
    slot->arrival.bytes = info->length;
    slot->arrival.tag = info->sender_tag & tag_mask;
    slot->complete = true;
    ++peer->receive_completed;
    if (peer->heard.leaving) attend_later(peer);
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
  Peer *peer = static_cast<Peer *>(user_data);
  peer->link->ucx->request_free(request);
  peer->told_busy = false;
  if (status != UCS_OK && peer->failure == UCS_OK) {
    peer->failure = status;
    peer->link->trouble = true;
  }
}

void hear(UcxLink &link, const Control &control, uint64_t sender_tag) {
  const size_t source = static_cast<size_t>(sender_tag >> source_shift);
  Peer *peer = source < link.peers.size() ? link.peers[source].get() : nullptr;
  if (!peer) return;
  peer->heard.posted = std::max(peer->heard.posted, control.posted);
  peer->heard.completed = std::max(peer->heard.completed, control.completed);
  if (control.leaving) {
    peer->heard.leaving = 1;
    peer->heard.sent = control.sent;
    link.trouble = true;
  }
  attend_later(peer);
}

void on_control(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data) {
  ControlReceive *receive = static_cast<ControlReceive *>(user_data);
  UcxLink &link = *receive->link;
  receive->request = nullptr;
  receive->open = false;
  link.controls_came = true;
  if (status == UCS_OK && info->length == sizeof(Control)) hear(link, receive->landing, info->sender_tag);
  link.ucx->request_free(request);
}

// From a peer's endpoint: it is dead, unreachable, or has closed.
void on_endpoint_failure(void *user_data, ucp_ep_h, ucs_status_t status) {
  Peer *peer = static_cast<Peer *>(user_data);
  if (peer->failure == UCS_OK) peer->failure = status;
  peer->link->trouble = true;
}

// ---- What we call. --------------------------------------------------------------------------------------------------

mxs_status refused(const UcxLibrary &ucx, const char *what, ucs_status_t status) {
  return set_error(MXS_TRANSPORT_FAILED, "ucx: %s: %s", what, ucx.status_string(status));
}

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

// Posts those that have come anew. Not from their callback, so that a heap of them doesn't nest.
mxs_status post_control_receives(UcxLink &link) {
  while (link.controls_came) {
    link.controls_came = false;
    for (ControlReceive &receive : link.controls) {
      if (receive.open) continue;
      const ucp_request_param_t parameters = receive_with(&receive, on_control);
      receive.open = true;
      void *request = link.ucx->tag_recv_nbx(link.worker, &receive.landing, sizeof(Control), control_flag, control_flag,
                                             &parameters);
      if (UCS_PTR_IS_ERR(request)) return refused(*link.ucx, "no receive", UCS_PTR_STATUS(request));
      receive.request = receive.open ? request : nullptr;
    }
  }
  return MXS_OK;
}

void push_sends(UcxLink &link, Peer *peer) {
  while (peer->send_pushed < peer->send_posted && peer->failure == UCS_OK) {
    SendSlot &slot = peer->sends[peer->send_pushed % peer->sends.size()];
    const uint64_t ahead = slot.bytes <= small_bytes ? link.window : 0;
    if (peer->send_pushed >= peer->heard.posted + ahead) return;
    ucp_request_param_t parameters = bytes_with(&slot);
    parameters.cb.send = on_sent;
    ++peer->send_pushed;
    void *request = link.ucx->tag_send_nbx(peer->endpoint, slot.data, slot.bytes, wire_tag(link.rank, false, slot.tag),
                                           &parameters);
    if (!request) {
      slot.complete = true;
      count_sent(peer);
    } else if (UCS_PTR_IS_ERR(request)) {
      peer->failure = UCS_PTR_STATUS(request);
      link.trouble = true;
    }
  }
}

// Tells the peer what it doesn't know yet. Nothing while the message before is on its way; then again later.
void tell(UcxLink &link, Peer *peer) {
  const bool farewell = link.leaving && !peer->told.leaving;
  const bool answer = peer->heard.leaving && peer->receive_completed != peer->told.completed;
  if (peer->failure != UCS_OK || (peer->receive_posted == peer->told.posted && !farewell && !answer)) return;
  if (peer->told_busy) return attend_later(peer);
  peer->told = {peer->receive_posted, peer->receive_completed, peer->sent, link.leaving};
  ucp_request_param_t parameters = bytes_with(peer);
  parameters.cb.send = on_told;
  void *request = link.ucx->tag_send_nbx(peer->endpoint, &peer->told, sizeof peer->told, wire_tag(link.rank, true, 0),
                                         &parameters);
  if (UCS_PTR_IS_ERR(request)) {
    peer->failure = UCS_PTR_STATUS(request);
    link.trouble = true;
  } else {
    peer->told_busy = request != nullptr;
  }
}

void attend(UcxLink &link) {
  const size_t count = link.busy.size();
  for (size_t i = 0; i < count; ++i) {
    Peer *peer = link.busy[i];
    peer->busy = false;
    push_sends(link, peer);
    tell(link, peer);  // may come back into the list, behind
  }
  link.busy.erase(link.busy.begin(), link.busy.begin() + static_cast<std::ptrdiff_t>(count));
}

// ---- Opening. -------------------------------------------------------------------------------------------------------

mxs_status make_context(UcxLink *link, int rank_count) {
  const UcxLibrary &ucx = *link->ucx;
  ucp_config_t *config = nullptr;
  ucs_status_t status = ucx.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return refused(ucx, "its configuration can't be read (a UCX_ variable?)", status);
  // Eager for all sizes, and a dead process of the same node is seen within a second or two, not twenty.
  if (!environment_text("UCX_RNDV_THRESH")) ucx.config_modify(config, "RNDV_THRESH", "inf");
  if (!environment_text("UCX_KEEPALIVE_INTERVAL")) ucx.config_modify(config, "KEEPALIVE_INTERVAL", "1s");
  ucp_params_t parameters{};
  parameters.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.tag_sender_mask = match_mask;
  parameters.estimated_num_eps = static_cast<size_t>(rank_count);
  status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &link->context);
  ucx.config_release(config);
  return status == UCS_OK ? MXS_OK : refused(ucx, "no usable device (UCX_TLS, UCX_NET_DEVICES?)", status);
}

mxs_status make_worker(UcxLink *link, std::vector<std::byte> *address) {
  const UcxLibrary &ucx = *link->ucx;
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucx.worker_create(link->context, &parameters, &link->worker);
  if (status != UCS_OK) return refused(ucx, "no worker", status);
  status = ucx.worker_get_efd(link->worker, &link->event_file);
  if (status != UCS_OK) return refused(ucx, "the worker has no event file", status);
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  status = ucx.worker_query(link->worker, &attributes);
  if (status != UCS_OK) return refused(ucx, "the worker has no address", status);
  const AddressHead head = {address_magic, ucx.major, ucx.minor, ucx.release};
  address->resize(sizeof head + attributes.address_length);
  std::memcpy(address->data(), &head, sizeof head);
  std::memcpy(address->data() + sizeof head, attributes.address, attributes.address_length);
  ucx.worker_release_address(link->worker, attributes.address);
  return MXS_OK;
}

// UCX 1.13 ends the program by an assertion when it finds no descriptor for its own thread, so it isn't even asked
// without. A worker and its endpoints took 17 where this was tried, with tcp and shared memory in the node.
mxs_status check_descriptors(int rank) {
  constexpr size_t needed = 32;
  std::vector<int> taken;
  taken.reserve(needed);
  while (taken.size() < needed) {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) break;
    taken.push_back(descriptor);
  }
  const int cause = errno;
  for (const int descriptor : taken) ::close(descriptor);
  if (taken.size() == needed) return MXS_OK;
  return set_error(MXS_SYSTEM, "ucx: rank %d can open %zu files more, but needs %zu: %s; raise the limit (ulimit -n)",
                   rank, taken.size(), needed, std::strerror(cause));
}

bool usable(std::string *why_not) { return ucx_library(why_not) != nullptr; }

mxs_status open(Link **link_out, const LinkOptions &options, std::vector<std::byte> *address) {
  std::string why_not;
  const UcxLibrary *ucx = ucx_library(&why_not);
  if (!ucx) return set_error(MXS_NOT_BUILT, "%s", why_not.c_str());
  if (options.rank_count > rank_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "ucx: %d ranks, %d are the most", options.rank_count, rank_count_max);
  const mxs_status enough = check_descriptors(options.rank);
  if (enough != MXS_OK) return enough;
  auto link = std::make_unique<UcxLink>();
  link->ucx = ucx;
  link->rank = options.rank;
  link->window = static_cast<size_t>(std::max(options.window_max, 1));
  link->peers.resize(static_cast<size_t>(options.rank_count));
  link->busy.reserve(2 * link->peers.size());
  mxs_status status = make_context(link.get(), options.rank_count);
  if (status == MXS_OK) status = make_worker(link.get(), address);
  if (status != MXS_OK) return status;
  link->controls.resize(control_receives);
  for (ControlReceive &receive : link->controls) receive.link = link.get();
  status = post_control_receives(*link);
  if (status != MXS_OK) return status;
  *link_out = link.release();
  return MXS_OK;
}

mxs_status check_address(const UcxLink &link, int peer, const std::vector<std::byte> &address) {
  AddressHead head{};
  if (address.size() > sizeof head) std::memcpy(&head, address.data(), sizeof head);
  if (head.magic != address_magic)
    return set_error(MXS_MISMATCH, "rank %d gave no UCX address; do all ranks use the same transport?", peer);
  // Two versions may not understand each other on the wire: 1.13 and 1.22 failed in both directions.
  if (head.major != link.ucx->major || head.minor != link.ucx->minor || head.release != link.ucx->release)
    return set_error(MXS_MISMATCH, "rank %d has UCX %u.%u.%u, rank %d has %u.%u.%u; all ranks need the same", peer,
                     head.major, head.minor, head.release, link.rank, link.ucx->major, link.ucx->minor,
                     link.ucx->release);
  return MXS_OK;
}

mxs_status make_endpoint(UcxLink *link, int rank, const std::vector<std::byte> &address) {
  auto peer = std::make_unique<Peer>();
  peer->link = link;
  peer->rank = rank;
  peer->sends.resize(link->window);
  peer->receives.resize(link->window);
  for (SendSlot &slot : peer->sends) slot.peer = peer.get();
  for (ReceiveSlot &slot : peer->receives) slot.peer = peer.get();
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t *>(address.data() + sizeof(AddressHead));
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = on_endpoint_failure;
  parameters.err_handler.arg = peer.get();
  const ucs_status_t status = link->ucx->ep_create(link->worker, &parameters, &peer->endpoint);
  if (status != UCS_OK)
    return set_error(MXS_TRANSPORT_FAILED, "ucx: rank %d can't reach rank %d: %s (UCX_TLS, UCX_NET_DEVICES?)",
                     link->rank, rank, link->ucx->status_string(status));
  link->peers[static_cast<size_t>(rank)] = std::move(peer);
  return MXS_OK;
}

// "posix/memory, tcp/eth0": what UCX has chosen for an endpoint, as it prints it ("lane[0]:  1:posix/memory.0 md[1]").
std::string lanes(const UcxLink &link, ucp_ep_h endpoint) {
  char *text = nullptr;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream) return "lanes unknown";
  link.ucx->ep_print_info(endpoint, stream);
  fclose(stream);
  std::string found;
  for (const char *line = text; (line = std::strstr(line, "lane[")) != nullptr; ++line) {
    const char *begin = std::strchr(line, ':');
    begin = begin ? std::strchr(begin + 1, ':') : nullptr;
    if (!begin) break;
    const std::string lane(begin + 1, std::strcspn(begin + 1, " \n"));
    if (found.find(lane) == std::string::npos) found.append(found.empty() ? "" : ", ").append(lane);
  }
  std::free(text);
  return found.empty() ? "lanes unknown" : found;
}

void log_lanes(const UcxLink &link, const std::vector<int> &peers) {
  std::map<std::string, std::string> ranks;  // by lanes
  for (const int peer : peers) {
    std::string &list = ranks[lanes(link, link.peers[static_cast<size_t>(peer)]->endpoint)];
    list.append(list.empty() ? "" : ", ").append(std::to_string(peer));
  }
  for (const auto &[by, list] : ranks)
    log_line(MXS_LOG_INFO, "ucx: rank %d reaches rank %.200s by %s", link.rank, list.c_str(), by.c_str());
}

mxs_status connect(Link *base, const std::vector<std::vector<std::byte>> &addresses, const std::vector<int> &peers) {
  UcxLink &link = mine(base);
  for (const int peer : peers) {
    const std::vector<std::byte> &address = addresses[static_cast<size_t>(peer)];
    mxs_status status = check_address(link, peer, address);
    if (status == MXS_OK) status = make_endpoint(&link, peer, address);
    if (status != MXS_OK) return status;
  }
  log_lanes(link, peers);
  return MXS_OK;
}

// ---- Messages. ------------------------------------------------------------------------------------------------------

mxs_status peer_gone(const UcxLink &link, const Peer &peer) {
  if (peer.failure == UCS_OK)
    return set_error(MXS_PEER_FAILED, "rank %d left the comm while rank %d had messages in flight with it", peer.rank,
                     link.rank);
  return set_error(MXS_PEER_FAILED, "rank %d died, hung up or can't be reached by rank %d any more (ucx: %s)",
                   peer.rank, link.rank, link.ucx->status_string(peer.failure));
}

mxs_status send(Link *base, int target_rank, uint64_t tag, const void *data, size_t bytes) {
  UcxLink &link = mine(base);
  Peer &peer = *link.peers[static_cast<size_t>(target_rank)];
  if (peer.send_posted - peer.sent >= peer.sends.size())
    return set_error(MXS_INTERNAL, "ucx: rank %d has %zu messages in flight to rank %d, more than the window",
                     link.rank, peer.sends.size(), target_rank);
  if (peer.failure != UCS_OK) return peer_gone(link, peer);
  SendSlot &slot = peer.sends[peer.send_posted % peer.sends.size()];
  slot.data = data;
  slot.bytes = bytes;
  slot.tag = tag & tag_mask;
  slot.complete = false;
  ++peer.send_posted;
  push_sends(link, &peer);
  return MXS_OK;
}

mxs_status receive(Link *base, int source_rank, void *landing, size_t bytes) {
  UcxLink &link = mine(base);
  Peer &peer = *link.peers[static_cast<size_t>(source_rank)];
  if (peer.receive_posted - peer.retired >= peer.receives.size())
    return set_error(MXS_INTERNAL, "ucx: rank %d has %zu receives posted for rank %d, more than the window", link.rank,
                     peer.receives.size(), source_rank);
  ReceiveSlot &slot = peer.receives[peer.receive_posted % peer.receives.size()];
  slot.arrival.data = landing;
  slot.complete = false;
  slot.open = true;
  ++peer.receive_posted;
  const ucp_request_param_t parameters = receive_with(&slot, on_received);
  void *request = link.ucx->tag_recv_nbx(link.worker, landing, bytes, wire_tag(source_rank, false, 0), match_mask,
                                         &parameters);
  if (UCS_PTR_IS_ERR(request)) return refused(*link.ucx, "no receive", UCS_PTR_STATUS(request));
  slot.request = slot.open ? request : nullptr;
  attend_later(&peer);
  return MXS_OK;
}

// A peer that failed or left matters only if something waits for it. What it sent before it left may still be coming.
mxs_status judge(UcxLink &link) {
  for (const std::unique_ptr<Peer> &peer : link.peers) {
    if (!peer) continue;
    if (peer->truncated)
      return set_error(MXS_MISMATCH, "rank %d sent more bytes than rank %d expected: they call different things",
                       peer->rank, link.rank);
    const bool left = peer->heard.leaving && peer->receive_completed >= peer->heard.sent;
    if ((peer->failure != UCS_OK || left) && peer->waits()) return peer_gone(link, *peer);
  }
  return MXS_OK;
}

mxs_status progress(Link *base) {
  UcxLink &link = mine(base);
  for (int round = 0; round < progress_rounds && link.ucx->worker_progress(link.worker); ++round) {
  }
  if (link.controls_came) {
    const mxs_status status = post_control_receives(link);
    if (status != MXS_OK) return status;
  }
  if (!link.busy.empty()) attend(link);
  return link.trouble ? judge(link) : MXS_OK;
}

uint64_t sent(Link *base, int target_rank) { return mine(base).peers[static_cast<size_t>(target_rank)]->sent; }

const Arrival *arrived(Link *base, int source_rank) {
  Peer &peer = *mine(base).peers[static_cast<size_t>(source_rank)];
  const ReceiveSlot &slot = peer.receives[peer.retired % peer.receives.size()];
  return peer.retired < peer.receive_posted && slot.complete ? &slot.arrival : nullptr;
}

void retire(Link *base, int source_rank) { ++mine(base).peers[static_cast<size_t>(source_rank)]->retired; }

void sleep(Link *base, uint64_t at_most_ns) {
  UcxLink &link = mine(base);
  if (!link.busy.empty() || link.ucx->worker_arm(link.worker) != UCS_OK) return;  // something has come already
  pollfd file = {link.event_file, POLLIN, 0};
  const timespec timeout = {static_cast<time_t>(at_most_ns / 1'000'000'000u),
                            static_cast<long>(at_most_ns % 1'000'000'000u)};
  ppoll(&file, 1, &timeout, nullptr);
}

// ---- Leaving. -------------------------------------------------------------------------------------------------------

bool in_order(const UcxLink &link) {
  return std::none_of(link.peers.begin(), link.peers.end(),
                      [](const auto &peer) { return peer && (peer->truncated || peer->waits()); });
}

// Until all peers have what was sent to them, or linger_ns is over.
void say_farewell(UcxLink &link) {
  link.leaving = true;
  for (const std::unique_ptr<Peer> &peer : link.peers)
    if (peer && (peer->send_posted > 0 || peer->receive_posted > 0)) attend_later(peer.get());
  const uint64_t deadline_ns = now_ns() + linger_ns;
  const auto has_all = [](const auto &peer) {
    return !peer || peer->failure != UCS_OK || (!peer->told_busy && peer->heard.completed >= peer->sent);
  };
  for (;;) {
    while (link.ucx->worker_progress(link.worker)) {
    }
    if (post_control_receives(link) != MXS_OK) return;
    if (!link.busy.empty()) attend(link);
    const uint64_t now = now_ns();
    if (now >= deadline_ns || std::all_of(link.peers.begin(), link.peers.end(), has_all)) return;
    sleep(&link, std::min<uint64_t>(deadline_ns - now, 10'000'000));
  }
}

void close_endpoints(UcxLink &link, bool flush) {
  std::vector<void *> closing;
  for (const std::unique_ptr<Peer> &peer : link.peers) {
    if (!peer || !peer->endpoint) continue;
    ucp_request_param_t parameters{};
    if (!flush || peer->failure != UCS_OK) {
      parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    void *request = link.ucx->ep_close_nbx(peer->endpoint, &parameters);
    if (request && !UCS_PTR_IS_ERR(request)) closing.push_back(request);
  }
  const uint64_t deadline_ns = now_ns() + linger_ns;
  const auto closed = [&](void *request) { return link.ucx->request_check_status(request) != UCS_INPROGRESS; };
  while (now_ns() < deadline_ns && !std::all_of(closing.begin(), closing.end(), closed))
    link.ucx->worker_progress(link.worker);
  for (void *request : closing) link.ucx->request_free(request);
}

void cancel_receives(UcxLink &link) {
  for (ControlReceive &receive : link.controls)
    if (receive.request) link.ucx->request_cancel(link.worker, receive.request);
  for (const std::unique_ptr<Peer> &peer : link.peers) {
    if (!peer) continue;
    for (ReceiveSlot &slot : peer->receives)
      if (slot.request) link.ucx->request_cancel(link.worker, slot.request);
  }
  while (link.ucx->worker_progress(link.worker)) {
  }
}

void close(Link *base) {
  if (!base) return;
  std::unique_ptr<UcxLink> link(&mine(base));
  const bool flush = in_order(*link);
  if (flush) say_farewell(*link);
  cancel_receives(*link);
  close_endpoints(*link, flush);
}

}  // namespace

const Transport ucx_transport = {"ucx",    usable,   open, connect, close,  send,
                                 receive,  progress, sent, arrived, retire, sleep};

}  // namespace mxs
