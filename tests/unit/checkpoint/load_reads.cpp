// SPDX-License-Identifier: Apache-2.0
// Ranges and their sinks: neighbours are read together, and bytes that come cut anywhere are put into their places.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/convert.hpp"
#include "checkpoint/load_reads.hpp"
#include "support/complaints.hpp"
#include "support/drawn_values.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

ManifestArray array_of(const char *name, mxs_dtype dtype, uint64_t numbers) {
  ManifestArray array;
  array.name = name;
  array.dtype = dtype;
  array.number_bytes = static_cast<uint32_t>(dtype_bytes(dtype));
  array.shape = {static_cast<int64_t>(numbers)};
  array.bytes = numbers * array.number_bytes;
  return array;
}

PieceRead piece_of(size_t array, uint64_t first, uint64_t count) {
  PieceRead piece;
  piece.array = array, piece.first = first, piece.count = count;
  return piece;
}

std::string neighbours_are_one_range_inner() {
  OpenedCheckpoint opened;
  opened.manifest.files.resize(1);
  opened.manifest.arrays = {array_of("a", MXS_BF16, 100), array_of("b", MXS_F32, 100)};
  const std::vector<PieceRead> pieces = {piece_of(0, 0, 10), piece_of(0, 10, 5), piece_of(0, 20, 5), piece_of(1, 25, 5),
                                         piece_of(1, 30, 70)};
  const std::vector<ReadRange> ranges = ranges_of(opened, pieces);
  const struct {
    size_t array;
    uint64_t offset, bytes;
  } wanted[] = {{0, 0, 30}, {0, 40, 10}, {1, 100, 300}};
  if (ranges.size() != std::size(wanted)) return words("%zu ranges", ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].array != &opened.manifest.arrays[wanted[i].array] || ranges[i].offset != wanted[i].offset ||
        ranges[i].bytes != wanted[i].bytes || ranges[i].file != &opened.manifest.files[0])
      return words("range %zu is another", i);
  return ranges_of(opened, {}).empty() ? "" : "a range of nothing";
}

// Two pieces of one array, of which the second fills another array, too; bytes in parts of 1 to `part_max`.
std::string check_cuts(mxs_dtype from, mxs_dtype to, mxs_dtype copy, uint64_t part_max, unsigned seed) {
  constexpr uint64_t first_count = 77, second_count = 1300, before = 11;
  OpenedCheckpoint opened;
  opened.manifest.files.resize(1);
  opened.manifest.arrays = {array_of("a", from, 5000)};
  std::vector<std::byte> source((first_count + second_count) * dtype_bytes(from) + 8);
  std::byte *const bytes = source.data() + 8;  // at a border of any number
  for (uint64_t i = 0; i < first_count + second_count; ++i) {
    const double value = static_cast<double>(hashed(i, 1, 2));
    convert(bytes + i * dtype_bytes(from), from, &value, MXS_F64, 1);
  }
  const auto poisoned = [](uint64_t count, mxs_dtype dtype) {
    return std::vector<std::byte>(count * dtype_bytes(dtype) + 8, std::byte{0xa5});
  };
  std::vector<std::byte> first = poisoned(first_count, to), second = poisoned(second_count, to),
                         copied = poisoned(second_count, copy);
  std::vector<PieceRead> pieces = {piece_of(0, before, first_count), piece_of(0, before + first_count, second_count)};
  pieces[0].target = first.data(), pieces[1].target = second.data(), pieces[1].copy = copied.data();
  pieces[0].target_dtype = pieces[1].target_dtype = to, pieces[1].copy_dtype = copy;
  const std::vector<ReadRange> ranges = ranges_of(opened, pieces);
  if (ranges.size() != 1) return "more than one range";
  std::mt19937 random(seed);
  for (uint64_t at = 0; at < ranges[0].bytes;) {
    const uint64_t part = std::min<uint64_t>(1 + random() % part_max, ranges[0].bytes - at);
    if (ranges[0].sink(bytes + at, part) != MXS_OK) return "the sink has failed";
    at += part;
  }
  std::vector<std::byte> wanted = poisoned(first_count, to);
  convert(wanted.data(), to, bytes, from, first_count);
  if (wanted != first) return "the first piece is another";
  wanted = poisoned(second_count, to);
  convert(wanted.data(), to, bytes + first_count * dtype_bytes(from), from, second_count);
  if (wanted != second) return "the second piece is another";
  std::vector<std::byte> wanted_copy = poisoned(second_count, copy);
  convert(wanted_copy.data(), copy, wanted.data(), to, second_count);
  return wanted_copy == copied ? "" : "its copy is another";
}

std::string bytes_may_come_cut_anywhere_inner() {
  unsigned seed = 0;
  for (const mxs_dtype from : {MXS_BF16, MXS_F16, MXS_F32, MXS_F64})
    for (const mxs_dtype to : {MXS_BF16, MXS_F16, MXS_F32})
      for (const uint64_t part_max : {uint64_t{1}, uint64_t{3}, uint64_t{9}, uint64_t{500}, uint64_t{1} << 20}) {
        const std::string complaint = check_cuts(from, to, to == MXS_F32 ? MXS_BF16 : MXS_F32, part_max, ++seed);
        if (!complaint.empty()) return words("seed %u: ", seed) + complaint;
      }
  return "";
}

void neighbours_are_one_range(void **) { assert_true(good(neighbours_are_one_range_inner())); }
void bytes_may_come_cut_anywhere(void **) { assert_true(good(bytes_may_come_cut_anywhere_inner())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_are_one_range),
      cmocka_unit_test(bytes_may_come_cut_anywhere),
  };
  return cmocka_run_group_tests_name("ranges of a load", tests, nullptr, nullptr);
}
