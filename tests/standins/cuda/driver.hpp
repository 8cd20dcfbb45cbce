/* SPDX-License-Identifier: Apache-2.0 */
// What the stand-in driver knows: contexts, streams and their jobs, events, memory. One lock over all of it; jobs run
// without it. The object is never destroyed, since threads of streams may still run when the process ends.
//
// A job is over when its ticket says so. Whatever must come before a job is a list of tickets: events, the legacy
// default stream's rule and graphs are no more than that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver_api.hpp"
#include "memory.hpp"
#include "switches.hpp"

namespace standin {

struct Ticket {
  bool is_over = false;
  std::chrono::steady_clock::time_point at;
};
using TicketPointer = std::shared_ptr<Ticket>;

// What a job does to memory says how it runs: `device` alone opens device memory (memory.hpp, the guard).
enum class JobKind { mark, device, host, wait };

struct Job {
  JobKind kind = JobKind::mark;
  std::string name;
  std::function<CUresult()> body;  // without the lock. Copied where a graph replays it
  std::vector<TicketPointer> after;
  TicketPointer ticket;
};

struct Context;
struct Stream;

struct Node {
  Job job;
  std::vector<size_t> after;  // nodes
  size_t lane = 0;            // of the stream that was captured
};

struct Capture {
  unsigned long long number = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream *origin = nullptr;
  Context *context = nullptr;
  std::vector<Stream *> streams;  // a lane each
  std::vector<Node> nodes;
  bool is_invalid = false;
};
using CapturePointer = std::shared_ptr<Capture>;

struct Stream {
  CUstream handle = nullptr;
  Context *context = nullptr;
  int number = 0;
  unsigned flags = 0;
  int priority = 0;
  bool is_legacy = false, is_lane = false;
  bool has_thread = false, is_destroyed = false;
  std::deque<Job> jobs;
  TicketPointer last;  // of the newest job
  std::condition_variable has_work;
  CapturePointer capture;
  std::vector<size_t> tail;  // nodes that the next one comes after
  bool is_blocking() const { return !is_legacy && !is_lane && !(flags & CU_STREAM_NON_BLOCKING); }
};
using StreamPointer = std::shared_ptr<Stream>;

struct Event {
  Context *context = nullptr;
  unsigned flags = 0;
  TicketPointer ticket;  // nullptr: never recorded
  CapturePointer capture;
  std::vector<size_t> nodes;
};

struct Graph {
  Context *context = nullptr;
  std::vector<Node> nodes;
  size_t lane_count = 0;
};

struct GraphExec {
  Context *context = nullptr;
  Graph graph;
  std::vector<StreamPointer> lanes;
};

struct Context {
  int device = 0;  // counted among the visible ones
  int retained = 0;
  unsigned flags = 0;
  CUresult sticky = CUDA_SUCCESS;
  StreamPointer legacy;
  std::map<std::thread::id, StreamPointer> per_thread;
  std::set<CUmodule> modules;
};

struct Function {
  Context *context = nullptr;
  std::string name;
  void (*run)(const void *arguments, uint32_t blocks, uint32_t threads) = nullptr;
};

struct Driver {
  std::mutex mutex;
  std::condition_variable something_over;
  bool is_begun = false;
  bool is_ending = false;
  int process = 0;
  Switches switches;
  std::vector<int> visible;  // physical numbers
  std::vector<std::unique_ptr<Context>> contexts;
  Memory memory;
  std::map<CUstream, StreamPointer> streams;
  std::map<CUevent, std::shared_ptr<Event>> events;
  std::map<CUgraph, std::shared_ptr<Graph>> graphs;
  std::map<CUgraphExec, std::shared_ptr<GraphExec>> graph_execs;
  std::map<CUmodule, std::map<std::string, std::unique_ptr<Function>>> modules;
  std::set<const Function *> functions;
  std::vector<StreamPointer> leaving;  // destroyed, with jobs still queued
  std::vector<CapturePointer> captures;
  uintptr_t next_handle = 0x5741'0000'0000;  // handles of what is gone never come back
  int next_stream_number = 1;
  uint64_t jobs_begun = 0;
  int running = 0;       // jobs that are in their body
};

using Lock = std::unique_lock<std::mutex>;

Driver &driver();

template <class Handle>
Handle new_handle() {
  driver().next_handle += 16;
  return reinterpret_cast<Handle>(driver().next_handle);
}

// ---- calls (calls.cpp) -------------------------------------------------------------------------------------------

// nullptr: none is current.
Context *current_context();
std::vector<Context *> &context_stack();
CUstreamCaptureMode &thread_capture_mode();
bool &in_host_function();

CUresult enter(const char *name);
CUresult leave(const char *name, CUresult result);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));  // to standard error
void trace_to(const std::string &path);
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A call of the driver: refused if it isn't begun, after a fork, at the end, or from a host function.
template <class Body>
CUresult call(const char *name, Body body) {
  CUresult result = enter(name);
  if (result != CUDA_SUCCESS) return leave(name, result);
  Lock lock(driver().mutex);
  try {
    result = body(lock);
  } catch (const std::bad_alloc &) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return leave(name, result);
}

// And wants a context that is current and sound.
template <class Body>
CUresult call_in_context(const char *name, Body body) {
  return call(name, [&](Lock &lock) {
    Context *const context = current_context();
    if (!context || context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return context->sticky == CUDA_SUCCESS ? body(lock, *context) : context->sticky;
  });
}

// ---- streams (streams.cpp); all with the lock --------------------------------------------------------------------

StreamPointer make_stream(Context &context, unsigned flags, int priority);
// nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD and handles. Null: there is no such stream.
StreamPointer find_stream(Context &context, CUstream handle);
std::shared_ptr<Event> find_event(CUevent handle);
// Of that context, and no foreign one, for calls that want it.
CUresult check_stream(const StreamPointer &stream, const Context &context);

// Behind what the stream has, or into the capture that it is in. ticket: of the job; may be nullptr.
CUresult enqueue(const StreamPointer &stream, Job job, TicketPointer *ticket = nullptr);
// Waits without the lock; the context's error, if there is one.
CUresult wait_for(Lock &lock, const Context &context, const TicketPointer &ticket);
CUresult wait_for_all(Lock &lock, Context &context);
void end_streams(Lock &lock, Context &context);
void end_driver();  // at the end of the process

// ---- captures (captures.cpp); all with the lock ------------------------------------------------------------------

CUresult add_to_capture(const StreamPointer &stream, Job job);
// Calls that wait or allocate while somebody captures: refused, and the capture is void.
CUresult refuse_in_capture();
// The legacy stream, while a blocking stream of its context captures.
CUresult refuse_legacy(const StreamPointer &stream);

// ---- faults (faults.cpp) -----------------------------------------------------------------------------------------

void catch_faults();
// body(), or CUDA_ERROR_ILLEGAL_ADDRESS if it touched memory that isn't there.
CUresult run_guarded(const std::function<CUresult()> &body, const void **address);

}  // namespace standin
