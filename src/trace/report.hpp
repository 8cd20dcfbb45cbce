// SPDX-License-Identifier: Apache-2.0
// What rings tell, in plain words: is anybody stuck, who lags, where, whom do the others miss, who died, who failed
// first.
//
// The first line is the verdict. It begins with one of these words, by which programs can tell:
//
//   "Nothing is stuck"   all is well, or the comm was destroyed in good order
//   "Failed"             the comm has failed; the rank that ran into it first, and its sentence
//   "Died"               a process has ended without destroying the comm, and nobody has told of a failure
//   "Stuck"              ranks wait since a second or more
#pragma once

#include <string>

#include "trace/reader.hpp"

namespace mxs {

std::string report_of(const Trace &trace);

}  // namespace mxs
