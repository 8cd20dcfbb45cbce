// SPDX-License-Identifier: Apache-2.0
// set_error, last_error_text and log_line of this library: what the core lends, so that base/status.hpp and
// base/log.hpp mean the same on both sides.
#include "cuda/services.hpp"

#include <cstdarg>
#include <cstdio>

#include "base/log.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

DeviceServices lent{};

}  // namespace

void borrow_services(const DeviceServices &services) { lent = services; }

mxs_status set_error(mxs_status status, const char *format, ...) noexcept {
  char sentence[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  lent.set_error(status, sentence);
  return status;
}

const char *last_error_text() noexcept { return lent.last_error(); }

void log_line(int32_t level, const char *format, ...) noexcept {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  lent.log(level, line);
}

}  // namespace mxs
