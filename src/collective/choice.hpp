// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries a collective in messages, and in which chunks. The same on all ranks: from arguments that
// are equal on all of them and the comm's routes only.
#pragma once

#include <cstdint>
#include <string>

#include "collective/engine.hpp"

namespace mxs {

class Comm;

// How a collective may be carried: in messages, by one of schedule's algorithms, or inside a domain.
struct Choice {
  bool node = false;      // "fanout" or "cooperative": memory that local peers map
  bool messages = false;  // may use messages: `algorithm`
  Algorithm algorithm = Algorithm::flat;
};

// name: as in mxs_collective_options.algorithm; nullptr or "": MXS_ALGORITHM if it is set, else chosen, in which case
// both may be left open and memory decides at each start.
// The variable may name one that only other kinds have: then this one is chosen for, with a warning in the log.
// MXS_NOT_FOUND: no algorithm of that name for this kind, order and comm; the sentence lists those that there are.
mxs_status choose(const Comm &comm, const MessageOptions &options, const char *name, Choice *choice);

// Messages only: what choose takes if nobody forces anything.
Algorithm choose_algorithm(const Comm &comm, const MessageOptions &options);

// options.chunk_bytes 0: what to take instead.
uint64_t choose_chunk_bytes(const Comm &comm, const MessageOptions &options);

}  // namespace mxs
