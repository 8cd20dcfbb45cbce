// SPDX-License-Identifier: Apache-2.0
#include "base/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"

namespace mxs {

// Fixed size: keeping the sentence of an allocation that failed must not allocate.
static thread_local char last_error[1024];

const char *last_error_text() noexcept { return last_error; }

mxs_status set_error(mxs_status status, const char *format, ...) noexcept {
  // Formatted aside first, because an argument may be the old sentence.
  char sentence[sizeof last_error];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  // It quotes what strangers wrote, cut anywhere: what remains is one line that does nothing to whoever shows it.
  sentence[make_printable(sentence, std::strlen(sentence))] = '\0';
  std::snprintf(last_error, sizeof last_error, "%s", sentence);
  return status;
}

}  // namespace mxs
