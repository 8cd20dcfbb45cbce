// SPDX-License-Identifier: Apache-2.0
// Every algorithm in every world on every layout, byte for byte; and large worlds for some.
#include "schedules.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

struct Case {
  Direction direction;
  Algorithm algorithm;
};

constexpr Case cases[] = {
    {Direction::gather, Algorithm::flat},          {Direction::gather, Algorithm::chain},
    {Direction::gather, Algorithm::spread},        {Direction::reduce, Algorithm::flat},
    {Direction::reduce, Algorithm::chain},         {Direction::reduce, Algorithm::spread},
    {Direction::ordered_reduce, Algorithm::flat},  {Direction::ordered_reduce, Algorithm::spread},
    {Direction::ordered_reduce, Algorithm::chain},
};

bool holds(const ScheduleOptions &options, const TestLayout &layout, const TestLayout &target, int rank_count) {
  Set set;
  make_set(&set, options, layout, target, rank_count);
  for (const int window : {1, 2, 4}) {
    const std::string complaint = set.check(window);
    if (complaint.empty()) continue;
    print_error("%s, %s, %d ranks, layout '%s', elements of %u, chunks of %llu, accumulate %d, window %d: %s\n",
                direction_name(options.direction), algorithm_name(options.algorithm), rank_count, layout.name.c_str(),
                options.element_bytes, static_cast<unsigned long long>(options.chunk_bytes), options.accumulate,
                window, complaint.c_str());
    return false;
  }
  return true;
}

bool all_hold(const Case &each) {
  for (const int rank_count : test_worlds)
    for (const uint32_t element_bytes : {1u, 2u, 4u})
      for (const uint64_t chunk_bytes : {64u, 192u, 4096u})
        for (const bool accumulate : {false, true})
          for (const int spare_slots : {0, 2})
            for (const TestLayout &layout : test_layouts(rank_count, element_bytes, 97)) {
              ScheduleOptions options;
              options.direction = each.direction;
              options.algorithm = each.algorithm;
              options.element_bytes = element_bytes;
              options.accumulate = accumulate;
              options.chunk_bytes = chunk_bytes;
              options.spare_slots = spare_slots;
              const bool sums = each.direction != Direction::gather;
              if (sums ? element_bytes == 1 : accumulate || spare_slots > 0) continue;
              if (!holds(options, layout, layout, rank_count)) return false;
            }
  return true;
}

// From every layout without gaps to every other of as many bytes.
bool reshards_hold() {
  for (const int rank_count : test_worlds)
    for (const uint64_t chunk_bytes : {64u, 4096u})
      for (TestLayout source : test_layouts(rank_count, 1, 97))
        for (TestLayout target : test_layouts(rank_count, 1, 97)) {
          if (source.alignment != 1 || target.alignment != 1) continue;
          if (source.bytes < target.bytes) source.add(rank_count - 1, target.bytes - source.bytes);
          if (target.bytes < source.bytes) target.add(0, source.bytes - target.bytes);
          ScheduleOptions options;
          options.direction = Direction::reshard;
          options.algorithm = Algorithm::direct;
          options.chunk_bytes = chunk_bytes;
          if (!holds(options, source, target, rank_count)) return false;
        }
  return true;
}

bool large_worlds_hold() {
  for (const int rank_count : {64, 1024})
    for (const Case &each : cases) {
      TestLayout layout("seven owners", 1);
      for (int owner = 0; owner < 7; ++owner) layout.add(owner * (rank_count / 7), 4 * 300);
      ScheduleOptions options;
      options.direction = each.direction;
      options.algorithm = each.algorithm;
      options.element_bytes = 4;
      options.accumulate = true;
      options.chunk_bytes = 1024;
      if (rank_count == 1024 && each.algorithm == Algorithm::spread) continue;  // a piece per helper: 1 M messages
      Set set;
      make_set(&set, options, layout, layout, rank_count);
      const std::string complaint = set.check(1);
      if (complaint.empty()) continue;
      print_error("%s, %s, %d ranks: %s\n", direction_name(options.direction), algorithm_name(options.algorithm),
                  rank_count, complaint.c_str());
      return false;
    }
  return true;
}

void gather_flat(void **) { assert_true(all_hold(cases[0])); }
void gather_chain(void **) { assert_true(all_hold(cases[1])); }
void gather_spread(void **) { assert_true(all_hold(cases[2])); }
void reduce_flat(void **) { assert_true(all_hold(cases[3])); }
void reduce_chain(void **) { assert_true(all_hold(cases[4])); }
void reduce_spread(void **) { assert_true(all_hold(cases[5])); }
void ordered_reduce_flat(void **) { assert_true(all_hold(cases[6])); }
void ordered_reduce_spread(void **) { assert_true(all_hold(cases[7])); }
void ordered_reduce_chain(void **) { assert_true(all_hold(cases[8])); }
void reshard_direct(void **) { assert_true(reshards_hold()); }
void in_large_worlds(void **) { assert_true(large_worlds_hold()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gather_flat),           cmocka_unit_test(gather_chain),  cmocka_unit_test(gather_spread),
      cmocka_unit_test(reduce_flat),           cmocka_unit_test(reduce_chain),  cmocka_unit_test(reduce_spread),
      cmocka_unit_test(ordered_reduce_flat),   cmocka_unit_test(ordered_reduce_spread),
      cmocka_unit_test(ordered_reduce_chain),
      cmocka_unit_test(reshard_direct),        cmocka_unit_test(in_large_worlds),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
