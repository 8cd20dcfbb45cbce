// SPDX-License-Identifier: Apache-2.0
// Ring: the file in which a rank writes its latest events, and what the words in it mean.
//
//   | header, 4 KiB | record 0 | record 1 | ... | record capacity - 1 |        event n is in record n mod capacity
//
// The file is mapped, so that what was stored is in the page cache and outlives the process, whatever ends it. A record
// is one cache line. It says itself whether it is whole: its number must belong into its place, and its check must fit
// its words. A reader needs no lock and no agreement with whoever writes meanwhile; it leaves out what is torn.
//
// Two words of a record change after it was written, by one store each, and stand outside the check: the end, and the
// rank that is waited for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxs {

constexpr char ring_magic[8] = {'m', 'x', 's', 'r', 'i', 'n', 'g', '\n'};
constexpr uint32_t ring_version = 1;
constexpr uint64_t ring_events_least = 64, ring_events_most = uint64_t{1} << 24;
constexpr uint64_t ring_events_chosen = 16384 - 64;  // 1 MiB with the header
constexpr int ring_ranks_most = 1 << 20;
constexpr size_t ring_name_bytes = 24, ring_name_count = 96;

struct RingHeader {
  // Written before the file has its name.
  char magic[8];
  uint32_t version, header_bytes, record_bytes, name_bytes;
  uint64_t capacity;
  uint64_t job, comm;         // of the file's name; comm tells all comms of all times apart
  uint64_t machine;           // a hash of boot and PID namespace: may a reader ask for the process?
  int32_t rank, rank_count, process, reserved;
  uint64_t process_start;     // as /proc tells it: the id may be another process's by now
  uint64_t created_ns, created_unix_ns;
  int64_t clock_offset_ns;    // to be added to this rank's times for those of rank 0
  uint64_t clock_uncertainty_ns;
  char host[64];
  // Words that change, by one store each.
  uint64_t next;              // number of the event to come
  uint64_t last_operation, last_complete, last_agreement;
  uint64_t seen_ns;           // when this rank was in a wait last: a life sign
  uint64_t finished_ns;       // 0: the comm was not destroyed
  uint64_t failure_ns;        // 0: it has not failed; stored after the sentence
  int32_t failure_status, failure_own;  // own: it happened here
  uint64_t name_count;        // stored after the name
  char failure[512];
  char names[ring_name_count][ring_name_bytes];  // 0 is ""
};
constexpr size_t ring_header_bytes = 4096;
static_assert(sizeof(RingHeader) <= ring_header_bytes);

struct RingRecord {
  uint64_t ticket;     // the event's number + 1; 0: it is being written
  uint64_t begin_ns;
  uint64_t end_ns;     // UINT64_MAX: not over
  uint64_t sequence;
  uint64_t bytes_out, bytes_in;
  uint64_t what;       // | unit + 1 32 | algorithm 8 | name 8 | phase 8 | kind 8 |
  uint64_t peer;       // | peer + 1 32 | check 32 |
};
static_assert(sizeof(RingRecord) == 64);

// Of all words that don't change.
inline uint32_t ring_check(const RingRecord &record) {
  constexpr uint64_t odd = 0x9e3779b97f4a7c15u;
  uint64_t hash = record.ticket * odd;
  hash = (hash ^ record.begin_ns) * odd;
  hash = (hash ^ record.sequence ^ hash >> 29) * odd;
  hash = (hash ^ record.bytes_out) * odd;
  hash = (hash ^ record.bytes_in ^ hash >> 31) * odd;
  hash = (hash ^ record.what) * odd;
  return static_cast<uint32_t>(hash >> 32);
}

}  // namespace mxs
