// SPDX-License-Identifier: Apache-2.0
// For tests of loads: a checkpoint that closes itself, and what mxs_load_options.tell has heard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "matrixshard/checkpoint.h"

namespace mxs::test {

struct CloseCheckpoint {
  void operator()(mxs_checkpoint *checkpoint) const { mxs_checkpoint_close(&checkpoint); }
};
using OwnCheckpoint = std::unique_ptr<mxs_checkpoint, CloseCheckpoint>;

// "M:name X:name ...": missing, extra, converted, new state.
struct Told {
  std::string text;
  static void note(void *context, int32_t what, const char *name) {
    std::string &text = static_cast<Told *>(context)->text;
    text.append(text.empty() ? "" : " ").append(1, "?MXCN"[what]).append(1, ':').append(name);
  }
};

}  // namespace mxs::test
