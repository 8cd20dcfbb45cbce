// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions, waits for values in memory.
#include <algorithm>

#include "driver.hpp"

using namespace standin;

namespace {

// For calls about a stream, of whichever context.
template <class Body>
CUresult call_of_stream(const char *name, CUstream handle, Body body) {
  return call_in_context(name, [&](Lock &lock, Context &context) {
    const StreamPointer stream = find_stream(context, handle);
    return stream ? body(lock, context, stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// A stream that captures can't be waited for, and other waits end somebody's capture.
CUresult refuse_wait(const StreamPointer &stream) {
  if (stream->capture) {
    stream->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const CUresult refused = refuse_legacy(stream);
  return refused == CUDA_SUCCESS ? refuse_in_capture() : refused;
}

CUresult record(const StreamPointer &stream, Event &event) {
  if (stream->capture) {
    if (stream->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.capture = stream->capture;
    event.nodes = stream->tail;
    event.ticket = nullptr;
    return CUDA_SUCCESS;
  }
  Job job;
  job.name = "event";
  TicketPointer ticket;
  const CUresult result = enqueue(stream, std::move(job), &ticket);
  if (result != CUDA_SUCCESS) return result;
  event.ticket = ticket;
  event.capture = nullptr;
  return CUDA_SUCCESS;
}

// The event was recorded in a capture: the stream comes after those nodes, and joins the capture.
CUresult join_capture(const StreamPointer &stream, const Event &event) {
  const CapturePointer &capture = event.capture;
  const auto &live = driver().captures;
  if (std::find(live.begin(), live.end(), capture) == live.end()) return CUDA_ERROR_CAPTURED_EVENT;
  if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != capture) {
    stream->capture->is_invalid = capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!stream->capture) {
    stream->capture = capture;
    stream->tail.clear();
    if (std::find(capture->streams.begin(), capture->streams.end(), stream.get()) == capture->streams.end())
      capture->streams.push_back(stream.get());
  }
  for (const size_t node : event.nodes)
    if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end()) stream->tail.push_back(node);
  return CUDA_SUCCESS;
}

// MXS_STANDIN_DROP_WAIT
bool is_dropped() {
  int64_t &left = driver().switches.waits_left;
  return left >= 0 && left-- == 0;
}

CUresult wait_event(const StreamPointer &stream, const Event &event) {
  if (event.capture) return join_capture(stream, event);
  if (!event.ticket) return CUDA_SUCCESS;  // never recorded
  if (stream->capture) {
    stream->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (is_dropped()) return CUDA_SUCCESS;
  Job job;
  job.name = "wait for an event";
  job.after = {event.ticket};
  return enqueue(stream, std::move(job));
}

CUresult event_state(const Event &event) {
  if (event.capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  return event.ticket && !event.ticket->is_over ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

// ---- values in memory --------------------------------------------------------------------------------------------

template <class Word>
bool is_reached(Word found, Word wanted, unsigned condition) {
  using Signed = std::make_signed_t<Word>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND: return (found & wanted) != 0;
    default: return static_cast<Word>(~(found | wanted)) != 0;
  }
}

CUresult check_word(CUdeviceptr address, size_t bytes) {
  if (!driver().switches.has_wait_value) return CUDA_ERROR_NOT_SUPPORTED;
  const Place place = driver().memory.find(address, bytes);
  const bool is_there = place.is_range && place.kind != PlaceKind::nothing && place.kind != PlaceKind::host;
  return is_there && address % bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class Word>
CUresult wait_value(const char *name, CUstream handle, CUdeviceptr address, Word value, unsigned flags) {
  return call_of_stream(name, handle, [&](Lock &, Context &, const StreamPointer &stream) {
    const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_word(address, sizeof value); result != CUDA_SUCCESS) return result;
    Job job;
    // Of pinned memory: the guard stays closed while it waits. A word in device memory is looked at as a kernel would.
    job.kind = driver().memory.find(address).kind == PlaceKind::device ? JobKind::device : JobKind::wait;
    job.name = name;
    job.body = [=] {
      const auto *const word = reinterpret_cast<const Word *>(address);
      while (!is_reached(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition)) {
        if (__atomic_load_n(&driver().is_ending, __ATOMIC_ACQUIRE)) return CUDA_ERROR_DEINITIALIZED;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      return CUDA_SUCCESS;
    };
    return enqueue(stream, std::move(job));
  });
}

template <class Word>
CUresult write_value(const char *name, CUstream handle, CUdeviceptr address, Word value, unsigned flags) {
  return call_of_stream(name, handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_word(address, sizeof value); result != CUDA_SUCCESS) return result;
    Job job;
    job.kind = JobKind::device;
    job.name = name;
    job.body = [=] {
      __atomic_store_n(reinterpret_cast<Word *>(address), value, __ATOMIC_RELEASE);
      return CUDA_SUCCESS;
    };
    return enqueue(stream, std::move(job));
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority) {
  return call_in_context("cuStreamCreateWithPriority", [&](Lock &, Context &context) {
    if (!handle || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) return CUDA_ERROR_INVALID_VALUE;
    const StreamPointer stream = make_stream(context, flags, std::clamp(priority, -5, 0));
    stream->number = driver().next_stream_number++;
    stream->handle = new_handle<CUstream>();
    driver().streams[stream->handle] = stream;
    *handle = stream->handle;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamCreate(CUstream *handle, unsigned int flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

// Doesn't wait: what is queued is still carried out.
CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  return call("cuStreamDestroy_v2", [&](Lock &) {
    const auto found = driver().streams.find(handle);
    if (found == driver().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    const StreamPointer stream = found->second;
    if (stream->capture) {
      stream->capture->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    driver().leaving.push_back(stream);
    driver().streams.erase(found);
    std::erase_if(driver().leaving, [](const StreamPointer &other) { return !other->last || other->last->is_over; });
    stream->is_destroyed = true;
    stream->has_work.notify_all();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  return call_of_stream("cuStreamSynchronize", handle, [&](Lock &lock, Context &, const StreamPointer &stream) {
    const CUresult refused = refuse_wait(stream);
    if (refused != CUDA_SUCCESS) return refused;
    // The legacy stream stands for all that it is ordered with.
    TicketPointer ticket = stream->last;
    if (stream->is_legacy) {
      Job job;
      job.name = "synchronize";
      const CUresult result = enqueue(stream, std::move(job), &ticket);
      if (result != CUDA_SUCCESS) return result;
    }
    return wait_for(lock, *stream->context, ticket);
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return call_of_stream("cuStreamQuery", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    const CUresult refused = refuse_wait(stream);
    if (refused != CUDA_SUCCESS) return refused;
    return stream->last && !stream->last->is_over ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return call_of_stream("cuStreamWaitEvent", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    const auto event = find_event(event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    return flags ? CUDA_ERROR_INVALID_VALUE : wait_event(stream, *event);
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int *flags) {
  return call_of_stream("cuStreamGetFlags", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int *priority) {
  return call_of_stream("cuStreamGetPriority", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (!priority) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *context_handle) {
  return call_of_stream("cuStreamGetCtx", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (!context_handle) return CUDA_ERROR_INVALID_VALUE;
    *context_handle = reinterpret_cast<CUcontext>(stream->context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice *device) {
  return call_of_stream("cuStreamGetDevice", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = stream->context->device;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return wait_value("cuStreamWaitValue32_v2", stream, address, value, flags);
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return wait_value("cuStreamWaitValue64_v2", stream, address, value, flags);
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return write_value("cuStreamWriteValue32_v2", stream, address, value, flags);
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return write_value("cuStreamWriteValue64_v2", stream, address, value, flags);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument) {
  return call_of_stream("cuLaunchHostFunc", handle, [&](Lock &, Context &, const StreamPointer &stream) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    Job job;
    job.kind = JobKind::host;
    job.name = "host function";
    job.body = [=] {
      function(argument);
      return CUDA_SUCCESS;
    };
    return enqueue(stream, std::move(job));
  });
}

// ---- events ------------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuEventCreate(CUevent *handle, unsigned int flags) {
  return call_in_context("cuEventCreate", [&](Lock &, Context &context) {
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!handle || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
    const auto event = std::make_shared<Event>();
    event->context = &context;
    event->flags = flags;
    *handle = new_handle<CUevent>();
    driver().events[*handle] = event;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  return call("cuEventDestroy_v2",
              [&](Lock &) { return driver().events.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

// Event and stream are to be of one context.
CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle) {
  return call_of_stream("cuEventRecord", stream_handle, [&](Lock &, Context &, const StreamPointer &stream) {
    const auto event = find_event(handle);
    if (!event || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    return record(stream, *event);
  });
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  return flags ? CUDA_ERROR_NOT_SUPPORTED : cuEventRecord(handle, stream);
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  return call("cuEventQuery", [&](Lock &) {
    const auto event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    return event->context->sticky == CUDA_SUCCESS ? event_state(*event) : event->context->sticky;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  return call("cuEventSynchronize", [&](Lock &lock) {
    const auto event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult state = event_state(*event);
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return state;
    return wait_for(lock, *event->context, event->ticket);
  });
}

CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent begin_handle, CUevent end_handle) {
  return call("cuEventElapsedTime_v2", [&](Lock &) {
    const auto begin = find_event(begin_handle), end = find_event(end_handle);
    if (!milliseconds || !begin || !end) return CUDA_ERROR_INVALID_HANDLE;
    if ((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if (!begin->ticket || !end->ticket) return CUDA_ERROR_INVALID_HANDLE;
    if (!begin->ticket->is_over || !end->ticket->is_over) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(end->ticket->at - begin->ticket->at).count();
    return CUDA_SUCCESS;
  });
}

#undef cuEventElapsedTime
__attribute__((visibility("default"))) CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent begin,
                                                                           CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, begin, end);
}

}  // extern "C"
