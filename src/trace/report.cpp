// SPDX-License-Identifier: Apache-2.0
#include "trace/report.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <tuple>

#include "trace/verdict.hpp"

namespace mxs {

namespace {

constexpr uint64_t telling_ns = 200'000'000;  // waits show life every 50 ms: less than this tells nothing
constexpr size_t ranks_named = 8, lines_most = 64, waits_told = 5;

std::string number(uint64_t value) { return std::to_string(value); }

template <class Ranks>
std::string ranks_text(const Ranks &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t count = 0;
  for (const int rank : ranks) {
    const bool last = ++count == ranks.size();
    if (count > ranks_named) return text + ", ... (" + number(ranks.size()) + " in all)";
    text += (count == 1 ? "" : last ? " and " : ", ") + std::to_string(rank);
  }
  return text;
}

template <class Ranks>
const char *verb(const Ranks &ranks, const char *of_one, const char *of_many) {
  return ranks.size() == 1 ? of_one : of_many;
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string duration(uint64_t time_ns) {
  char text[40];
  const double seconds = static_cast<double>(time_ns) * 1e-9;
  if (seconds >= 100) std::snprintf(text, sizeof text, "%.0f s", seconds);
  else if (seconds >= 1) std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (seconds >= 1e-3) std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  else std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  return text;
}

std::string bytes_text(uint64_t bytes) {
  char text[40];
  const double value = static_cast<double>(bytes);
  if (value >= 1e9) std::snprintf(text, sizeof text, "%.2f GB", value * 1e-9);
  else if (value >= 1e6) std::snprintf(text, sizeof text, "%.2f MB", value * 1e-6);
  else if (value >= 1e3) std::snprintf(text, sizeof text, "%.1f kB", value * 1e-3);
  else std::snprintf(text, sizeof text, "%" PRIu64 " bytes", bytes);
  return text;
}

// "gather of unit 3 (operation 17)", "barrier (agreement 5)", "update of step 12"
std::string what(const Ring &ring, const RingEvent &event) {
  const std::string &name = ring.names[event.name];
  if (event.kind == MXS_EVENT_STEP) return "update of step " + number(event.sequence);
  std::string text = name.empty() ? "call" : name;
  if (event.kind == MXS_EVENT_AGREEMENT && (name == "agreement" || name == "step"))
    return (name == "step" ? "the step's agreement " : "agreement ") + number(event.sequence);
  if (event.unit >= 0) text += " of unit " + std::to_string(event.unit);
  if (event.sequence == 0) return text;
  return text + (event.kind == MXS_EVENT_AGREEMENT ? " (agreement " : " (operation ") + number(event.sequence) + ")";
}

class Report {
 public:
  explicit Report(const Trace &trace) : trace_(trace), verdict_(judge(trace)) {}

  std::string text() {
    headline();
    for (const int rank : verdict_.culprits) lines_ += culprit_line(rank);
    cycle();
    missing();
    ranks();
    totals();
    longest_waits();
    return lines_;
  }

 private:
  const Ring &ring(int rank) const { return trace_.rings.at(rank); }
  uint64_t ago(uint64_t time_ns) const { return trace_.end_ns() > time_ns ? trace_.end_ns() - time_ns : 0; }

  void headline() {
    if (!verdict_.failed.empty()) return failed();
    if (!verdict_.dead.empty()) return died();
    if (!verdict_.waiting.empty()) return stuck();
    const bool all_finished = std::all_of(trace_.rings.begin(), trace_.rings.end(),
                                          [](const auto &entry) { return entry.second.finished(); });
    const bool all = all_finished && verdict_.missing.empty();
    lines_ += all ? "Nothing is stuck: all " + std::to_string(trace_.rank_count) + " ranks have destroyed the comm.\n"
                  : "Nothing is stuck: no rank waits for long, has failed or died.\n";
  }

  void failed() {
    const int first = verdict_.failed[0];
    lines_ += "Failed: " + std::string("rank ") + std::to_string(first) + " ran into it first, " +
              duration(ago(ring(first).failure_ns)) + " before the end of this trace: " + ring(first).failure + "\n";
    if (!verdict_.dead.empty()) lines_ += "  " + capital(dead_text()) + "\n";
  }

  void died() { lines_ += "Died: " + dead_text() + "\n"; }

  std::string dead_text() const {
    std::string text = ranks_text(std::set<int>(verdict_.dead.begin(), verdict_.dead.end())) +
                       " ended without destroying the comm: killed, crashed, or left early";
    const Ring &first = ring(verdict_.dead[0]);
    const uint64_t apart = ago(first.latest_ns);
    if (verdict_.dead.size() == 1)
      text += "; its last sign of life came " + duration(apart) + " before the end of this trace, and it " +
              whereabouts(first);
    else if (apart > telling_ns)
      text += "; the first without a sign of life was rank " + std::to_string(first.rank) + ", " + duration(apart) +
              " before the end of this trace";
    return text + ".";
  }

  // All wait for the culprits, some by way of others.
  void stuck() {
    std::vector<int> patient;
    uint64_t longest_ns = 0;
    const Waiting *where = nullptr;
    int witness = -1;
    for (const auto &[rank, waiting] : verdict_.waiting) {
      if (verdict_.culprits.count(rank)) continue;
      patient.push_back(rank);
      longest_ns = std::max(longest_ns, waiting.since_ns);
      if (!where || waiting.event->begin_ns < where->event->begin_ns) {
        where = &waiting;
        witness = rank;
      }
    }
    if (verdict_.culprits.empty() || patient.empty()) {
      lines_ += "Stuck: " + ranks_text(patient) + verb(patient, " waits", " wait") + " since " + duration(longest_ns) +
                ", and no single rank is to blame.\n";
      return;
    }
    lines_ += "Stuck: " + ranks_text(verdict_.culprits) + verb(verdict_.culprits, " lags; ", " lag; ") +
              ranks_text(patient) + verb(patient, " waits", " wait") + " since " + duration(longest_ns) + " in " +
              what(ring(witness), *where->event) + ".\n";
  }

  std::string state_of_process(const Ring &ring) const {
    if (ring.finished()) return "has destroyed the comm";
    if (ring.alive == 0) return "has ended";
    if (ring.stopped) return "is stopped (by a signal or a debugger)";
    if (verdict_.silent.count(ring.rank)) return "has shown no life for " + duration(ago(ring.seen_ns));
    return ring.alive == 1 ? "runs" : "can't be asked for from this machine";
  }

  // What it has not come to, and where it is instead.
  std::string culprit_line(int rank) const {
    const auto found = trace_.rings.find(rank);
    if (found == trace_.rings.end()) return "  Rank " + std::to_string(rank) + " has no ring here.\n";
    const Ring &late = found->second;
    std::string text = "  Rank " + std::to_string(rank);
    std::set<std::string> told;
    for (const auto &[other, waiting] : verdict_.waiting) {
      if (!waiting.missed.count(rank)) continue;
      const RingEvent &event = *waiting.event;
      const bool agrees = event.kind == MXS_EVENT_AGREEMENT;
      const bool here = event.sequence == 0 || (agrees ? late.last_agreement : late.last_operation) >= event.sequence;
      told.insert((here ? "is needed in " : "has not come to ") + what(ring(other), event));
    }
    size_t count = 0;
    for (const std::string &sentence : told) {
      if (++count > ranks_named) break;
      text += (count == 1 ? " " : ", ") + sentence;
    }
    return text + ". Its process " + state_of_process(late) + "; it " + whereabouts(late) + ".\n";
  }

  std::string whereabouts(const Ring &ring) const {
    const RingEvent *const wait = latest_open(ring, true), *const other = latest_open(ring, false);
    const bool ended = ring.alive == 0;
    if (wait) {
      std::string text = std::string(ended ? "was" : "is") + " in " + what(ring, *wait);
      if (wait->peer >= 0) text += ", waiting for rank " + std::to_string(wait->peer);
      return text + (ended ? "" : ", since " + duration(ago(wait->begin_ns)));
    }
    if (other && other->kind == MXS_EVENT_STEP)
      return std::string(ended ? "was" : "is") + " in the " + what(ring, *other) +
             (ended ? "" : ", since " + duration(ago(other->begin_ns)));
    const RingEvent *const latest = latest_deed(ring);
    if (!latest) return "has done nothing yet";
    if (latest == other)
      return "last began " + what(ring, *other) + ", " + duration(ago(other->begin_ns)) +
             " before the end of this trace; it is not over";
    const std::string text =
        "was last in " + what(ring, *latest) + ", " + duration(ago(latest->end_ns)) + " before the end of this trace";
    return text + (other ? "; not over: " + what(ring, *other) : "");
  }

  // Of what a rank does; a failure or a mark is none, but for a rank that has nothing else.
  static const RingEvent *latest_deed(const Ring &ring) {
    const RingEvent *mark = nullptr;
    for (auto event = ring.events.rbegin(); event != ring.events.rend(); ++event) {
      if (event->kind != MXS_EVENT_FAILURE && event->kind != MXS_EVENT_MARK) return &*event;
      if (event->kind == MXS_EVENT_MARK && !mark) mark = &*event;
    }
    return mark;
  }

  void cycle() {
    if (!verdict_.culprits.empty() || !verdict_.failed.empty()) return;
    size_t count = 0;
    for (const auto &[rank, waiting] : verdict_.waiting) {
      if (++count > lines_most) break;
      lines_ += "  Rank " + std::to_string(rank) + " waits in " + what(ring(rank), *waiting.event);
      lines_ += waiting.missed.empty() ? ".\n" : ", for " + ranks_text(waiting.missed) + ".\n";
    }
    fewest();
  }

  // Where all wait for each other, whoever is behind may be the first that had to wait, or was killed.
  void fewest() {
    std::set<int> behind;
    uint64_t least = UINT64_MAX;
    for (const auto &[rank, waiting] : verdict_.waiting) {
      const uint64_t complete = ring(rank).last_complete;
      if (complete < least) behind.clear();
      least = std::min(least, complete);
      if (complete == least) behind.insert(rank);
    }
    if (behind.empty() || behind.size() == verdict_.waiting.size()) return;
    lines_ += "  Behind the others: " + ranks_text(behind) + ", with " + number(least) + " operations complete.\n";
  }

  void missing() {
    if (verdict_.missing.empty()) return;
    lines_ += "  " + capital(ranks_text(verdict_.missing)) + verb(verdict_.missing, " has", " have") +
              " no ring here: give its file or folder too, or look whether it was traced.\n";
  }

  void ranks() {
    char comm[64];
    std::snprintf(comm, sizeof comm, "%08" PRIx32 " of job %08" PRIx32,
                  static_cast<uint32_t>(trace_.rings.begin()->second.comm),
                  static_cast<uint32_t>(trace_.rings.begin()->second.job));
    lines_ += "\nComm " + std::string(comm) + ", " + std::to_string(trace_.rank_count) +
              (trace_.rank_count == 1 ? " rank\n" : " ranks\n");
    size_t count = 0;
    for (const auto &[rank, ring] : trace_.rings) {
      if (++count > lines_most) {
        lines_ += "  ... " + number(trace_.rings.size() - lines_most) + " more\n";
        break;
      }
      lines_ += "  rank " + std::to_string(rank) + ": process " + std::to_string(ring.process) + " on " + ring.host +
                " " + state_of_process(ring) + "; started " + number(ring.last_operation) + " operations, " +
                number(ring.last_complete) + " complete" + (ring.finished() ? "" : "; " + whereabouts(ring)) + "\n";
      if (ring.failed()) lines_ += "    failed: " + ring.failure + "\n";
      if (ring.lost_count)
        lines_ += "    " + number(ring.lost_count) + " older events were overwritten (MXS_RING_EVENTS makes room)\n";
      if (ring.clock_uncertainty_ns)
        lines_ += "    its clock is compared with rank 0's within " + duration(ring.clock_uncertainty_ns) + "\n";
    }
  }

  void totals() {
    struct Total {
      uint64_t count = 0, time_ns = 0, out = 0, in = 0;
    };
    std::map<std::tuple<int, std::string, std::string>, Total> kinds;
    std::map<int, uint64_t> waited;
    for (const auto &[rank, ring] : trace_.rings)
      for (const RingEvent &event : ring.events) {
        const uint64_t time_ns = event.open() ? ago(event.begin_ns) : event.end_ns - event.begin_ns;
        if (event.kind == MXS_EVENT_WAIT || event.kind == MXS_EVENT_AGREEMENT) waited[rank] += time_ns;
        if (event.kind > MXS_EVENT_STEP || event.kind == MXS_EVENT_WAIT) continue;
        const bool agrees = event.kind == MXS_EVENT_AGREEMENT && ring.names[event.name] == "step";
        const std::string name = agrees ? "step's agreement" : ring.names[event.name];
        Total &total = kinds[{event.kind, name, ring.names[event.algorithm]}];
        ++total.count;
        total.time_ns += time_ns;
        total.out += event.bytes_out;
        total.in += event.bytes_in;
      }
    if (kinds.empty()) return;
    lines_ += "\nIn the rings, over all ranks\n";
    size_t count = 0;
    for (const auto &[key, total] : kinds) {
      if (++count > lines_most) break;
      const std::string &algorithm = std::get<2>(key);
      lines_ += "  " + number(total.count) + " x " + std::get<1>(key) + (algorithm.empty() ? "" : " by " + algorithm) +
                ": " + duration(total.time_ns / total.count) + " on average";
      lines_ += total.out + total.in ? ", " + bytes_text(total.out) + " out, " + bytes_text(total.in) + " in\n" : "\n";
    }
    lines_ += "  waited:";
    count = 0;
    for (const auto &[rank, time_ns] : waited) {
      if (++count > lines_most) break;
      lines_ += (count == 1 ? " rank " : ", rank ") + std::to_string(rank) + " " + duration(time_ns);
    }
    lines_ += waited.empty() ? " nobody\n" : "\n";
  }

  void longest_waits() {
    std::vector<std::pair<uint64_t, Trace::Place>> waits;
    for (const Trace::Place &place : trace_.order) {
      const RingEvent &event = trace_.event(place);
      if (event.kind != MXS_EVENT_WAIT && event.kind != MXS_EVENT_AGREEMENT) continue;
      waits.emplace_back(event.open() ? ago(event.begin_ns) : event.end_ns - event.begin_ns, place);
    }
    const size_t told = std::min(waits.size(), waits_told);
    std::partial_sort(waits.begin(), waits.begin() + static_cast<ptrdiff_t>(told), waits.end(),
                      [](const auto &a, const auto &b) { return a.first > b.first; });
    if (told) lines_ += "\nLongest waits\n";
    for (size_t i = 0; i < told; ++i) {
      const RingEvent &event = trace_.event(waits[i].second);
      const Ring &waiter = ring(waits[i].second.rank);
      lines_ += "  " + duration(waits[i].first) + ": rank " + std::to_string(waiter.rank) + " in " +
                what(waiter, event);
      lines_ += event.peer >= 0 ? ", for rank " + std::to_string(event.peer) + " at last" : "";
      lines_ += event.open() ? ", not over\n" : "\n";
    }
  }

  const Trace &trace_;
  const Verdict verdict_;
  std::string lines_;
};

}  // namespace

std::string report_of(const Trace &trace) { return trace.rings.empty() ? "There is no ring.\n" : Report(trace).text(); }

}  // namespace mxs
