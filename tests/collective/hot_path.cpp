// SPDX-License-Identifier: Apache-2.0
// Nothing allocates after create: operator new is counted while collectives are started and waited for.
#include <cstdio>
#include <cstdlib>

#include "cases.hpp"
#include "support/counted_allocations.hpp"
#include "support/temporary_folder.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

std::string starts_without_allocating(int, int rank_count, mxs_comm *comm, const Case &each, std::byte *source,
                                      std::byte *target) {
  OwnedCollective collective;
  const int at_first = allocations;
  if (make(&collective, comm, each, rank_count) != MXS_OK) return error_of("create");
  const int before = allocations;
  if (before == at_first) return "create made no allocation: the count does not work";
  mxs_status status = MXS_OK;
  for (int turn = 0; turn < 20 && status == MXS_OK; ++turn) {
    status = mxs_collective_start(collective.value, each.kind == MXS_GATHER ? nullptr : source, target, nullptr);
    if (status == MXS_OK) status = mxs_collective_wait(collective.value, nullptr);
  }
  const int made = allocations - before;
  if (status != MXS_OK) return error_of(name_of(each, rank_count));
  return made == 0 ? "" : name_of(each, rank_count) + ": " + std::to_string(made) + " allocations";
}

// More than there are lanes, with priorities, waited for backwards.
std::string many_start_without_allocating(int, int rank_count, mxs_comm *comm) {
  constexpr size_t count = 7;
  const std::vector<TestLayout> layouts = test_layouts(rank_count, 4, 5000);
  OwnedCollective collectives[count];
  std::vector<std::vector<std::byte>> sources(count), targets(count);
  for (size_t i = 0; i < count; ++i) {
    Case each;
    each.layout = &layouts[i % layouts.size()];
    each.kind = i % 2 ? MXS_REDUCE : MXS_GATHER;
    each.chunk_bytes = 4096;
    if (make(&collectives[i], comm, each, rank_count) != MXS_OK) return error_of("create");
    sources[i].resize(each.layout->bytes + 64);
    targets[i].resize(each.layout->bytes + 64);
  }
  const int before = allocations;
  mxs_status status = MXS_OK;
  for (int turn = 0; turn < 10 && status == MXS_OK; ++turn) {
    for (size_t i = 0; i < count && status == MXS_OK; ++i) {
      mxs_call call = MXS_CALL_INIT;
      call.priority = static_cast<int32_t>(i % 3);
      const void *source = i % 2 ? sources[i].data() : nullptr;
      status = mxs_collective_start(collectives[i].value, source, targets[i].data(), &call);
    }
    for (size_t i = count; i-- > 0 && status == MXS_OK;) status = mxs_collective_wait(collectives[i].value, nullptr);
  }
  const int made = allocations - before;
  if (status != MXS_OK) return error_of("many in flight");
  return made == 0 ? "" : "many in flight: " + std::to_string(made) + " allocations";
}

std::string run_all(int rank, mxs_comm *comm) {
  constexpr int rank_count = 4;
  std::vector<std::byte> heap_source(1 << 20), heap_target(1 << 20);
  void *source = nullptr, *target = nullptr;
  if (mxs_comm_allocate(comm, 1 << 20, MXS_HOST, &source) != MXS_OK) return error_of("allocate");
  if (mxs_comm_allocate(comm, 1 << 20, MXS_HOST, &target) != MXS_OK) return error_of("allocate");
  std::string complaint;
  for (const TestLayout &layout : test_layouts(rank_count, 4, 5000))
    for (const int32_t kind : {MXS_GATHER, MXS_REDUCE})
      for (const char *algorithm : {"flat", "chain", "spread", "circulant", "two-level-circulant",
                                    static_cast<const char *>(nullptr)}) {
        Case each;
        each.layout = &layout;
        each.kind = kind;
        each.algorithm = algorithm;
        each.chunk_bytes = 4096;
        const bool shared = !algorithm;
        if (complaint.empty())
          complaint = starts_without_allocating(rank, rank_count, comm, each,
                                                shared ? static_cast<std::byte *>(source) : heap_source.data(),
                                                shared ? static_cast<std::byte *>(target) : heap_target.data());
      }
  if (complaint.empty()) complaint = many_start_without_allocating(rank, rank_count, comm);
  mxs_comm_free(comm, source);
  mxs_comm_free(comm, target);
  return complaint;
}

bool holds() {
  const std::string complaint = run_world(4, run_all);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void nothing_allocates_after_create(void **) { assert_true(holds()); }

bool holds_with_a_trace() {
  TemporaryFolder folder;
  setenv("MXS_TRACE", folder.path().c_str(), 1);
  const bool good = holds();
  unsetenv("MXS_TRACE");
  return good && entries_of(folder.path()).size() == 8;  // a ring and a timeline of each rank
}
void nothing_allocates_with_a_trace(void **) { assert_true(holds_with_a_trace()); }

}  // namespace

int main() {
  if (under_tool()) {
    std::printf("1..0 # SKIP a sanitizer or valgrind allocates in between\n");
    return 0;
  }
  const CMUnitTest tests[] = {cmocka_unit_test(nothing_allocates_after_create),
                              cmocka_unit_test(nothing_allocates_with_a_trace)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
