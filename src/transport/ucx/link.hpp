// SPDX-License-Identifier: Apache-2.0
// A UCX link's state: peers with their windows of messages. See ucx.cpp for how it works.
//
//   open.cpp    context, worker, addresses, endpoints
//   lanes.cpp   which devices it is, and what UCX made of it
//   ucx.cpp     messages, and what UCX calls back
//   close.cpp   leaving in order
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"
#include "transport/ucx/library.hpp"

namespace mxs {

constexpr int ucx_lane_bits = 3;
constexpr int ucx_source_shift = tag_bits + ucx_lane_bits + 1;
constexpr uint64_t ucx_match_mask = ~tag_mask;
static_assert(lane_count <= 1 << ucx_lane_bits);

// What a receiver tells a sender about the messages between them, by lane; counts since connect.
struct UcxControl {
  uint64_t posted[lane_count];     // receives for the addressee's messages
  uint64_t completed[lane_count];  // of these
  uint64_t sent[lane_count];       // to the addressee
  uint64_t leaving;                // 1: there will be no more
};

struct UcxLink;
struct UcxPeer;
struct UcxLane;

struct UcxSend {
  const void *data;
  size_t bytes;
  uint64_t tag;
  bool complete;
  UcxLane *lane;
};

struct UcxReceive {
  Arrival arrival;
  void *request;  // nullptr unless open
  bool open, complete;
  UcxLane *lane;
};

// Counts of messages; slot: count % window. sent <= pushed <= posted.
struct UcxLane {
  UcxPeer *peer = nullptr;
  int number = 0;
  std::vector<UcxSend> sends;
  uint64_t send_posted = 0, send_pushed = 0, sent = 0;
  std::vector<UcxReceive> receives;
  uint64_t receive_posted = 0, receive_completed = 0, retired = 0;
};

struct UcxPeer {
  UcxLink *link = nullptr;
  int rank = -1;
  ucp_ep_h endpoint = nullptr;
  ucs_status_t failure = UCS_OK;  // of the endpoint
  bool truncated = false;         // it sent a longer message than we have room for

  UcxLane lanes[lane_count];

  Notice notice_out{};  // lies still while notice_busy
  Notice notice_in{};   // the latest from it
  bool notice_busy = false, notice_came = false;
  UcxControl heard{};  // the latest from it
  UcxControl told{};   // the latest to it; lies still while told_busy
  bool told_busy = false;
  bool busy = false;  // in UcxLink::busy

  // Progress will see to it.
  void attend_later();
  bool waits() const;
  // Do all lanes have this? Lane -> bool.
  template <class Test>
  bool all_lanes(Test &&test) const {
    return std::all_of(std::begin(lanes), std::end(lanes), test);
  }
};

struct UcxControlReceive {
  UcxLink *link;
  union {
    UcxControl control;
    Notice notice;
  } landing;
  void *request;  // nullptr unless open
  bool open;
};

struct UcxLink : Link {
  const UcxLibrary *ucx = nullptr;
  int rank = 0;
  std::vector<int> node_of_rank;  // empty: not known
  size_t window = 0;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_file = -1;  // the worker's
  std::vector<std::unique_ptr<UcxPeer>> peers;  // by rank; nullptr: not connected
  std::vector<UcxPeer *> busy;                  // have something to push or to tell
  std::vector<UcxControlReceive> controls;
  bool controls_came = true;  // some are not open
  bool trouble = false;  // a failure or a farewell that progress has to judge
  bool leaving = false;
  int notices = 0;  // of peers with notice_came

  ~UcxLink();
  static UcxLink &of(Link *link) { return *static_cast<UcxLink *>(link); }
  UcxLane &lane(int rank_of_peer, int number) { return peers[static_cast<size_t>(rank_of_peer)]->lanes[number]; }

  // Posts those that have come anew. Not from their callback, so that a heap of them doesn't nest.
  mxs_status post_control_receives();
  // Pushes what may go, and tells peers what they don't know yet.
  void attend();
  // The worker's event file, which tells of whatever comes from now on; -1: something has come already.
  int arm();
  // Until something comes, at most so long.
  void sleep(uint64_t at_most_ns);
  mxs_status refused(const char *what, ucs_status_t status) const;
};

// A control message or a notice has come, with the tag of its sender: what it says is kept, if it has the right size
// and comes from a peer.
void hear_ucx_control(UcxLink &link, const void *message, size_t bytes, uint64_t sender_tag);

// From a peer's endpoint: it is dead, unreachable, or has closed.
void on_ucx_endpoint_failure(void *user_data, ucp_ep_h endpoint, ucs_status_t status);

// UCX_NET_DEVICES for a NIC of that name: "eth1", "mlx5_0:1". Empty: this machine has none of that name.
std::string ucx_device(const std::string &nic);
// Tells in the log by which devices UCX reaches the peers, and warns if it is the network inside a node.
void log_ucx_lanes(const UcxLink &link, const std::vector<int> &peers);

bool ucx_usable(std::string *why_not);
mxs_status open_ucx(Link **link_out, const LinkOptions &options, std::vector<std::byte> *address);
mxs_status connect_ucx(Link *link, const std::vector<std::vector<std::byte>> &addresses, const std::vector<int> &peers);
void close_ucx(Link *link, uint64_t patience_ns);

}  // namespace mxs
