// SPDX-License-Identifier: Apache-2.0
// Where the matrices of a batch may lie, and what is refused before anything is touched. That batches give the bits of
// single calls is in newton_schulz_identities.cpp.
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "api/strides.hpp"
#include "matrixshard/matrixshard.h"
#include "support/newton_schulz.hpp"
#include "support/cmocka_all.h"

namespace {

constexpr int64_t rows = 6, columns = 5;

bool complain(const char *what) {
  print_error("%s; last error: %s\n", what, mxs_last_error());
  return false;
}

mxs_strides strides_of(int64_t row, int64_t matrix) {
  mxs_strides strides = MXS_STRIDES_INIT;
  strides.row = row, strides.matrix = matrix;
  return strides;
}

// Memory for all calls, and a call that may be spoiled: target lies `distance` elements behind source.
struct Call {
  std::vector<float> memory = std::vector<float>(4096, 1.0f);
  OrthogonalizerPointer made = orthogonalizer_of(rows, columns, tested_tables()[1], {});
  mxs_strides source_strides = MXS_STRIDES_INIT, target_strides = MXS_STRIDES_INIT;
  int64_t distance = 2048, count = 3;

  void both(const mxs_strides &strides) { source_strides = target_strides = strides; }
  mxs_status run() {
    return mxs_orthogonalize_batch(made.get(), memory.data(), &source_strides, memory.data() + distance,
                                   &target_strides, count);
  }
};

bool refused(const char *what, const std::function<void(Call *)> &spoil) {
  Call call;
  spoil(&call);
  const std::vector<float> before = call.memory;
  if (call.run() != MXS_INVALID_ARGUMENT || !std::strstr(mxs_last_error(), what)) return complain(what);
  return call.memory == before || complain("memory was touched");
}

bool taken(const char *what, const std::function<void(Call *)> &change) {
  Call call;
  change(&call);
  return call.run() == MXS_OK || complain(what);
}

bool bad_calls_are_refused() {
  return refused("orthogonalizer is NULL", [](Call *c) { c->made.reset(); }) &&
         refused("count is -1", [](Call *c) { c->count = -1; }) &&
         refused("count is", [](Call *c) { c->count = INT64_MAX; }) &&
         refused("source_strides.size", [](Call *c) { c->source_strides.size = 8; }) &&
         refused("target_strides.size", [](Call *c) { c->target_strides.size = 0; }) &&
         refused("a row has 5 elements", [](Call *c) { c->source_strides.row = 4; }) &&
         refused("a row has 5 elements", [](Call *c) { c->target_strides.row = -5; }) &&
         refused("target_strides are", [](Call *c) { c->target_strides.matrix = -30; }) &&
         refused("no memory is so large", [](Call *c) { c->source_strides.row = INT64_MAX / 2; }) &&
         refused("no memory is so large", [](Call *c) { c->source_strides.matrix = INT64_MAX; }) &&
         refused("overlap", [](Call *c) { c->source_strides.matrix = 29; }) &&
         refused("overlap", [](Call *c) { c->target_strides = strides_of(12, 5); }) &&
         refused("overlap", [](Call *c) { c->target_strides = strides_of(15, 4); }) &&
         refused("begins 4 bytes behind", [](Call *c) { c->distance = 1; }) &&
         refused("overlaps", [](Call *c) { c->distance = 89; }) &&
         refused("overlaps", [](Call *c) { c->distance = 0, c->target_strides.row = 6; }) &&
         refused("overlaps", [](Call *c) { c->both(strides_of(10, 0)), c->distance = 4; });
}

bool good_calls_are_taken() {
  return taken("nothing", [](Call *c) { c->count = 0; }) && taken("dense", [](Call *) {}) &&
         taken("in place", [](Call *c) { c->distance = 0; }) &&
         taken("just behind", [](Call *c) { c->distance = 90; }) &&
         taken("side by side", [](Call *c) { c->target_strides = strides_of(15, 5); }) &&
         taken("right half", [](Call *c) { c->both(strides_of(10, 0)), c->distance = 5; }) &&
         taken("one, in place", [](Call *c) { c->distance = 0, c->count = 1, c->target_strides.matrix = 99; });
}

bool null_and_crooked_arrays_are_refused() {
  Call call;
  float *const data = call.memory.data();
  const auto run = [&](const void *source, void *target) {
    return mxs_orthogonalize_batch(call.made.get(), static_cast<const float *>(source), nullptr,
                                   static_cast<float *>(target), nullptr, 1);
  };
  if (run(nullptr, data) != MXS_INVALID_ARGUMENT || run(data, nullptr) != MXS_INVALID_ARGUMENT) return false;
  char *const crooked = reinterpret_cast<char *>(data) + 4098;
  return run(crooked, data) == MXS_INVALID_ARGUMENT && run(data, crooked) == MXS_INVALID_ARGUMENT &&
         std::strstr(mxs_last_error(), "border") && call.memory == std::vector<float>(4096, 1.0f);
}

// pieces_meet beside marking every element.
bool overlaps_are_found_exactly() {
  std::mt19937 random(1);
  const auto draw = [&](int64_t from, int64_t to) {
    return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from + 1));
  };
  int met = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    mxs::BatchPlace place;
    place.rows = draw(1, 4), place.columns = draw(1, 4), place.count = draw(1, 4);
    place.row = draw(place.columns, 12), place.matrix = draw(1, 30);
    const int64_t distance = draw(-40, 40);
    constexpr int64_t middle = 200;
    std::vector<int> first(600), second(600);
    bool wanted = false;
    for (int64_t m = 0; m < place.count; ++m)
      for (int64_t r = 0; r < place.rows; ++r)
        for (int64_t c = 0; c < place.columns; ++c) {
          const int64_t at = middle + m * place.matrix + r * place.row + c;
          wanted = wanted || (distance == 0 && first[static_cast<size_t>(at)]++ > 0);
          if (distance != 0) first[static_cast<size_t>(at)] = 1;
          if (distance != 0) second[static_cast<size_t>(at + distance)] = 1;
        }
    for (size_t i = 0; distance != 0 && i < first.size(); ++i) wanted = wanted || (first[i] && second[i]);
    if (mxs::pieces_meet(place, distance) != wanted) return complain("pieces_meet");
    met += wanted;
  }
  return met > 2000 && met < 18000;
}

void calls_with_bad_strides_are_refused(void **) { assert_true(bad_calls_are_refused()); }
void calls_that_overlap_nowhere_are_taken(void **) { assert_true(good_calls_are_taken()); }
void arrays_must_be_there_and_at_a_border(void **) { assert_true(null_and_crooked_arrays_are_refused()); }
void overlaps_are_found_where_they_are(void **) { assert_true(overlaps_are_found_exactly()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(calls_with_bad_strides_are_refused),
      cmocka_unit_test(calls_that_overlap_nowhere_are_taken),
      cmocka_unit_test(arrays_must_be_there_and_at_a_border),
      cmocka_unit_test(overlaps_are_found_where_they_are),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
