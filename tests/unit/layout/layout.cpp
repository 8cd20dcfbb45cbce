// SPDX-License-Identifier: Apache-2.0
// Layouts by the public calls: what is a layout, what is not, and what the sentence says then.
#include <cstring>
#include <string>
#include <vector>

#include "matrixshard/layout.h"
#include "support/cmocka_all.h"

namespace {

mxs_segment segment(int32_t owner, uint64_t offset, uint64_t bytes) {
  return {sizeof(mxs_segment), owner, offset, bytes};
}

// Is the layout refused, with a sentence that has the word in it, and the output left alone?
bool is_refused(const std::vector<mxs_segment> &segments, int32_t rank_count, uint64_t alignment, const char *word) {
  auto *const untouched = reinterpret_cast<mxs_layout *>(0x10);
  mxs_layout *layout = untouched;
  const mxs_status status = mxs_layout_create(&layout, segments.data(), segments.size(), rank_count, alignment);
  if (status == MXS_INVALID_ARGUMENT && layout == untouched && std::strstr(mxs_last_error(), word)) return true;
  print_error("status %d, sentence \"%s\" without \"%s\"\n", status, mxs_last_error(), word);
  if (status == MXS_OK) mxs_layout_destroy(&layout);
  return false;
}

bool keeps_what_it_is_given(const std::vector<mxs_segment> &segments, int32_t rank_count, uint64_t alignment,
                            uint64_t bytes) {
  mxs_layout *layout = nullptr;
  if (mxs_layout_create(&layout, segments.data(), segments.size(), rank_count, alignment) != MXS_OK) {
    print_error("%s\n", mxs_last_error());
    return false;
  }
  bool good = mxs_layout_bytes(layout) == bytes && mxs_layout_rank_count(layout) == rank_count &&
              mxs_layout_segment_count(layout) == segments.size();
  for (uint64_t index = 0; good && index < segments.size(); ++index) {
    mxs_segment found = MXS_SEGMENT_INIT;
    good = mxs_layout_segment(layout, index, &found) == MXS_OK &&
           std::memcmp(&found, &segments[index], sizeof found) == 0;
  }
  for (int32_t rank = 0; good && rank < rank_count; ++rank) {
    uint64_t owned = 0;
    for (const mxs_segment &each : segments) owned += each.owner == rank ? each.bytes : 0;
    good = mxs_layout_owned_bytes(layout, rank) == owned;
  }
  mxs_layout_destroy(&layout);
  return good && layout == nullptr;
}

bool even_layout_is_even(uint64_t bytes, uint64_t element_bytes, int32_t rank_count) {
  mxs_layout *layout = nullptr;
  if (mxs_layout_create_even(&layout, bytes, element_bytes, rank_count) != MXS_OK) return false;
  const uint64_t elements = bytes / element_bytes, ranks = static_cast<uint64_t>(rank_count);
  bool good = mxs_layout_bytes(layout) == bytes && mxs_layout_segment_count(layout) == ranks;
  uint64_t offset = 0;
  for (uint64_t rank = 0; good && rank < ranks; ++rank) {
    mxs_segment found = MXS_SEGMENT_INIT;
    const uint64_t expected = (elements / ranks + (rank < elements % ranks ? 1 : 0)) * element_bytes;
    good = mxs_layout_segment(layout, rank, &found) == MXS_OK && found.owner == static_cast<int32_t>(rank) &&
           found.offset == offset && found.bytes == expected;
    offset += found.bytes;
  }
  mxs_layout_destroy(&layout);
  return good && offset == bytes;
}

bool mixed_sizes_are_refused() {
  std::vector<mxs_segment> segments = {segment(0, 0, 8), segment(0, 8, 8)};
  segments[1].size = 32;
  if (!is_refused(segments, 1, 1, "segments[1].size")) return false;
  segments[0].size = 7;
  return is_refused({segments[0]}, 1, 1, "INIT");
}

void accepts_segments_gaps_by_alignment_and_none_at_all(void **) {
  assert_true(keeps_what_it_is_given({}, 1, 0, 0));
  assert_true(keeps_what_it_is_given({segment(2, 0, 0)}, 3, 1, 0));
  assert_true(keeps_what_it_is_given({segment(0, 0, 8), segment(2, 8, 2), segment(1, 16, 5)}, 3, 8, 21));
  assert_true(
      keeps_what_it_is_given({segment(1, 0, 3), segment(1, 3, 4), segment(0, 7, 0), segment(1, 7, 1)}, 2, 0, 8));
  assert_true(keeps_what_it_is_given({segment(0, 0, uint64_t{1} << 62)}, 8, 4096, uint64_t{1} << 62));
}

void refuses_an_overlap_and_a_gap_and_names_the_segment(void **) {
  assert_true(is_refused({segment(0, 0, 8), segment(1, 7, 2)}, 2, 1, "segment 1 overlaps"));
  assert_true(is_refused({segment(0, 0, 8), segment(1, 9, 2)}, 2, 1, "gap before segment 1"));
  assert_true(is_refused({segment(0, 1, 8)}, 2, 1, "gap before segment 0"));
  assert_true(is_refused({segment(0, 0, 9), segment(1, 9, 2)}, 2, 8, "segment 1 overlaps"));
  assert_true(is_refused({segment(0, 0, 8), segment(1, 16, 2)}, 2, 8, "gap before segment 1"));
}

void refuses_an_owner_outside_the_world(void **) {
  assert_true(is_refused({segment(0, 0, 8), segment(2, 8, 2)}, 2, 1, "segment 1: owner is 2"));
  assert_true(is_refused({segment(-1, 0, 8)}, 2, 1, "owner is -1"));
}

void refuses_a_world_of_0_and_a_monstrous_one(void **) {
  assert_true(is_refused({}, 0, 1, "rank_count is 0"));
  assert_true(is_refused({}, -4, 1, "rank_count is -4"));
  assert_true(is_refused({}, INT32_MAX, 1, "rank_count is 2147483647"));
}

void refuses_an_alignment_that_is_no_power_of_two(void **) {
  assert_true(is_refused({segment(0, 0, 8)}, 1, 3, "alignment is 3"));
  assert_true(is_refused({segment(0, 0, 8)}, 1, UINT64_MAX, "alignment"));
  assert_true(is_refused({segment(0, 0, 8)}, 1, uint64_t{1} << 63, "alignment"));
}

void refuses_2_to_the_63_bytes(void **) {
  assert_true(is_refused({segment(0, 0, uint64_t{1} << 63)}, 1, 1, "segment 0"));
  assert_true(is_refused({segment(0, 0, uint64_t{1} << 62), segment(0, uint64_t{1} << 62, 1)}, 1, 1, "segment 1"));
  assert_true(is_refused({segment(0, 0, UINT64_MAX)}, 1, 1, "2^62"));
}

void refuses_nulls_and_wrong_sizes(void **) {
  mxs_layout *layout = nullptr;
  const mxs_segment one = segment(0, 0, 8);
  assert_int_equal(mxs_layout_create(nullptr, &one, 1, 1, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create(&layout, nullptr, 1, 1, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create(&layout, &one, UINT64_MAX, 1, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create_even(nullptr, 8, 4, 1), MXS_INVALID_ARGUMENT);
  assert_null(layout);
  assert_true(mixed_sizes_are_refused());

  assert_int_equal(mxs_layout_create(&layout, &one, 1, 1, 1), MXS_OK);
  mxs_segment out = MXS_SEGMENT_INIT;
  assert_int_equal(mxs_layout_segment(nullptr, 0, &out), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_segment(layout, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_segment(layout, 1, &out), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_segment(layout, UINT64_MAX, &out), MXS_INVALID_ARGUMENT);
  out.size = 4;
  assert_int_equal(mxs_layout_segment(layout, 0, &out), MXS_INVALID_ARGUMENT);
  assert_int_equal(out.bytes, 0);
  assert_int_equal(mxs_layout_owned_bytes(layout, 1), 0);
  assert_int_equal(mxs_layout_owned_bytes(layout, -1), 0);
  mxs_layout_destroy(&layout);
  mxs_layout_destroy(&layout);
  mxs_layout_destroy(nullptr);
  assert_int_equal(mxs_layout_bytes(nullptr), 0);
  assert_int_equal(mxs_layout_owned_bytes(nullptr, 0), 0);
  assert_int_equal(mxs_layout_rank_count(nullptr), 0);
  assert_int_equal(mxs_layout_segment_count(nullptr), 0);
}

void an_even_layout_gives_the_first_ranks_one_element_more(void **) {
  for (int32_t rank_count : {1, 2, 3, 4, 7, 8})
    for (uint64_t elements : {0, 1, 2, 3, 5, 7, 8, 64, 1021})
      for (uint64_t element_bytes : {1, 2, 4, 12})
        assert_true(even_layout_is_even(elements * element_bytes, element_bytes, rank_count));
}

void an_even_layout_refuses_what_it_cannot_cut(void **) {
  mxs_layout *layout = nullptr;
  assert_int_equal(mxs_layout_create_even(&layout, 9, 4, 2), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create_even(&layout, 8, 0, 2), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create_even(&layout, 8, 4, 0), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_layout_create_even(&layout, uint64_t{1} << 63, 4, 2), MXS_INVALID_ARGUMENT);
  assert_null(layout);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(accepts_segments_gaps_by_alignment_and_none_at_all),
      cmocka_unit_test(refuses_an_overlap_and_a_gap_and_names_the_segment),
      cmocka_unit_test(refuses_an_owner_outside_the_world),
      cmocka_unit_test(refuses_a_world_of_0_and_a_monstrous_one),
      cmocka_unit_test(refuses_an_alignment_that_is_no_power_of_two),
      cmocka_unit_test(refuses_2_to_the_63_bytes),
      cmocka_unit_test(refuses_nulls_and_wrong_sizes),
      cmocka_unit_test(an_even_layout_gives_the_first_ranks_one_element_more),
      cmocka_unit_test(an_even_layout_refuses_what_it_cannot_cut),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
