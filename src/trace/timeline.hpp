// SPDX-License-Identifier: Apache-2.0
// Rings as a timeline in JSON, in the Trace Event Format: for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <string>

#include "matrixshard/status.h"
#include "trace/reader.hpp"

namespace mxs {

// The file is complete, or as it was. MXS_SYSTEM: can't be written.
mxs_status write_timeline(const Trace &trace, const std::string &path);

}  // namespace mxs
