// SPDX-License-Identifier: Apache-2.0
// The public calls: what they give, and what they do with NULLs, wrong sizes and wrong indices.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "matrixshard/plan.h"
#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_topology *topology = nullptr;
mxs_plan *plan = nullptr;

int set_up(void **) {
  const Model model = gpt(2, 64);
  return mxs_topology_create(&topology, "nodes:2 ranks:2") != MXS_OK ||
         mxs_plan_create(&plan, model.tensors.data(), model.tensors.size(), topology, &model.options) != MXS_OK;
}

int tear_down(void **) {
  mxs_plan_destroy(&plan);
  mxs_plan_destroy(&plan);
  mxs_plan_destroy(nullptr);
  mxs_topology_destroy(&topology);
  return plan != nullptr;
}

bool tensors_are_found_and_told() {
  const Model model = gpt(2, 64);
  for (size_t index = 0; index < model.tensors.size(); ++index) {
    int32_t found = -1;
    mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
    if (mxs_plan_find(plan, model.tensors[index].name, &found) != MXS_OK || found != static_cast<int32_t>(index))
      return false;
    if (mxs_plan_tensor(plan, found, &info) != MXS_OK || std::strcmp(info.name, model.tensors[index].name) != 0)
      return false;
    if (info.unit != model.tensors[index].unit || info.tied_to != -1 || info.size != sizeof info || !*info.reason)
      return false;
    for (uint64_t number = 0; number < info.placement_count; ++number) {
      mxs_placement placement = MXS_PLACEMENT_INIT;
      if (mxs_plan_placement(plan, info.placement_index + number, &placement) != MXS_OK) return false;
      if (placement.tensor != found || placement.block != static_cast<int32_t>(number)) return false;
    }
  }
  return mxs_plan_tensor_count(plan) == model.tensors.size();
}

bool loads_add_up() {
  uint64_t owned = 0, sent = 0;
  int32_t matrices = 0;
  for (int32_t rank = 0; rank < 4; ++rank) {
    mxs_rank_load load = MXS_RANK_LOAD_INIT;
    if (mxs_plan_rank(plan, rank, &load) != MXS_OK) return false;
    owned += load.owned_bytes;
    sent = std::max(sent, load.weight_bytes_max);
    matrices += load.matrix_count;
  }
  Plan inner;
  const Model model = gpt(2, 64);
  if (make(model, 4, &inner) != MXS_OK) return false;
  uint64_t expected = 0;
  for (const uint64_t bytes : inner.rank_owned_bytes) expected += bytes;
  return owned == expected && matrices == 2 * (3 + 1 + 1 + 1) && sent > 0;
}

bool matrices_are_told_with_their_placements() {
  const int64_t columns[] = {64, 64, 64};
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = "c_attn";
  tensor.dimension_count = 2;
  tensor.shape[0] = 64;
  tensor.shape[1] = 192;
  tensor.block_columns = columns;
  tensor.block_column_count = 3;
  tensor.transposed = 1;
  tensor.whole_rows = 128;
  mxs_plan *made = nullptr;
  if (mxs_plan_create(&made, &tensor, 1, topology, nullptr) != MXS_OK) return false;
  mxs_placement placement = MXS_PLACEMENT_INIT;
  bool good = mxs_plan_placement(made, 0, &placement) == MXS_OK && placement.matrix_index == 0 &&
              placement.matrix_count == 3 && placement.co_owner_count == 1 && mxs_plan_matrix_count(made) == 3;
  for (uint64_t index = 0; good && index < 3; ++index) {
    mxs_matrix matrix = MXS_MATRIX_INIT;
    good = mxs_plan_matrix(made, index, &matrix) == MXS_OK && matrix.size == sizeof matrix && matrix.tensor == 0 &&
           matrix.block == static_cast<int32_t>(index) && matrix.owner == placement.owner && matrix.placement == 0 &&
           matrix.element_offset == 64 * index && matrix.rows == 64 && matrix.columns == 64 &&
           matrix.row_stride == 192 && matrix.scale_rows == 64 && matrix.scale_columns == 128;
  }
  mxs_plan_destroy(&made);
  return good;
}

// Two nodes of two ranks: 16,384 bytes on rank 0, 4,096 frozen on rank 1, 8,192 on rank 3. The network takes most time:
// 20,480 bytes out of node 0 at 1.25 GB/s, 30 us of latency, 20 us of overhead at both ends. Bounds: the largest piece.
bool a_units_load_is_as_by_hand() {
  Model model;
  model.add("a", {64, 64}, 2).fixed_owner = MXS_FIXED_OWNER(0);
  model.add("b", {64, 64}, 2).fixed_owner = MXS_FIXED_OWNER(3);
  model.add("c", {4096}, 2, MXS_RULE_FROZEN).fixed_owner = MXS_FIXED_OWNER(1);
  model.tensors[1].dtype = MXS_BF16;
  model.tensors[2].dtype = MXS_U8;
  mxs_plan *made = nullptr;
  mxs_unit_load load = MXS_UNIT_LOAD_INIT, none = MXS_UNIT_LOAD_INIT;
  if (mxs_plan_create(&made, model.tensors.data(), 3, topology, nullptr) != MXS_OK) return false;
  const bool told = mxs_plan_unit(made, 2, &load) == MXS_OK && mxs_plan_unit(made, 0, &none) == MXS_OK;
  mxs_plan_destroy(&made);
  return told && load.size == sizeof load && load.owner_count == 3 && load.segment_count == 3 &&
         load.weight_bytes == 28672 && load.gradient_bytes == 24576 && load.rank_bytes_max == 16384 &&
         load.rank_bytes_bound == 16384 && load.nic_bytes_max == 20480 && load.nic_bytes_bound == 16384 &&
         load.network_bytes == 28672 && load.gather_bound_ns == 16384 + 70000 && load.rank_of_most_bytes == 0 &&
         load.node_of_most_bytes == 0 && none.owner_count == 0 && none.weight_bytes == 0 &&
         none.rank_bytes_bound == 0 && none.gather_bound_ns == 0 && none.rank_of_most_bytes == -1 &&
         none.node_of_most_bytes == -1;
}

// 2^57 bytes into 131,071 other nodes are more than 64 bits hold: the most there is, not a small number.
bool bytes_into_many_nodes_do_not_wrap() {
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, "nodes:131072 ranks:1") != MXS_OK) return false;
  Model model;
  model.add("huge", {int64_t{1} << 50, 1 << 6}, 0, MXS_RULE_EXTERNAL).dtype = MXS_BF16;
  mxs_plan *plan = nullptr;
  mxs_unit_load load = MXS_UNIT_LOAD_INIT;
  const bool told = mxs_plan_create(&plan, model.tensors.data(), 1, topology, nullptr) == MXS_OK &&
                    mxs_plan_unit(plan, 0, &load) == MXS_OK;
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  return told && load.weight_bytes == uint64_t{1} << 57 && load.network_bytes == UINT64_MAX;
}

// A plan doesn't change, whatever is asked.
bool threads_learn_the_same_of_units() {
  mxs_plan *made = nullptr;
  Model model;
  for (int unit = 0; unit < 8; ++unit) model.add(std::to_string(unit), {64 * (unit + 1), 64}, unit);
  if (mxs_plan_create(&made, model.tensors.data(), model.tensors.size(), topology, nullptr) != MXS_OK) return false;
  std::vector<std::vector<uint64_t>> bounds(4);
  std::vector<std::thread> threads;
  for (auto &told : bounds)
    threads.emplace_back([made, &told] {
      mxs_unit_load load = MXS_UNIT_LOAD_INIT;
      for (int32_t unit = 0; unit < 8 && mxs_plan_unit(made, unit, &load) == MXS_OK; ++unit)
        told.push_back(load.gather_bound_ns);
    });
  for (std::thread &thread : threads) thread.join();
  mxs_plan_destroy(&made);
  return bounds[0].size() == 8 && bounds[0].front() > 0 && bounds[0].back() > bounds[0].front() &&
         std::count(bounds.begin(), bounds.end(), bounds[0]) == 4;
}

bool the_loads_of_units_agree_with_their_layouts() {
  for (int32_t unit = 0; unit < mxs_plan_unit_count(plan); ++unit) {
    mxs_unit_load load = MXS_UNIT_LOAD_INIT;
    mxs_layout *layout = nullptr;
    if (mxs_plan_unit(plan, unit, &load) != MXS_OK) return false;
    if (mxs_plan_layout(plan, unit, MXS_WEIGHTS, &layout) != MXS_OK) return false;
    uint64_t owned = 0, most = 0;
    for (int32_t rank = 0; rank < 4; ++rank) {
      owned += mxs_layout_owned_bytes(layout, rank);
      most = std::max(most, mxs_layout_owned_bytes(layout, rank));
    }
    const bool good = owned == load.weight_bytes && most == load.rank_bytes_max &&
                      mxs_layout_owned_bytes(layout, load.rank_of_most_bytes) == most &&
                      load.rank_bytes_bound <= most && load.rank_bytes_bound >= (owned + 3) / 4 &&
                      load.nic_bytes_bound <= load.nic_bytes_max && load.nic_bytes_bound >= (owned + 1) / 2 &&
                      load.segment_count >= static_cast<uint64_t>(load.owner_count) && load.gather_bound_ns > 0;
    mxs_layout_destroy(&layout);
    if (!good) return false;
  }
  return true;
}

bool layouts_are_copies_of_the_units() {
  for (int32_t unit = 0; unit < mxs_plan_unit_count(plan); ++unit)
    for (const int32_t which : {MXS_WEIGHTS, MXS_GRADIENTS}) {
      mxs_layout *layout = nullptr;
      if (mxs_plan_layout(plan, unit, which, &layout) != MXS_OK) return false;
      uint64_t owned = 0;
      for (int32_t rank = 0; rank < 4; ++rank) owned += mxs_layout_owned_bytes(layout, rank);
      const bool good = mxs_layout_rank_count(layout) == 4 && owned > 0 && owned <= mxs_layout_bytes(layout);
      mxs_layout_destroy(&layout);
      if (!good) return false;
    }
  return true;
}

bool the_report_has_every_tensor_and_rank() {
  size_t bytes = 0;
  if (mxs_plan_report(plan, nullptr, 0, &bytes) != MXS_OK || bytes < 2) return false;
  std::string text(bytes, '#');
  if (mxs_plan_report(plan, text.data(), bytes, nullptr) != MXS_OK || text.back() != '\0') return false;
  text.pop_back();
  const Model model = gpt(2, 64);
  for (const mxs_tensor &tensor : model.tensors)
    if (text.find(std::string("\n").append(tensor.name).append("  ")) == std::string::npos) return false;
  for (const char *part : {"\n0     0", "\n3     1", "(50257, 64)", "17 tensors in 4 units on 4 ranks of 2 nodes"})
    if (text.find(part) == std::string::npos) return false;
  // Cut short, it still ends in a zero and says what it needs.
  char part[10];
  std::memset(part, '#', sizeof part);
  size_t needed = 0;
  return mxs_plan_report(plan, part, sizeof part, &needed) == MXS_OK && needed == bytes && part[9] == '\0' &&
         text.compare(0, 9, part) == 0;
}

// A name may hold a line's end, or be longer than any line: each tensor has one line, and only its own is long.
bool odd_names_stay_in_their_lines() {
  const std::string endless(100000, 'n');
  const char *const names[] = {"new\nline", endless.c_str(), "%s%n", "\xff\xfe", "plain"};
  std::vector<mxs_tensor> tensors(5, mxs_tensor MXS_TENSOR_INIT);
  for (size_t i = 0; i < 5; ++i) tensors[i].name = names[i];
  mxs_plan *made = nullptr;
  if (mxs_plan_create(&made, tensors.data(), 5, topology, nullptr) != MXS_OK) return false;
  size_t bytes = 0;
  bool good = mxs_plan_report(made, nullptr, 0, &bytes) == MXS_OK && bytes < 103000;
  std::string text(bytes, '\0');
  good = good && mxs_plan_report(made, text.data(), bytes, nullptr) == MXS_OK &&
         text.find("new?line  ") != std::string::npos && text.find("%s%n  ") != std::string::npos;
  int32_t found = -1;
  good = good && mxs_plan_find(made, endless.c_str(), &found) == MXS_OK && found == 1;
  mxs_plan_destroy(&made);
  return good;
}

bool mixed_sizes_are_refused() {
  std::vector<mxs_tensor> tensors(2, mxs_tensor MXS_TENSOR_INIT);
  tensors[0].name = "a";
  tensors[1].name = "b";
  tensors[1].size = 200;
  mxs_plan *made = nullptr;
  if (mxs_plan_create(&made, tensors.data(), 2, topology, nullptr) != MXS_INVALID_ARGUMENT) return false;
  if (!std::strstr(mxs_last_error(), "tensors[1].size is 200")) return false;
  tensors[0].size = 12;
  return mxs_plan_create(&made, tensors.data(), 1, topology, nullptr) == MXS_INVALID_ARGUMENT && !made;
}

// A program of a later release: larger structs, whose unknown tail must be zero.
bool a_larger_struct_is_read_by_its_size() {
  struct Later {
    mxs_tensor tensor = MXS_TENSOR_INIT;
    uint64_t unknown = 0;
  };
  Later later[2];
  for (Later &each : later) each.tensor.size = sizeof(Later);
  later[0].tensor.name = "a";
  later[1].tensor.name = "b";
  mxs_plan *made = nullptr;
  if (mxs_plan_create(&made, &later[0].tensor, 2, topology, nullptr) != MXS_OK) return false;
  const bool good = mxs_plan_tensor_count(made) == 2;
  mxs_plan_destroy(&made);
  later[1].unknown = 1;
  return good && mxs_plan_create(&made, &later[0].tensor, 2, topology, nullptr) == MXS_INVALID_ARGUMENT && !made;
}

// 140 bytes would cut block_columns in half: its lower part from the caller, the upper one from the defaults.
bool sizes_that_cut_a_field_are_refused() {
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = "a";
  tensor.block_columns = reinterpret_cast<const int64_t *>(~uintptr_t{0});
  mxs_plan *made = nullptr;
  for (uint32_t size = sizeof tensor - 31; size < sizeof tensor; ++size) {
    tensor.size = size;
    if (size % alignof(mxs_tensor) != 0 &&
        mxs_plan_create(&made, &tensor, 1, topology, nullptr) != MXS_INVALID_ARGUMENT)
      return false;
  }
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  options.size = sizeof options - 3;
  mxs_objective objective = MXS_OBJECTIVE_INIT;
  objective.size = sizeof objective + 5;
  return mxs_plan_create(&made, nullptr, 0, topology, &options) == MXS_INVALID_ARGUMENT && !made &&
         mxs_plan_objective(plan, MXS_OBJECTIVE_STEP, &objective) == MXS_INVALID_ARGUMENT && objective.worst == 0;
}

// What a terminal would obey, what ends a line, what turns letters around, and what is no UTF-8.
bool is_shown_as_it_is(std::string_view text) {
  for (size_t place = 0; place < text.size();) {
    const size_t bytes = letter_bytes(text, place);
    const std::string_view letter = text.substr(place, bytes);
    if (bytes == 0 || (bytes == 1 && (letter[0] < 32 || letter[0] == 127))) return false;
    for (const char *bad : {"\u0085", "\u009b", "\u2028", "\u202e", "\u2066"})
      if (letter == bad) return false;
    place += bytes;
  }
  return true;
}

bool sentences_about_odd_names_can_be_shown() {
  std::string letters;
  for (int count = 0; count < 100; ++count) letters += "\u6f22";
  // Refusals cut names after 200 bytes, which is inside a letter.
  for (const std::string &name : {std::string("w\n\x1b[2J\r\x07"), std::string("\u009b31m \u0085 \u2028 \u202e \u2066"),
                                  letters, "a" + letters, std::string("\xff\xc3(\xed\xa0\x80 \xf5 \xe6\xbc")}) {
    std::vector<mxs_tensor> tensors(2, mxs_tensor MXS_TENSOR_INIT);
    tensors[0].name = tensors[1].name = name.c_str();
    mxs_plan *made = nullptr;
    if (mxs_plan_create(&made, tensors.data(), 2, topology, nullptr) != MXS_INVALID_ARGUMENT || made) return false;
    if (!is_shown_as_it_is(mxs_last_error()) || !std::strstr(mxs_last_error(), "is the name of tensors[0] too"))
      return false;
  }
  return std::strstr(mxs_last_error(), "?(") != nullptr;
}

void tensors_are_found_by_name_and_told_with_their_placements(void **) { assert_true(tensors_are_found_and_told()); }
void the_loads_of_all_ranks_add_up(void **) { assert_true(loads_add_up()); }
void matrices_are_listed_with_their_scales(void **) { assert_true(matrices_are_told_with_their_placements()); }
void a_units_load_agrees_with_pencil_and_paper(void **) { assert_true(a_units_load_is_as_by_hand()); }
void bytes_of_a_gather_do_not_wrap_around(void **) { assert_true(bytes_into_many_nodes_do_not_wrap()); }
void units_can_be_asked_for_by_threads(void **) { assert_true(threads_learn_the_same_of_units()); }
void the_loads_of_all_units_agree_with_their_layouts(void **) {
  assert_true(the_loads_of_units_agree_with_their_layouts());
}
void a_units_layouts_can_be_had(void **) { assert_true(layouts_are_copies_of_the_units()); }
void the_report_names_every_tensor_and_every_rank(void **) { assert_true(the_report_has_every_tensor_and_rank()); }
void odd_names_stay_in_their_lines_of_the_report(void **) { assert_true(odd_names_stay_in_their_lines()); }
void arrays_are_read_by_the_size_of_their_first_element(void **) {
  assert_true(mixed_sizes_are_refused());
  assert_true(a_larger_struct_is_read_by_its_size());
}
void no_size_cuts_a_field_in_half(void **) { assert_true(sizes_that_cut_a_field_are_refused()); }
void a_sentence_is_a_line_of_utf8_whatever_it_quotes(void **) {
  assert_true(sentences_about_odd_names_can_be_shown());
}

void an_empty_model_needs_no_array(void **) {
  mxs_plan *made = nullptr;
  assert_int_equal(mxs_plan_create(&made, nullptr, 0, topology, nullptr), MXS_OK);
  assert_int_equal(mxs_plan_unit_count(made), 0);
  mxs_plan_destroy(&made);
  assert_null(made);
}

void create_refuses_nulls(void **) {
  mxs_plan *made = nullptr;
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;
  assert_int_equal(mxs_plan_create(nullptr, nullptr, 0, topology, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_create(&made, nullptr, 1, topology, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_create(&made, nullptr, 0, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  options.size = 3;
  assert_int_equal(mxs_plan_create(&made, nullptr, 0, topology, &options), MXS_INVALID_ARGUMENT);
  assert_null(made);
}

void counts_of_no_plan_are_0(void **) {
  assert_int_equal(mxs_plan_rank_count(nullptr), 0);
  assert_int_equal(mxs_plan_unit_count(nullptr), 0);
  assert_int_equal(mxs_plan_tensor_count(nullptr), 0);
  assert_int_equal(mxs_plan_placement_count(nullptr), 0);
  assert_int_equal(mxs_plan_matrix_count(nullptr), 0);
  assert_int_equal(mxs_plan_fingerprint(nullptr), 0);
  assert_int_equal(mxs_plan_rank_count(plan), 4);
  assert_int_equal(mxs_plan_unit_count(plan), 4);
  assert_true(mxs_plan_fingerprint(plan) != 0);
}

void lookups_refuse_nulls_and_indices_outside(void **) {
  int32_t found = 77;
  mxs_tensor_info info = MXS_TENSOR_INFO_INIT;
  mxs_placement placement = MXS_PLACEMENT_INIT;
  assert_int_equal(mxs_plan_find(plan, "nobody", &found), MXS_NOT_FOUND);
  assert_int_equal(mxs_plan_find(nullptr, "head", &found), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_find(plan, nullptr, &found), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_find(plan, "head", nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(found, 77);
  assert_int_equal(mxs_plan_tensor(nullptr, 0, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_tensor(plan, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_tensor(plan, -1, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_tensor(plan, 10000, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_placement(nullptr, 0, &placement), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_placement(plan, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_placement(plan, UINT64_MAX, &placement), MXS_INVALID_ARGUMENT);
  mxs_matrix matrix = MXS_MATRIX_INIT;
  assert_int_equal(mxs_plan_matrix(nullptr, 0, &matrix), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_matrix(plan, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_matrix(plan, mxs_plan_matrix_count(plan), &matrix), MXS_INVALID_ARGUMENT);
  matrix.size = 1;
  assert_int_equal(mxs_plan_matrix(plan, 0, &matrix), MXS_INVALID_ARGUMENT);
  info.size = placement.size = 1;
  assert_int_equal(mxs_plan_tensor(plan, 0, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_placement(plan, 0, &placement), MXS_INVALID_ARGUMENT);
  assert_null(info.name);
}

void loads_and_layouts_refuse_nulls_and_indices_outside(void **) {
  mxs_unit_load unit_load = MXS_UNIT_LOAD_INIT;
  assert_int_equal(mxs_plan_unit(nullptr, 0, &unit_load), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_unit(plan, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_unit(plan, 4, &unit_load), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_unit(plan, -1, &unit_load), MXS_INVALID_ARGUMENT);
  unit_load.size = 8;
  assert_int_equal(mxs_plan_unit(plan, 0, &unit_load), MXS_INVALID_ARGUMENT);
  assert_int_equal(unit_load.weight_bytes, 0);
  mxs_rank_load load = MXS_RANK_LOAD_INIT;
  mxs_layout *layout = nullptr;
  assert_int_equal(mxs_plan_rank(nullptr, 0, &load), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_rank(plan, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_rank(plan, 4, &load), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_rank(plan, -1, &load), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_layout(nullptr, 0, MXS_WEIGHTS, &layout), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_layout(plan, 4, MXS_WEIGHTS, &layout), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_layout(plan, -1, MXS_WEIGHTS, &layout), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_layout(plan, 0, 2, &layout), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_layout(plan, 0, MXS_WEIGHTS, nullptr), MXS_INVALID_ARGUMENT);
  assert_null(layout);
  load.size = 0;
  assert_int_equal(mxs_plan_rank(plan, 0, &load), MXS_INVALID_ARGUMENT);
}

void memory_and_report_refuse_nulls_and_nonsense(void **) {
  mxs_memory memory = MXS_MEMORY_INIT;
  mxs_memory_options options = MXS_MEMORY_OPTIONS_INIT;
  assert_int_equal(mxs_plan_memory(plan, 3, nullptr, &memory), MXS_OK);
  assert_int_equal(memory.peak, memory.rest + memory.slots + memory.gradient_slots + memory.workspace);
  assert_int_equal(mxs_plan_memory(nullptr, 0, nullptr, &memory), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_memory(plan, 0, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_memory(plan, 4, nullptr, &memory), MXS_INVALID_ARGUMENT);
  options.slots = -1;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_INVALID_ARGUMENT);
  options.slots = 0;
  const int32_t units[] = {0, mxs_plan_unit_count(plan)};
  options.own_slot_unit_count = 1;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_INVALID_ARGUMENT);
  assert_string_equal(mxs_last_error(), "options.own_slot_units is NULL, but options.own_slot_unit_count is 1");
  options.own_slot_units = units;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_OK);
  assert_true(memory.own_slots > 0);
  options.own_slot_unit_count = 2;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_INVALID_ARGUMENT);
  options.own_slot_unit_count = -1;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_INVALID_ARGUMENT);
  assert_string_equal(mxs_last_error(), "options.own_slot_unit_count is -1, which is negative");
  options.own_slot_unit_count = 0;
  options.size = 1;
  assert_int_equal(mxs_plan_memory(plan, 0, &options, &memory), MXS_INVALID_ARGUMENT);
  memory.size = 2;
  assert_int_equal(mxs_plan_memory(plan, 0, nullptr, &memory), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_report(nullptr, nullptr, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_report(plan, nullptr, 5, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_plan_report(plan, nullptr, 0, nullptr), MXS_OK);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tensors_are_found_by_name_and_told_with_their_placements),
      cmocka_unit_test(the_loads_of_all_ranks_add_up),
      cmocka_unit_test(matrices_are_listed_with_their_scales),
      cmocka_unit_test(a_units_load_agrees_with_pencil_and_paper),
      cmocka_unit_test(bytes_of_a_gather_do_not_wrap_around),
      cmocka_unit_test(units_can_be_asked_for_by_threads),
      cmocka_unit_test(the_loads_of_all_units_agree_with_their_layouts),
      cmocka_unit_test(a_units_layouts_can_be_had),
      cmocka_unit_test(the_report_names_every_tensor_and_every_rank),
      cmocka_unit_test(odd_names_stay_in_their_lines_of_the_report),
      cmocka_unit_test(arrays_are_read_by_the_size_of_their_first_element),
      cmocka_unit_test(no_size_cuts_a_field_in_half),
      cmocka_unit_test(a_sentence_is_a_line_of_utf8_whatever_it_quotes),
      cmocka_unit_test(an_empty_model_needs_no_array),
      cmocka_unit_test(create_refuses_nulls),
      cmocka_unit_test(counts_of_no_plan_are_0),
      cmocka_unit_test(lookups_refuse_nulls_and_indices_outside),
      cmocka_unit_test(loads_and_layouts_refuse_nulls_and_indices_outside),
      cmocka_unit_test(memory_and_report_refuse_nulls_and_nonsense),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
