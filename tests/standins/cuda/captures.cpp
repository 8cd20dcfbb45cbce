// SPDX-License-Identifier: Apache-2.0
// Captures: what streams are given becomes nodes of a graph instead. A stream's next node comes after its tail; a wait
// for an event that was recorded in the capture adds the event's nodes to the tail, and brings a new stream in.
#include <algorithm>

#include "driver.hpp"

namespace standin {

namespace {

size_t lane_of(Capture &capture, Stream *stream) {
  auto &streams = capture.streams;
  const auto found = std::find(streams.begin(), streams.end(), stream);
  if (found != streams.end()) return static_cast<size_t>(found - streams.begin());
  streams.push_back(stream);
  return streams.size() - 1;
}

}  // namespace

CUresult add_to_capture(const StreamPointer &stream, Job job) {
  Capture &capture = *stream->capture;
  if (capture.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (job.kind == JobKind::mark) return CUDA_SUCCESS;
  Node node;
  node.job = std::move(job);
  node.after = stream->tail;
  node.lane = lane_of(capture, stream.get());
  stream->tail = {capture.nodes.size()};
  capture.nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult refuse_in_capture() {
  const CUstreamCaptureMode own = thread_capture_mode();
  if (own == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const CapturePointer &capture : driver().captures) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool forbids = is_own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                : own == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                      capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult refuse_legacy(const StreamPointer &stream) {
  if (!stream->is_legacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const CapturePointer &capture : driver().captures) {
    const bool has_blocking = std::any_of(capture->streams.begin(), capture->streams.end(),
                                          [](const Stream *other) { return other->is_blocking(); });
    if (capture->context != stream->context || !has_blocking) continue;
    capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

}  // namespace standin
