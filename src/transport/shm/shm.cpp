// SPDX-License-Identifier: Apache-2.0
// shm: messages between processes of a node, through memory that both map.
//
// Each rank has one region with a ring per target and lane, which only it writes:
//
//   sender    copies a message into free slots, in pieces of a slot   posted + 1 each   the data is then its own again
//   receiver  one slot: reads it in place, frees it at retire         freed + 1
//             several: copies them to the landing as they come, and frees each at once
//
// So a large message streams through its ring while both sides work, and no size is too large for one. Sends that
// find no free slot wait in this process and go on in progress.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <memory>

#include "base/arithmetic.hpp"
#include "base/clock.hpp"
#include "base/status.hpp"
#include "memory/domain.hpp"
#include "memory/region.hpp"
#include "transport/transport.hpp"

namespace mxs {

namespace {

constexpr int slot_count = 4;  // of a lane: as many messages as an engine's window
// All rings of a rank together. At up to 5 local ranks a slot is 256 KiB, which holds an engine's chunk; a longer
// message takes several.
constexpr uint64_t rings_bytes = uint64_t{16} << 20;
constexpr uint64_t slot_bytes_least = uint64_t{16} << 10, slot_bytes_most = uint64_t{256} << 10;

// How often a link that waits looks whether its peers are alive: a look is a system call.
constexpr uint64_t look_ns = 20'000'000;

struct SlotHead {
  uint64_t tag, message_bytes, piece_bytes;
};

// In the sender's region. A new file is all zeros, which is how a channel begins.
struct Channel {
  alignas(128) std::atomic<uint64_t> posted;  // slots, by the sender
  SlotHead slots[slot_count];
  alignas(128) std::atomic<uint64_t> freed;   // slots, by the receiver
};

struct Outgoing {
  uint64_t tag = 0;
  const std::byte *data = nullptr;
  uint64_t bytes = 0;
};

struct Expected {
  std::byte *landing = nullptr;
  uint64_t bytes = 0;
};

// One lane to and from one peer.
struct Lane {
  Channel *out = nullptr, *in = nullptr;
  std::byte *out_data = nullptr;
  const std::byte *in_data = nullptr;
  uint64_t slot_bytes = 0;

  std::vector<Outgoing> sends;     // ring of window_max
  uint64_t sends_posted = 0, sends_done = 0, send_offset = 0;  // offset: of the oldest that is not done
  std::vector<Expected> receives;  // ring of window_max
  uint64_t receives_posted = 0, receives_retired = 0;
  uint64_t landed = 0;             // bytes of the oldest message, if it takes several slots
  bool showing = false, in_slot = false;
  Arrival arrival{};

  bool sends_wait() const { return sends_posted != sends_done; }
  bool receives_wait() const { return receives_posted != receives_retired && !showing; }
};

struct Peer {
  int rank = -1;
  Lane lanes[lane_count];
};

struct ShmLink : Link {
  Domain *domain = nullptr;
  int rank = 0, window = 0;
  uint64_t slot_bytes = 0;
  SharedRegion region;
  std::vector<int> peer_of_rank;  // -1: none
  std::vector<Peer> peers;
  std::atomic<uint64_t> event_seen{0};  // read by those who sleep
  uint64_t looked_ns = 0;

  Lane &lane(int of_rank, int number) { return peers[peer_of_rank[of_rank]].lanes[number]; }
};

ShmLink &mine(Link *link) { return *static_cast<ShmLink *>(link); }

bool usable(std::string *) { return true; }

uint64_t slot_bytes_for(int local_count) {
  const uint64_t rings = static_cast<uint64_t>(std::max(local_count - 1, 1)) * collective_lanes;
  return std::clamp(align_down(rings_bytes / rings / slot_count, 4096), slot_bytes_least, slot_bytes_most);
}

mxs_status open(Link **link_out, const LinkOptions &options, std::vector<std::byte> *address) {
  if (!options.domain)
    return set_error(MXS_INVALID_ARGUMENT, "shm joins ranks of one node, but rank %d shares memory with no other",
                     options.rank);
  auto link = std::make_unique<ShmLink>();
  link->domain = options.domain;
  link->rank = options.rank;
  link->window = options.window_max;
  link->slot_bytes = slot_bytes_for(options.domain->local_count());
  link->peer_of_rank.assign(options.rank_count, -1);
  address->clear();
  *link_out = link.release();
  return MXS_OK;
}

// Collective over the local ranks, because memory is shared among all of them at once.
mxs_status connect(Link *base, const std::vector<std::vector<std::byte>> &, const std::vector<int> &peers) {
  ShmLink &link = mine(base);
  Domain &domain = *link.domain;
  for (const int peer : peers)
    if (domain.local_rank_of(peer) < 0)
      return set_error(MXS_INVALID_ARGUMENT, "shm joins ranks of one node, but rank %d is not on that of rank %d", peer,
                       link.rank);
  const uint64_t local_count = static_cast<uint64_t>(domain.local_count());
  const uint64_t heads_bytes = align_up(sizeof(Channel) * lane_count * local_count, 4096);
  // The agreements' lane comes last in a peer's data, and is small.
  const uint64_t ring_bytes = link.slot_bytes * slot_count;
  const uint64_t data_bytes = ring_bytes * collective_lanes + agreement_message_bytes_max * slot_count;
  mxs_status status = domain.share(heads_bytes + data_bytes * local_count, "matrixshard-shm", &link.region);
  if (status != MXS_OK) return status;
  const int self = domain.local_rank();
  const auto channel = [&](int source, int target, int lane) {
    return reinterpret_cast<Channel *>(link.region.at(source)) + target * lane_count + lane;
  };
  const auto data = [&](int source, int target, int lane) {
    return link.region.at(source) + heads_bytes + data_bytes * target + ring_bytes * lane;
  };
  std::vector<Extent> extents = {{0, heads_bytes}};
  for (const int rank : peers) {
    const int local = domain.local_rank_of(rank);
    Peer peer;
    peer.rank = rank;
    for (int number = 0; number < lane_count; ++number) {
      Lane &lane = peer.lanes[number];
      lane.out = channel(self, local, number);
      lane.in = channel(local, self, number);
      lane.out_data = data(self, local, number);
      lane.in_data = data(local, self, number);
      lane.slot_bytes = number == agreement_lane ? agreement_message_bytes_max : link.slot_bytes;
      lane.sends.resize(number == agreement_lane ? agreement_window : link.window);
      lane.receives.resize(lane.sends.size());
    }
    link.peer_of_rank[rank] = static_cast<int>(link.peers.size());
    link.peers.push_back(std::move(peer));
    extents.push_back({heads_bytes + data_bytes * local, data_bytes});
  }
  return touch(link.region.at(self), extents, nullptr);
}

// What was sent already stays readable for the peer, which has a map of its own.
void close(Link *base, uint64_t) {
  if (base) delete &mine(base);
}

// Copies waiting sends into free slots. Returns whether any was.
bool push(Lane &lane) {
  Channel &channel = *lane.out;
  uint64_t posted = channel.posted.load(std::memory_order_relaxed);
  const uint64_t first = posted;
  while (lane.sends_done < lane.sends_posted &&
         posted - channel.freed.load(std::memory_order_acquire) < slot_count) {
    const Outgoing &send = lane.sends[lane.sends_done % lane.sends.size()];
    const uint64_t slot = posted % slot_count;
    const uint64_t bytes = std::min(lane.slot_bytes, send.bytes - lane.send_offset);
    if (bytes) std::memcpy(lane.out_data + slot * lane.slot_bytes, send.data + lane.send_offset, bytes);
    channel.slots[slot] = {send.tag, send.bytes, bytes};
    channel.posted.store(++posted, std::memory_order_release);
    lane.send_offset += bytes;
    if (lane.send_offset < send.bytes) continue;
    lane.send_offset = 0;
    lane.sends_done++;
  }
  return posted != first;
}

void free_slot(Channel &channel) {
  channel.freed.store(channel.freed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// Shows the oldest message if it is here, or takes more of its pieces. *freed: a slot was freed.
mxs_status pull(const ShmLink &link, int peer_rank, Lane &lane, bool *freed) {
  Channel &channel = *lane.in;
  while (!lane.showing && lane.receives_posted != lane.receives_retired) {
    const uint64_t number = channel.freed.load(std::memory_order_relaxed);
    if (channel.posted.load(std::memory_order_acquire) == number) return MXS_OK;
    const uint64_t slot = number % slot_count;
    const SlotHead head = channel.slots[slot];
    const std::byte *piece = lane.in_data + slot * lane.slot_bytes;
    const Expected &expected = lane.receives[lane.receives_retired % lane.receives.size()];
    if (head.message_bytes <= lane.slot_bytes) {
      lane.arrival = {piece, head.message_bytes, head.tag};
      lane.showing = lane.in_slot = true;
      return MXS_OK;
    }
    if (head.message_bytes > expected.bytes || !expected.landing || head.piece_bytes > lane.slot_bytes ||
        head.piece_bytes > head.message_bytes - lane.landed)
      return set_error(MXS_MISMATCH, "rank %d sent %llu bytes where rank %d expects %llu: all ranks must start the "
                       "same collectives in the same order",
                       peer_rank, static_cast<unsigned long long>(head.message_bytes), link.rank,
                       static_cast<unsigned long long>(expected.bytes));
    std::memcpy(expected.landing + lane.landed, piece, head.piece_bytes);
    lane.landed += head.piece_bytes;
    free_slot(channel);
    *freed = true;
    if (lane.landed < head.message_bytes) continue;
    lane.arrival = {expected.landing, head.message_bytes, head.tag};
    lane.landed = 0;
    lane.showing = true;
    lane.in_slot = false;
  }
  return MXS_OK;
}

mxs_status send(Link *base, int target_rank, int number, uint64_t tag, const void *data, size_t bytes) {
  ShmLink &link = mine(base);
  Lane &lane = link.lane(target_rank, number);
  if (lane.sends_posted - lane.sends_done >= lane.sends.size())
    return set_error(MXS_INTERNAL, "shm: rank %d has %zu messages in flight to rank %d, more than the window",
                     link.rank, lane.sends.size(), target_rank);
  lane.sends[lane.sends_posted++ % lane.sends.size()] = {tag, static_cast<const std::byte *>(data), bytes};
  if (push(lane)) link.domain->post();
  return MXS_OK;
}

mxs_status receive(Link *base, int source_rank, int number, void *landing, size_t bytes) {
  ShmLink &link = mine(base);
  Lane &lane = link.lane(source_rank, number);
  if (lane.receives_posted - lane.receives_retired >= lane.receives.size())
    return set_error(MXS_INTERNAL, "shm: rank %d expects %zu messages of rank %d, more than the window", link.rank,
                     lane.receives.size(), source_rank);
  lane.receives[lane.receives_posted++ % lane.receives.size()] = {static_cast<std::byte *>(landing), bytes};
  return MXS_OK;
}

// A peer whose messages are all here may go; one that is waited for may not.
mxs_status look_for_the_lost(ShmLink &link) {
  const uint64_t now = now_ns();
  if (now - link.looked_ns < look_ns) return MXS_OK;
  link.looked_ns = now;
  for (Peer &peer : link.peers)
    for (Lane &lane : peer.lanes) {
      if (!lane.receives_wait() && !lane.sends_wait()) continue;
      mxs_status status = link.domain->check_peers(peer.rank);
      if (status == MXS_OK) break;
      // What it sent just before it left counts still.
      bool freed = false;
      status = pull(link, peer.rank, lane, &freed);
      if (status == MXS_OK && !lane.showing) status = link.domain->check_peers(peer.rank);
      if (status != MXS_OK) return status;
    }
  return MXS_OK;
}

mxs_status progress(Link *base) {
  ShmLink &link = mine(base);
  link.event_seen.store(link.domain->event(), std::memory_order_relaxed);
  bool changed = false;
  for (Peer &peer : link.peers)
    for (Lane &lane : peer.lanes) {
      if (lane.sends_wait() && push(lane)) changed = true;
      if (!lane.receives_wait()) continue;
      const mxs_status status = pull(link, peer.rank, lane, &changed);
      if (status != MXS_OK) return status;
    }
  if (changed) link.domain->post();
  return look_for_the_lost(link);
}

uint64_t sent(Link *base, int target_rank, int number) { return mine(base).lane(target_rank, number).sends_done; }

// Looks by itself too, so that a message that came since the latest progress shows at once; an error waits for that.
const Arrival *arrived(Link *base, int source_rank, int number) {
  ShmLink &link = mine(base);
  Lane &lane = link.lane(source_rank, number);
  bool freed = false;
  if (!lane.showing && pull(link, source_rank, lane, &freed) != MXS_OK) return nullptr;
  if (freed) link.domain->post();
  return lane.showing ? &lane.arrival : nullptr;
}

void retire(Link *base, int source_rank, int number) {
  ShmLink &link = mine(base);
  Lane &lane = link.lane(source_rank, number);
  assert(lane.showing);
  lane.showing = false;
  lane.receives_retired++;
  if (!lane.in_slot) return;
  lane.in_slot = false;
  free_slot(*lane.in);
  link.domain->post();
}

void sleep(Link *base, uint64_t at_most_ns) {
  ShmLink &link = mine(base);
  link.domain->pause(link.event_seen.load(std::memory_order_relaxed), at_most_ns);
}

}  // namespace

const Transport shm_transport = {"shm",   usable,   open, connect, close,  send,
                                 receive, progress, sent, arrived, retire, sleep};

}  // namespace mxs
