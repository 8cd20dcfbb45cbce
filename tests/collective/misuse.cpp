// SPDX-License-Identifier: Apache-2.0
// What bad input gets: NULLs, wrong sizes, unknown names, ranks that disagree, destroy in flight; and several
// collectives in flight at a time.
#include <cstddef>
#include <cstdlib>
#include <latch>
#include <limits>
#include <memory>

#include "cases.hpp"
#include "support/complaints.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

std::string all_of(const std::vector<std::string> &complaints) {
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return "";
}

TestLayout two_owners(int rank_count) {
  TestLayout layout("two owners", 1);
  layout.add(0, 4096);
  layout.add(rank_count - 1, 8192);
  return layout;
}

// ---- arguments ----

std::string arguments_are_checked(int, mxs_comm *comm) {
  OwnedLayout layout, other;
  if (make(&layout, two_owners(2), 2) != MXS_OK || make(&other, two_owners(3), 3) != MXS_OK) return error_of("layout");
  mxs_collective *collective = nullptr;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  const auto create = [&] { return mxs_collective_create(&collective, comm, &options); };
  std::vector<std::string> wrong;
  wrong.push_back(expect(mxs_collective_create(nullptr, comm, &options), MXS_INVALID_ARGUMENT, {"collective is NULL"}));
  wrong.push_back(expect(mxs_collective_create(&collective, nullptr, &options), MXS_INVALID_ARGUMENT,
      {"comm is NULL"}));
  wrong.push_back(expect(mxs_collective_create(&collective, comm, nullptr), MXS_INVALID_ARGUMENT, {"options is NULL"}));
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"options.layout is NULL"}));
  options.layout = layout.value;
  options.size = 3;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"options.size is 3"}));
  options.size = sizeof options;
  options.kind = 7;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"kind is 7"}));
  options.kind = MXS_RESHARD;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"target_layout is NULL"}));
  options.kind = MXS_GATHER;
  options.target_layout = layout.value;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"only a reshard"}));
  options.target_layout = nullptr;
  options.flags = MXS_ACCUMULATE;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"a gather can have MXS_MAPPED_MEMORY"}));
  options.flags = 8;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"flags is 0x8"}));
  options.kind = MXS_RESHARD;
  options.target_layout = layout.value;
  options.flags = MXS_MAPPED_MEMORY;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"flags is 0x4"}));
  options.kind = MXS_GATHER;
  options.target_layout = nullptr;
  options.flags = 0;
  options.memory = 77;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"options.memory is 77"}));
  options.memory = MXS_HOST;
  options.layout = other.value;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"3 ranks", "has 2"}));
  options.layout = layout.value;
  options.algorithm = "carrier pigeon";
  wrong.push_back(expect(create(), MXS_NOT_FOUND, {"carrier pigeon", "flat, chain, spread, circulant, two-level-flat, ",
                                                       "two-level-chain, two-level-circulant, fanout"}));
  options.algorithm = "cooperative";  // of reduces
  wrong.push_back(expect(create(), MXS_NOT_FOUND, {"a gather"}));
  options.algorithm = "direct";  // of reshards
  options.kind = MXS_REDUCE;
  options.dtype = MXS_F32;
  options.flags = MXS_RANK_ORDER;
  wrong.push_back(expect(create(), MXS_NOT_FOUND, {"rank order", "flat, chain, spread, cooperative"}));
  options.algorithm = nullptr;
  options.flags = 0;
  options.dtype = MXS_F64;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"dtype is 4"}));
  options.dtype = 0;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"dtype is 0"}));
  options.dtype = MXS_F32;
  options.chunk_bytes = 100;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"chunk_bytes is 100"}));
  options.chunk_bytes = std::numeric_limits<uint64_t>::max();
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"chunk_bytes"}));
  options.chunk_bytes = 0;
  options.window = -1;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"window is -1"}));
  options.window = 65;
  wrong.push_back(expect(create(), MXS_INVALID_ARGUMENT, {"window is 65"}));
  if (collective) return "a collective was made";
  wrong.push_back(expect(mxs_collective_destroy(nullptr), MXS_OK));
  wrong.push_back(expect(mxs_collective_destroy(&collective), MXS_OK));
  return all_of(wrong);
}

std::string elements_are_whole(int, mxs_comm *comm) {
  TestLayout odd("odd", 1);
  odd.add(0, 4098);
  Case each;
  each.layout = &odd;
  each.kind = MXS_REDUCE;
  OwnedCollective collective;
  std::vector<std::string> wrong;
  for (const char *algorithm : {"flat", "cooperative"}) {
    each.algorithm = algorithm;
    wrong.push_back(expect(make(&collective, comm, each, 2), MXS_INVALID_ARGUMENT, {"segment 0", "element"}));
  }
  return all_of(wrong);
}

std::string starts_are_checked(int rank, mxs_comm *comm) {
  const TestLayout layout = two_owners(2);
  Case each;
  each.layout = &layout;
  OwnedCollective gather, reduce, fanout, cooperative;
  if (make(&gather, comm, each, 2) != MXS_OK) return error_of("gather");
  each.algorithm = "fanout";
  if (make(&fanout, comm, each, 2) != MXS_OK) return error_of("fanout");
  each.kind = MXS_REDUCE;
  each.algorithm = nullptr;
  if (make(&reduce, comm, each, 2) != MXS_OK) return error_of("reduce");
  each.algorithm = "cooperative";
  if (make(&cooperative, comm, each, 2) != MXS_OK) return error_of("cooperative");
  std::vector<std::byte> whole(layout.bytes + 4), packed(layout.bytes + 4);
  void *shared = nullptr;
  if (mxs_comm_allocate(comm, layout.bytes, MXS_HOST, &shared) != MXS_OK) return error_of("allocate");
  mxs_call call = MXS_CALL_INIT;
  std::vector<std::string> wrong;
  wrong.push_back(expect(mxs_collective_start(nullptr, nullptr, nullptr, nullptr), MXS_INVALID_ARGUMENT));
  wrong.push_back(expect(mxs_collective_wait(nullptr, nullptr), MXS_INVALID_ARGUMENT));
  wrong.push_back(expect(mxs_collective_start(gather.value, nullptr, nullptr, nullptr), MXS_INVALID_ARGUMENT,
                         {"target is NULL", "12288 bytes"}));
  wrong.push_back(expect(mxs_collective_start(reduce.value, nullptr, packed.data(), nullptr), MXS_INVALID_ARGUMENT,
                         {"source is NULL"}));
  wrong.push_back(expect(mxs_collective_start(reduce.value, whole.data(), nullptr, nullptr), MXS_INVALID_ARGUMENT,
                         {"target is NULL"}));
  wrong.push_back(expect(mxs_collective_start(reduce.value, whole.data() + 1, packed.data(), nullptr),
                         MXS_INVALID_ARGUMENT, {"aligned"}));
  wrong.push_back(expect(mxs_collective_start(fanout.value, nullptr, whole.data(), nullptr), MXS_INVALID_ARGUMENT,
                         {"fanout", "mxs_comm_allocate"}));
  wrong.push_back(expect(mxs_collective_start(cooperative.value, whole.data(), packed.data(), nullptr),
                         MXS_INVALID_ARGUMENT, {"cooperative", "mxs_comm_allocate"}));
  wrong.push_back(expect(mxs_collective_start(cooperative.value, shared, packed.data(), nullptr), MXS_INVALID_ARGUMENT,
                         {"its target must be too"}));
  call.stream = &call;
  wrong.push_back(expect(mxs_collective_start(gather.value, nullptr, whole.data(), &call), MXS_INVALID_ARGUMENT));
  call.stream = nullptr;
  call.size = 1;
  wrong.push_back(expect(mxs_collective_start(gather.value, nullptr, whole.data(), &call), MXS_INVALID_ARGUMENT));
  wrong.push_back(expect(mxs_collective_wait(gather.value, nullptr), MXS_OK));  // never started
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  wrong.push_back(expect(mxs_collective_describe(gather.value, nullptr), MXS_INVALID_ARGUMENT));
  wrong.push_back(expect(mxs_collective_describe(nullptr, &info), MXS_INVALID_ARGUMENT));
  info.size = 0;
  wrong.push_back(expect(mxs_collective_describe(gather.value, &info), MXS_INVALID_ARGUMENT));
  if (!all_of(wrong).empty()) return all_of(wrong);
  // Nothing of this was sent: the comm still works.
  wrong.push_back(gather_once(rank, gather.value, Case{&layout}, 5));
  wrong.push_back(expect(mxs_comm_free(comm, shared), MXS_OK));
  return all_of(wrong);
}

// A promise of mapped memory is enough: no name, no scratch; and it is kept to on every comm, of one rank, too.
std::string promises_are_kept(int rank, int rank_count, mxs_comm *comm) {
  const TestLayout layout = two_owners(rank_count);
  Case each;
  each.layout = &layout;
  each.flags = MXS_MAPPED_MEMORY;
  OwnedCollective gather, reduce;
  if (make(&gather, comm, each, rank_count) != MXS_OK) return error_of("gather");
  each.kind = MXS_REDUCE;
  if (make(&reduce, comm, each, rank_count) != MXS_OK) return error_of("reduce");
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  for (const auto &[collective, name] : {std::pair(gather.value, "fanout"), std::pair(reduce.value, "cooperative")}) {
    if (mxs_collective_describe(collective, &info) != MXS_OK) return error_of("describe");
    const bool by_node = std::string(info.algorithm) == name;
    if (by_node != (rank_count > 1)) return std::string("chosen is ") + info.algorithm;
    if (by_node && info.scratch_bytes != 0) return "scratch memory was taken";
  }
  std::vector<std::byte> heap(layout.bytes);
  void *shared = nullptr;
  if (mxs_comm_allocate(comm, layout.bytes, MXS_HOST, &shared) != MXS_OK) return error_of("allocate");
  std::vector<std::string> wrong;
  const auto start = [&](const OwnedCollective &of, const void *source, void *target) {
    return mxs_collective_start(of.value, source, target, nullptr);
  };
  const std::vector<std::string> target = {"MXS_MAPPED_MEMORY", "target"}, source = {"MXS_MAPPED_MEMORY", "source"};
  wrong.push_back(expect(start(gather, nullptr, heap.data()), MXS_INVALID_ARGUMENT, target));
  wrong.push_back(expect(start(reduce, heap.data(), shared), MXS_INVALID_ARGUMENT, source));
  wrong.push_back(expect(start(reduce, shared, heap.data()), MXS_INVALID_ARGUMENT, target));
  if (!all_of(wrong).empty()) return all_of(wrong);
  wrong.push_back(expect(start(gather, nullptr, shared), MXS_OK));
  wrong.push_back(expect(mxs_collective_wait(gather.value, nullptr), MXS_OK));
  each.kind = MXS_GATHER;
  each.flags = rank == 0 && rank_count > 1 ? 0 : MXS_MAPPED_MEMORY;
  OwnedCollective differs;
  wrong.push_back(expect(make(&differs, comm, each, rank_count), rank_count > 1 ? MXS_MISMATCH : MXS_OK));
  wrong.push_back(expect(mxs_comm_free(comm, shared), MXS_OK));
  return all_of(wrong);
}

std::string describe_tells(int rank, mxs_comm *comm) {
  const TestLayout layout = two_owners(4);
  Case each;
  each.layout = &layout;
  each.algorithm = "chain";
  OwnedCollective collective;
  if (make(&collective, comm, each, 4) != MXS_OK) return error_of("create");
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
  if (mxs_collective_describe(collective.value, &info) != MXS_OK) return error_of("describe");
  const uint64_t owned = rank == 0 ? 4096 : rank == 3 ? 8192 : 0;
  if (std::string(info.algorithm) != "chain" || std::string(info.transports) != "loopback") return "names are wrong";
  if (info.kind != MXS_GATHER || info.bytes_in != 12288 - owned || info.bytes_in_least != info.bytes_in)
    return "bytes in are wrong";
  const uint64_t out = rank == 0 ? 12288 : rank == 3 ? 8192 : rank == 1 ? 12288 : 4096;
  if (info.bytes_out != out) return "bytes out are " + std::to_string(info.bytes_out);
  if (info.message_count == 0 || info.chunk_bytes == 0 || info.scratch_bytes != 0) return "counts are wrong";
  mxs_comm_stats before = MXS_COMM_STATS_INIT, after = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &before);
  const std::string complaint = gather_once(rank, collective.value, each, 1);
  mxs_comm_query_stats(comm, &after);
  const mxs_counter &was = before.counters[MXS_GATHER][MXS_PHASE_OTHER],
      &is = after.counters[MXS_GATHER][MXS_PHASE_OTHER];
  if (is.calls != was.calls + 1 || is.bytes_out != was.bytes_out + out) return "statistics are wrong";
  return complaint;
}

// ---- ranks that disagree ----

std::string different_layouts(int rank, mxs_comm *comm) {
  TestLayout layout = two_owners(3);
  if (rank == 1) layout.add(0, 64);
  Case each;
  each.layout = &layout;
  OwnedCollective collective;
  const std::string complaint = expect(make(&collective, comm, each, 3), MXS_MISMATCH, {"rank 1"});
  if (!complaint.empty()) return complaint;
  const TestLayout same = two_owners(3);
  return run_case(rank, 3, comm, Case{&same});  // the comm is usable after it
}

// One rank's arguments are bad: the others are told as well, instead of waiting for it.
std::string one_bad_rank(int rank, mxs_comm *comm) {
  const TestLayout layout = two_owners(3);
  Case each;
  each.layout = &layout;
  each.chunk_bytes = rank == 2 ? 100 : 0;
  OwnedCollective collective;
  return expect(make(&collective, comm, each, 3), rank == 2 ? MXS_INVALID_ARGUMENT : MXS_MISMATCH,
                {rank == 2 ? "chunk_bytes" : "rank 2"});
}

// Rank 0 starts a gather where the others reduce: whoever gets a message of it says so, and nobody hangs.
bool kinds_differ(const char *gather_algorithm, const char *reduce_algorithm) {
  WorldOptions options;
  options.comm_timeout_seconds = 60;
  return good(run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    const TestLayout layout = two_owners(3);
    Case gather, reduce;
    gather.layout = reduce.layout = &layout;
    gather.algorithm = gather_algorithm;
    reduce.algorithm = reduce_algorithm;
    reduce.kind = MXS_REDUCE;
    OwnedCollective gathers, reduces;
    std::vector<std::byte> source(layout.bytes), target(layout.bytes);
    if (make(&gathers, comm, gather, 3) != MXS_OK || make(&reduces, comm, reduce,
        3) != MXS_OK) return error_of("create");
    mxs_collective *mine = rank == 0 ? gathers.value : reduces.value;
    // A start may find the comm failed already; the wait says the same.
    mxs_collective_start(mine, rank == 0 ? nullptr : source.data(), target.data(), nullptr);
    return expect(mxs_collective_wait(mine, nullptr), MXS_MISMATCH, {"rank 0", "in the same order"});
  }, options));
}

// The same collective, but one rank's target is memory that peers reach, the others' is not.
bool memories_differ() {
  return good(run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    const TestLayout layout = two_owners(3);
    OwnedCollective collective;
    std::vector<std::byte> target(layout.bytes);
    void *shared = nullptr;
    if (make(&collective, comm, Case{&layout}, 3) != MXS_OK) return error_of("create");
    if (mxs_comm_allocate(comm, layout.bytes, MXS_HOST, &shared) != MXS_OK) return error_of("allocate");
    mxs_collective_start(collective.value, nullptr, rank == 1 ? shared : target.data(), nullptr);
    const std::string complaint = expect(mxs_collective_wait(collective.value, nullptr), MXS_MISMATCH, {"rank 1"});
    mxs_collective_destroy(&collective.value);
    mxs_comm_free(comm, shared);
    return complaint;
  }));
}

// ---- life ----

// Counts down when rank 1 has tried what is refused, or has failed before it could.
struct CountDown {
  void operator()(std::latch *latch) const { latch->count_down(); }
};
using Trying = std::unique_ptr<std::latch, CountDown>;

std::string destroy_in_flight(int rank, mxs_comm *comm, std::latch *rank_1_has_tried) {
  Trying trying(rank == 1 ? rank_1_has_tried : nullptr);
  const TestLayout layout = two_owners(2);
  Case each;
  each.layout = &layout;
  OwnedCollective collective;
  std::vector<std::byte> target(layout.bytes);
  if (make(&collective, comm, each, 2) != MXS_OK) return error_of("create");
  std::string complaint;
  if (rank == 1) {  // before rank 0 has started, it can't be complete here
    if (mxs_collective_start(collective.value, nullptr, target.data(), nullptr) != MXS_OK) return error_of("start");
    complaint = expect(mxs_collective_destroy(&collective.value), MXS_HELD, {"in flight"});
    if (complaint.empty() && !collective.value) complaint = "it was destroyed";
    if (complaint.empty())
      complaint = expect(mxs_collective_start(collective.value, nullptr, target.data(), nullptr), MXS_HELD);
    if (complaint.empty()) complaint = expect(mxs_comm_destroy(&comm), MXS_HELD);
    trying.reset();
  }
  rank_1_has_tried->wait();  // an agreement would find that rank 0 has not started the collective
  if (rank == 0 && mxs_collective_start(collective.value, nullptr, target.data(), nullptr) != MXS_OK)
    return error_of("start");
  if (mxs_collective_wait(collective.value, nullptr) != MXS_OK) return error_of("wait");
  return complaint;
}

// Memory that an operation works on is not given back under it: that was a segmentation fault.
std::string free_in_flight(int rank, mxs_comm *comm, std::latch *rank_1_has_tried) {
  Trying trying(rank == 1 ? rank_1_has_tried : nullptr);
  const TestLayout layout = two_owners(2);
  Case each;
  each.layout = &layout;
  OwnedCollective collective;
  void *target = nullptr;
  if (make(&collective, comm, each, 2) != MXS_OK) return error_of("create");
  if (mxs_comm_allocate(comm, layout.bytes, MXS_HOST, &target) != MXS_OK) return error_of("allocate");
  std::string complaint;
  if (rank == 1) {  // before rank 0 has started, it can't be complete here
    if (mxs_collective_start(collective.value, nullptr, target, nullptr) != MXS_OK) return error_of("start");
    complaint = expect(mxs_comm_free(comm, target), MXS_HELD, {"in flight"});
    trying.reset();
  }
  rank_1_has_tried->wait();
  if (rank == 0 && mxs_collective_start(collective.value, nullptr, target, nullptr) != MXS_OK)
    return error_of("start");
  if (mxs_collective_wait(collective.value, nullptr) != MXS_OK) return error_of("wait");
  if (mxs_comm_free(comm, target) != MXS_OK) return error_of("free");
  return complaint;
}

// After an abort everything can be destroyed, in flight or not.
std::string destroy_after_abort(int rank, mxs_comm *comm) {
  const TestLayout layout = two_owners(2);
  Case each;
  each.layout = &layout;
  each.kind = MXS_REDUCE;
  each.algorithm = "flat";
  OwnedCollective collective;
  std::vector<std::byte> source(layout.bytes), target(layout.bytes);
  if (make(&collective, comm, each, 2) != MXS_OK) return error_of("create");
  if (rank == 1) {
    if (mxs_collective_start(collective.value, source.data(), target.data(), nullptr) != MXS_OK)
      return error_of("start");
    mxs_comm_abort(comm, "enough");
  }
  const std::string complaint = rank == 1 ? expect(mxs_collective_wait(collective.value, nullptr), MXS_ABORTED,
                                                   {"enough"})
                                          : "";
  return complaint.empty() ? expect(mxs_collective_destroy(&collective.value), MXS_OK) : complaint;
}

// A gather, a reduce, a reshard and gathers in shared memory, all started before the first wait, waited for backwards.
std::string several_in_flight(int rank, int rank_count, mxs_comm *comm) {
  constexpr size_t count = 12;
  const std::vector<TestLayout> layouts = test_layouts(rank_count, 4, 301);
  std::vector<std::unique_ptr<OwnedCollective>> collectives;
  std::vector<std::vector<std::byte>> targets(count), sources(count);
  std::vector<void *> shared(count);
  std::vector<mxs_request> requests(count);
  std::string complaint;
  for (size_t i = 0; i < count; ++i) {
    const TestLayout &layout = layouts[i % layouts.size()];
    Case each;
    each.layout = &layout;
    each.kind = i % 3 == 1 ? MXS_REDUCE : MXS_GATHER;
    collectives.push_back(std::make_unique<OwnedCollective>());
    if (make(collectives.back().get(), comm, each, rank_count) != MXS_OK) return error_of("create");
    sources[i].assign(layout.bytes + 64, std::byte{0});
    targets[i].assign(layout.bytes + 64, std::byte{0});
    if (mxs_comm_allocate(comm, layout.bytes + 64, MXS_HOST, &shared[i]) != MXS_OK) return error_of("allocate");
  }
  const auto target_of = [&](size_t i) {
    return i % 3 == 2 ? static_cast<std::byte *>(shared[i]) : targets[i].data();
  };
  for (size_t i = 0; i < count; ++i) {
    const TestLayout &layout = layouts[i % layouts.size()];
    for (const TestSegment &segment : layout.segments)
      for (uint64_t b = 0; b < segment.bytes; ++b)
        if (i % 3 != 1 && segment.owner == rank)
          target_of(i)[segment.offset + b] = std::byte{byte_at(segment.offset + b, i)};
    mxs_call call = MXS_CALL_INIT;
    call.request_out = &requests[i];
    if (mxs_collective_start(collectives[i]->value, i % 3 == 1 ? sources[i].data() : nullptr, target_of(i), &call))
      return error_of("start");
  }
  for (size_t i = count; i-- > 0;) {
    if (mxs_comm_wait(comm, requests[i], nullptr) != MXS_OK) return error_of("wait");
    if (mxs_comm_test(comm, requests[i]) != MXS_OK) return "a finished request is not complete";
    for (const TestSegment &segment : layouts[i % layouts.size()].segments)
      for (uint64_t b = 0; b < segment.bytes && i % 3 != 1; ++b)
        if (target_of(i)[segment.offset + b] != std::byte{byte_at(segment.offset + b,
            i)}) complaint = "bytes are wrong";
  }
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  for (void *memory : shared) mxs_comm_free(comm, memory);
  return complaint;
}

bool several_in_flight_in_all_worlds() {
  for (const int rank_count : world_sizes)
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) { return several_in_flight(rank, rank_count,
        comm); })))
      return false;
  return true;
}

// MXS_ALGORITHM forces; where a kind has no such algorithm, one is chosen; a name that is none is refused.
bool environment_is_read() {
  setenv("MXS_ALGORITHM", "spread", 1);
  std::string complaint = run_world(4, [](int rank, mxs_comm *comm) -> std::string {
    const TestLayout layout = two_owners(4);
    OwnedCollective collective;
    if (make(&collective, comm, Case{&layout}, 4) != MXS_OK) return error_of("create");
    mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;
    mxs_collective_describe(collective.value, &info);
    if (std::string(info.algorithm) != "spread") return std::string("it is ") + info.algorithm;
    return reshard_once(rank, 4, comm, two_owners(4), two_owners(4), 0);
  });
  setenv("MXS_ALGORITHM", "pigeon", 1);
  if (complaint.empty())
    complaint = run_world(2, [](int, mxs_comm *comm) -> std::string {
      const TestLayout layout = two_owners(2);
      OwnedCollective collective;
      return expect(make(&collective, comm, Case{&layout}, 2), MXS_NOT_FOUND, {"MXS_ALGORITHM is 'pigeon'"});
    });
  unsetenv("MXS_ALGORITHM");
  return good(complaint);
}

// The proof runs when it is asked for, and only then: it agrees with what all tests have proved.
bool schedules_are_proved() {
  std::string complaint;
  for (const char *value : {"1", "2"}) {
    setenv("MXS_DEBUG_SCHEDULES", value, 1);
    const bool is_good = value[0] == '1';
    if (complaint.empty())
      complaint = run_world(4, [&](int rank, mxs_comm *comm) -> std::string {
        const TestLayout layout = two_owners(4);
        for (const char *algorithm : {"flat", "chain", "spread"})
          for (const int kind : {MXS_GATHER, MXS_REDUCE}) {
            Case each;
            each.layout = &layout;
            each.kind = kind;
            each.algorithm = algorithm;
            OwnedCollective collective;
            const std::vector<std::string> words = {"MXS_DEBUG_SCHEDULES"};
            const std::string wrong = is_good ? expect(make(&collective, comm, each, 4), MXS_OK)
                                              : expect(make(&collective, comm, each, 4), MXS_ENVIRONMENT, words);
            if (!wrong.empty()) return wrong;
          }
        return is_good ? reshard_once(rank, 4, comm, two_owners(4), two_owners(4), 0) : "";
      });
  }
  unsetenv("MXS_DEBUG_SCHEDULES");
  return good(complaint);
}

void bad_arguments(void **) { assert_true(good(run_world(2, arguments_are_checked))); }
void cut_elements(void **) { assert_true(good(run_world(2, elements_are_whole))); }
void bad_starts(void **) { assert_true(good(run_world(2, starts_are_checked))); }
void promised_memory_is_required(void **) {
  for (const int rank_count : {1, 2, 3})
    assert_true(good(run_world(rank_count, [=](int rank, mxs_comm *comm) {
      return promises_are_kept(rank, rank_count, comm);
    })));
}
void what_describe_tells(void **) { assert_true(good(run_world(4, describe_tells))); }
void layouts_that_differ(void **) { assert_true(good(run_world(3, different_layouts))); }
void one_rank_with_bad_arguments(void **) { assert_true(good(run_world(3, one_bad_rank))); }
void gather_meets_reduce(void **) {
  assert_true(kinds_differ("flat", "flat"));
  assert_true(kinds_differ("chain", "chain"));
  assert_true(kinds_differ("spread", "flat"));
}
void different_memory(void **) { assert_true(memories_differ()); }
// Rank 1 starts a collective, does what is refused, and only then rank 0 starts it.
bool held_in_flight(std::string (*body)(int, mxs_comm *, std::latch *)) {
  std::latch rank_1_has_tried(1);
  return good(run_world(2, [&](int rank, mxs_comm *comm) { return body(rank, comm, &rank_1_has_tried); }));
}

void destroyed_in_flight(void **) { assert_true(held_in_flight(destroy_in_flight)); }
void freed_in_flight(void **) { assert_true(held_in_flight(free_in_flight)); }
void destroyed_after_abort(void **) { assert_true(good(run_world(2, destroy_after_abort))); }
void several_at_a_time(void **) { assert_true(several_in_flight_in_all_worlds()); }
void algorithm_by_environment(void **) { assert_true(environment_is_read()); }
void proof_by_environment(void **) { assert_true(schedules_are_proved()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_arguments),        cmocka_unit_test(cut_elements),
      cmocka_unit_test(bad_starts),           cmocka_unit_test(what_describe_tells),
      cmocka_unit_test(promised_memory_is_required),
      cmocka_unit_test(layouts_that_differ),  cmocka_unit_test(one_rank_with_bad_arguments),
      cmocka_unit_test(gather_meets_reduce),  cmocka_unit_test(different_memory),
      cmocka_unit_test(destroyed_in_flight),  cmocka_unit_test(freed_in_flight),
      cmocka_unit_test(destroyed_after_abort), cmocka_unit_test(several_at_a_time),
      cmocka_unit_test(algorithm_by_environment), cmocka_unit_test(proof_by_environment),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
