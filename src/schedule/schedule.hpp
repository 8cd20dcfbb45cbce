// SPDX-License-Identifier: Apache-2.0
// Schedule: one rank's list of moves of a collective. Data, built once, run at every start.
//
//   layout --cut--> pieces --tree--> edges, each with a key --> one rank's moves, sorted by key, with dependencies
//
// A piece is a byte range with one owner. Each piece has a tree rooted at its owner:
//
//   chain    owner -> owner + 1 -> owner + 2 -> ...           the ring, owners interleaved
//   spread   owner -> helper -> all others                    helpers by a share table
//   flat     owner -> all others                              the share table in which every owner helps itself
//   circulant           every owner's blocks in the same n - 1 + log2 p rounds, one peer each way per round
//   two-level-X         one copy per node along a star, chain or circulant over nodes, local hops inside
//
//   gather   edges go down the tree: each byte arrives once at every rank but its owner
//   reduce   the transpose: the same edges reversed
//             leaf   sends its gradient as it is (gradient dtype)
//             relay  sum = (0 + own) + first child, + next child in key order; sends it in fp32
//             owner  forms the sum in the same way, completely, then target += sum
//   ordered  reduce in rank order, ((acc + g0) + g1) + ...
//             flat, spread  the helper takes the owner's accumulator and the raw gradients of all ranks, adds, and
//                           sends fp32 to the owner
//             chain         owner -> rank 0 -> rank 1 -> ... -> last rank -> owner: each adds its own, passes fp32 on
//   reshard  direct: one edge per piece, between two packed layouts
//
// Small pieces of one channel (a pair of ranks, one direction) that are due at the same time travel as one message, up
// to chunk_bytes: a message is a list of ranges. With 64 owners on 8 nodes, a message per piece would cost a network's
// overhead 64 times per round instead of once. Large ones travel alone, since packing costs two copies: small is what
// is copied while a message is handled (100 KB on an unmeasured network), and at least 4 KiB.
//
//   channel 2 -> 3, time 7     | piece 4 | piece 9 | piece 23 |     in key order, the same at both ends
//   rank 2 sends from          target    target    source           a range each, or one for neighbours in memory
//
// Every edge has a key, the same at both ends, and a message has that of its first edge; a rank's list is sorted by
// key, and so is each channel. A move waits for all moves of its rank that bring any of the bytes that it reads, and
// for those that still use the slots that it writes. Keys grow along all of these, so any window >= 1 is free of
// deadlock: the smallest unfinished message can always run. (Times grow strictly along a piece's path, so nothing
// waits for a message that it travels with.) Slots are given out here, in key order, never while running (a ring
// reduce of 4 ranks with slots taken as needed deadlocks).
//
// Keys look like time: round of the piece + hops so far. Among equals the one nearest to the owner goes first: in a
// gather that is the one with the farthest to go, in a reduce the one that is nearly there, which frees its slot.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "matrixshard/status.h"
#include "topology/topology.hpp"

namespace mxs {

enum class Algorithm {
  flat,
  chain,
  spread,
  circulant,
  two_level_flat,
  two_level_chain,
  two_level_circulant,
  direct,  // reshard
};

const char *algorithm_name(Algorithm algorithm);

constexpr Algorithm all_algorithms[] = {
    Algorithm::flat,           Algorithm::chain,           Algorithm::spread,
    Algorithm::circulant,      Algorithm::two_level_flat,  Algorithm::two_level_chain,
    Algorithm::two_level_circulant, Algorithm::direct};

enum class Direction { gather, reduce, ordered_reduce, reshard };

constexpr Direction all_directions[] = {Direction::gather, Direction::reduce, Direction::ordered_reduce,
                                        Direction::reshard};

// Is there a schedule of this algorithm in this direction?
bool serves(Algorithm algorithm, Direction direction);

struct ScheduleOptions {
  Direction direction = Direction::gather;
  Algorithm algorithm = Algorithm::flat;  // one that serves the direction
  const Layout *layout = nullptr;
  const Layout *target_layout = nullptr;  // reshard
  const Topology *topology = nullptr;     // nullptr: every rank on a node of its own
  uint32_t element_bytes = 1;             // reduce: 2 or 4. Sums have 4 bytes per element
  bool accumulate = false;                // reduce: onto what the target holds
  uint64_t chunk_bytes = 0;               // pieces are no larger, nor messages of several; a multiple of 64
  int spare_slots = 2;                    // messages' worth beyond what key order needs: sends overlap with sums
};
constexpr uint64_t chunk_bytes_max = uint64_t{1} << 30;

struct Piece {
  uint64_t offset = 0, bytes = 0;  // of the whole buffer (reshard: of both, which have no gaps)
  uint64_t packed = 0;             // within the owner's packed segments
  uint64_t target_packed = 0;      // reshard: within the target's
  int owner = 0, helper = 0;       // reshard: source and target. Owner helps itself: helper == owner. Two-level: a lane
  uint32_t round = 0;              // counts chunks of pieces with the same helper (gather, reshard: and owner).
                                   // Circulant, two-level: blocks, each in a piece per segment
};

// How many bytes of owner o's segments go through helper h: shares[o * rank_count + h]; rows sum to the owner's bytes.
// Balances the busiest port by water-filling: a rank's load is what it owns, times `sum_weight`, and what it helps.
std::vector<uint64_t> spread_shares(const Layout &layout, uint32_t sum_weight);

// Their sums in O(rank_count): what each rank hands on of its own bytes, about what of others'. False: nobody helps.
bool spread_totals(const Layout &layout, uint32_t sum_weight, std::vector<uint64_t> *own,
                   std::vector<uint64_t> *helped);

// MXS_INVALID_ARGUMENT, naming the segment: its border cuts an element.
mxs_status check_elements(const Layout &layout, uint32_t element_bytes);

// Equal on all ranks. MXS_INVALID_ARGUMENT: chunk size out of range, elements that a segment's border cuts, or so many
// pieces that the list would not fit (the sentence says what to change).
mxs_status cut_pieces(const ScheduleOptions &options, std::vector<Piece> *pieces);

struct Key {
  uint64_t time = 0;
  uint64_t place = 0;  // nearness; distance between the ranks, so that senders begin with different receivers; piece
  auto operator<=>(const Key &) const = default;
};

// A message holds no more pieces: 1,024 small copies take about as long as a message's latency on a network.
constexpr uint32_t message_pieces_max = 1024;

// Larger pieces travel alone. topology nullptr: every rank on a node of its own, speeds not measured.
uint64_t small_piece_bytes(const Topology *topology, bool same_node);

enum class MoveKind : uint8_t {
  send,     // ranges -> peer
  receive,  // peer -> ranges: copied or added
  local,    // source -> target, one range, at the owner: copied (gather from a packed source, reshard) or added
};

enum class Place : uint8_t { source, target, slot };

// What a receive or local move of a reduce does with a range, in this order.
constexpr uint8_t move_starts = 1;       // the place holds nothing yet: begin from zero (`copies`: from the message)
constexpr uint8_t move_own_before = 2;   // add this rank's own gradient
constexpr uint8_t move_copies = 4;       // the message replaces what is there, instead of being added
constexpr uint8_t move_own_after = 8;    // add this rank's own gradient
constexpr uint8_t move_into_target = 16; // at last: target += slot

// Where one part of a message lies at this rank. Parts that are neighbours in memory are one range, at either end by
// itself: both ends of a message agree on its bytes, not on its ranges.
struct Range {
  uint64_t offset = 0;          // of the whole buffer
  uint64_t packed = 0;          // within this rank's packed segments (reshard: of the source), if it is used
  uint64_t target_packed = 0;   // reshard: within this rank's packed segments of the target layout
  uint32_t bytes = 0;           // in the layout's elements
  uint32_t piece = 0;           // the first one
  int32_t slot = -1;
  Place place = Place::source;
  uint8_t flags = 0;
};
static_assert(sizeof(Range) == 40);

// A message, seen from one end; or a local move.
struct Move {
  MoveKind kind = MoveKind::send;
  bool sums = false;            // the message holds fp32 sums, not the layout's elements
  uint16_t range_count = 0;
  int32_t peer = -1;
  uint32_t bytes = 0;           // of all ranges, in the layout's elements
  uint32_t first_range = 0;
  uint32_t first_dependency = 0, dependency_count = 0;
};
static_assert(sizeof(Move) == 24);

struct Schedule {
  ScheduleOptions options;              // its layouts are not to be followed: they belong to whoever built it
  int rank = 0, rank_count = 1;
  std::vector<Move> moves;              // in key order
  std::vector<Range> ranges;            // in the order of moves; of one move in the order in which they travel
  std::vector<uint32_t> dependencies;   // indices of moves, each smaller than that of the move it belongs to
  int slot_count = 0;
  uint64_t slot_bytes = 0;              // of fp32 sums
  uint64_t bytes_out = 0, bytes_in = 0; // of messages
  uint64_t message_count = 0;

  uint64_t message_bytes(uint64_t bytes, bool sums) const { return sums ? bytes / options.element_bytes * 4 : bytes; }
  uint64_t message_bytes(const Move &move) const { return message_bytes(move.bytes, move.sums); }
  std::span<const Range> ranges_of(const Move &move) const {
    return {ranges.data() + move.first_range, move.range_count};
  }
  std::span<const uint32_t> dependencies_of(const Move &move) const {
    return {dependencies.data() + move.first_dependency, move.dependency_count};
  }
  // Reduce: of terms that this move adds to a sum, the message, this rank's gradient or the target, in the layout's
  // elements: what counts against the speed of addition.
  uint64_t added_bytes(const Move &move) const;
};

// One rank's moves. `pieces` as cut from the same options. For many ranks of one set, see trees.hpp.
Schedule make_schedule(const ScheduleOptions &options, const std::vector<Piece> &pieces, int rank);

// The least bytes that any algorithm must bring into a rank.
uint64_t bytes_in_least(const ScheduleOptions &options, int rank);

// Proves a whole set of schedules, one per rank: both ends of each message agree; every byte of the layout arrives
// once at every rank, or each rank's gradient of it is added once to the owner's sum (ordered: in rank order); no move
// reads what is not there or touches gaps; whatever two moves of a rank do to the same bytes is ordered by
// dependencies; and with `window` messages per channel it runs to its end. "" if so, else the first complaint.
std::string check_schedules(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules,
                            int window);

}  // namespace mxs
