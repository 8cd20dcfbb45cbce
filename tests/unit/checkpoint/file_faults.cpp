// SPDX-License-Identifier: Apache-2.0
// Disks that write and read less than was asked for, want larger blocks, or fail: now and then, or for ever.
#include <cstring>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "checkpoint/file_io.hpp"
#include "support/complaints.hpp"
#include "unit/checkpoint/faults.hpp"
#include "support/temporary_folder.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::content_of;
using mxs::test::expect;
using mxs::test::faults;
using mxs::test::good;
using mxs::test::TemporaryFolder;
using mxs::test::words;

namespace {

constexpr uint64_t all_bytes = 30'000'001, first_offset = 4'001;

std::string some_bytes() {
  std::string text(all_bytes, '\0');
  for (uint64_t i = 0; i < all_bytes; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}
const std::string data = some_bytes();

mxs_status write_all(const std::string &folder, std::vector<uint64_t> *hashes) {
  FilesWriter writer(folder, nullptr);
  mxs_status status = writer.begin("file");
  if (status == MXS_OK) status = writer.write(first_offset, data.data(), data.size(), hashes);
  if (status == MXS_OK) status = writer.finish_piece();
  return status == MXS_OK ? writer.finish() : status;
}

mxs_status read_all(const std::string &folder, const std::vector<uint64_t> &hashes, std::string *text) {
  ManifestFile file;
  file.name = "file";
  file.data_offset = first_offset;
  file.bytes = first_offset + all_bytes;
  ManifestArray array;
  array.name = "w";
  array.number_bytes = 1;
  array.bytes = all_bytes;
  array.pieces = {{0, 0, all_bytes, hashes}};
  const ByteSink sink = [&](const std::byte *bytes, uint64_t count) {
    return text->append(reinterpret_cast<const char *>(bytes), count), MXS_OK;
  };
  return read_ranges(folder, {{&file, &array, 0, all_bytes, sink}}, true, nullptr);
}

std::string comes_through() {
  const TemporaryFolder folder;
  std::vector<uint64_t> hashes;
  if (write_all(folder.path(), &hashes) != MXS_OK) return last_error_text();
  if (content_of(folder / "file").substr(first_offset) != data) return "other bytes are written";
  std::string text;
  if (read_all(folder.path(), hashes, &text) != MXS_OK) return last_error_text();
  return text == data ? "" : "other bytes are read";
}

// Whole blocks, and not.
std::string comes_through_in_parts() {
  for (const size_t bytes : {size_t{1} << 20, size_t{12'288}, size_t{1'000'003}, size_t{4097}}) {
    faults.pwrite_bytes_max = faults.pread_bytes_max = bytes;
    const std::string complaint = comes_through();
    faults.pwrite_bytes_max = faults.pread_bytes_max = SIZE_MAX;
    if (!complaint.empty()) return words("%zu bytes a call: ", bytes) + complaint;
  }
  return "";
}

void calls_may_write_and_read_less_than_asked_for(void **) { assert_true(good(comes_through_in_parts())); }

std::string comes_through_after(int error) {
  for (const long at : {0, 1, 2, 5}) {
    faults.pwrite_error = faults.pread_error = error;
    faults.pwrite_fails_at = faults.pread_fails_at = at;
    const std::string complaint = comes_through();
    faults.pwrite_fails_at = faults.pread_fails_at = -1;
    if (!complaint.empty()) return words("call %ld: ", at) + complaint;
  }
  return "";
}

void an_interrupted_call_is_made_again(void **) { assert_true(good(comes_through_after(EINTR))); }

// The first write is of the first block, through the page cache; all others but the last are direct.
std::string refused_blocks_go_through_the_page_cache() {
  faults.pwrite_error = faults.pread_error = EINVAL;
  faults.pwrite_fails_at = 1;
  faults.pread_fails_at = 0;
  const std::string complaint = comes_through();
  const bool struck = faults.pwrite_fails_at < 0 && faults.pread_fails_at < 0;
  faults.pwrite_fails_at = faults.pread_fails_at = -1;
  return complaint.empty() && !struck ? "nothing was refused" : complaint;
}

void where_direct_calls_are_refused_the_page_cache_takes_them(void **) {
  assert_true(good(refused_blocks_go_through_the_page_cache()));
}

std::string writes_fail(int error) {
  for (const long at : {0, 1, 4, 8}) {
    const TemporaryFolder folder;
    faults.pwrite_error = error;
    faults.pwrite_fails_at = at;
    std::vector<uint64_t> hashes;
    const mxs_status status = write_all(folder.path(), &hashes);
    faults.pwrite_fails_at = -1;
    const std::string complaint = expect(status, MXS_SYSTEM, {folder / "file", std::strerror(error)});
    if (!complaint.empty()) return words("write %ld: ", at) + complaint;
  }
  return "";
}

void a_write_that_fails_is_told_by_file_and_cause(void **) {
  for (const int error : {ENOSPC, EIO, EDQUOT, EFBIG}) assert_true(good(writes_fail(error)));
}

std::string syncs_fail() {
  const TemporaryFolder folder;
  faults.fsync_error = EIO;
  faults.fsync_fails_at = 0;
  std::vector<uint64_t> hashes;
  const mxs_status status = write_all(folder.path(), &hashes);
  faults.fsync_fails_at = -1;
  return expect(status, MXS_SYSTEM, {folder / "file", "fsync", std::strerror(EIO)});
}

void a_sync_that_fails_is_told_by_file_and_cause(void **) { assert_true(good(syncs_fail())); }

std::string reads_fail() {
  const TemporaryFolder folder;
  std::vector<uint64_t> hashes;
  if (write_all(folder.path(), &hashes) != MXS_OK) return last_error_text();
  for (const long at : {0, 1, 2, 3}) {
    faults.pread_error = EIO;
    faults.pread_fails_at = at;
    std::string text;
    const mxs_status status = read_all(folder.path(), hashes, &text);
    faults.pread_fails_at = -1;
    const std::string complaint = expect(status, MXS_SYSTEM, {folder / "file", std::strerror(EIO)});
    if (!complaint.empty()) return words("read %ld: ", at) + complaint;
    if (text != data.substr(0, static_cast<size_t>(at) << 23)) return words("read %ld: %zu bytes", at, text.size());
  }
  return "";
}

void a_read_that_fails_is_told_when_its_turn_has_come(void **) { assert_true(good(reads_fail())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(calls_may_write_and_read_less_than_asked_for),
      cmocka_unit_test(an_interrupted_call_is_made_again),
      cmocka_unit_test(where_direct_calls_are_refused_the_page_cache_takes_them),
      cmocka_unit_test(a_write_that_fails_is_told_by_file_and_cause),
      cmocka_unit_test(a_sync_that_fails_is_told_by_file_and_cause),
      cmocka_unit_test(a_read_that_fails_is_told_when_its_turn_has_come),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
