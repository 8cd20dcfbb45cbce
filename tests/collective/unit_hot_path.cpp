// SPDX-License-Identifier: Apache-2.0
// After create nothing allocates, maps or unmaps: over 100 steps every call of malloc, mmap, munmap, mprotect, madvise,
// mremap and brk is counted, by definitions here that stand before the C library's.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <string>

#include "support/complaints.hpp"
#include "support/sanitized.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

namespace {

thread_local bool watching = false;
thread_local uint64_t allocation_count = 0, mapping_count = 0;

[[maybe_unused]] void note_allocation() {
  if (watching) allocation_count++;
}
[[maybe_unused]] void note_mapping() {
  if (watching) mapping_count++;
}

}  // namespace

// A sanitizer has definitions of its own.
#if !defined(MXS_UNDER_ASAN) && !defined(MXS_UNDER_TSAN)
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
  note_allocation();
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  note_allocation();
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  note_allocation();
  return __libc_realloc(memory, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  note_allocation();
  return __libc_memalign(alignment, bytes);
}
void *mmap(void *place, size_t bytes, int access, int flags, int file, off_t offset) noexcept {
  note_mapping();
  return reinterpret_cast<void *>(syscall(SYS_mmap, place, bytes, access, flags, file, offset));
}
int munmap(void *place, size_t bytes) noexcept {
  note_mapping();
  return static_cast<int>(syscall(SYS_munmap, place, bytes));
}
int mprotect(void *place, size_t bytes, int access) noexcept {
  note_mapping();
  return static_cast<int>(syscall(SYS_mprotect, place, bytes, access));
}
int madvise(void *place, size_t bytes, int advice) noexcept {
  note_mapping();
  return static_cast<int>(syscall(SYS_madvise, place, bytes, advice));
}
void *mremap(void *place, size_t bytes, size_t new_bytes, int flags, ...) noexcept {
  note_mapping();
  va_list more;
  va_start(more, flags);
  void *new_place = va_arg(more, void *);
  va_end(more);
  return reinterpret_cast<void *>(syscall(SYS_mremap, place, bytes, new_bytes, flags, new_place));
}
}
#endif

using namespace mxs;
using namespace mxs::test;

namespace {

// Forward, backward with two micro-batches, step; no checking of values, which would allocate.
mxs_status run_steps(Units &units, int step_count) {
  const int unit_count = static_cast<int>(units.units.size());
  for (int step = 0; step < step_count; step++) {
    for (int turn = 0; turn < 2 * unit_count; turn++) {
      const int number = turn < unit_count ? turn : 2 * unit_count - 1 - turn;
      mxs_unit *unit = units.units[static_cast<size_t>(number)];
      mxs_status status = mxs_unit_gather(unit, nullptr);
      if (status == MXS_OK) status = mxs_unit_wait(unit, nullptr);
      mxs_view view = MXS_VIEW_INIT;
      if (status == MXS_OK) status = mxs_unit_tensor(unit, 4 * number, &view);
      if (status == MXS_OK && turn >= unit_count) status = mxs_unit_gradient(unit, 4 * number, MXS_ADD, &view);
      if (status == MXS_OK && turn >= unit_count) status = mxs_unit_reduce(unit, nullptr);
      if (status == MXS_OK) status = mxs_unit_release(unit, MXS_FREE, nullptr);
      if (status != MXS_OK) return status;
    }
    for (mxs_unit *unit : units.units) {
      mxs_status status = mxs_unit_wait_reduce(unit, nullptr);
      if (status == MXS_OK) status = unit->check_idle("the step");
      if (status != MXS_OK) return status;
      unit->end_views();
    }
    const mxs_status status = mxs_comm_barrier(units.comm, nullptr);
    if (status != MXS_OK) return status;
    for (mxs_unit *unit : units.units) unit->finish_step(true);
  }
  return MXS_OK;
}

std::string steps_allocate_nothing(mxs_comm *comm, int gather, const char *algorithm, int own_slot) {
  Units units;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.gather = gather;
  options.algorithm = algorithm;
  options.own_slot = own_slot;
  const std::string complaint = units.make(comm, plain_model(4, MXS_BF16), &options);
  if (!complaint.empty()) return complaint;
  if (run_steps(units, 2) != MXS_OK) return failure("the first steps", MXS_INTERNAL);
  allocation_count = mapping_count = 0;
  watching = true;
  const mxs_status status = run_steps(units, 100);
  watching = false;
  if (status != MXS_OK) return failure("steps", status);
  if (allocation_count || mapping_count)
    return std::to_string(allocation_count) + " allocations and " + std::to_string(mapping_count) +
           " changes of maps in 100 steps";
  return "";
}

// The counting itself must work, else the test above proves nothing.
std::string allocations_are_seen() {
  allocation_count = mapping_count = 0;
  watching = true;
  std::string text(1000, 'x');
  void *memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(memory, 4096);
  watching = false;
  if (allocation_count == 0) return "an allocation of " + std::to_string(text.size()) + " bytes wasn't seen";
  return mapping_count == 2 ? "" : std::to_string(mapping_count) + " of 2 changes of maps were seen";
}

bool in_worlds(int gather, const char *algorithm, int own_slot = 0) {
  for (const int rank_count : {1, 2, 4})
    if (!good(run_world(rank_count, [&](int, mxs_comm *comm) {
          return steps_allocate_nothing(comm, gather, algorithm, own_slot);
        })))
      return false;
  return true;
}

void the_test_sees_allocations_and_maps(void **) { assert_true(good(allocations_are_seen())); }
void a_hundred_steps_by_copy_map_nothing(void **) { assert_true(in_worlds(MXS_GATHER_BY_COPY, nullptr)); }
void a_hundred_steps_by_reference_map_nothing(void **) { assert_true(in_worlds(MXS_GATHER_BY_REFERENCE, nullptr)); }
void a_hundred_steps_by_messages_map_nothing(void **) { assert_true(in_worlds(MXS_GATHER_BY_COPY, "flat")); }
void a_hundred_steps_with_own_slots_map_nothing(void **) {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat"})
    assert_true(in_worlds(MXS_GATHER_BY_COPY, algorithm, 1));
}

}  // namespace

int main() {
  if (under_tool()) {
    std::printf("1..0 # SKIP a sanitizer or valgrind allocates in between\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_test_sees_allocations_and_maps),
      cmocka_unit_test(a_hundred_steps_by_copy_map_nothing),
      cmocka_unit_test(a_hundred_steps_by_reference_map_nothing),
      cmocka_unit_test(a_hundred_steps_by_messages_map_nothing),
      cmocka_unit_test(a_hundred_steps_with_own_slots_map_nothing),
  };
  return cmocka_run_group_tests_name("unit hot path", tests, nullptr, nullptr);
}
