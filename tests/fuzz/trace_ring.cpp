// SPDX-License-Identifier: Apache-2.0
// Rings that others have left, of two ranks, and what is told of them. The input: flags, how many records each ring
// has, the records, then changes of the headers: | place 2 bytes | length 1 | bytes |. With a flag the records' checks
// are made good, as a forger would.
#include <algorithm>
#include <cstring>

#include "fuzz.hpp"
#include "matrixshard/trace.h"
#include "trace/reader.hpp"
#include "trace/report.hpp"
#include "trace/ring.hpp"

using namespace mxs;

namespace {

constexpr size_t records_max = 4;

RingHeader good_header(int rank, uint64_t capacity) {
  RingHeader header{};
  std::memcpy(header.magic, ring_magic, sizeof ring_magic);
  header.version = ring_version;
  header.header_bytes = ring_header_bytes;
  header.record_bytes = sizeof(RingRecord);
  header.name_bytes = ring_name_bytes;
  header.capacity = capacity;
  header.job = 7;
  header.comm = 9;
  header.rank = rank;
  header.rank_count = 2;
  header.created_ns = 1000;
  header.created_unix_ns = 1'700'000'000'000'000'000u;
  header.seen_ns = 5000;
  header.last_operation = 3;
  header.name_count = 3;
  std::memcpy(header.host, "node0", 5);
  std::memcpy(header.names[1], "gather", 6);
  std::memcpy(header.names[2], "chain", 5);
  return header;
}

RingRecord good_record(uint64_t place, int kind) {
  RingRecord record{};
  record.ticket = place + 1;
  record.begin_ns = 2000 + place;
  record.end_ns = place % 2 ? not_over : 3000 + place;
  record.sequence = place + 1;
  record.bytes_out = 64;
  record.what = uint64_t{3} << 32 | 2 << 24 | 1 << 16 | static_cast<uint64_t>(kind);
  record.peer = uint64_t{1} << 32 | ring_check(record);
  return record;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  const bool forges = data[0] & 1;
  const size_t count = 1 + data[1] % records_max;
  data += 2;
  size -= 2;
  std::vector<std::byte> files[2];
  for (int rank = 0; rank < 2; ++rank) {
    files[rank].resize(ring_header_bytes + count * sizeof(RingRecord));
    const RingHeader header = good_header(rank, count);
    std::memcpy(files[rank].data(), &header, sizeof header);
    for (size_t place = 0; place < count; ++place) {
      RingRecord record{};
      const size_t bytes = std::min(size, sizeof record);
      std::memcpy(&record, data, bytes);
      data += bytes;
      size -= bytes;
      if (forges) record.peer = (record.peer >> 32 << 32) | ring_check(record);
      std::memcpy(files[rank].data() + ring_header_bytes + place * sizeof record, &record, sizeof record);
    }
  }
  for (int rank = 0; size >= 3; rank = 1 - rank) {
    const size_t place = (data[0] | static_cast<size_t>(data[1]) << 8) % sizeof(RingHeader);
    const size_t bytes = std::min({static_cast<size_t>(data[2]), size - 3, sizeof(RingHeader) - place});
    std::memcpy(files[rank].data() + place, data + 3, bytes);
    data += 3 + bytes;
    size -= 3 + bytes;
  }
  Trace trace;
  for (const std::vector<std::byte> &file : files) {
    Ring ring;
    if (read_ring(file.data(), file.size(), "a ring", &ring) != MXS_OK) continue;
    fuzz::promise(ring.rank >= 0 && ring.rank < ring.rank_count && ring.events.size() + ring.torn_count <= count);
    for (const RingEvent &event : ring.events) {
      fuzz::promise(event.name < ring.names.size() && event.algorithm < ring.names.size());
      fuzz::promise(event.end_ns >= event.begin_ns && event.peer >= -1 && event.peer < ring.rank_count);
    }
    if (trace.rank_count == 0 || trace.rank_count == ring.rank_count) trace.add(std::move(ring));
  }
  trace.sort();
  if (!trace.rings.empty()) fuzz::promise(!report_of(trace).empty());
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const int kinds : {MXS_EVENT_OPERATION, MXS_EVENT_AGREEMENT, MXS_EVENT_MARK}) {
    std::string seed = {'\0', 3};
    for (int rank = 0; rank < 2; ++rank)
      for (uint64_t place = 0; place < 4; ++place) {
        const RingRecord record = good_record(place, kinds);
        seed.append(reinterpret_cast<const char *>(&record), sizeof record);
      }
    seeds.push_back(seed);
    seed[0] = 1;
    seeds.push_back(seed.append("\x30\0\4\1\2\3\4", 7));
  }
  return seeds;
}
