// SPDX-License-Identifier: Apache-2.0
// What every call begins and ends with, and what the stand-in says about it.
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "driver.hpp"

namespace standin {

Driver &driver() {
  static Driver *const made = new Driver;
  return *made;
}

std::vector<Context *> &context_stack() {
  thread_local std::vector<Context *> stack;
  return stack;
}

Context *current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

CUstreamCaptureMode &thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool &in_host_function() {
  thread_local bool is_in = false;
  return is_in;
}

namespace {

// MXS_STANDIN_MISSING names it, as it is or without its version.
bool is_missing(const Switches &switches, const std::string &name) {
  if (switches.missing.empty()) return false;
  const size_t version = name.rfind("_v");
  return switches.missing.count(name) ||
         (version != std::string::npos && switches.missing.count(name.substr(0, version)));
}

}  // namespace

CUresult enter(const char *name) {
  Driver &all = driver();
  if (!__atomic_load_n(&all.is_begun, __ATOMIC_ACQUIRE)) return CUDA_ERROR_NOT_INITIALIZED;
  if (all.process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (__atomic_load_n(&all.is_ending, __ATOMIC_ACQUIRE)) return CUDA_ERROR_DEINITIALIZED;
  if (in_host_function()) {
    complain("%s is called by a host function, which must not call CUDA", name);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  const Lock lock(all.mutex);
  return is_missing(all.switches, name) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult leave(const char *name, CUresult result) {
  trace("%s = %d", name, static_cast<int>(result));
  return result;
}

void complain(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "stand-in CUDA: %s\n", text);
}

namespace {
// Streams trace what they ran without the driver's mutex.
struct TraceFile {
  std::mutex mutex;
  std::string path;
};

// As the driver, never destroyed: a stream's thread may outlive main.
TraceFile &trace_file() {
  static TraceFile *const file = new TraceFile;
  return *file;
}

std::string trace_path() {
  const std::lock_guard lock(trace_file().mutex);
  return trace_file().path;
}
}  // namespace

void trace_to(const std::string &path) {
  const std::lock_guard lock(trace_file().mutex);
  trace_file().path = path;
}

void trace(const char *format, ...) {
  const std::string path = trace_path();
  if (path.empty()) return;
  std::FILE *const file = std::fopen(path.c_str(), "a");
  if (!file) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(file, "%d %lx %s\n", getpid(), static_cast<unsigned long>(pthread_self()), text);
  std::fclose(file);
}

}  // namespace standin
