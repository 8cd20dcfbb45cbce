// SPDX-License-Identifier: Apache-2.0
// How far a command is, for a person who waits: one line on stderr that is written over and in the end wiped away. Not
// where stderr is no terminal.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "cli/plan_text.hpp"

namespace mxs_cli {

class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)), shown_(isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine &) = delete;
  ~ProgressLine() { wipe(); }

  void show(uint64_t done_bytes, uint64_t total_bytes) {
    if (!shown_) return;
    const std::string total = total_bytes ? std::string(" of ").append(bytes_text(total_bytes)) : "";
    std::fprintf(stderr, "\r%s: %s%s\033[K", what_.c_str(), bytes_text(done_bytes).c_str(), total.c_str());
    std::fflush(stderr);
    drawn_ = true;
  }
  void wipe() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }

  // As mxs_progress_function; context: a ProgressLine.
  static int call(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    static_cast<ProgressLine *>(context)->show(done_bytes, total_bytes);
    return 0;
  }

 private:
  const std::string what_;
  const bool shown_;
  bool drawn_ = false;
};

}  // namespace mxs_cli
