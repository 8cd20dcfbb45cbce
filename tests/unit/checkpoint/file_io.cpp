// SPDX-License-Identifier: Apache-2.0
// Writes and reads of large files: borders of blocks and chunks, neighbours' bytes, hashes, damage.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "checkpoint/fetch.hpp"
#include "checkpoint/file_io.hpp"
#include "support/complaints.hpp"
#include "support/temporary_folder.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::content_of;
using mxs::test::expect;
using mxs::test::good;
using mxs::test::put_content;
using mxs::test::TemporaryFolder;
using mxs::test::words;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;
constexpr char poison = '\x55';

char byte_at(uint64_t place) { return static_cast<char>((place * 2654435761u >> 11) ^ place); }

std::string bytes_at(uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i) text[i] = byte_at(offset + i);
  return text;
}

std::vector<uint64_t> hashes_of(const std::string &piece) {
  std::vector<uint64_t> hashes;
  for (uint64_t first = 0; first < piece.size(); first += hash_chunk_bytes)
    hashes.push_back(hash_chunk(piece.data() + first, std::min(hash_chunk_bytes, piece.size() - first)));
  return hashes;
}

struct Run {
  uint64_t offset, bytes;
};

// Each run is a piece, given in parts of `part_bytes`.
std::string write_runs(const std::string &folder, const std::string &name, const std::vector<Run> &runs,
                       uint64_t part_bytes) {
  FilesWriter writer(folder, nullptr);
  if (writer.begin(name) != MXS_OK) return last_error_text();
  for (const Run &run : runs) {
    std::string data = bytes_at(run.offset, run.bytes);
    std::vector<uint64_t> hashes;
    for (uint64_t done = 0; done < run.bytes; done += part_bytes) {
      const uint64_t part = std::min(part_bytes, run.bytes - done);
      if (writer.write(run.offset + done, data.data() + done, part, &hashes) != MXS_OK) return last_error_text();
    }
    const std::vector<uint64_t> wanted = hashes_of(data);
    std::fill(data.begin(), data.end(), '\x77');  // they have been copied
    if (writer.finish_piece() != MXS_OK) return last_error_text();
    if (hashes != wanted) return words("hashes of %zu bytes are wrong", static_cast<size_t>(run.bytes));
  }
  return writer.finish() == MXS_OK ? "" : last_error_text();
}

std::string compare_runs(const std::string &path, const std::vector<Run> &runs, uint64_t file_bytes) {
  std::string wanted(file_bytes, poison);
  for (const Run &run : runs) {
    if (wanted.size() < run.offset + run.bytes) wanted.resize(run.offset + run.bytes, '\0');
    wanted.replace(run.offset, run.bytes, bytes_at(run.offset, run.bytes));
  }
  const std::string got = content_of(path);
  if (got.size() != wanted.size()) return words("%zu bytes, not %zu", got.size(), wanted.size());
  const size_t place = static_cast<size_t>(std::mismatch(got.begin(), got.end(), wanted.begin()).first - got.begin());
  return place == got.size() ? "" : words("byte %zu is wrong", place);
}

const std::vector<std::vector<Run>> interesting_runs = {
    {},
    {{0, 0}},
    {{0, 1}},
    {{4095, 2}},
    {{0, 4095}, {4095, 1}, {4096, 4097}},
    {{1, 4094}, {4097, 3}, {4100, 1}, {8191, 1}},
    {{0, 4096}, {8192, 4096}},
    {{0, 4 * mib}},
    {{0, 4 * mib - 1}, {4 * mib + 1, 1}},
    {{0, 4 * mib + 1}},
    {{4096, 8 * mib}},
    {{3, 128 * 1024 + 4096}, {200'000, 4 * mib + 4095}},
    {{4095, 9 * mib + 77}, {10 * mib, 21 * mib}, {31 * mib, 5}, {31 * mib + 5, 3 * mib}},
};

std::string writes_only_its_own_bytes(const std::string &where) {
  const TemporaryFolder folder(where);
  for (const std::vector<Run> &runs : interesting_runs)
    for (const uint64_t part_bytes : {UINT64_MAX, uint64_t{4097}}) {
      for (const uint64_t file_bytes : {uint64_t{0}, 5 * mib}) {
        put_content(folder / "file", std::string(file_bytes, poison));
        std::string complaint = write_runs(folder.path(), "file", runs, part_bytes);
        if (complaint.empty()) complaint = compare_runs(folder / "file", runs, file_bytes);
        if (!complaint.empty() && !runs.empty())
          return words("from %llu on: ", static_cast<unsigned long long>(runs[0].offset)) + complaint;
      }
      if (runs.size() < 2) break;
    }
  return "";
}

void bytes_come_where_they_belong_and_no_others_change(void **) { assert_true(good(writes_only_its_own_bytes("."))); }

void the_same_holds_without_direct_writes(void **) {
  if (access("/dev/shm", W_OK) == 0) assert_true(good(writes_only_its_own_bytes("/dev/shm")));
}

// Ranks' ranges of one file, each after the other, none at a border.
std::vector<Run> runs_of(int writer) {
  std::vector<Run> runs;
  for (uint64_t turn = 0; turn < 40; ++turn) {
    const uint64_t bytes = 100'003 + (turn % 4 == 0 ? 700'001 : 0);
    runs.push_back({13 + turn * 2'500'009 + static_cast<uint64_t>(writer) * bytes, bytes});
  }
  return runs;
}

std::string all_three_wrote(const std::string &path) {
  std::vector<Run> all;
  for (int writer = 0; writer < 3; ++writer)
    for (const Run &run : runs_of(writer)) all.push_back(run);
  std::string got = content_of(path);
  for (const Run &run : all) {
    if (run.offset + run.bytes > got.size() || got.compare(run.offset, run.bytes, bytes_at(run.offset, run.bytes)) != 0)
      return words("the run at %zu is wrong", static_cast<size_t>(run.offset));
    std::fill_n(got.begin() + static_cast<ptrdiff_t>(run.offset), run.bytes, '\0');
  }
  return got.find_first_not_of('\0') == std::string::npos ? "" : "bytes that are nobody's";
}

std::string neighbours_in_threads() {
  const TemporaryFolder folder;
  std::string complaints[3];
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 3; ++writer)
    threads.emplace_back([&, writer] {
      complaints[writer] = write_runs(folder.path(), "shared", runs_of(writer), 65'521);
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return all_three_wrote(folder / "shared");
}

std::string neighbours_in_processes() {
  const TemporaryFolder folder;
  pid_t children[3];
  for (int writer = 0; writer < 3; ++writer)
    if ((children[writer] = fork()) == 0)
      _exit(write_runs(folder.path(), "shared", runs_of(writer), UINT64_MAX).empty() ? 0 : 1);
  bool all_good = true;
  for (const pid_t child : children) {
    int result = 0;
    waitpid(child, &result, 0);
    all_good = all_good && result == 0;
  }
  return all_good ? all_three_wrote(folder / "shared") : "a child failed";
}

void threads_write_ranges_of_one_file_beside_each_other(void **) { assert_true(good(neighbours_in_threads())); }
void processes_write_ranges_of_one_file_beside_each_other(void **) { assert_true(good(neighbours_in_processes())); }

// ---- reading ----

using PieceCounts = std::vector<std::vector<uint64_t>>;  // of arrays

// A file with arrays of F32 one after the other, each cut into pieces; data begin off a border.
struct Saved {
  TemporaryFolder folder;
  ManifestFile file;
  std::vector<ManifestArray> arrays;
  std::string data;

  explicit Saved(const PieceCounts &piece_counts, uint64_t data_offset = 1234) {
    file.name = "model-00001-of-00001.safetensors";
    file.data_offset = data_offset;
    uint64_t offset = 0;
    for (const std::vector<uint64_t> &counts : piece_counts) {
      ManifestArray array;
      array.name = "layers." + std::to_string(arrays.size()) + ".weight";
      array.number_bytes = 4;
      array.offset = offset;
      for (const uint64_t count : counts) {
        const std::string piece = bytes_at(data_offset + offset + array.bytes, count * 4);
        array.pieces.push_back({0, array.bytes / 4, count, hashes_of(piece)});
        array.bytes += count * 4;
      }
      offset += array.bytes;
      arrays.push_back(array);
    }
    file.bytes = data_offset + offset;
    data = std::string(data_offset, poison) + bytes_at(data_offset, offset);
    put_content(folder / file.name, data);
  }

  std::string wanted(size_t array, uint64_t offset, uint64_t bytes) const {
    return data.substr(file.data_offset + arrays[array].offset + offset, bytes);
  }
};

struct Taken {
  std::string bytes;
  ByteSink sink() {
    return [this](const std::byte *data, uint64_t count) {
      bytes.append(reinterpret_cast<const char *>(data), count);
      return MXS_OK;
    };
  }
};

std::string reads(const Saved &saved, const std::vector<ReadRange> &given, bool verified) {
  std::vector<ReadRange> ranges = given;
  std::vector<Taken> taken(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) ranges[i].sink = taken[i].sink();
  IoProgress progress;
  if (read_ranges(saved.folder.path(), ranges, verified, &progress) != MXS_OK) return last_error_text();
  uint64_t all_bytes = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    all_bytes += ranges[i].bytes;
    const size_t array = static_cast<size_t>(ranges[i].array - saved.arrays.data());
    if (taken[i].bytes != saved.wanted(array, ranges[i].offset, ranges[i].bytes))
      return words("%zu bytes from %zu on of array %zu are wrong", static_cast<size_t>(ranges[i].bytes),
                   static_cast<size_t>(ranges[i].offset), array);
  }
  return progress.done_bytes == all_bytes ? "" : "progress has another sum";
}

std::string ranges_come_back() {
  for (const uint64_t data_offset : {uint64_t{1234}, uint64_t{8192}}) {
    const Saved saved(
        PieceCounts{{1}, {7, 0, 3'000'000, 1}, {}, {1024}, {1'048'576}, {1'048'575, 1'048'577}, {5, 5}},
        data_offset);
    for (const bool verified : {true, false}) {
      std::vector<ReadRange> together;
      for (const ManifestArray &array : saved.arrays) {
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{4097},
                                     4 * mib - 1, 4 * mib, 4 * mib + 1, array.bytes})
          for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{28}, 4 * mib - 5, array.bytes / 2}) {
            if (offset + bytes > array.bytes) continue;
            const ReadRange range = {&saved.file, &array, offset, bytes, nullptr};
            const std::string complaint = reads(saved, {range}, verified);
            if (!complaint.empty()) return complaint;
            if (bytes < 4 * mib) together.push_back(range);
          }
        together.push_back({&saved.file, &array, 0, array.bytes, nullptr});
      }
      std::string complaint = reads(saved, together, verified);
      std::reverse(together.begin(), together.end());
      if (complaint.empty()) complaint = reads(saved, together, verified);
      if (complaint.empty()) complaint = reads(saved, {}, verified);
      if (!complaint.empty()) return "together: " + complaint;
    }
  }
  return "";
}

void ranges_of_all_sizes_come_back(void **) { assert_true(good(ranges_come_back())); }

std::string arrays_without_pieces_are_read() {
  Saved saved(PieceCounts{{3'000'001}, {17}});
  for (ManifestArray &array : saved.arrays) array.pieces.clear();
  std::vector<ReadRange> ranges;
  for (const ManifestArray &array : saved.arrays) ranges.push_back({&saved.file, &array, 1, array.bytes - 2, nullptr});
  return reads(saved, ranges, true);
}

void without_pieces_there_is_nothing_to_compare(void **) { assert_true(good(arrays_without_pieces_are_read())); }

void flip_bit(const Saved &saved, size_t array, uint64_t offset) {
  std::string data = saved.data;
  data[saved.file.data_offset + saved.arrays[array].offset + offset] ^= 4;
  put_content(saved.folder / saved.file.name, data);
}

// Whatever touches the chunk with the flipped bit is refused, and nothing of that chunk is handed on.
std::string flipped_bits_are_found() {
  const Saved saved(PieceCounts{{1'500'000, 2'000'001}, {9}});
  // Chunks: bytes 0, 4 Mi; then from 6,000,000 on each 4 Mi.
  const struct {
    uint64_t bit_at, offset, bytes, good_bytes;
    bool touches;
  } cases[] = {
      {0, 0, 1, 0, true},
      {100, 4 * mib - 1, 1, 0, true},
      {100, 4 * mib, 5'000'000, 0, false},
      {4 * mib, 0, 14'000'004, 4 * mib, true},
      {5'999'999, 0, 4 * mib, 0, false},
      {6'000'000, 0, 14'000'004, 6'000'000, true},
      {14'000'003, 0, 14'000'004, 6'000'000 + 4 * mib, true},
      {14'000'003, 0, 6'000'000 + 4 * mib, 0, false},
  };
  for (const auto &each : cases) {
    flip_bit(saved, 0, each.bit_at);
    Taken taken;
    const std::vector<ReadRange> ranges = {{&saved.file, &saved.arrays[0], each.offset, each.bytes, taken.sink()}};
    const mxs_status status = read_ranges(saved.folder.path(), ranges, true, nullptr);
    std::string complaint = each.touches ? expect(status, MXS_DAMAGED, {saved.file.name, "layers.0.weight"})
                                         : expect(status, MXS_OK);
    if (each.touches && taken.bytes != saved.wanted(0, each.offset, each.good_bytes))
      complaint += words("%zu bytes were handed on", taken.bytes.size());
    if (complaint.empty()) complaint = expect(read_ranges(saved.folder.path(), ranges, false, nullptr), MXS_OK);
    if (!complaint.empty()) return words("bit in byte %zu: ", static_cast<size_t>(each.bit_at)) + complaint;
  }
  return "";
}

void a_flipped_bit_is_told_by_file_and_array_and_not_handed_on(void **) { assert_true(good(flipped_bits_are_found())); }

std::string other_files_are_refused() {
  const Saved saved(PieceCounts{{3'000'000}, {9}});
  const std::string path = saved.folder / saved.file.name;
  Taken taken;
  const std::vector<ReadRange> ranges = {{&saved.file, &saved.arrays[1], 0, 4, taken.sink()}};
  const auto refused = [&](const char *word) {
    return expect(read_ranges(saved.folder.path(), ranges, true, nullptr), MXS_DAMAGED,
                  {saved.file.name, "layers.1.weight", word});
  };
  std::string complaint;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, saved.file.bytes - 1, saved.file.bytes + 1})
    if (complaint.empty() && truncate(path.c_str(), static_cast<off_t>(bytes)) == 0)
      complaint = refused((std::to_string(bytes) + " bytes long").c_str());
  unlink(path.c_str());
  if (complaint.empty()) complaint = refused("No such file");
  mkdir(path.c_str(), 0777);
  if (complaint.empty()) complaint = refused("no file");
  rmdir(path.c_str());
  if (mkfifo(path.c_str(), 0666) == 0 && complaint.empty()) complaint = refused("no file");
  return complaint.empty() && !taken.bytes.empty() ? "bytes were handed on" : complaint;
}

void a_file_that_is_shorter_longer_missing_or_no_file_is_refused(void **) {
  assert_true(good(other_files_are_refused()));
}

std::string failures_of_sinks_come_back() {
  const Saved saved(PieceCounts{{10'000'000}});
  int calls = 0;
  const ReadRange all = {&saved.file, &saved.arrays[0], 0, saved.arrays[0].bytes, nullptr};
  ReadRange range = all;
  range.sink = [&](const std::byte *, uint64_t) {
    return ++calls == 3 ? set_error(MXS_SYSTEM, "the third one") : MXS_OK;
  };
  std::string complaint = expect(read_ranges(saved.folder.path(), {range}, true, nullptr), MXS_SYSTEM,
                                 {"the third one"});
  if (calls != 3) complaint += "the sink was called again";
  range.sink = [&](const std::byte *, uint64_t) -> mxs_status { throw std::bad_alloc(); };
  return complaint + expect(read_ranges(saved.folder.path(), {range}, true, nullptr), MXS_OUT_OF_MEMORY);
}

void what_a_sink_returns_ends_the_read(void **) { assert_true(good(failures_of_sinks_come_back())); }

// ---- progress ----

std::string writing_tells_and_stops() {
  const TemporaryFolder folder;
  std::vector<uint64_t> told;
  IoProgress progress;
  progress.go_on = [&](uint64_t done_bytes) {
    told.push_back(done_bytes);
    return true;
  };
  const std::string data = bytes_at(0, 20 * mib);
  {
    FilesWriter writer(folder.path(), &progress);
    for (const char *name : {"one", "two"})
      if (writer.begin(name) != MXS_OK || writer.write(0, data.data(), data.size()) != MXS_OK ||
          writer.finish() != MXS_OK)
        return last_error_text();
  }
  if (progress.done_bytes != 40 * mib || told != std::vector<uint64_t>{16 * mib, 20 * mib, 32 * mib, 40 * mib})
    return words("told %zu times", told.size());
  progress.go_on = [&](uint64_t) { return false; };
  FilesWriter writer(folder.path(), &progress);
  if (writer.begin("three") != MXS_OK) return last_error_text();
  std::string complaint = expect(writer.write(0, data.data(), data.size()), MXS_CANCELLED);
  // It stays so.
  progress.go_on = nullptr;
  if (complaint.empty()) complaint = expect(writer.write(0, data.data(), 1), MXS_CANCELLED);
  return complaint.empty() ? expect(writer.finish(), MXS_CANCELLED) : complaint;
}

std::string reading_tells_and_stops() {
  const Saved saved(PieceCounts{{10'000'000}});
  uint64_t sum = 0;
  const ByteSink sink = [&](const std::byte *, uint64_t bytes) { return sum += bytes, MXS_OK; };
  const std::vector<ReadRange> ranges = {{&saved.file, &saved.arrays[0], 0, saved.arrays[0].bytes, sink}};
  std::vector<uint64_t> told;
  IoProgress progress;
  progress.go_on = [&](uint64_t done_bytes) { return told.push_back(done_bytes), told.size() < 4; };
  if (read_ranges(saved.folder.path(), ranges, true, &progress) != MXS_OK) return last_error_text();
  if (told != std::vector<uint64_t>{16 * mib, 32 * mib, 40'000'000}) return words("told %zu times", told.size());
  progress.done_bytes = sum = 0;
  const std::string complaint = expect(read_ranges(saved.folder.path(), ranges, true, &progress), MXS_CANCELLED);
  return complaint.empty() && sum != 16 * mib ? "it went on" : complaint;
}

void progress_is_told_each_16_mib_and_can_stop_a_write(void **) { assert_true(good(writing_tells_and_stops())); }
void progress_is_told_each_16_mib_and_can_stop_a_read(void **) { assert_true(good(reading_tells_and_stops())); }

// ---- fetches ----

std::string fetches_are_few_and_bounded() {
  ManifestFile file;
  file.data_offset = 4096;
  ManifestArray large, small[100];
  large.number_bytes = 1;
  large.bytes = 40'000'000;
  large.pieces = {{0, 0, large.bytes, std::vector<uint64_t>(10)}};
  std::vector<ReadRange> ranges;
  // A thousand ranges of ten chunks, then a hundred small arrays that follow each other.
  for (uint64_t i = 0; i < 1000; ++i) ranges.push_back({&file, &large, i * 40'000, 100, nullptr});
  for (uint64_t i = 0; i < 100; ++i) {
    small[i].number_bytes = 1;
    small[i].offset = large.bytes + i * 8192;
    small[i].bytes = 8192;
    small[i].pieces = {{0, 0, 8192, {0}}};
    ranges.push_back({&file, &small[i], 0, 8192, nullptr});
  }
  FetchPlanner planner(ranges, true);
  Fetch fetch;
  size_t fetch_count = 0;
  uint64_t read_bytes = 0, wanted_bytes = 0;
  while (planner.next(&fetch)) {
    ++fetch_count;
    read_bytes += fetch.end - fetch.first;
    if (block_ceiling(fetch.end) - fetch.first > fetch_bytes_max) return "a fetch is too long";
    if (fetch.first % io_block_bytes != 0) return "a fetch begins off a border";
    for (const FetchedPart &part : fetch.parts) wanted_bytes += part.bytes;
  }
  if (wanted_bytes != 1000 * 100 + 100 * 8192) return "bytes are missing";
  if (fetch_count > 11 || read_bytes > 42'000'000) return words("%zu fetches", fetch_count);
  return "";
}

void what_lies_close_together_is_read_at_once(void **) { assert_true(good(fetches_are_few_and_bounded())); }

// ---- file systems that refuse ----

std::string fills_a_file_system() {
  const TemporaryFolder folder;
  if (!mxs::test::mount_tmpfs(folder.path(), "size=6m")) return "can't mount";
  const std::string data = bytes_at(0, 30 * mib);
  FilesWriter writer(folder.path(), nullptr);
  if (writer.begin("large") != MXS_OK) return last_error_text();
  mxs_status status = writer.write(0, data.data(), data.size());
  if (status == MXS_OK) status = writer.finish();
  std::string complaint = expect(status, MXS_SYSTEM, {"large", std::strerror(ENOSPC)});
  if (complaint.empty()) complaint = expect(writer.finish(), MXS_SYSTEM, {"large", std::strerror(ENOSPC)});
  if (complaint.empty()) complaint = expect(writer.begin("next"), MXS_SYSTEM, {"large"});
  umount2(folder.path().c_str(), MNT_DETACH);
  return complaint;
}

void a_full_file_system_is_told_by_file_and_cause(void **) {
  assert_true(good(mxs::test::with_own_mounts(fills_a_file_system)));
}

std::string writes_where_it_may_not() {
  const TemporaryFolder folder;
  if (!mxs::test::mount_read_only(folder.path())) return "can't mount";
  FilesWriter writer(folder.path(), nullptr);
  const std::string complaint = expect(writer.begin("file"), MXS_SYSTEM, {"file", std::strerror(EROFS)});
  umount2(folder.path().c_str(), MNT_DETACH);
  return complaint;
}

void a_read_only_folder_is_told_by_file_and_cause(void **) {
  assert_true(good(mxs::test::with_own_mounts(writes_where_it_may_not)));
}

std::string unfinished_writers_end() {
  const TemporaryFolder folder;
  const std::string data = bytes_at(0, 30 * mib);
  {
    const FilesWriter never_begun(folder.path(), nullptr);
    FilesWriter writer(folder.path(), nullptr);
    if (writer.begin("file") != MXS_OK || writer.write(5, data.data(), data.size()) != MXS_OK) return last_error_text();
  }
  FilesWriter nowhere(folder / "missing", nullptr);
  return expect(nowhere.begin("file"), MXS_SYSTEM, {"missing/file", std::strerror(ENOENT)});
}

void a_writer_that_is_left_ends(void **) { assert_true(good(unfinished_writers_end())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bytes_come_where_they_belong_and_no_others_change),
      cmocka_unit_test(the_same_holds_without_direct_writes),
      cmocka_unit_test(threads_write_ranges_of_one_file_beside_each_other),
      cmocka_unit_test(processes_write_ranges_of_one_file_beside_each_other),
      cmocka_unit_test(ranges_of_all_sizes_come_back),
      cmocka_unit_test(without_pieces_there_is_nothing_to_compare),
      cmocka_unit_test(a_flipped_bit_is_told_by_file_and_array_and_not_handed_on),
      cmocka_unit_test(a_file_that_is_shorter_longer_missing_or_no_file_is_refused),
      cmocka_unit_test(what_a_sink_returns_ends_the_read),
      cmocka_unit_test(progress_is_told_each_16_mib_and_can_stop_a_write),
      cmocka_unit_test(progress_is_told_each_16_mib_and_can_stop_a_read),
      cmocka_unit_test(what_lies_close_together_is_read_at_once),
      cmocka_unit_test(a_full_file_system_is_told_by_file_and_cause),
      cmocka_unit_test(a_read_only_folder_is_told_by_file_and_cause),
      cmocka_unit_test(a_writer_that_is_left_ends),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
