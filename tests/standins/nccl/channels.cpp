// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace standin {

namespace {

// Worlds of tests are small; a ring's pages come when they are touched.
uint64_t ring_bytes(int rank_count) { return rank_count <= 16 ? 256 << 10 : 32 << 10; }

struct Head {
  uint64_t bytes, call;
};

}  // namespace

struct Channels::Ring {
  alignas(64) std::atomic<uint64_t> written;  // bytes, ever
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::byte data[1];
};

// The transfers of one peer and direction, and how far they are.
struct Channels::Lane {
  int peer = 0;
  Ring *ring = nullptr;
  uint64_t size = 0;
  std::vector<const Transfer *> queue;
  size_t next = 0;
  uint64_t done_bytes = 0;
  bool head_is_done = false, is_stuck = false;
  bool is_over() const { return next == queue.size(); }
  void step(uint64_t bytes) {
    done_bytes += bytes;
    if (done_bytes < queue[next]->bytes) return;
    ++next;
    done_bytes = 0;
    head_is_done = false;
  }
};

static uint64_t stride(int rank_count) { return 128 + ring_bytes(rank_count); }

uint64_t Channels::bytes(int rank_count) {
  const auto count = static_cast<uint64_t>(rank_count);
  return count * sizeof(RankBoard) + count * count * stride(rank_count);
}

void Channels::open(void *memory, int rank, int rank_count) {
  memory_ = static_cast<std::byte *>(memory);
  rank_ = rank;
  rank_count_ = rank_count;
}

RankBoard &Channels::board(int rank) const { return reinterpret_cast<RankBoard *>(memory_)[rank]; }

Channels::Ring *Channels::ring_of(int source, int target) const {
  const auto count = static_cast<uint64_t>(rank_count_);
  const uint64_t index = static_cast<uint64_t>(source) * count + static_cast<uint64_t>(target);
  return reinterpret_cast<Ring *>(memory_ + count * sizeof(RankBoard) + index * stride(rank_count_));
}

void Channels::ring(int rank) const {
  std::atomic<uint32_t> &bell = board(rank).bell;
  bell.fetch_add(1);
  syscall(SYS_futex, &bell, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void Channels::sleep(uint32_t seen) const {
  const timespec time = {0, 20'000'000};
  syscall(SYS_futex, &board(rank_).bell, FUTEX_WAIT, seen, &time, nullptr, 0);
}

// Bytes `from` the ring's place on, around its end.
static void put(std::byte *ring, uint64_t size, uint64_t place, const void *source, uint64_t bytes) {
  const uint64_t start = place % size, first = std::min(bytes, size - start);
  std::memcpy(ring + start, source, first);
  std::memcpy(ring, static_cast<const std::byte *>(source) + first, bytes - first);
}

static void take(const std::byte *ring, uint64_t size, uint64_t place, void *target, uint64_t bytes) {
  const uint64_t start = place % size, first = std::min(bytes, size - start);
  std::memcpy(target, ring + start, first);
  std::memcpy(static_cast<std::byte *>(target) + first, ring, bytes - first);
}

bool Channels::advance_send(Lane &lane) const {
  Ring &ring = *lane.ring;
  const uint64_t began = ring.written.load();
  uint64_t written = began;
  while (!lane.is_over()) {
    const Transfer &transfer = *lane.queue[lane.next];
    const uint64_t room = lane.size - (written - ring.read.load());
    if (!lane.head_is_done) {
      if (room < sizeof(Head)) break;
      const Head head = {transfer.bytes, transfer.call};
      put(ring.data, lane.size, written, &head, sizeof head);
      written += sizeof head;
      lane.head_is_done = true;
      continue;
    }
    const uint64_t bytes = std::min(room, transfer.bytes - lane.done_bytes);
    if (bytes == 0) break;
    put(ring.data, lane.size, written, transfer.data + lane.done_bytes, bytes);
    written += bytes;
    lane.step(bytes);
  }
  if (written == began) return false;
  ring.written.store(written);
  this->ring(lane.peer);
  return true;
}

bool Channels::advance_receive(Lane &lane,
                               const std::function<void(const Transfer &, uint64_t, uint64_t)> &complain) const {
  Ring &ring = *lane.ring;
  const uint64_t began = ring.read.load();
  uint64_t read = began;
  while (!lane.is_over() && !lane.is_stuck) {
    const Transfer &transfer = *lane.queue[lane.next];
    const uint64_t there = ring.written.load() - read;
    if (!lane.head_is_done) {
      if (there < sizeof(Head)) break;
      Head head{};
      take(ring.data, lane.size, read, &head, sizeof head);
      read += sizeof head;
      lane.head_is_done = true;
      lane.is_stuck = head.bytes != transfer.bytes || head.call != transfer.call;
      if (lane.is_stuck) complain(transfer, head.bytes, head.call);
      continue;
    }
    const uint64_t bytes = std::min(there, transfer.bytes - lane.done_bytes);
    if (bytes == 0) break;
    take(ring.data, lane.size, read, transfer.data + lane.done_bytes, bytes);
    read += bytes;
    lane.step(bytes);
  }
  if (read == began) return false;
  ring.read.store(read);
  this->ring(lane.peer);
  return true;
}

void Channels::make_lanes(const std::vector<Transfer> &transfers, bool is_send, std::vector<Lane> *lanes) const {
  std::vector<int> lane_of_peer(static_cast<size_t>(rank_count_), -1);
  for (const Transfer &transfer : transfers) {
    int &index = lane_of_peer[static_cast<size_t>(transfer.peer)];
    if (index < 0) {
      index = static_cast<int>(lanes->size());
      Lane lane;
      lane.peer = transfer.peer;
      lane.ring = is_send ? ring_of(rank_, transfer.peer) : ring_of(transfer.peer, rank_);
      lane.size = ring_bytes(rank_count_);
      lanes->push_back(std::move(lane));
    }
    (*lanes)[static_cast<size_t>(index)].queue.push_back(&transfer);
  }
}

bool Channels::carry(const std::vector<Transfer> &sends, const std::vector<Transfer> &receives,
                     const std::function<bool()> &stopped,
                     const std::function<void(const Transfer &, uint64_t, uint64_t)> &complain) {
  std::vector<Lane> outgoing, incoming;
  make_lanes(sends, true, &outgoing);
  make_lanes(receives, false, &incoming);
  for (;;) {
    const uint32_t seen = listen();
    bool has_moved = false, is_over = true;
    for (Lane &lane : outgoing) {
      has_moved |= advance_send(lane);
      is_over &= lane.is_over();
    }
    for (Lane &lane : incoming) {
      has_moved |= advance_receive(lane, complain);
      is_over &= lane.is_over();
    }
    if (is_over) return true;
    if (stopped()) return false;
    if (!has_moved) sleep(seen);
  }
}

}  // namespace standin
