// SPDX-License-Identifier: Apache-2.0
// Complaints: a body of a test returns "" or what is wrong; the test asserts that it is good.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "matrixshard/status.h"

namespace mxs::test {

// Says a complaint where cmocka says its own.
inline bool good(const std::string &complaint) {
  if (!complaint.empty()) std::fprintf(stderr, "%s\n", complaint.c_str());
  return complaint.empty();
}

// For a case that can't be run here, which then returns: count_cases.py counts it as skipped. Not cmocka's skip():
// 1.1.5 prints "not ok" for it, and meson takes that for a failure.
inline void not_run(const char *why) {
  std::printf("# not run: %s\n", why);
  std::fflush(stdout);  // what lies in a buffer would come again from forked ranks
}

// What the call that has just failed said.
inline std::string error_of(const std::string &what) { return what + ": " + mxs_last_error(); }

// A complaint with numbers in it.
__attribute__((format(printf, 1, 2))) inline std::string words(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

// By rank, "" for a rank that has none. Text: those of all ranks, a line each, but of those that say that the comm was
// aborted, which follows from what another rank met, only one, and only where nothing else is said. One that another
// rank hung up may follow too, but it may be the fault itself.
inline std::string complaint_of_ranks(const std::vector<std::string> &complaints) {
  std::string causes, echo;
  for (size_t rank = 0; rank < complaints.size(); ++rank) {
    if (complaints[rank].empty()) continue;
    const std::string text =
        "rank " + std::to_string(rank) + " of " + std::to_string(complaints.size()) + ": " + complaints[rank];
    const bool is_echo = complaints[rank].find("aborted") != std::string::npos;
    if (!is_echo) causes += (causes.empty() ? "" : "\n") + text;
    if (is_echo && echo.empty()) echo = text;
  }
  return causes.empty() ? echo : causes;
}

// The status is the expected one, and the sentence holds all the words.
inline std::string expect(mxs_status got, mxs_status wanted, const std::vector<std::string> &words = {}) {
  if (got != wanted)
    return std::string("status is ") + mxs_status_name(got) + ", not " + mxs_status_name(wanted) + ": " +
           (got == MXS_OK ? "" : mxs_last_error());
  for (const std::string &word : words)
    if (std::string(mxs_last_error()).find(word) == std::string::npos)
      return std::string(mxs_last_error()) + " -- doesn't say: " + word;
  return "";
}

}  // namespace mxs::test
