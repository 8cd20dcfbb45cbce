// SPDX-License-Identifier: Apache-2.0
// Schedule: one rank's list of moves of a collective. Data, built once, run at every start.
//
//   layout --cut--> pieces --tree--> edges, each with a key --> one rank's moves, sorted by key, with dependencies
//
// A piece is a byte range with one owner that travels as one message. Each piece has a tree rooted at its owner:
//
//   chain    owner -> owner + 1 -> owner + 2 -> ...           the ring, owners interleaved
//   spread   owner -> helper -> all others                    helpers by a share table
//   flat     owner -> all others                              the share table in which every owner helps itself
//
//   gather   edges go down the tree: each byte arrives once at every rank but its owner
//   reduce   the transpose: the same edges reversed
//             leaf   sends its gradient as it is (gradient dtype)
//             relay  sum = (0 + own) + first child, + next child in key order; sends it in fp32
//             owner  forms the sum in the same way, completely, then target += sum
//   ordered  reduce in rank order over spread's pieces: the helper takes the owner's accumulator and the raw gradients
//            of all ranks, adds ((acc + g0) + g1) + ..., and sends fp32 to the owner
//   reshard  direct: one edge per piece, between two packed layouts
//
// Every edge has a key, the same at both ends; a rank's list is sorted by key, and so is each channel (a pair of
// ranks, one direction). A move waits for all moves of its rank that bring any of the bytes that it reads, and for
// those that still use the slot that it writes. Keys grow along all of these, so any window >= 1 is free of deadlock:
// the smallest unfinished edge can always run. Slots are given out here, in key order, never while running (a ring
// reduce of 4 ranks with slots taken as needed deadlocks).
//
// Keys look like time: round of the piece + hops so far. Among equals the one nearest to the owner goes first: in a
// gather that is the one with the farthest to go, in a reduce the one that is nearly there, which frees its slot.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "matrixshard/status.h"
#include "topology/topology.hpp"

namespace mxs {

enum class Algorithm { flat, chain, spread, direct };

const char *algorithm_name(Algorithm algorithm);

enum class Direction { gather, reduce, ordered_reduce, reshard };

struct ScheduleOptions {
  Direction direction = Direction::gather;
  Algorithm algorithm = Algorithm::flat;  // ordered_reduce: flat or spread. reshard: direct
  const Layout *layout = nullptr;
  const Layout *target_layout = nullptr;  // reshard
  const Topology *topology = nullptr;     // nullptr: every rank on a node of its own
  uint32_t element_bytes = 1;             // reduce: 2 or 4. Sums have 4 bytes per element
  bool accumulate = false;                // reduce: onto what the target holds
  uint64_t chunk_bytes = 0;               // pieces are no larger; a multiple of 64, at most chunk_bytes_max
  int spare_slots = 2;                    // beyond those that key order needs: lets sends overlap with the next sums
};
constexpr uint64_t chunk_bytes_max = uint64_t{1} << 30;

struct Piece {
  uint64_t offset = 0, bytes = 0;  // of the whole buffer (reshard: of both, which have no gaps)
  uint64_t packed = 0;             // within the owner's packed segments
  uint64_t target_packed = 0;      // reshard: within the target's
  int owner = 0, helper = 0;       // reshard: source and target. Owner helps itself: helper == owner
  uint32_t round = 0;              // counts the pieces with the same owner and helper
};

// How many bytes of owner o's segments go through helper h: shares[o * rank_count + h]; rows sum to the owner's bytes.
// Balances the busiest port by water-filling: a rank's load is what it owns, times `sum_weight`, and what it helps.
std::vector<uint64_t> spread_shares(const Layout &layout, uint32_t sum_weight);

// MXS_INVALID_ARGUMENT, naming the segment: its border cuts an element.
mxs_status check_elements(const Layout &layout, uint32_t element_bytes);

// Equal on all ranks. MXS_INVALID_ARGUMENT: chunk size out of range, elements that a segment's border cuts, or so many
// pieces that the list would not fit (the sentence says what to change).
mxs_status cut_pieces(const ScheduleOptions &options, std::vector<Piece> *pieces);

struct Key {
  uint64_t major = 0;  // time, then nearness
  uint64_t minor = 0;  // distance between the ranks, so that senders begin with different receivers; then the piece
  auto operator<=>(const Key &) const = default;
};

enum class MoveKind : uint8_t {
  send,     // place -> peer
  receive,  // peer -> place: copied or added
  local,    // source -> target, at the owner: copied (gather from a packed source, reshard) or added (reduce)
};

enum class Place : uint8_t { source, target, slot };

// What a receive or local move of a reduce does, in this order.
constexpr uint8_t move_starts = 1;       // the place holds nothing yet: begin from zero (`copies`: from the message)
constexpr uint8_t move_own_before = 2;   // add this rank's own gradient
constexpr uint8_t move_copies = 4;       // the message replaces what is there, instead of being added
constexpr uint8_t move_own_after = 8;    // add this rank's own gradient
constexpr uint8_t move_into_target = 16; // at last: target += slot

struct Move {
  MoveKind kind = MoveKind::send;
  Place place = Place::source;
  uint8_t flags = 0;
  bool sums = false;            // the message holds fp32 sums, not the layout's elements
  uint16_t dependency_count = 0;
  int32_t peer = -1;
  uint32_t bytes = 0;           // of the range, in the layout's elements
  int32_t slot = -1;
  uint32_t first_dependency = 0;
  uint32_t piece = 0;
  uint64_t offset = 0;          // of the whole buffer
  uint64_t packed = 0;          // within this rank's packed segments (reshard: of the source), if it owns the range
  uint64_t target_packed = 0;   // reshard: within this rank's packed segments of the target layout
};

struct Schedule {
  ScheduleOptions options;              // its layouts are not to be followed: they belong to whoever built it
  int rank = 0, rank_count = 1;
  std::vector<Move> moves;              // in key order
  std::vector<uint32_t> dependencies;   // indices of moves, each smaller than that of the move it belongs to
  int slot_count = 0;
  uint64_t slot_bytes = 0;              // of fp32 sums
  uint64_t bytes_out = 0, bytes_in = 0; // of messages
  uint64_t message_count = 0;

  uint64_t message_bytes(const Move &move) const {
    return move.sums ? move.bytes / options.element_bytes * 4 : move.bytes;
  }
};

// One rank's moves. `pieces` as cut from the same options.
Schedule make_schedule(const ScheduleOptions &options, const std::vector<Piece> &pieces, int rank);

// The least bytes that any algorithm must bring into a rank.
uint64_t bytes_in_least(const ScheduleOptions &options, int rank);

// Proves a whole set of schedules, one per rank: both ends of each channel agree; every byte of the layout arrives
// once at every rank, or each rank's gradient of it is added once to the owner's sum (ordered: in rank order); no move
// reads what is not there or touches gaps; whatever two moves of a rank do to the same bytes is ordered by
// dependencies; and with `window` messages per channel it runs to its end. "" if so, else the first complaint.
std::string check_schedules(const Layout &layout, const Layout *target_layout, const std::vector<Schedule> &schedules,
                            int window);

}  // namespace mxs
