// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "matrixshard/comm.h"
#include "trace/process_state.hpp"
#include "trace/ring.hpp"

namespace mxs {

namespace {

std::string text_of(const char *text, size_t room) {
  std::string result(text, strnlen(text, room));
  result.resize(make_printable(result.data(), result.size()));
  return result;
}

mxs_status no_ring(const std::string &name, const char *why) {
  return set_error(MXS_DAMAGED, "%.500s is no ring of matrixshard: %s", name.c_str(), why);
}

mxs_status check_header(const RingHeader &header, size_t size, const std::string &name) {
  if (std::memcmp(header.magic, ring_magic, sizeof ring_magic) != 0) return no_ring(name, "it begins otherwise");
  if (header.version != ring_version || header.header_bytes != ring_header_bytes ||
      header.record_bytes != sizeof(RingRecord) || header.name_bytes != ring_name_bytes)
    return set_error(MXS_DAMAGED, "%.500s is a ring of another version (%u; this release reads %u)", name.c_str(),
                     header.version, ring_version);
  if (header.capacity < 1 || header.capacity > ring_events_most)
    return set_error(MXS_DAMAGED, "%.500s: a ring of %" PRIu64 " events, not from 1 to %" PRIu64, name.c_str(),
                     header.capacity, ring_events_most);
  if (size != ring_header_bytes + header.capacity * sizeof(RingRecord))
    return set_error(MXS_DAMAGED, "%.500s has %zu bytes, but a ring of %" PRIu64 " events has %" PRIu64, name.c_str(),
                     size, header.capacity, ring_header_bytes + header.capacity * sizeof(RingRecord));
  if (header.rank_count < 1 || header.rank_count > ring_ranks_most || header.rank < 0 ||
      header.rank >= header.rank_count)
    return set_error(MXS_DAMAGED, "%.500s: rank %d of %d ranks makes no sense", name.c_str(), header.rank,
                     header.rank_count);
  if (header.name_count < 1 || header.name_count > ring_name_count)
    return set_error(MXS_DAMAGED, "%.500s: %" PRIu64 " names, not from 1 to %zu", name.c_str(), header.name_count,
                     ring_name_count);
  return MXS_OK;
}

// 0 stays 0: it never happened.
uint64_t on_common_clock(const RingHeader &header, uint64_t time_ns) {
  return time_ns == 0 ? 0 : time_ns + static_cast<uint64_t>(header.clock_offset_ns);
}

void take_header(const RingHeader &header, Ring *ring) {
  ring->host = text_of(header.host, sizeof header.host);
  ring->job = header.job;
  ring->comm = header.comm;
  ring->machine = header.machine;
  ring->process = header.process;
  ring->process_start = header.process_start;
  ring->rank = header.rank;
  ring->rank_count = header.rank_count;
  ring->clock_offset_ns = header.clock_offset_ns;
  ring->clock_uncertainty_ns = header.clock_uncertainty_ns;
  ring->created_ns = on_common_clock(header, header.created_ns);
  ring->finished_ns = on_common_clock(header, header.finished_ns);
  ring->failure_ns = on_common_clock(header, header.failure_ns);
  ring->seen_ns = on_common_clock(header, header.seen_ns);
  ring->last_operation = header.last_operation;
  ring->last_complete = header.last_complete;
  ring->last_agreement = header.last_agreement;
  ring->lost_count = header.next > header.capacity ? header.next - header.capacity : 0;
  ring->failure_own = header.failure_own != 0;
  if (header.failure_ns != 0) {
    ring->failure = text_of(header.failure, sizeof header.failure);
    ring->failure_status = header.failure_status;
  }
  for (uint64_t i = 0; i < header.name_count; ++i) ring->names.push_back(text_of(header.names[i], ring_name_bytes));
}

// What was stored as one more, so that 0 is none: -1, too, if it makes no sense.
int less_one(uint64_t stored, int most) {
  return stored > static_cast<uint64_t>(most) ? -1 : static_cast<int>(static_cast<int64_t>(stored) - 1);
}

// False: torn, or of nothing that there is.
bool take_record(const RingHeader &header, const RingRecord &record, uint64_t place, RingEvent *event) {
  if ((record.ticket - 1) % header.capacity != place) return false;
  if (static_cast<uint32_t>(record.peer) != ring_check(record)) return false;
  event->kind = static_cast<int>(record.what & 255);
  event->phase = static_cast<int>(record.what >> 8 & 255);
  event->name = static_cast<uint8_t>(record.what >> 16);
  event->algorithm = static_cast<uint8_t>(record.what >> 24);
  if (event->kind > MXS_EVENT_MARK || event->phase >= MXS_PHASE_COUNT) return false;
  if (event->name >= header.name_count || event->algorithm >= header.name_count) return false;
  event->unit = less_one(record.what >> 32, INT32_MAX);
  event->peer = less_one(record.peer >> 32, header.rank_count);
  event->sequence = record.sequence;
  event->begin_ns = on_common_clock(header, record.begin_ns);
  event->end_ns = record.end_ns == not_over ? not_over : on_common_clock(header, record.end_ns);
  if (event->end_ns < event->begin_ns) event->end_ns = event->begin_ns;
  event->bytes_out = record.bytes_out;
  event->bytes_in = record.bytes_in;
  return true;
}

void find_latest(const RingHeader &header, Ring *ring) {
  ring->latest_ns = std::max({ring->created_ns, ring->finished_ns, ring->failure_ns, ring->seen_ns});
  for (const RingEvent &event : ring->events)
    ring->latest_ns = std::max({ring->latest_ns, event.begin_ns, event.open() ? 0 : event.end_ns});
  ring->latest_unix_ns = header.created_unix_ns + (ring->latest_ns - ring->created_ns);
}

// Header bytes are copied first: a writer may be at them.
RingHeader copy_header(const std::byte *bytes) {
  RingHeader header;
  std::memcpy(static_cast<void *>(&header), bytes, sizeof header);
  return header;
}

mxs_status read_file(const std::string &path, std::vector<std::byte> *bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return set_error(MXS_SYSTEM, "%.500s can't be read: %s", path.c_str(), std::strerror(errno));
  struct Closer {
    int file;
    ~Closer() { close(file); }
  } closer{file};
  struct stat found {};
  if (fstat(file, &found) != 0)
    return set_error(MXS_SYSTEM, "%.500s can't be read: %s", path.c_str(), std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return no_ring(path, "it is no regular file");
  constexpr uint64_t bytes_most = ring_header_bytes + ring_events_most * sizeof(RingRecord);
  const auto size = static_cast<uint64_t>(found.st_size);
  if (size < ring_header_bytes || size > bytes_most) return no_ring(path, size == 0 ? "it is empty" : "by its size");
  bytes->resize(size);
  for (size_t done = 0; done < size;) {
    const ssize_t part = read(file, bytes->data() + done, size - done);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return set_error(MXS_SYSTEM, "%.500s can't be read: %s", path.c_str(), std::strerror(errno));
    if (part == 0) return no_ring(path, "it became shorter while it was read");
    done += static_cast<size_t>(part);
  }
  return MXS_OK;
}

mxs_status list_rings(const std::string &path, std::vector<std::string> *files) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error);
  if (kind.type() == std::filesystem::file_type::not_found)
    return set_error(MXS_NOT_FOUND, "%.500s does not exist", path.c_str());
  if (!error && !std::filesystem::is_directory(kind)) {
    files->push_back(path);
    return MXS_OK;
  }
  std::filesystem::directory_iterator entries(path, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error))
    if (entries->path().extension() == ".ring") files->push_back(entries->path().string());
  if (error) return set_error(MXS_SYSTEM, "%.500s can't be read: %s", path.c_str(), error.message().c_str());
  return MXS_OK;
}

}  // namespace

mxs_status read_ring(const std::byte *bytes, size_t size, const std::string &name, Ring *result) {
  if (size < ring_header_bytes) return no_ring(name, "it is too short");
  const RingHeader header = copy_header(bytes);
  const mxs_status status = check_header(header, size, name);
  if (status != MXS_OK) return status;
  Ring ring;
  ring.path = name;
  take_header(header, &ring);
  for (uint64_t place = 0; place < header.capacity; ++place) {
    RingRecord record;
    std::memcpy(&record, bytes + ring_header_bytes + place * sizeof record, sizeof record);
    if (record.ticket == 0 && record.what == 0) continue;  // never written
    RingEvent event;
    if (take_record(header, record, place, &event)) ring.events.push_back(event);
    else ++ring.torn_count;
  }
  std::sort(ring.events.begin(), ring.events.end(),
            [](const RingEvent &a, const RingEvent &b) { return a.begin_ns < b.begin_ns; });
  find_latest(header, &ring);
  *result = std::move(ring);
  return MXS_OK;
}

// ---- many ----

void Trace::add(Ring ring) {
  rank_count = ring.rank_count;
  const int rank = ring.rank;
  const auto found = rings.find(rank);
  if (found != rings.end() && found->second.latest_unix_ns > ring.latest_unix_ns) return;
  rings.insert_or_assign(rank, std::move(ring));
}

void Trace::sort() {
  order.clear();
  for (const auto &[rank, ring] : rings)
    for (size_t index = 0; index < ring.events.size(); ++index) order.push_back({rank, index});
  std::stable_sort(order.begin(), order.end(),
                   [this](const Place &a, const Place &b) { return event(a).begin_ns < event(b).begin_ns; });
}

uint64_t Trace::end_ns() const {
  uint64_t latest = read_ns;
  for (const auto &[rank, ring] : rings) latest = std::max(latest, ring.latest_ns);
  return latest;
}

mxs_status open_trace(Trace *result, const std::vector<std::string> &paths) {
  std::vector<std::string> files;
  for (const std::string &path : paths) {
    const mxs_status status = list_rings(path, &files);
    if (status != MXS_OK) return status;
  }
  if (files.empty())
    return set_error(MXS_NOT_FOUND, "there is no ring (*.ring) in %.500s", paths.empty() ? "" : paths[0].c_str());
  std::map<uint64_t, std::vector<Ring>> comms;
  uint64_t chosen = 0, chosen_unix_ns = 0;
  for (const std::string &path : files) {
    std::vector<std::byte> bytes;
    Ring ring;
    mxs_status status = read_file(path, &bytes);
    if (status == MXS_OK) status = read_ring(bytes.data(), bytes.size(), path, &ring);
    if (status != MXS_OK) return status;
    if (comms.empty() || ring.latest_unix_ns > chosen_unix_ns) {
      chosen = ring.comm;
      chosen_unix_ns = ring.latest_unix_ns;
    }
    comms[ring.comm].push_back(std::move(ring));
  }
  Trace trace;
  for (Ring &ring : comms[chosen]) {
    if (trace.rank_count != 0 && ring.rank_count != trace.rank_count)
      return set_error(MXS_DAMAGED, "%.500s is of a comm of %d ranks, but another ring of the same comm says %d",
                       ring.path.c_str(), ring.rank_count, trace.rank_count);
    const ProcessState state = look_at_process({ring.machine, ring.process_start, ring.process});
    ring.alive = state.alive;
    ring.stopped = state.stopped;
    // The clock of this machine is that of the ranks on it.
    if (state.alive == 1) trace.read_ns = now_ns() + static_cast<uint64_t>(ring.clock_offset_ns);
    trace.add(std::move(ring));
  }
  trace.sort();
  *result = std::move(trace);
  return MXS_OK;
}

}  // namespace mxs
