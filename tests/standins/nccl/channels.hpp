// SPDX-License-Identifier: Apache-2.0
// How bytes go from rank to rank: a memory that all ranks of a communicator have mapped, with a ring for each pair and
// direction, and a bell for each rank.
//
//   | what ranks tell each other | 0 -> 0 | 0 -> 1 | ... | n-1 -> n-1 |
//
// A message is a head (how many bytes, of which call) and its bytes, in pieces as the ring has room. Whoever puts
// something into a ring, or takes something out, rings the other's bell. Ranks may be processes or threads; nothing
// here knows who is alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace standin {

struct Transfer {
  int peer = 0;
  std::byte *data = nullptr;
  uint64_t bytes = 0;
  uint64_t call = 0;  // which call it is a part of; equal at both ends
};

// Of one rank, where all see it. Zero is right to begin with.
struct alignas(64) RankBoard {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> has_left;  // finalized or aborted
  // The latest two splits: a rank enters split s + 2 only after all have entered s + 1, so all have read s by then.
  std::atomic<uint32_t> split_round[2];
  int32_t split_color[2], split_key[2];
};

class Channels {
 public:
  static uint64_t bytes(int rank_count);
  void open(void *memory, int rank, int rank_count);
  RankBoard &board(int rank) const;

  // All of them, those of one peer and direction in their order. False: `stopped` said true before it was over. What
  // does not fit what the peer has sent waits until then, and `complain` is told once.
  bool carry(const std::vector<Transfer> &sends, const std::vector<Transfer> &receives,
             const std::function<bool()> &stopped,
             const std::function<void(const Transfer &wanted, uint64_t bytes, uint64_t call)> &complain);
  void ring(int rank) const;
  // Until somebody rings after `seen` was read, 20 ms at most.
  void sleep(uint32_t seen) const;
  uint32_t listen() const { return board(rank_).bell.load(); }

 private:
  struct Ring;
  struct Lane;
  Ring *ring_of(int source, int target) const;
  bool advance_send(Lane &lane) const;
  bool advance_receive(Lane &lane,
                       const std::function<void(const Transfer &, uint64_t, uint64_t)> &complain) const;
  void make_lanes(const std::vector<Transfer> &transfers, bool is_send, std::vector<Lane> *lanes) const;

  std::byte *memory_ = nullptr;
  int rank_ = 0, rank_count_ = 0;
};

}  // namespace standin
