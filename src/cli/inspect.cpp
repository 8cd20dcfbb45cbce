// SPDX-License-Identifier: Apache-2.0
// mxs inspect: what the rings of a job's ranks tell, while it runs or after its end.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/checkpoint_commands.hpp"
#include "cli/commands.hpp"
#include "cli/json_writer.hpp"
#include "cli/option_words.hpp"
#include "cli/table.hpp"
#include "matrixshard/trace.h"

namespace mxs_cli {

namespace {

constexpr int status_trouble = 1;

struct Request {
  std::vector<std::string> paths;
  std::string timeline;
  int32_t event_count = 0;
  bool json = false;
};

struct TraceHandle {
  mxs_trace *value = nullptr;
  ~TraceHandle() { mxs_trace_close(&value); }
};

std::string read_words(Words words, Request *request) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("-")) {
      request->paths.push_back(words[i]);
      continue;
    }
    if (words[i] == "--json") {
      request->json = true;
      continue;
    }
    std::string name = words[i], value;
    std::string complaint = take_value(words, &i, &name, &value);
    if (name != "--timeline" && name != "--events") return "there is no option " + in_quotes(name);
    if (complaint.empty() && name == "--timeline") complaint = read_text(name, value, &request->timeline);
    if (complaint.empty() && name == "--events") complaint = read_count(name, value, 1, &request->event_count);
    if (!complaint.empty()) return complaint;
  }
  return request->paths.empty() ? "a folder or files of rings are missing" : "";
}

std::string report_text(const mxs_trace *trace) {
  size_t bytes = 0;
  if (mxs_trace_report(trace, nullptr, 0, &bytes) != MXS_OK) return mxs_last_error();
  std::string text(bytes, '\0');
  mxs_trace_report(trace, text.data(), bytes, nullptr);
  text.pop_back();
  return text;
}

// By the first word of the report, as docs/tracing.md has it.
std::string verdict_of(const std::string &report) {
  for (const char *word : {"Stuck", "Failed", "Died"})
    if (report.starts_with(word)) return word;
  return report.starts_with("Nothing is stuck") ? "Fine" : "Unknown";
}

std::vector<mxs_trace_event> latest_events(const mxs_trace *trace, int32_t count) {
  const uint64_t all = mxs_trace_event_count(trace);
  std::vector<mxs_trace_event> events;
  for (uint64_t index = all - std::min<uint64_t>(all, static_cast<uint64_t>(count)); index < all; ++index) {
    mxs_trace_event event = MXS_TRACE_EVENT_INIT;
    if (mxs_trace_event_at(trace, index, &event) == MXS_OK) events.push_back(event);
  }
  return events;
}

const char *kind_name(int32_t kind) {
  constexpr const char *names[] = {"operation", "wait", "agreement", "step", "failure", "mark"};
  return kind >= 0 && kind <= MXS_EVENT_MARK ? names[kind] : "?";
}

std::string milliseconds(uint64_t time_ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(time_ns) * 1e-6);
  return text;
}

// Times count from the first event that is shown.
std::string event_table(const std::vector<mxs_trace_event> &events) {
  Table table({">ms", ">rank", "kind", "name", ">unit", ">number", ">lasted ms", ">peer", ">out", ">in", "algorithm"});
  const auto number = [](int64_t value, bool there) { return there ? std::to_string(value) : std::string(); };
  for (const mxs_trace_event &event : events) {
    const std::string lasted =
        event.end_ns == UINT64_MAX ? "not over" : milliseconds(event.end_ns - event.begin_ns);
    table.add({milliseconds(event.begin_ns - events[0].begin_ns), std::to_string(event.rank), kind_name(event.kind),
               std::string(event.name).substr(0, 60), number(event.unit, event.unit >= 0),
               number(static_cast<int64_t>(event.sequence), event.sequence != 0), lasted,
               number(event.peer, event.peer >= 0), number(static_cast<int64_t>(event.bytes_out), event.bytes_out != 0),
               number(static_cast<int64_t>(event.bytes_in), event.bytes_in != 0), event.algorithm});
  }
  return table.text();
}

void add_ranks(const mxs_trace *trace, JsonText *json) {
  json->key("ranks").open('[');
  for (int32_t rank = 0; rank < mxs_trace_rank_count(trace); ++rank) {
    mxs_trace_rank info = MXS_TRACE_RANK_INIT;
    if (mxs_trace_rank_at(trace, rank, &info) != MXS_OK) continue;
    json->open('{').add("rank", static_cast<uint64_t>(rank)).add("host", info.host);
    json->add_signed("process", info.process);
    json->key("alive");
    if (info.alive < 0) json->real(std::nan(""));  // null: not to be told from here
    else json->truth(info.alive == 1);
    json->add_truth("finished", info.finished != 0).add("failure", info.failure);
    json->add("last_operation", info.last_operation).add("last_complete", info.last_complete);
    json->add("events", info.event_count).add("lost_events", info.lost_count).close('}');
  }
  json->close(']');
}

void add_events(const std::vector<mxs_trace_event> &events, JsonText *json) {
  json->key("events").open('[');
  for (const mxs_trace_event &event : events) {
    json->open('{').add_signed("rank", event.rank).add("kind", kind_name(event.kind)).add("name", event.name);
    json->add_signed("peer", event.peer).add_signed("unit", event.unit).add_signed("phase", event.phase);
    json->add("sequence", event.sequence).add("begin_ns", event.begin_ns).key("end_ns");
    if (event.end_ns == UINT64_MAX) json->real(std::nan(""));  // null: not over
    else json->number(event.end_ns);
    json->add("bytes_out", event.bytes_out).add("bytes_in", event.bytes_in);
    json->add("algorithm", event.algorithm).close('}');
  }
  json->close(']');
}

std::string as_json(const mxs_trace *trace, const Request &request, const std::string &report) {
  JsonText json;
  json.open('{').add("verdict", verdict_of(report)).add("report", report);
  json.add("rank_count", static_cast<uint64_t>(mxs_trace_rank_count(trace)));
  add_ranks(trace, &json);
  if (request.event_count) add_events(latest_events(trace, request.event_count), &json);
  return json.close('}').take() + "\n";
}

}  // namespace

int inspect(const Words &words) {
  Request request;
  const std::string complaint = read_words(words, &request);
  if (!complaint.empty()) return bad_use("inspect", complaint);
  std::vector<const char *> paths;
  for (const std::string &path : request.paths) paths.push_back(path.c_str());
  TraceHandle trace;
  if (mxs_trace_open(&trace.value, paths.data(), paths.size()) != MXS_OK)
    return failed("inspect", mxs_last_error(), status_bad_use);
  if (!request.timeline.empty() && mxs_trace_write(trace.value, request.timeline.c_str()) != MXS_OK)
    return failed("inspect", mxs_last_error(), status_bad_use);
  const std::string report = report_text(trace.value);
  if (request.json) {
    print_text(as_json(trace.value, request, report));
  } else {
    print_text(report);
    if (request.event_count) {
      print_text("\n");
      print_text(event_table(latest_events(trace.value, request.event_count)));
    }
  }
  return verdict_of(report) == "Fine" ? 0 : status_trouble;
}

}  // namespace mxs_cli
