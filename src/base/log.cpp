// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace mxs {

namespace {
std::mutex listener_mutex;
mxs_log_function listener_function = nullptr;
void *listener_context = nullptr;
std::atomic<int32_t> listener_level{0};  // 0: nobody listens
}  // namespace

void set_log(mxs_log_function function, void *context, int32_t level) {
  const std::lock_guard lock(listener_mutex);
  listener_function = function;
  listener_context = context;
  listener_level.store(function ? level : 0, std::memory_order_relaxed);
}

void log_line(int32_t level, const char *format, ...) noexcept {
  if (level > listener_level.load(std::memory_order_relaxed)) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(listener_mutex);
  if (listener_function) listener_function(listener_context, level, line);
}

}  // namespace mxs
