// SPDX-License-Identifier: Apache-2.0
// The words that perf/soak/soak gives to a rank.
#pragma once

#include <cstdint>
#include <string>

namespace soak {

enum class FaultKind { none, kill, pause, abort };

// --fault KIND:WHO:WHEN:MICROSECONDS:MILLISECONDS. WHO: a rank; of the matrix: a role. WHEN: a case number; of the
// matrix: a phase. Microseconds later it happens; a pause ends after so many milliseconds.
struct Fault {
  FaultKind kind = FaultKind::none;
  std::string who, when;
  int64_t delay_us = 0, pause_ms = 0;

  int rank() const;           // of WHO
  uint64_t case_number() const;  // of WHEN
};

struct Options {
  uint64_t seed = 1;
  double seconds = 10;     // then the world's ranks agree to end
  uint64_t first_round = 0, round_count = UINT64_MAX;
  std::string transport;   // "": chosen
  std::string folder;      // for checkpoints, seen by all ranks
  uint64_t bytes_max = uint64_t{1} << 20;
  double timeout = 30;     // seconds: the comms' deadline
  int threads = 0;         // 0: one rank, by the environment. Else so many ranks of this process
  bool matrix = false;     // one phase again and again, until the fault is heard
  bool verbose = false;
  bool failure_expected = false;  // something outside will go wrong: a cable
  bool plant_fault = false;  // flips a bit before results are looked at: a run with it must fail
  Fault fault;
};

// False: a sentence was printed.
bool read_options(int count, char **words, Options *options);

}  // namespace soak
