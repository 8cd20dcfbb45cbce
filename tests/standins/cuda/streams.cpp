// SPDX-License-Identifier: Apache-2.0
// Streams: each is a queue and a thread that takes one job after the other, later than the call that put it there.
//
// The legacy default stream of a context comes after all that its blocking streams have been given, and they come after
// it. Streams with CU_STREAM_NON_BLOCKING know nothing of it.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "driver.hpp"

namespace standin {

namespace {

bool are_over(const std::vector<TicketPointer> &tickets) {
  return std::all_of(tickets.begin(), tickets.end(), [](const TicketPointer &ticket) { return ticket->is_over; });
}

uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t sleep_of(const Stream &stream, uint64_t job_number) {
  const Switches &switches = driver().switches;
  if (!switches.slow_microseconds) return 0;
  if (!(stream.number % 2 ? switches.slows_odd : switches.slows_even)) return 0;
  if (!switches.has_seed) return switches.slow_microseconds;
  return mixed(switches.seed ^ mixed(job_number)) % (2 * switches.slow_microseconds + 1);
}

// The body, without the lock.
CUresult carry_out(Lock &lock, const Stream &stream, const Job &job) {
  Driver &all = driver();
  if (job.kind == JobKind::mark) return CUDA_SUCCESS;
  const uint64_t microseconds = sleep_of(stream, all.jobs_begun++);
  const bool opens = job.kind == JobKind::device;
  ++all.running;
  if (microseconds) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    lock.lock();
  }
  if (opens) all.memory.open();
  lock.unlock();
  in_host_function() = job.kind == JobKind::host;
  const void *address = nullptr;
  const CUresult result = run_guarded(job.body, &address);
  in_host_function() = false;
  if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
    complain("%s touched %p, where there is no memory for it: CUDA_ERROR_ILLEGAL_ADDRESS", job.name.c_str(), address);
  trace("stream %d ran %s = %d", stream.number, job.name.c_str(), static_cast<int>(result));
  lock.lock();
  if (opens) all.memory.close();
  --all.running;
  return result;
}

CUresult planted_failure() {
  int64_t &left = driver().switches.jobs_left;
  if (left < 0) return CUDA_SUCCESS;
  return left-- == 0 ? CUDA_ERROR_ECC_UNCORRECTABLE : CUDA_SUCCESS;
}

void run_stream(const StreamPointer &stream) {
  Driver &all = driver();
  Lock lock(all.mutex);
  for (;;) {
    stream->has_work.wait(lock, [&] { return all.is_ending || !stream->jobs.empty() || stream->is_destroyed; });
    if (all.is_ending || stream->jobs.empty()) return;
    Job job = std::move(stream->jobs.front());
    stream->jobs.pop_front();
    all.something_over.wait(lock, [&] { return all.is_ending || are_over(job.after); });
    if (all.is_ending) return;
    Context &context = *stream->context;
    if (context.sticky == CUDA_SUCCESS) {
      CUresult result = job.kind == JobKind::device ? planted_failure() : CUDA_SUCCESS;
      if (result == CUDA_SUCCESS) result = carry_out(lock, *stream, job);
      if (result != CUDA_SUCCESS && context.sticky == CUDA_SUCCESS) context.sticky = result;
    }
    job.ticket->is_over = true;
    job.ticket->at = std::chrono::steady_clock::now();
    all.something_over.notify_all();
  }
}

// Signals of the process go to its own threads.
void start_thread(const StreamPointer &stream) {
  stream->has_thread = true;
  sigset_t all_signals, former;
  sigfillset(&all_signals);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all_signals, own);
  pthread_sigmask(SIG_SETMASK, &all_signals, &former);
  std::thread([stream] { run_stream(stream); }).detach();
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

void add_legacy_order(const Stream &stream, Job *job) {
  const auto add = [job](const Stream &other) {
    if (other.last && !other.last->is_over) job->after.push_back(other.last);
  };
  if (stream.is_blocking()) add(*stream.context->legacy);
  if (!stream.is_legacy) return;
  for (const auto &[handle, other] : driver().streams)
    if (other->context == stream.context && other->is_blocking()) add(*other);
  for (const auto &[thread, other] : stream.context->per_thread) add(*other);
}

}  // namespace

StreamPointer make_stream(Context &context, unsigned flags, int priority) {
  const auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->flags = flags;
  stream->priority = priority;
  return stream;
}

StreamPointer find_stream(Context &context, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context.legacy;
  if (handle == CU_STREAM_PER_THREAD) {
    StreamPointer &own = context.per_thread[std::this_thread::get_id()];
    if (!own) own = make_stream(context, CU_STREAM_DEFAULT, 0);
    return own;
  }
  const auto found = driver().streams.find(handle);
  return found == driver().streams.end() ? nullptr : found->second;
}

std::shared_ptr<Event> find_event(CUevent handle) {
  const auto found = driver().events.find(handle);
  return found == driver().events.end() ? nullptr : found->second;
}

CUresult check_stream(const StreamPointer &stream, const Context &context) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return stream->context == &context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult enqueue(const StreamPointer &stream, Job job, TicketPointer *ticket) {
  if (stream->context->sticky != CUDA_SUCCESS) return stream->context->sticky;
  const CUresult refused = refuse_legacy(stream);
  if (refused != CUDA_SUCCESS) return refused;
  if (stream->capture) return add_to_capture(stream, std::move(job));
  add_legacy_order(*stream, &job);
  job.ticket = std::make_shared<Ticket>();
  stream->last = job.ticket;
  if (ticket) *ticket = job.ticket;
  stream->jobs.push_back(std::move(job));
  if (!stream->has_thread) start_thread(stream);
  stream->has_work.notify_one();
  return CUDA_SUCCESS;
}

CUresult wait_for(Lock &lock, const Context &context, const TicketPointer &ticket) {
  Driver &all = driver();
  all.something_over.wait(lock, [&] { return all.is_ending || !ticket || ticket->is_over; });
  return all.is_ending ? CUDA_ERROR_DEINITIALIZED : context.sticky;
}

CUresult wait_for_all(Lock &lock, Context &context) {
  std::vector<TicketPointer> tickets;
  const auto add = [&tickets](const Stream &stream) {
    if (stream.last) tickets.push_back(stream.last);
  };
  add(*context.legacy);
  for (const auto &[thread, stream] : context.per_thread) add(*stream);
  for (const auto &[handle, stream] : driver().streams)
    if (stream->context == &context) add(*stream);
  for (const StreamPointer &stream : driver().leaving)  // destroyed, with work left
    if (stream->context == &context) add(*stream);
  for (const TicketPointer &ticket : tickets)
    if (const CUresult result = wait_for(lock, context, ticket); result == CUDA_ERROR_DEINITIALIZED) return result;
  return context.sticky;
}

void end_streams(Lock &lock, Context &context) {
  wait_for_all(lock, context);
  const auto end = [](Stream &stream) {
    stream.is_destroyed = true;
    stream.has_work.notify_all();
  };
  end(*context.legacy);
  for (const auto &[thread, stream] : context.per_thread) end(*stream);
  context.per_thread.clear();
  std::erase_if(driver().streams, [&](const auto &item) {
    if (item.second->context != &context) return false;
    end(*item.second);
    return true;
  });
}

void end_driver() {
  Driver &all = driver();
  if (!all.is_begun || all.process != getpid()) return;
  Lock lock(all.mutex);
  if (all.is_ending) return;
  __atomic_store_n(&all.is_ending, true, __ATOMIC_RELEASE);
  all.something_over.notify_all();
  for (const auto &[handle, stream] : all.streams) stream->has_work.notify_all();
  for (const auto &context : all.contexts) {
    if (context->legacy) context->legacy->has_work.notify_all();
    for (const auto &[thread, stream] : context->per_thread) stream->has_work.notify_all();
  }
  for (const auto &[handle, exec] : all.graph_execs)
    for (const StreamPointer &lane : exec->lanes) lane->has_work.notify_all();
  // A job that is in its body may use what the process is about to destroy. One that waits for ever gets a second.
  for (int i = 0; i < 1000 && all.running > 0; ++i) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

}  // namespace standin
