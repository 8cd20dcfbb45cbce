// SPDX-License-Identifier: Apache-2.0
// Files, maps and touching.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/status.hpp"
#include "memory/region.hpp"

#include "support/complaints.hpp"
#include "support/sanitized.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr size_t mib = size_t{1} << 20;

bool is_sealed_against_resizing() {
  File file;
  if (create_file(&file, 10'000, "test") != MXS_OK) return false;
  struct stat information {};
  if (fstat(file.get(), &information) != 0 || information.st_size != 12'288) return false;
  return ftruncate(file.get(), 4096) != 0 && ftruncate(file.get(), 1 << 20) != 0 && fcntl(file.get(), F_GETFD) == 1;
}

bool maps_begin_on_2_mib() {
  File file;
  if (create_file(&file, 3 * mib, "test") != MXS_OK) return false;
  Mapping first, second, empty;
  if (map_file(&first, file.get(), 3 * mib, true) != MXS_OK) return false;
  if (map_file(&second, file.get(), 3 * mib, false) != MXS_OK) return false;
  if (map_file(&empty, file.get(), 0, true) != MXS_OK || empty.data()) return false;
  first.data()[3 * mib - 1] = std::byte{7};
  return reinterpret_cast<uintptr_t>(first.data()) % (2 * mib) == 0 &&
         reinterpret_cast<uintptr_t>(second.data()) % (2 * mib) == 0 && second.data()[3 * mib - 1] == std::byte{7};
}

bool a_range_shows_several_files() {
  File one, two;
  Mapping range;
  if (create_file(&one, 64 * 1024, "one") != MXS_OK || create_file(&two, 64 * 1024, "two") != MXS_OK) return false;
  if (reserve(&range, 128 * 1024) != MXS_OK) return false;
  if (map_over(range.data(), one.get(), 4096, 8192, true) != MXS_OK) return false;
  if (map_over(range.data() + 8192, two.get(), 0, 4096, true) != MXS_OK) return false;
  range.data()[0] = std::byte{1};
  range.data()[8192] = std::byte{2};
  std::byte bytes[2] = {};
  return pread(one.get(), &bytes[0], 1, 4096) == 1 && pread(two.get(), &bytes[1], 1, 0) == 1 &&
         bytes[0] == std::byte{1} && bytes[1] == std::byte{2};
}

uint64_t resident_bytes(int descriptor) {
  struct stat information {};
  fstat(descriptor, &information);
  return static_cast<uint64_t>(information.st_blocks) * 512;
}

bool touching_keeps_contents_and_stays_inside() {
  File file;
  Mapping mapping;
  if (create_file(&file, 64 * mib, "test") != MXS_OK) return false;
  if (map_file(&mapping, file.get(), 64 * mib, true) != MXS_OK) return false;
  for (size_t at : {size_t{5}, 2 * mib + 9, 6 * mib + 1}) mapping.data()[at] = std::byte{0x5a};
  uint64_t huge = 1;
  // A ragged piece, whole blocks, nothing, and one page far off.
  if (touch(mapping.data(), {{mib + 4096, 7 * mib}, {20 * mib, 0}, {40 * mib + 4096, 4096}}, &huge) != MXS_OK)
    return false;
  const uint64_t resident = resident_bytes(file.get());
  if (huge > 6 * mib || huge % (2 * mib) != 0) return false;
  for (size_t at : {size_t{5}, 2 * mib + 9, 6 * mib + 1})
    if (mapping.data()[at] != std::byte{0x5a}) return false;
  return resident >= 7 * mib + 8192 && resident <= 8 * mib;
}

// In a child, because what it sets can't be taken back, and what it tests for would kill the program.
bool child_is_content(bool (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int result = 0;
  waitpid(child, &result, 0);
  return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

bool file_limit_is_a_status() {
  const rlimit limit = {4096, 4096};
  setrlimit(RLIMIT_FSIZE, &limit);
  File file;
  return create_file(&file, mib, "test") == MXS_OUT_OF_MEMORY && std::strstr(last_error_text(), "ulimit -f");
}

bool address_limit_is_a_status() {
  const rlimit limit = {512 * mib, 512 * mib};
  setrlimit(RLIMIT_AS, &limit);
  Mapping mapping;
  return reserve(&mapping, 1024 * mib) == MXS_OUT_OF_MEMORY && !mapping.data();
}

// A file may be larger than the machine's memory; making all of it real must be refused, not killed.
bool too_much_memory_is_a_status() {
  const size_t bytes = size_t{1} << 42;
  File file;
  Mapping mapping;
  if (create_file(&file, bytes, "test") != MXS_OK) return true;  // refused even earlier
  if (map_file(&mapping, file.get(), bytes, true) != MXS_OK) return true;
  // 64 GiB more than there is: a count of missing pages, not a touch, must find that out.
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) + (uint64_t{64} << 30);
  if (memory > bytes) return true;
  return touch(mapping.data(), {{0, memory}}, nullptr) == MXS_OUT_OF_MEMORY &&
         std::strstr(last_error_text(), "available") && resident_bytes(file.get()) == 0;
}

void a_file_has_whole_pages_and_cannot_be_resized(void **) { assert_true(is_sealed_against_resizing()); }
void maps_of_a_file_begin_on_a_2_mib_border(void **) { assert_true(maps_begin_on_2_mib()); }
void a_reserved_range_can_show_parts_of_several_files(void **) { assert_true(a_range_shows_several_files()); }
void touching_makes_pages_real_and_keeps_contents(void **) { assert_true(touching_keeps_contents_and_stays_inside()); }
void a_file_size_limit_gives_a_status_not_a_signal(void **) { assert_true(child_is_content(file_limit_is_a_status)); }
void an_address_space_limit_gives_a_status(void **) {
  if (test::under_tool()) return test::not_run("a sanitizer or valgrind reserves more than any limit");
  assert_true(child_is_content(address_limit_is_a_status));
}
void more_memory_than_the_machine_has_gives_a_status(void **) {
  assert_true(child_is_content(too_much_memory_is_a_status));
}
void absurd_sizes_are_refused(void **) {
  File file;
  Mapping mapping;
  assert_int_equal(create_file(&file, SIZE_MAX, "test"), MXS_INVALID_ARGUMENT);
  assert_int_equal(reserve(&mapping, SIZE_MAX - 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(file.get(), -1);
  assert_null(mapping.data());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_file_has_whole_pages_and_cannot_be_resized),
      cmocka_unit_test(maps_of_a_file_begin_on_a_2_mib_border),
      cmocka_unit_test(a_reserved_range_can_show_parts_of_several_files),
      cmocka_unit_test(touching_makes_pages_real_and_keeps_contents),
      cmocka_unit_test(a_file_size_limit_gives_a_status_not_a_signal),
      cmocka_unit_test(an_address_space_limit_gives_a_status),
      cmocka_unit_test(more_memory_than_the_machine_has_gives_a_status),
      cmocka_unit_test(absurd_sizes_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
