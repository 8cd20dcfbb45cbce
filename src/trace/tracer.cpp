// SPDX-License-Identifier: Apache-2.0
#include "trace/tracer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "trace/process_state.hpp"
#include "trace/timeline.hpp"

namespace mxs {

namespace {

std::atomic<uint64_t> generation{1};  // grows in each forked child

uint64_t this_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

uint64_t unix_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

mxs_status make_folder(const std::string &folder, const char *variable) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return MXS_OK;
  return set_error(MXS_SYSTEM, "the folder %.500s of %s can't be made: %s", folder.c_str(), variable,
                   error.message().c_str());
}

std::string stem_of(const TraceIdentity &identity) {
  char text[80];
  std::snprintf(text, sizeof text, "%08" PRIx32 ".comm-%08" PRIx32 ".rank-%d", static_cast<uint32_t>(identity.job),
                static_cast<uint32_t>(identity.comm), identity.rank);
  return text;
}

void copy_text(char *target, size_t room, const char *text) {
  const size_t bytes = std::min(std::strlen(text), room - 1);
  std::memcpy(target, text, bytes);
  target[bytes] = '\0';
}

}  // namespace

// With both variables the rings go where MXS_RING says.
mxs_status read_trace_settings(TraceSettings *settings) {
  settings->timeline_folder = environment_text("MXS_TRACE").value_or("");
  settings->ring_folder = environment_text("MXS_RING").value_or(settings->timeline_folder);
  int64_t count = ring_events_chosen;
  const mxs_status status = environment_number("MXS_RING_EVENTS", ring_events_least, ring_events_most, &count);
  settings->event_count = static_cast<uint64_t>(count);
  return status;
}

// ---- make ----

mxs_status Tracer::create(std::unique_ptr<Tracer> *result, const TraceSettings &settings,
                          const TraceIdentity &identity) {
  std::unique_ptr<Tracer> tracer(new Tracer);
  mxs_status status = make_folder(settings.ring_folder, "MXS_TRACE or MXS_RING");
  const bool timeline = !settings.timeline_folder.empty();
  if (status == MXS_OK && timeline) status = make_folder(settings.timeline_folder, "MXS_TRACE");
  if (status == MXS_OK) status = tracer->make_file(settings, identity);
  if (status == MXS_OK) *result = std::move(tracer);
  return status;
}

// Under another name until its header is there: nobody reads half a ring.
mxs_status Tracer::make_file(const TraceSettings &settings, const TraceIdentity &identity) {
  generation_ = this_generation();
  capacity_ = settings.event_count;
  const std::string stem = stem_of(identity);
  const std::string path = settings.ring_folder + "/" + stem + ".ring", making = path + ".making";
  const int file = open(making.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0)
    return set_error(MXS_SYSTEM, "the trace's ring %.500s can't be made: %s", making.c_str(), std::strerror(errno));
  mxs_status status = map_file(file, making, ring_header_bytes + capacity_ * sizeof(RingRecord));
  close(file);
  if (status == MXS_OK) {
    fill_header(settings, identity);
    if (rename(making.c_str(), path.c_str()) != 0)
      status = set_error(MXS_SYSTEM, "the trace's ring can't be renamed to %.500s: %s", path.c_str(),
                         std::strerror(errno));
  }
  if (status != MXS_OK) {
    unlink(making.c_str());
    generation_ = 0;  // nothing is to be said at the end
    return status;
  }
  ring_path_ = path;
  if (!settings.timeline_folder.empty()) timeline_path_ = settings.timeline_folder + "/" + stem + ".json";
  return MXS_OK;
}

// A store into a page that the disk has no room for would be a SIGBUS.
mxs_status Tracer::map_file(int file, const std::string &path, uint64_t bytes) {
  const int full = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (full != 0)
    return set_error(MXS_SYSTEM, "the trace's ring %.500s of %" PRIu64 " bytes can't be made: %s. MXS_RING_EVENTS "
                     "makes it smaller", path.c_str(), bytes, std::strerror(full));
  void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED)
    return set_error(MXS_SYSTEM, "the trace's ring %.500s can't be mapped: %s", path.c_str(), std::strerror(errno));
  mapped_bytes_ = bytes;
  header_ = static_cast<RingHeader *>(memory);
  records_ = reinterpret_cast<RingRecord *>(static_cast<std::byte *>(memory) + ring_header_bytes);
  // So that the first events fault no page.
  for (uint64_t number = 0; number < capacity_; number += 4096 / sizeof(RingRecord)) records_[number].ticket = 0;
  return MXS_OK;
}

void Tracer::fill_header(const TraceSettings &settings, const TraceIdentity &identity) {
  std::memcpy(header_->magic, ring_magic, sizeof ring_magic);
  header_->version = ring_version;
  header_->header_bytes = ring_header_bytes;
  header_->record_bytes = sizeof(RingRecord);
  header_->name_bytes = ring_name_bytes;
  header_->capacity = settings.event_count;
  header_->job = identity.job;
  header_->comm = identity.comm;
  const KnownProcess process = this_process();
  header_->machine = process.machine;
  header_->rank = identity.rank;
  header_->rank_count = identity.rank_count;
  header_->process = static_cast<int32_t>(process.id);
  header_->process_start = process.start;
  header_->created_ns = now_ns();
  header_->created_unix_ns = unix_ns();
  header_->clock_offset_ns = identity.clock_offset_ns;
  header_->clock_uncertainty_ns = identity.clock_uncertainty_ns;
  copy_text(header_->host, sizeof header_->host, host_name().c_str());
  header_->name_count = 1;
  for (const char *text : {"gather", "reduce", "reshard", "agreement", "barrier", "sum", "step"}) name(text);
}

// ---- write ----

bool Tracer::ours() const { return generation_ == generation.load(std::memory_order_relaxed); }

// The ticket is taken away first and put back last: whoever looks meanwhile, or after a kill in between, finds no
// event. Stores with release keep this order for processes that share the page. Two writers meet in one record only if
// one of them is a whole ring behind; the check tells what comes of that.
uint64_t Tracer::write(const TraceEvent &event, uint64_t end_ns) {
  if (!ours()) return 0;
  const uint64_t number = std::atomic_ref(header_->next).fetch_add(1, std::memory_order_relaxed);
  RingRecord whole;
  whole.ticket = number + 1;
  whole.begin_ns = event.begin_ns ? event.begin_ns : now_ns();
  whole.end_ns = end_ns == 0 ? whole.begin_ns : end_ns;
  whole.sequence = event.sequence;
  whole.bytes_out = event.bytes_out;
  whole.bytes_in = event.bytes_in;
  whole.what = static_cast<uint64_t>(static_cast<uint32_t>(event.unit + 1)) << 32 | uint64_t{event.algorithm} << 24 |
               uint64_t{event.name} << 16 | static_cast<uint64_t>(event.phase & 255) << 8 |
               static_cast<uint64_t>(event.kind & 255);
  whole.peer = static_cast<uint64_t>(static_cast<uint32_t>(event.peer + 1)) << 32 | ring_check(whole);
  RingRecord &place = record(number);
  constexpr auto release = std::memory_order_release;
  std::atomic_ref(place.ticket).store(0, std::memory_order_relaxed);
  std::atomic_ref(place.begin_ns).store(whole.begin_ns, release);
  std::atomic_ref(place.end_ns).store(whole.end_ns, release);
  std::atomic_ref(place.sequence).store(whole.sequence, release);
  std::atomic_ref(place.bytes_out).store(whole.bytes_out, release);
  std::atomic_ref(place.bytes_in).store(whole.bytes_in, release);
  std::atomic_ref(place.what).store(whole.what, release);
  std::atomic_ref(place.peer).store(whole.peer, release);
  std::atomic_ref(place.ticket).store(whole.ticket, release);
  return whole.ticket;
}

// An event that was overwritten meanwhile has no end any more.
void Tracer::end(uint64_t ticket, uint64_t end_ns) {
  if (ticket == 0 || !ours()) return;
  RingRecord &place = record(ticket - 1);
  if (std::atomic_ref(place.ticket).load(std::memory_order_relaxed) == ticket)
    std::atomic_ref(place.end_ns).store(end_ns, std::memory_order_release);
}

void Tracer::wait_for(uint64_t ticket, int peer) {
  if (ticket == 0 || !ours()) return;
  RingRecord &place = record(ticket - 1);
  if (std::atomic_ref(place.ticket).load(std::memory_order_relaxed) != ticket) return;
  const uint64_t check = std::atomic_ref(place.peer).load(std::memory_order_relaxed) & UINT32_MAX;
  std::atomic_ref(place.peer).store(static_cast<uint64_t>(static_cast<uint32_t>(peer + 1)) << 32 | check,
                                    std::memory_order_release);
}

void Tracer::mark(const char *text, uint64_t sequence, int phase) {
  TraceEvent event;
  event.name = name(text);
  event.sequence = sequence;
  event.phase = phase;
  write(event, 0);
}

void Tracer::note_failure(mxs_status status, const char *sentence, bool own, int phase) {
  if (!ours()) return;
  TraceEvent event;
  event.kind = MXS_EVENT_FAILURE;
  event.phase = phase;
  event.begin_ns = now_ns();
  copy_text(header_->failure, sizeof header_->failure, sentence);
  header_->failure_status = status;
  header_->failure_own = own;
  store(&header_->failure_ns, event.begin_ns);
  write(event, 0);
}

uint8_t Tracer::name(const char *text) {
  if (!ours() || !text || !*text) return 0;
  const auto find = [&](uint64_t first, uint64_t count) -> uint64_t {
    for (uint64_t i = first; i < count; ++i)
      if (std::strncmp(header_->names[i], text, ring_name_bytes - 1) == 0) return i;
    return 0;
  };
  const uint64_t known = std::atomic_ref(header_->name_count).load(std::memory_order_acquire);
  if (const uint64_t found = find(1, known)) return static_cast<uint8_t>(found);
  const std::lock_guard lock(names_mutex_);
  const uint64_t count = header_->name_count;
  if (const uint64_t found = find(known, count)) return static_cast<uint8_t>(found);
  if (count == ring_name_count) return 0;
  copy_text(header_->names[count], ring_name_bytes, text);
  std::atomic_ref(header_->name_count).store(count + 1, std::memory_order_release);
  return static_cast<uint8_t>(count);
}

// ---- end ----

void Tracer::discard() {
  if (!header_ || !ours()) return;
  unlink(ring_path_.c_str());
  timeline_path_.clear();
}

// Nobody is left to hear of a failure but the log.
void Tracer::write_timeline() {
  Trace trace;
  Ring ring;
  mxs_status status = read_ring(reinterpret_cast<const std::byte *>(header_), mapped_bytes_, ring_path_, &ring);
  if (status == MXS_OK) {
    trace.add(std::move(ring));
    trace.sort();
    status = mxs::write_timeline(trace, timeline_path_);
  }
  if (status != MXS_OK) log_line(MXS_LOG_WARNING, "trace: %s", last_error_text());
}

Tracer::~Tracer() {
  if (!header_) return;
  if (ours()) {
    mark("destroy", 0, 0);
    store(&header_->finished_ns, now_ns());
    if (!timeline_path_.empty())
      fenced([this] {
        write_timeline();
        return MXS_OK;
      });
  }
  munmap(header_, mapped_bytes_);
}

}  // namespace mxs
