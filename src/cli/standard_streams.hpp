// SPDX-License-Identifier: Apache-2.0
// What programs do about their standard streams. perf/ does the same.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace mxs_cli {

// A stream that was closed before the program began would be the next file, socket or shared memory that is opened, and
// what is printed would go there. /dev/null in its place, opened the wrong way: who uses it still gets an error.
inline void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));  // the lowest that is free
}

// A table that nobody could read is no success: the exit status, 1 instead of 0 if what was printed got lost.
inline int status_after_output(const char *program, int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  std::fprintf(stderr, "%s: standard output can't be written: %s\n", program,
               errno ? std::strerror(errno) : "what was printed before is incomplete");
  return status ? status : 1;
}

}  // namespace mxs_cli
