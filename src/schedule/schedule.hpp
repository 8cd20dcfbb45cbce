// SPDX-License-Identifier: Apache-2.0
// Schedule: one rank's list of moves of a collective. Data, built once, run at every start.
//
// Set level: an edge carries a byte range of the buffer from one rank to another. Every edge has a key; a rank's list
// is its edges sorted by key; both ends of a channel (a pair of ranks, one direction) see its edges in that order.
//
// One rule of dependency for both directions: an edge waits for all edges into its source that carry any of its
// bytes. Keys grow along dependencies, so with both ends sorted by key any window >= 1 is free of deadlock: the
// smallest unfinished edge can always run.
//
//   gather    an edge into a rank is the arrival of the bytes; each byte arrives once at every rank but its owner
//   reduce    the transpose: every edge reversed, keys re-ranked (relay first); a receive becomes receive-and-add
//             leaf   sends its gradient as it is (gradient dtype)
//             relay  partial = own + first child, + next child in key order; sends fp32
//             owner  forms the sum completely, then accumulator += sum
//   ordered   reduce in rank order, by spread: a helper has a share of each segment, takes the raw gradients of all
//             ranks and the owner's accumulator for it, adds ((acc + g0) + g1) + ..., sends fp32 back to the owner
//   reshard   direct moves between two packed layouts
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "matrixshard/status.h"
#include "topology/topology.hpp"

namespace mxs {

enum class Algorithm { flat, chain, spread, direct };

const char *algorithm_name(Algorithm algorithm);

struct Edge {
  uint64_t key = 0;
  int source = 0, target = 0;
  uint64_t offset = 0, bytes = 0;  // of the layout's buffer. Reduce: of the gradient buffer, a multiple of an element
};

// All ranks' edges of a gather, sorted by key. chunk_bytes cuts segments; it is a multiple of 64.
std::vector<Edge> gather_edges(const Layout &layout, Algorithm algorithm, uint64_t chunk_bytes);

// The transpose of a gather's edges, keys re-ranked and sorted.
std::vector<Edge> transposed(const std::vector<Edge> &gather);

// What a rank does with one message.
enum class MoveKind : uint8_t {
  send,         // from the user's buffer (or a slot if from_slot)
  receive,      // into the user's buffer
  receive_add,  // add the message to the partial sum in slot, or at the owner to the sum
};

// One step of one rank. The engine runs the list in order of keys, as far as windows and dependencies let it.
struct Move {
  MoveKind kind;
  uint8_t flags;               // MoveFlag
  uint16_t dependency_count;   // of dependencies[first_dependency ...]: indices into Schedule::moves, all smaller
  int32_t peer;
  uint64_t offset;             // bytes of the layout's buffer
  uint32_t bytes;              // of the range, in the layout's dtype
  int32_t slot;                // scratch slot, -1: none. Assigned in key order; reuse is a dependency
  uint32_t first_dependency;
  int32_t rank_term;           // ordered: whose gradient this is; -1: an accumulator or a finished sum
};

struct Schedule {
  Algorithm algorithm = Algorithm::flat;
  int rank = 0;
  std::vector<Move> moves;
  std::vector<uint32_t> dependencies;
  int slot_count = 0;
  uint64_t slot_bytes = 0;
  uint64_t bytes_out = 0, bytes_in = 0;  // on the wire
};

}  // namespace mxs
