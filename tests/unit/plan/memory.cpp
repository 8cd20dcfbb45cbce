// SPDX-License-Identifier: Apache-2.0
// The prediction of bytes: by hand for small models, by its own sums for random ones.
#include "plan/memory.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "models.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_memory predicted(const Plan &plan, int rank, int slots = 0, int gradient_slots = 0, int by_reference = 0) {
  mxs_memory_options options = MXS_MEMORY_OPTIONS_INIT;
  options.slots = slots;
  options.gradient_slots = gradient_slots;
  options.by_reference = by_reference;
  return predict_memory(plan, rank, options);
}

// Two ranks: rank 0 owns a (100 x 100 bf16, 20,000 bytes), rank 1 b (the same) and the tail (10 f32).
bool a_small_model_is_predicted_by_hand() {
  Model model;
  model.add("a", {100, 100}).dtype = MXS_BF16;
  model.add("b", {100, 100}).dtype = MXS_BF16;
  model.add("tail", {10}).fixed_owner = MXS_FIXED_OWNER(1);
  model.tensors[0].fixed_owner = MXS_FIXED_OWNER(0);
  model.tensors[1].fixed_owner = MXS_FIXED_OWNER(1);
  Plan plan;
  if (make(model, 2, &plan) != MXS_OK) return false;
  const mxs_memory m = predicted(plan, 1);
  // Layout: a at 0, then the f32 tail (wide dtypes first) at 20,480, and b behind its 40 bytes: 20,040 bytes.
  // Rank 0's foreign pages are 20,480 to 40,960: 5 pages. Rank 1's are 0 to 20,480: 5 pages.
  const uint64_t gradient_bytes = 20032 + 40 + 20000;  // a rounded to 64, tail, b
  return m.weights == 20040 && m.masters == 40000 && m.gradients == 40040 && m.state == 40000 + 2 * 64 &&
         m.slack == (20480 - 20040) + (40960 - 40000) + (40960 - 40040) &&
         m.rest == 20480 + 40960 + 40960 + 40128 && m.slots == 2 * 20480 &&
         m.gradient_slots == 2 * align_up(gradient_bytes, 4096) &&
         m.workspace == newton_schulz_workspace_bytes(100, 100, 1) + 40000 &&
         m.peak == m.rest + m.slots + m.gradient_slots + m.workspace && predicted(plan, 1, 3).slots == 3 * 20480 &&
         predicted(plan, 1, 0, 1).gradient_slots == align_up(gradient_bytes, 4096) &&
         predicted(plan, 1, 0, 0, 1).slots == 4096 && predicted(plan, 0).slots == 2 * 20480;
}

bool sums_hold_for_random_models() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8, 64})
    for (unsigned seed = 0; seed < test::few(60u); ++seed) {
      const Model model = random_model(seed, rank_count);
      Plan plan;
      if (make(model, rank_count, &plan) != MXS_OK) return false;
      for (int rank = 0; rank < rank_count; ++rank) {
        const mxs_memory m = predicted(plan, rank);
        uint64_t weights = 0;
        for (const PlannedUnit &unit : plan.units) weights += unit.weights.owned_bytes(rank);
        const uint64_t owned = plan.rank_owned_bytes[static_cast<size_t>(rank)];
        // Up to 7 bytes before a wide dtype, up to 63 behind each of two parts of state.
        const uint64_t padding = weights + m.masters + m.gradients + m.state - owned;
        if (m.weights != weights || padding >= (8 + 126) * plan.placements.size()) return false;
        if (m.rest != m.weights + m.masters + m.gradients + m.state + m.slack) return false;
        if (m.peak != m.rest + m.slots + m.gradient_slots + m.workspace) return false;
        if (rank_count == 1 && m.slots != 0) return false;
        if ((m.rest - m.state) % pool_page_bytes != 0 || m.slots % pool_page_bytes != 0) return false;
      }
    }
  return true;
}

// A byte is foreign in some unit exactly if its page is in the list.
bool slot_pages_are_the_foreign_pages() {
  for (const int rank_count : {1, 2, 3, 8}) {
    const Model model = gpt(3, 100);
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK) return false;
    for (int rank = 0; rank < rank_count; ++rank) {
      std::vector<bool> foreign(pool_sizes(plan).slot / pool_page_bytes, false), listed = foreign;
      for (const PlannedUnit &unit : plan.units)
        for (const Segment &segment : unit.weights.segments)
          for (uint64_t byte = segment.offset; byte < segment.offset + segment.bytes; ++byte)
            if (segment.owner != rank) foreign[byte / pool_page_bytes] = true;
      for (const PageRange &range : slot_pages(plan, rank))
        for (uint64_t page = range.offset; page < range.offset + range.bytes; page += pool_page_bytes) {
          if (listed[page / pool_page_bytes]) return false;
          listed[page / pool_page_bytes] = true;
        }
      if (listed != foreign) return false;
    }
  }
  return true;
}

// Page by page: those with own slots by themselves, the others one over the other.
bool own_slots_are_the_foreign_pages() {
  for (const int rank_count : {1, 2, 3, 8})
    for (unsigned seed = 0; seed < test::few(20u); ++seed) {
      const Model model = random_model(seed, rank_count);
      Plan plan;
      if (make(model, rank_count, &plan) != MXS_OK) return false;
      std::vector<int32_t> own;
      for (size_t unit = 0; unit < plan.units.size(); ++unit)
        if ((seed + unit) % 3 == 0) own.push_back(static_cast<int32_t>(unit));
      for (int rank = 0; rank < rank_count; ++rank) {
        std::vector<bool> shared(pool_sizes(plan).slot / pool_page_bytes, false);
        uint64_t own_pages = 0;
        for (size_t unit = 0; unit < plan.units.size(); ++unit) {
          std::vector<bool> foreign(shared.size(), false);
          for (const Segment &segment : plan.units[unit].weights.segments)
            for (uint64_t at = segment.offset; segment.owner != rank && at < segment.offset + segment.bytes;
                 at = align_down(at, pool_page_bytes) + pool_page_bytes)
              foreign[at / pool_page_bytes] = true;
          const bool has_own = std::find(own.begin(), own.end(), static_cast<int32_t>(unit)) != own.end();
          for (size_t page = 0; page < foreign.size(); ++page) {
            if (has_own) own_pages += foreign[page];
            else shared[page] = shared[page] || foreign[page];
          }
        }
        mxs_memory_options options = MXS_MEMORY_OPTIONS_INIT;
        options.slots = 3;
        options.own_slot_units = own.data();
        options.own_slot_unit_count = static_cast<int32_t>(own.size());
        const mxs_memory m = predict_memory(plan, rank, options);
        const auto shared_pages = static_cast<uint64_t>(std::count(shared.begin(), shared.end(), true));
        if (m.own_slots != own_pages * pool_page_bytes || m.slots != 3 * shared_pages * pool_page_bytes) return false;
        if (m.peak != m.rest + m.slots + m.gradient_slots + m.workspace + m.own_slots) return false;
        options.by_reference = 1;
        if (predict_memory(plan, rank, options).own_slots != 0) return false;
      }
    }
  return true;
}

// Against sets of single pages.
bool ranges_are_sets_of_pages() {
  uint64_t state = 7;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  const auto ranges_of = [](const std::vector<bool> &pages) {
    PageRanges ranges;
    for (uint64_t page = 0; page < pages.size(); ++page) {
      if (!pages[page]) continue;
      if (page == 0 || !pages[page - 1]) ranges.push_back({page * pool_page_bytes, 0});
      ranges.back().bytes += pool_page_bytes;
    }
    return ranges;
  };
  for (int turn = 0; turn < test::few(2000); ++turn) {
    std::vector<bool> a(24), b(24), either(24), only_a(24);
    const uint64_t density_a = 1 + draw(6), density_b = 1 + draw(6);
    for (size_t page = 0; page < a.size(); ++page) {
      a[page] = draw(density_a) == 0;
      b[page] = draw(density_b) == 0;
      either[page] = a[page] || b[page];
      only_a[page] = a[page] && !b[page];
    }
    const auto count = static_cast<uint64_t>(std::count(a.begin(), a.end(), true));
    if (united(ranges_of(a), ranges_of(b)) != ranges_of(either) ||
        without(ranges_of(a), ranges_of(b)) != ranges_of(only_a) ||
        bytes_of(ranges_of(a)) != count * pool_page_bytes)
      return false;
  }
  return true;
}

bool frozen_and_external_have_no_state() {
  Model model;
  model.add("frozen", {100, 100}, 0, MXS_RULE_FROZEN).dtype = MXS_BF16;
  model.add("external", {100, 100}, 0, MXS_RULE_EXTERNAL);
  Plan plan;
  if (make(model, 1, &plan) != MXS_OK) return false;
  const mxs_memory m = predicted(plan, 0);
  return m.weights == 20000 + 40000 && m.masters == 0 && m.gradients == 40000 && m.state == 0 && m.workspace == 0;
}

// Columns of 10, 20 and 70 of a 100 x 100: state of shampoo and workspace of muon go by matrices.
bool column_blocks_are_predicted_by_hand() {
  Model shampoo, muon;
  shampoo.cut_columns(&shampoo.add("t", {100, 100}, 0, MXS_RULE_SHAMPOO), {10, 20, 70});
  muon.cut_columns(&muon.add("t", {100, 100}), {10, 20, 70});
  Plan plan;
  if (make(shampoo, 1, &plan) != MXS_OK) return false;
  // Two arrays of 40,000 bytes; of each block a factor and a root of 100 rows and of its columns, each rounded up to 64
  // bytes; two fp64 counts of failures for each block.
  const uint64_t pairs = 3 * 40000 + 448 + 1600 + 19648, state = 2 * 40000 + 2 * pairs + 64;
  if (predicted(plan, 0).state != state || plan.rank_owned_bytes[0] != 8 * 10000 + state) return false;
  if (make(muon, 1, &plan) != MXS_OK) return false;
  const mxs_memory m = predicted(plan, 0);
  if (m.state != 40000 || m.workspace != align_up(4 * 7000, 64) + newton_schulz_workspace_bytes(100, 70, 1))
    return false;
  // Two threads: all three blocks at a time, the largest counts.
  return step_workspace_bytes(plan, 0, 2) == align_up(3 * 4 * 7000, 64) + newton_schulz_workspace_bytes(100, 70, 2);
}

bool a_monstrous_count_of_slots_does_not_wrap() {
  const Model model = gpt(1, 64);
  Plan plan;
  if (make(model, 2, &plan) != MXS_OK) return false;
  const mxs_memory m = predicted(plan, 0, INT32_MAX, INT32_MAX);
  return m.slots > (uint64_t{1} << 40) && m.peak > m.slots && m.peak > m.gradient_slots;
}

void a_small_model_agrees_with_pencil_and_paper(void **) { assert_true(a_small_model_is_predicted_by_hand()); }
void the_parts_add_up_in_every_world(void **) { assert_true(sums_hold_for_random_models()); }
void own_slots_take_pages_of_their_own(void **) { assert_true(own_slots_are_the_foreign_pages()); }
void ranges_of_pages_are_united_and_taken_away(void **) { assert_true(ranges_are_sets_of_pages()); }
void a_slot_takes_the_pages_that_are_foreign_in_some_unit(void **) { assert_true(slot_pages_are_the_foreign_pages()); }
void frozen_and_external_tensors_have_no_state(void **) { assert_true(frozen_and_external_have_no_state()); }
void column_blocks_count_by_matrices(void **) { assert_true(column_blocks_are_predicted_by_hand()); }
void many_slots_do_not_wrap_around(void **) { assert_true(a_monstrous_count_of_slots_does_not_wrap()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_small_model_agrees_with_pencil_and_paper),
      cmocka_unit_test(the_parts_add_up_in_every_world),
      cmocka_unit_test(a_slot_takes_the_pages_that_are_foreign_in_some_unit),
      cmocka_unit_test(own_slots_take_pages_of_their_own),
      cmocka_unit_test(ranges_of_pages_are_united_and_taken_away),
      cmocka_unit_test(frozen_and_external_tensors_have_no_state),
      cmocka_unit_test(column_blocks_count_by_matrices),
      cmocka_unit_test(many_slots_do_not_wrap_around),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
