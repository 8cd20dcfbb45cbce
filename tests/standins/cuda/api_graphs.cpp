// SPDX-License-Identifier: Apache-2.0
// Captures as calls, and graphs. A launch gives each captured stream's nodes to a lane, a stream of the graph's own;
// the stream that launches goes on after the last of them.
#include <algorithm>

#include "driver.hpp"

using namespace standin;

namespace {

template <class Body>
CUresult call_of_stream(const char *name, CUstream handle, Body body) {
  return call_in_context(name, [&](Lock &lock, Context &context) {
    const StreamPointer stream = find_stream(context, handle);
    return stream ? body(lock, stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// Everything that was captured comes before the end of the stream where it began.
bool is_joined(const Capture &capture, const Stream &origin) {
  std::vector<bool> reached(capture.nodes.size());
  std::vector<size_t> open(origin.tail);
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream *stream) {
    return std::all_of(stream->tail.begin(), stream->tail.end(), [&](size_t node) { return reached[node]; });
  });
}

void leave_capture(const CapturePointer &capture) {
  for (const auto &[handle, stream] : driver().streams)
    if (stream->capture == capture) {
      stream->capture = nullptr;
      stream->tail.clear();
    }
  for (const auto &context : driver().contexts)
    for (const auto &[thread, stream] : context->per_thread)
      if (stream->capture == capture) {
        stream->capture = nullptr;
        stream->tail.clear();
      }
  std::erase(driver().captures, capture);
}

CUresult end_capture(const StreamPointer &stream, CUgraph *handle) {
  const CapturePointer capture = stream->capture;
  *handle = nullptr;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool joined = is_joined(*capture, *stream);
  leave_capture(capture);
  if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  const auto graph = std::make_shared<Graph>();
  graph->context = stream->context;
  graph->nodes = capture->nodes;
  graph->lane_count = capture->streams.size();
  *handle = new_handle<CUgraph>();
  driver().graphs[*handle] = graph;
  return CUDA_SUCCESS;
}

CUresult launch(GraphExec &exec, const StreamPointer &stream) {
  if (exec.context != stream->context) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;  // graphs inside of graphs are not in the stand-in
  Job begin;
  begin.name = "begin of a graph";
  TicketPointer begun;
  CUresult result = enqueue(stream, std::move(begin), &begun);
  std::vector<TicketPointer> tickets;
  for (const Node &node : exec.graph.nodes) {
    if (result != CUDA_SUCCESS) return result;
    Job job = node.job;
    job.after = {begun};
    for (const size_t other : node.after) job.after.push_back(tickets[other]);
    tickets.emplace_back();
    result = enqueue(exec.lanes[node.lane], std::move(job), &tickets.back());
  }
  if (result != CUDA_SUCCESS) return result;
  Job end;
  end.name = "end of a graph";
  end.after = tickets;
  return enqueue(stream, std::move(end));
}

void end_lanes(GraphExec &exec) {
  for (const StreamPointer &lane : exec.lanes) {
    driver().leaving.push_back(lane);
    lane->is_destroyed = true;
    lane->has_work.notify_all();
  }
}

CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle) {
  const auto found = driver().graphs.find(graph_handle);
  if (!handle || found == driver().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto exec = std::make_shared<GraphExec>();
  exec->graph = *found->second;
  exec->context = exec->graph.context;
  for (size_t i = 0; i < exec->graph.lane_count; ++i) {
    exec->lanes.push_back(make_stream(*exec->context, CU_STREAM_NON_BLOCKING, 0));
    exec->lanes.back()->is_lane = true;
    exec->lanes.back()->number = driver().next_stream_number++;
  }
  *handle = new_handle<CUgraphExec>();
  driver().graph_execs[*handle] = exec;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return call_of_stream("cuStreamBeginCapture_v2", handle, [&](Lock &, const StreamPointer &stream) {
    if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    static unsigned long long number = 0;
    const auto capture = std::make_shared<Capture>();
    capture->number = ++number;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->context = stream->context;
    capture->streams = {stream.get()};
    stream->capture = capture;
    stream->tail.clear();
    driver().captures.push_back(capture);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  return call_of_stream("cuStreamEndCapture", handle, [&](Lock &, const StreamPointer &stream) {
    return graph ? end_capture(stream, graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  return call_of_stream("cuStreamIsCapturing", handle, [&](Lock &, const StreamPointer &stream) {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    // Asking about the legacy stream while a blocking stream captures is one of the calls that void the capture.
    if (const CUresult refused = refuse_legacy(stream); refused != CUDA_SUCCESS) return refused;
    *status = !stream->capture             ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *number,
                                        CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges,
                                        size_t *count) {
  return call_of_stream("cuStreamGetCaptureInfo_v3", handle, [&](Lock &, const StreamPointer &stream) {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    if (graph || nodes || edges || count) return CUDA_ERROR_NOT_SUPPORTED;  // graphs are not edited in the stand-in
    *status = !stream->capture             ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (number && stream->capture) *number = stream->capture->number;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return call("cuThreadExchangeStreamCaptureMode", [&](Lock &) {
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_capture_mode());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  return call_in_context("cuGraphInstantiateWithFlags", [&](Lock &, Context &) {
    static_cast<void>(flags);
    return instantiate(exec, graph);
  });
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
  return call_in_context("cuGraphInstantiateWithParams", [&](Lock &, Context &) {
    return parameters ? instantiate(exec, graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return call_of_stream("cuGraphLaunch", stream_handle, [&](Lock &, const StreamPointer &stream) {
    const auto found = driver().graph_execs.find(handle);
    return found == driver().graph_execs.end() ? CUDA_ERROR_INVALID_VALUE : launch(*found->second, stream);
  });
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return call_of_stream("cuGraphUpload", stream_handle, [&](Lock &, const StreamPointer &) {
    return driver().graph_execs.count(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// Launches that are queued are still carried out.
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  return call("cuGraphExecDestroy", [&](Lock &) {
    const auto found = driver().graph_execs.find(handle);
    if (found == driver().graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
    end_lanes(*found->second);
    driver().graph_execs.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
  return call("cuGraphDestroy",
              [&](Lock &) { return driver().graphs.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

// The count alone: nodes are not edited in the stand-in.
CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
  return call("cuGraphGetNodes", [&](Lock &) {
    const auto found = driver().graphs.find(handle);
    if (!count || found == driver().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
    if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
    *count = found->second->nodes.size();
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
