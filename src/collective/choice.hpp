// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries a collective, in which chunks and windows, and why. The same on all ranks: from arguments
// that are equal on all of them, the topology and the comm's kinds of routes only.
#pragma once

#include <cstdint>
#include <string>

#include "collective/message_options.hpp"

namespace mxs {

class Comm;

// How a collective may be carried: in messages, by one of schedule's algorithms, or inside a domain.
struct Choice {
  bool node = false;      // "fanout" or "cooperative": memory that local peers map
  bool messages = false;  // may use messages: what follows
  Algorithm algorithm = Algorithm::flat;
  uint64_t chunk_bytes = 0;
  int window = 0;
  double predicted_s = 0;
  double bound_s = 0;     // also if it uses no messages
  std::string reason;     // "chain 703 us; circulant 790, spread 850, flat 4900; bound 671"
};

// name: as in mxs_collective_options.algorithm; nullptr or "": MXS_ALGORITHM if it is set, else chosen, in which case
// both may be left open and memory decides at each start.
// The variable may name one that only other kinds have: then this one is chosen for, with a warning in the log.
// MXS_NOT_FOUND: no algorithm of that name for this kind, order and comm; the sentence lists those that there are.
mxs_status choose(const Comm &comm, const MessageOptions &options, const char *name, Choice *choice);

// Messages only, on any topology, without a comm and without a look at the environment. name nullptr or "": chosen.
mxs_status choose_messages(const Topology &topology, const MessageOptions &options, const char *name, Choice *choice);

// Sets what was chosen.
inline void apply(const Choice &choice, MessageOptions *options) {
  options->algorithm = choice.algorithm;
  options->chunk_bytes = choice.chunk_bytes;
  options->window = choice.window;
}

}  // namespace mxs
