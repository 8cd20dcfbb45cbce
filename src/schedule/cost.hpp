// SPDX-License-Identifier: Apache-2.0
// Cost model: what a collective would take by each algorithm, and which chunk and window suit it.
//
//   time = factor x ( busiest resource + way of the first chunk )
//
//   resources   every rail and local port, each direction: bytes / rate; an in-port that several channels share is
//               slower by the contention
//               every channel inside a node: windows x the way of a message, which makes room when it has been taken
//               every rank's CPU: overhead per message at both ends, adding
//   way         hops x (latency + 2 overheads) + (hops - 1) x chunk / rate
//   factor      of the algorithm, as measured and saved with the topology's speeds; 1 until somebody has
//
// The busiest resource falls with the chunk (fewer messages) and the way grows with it: the best chunk is looked for
// between what the overhead hides and what a network takes eagerly. In closed form it is sqrt(s (L + o) / ((N - 2) b))
// for a chain of N nodes.
//
// Pure, and equal on all ranks: plain double arithmetic in a fixed order. O(ranks) per algorithm.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace mxs {

struct Prediction {
  Algorithm algorithm = Algorithm::flat;
  uint64_t chunk_bytes = 0;
  int window = 0;
  double seconds = 0;
};

// Of one algorithm. options.chunk_bytes 0 and window 0: the best. options.topology is not nullptr.
Prediction predict(const ScheduleOptions &options, int window);

// Of every algorithm that makes sense in this direction on this topology, the cheapest first; never empty.
std::vector<Prediction> predict_all(const ScheduleOptions &options, int window);

// "chain 703 us; circulant 790, spread 850, flat 4900; bound 671", the chosen one first.
std::string reason_text(const std::vector<Prediction> &predictions, double bound_seconds);

// How many messages the whole set has, about.
double message_estimate(const ScheduleOptions &options);

// Of an algorithm's predicted time, as measured.
double factor_of(const Topology &topology, Algorithm algorithm);

// Rounded; what takes more than 292 years takes that.
uint64_t nanoseconds_of(double seconds);

// By how much an in-port serves slower when n channels are busy on it at once: 1 + contention (1 - 1/n). Measured, it
// stands among the topology's factors under this name.
double contention_of(const Topology &topology);

}  // namespace mxs
