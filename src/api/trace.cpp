// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/trace.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/door.hpp"
#include "trace/reader.hpp"
#include "trace/report.hpp"
#include "trace/timeline.hpp"

using namespace mxs;

static_assert(sizeof(mxs_trace_event) == 80, "part of the ABI");
static_assert(sizeof(mxs_trace_rank) == 72, "part of the ABI");

struct mxs_trace {
  Trace inner;
};

namespace {

constexpr uint64_t paths_most = uint64_t{1} << 20;

mxs_status no_trace() { return set_error(MXS_INVALID_ARGUMENT, "trace is NULL"); }

mxs_trace_event event_of(const Trace &trace, const Trace::Place &place) {
  const RingEvent &found = trace.event(place);
  const Ring &ring = trace.rings.at(place.rank);
  mxs_trace_event event = MXS_TRACE_EVENT_INIT;
  event.rank = place.rank;
  event.kind = found.kind;
  event.peer = found.peer;
  event.unit = found.unit;
  event.phase = found.phase;
  event.sequence = found.sequence;
  event.begin_ns = found.begin_ns;
  event.end_ns = found.end_ns;
  event.bytes_out = found.bytes_out;
  event.bytes_in = found.bytes_in;
  event.name = found.kind == MXS_EVENT_FAILURE ? ring.failure.c_str() : ring.names[found.name].c_str();
  event.algorithm = ring.names[found.algorithm].c_str();
  return event;
}

mxs_trace_rank rank_of(const Ring &ring) {
  mxs_trace_rank info = MXS_TRACE_RANK_INIT;
  info.rank = ring.rank;
  info.process = ring.process;
  info.alive = ring.alive;
  info.finished = ring.finished();
  info.event_count = ring.events.size();
  info.lost_count = ring.lost_count;
  info.last_operation = ring.last_operation;
  info.last_complete = ring.last_complete;
  info.host = ring.host.c_str();
  info.failure = ring.failure.c_str();
  return info;
}

}  // namespace

mxs_status mxs_trace_open(mxs_trace **trace, const char *const *paths, uint64_t path_count) {
  return fenced([&]() -> mxs_status {
    if (!trace) return no_trace();
    if (path_count < 1 || path_count > paths_most)
      return set_error(MXS_INVALID_ARGUMENT, "path_count is %llu, not from 1 to %llu",
                       static_cast<unsigned long long>(path_count), static_cast<unsigned long long>(paths_most));
    if (!paths) return set_error(MXS_INVALID_ARGUMENT, "paths is NULL");
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < path_count; ++i) {
      if (!paths[i] || !*paths[i])
        return set_error(MXS_INVALID_ARGUMENT, "paths[%llu] is NULL or empty", static_cast<unsigned long long>(i));
      texts.emplace_back(paths[i]);
    }
    auto made = std::make_unique<mxs_trace>();
    const mxs_status status = open_trace(&made->inner, texts);
    if (status == MXS_OK) *trace = made.release();
    return status;
  });
}

mxs_status mxs_trace_close(mxs_trace **trace) {
  if (!trace) return MXS_OK;
  delete *trace;
  *trace = nullptr;
  return MXS_OK;
}

int32_t mxs_trace_rank_count(const mxs_trace *trace) { return trace ? trace->inner.rank_count : 0; }

mxs_status mxs_trace_rank_at(const mxs_trace *trace, int32_t rank, mxs_trace_rank *info) {
  return fenced([&]() -> mxs_status {
    if (!trace) return no_trace();
    const mxs_status status = check_out_struct(info, sizeof *info, "info");
    if (status != MXS_OK) return status;
    if (rank < 0 || rank >= trace->inner.rank_count)
      return set_error(MXS_INVALID_ARGUMENT, "rank is %d, but the comm has %d ranks", rank, trace->inner.rank_count);
    const auto found = trace->inner.rings.find(rank);
    if (found == trace->inner.rings.end())
      return set_error(MXS_NOT_FOUND, "the ring of rank %d is not among those that were opened", rank);
    write_struct(rank_of(found->second), info);
    return MXS_OK;
  });
}

uint64_t mxs_trace_event_count(const mxs_trace *trace) { return trace ? trace->inner.order.size() : 0; }

mxs_status mxs_trace_event_at(const mxs_trace *trace, uint64_t index, mxs_trace_event *event) {
  return fenced([&]() -> mxs_status {
    if (!trace) return no_trace();
    const mxs_status status = check_out_struct(event, sizeof *event, "event");
    if (status != MXS_OK) return status;
    if (index >= trace->inner.order.size())
      return set_error(MXS_NOT_FOUND, "index is %llu, but there are %zu events",
                       static_cast<unsigned long long>(index), trace->inner.order.size());
    write_struct(event_of(trace->inner, trace->inner.order[index]), event);
    return MXS_OK;
  });
}

mxs_status mxs_trace_report(const mxs_trace *trace, char *text, size_t text_bytes, size_t *bytes_out) {
  return fenced([&]() -> mxs_status {
    if (!trace) return no_trace();
    if (!text && text_bytes > 0)
      return set_error(MXS_INVALID_ARGUMENT, "text is NULL, but text_bytes is %zu", text_bytes);
    const std::string report = report_of(trace->inner);
    if (text_bytes > 0) {
      const size_t bytes = std::min(report.size(), text_bytes - 1);
      std::memcpy(text, report.data(), bytes);
      text[bytes] = '\0';
    }
    if (bytes_out) *bytes_out = report.size() + 1;
    return MXS_OK;
  });
}

mxs_status mxs_trace_write(const mxs_trace *trace, const char *path) {
  return fenced([&]() -> mxs_status {
    if (!trace) return no_trace();
    if (!path || !*path) return set_error(MXS_INVALID_ARGUMENT, "path is NULL or empty");
    return write_timeline(trace->inner, path);
  });
}
