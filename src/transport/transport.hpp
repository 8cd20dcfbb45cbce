// SPDX-License-Identifier: Apache-2.0
// Transport: messages between this rank and its peers. loopback/ is the one to copy.
//
// A channel is one lane of one direction between two ranks. Messages of a channel arrive in the order in which they
// were sent, and meet the receives in the order in which these were posted; lanes know nothing of each other, so that
// several collectives can be in flight. Nothing here blocks, but `sleep`.
//
//   sender    send(target, lane, tag, data, bytes) ... progress ... sent(target, lane) grows: the data may be reused
//   receiver  receive(source, lane, landing, bytes) ... progress ... arrived(source, lane) shows the oldest message:
//             read it in place or in landing, then retire(source, lane): only now the next one shows, and the sender's
//             data is free
//
// A transport that can show the sender's memory (loopback, shm) leaves landing alone; one that can't (ucx) fills it.
// The tag tells which collective and which message it belongs to; the receiver compares, so that ranks that call
// different things get an error, not a hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

class Domain;

constexpr int message_window_max = 64;  // messages in flight per channel: what a caller may ask for

// One per comm and transport. Each transport derives its own, under a name of its own.
struct Link {};

struct LinkOptions {
  int rank = 0, rank_count = 1;
  uint64_t session = 0;   // equal on all ranks of a comm, different for each comm
  int window_max = message_window_max;  // messages in flight per channel that the engine may post
  uint64_t timeout_ns = 0;
  Domain *domain = nullptr;  // of this rank's node (shm, loopback); nullptr: no local peers
  std::string device;             // the NIC that is this rank's (ucx); empty: any
  std::vector<int> node_of_rank;  // equal numbers share a node; empty: not known
};

// Tags fit in so many bits: a transport may need the others (ucx has 64 in all, and the source rank is in them).
constexpr int tag_bits = 40;
constexpr uint64_t tag_mask = (uint64_t{1} << tag_bits) - 1;

// Collectives take turns on the first lanes; the small messages of agreements have one of their own.
constexpr int collective_lanes = 4, agreement_lane = 4, lane_count = 5;
constexpr uint64_t agreement_message_bytes_max = 2048;
constexpr int agreement_window = 4;  // messages in flight on its lane

struct Arrival {
  const void *data;
  size_t bytes;
  uint64_t tag;
};

// What a rank that has waited for long tells a peer, beside all lanes.
struct Notice {
  static constexpr int word_count = 20;
  uint64_t words[word_count];
};

struct Transport {
  const char *name;
  // Cheap, no side effects. On false *why_not is a sentence for people.
  bool (*usable)(std::string *why_not);
  // Opens this rank's end and fills *address, which every peer gets.
  mxs_status (*open)(Link **link, const LinkOptions &options, std::vector<std::byte> *address);
  // Joins it with `peers`, a list of ranks that doesn't hold its own; addresses are by rank. Not collective,
  // but nobody closes before all have connected.
  mxs_status (*connect)(Link *link, const std::vector<std::vector<std::byte>> &addresses,
                        const std::vector<int> &peers);
  // Accepts nullptr; cancels what is in flight. Waits until peers have what was sent to them, at most this long.
  void (*close)(Link *link, uint64_t patience_ns);
  mxs_status (*send)(Link *link, int target_rank, int lane, uint64_t tag, const void *data, size_t bytes);
  mxs_status (*receive)(Link *link, int source_rank, int lane, void *landing, size_t bytes);
  mxs_status (*progress)(Link *link);                                // MXS_PEER_FAILED, ... ends the comm
  uint64_t (*sent)(Link *link, int target_rank, int lane);           // sends completed so far
  const Arrival *(*arrived)(Link *link, int source_rank, int lane);  // nullptr: not yet
  void (*retire)(Link *link, int source_rank, int lane);
  // Waits until something may have changed, at most this long; may return early. Where there is no `arm` several
  // threads may be in it at once, while another is in any other function.
  void (*sleep)(Link *link, uint64_t at_most_ns);
  // false: it shows the sender's memory, and the landing of a receive may be nullptr.
  bool needs_landing = true;
  // Notices; nullptr: those whom it joins have shared memory for that. Sends one unless the one before is still on its
  // way; takes the next that has come (nullptr: none), which stays until the next progress.
  void (*notify)(Link *link, int target_rank, const Notice &notice) = nullptr;
  const Notice *(*noticed)(Link *link, int *source_rank) = nullptr;
  // The first half of a sleep, of a transport of the network: a file to poll that gets readable when something has
  // changed; -1: it has already. nullptr: `sleep` does it all.
  int (*arm)(Link *link) = nullptr;
};

// Which transport joins which ranks is decided by place (same process, same node, else), in collective/comm.
const Transport *find_transport(const std::string &name);  // nullptr: no such name
std::string transport_names();                              // "loopback, shm, ucx": those in this build

extern const Transport loopback_transport;
extern const Transport shm_transport;
extern const Transport ucx_transport;

}  // namespace mxs
