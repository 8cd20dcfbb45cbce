// SPDX-License-Identifier: Apache-2.0
// One process of the viewer per rank, and in it tracks:
//
//   operations        |-- gather 17 --|  |-- reduce 19 --|
//   operations 2         |-- gather 18 ------|               what overlaps goes to the next track, because a viewer
//   agreements                                  |-|          draws events of one track inside each other
//   waits             |-|             |---|
//   steps                                          |----|
//
// Marks and failures are instants. Times are microseconds on rank 0's clock; what was not over ends where the trace
// does, and says so.
#include "trace/timeline.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/status.hpp"

namespace mxs {

namespace {

// Text into a descriptor, in pieces.
class Output {
 public:
  explicit Output(int file) : file_(file) {}
  void add(const std::string &text) {
    text_ += text;
    if (text_.size() >= size_t{1} << 20) flush();
  }
  // 0, or the errno of the first failure.
  int flush() {
    for (size_t done = 0; error_ == 0 && done < text_.size();) {
      const ssize_t part = write(file_, text_.data() + done, text_.size() - done);
      if (part < 0 && errno == EINTR) continue;
      if (part < 0) error_ = errno;
      else done += static_cast<size_t>(part);
    }
    text_.clear();
    return error_;
  }

 private:
  const int file_;
  std::string text_;
  int error_ = 0;
};

// The texts of a ring are printable already.
std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + "\"";
}

std::string microseconds(uint64_t time_ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%" PRIu64 ".%03u", time_ns / 1000, static_cast<unsigned>(time_ns % 1000));
  return text;
}

constexpr const char *phases[] = {"other", "forward", "backward", "step"};

struct Track {
  const char *name;
  int first;  // its number; those that overlap go to the next ones
};
constexpr int tracks_apart = 100;

Track track_of(int kind) {
  switch (kind) {
    case MXS_EVENT_OPERATION: return {"operations", 1 * tracks_apart};
    case MXS_EVENT_AGREEMENT: return {"agreements", 2 * tracks_apart};
    case MXS_EVENT_WAIT: return {"waits", 3 * tracks_apart};
    case MXS_EVENT_STEP: return {"steps", 4 * tracks_apart};
    default: return {"marks", 5 * tracks_apart};
  }
}

class RankTimeline {
 public:
  RankTimeline(const Ring &ring, uint64_t end_ns, Output *output) : ring_(ring), end_ns_(end_ns), output_(*output) {}

  void write() {
    const std::string process = ring_.process ? " (process " + std::to_string(ring_.process) + " on " + ring_.host + ")"
                                              : "";
    name("process_name", 0, "rank " + std::to_string(ring_.rank) + process);
    add("{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": " + std::to_string(ring_.rank) +
        ", \"args\": {\"sort_index\": " + std::to_string(ring_.rank) + "}}");
    for (const RingEvent &event : ring_.events) write(event);
    if (ring_.failed()) instant("failure: " + ring_.failure, ring_.failure_ns, track_of(MXS_EVENT_FAILURE).first, "");
  }
  bool empty() const { return first_; }
  void go_on_after(bool first) { first_ = first; }

 private:
  void add(const std::string &object) {
    output_.add((first_ ? "\n" : ",\n") + object);
    first_ = false;
  }
  void name(const char *what, int track, const std::string &text) {
    add(std::string("{\"ph\": \"M\", \"name\": \"") + what + "\", \"pid\": " + std::to_string(ring_.rank) +
        (track ? ", \"tid\": " + std::to_string(track) : "") + ", \"args\": {\"name\": " + quoted(text) + "}}");
  }

  // The first track of its kind that is free when it begins, or the last: a viewer has no use for more of them, and to
  // look through more would take the square of a ring's events where a forger lets all of them overlap.
  int place(const RingEvent &event, uint64_t end_ns) {
    const Track track = track_of(event.kind);
    std::vector<uint64_t> &ends = ends_[track.first];
    size_t number = 0;
    while (number < ends.size() && number + 1 < size_t{tracks_apart} && ends[number] > event.begin_ns) ++number;
    const int id = track.first + static_cast<int>(number);
    if (number == ends.size()) {
      ends.push_back(0);
      std::string title = track.name;
      if (number) title.append(" ").append(std::to_string(number + 1));
      name("thread_name", id, title);
    }
    ends[number] = std::max(ends[number], end_ns);
    return id;
  }

  std::string arguments(const RingEvent &event) const {
    std::string text = "\"phase\": \"" + std::string(phases[event.phase]) + "\"";
    const auto number = [&](const char *key, uint64_t value) {
      text += std::string(", \"") + key + "\": " + std::to_string(value);
    };
    if (event.sequence) number("sequence", event.sequence);
    if (event.unit >= 0) number("unit", static_cast<uint64_t>(event.unit));
    if (event.peer >= 0) number("peer", static_cast<uint64_t>(event.peer));
    if (event.bytes_out) number("bytes_out", event.bytes_out);
    if (event.bytes_in) number("bytes_in", event.bytes_in);
    if (event.algorithm) text += ", \"algorithm\": " + quoted(ring_.names[event.algorithm]);
    if (event.open()) text += ", \"open\": true";
    return text;
  }

  void instant(const std::string &text, uint64_t time_ns, int track, const std::string &arguments) {
    add("{\"ph\": \"i\", \"s\": \"p\", \"name\": " + quoted(text) + ", \"pid\": " + std::to_string(ring_.rank) +
        ", \"tid\": " + std::to_string(track) + ", \"ts\": " + microseconds(time_ns) + ", \"args\": {" + arguments +
        "}}");
  }

  void write(const RingEvent &event) {
    if (event.kind == MXS_EVENT_FAILURE) return;
    const std::string &named = ring_.names[event.name];
    std::string title = named.empty() ? "event" : named;
    if (event.kind == MXS_EVENT_MARK && event.begin_ns == event.end_ns)
      return instant(title, event.begin_ns, place(event, event.begin_ns), arguments(event));
    if (event.kind == MXS_EVENT_WAIT) title = "wait: " + title;
    if (event.kind == MXS_EVENT_OPERATION && event.unit >= 0) title += " unit " + std::to_string(event.unit);
    if (event.open()) title += " (not over)";
    const uint64_t end_ns = std::max(event.begin_ns, event.open() ? end_ns_ : event.end_ns);
    const int track = place(event, end_ns);
    add("{\"ph\": \"X\", \"name\": " + quoted(title) + ", \"cat\": \"" + track_of(event.kind).name + "\", \"pid\": " +
        std::to_string(ring_.rank) + ", \"tid\": " + std::to_string(track) + ", \"ts\": " +
        microseconds(event.begin_ns) + ", \"dur\": " + microseconds(end_ns - event.begin_ns) +
        (event.open() ? ", \"cname\": \"terrible\"" : "") + ", \"args\": {" + arguments(event) + "}}");
  }

  const Ring &ring_;
  const uint64_t end_ns_;
  Output &output_;
  bool first_ = true;
  std::map<int, std::vector<uint64_t>> ends_;  // of tracks, by the first's number
};

void write_trace(const Trace &trace, Output *output) {
  char comm[40];
  std::snprintf(comm, sizeof comm, "%016" PRIx64, trace.rings.empty() ? 0 : trace.rings.begin()->second.comm);
  output->add("{\"displayTimeUnit\": \"ns\", \"otherData\": {\"program\": \"matrixshard\", \"comm\": \"" +
              std::string(comm) + "\", \"ranks\": \"" + std::to_string(trace.rank_count) + "\"},\n\"traceEvents\": [");
  bool first = true;
  for (const auto &[rank, ring] : trace.rings) {
    RankTimeline timeline(ring, trace.end_ns(), output);
    timeline.go_on_after(first);
    timeline.write();
    first = timeline.empty();
  }
  output->add("\n]}\n");
}

mxs_status cannot(const std::string &path, int error) {
  return set_error(MXS_SYSTEM, "the timeline %.500s can't be written: %s", path.c_str(), std::strerror(error));
}

}  // namespace

mxs_status write_timeline(const Trace &trace, const std::string &path) {
  struct stat found {};
  const bool special = stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);  // a pipe, /dev/stdout
  const std::string making = special ? path : path + ".making";
  const int file = open(making.c_str(), O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC), 0644);
  if (file < 0) return cannot(making, errno);
  Output output(file);
  write_trace(trace, &output);
  int error = output.flush();
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && !special && rename(making.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0 && !special) unlink(making.c_str());
  return error == 0 ? MXS_OK : cannot(path, error);
}

}  // namespace mxs
