// SPDX-License-Identifier: Apache-2.0
// shm: messages between processes of a node, through memory that both map.
//
// Each rank has one region with a ring per target, which only it writes:
//
//   sender    copies a message into free slots, in pieces of a slot   posted + 1 each   the data is then its own again
//   receiver  one slot: reads it in place, frees it at retire         freed + 1
//             several: copies them to the landing as they come, and frees each at once
//
// So a large message streams through its ring while both sides work, and no size is too large for one. Sends that
// find no free slot wait in this process and go on in progress.
#include <algorithm>
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

constexpr int slot_count = 8;
// All rings of a rank together. At up to 9 local ranks a slot is 256 KiB, which holds an engine's chunk.
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

// One peer, both directions.
struct Peer {
  int rank = -1;
  Channel *out = nullptr, *in = nullptr;
  std::byte *out_data = nullptr;
  const std::byte *in_data = nullptr;

  std::vector<Outgoing> sends;     // ring of window_max
  uint64_t sends_posted = 0, sends_done = 0, send_offset = 0;  // offset: of the oldest that is not done
  std::vector<Expected> receives;  // ring of window_max
  uint64_t receives_posted = 0, receives_retired = 0;
  uint64_t landed = 0;             // bytes of the oldest message, if it takes several slots
  bool showing = false, in_slot = false;
  Arrival arrival{};
};

struct ShmLink : Link {
  Domain *domain = nullptr;
  int rank = 0, window = 0;
  uint64_t slot_bytes = 0;
  SharedRegion region;
  std::vector<int> peer_of_rank;  // -1: none
  std::vector<Peer> peers;
  uint64_t event_seen = 0, looked_ns = 0;

  Peer &peer(int of_rank) { return peers[peer_of_rank[of_rank]]; }
};

ShmLink &mine(Link *link) { return *static_cast<ShmLink *>(link); }

bool usable(std::string *) { return true; }

uint64_t slot_bytes_for(int local_count) {
  const uint64_t rings = static_cast<uint64_t>(std::max(local_count - 1, 1));
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
  const uint64_t heads_bytes = align_up(sizeof(Channel) * local_count, 4096);
  const uint64_t ring_bytes = link.slot_bytes * slot_count;
  mxs_status status = domain.share(heads_bytes + ring_bytes * local_count, "matrixshard-shm", &link.region);
  if (status != MXS_OK) return status;
  const int self = domain.local_rank();
  const auto channel = [&](int source, int target) {
    return reinterpret_cast<Channel *>(link.region.at(source)) + target;
  };
  const auto data = [&](int source, int target) { return link.region.at(source) + heads_bytes + ring_bytes * target; };
  std::vector<Extent> extents = {{0, heads_bytes}};
  for (const int rank : peers) {
    const int local = domain.local_rank_of(rank);
    Peer peer;
    peer.rank = rank;
    peer.out = channel(self, local);
    peer.in = channel(local, self);
    peer.out_data = data(self, local);
    peer.in_data = data(local, self);
    peer.sends.resize(link.window);
    peer.receives.resize(link.window);
    link.peer_of_rank[rank] = static_cast<int>(link.peers.size());
    link.peers.push_back(std::move(peer));
    extents.push_back({heads_bytes + ring_bytes * local, ring_bytes});
  }
  return touch(link.region.at(self), extents, nullptr);
}

// What was sent already stays readable for the peer, which has a map of its own.
void close(Link *base) {
  if (base) delete &mine(base);
}

// Copies waiting sends into free slots. Returns whether any was.
bool push(ShmLink &link, Peer &peer) {
  Channel &channel = *peer.out;
  uint64_t posted = channel.posted.load(std::memory_order_relaxed);
  const uint64_t first = posted;
  while (peer.sends_done < peer.sends_posted &&
         posted - channel.freed.load(std::memory_order_acquire) < slot_count) {
    const Outgoing &send = peer.sends[peer.sends_done % peer.sends.size()];
    const uint64_t slot = posted % slot_count;
    const uint64_t bytes = std::min(link.slot_bytes, send.bytes - peer.send_offset);
    if (bytes) std::memcpy(peer.out_data + slot * link.slot_bytes, send.data + peer.send_offset, bytes);
    channel.slots[slot] = {send.tag, send.bytes, bytes};
    channel.posted.store(++posted, std::memory_order_release);
    peer.send_offset += bytes;
    if (peer.send_offset < send.bytes) continue;
    peer.send_offset = 0;
    peer.sends_done++;
  }
  return posted != first;
}

void free_slot(Channel &channel) {
  channel.freed.store(channel.freed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// Shows the oldest message if it is here, or takes more of its pieces. *freed: a slot was freed.
mxs_status pull(ShmLink &link, Peer &peer, bool *freed) {
  Channel &channel = *peer.in;
  while (!peer.showing && peer.receives_posted != peer.receives_retired) {
    const uint64_t number = channel.freed.load(std::memory_order_relaxed);
    if (channel.posted.load(std::memory_order_acquire) == number) return MXS_OK;
    const uint64_t slot = number % slot_count;
    const SlotHead head = channel.slots[slot];
    const std::byte *piece = peer.in_data + slot * link.slot_bytes;
    const Expected &expected = peer.receives[peer.receives_retired % peer.receives.size()];
    if (head.message_bytes <= link.slot_bytes) {
      peer.arrival = {piece, head.message_bytes, head.tag};
      peer.showing = peer.in_slot = true;
      return MXS_OK;
    }
    if (head.message_bytes > expected.bytes || !expected.landing || head.piece_bytes > link.slot_bytes ||
        head.piece_bytes > head.message_bytes - peer.landed)
      return set_error(MXS_MISMATCH, "rank %d sent %llu bytes where rank %d expects %llu: they call different things",
                       peer.rank, static_cast<unsigned long long>(head.message_bytes), link.rank,
                       static_cast<unsigned long long>(expected.bytes));
    std::memcpy(expected.landing + peer.landed, piece, head.piece_bytes);
    peer.landed += head.piece_bytes;
    free_slot(channel);
    *freed = true;
    if (peer.landed < head.message_bytes) continue;
    peer.arrival = {expected.landing, head.message_bytes, head.tag};
    peer.landed = 0;
    peer.showing = true;
    peer.in_slot = false;
  }
  return MXS_OK;
}

mxs_status send(Link *base, int target_rank, uint64_t tag, const void *data, size_t bytes) {
  ShmLink &link = mine(base);
  Peer &peer = link.peer(target_rank);
  if (peer.sends_posted - peer.sends_done >= peer.sends.size())
    return set_error(MXS_INTERNAL, "shm: rank %d has %zu messages in flight to rank %d, more than the window",
                     link.rank, peer.sends.size(), target_rank);
  peer.sends[peer.sends_posted++ % peer.sends.size()] = {tag, static_cast<const std::byte *>(data), bytes};
  if (push(link, peer)) link.domain->post();
  return MXS_OK;
}

mxs_status receive(Link *base, int source_rank, void *landing, size_t bytes) {
  ShmLink &link = mine(base);
  Peer &peer = link.peer(source_rank);
  if (peer.receives_posted - peer.receives_retired >= peer.receives.size())
    return set_error(MXS_INTERNAL, "shm: rank %d expects %zu messages of rank %d, more than the window", link.rank,
                     peer.receives.size(), source_rank);
  peer.receives[peer.receives_posted++ % peer.receives.size()] = {static_cast<std::byte *>(landing), bytes};
  return MXS_OK;
}

// A peer whose messages are all here may go; one that is waited for may not.
mxs_status look_for_the_lost(ShmLink &link) {
  const uint64_t now = now_ns();
  if (now - link.looked_ns < look_ns) return MXS_OK;
  link.looked_ns = now;
  for (Peer &peer : link.peers) {
    const bool receives_wait = peer.receives_posted != peer.receives_retired && !peer.showing;
    if (!receives_wait && peer.sends_posted == peer.sends_done) continue;
    mxs_status status = link.domain->check_peers(peer.rank);
    if (status == MXS_OK) continue;
    // What it sent just before it left counts still.
    bool freed = false;
    status = pull(link, peer, &freed);
    return status != MXS_OK || peer.showing ? status : link.domain->check_peers(peer.rank);
  }
  return MXS_OK;
}

mxs_status progress(Link *base) {
  ShmLink &link = mine(base);
  link.event_seen = link.domain->event();
  bool changed = false;
  for (Peer &peer : link.peers) {
    if (push(link, peer)) changed = true;
    const mxs_status status = pull(link, peer, &changed);
    if (status != MXS_OK) return status;
  }
  if (changed) link.domain->post();
  return look_for_the_lost(link);
}

uint64_t sent(Link *base, int target_rank) { return mine(base).peer(target_rank).sends_done; }

// Looks by itself too, so that a message that came since the latest progress shows at once; an error waits for that.
const Arrival *arrived(Link *base, int source_rank) {
  ShmLink &link = mine(base);
  Peer &peer = link.peer(source_rank);
  bool freed = false;
  if (!peer.showing && pull(link, peer, &freed) != MXS_OK) return nullptr;
  if (freed) link.domain->post();
  return peer.showing ? &peer.arrival : nullptr;
}

void retire(Link *base, int source_rank) {
  ShmLink &link = mine(base);
  Peer &peer = link.peer(source_rank);
  assert(peer.showing);
  peer.showing = false;
  peer.receives_retired++;
  if (!peer.in_slot) return;
  peer.in_slot = false;
  free_slot(*peer.in);
  link.domain->post();
}

void sleep(Link *base, uint64_t at_most_ns) {
  ShmLink &link = mine(base);
  link.domain->pause(link.event_seen, at_most_ns);
}

}  // namespace

const Transport shm_transport = {"shm",   usable,   open, connect, close,  send,
                                 receive, progress, sent, arrived, retire, sleep};

}  // namespace mxs
